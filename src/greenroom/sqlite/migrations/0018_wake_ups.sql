-- The times at which waiting runs are to be looked at; see runs/wake_ups.py.
CREATE TABLE wake_ups (
    run_id TEXT PRIMARY KEY,
    at REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX wake_ups_by_time ON wake_ups (at);
