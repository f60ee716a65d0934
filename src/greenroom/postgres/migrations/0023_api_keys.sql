-- API keys that servers share; see server/access/api_keys.py.
CREATE TABLE api_keys (
    id TEXT PRIMARY KEY,
    digest BYTEA NOT NULL,
    name TEXT NOT NULL,
    subject TEXT NOT NULL,
    scopes TEXT[] NOT NULL,
    apps TEXT[],
    created_at DOUBLE PRECISION NOT NULL,
    expires_at DOUBLE PRECISION,
    revoked_at DOUBLE PRECISION,
    last_used_at DOUBLE PRECISION
);
