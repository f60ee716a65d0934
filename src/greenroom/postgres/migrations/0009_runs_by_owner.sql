-- For lists of runs by app, by user and by status, newest first.
CREATE INDEX runs_of_app ON runs (app_name, created_at, id);
CREATE INDEX runs_of_user ON runs (user_id, app_name, created_at, id);
CREATE INDEX runs_by_status ON runs (status, created_at, id)
    WHERE status IN ('queued', 'running', 'waiting', 'failed', 'failed unremembered', 'cancelled', 'cancelled unremembered');
DROP INDEX runs_of_session;
CREATE INDEX runs_of_session ON runs (session_id, app_name, user_id, created_at, id);
-- In the order of runs' ids, so that those of a session's runs are found by the primary key.
ALTER TABLE webhooks ALTER COLUMN run_id TYPE text COLLATE "C", ALTER COLUMN id TYPE text COLLATE "C";
