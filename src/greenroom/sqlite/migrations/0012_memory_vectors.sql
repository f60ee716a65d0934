-- Embeddings of memories; see memory/sqlite.py. model: which made the vector, of 32-bit floats. signature: its signs.
CREATE TABLE memory_vectors (
    entry INTEGER PRIMARY KEY,
    owner INTEGER NOT NULL,
    model TEXT NOT NULL,
    signature BLOB NOT NULL,
    vector BLOB NOT NULL
);
CREATE INDEX memory_vectors_of_owner ON memory_vectors (owner, model, entry, signature);
CREATE TRIGGER memory_vectors_of_deleted AFTER DELETE ON memories BEGIN
    DELETE FROM memory_vectors WHERE entry = old.number;
END;
