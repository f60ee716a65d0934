-- For lists of runs by app, by user and by status, newest first, and for the deletion of a session's keys.
CREATE INDEX runs_of_app ON runs (app_name, created_at, id);
CREATE INDEX runs_of_user ON runs (user_id, app_name, created_at, id);
CREATE INDEX runs_by_status ON runs (status, created_at, id)
    WHERE status IN ('queued', 'running', 'waiting', 'failed', 'failed unremembered', 'cancelled', 'cancelled unremembered');
DROP INDEX runs_of_session;
CREATE INDEX runs_of_session ON runs (session_id, app_name, user_id, created_at, id);
CREATE INDEX idempotency_keys_of_run ON idempotency_keys (run_id);
