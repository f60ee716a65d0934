CREATE TABLE credentials (
    app_name TEXT NOT NULL,
    user_id TEXT NOT NULL,
    credential_key TEXT NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (app_name, user_id, credential_key)
) WITHOUT ROWID;

CREATE TABLE credential_requests (
    app_name TEXT NOT NULL,
    user_id TEXT NOT NULL,
    id TEXT NOT NULL,
    created_at REAL NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (app_name, user_id, id)
) WITHOUT ROWID;
CREATE INDEX credential_requests_by_age ON credential_requests (created_at);
