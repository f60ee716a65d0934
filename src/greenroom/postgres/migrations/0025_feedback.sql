-- Feedback on events; see feedback/store.py.
CREATE TABLE feedback (
    id text COLLATE "C" PRIMARY KEY,
    app_name text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    event_id text COLLATE "C" NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    source text COLLATE "C" NOT NULL,
    subject text COLLATE "C" NOT NULL,
    label text COLLATE "C",
    score double precision,
    created_at double precision NOT NULL,
    data text NOT NULL
);
CREATE INDEX feedback_by_event ON feedback (app_name, user_id, session_id, event_id);
CREATE INDEX feedback_by_time ON feedback (app_name, created_at, id);
CREATE INDEX feedback_by_name ON feedback (app_name, name, created_at, id);
CREATE INDEX feedback_by_user ON feedback (app_name, user_id, created_at, id);
