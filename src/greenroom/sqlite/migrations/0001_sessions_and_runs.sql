-- update_time lags behind the log: sessions/sqlite.py says why and how far.
CREATE TABLE sessions (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    app_name TEXT NOT NULL,
    user_id TEXT NOT NULL,
    id TEXT NOT NULL,
    update_time REAL NOT NULL,
    UNIQUE (app_name, user_id, id)
);
CREATE INDEX sessions_of_app ON sessions (app_name, update_time, user_id, id);
CREATE INDEX sessions_of_user ON sessions (app_name, user_id, update_time, id);

-- Rows lie in the order of writing, so that a commit of many sessions' events touches few pages.
CREATE TABLE events (
    number INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    id TEXT NOT NULL,
    timestamp REAL NOT NULL,
    data TEXT NOT NULL
);
CREATE UNIQUE INDEX events_by_place ON events (session, seq);
CREATE UNIQUE INDEX events_by_id ON events (session, id);

CREATE TABLE session_listing (listed_to INTEGER NOT NULL);
INSERT INTO session_listing VALUES (0);

CREATE TABLE session_state (
    session INTEGER NOT NULL,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (session, key)
) WITHOUT ROWID;

CREATE TABLE user_state (
    app_name TEXT NOT NULL,
    user_id TEXT NOT NULL,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (app_name, user_id, key)
) WITHOUT ROWID;

CREATE TABLE app_state (
    app_name TEXT NOT NULL,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (app_name, key)
) WITHOUT ROWID;

CREATE TABLE runs (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    app_name TEXT NOT NULL,
    user_id TEXT NOT NULL,
    session_id TEXT NOT NULL,
    status TEXT NOT NULL,
    created_at REAL NOT NULL,
    idempotency_key TEXT,
    data TEXT NOT NULL
);
CREATE INDEX runs_of_session ON runs (app_name, user_id, session_id, created_at);
CREATE INDEX runs_unfinished ON runs (created_at) WHERE status IN ('queued', 'running');
CREATE UNIQUE INDEX runs_by_idempotency_key ON runs (app_name, user_id, idempotency_key)
    WHERE idempotency_key IS NOT NULL;
