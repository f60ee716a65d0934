-- The audit trail. `data` is the canonical JSON of an entry; the other columns up to it are for queries.
CREATE TABLE audit_entries (
    chain INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    time INTEGER NOT NULL,
    action TEXT NOT NULL,
    outcome TEXT NOT NULL,
    subject TEXT,
    app_name TEXT,
    user_id TEXT,
    session_id TEXT,
    run_id TEXT,
    data TEXT NOT NULL,
    hash TEXT NOT NULL,
    signature TEXT,
    PRIMARY KEY (chain, sequence)
) WITHOUT ROWID;
CREATE INDEX audit_entries_by_time ON audit_entries (time, chain, sequence);
