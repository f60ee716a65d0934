-- Compactions and rewinds in the logs. load_seq: the sequence number from which a session with this as the newest is
-- loaded; 0 for all of it, null where another row says it. first_seq: of the first event that a compaction replaces.
CREATE TABLE compactions (
    session INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    first_seq INTEGER,
    load_seq INTEGER,
    PRIMARY KEY (session, seq)
) WITHOUT ROWID;
INSERT INTO compactions (session, seq)
    SELECT session, seq FROM events WHERE instr(data, '"compaction":{');
