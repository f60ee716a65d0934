-- Feedback on events; see feedback/store.py.
CREATE TABLE feedback (
    id TEXT PRIMARY KEY,
    app_name TEXT NOT NULL,
    user_id TEXT NOT NULL,
    session_id TEXT NOT NULL,
    event_id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    name TEXT NOT NULL,
    source TEXT NOT NULL,
    subject TEXT NOT NULL,
    label TEXT,
    score REAL,
    created_at REAL NOT NULL,
    data TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX feedback_by_event ON feedback (app_name, user_id, session_id, event_id);
CREATE INDEX feedback_by_time ON feedback (app_name, created_at, id);
CREATE INDEX feedback_by_name ON feedback (app_name, name, created_at, id);
CREATE INDEX feedback_by_user ON feedback (app_name, user_id, created_at, id);
