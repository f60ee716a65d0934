-- The audit trail. `data` is the canonical JSON of an entry; the other columns up to it are for queries.
CREATE TABLE audit_entries (
    chain integer NOT NULL,
    sequence bigint NOT NULL,
    time bigint NOT NULL,
    action text NOT NULL,
    outcome text NOT NULL,
    subject text,
    app_name text,
    user_id text,
    session_id text,
    run_id text,
    data text NOT NULL,
    hash text NOT NULL,
    signature text,
    PRIMARY KEY (chain, sequence)
);
CREATE INDEX audit_entries_by_time ON audit_entries (time, chain, sequence);
