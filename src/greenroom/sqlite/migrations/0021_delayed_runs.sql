-- For the list of queued runs, of which delayed ones are no part of `runs_by_status`.
CREATE INDEX runs_delayed ON runs (status, created_at, id) WHERE status = 'queued delayed';
