-- The times at which waiting runs are to be looked at; see runs/wake_ups.py.
CREATE TABLE wake_ups (
    run_id text COLLATE "C" PRIMARY KEY,
    at double precision NOT NULL
);
CREATE INDEX wake_ups_by_time ON wake_ups (at);
