CREATE TABLE greenroom_schema (version integer NOT NULL);
INSERT INTO greenroom_schema VALUES (0);

-- Text sorts by code points, as in the other stores.
CREATE TABLE sessions (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    app_name text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    create_time double precision NOT NULL,
    update_time double precision NOT NULL,
    last_seq bigint NOT NULL,
    fork_seq bigint NOT NULL,
    UNIQUE (app_name, user_id, id)
);
CREATE INDEX sessions_of_app ON sessions (app_name, update_time, user_id, id);
CREATE INDEX sessions_of_user ON sessions (app_name, user_id, update_time, id);

CREATE TABLE events (
    session bigint NOT NULL,
    seq bigint NOT NULL,
    id text COLLATE "C" NOT NULL,
    timestamp double precision NOT NULL,
    data text NOT NULL,
    PRIMARY KEY (session, seq),
    UNIQUE (session, id)
);

-- As in SQLite: sessions/sqlite_log.py has an example.
CREATE TABLE session_ancestors (
    session bigint NOT NULL,
    upto bigint NOT NULL,
    above bigint NOT NULL,
    ancestor bigint NOT NULL,
    PRIMARY KEY (session, upto)
);
CREATE INDEX session_ancestors_by_ancestor ON session_ancestors (ancestor, upto);
CREATE TABLE state_changes (
    session bigint NOT NULL,
    key text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    value text,
    PRIMARY KEY (session, key, seq)
);

-- Inline data of events, stored once for all sessions. position: of the blob among those of the event.
CREATE TABLE blobs (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    sha256 bytea NOT NULL UNIQUE,
    data bytea NOT NULL
);
CREATE TABLE event_blobs (
    session bigint NOT NULL,
    seq bigint NOT NULL,
    position integer NOT NULL,
    blob bigint NOT NULL,
    PRIMARY KEY (session, seq, position)
);
CREATE INDEX event_blobs_by_blob ON event_blobs (blob);

-- A value is JSON. The row of a removed key stays, with NULL: a concurrent transaction may be setting the key.
CREATE TABLE session_state (
    session bigint NOT NULL,
    key text COLLATE "C" NOT NULL,
    value text,
    PRIMARY KEY (session, key)
);
CREATE TABLE user_state (
    app_name text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    value text,
    PRIMARY KEY (app_name, user_id, key)
);
CREATE TABLE app_state (
    app_name text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    value text,
    PRIMARY KEY (app_name, key)
);

-- Counts the transactions that changed a state; the caches of all processes compare it. User '' stands for the app.
CREATE TABLE state_versions (
    scope text COLLATE "C" NOT NULL,
    app_name text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    PRIMARY KEY (scope, app_name, user_id)
);

CREATE TABLE runs (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text COLLATE "C" NOT NULL UNIQUE,
    app_name text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    status text COLLATE "C" NOT NULL,
    created_at double precision NOT NULL,
    data text NOT NULL,
    request text
);
CREATE INDEX runs_of_session ON runs (app_name, user_id, session_id, created_at);
CREATE INDEX runs_by_time ON runs (created_at, id);
CREATE INDEX runs_unfinished ON runs (created_at) WHERE status IN ('queued', 'running');

CREATE TABLE idempotency_keys (
    app_name text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    digest text,
    PRIMARY KEY (app_name, user_id, key)
);
CREATE INDEX idempotency_keys_of_run ON idempotency_keys (run_id);

CREATE TABLE credentials (
    app_name text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    credential_key text COLLATE "C" NOT NULL,
    data text NOT NULL,
    PRIMARY KEY (app_name, user_id, credential_key)
);
CREATE TABLE credential_requests (
    app_name text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    created_at double precision NOT NULL,
    data text NOT NULL,
    PRIMARY KEY (app_name, user_id, id)
);
CREATE INDEX credential_requests_by_age ON credential_requests (created_at);

-- As in SQLite, for the statements that both databases share. path: `$.name`.
CREATE FUNCTION json_extract(data text, path text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT data::json ->> substr(path, 3) $$;

CREATE TABLE spans (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    app_name text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    event_id text COLLATE "C",
    data text NOT NULL
);
CREATE INDEX spans_of_session ON spans (session_id, app_name, user_id);
CREATE INDEX spans_of_event ON spans (event_id) WHERE event_id IS NOT NULL;
