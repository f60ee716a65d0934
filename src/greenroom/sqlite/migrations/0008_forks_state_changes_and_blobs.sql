-- The sequence number up to which a fork has its ancestors' events; 0 for other sessions.
ALTER TABLE sessions ADD COLUMN fork_seq INTEGER NOT NULL DEFAULT 0;

-- Where a fork's inherited events are: those with above < seq <= upto are the ancestor's. All ancestors are listed, so
-- that nobody walks from one to the next. What a deleted session shares stays while it is listed here.
CREATE TABLE session_ancestors (
    session INTEGER NOT NULL,
    upto INTEGER NOT NULL,
    above INTEGER NOT NULL,
    ancestor INTEGER NOT NULL,
    PRIMARY KEY (session, upto)
) WITHOUT ROWID;
CREATE INDEX session_ancestors_by_ancestor ON session_ancestors (ancestor, upto);

-- Which event changed a key of a session's own state. value: null, because the event has it; at seq 0 the key's value
-- before its first change.
CREATE TABLE state_changes (
    session INTEGER NOT NULL,
    key TEXT NOT NULL,
    seq INTEGER NOT NULL,
    value TEXT,
    PRIMARY KEY (session, key, seq)
) WITHOUT ROWID;
INSERT INTO state_changes (session, key, seq)
    SELECT session, delta.key, seq
    FROM events, json_each(CASE WHEN json_valid(data) THEN data ELSE '{}' END, '$.actions.stateDelta') AS delta
    WHERE instr(data, '"stateDelta":{"') AND delta.key NOT GLOB 'app:*' AND delta.key NOT GLOB 'user:*';

-- Inline data of events, stored once for all sessions. position: of the blob among those of the event.
CREATE TABLE blobs (
    number INTEGER PRIMARY KEY,
    sha256 BLOB NOT NULL UNIQUE,
    data BLOB NOT NULL
);
CREATE TABLE event_blobs (
    session INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    position INTEGER NOT NULL,
    blob INTEGER NOT NULL,
    PRIMARY KEY (session, seq, position)
) WITHOUT ROWID;
CREATE INDEX event_blobs_by_blob ON event_blobs (blob);
