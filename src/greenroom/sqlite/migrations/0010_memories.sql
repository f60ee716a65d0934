-- What users' agents remember; see memory/sql.py. source: the session, or an empty text.
CREATE TABLE memory_owners (
    number INTEGER PRIMARY KEY,
    app_name TEXT NOT NULL,
    user_id TEXT NOT NULL,
    UNIQUE (app_name, user_id)
);
CREATE TABLE memories (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    owner INTEGER NOT NULL,
    source TEXT NOT NULL,
    id TEXT NOT NULL,
    seconds REAL NOT NULL,
    data TEXT NOT NULL,
    UNIQUE (owner, source, id)
);
CREATE TABLE memory_words (
    owner INTEGER NOT NULL,
    word TEXT NOT NULL,
    entry INTEGER NOT NULL,
    PRIMARY KEY (owner, word, entry)
) WITHOUT ROWID;
CREATE INDEX memory_words_of_entry ON memory_words (entry);
