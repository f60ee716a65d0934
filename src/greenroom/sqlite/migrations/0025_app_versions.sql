-- Published versions of apps, and their shares of the sessions; see versions/store.py.
CREATE TABLE app_versions (
    app_name TEXT NOT NULL,
    number INTEGER NOT NULL,
    name TEXT NOT NULL,
    version TEXT NOT NULL,
    data TEXT NOT NULL,
    whole TEXT NOT NULL,
    archive BLOB NOT NULL,
    PRIMARY KEY (app_name, number)
);
CREATE UNIQUE INDEX app_versions_by_hash ON app_versions (app_name, version);
CREATE TABLE app_traffic (
    app_name TEXT PRIMARY KEY,
    revision INTEGER NOT NULL,
    last_number INTEGER NOT NULL,
    data TEXT NOT NULL
);
