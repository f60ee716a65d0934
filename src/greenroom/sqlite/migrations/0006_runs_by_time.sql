-- For the list of runs, newest first.
CREATE INDEX runs_by_time ON runs (created_at, id);
