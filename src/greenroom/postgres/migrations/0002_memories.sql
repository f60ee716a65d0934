-- What users' agents remember; see memory/sql.py. source: the session, or an empty text.
CREATE TABLE memory_owners (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    app_name text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    UNIQUE (app_name, user_id)
);
CREATE TABLE memories (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    owner bigint NOT NULL,
    source text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    seconds double precision NOT NULL,
    data text NOT NULL,
    UNIQUE (owner, source, id)
);
CREATE TABLE memory_words (
    owner bigint NOT NULL,
    word text COLLATE "C" NOT NULL,
    entry bigint NOT NULL,
    PRIMARY KEY (owner, word, entry)
);
CREATE INDEX memory_words_of_entry ON memory_words (entry);

-- As SQLite's, for arrays of texts and numbers.
CREATE FUNCTION json_each(list text, OUT value text) RETURNS SETOF text LANGUAGE sql IMMUTABLE STRICT
    AS 'SELECT json_array_elements_text(list::json)';
