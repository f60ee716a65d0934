-- Receivers of the states of runs; see runs/push_notifications.py.
CREATE TABLE webhooks (
    run_id TEXT NOT NULL,
    id TEXT NOT NULL,
    data TEXT NOT NULL,
    is_over INTEGER NOT NULL,
    PRIMARY KEY (run_id, id)
) WITHOUT ROWID;
CREATE INDEX webhooks_to_report ON webhooks (run_id) WHERE is_over = 0;
