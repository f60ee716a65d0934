-- Data keys, wrapped by key-encryption keys; see encryption/key_ring.py. Rows are there where encryption is on.
-- key_id: the key-encryption key. wrapped: in base64. reserved: the number of values that servers may have encrypted.
CREATE TABLE encryption_keys (
    id INTEGER PRIMARY KEY,
    key_id TEXT NOT NULL,
    wrapped TEXT NOT NULL,
    created_at REAL NOT NULL,
    reserved INTEGER NOT NULL
);
-- `plaintext`: rows that are not encrypted are accepted, too. Others: how far a rotation of data keys has come.
CREATE TABLE encryption_state (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
);
