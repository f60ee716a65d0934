-- Compactions and rewinds in the logs. load_seq: the sequence number from which a session with this as the newest is
-- loaded; 0 for all of it, null where another row says it. first_seq: of the first event that a compaction replaces.
CREATE TABLE compactions (
    session bigint NOT NULL,
    seq bigint NOT NULL,
    first_seq bigint,
    load_seq bigint,
    PRIMARY KEY (session, seq)
);
INSERT INTO compactions (session, seq)
    SELECT session, seq FROM events WHERE strpos(data, '"compaction":{') > 0;
