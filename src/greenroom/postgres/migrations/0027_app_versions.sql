-- Published versions of apps, and their shares of the sessions; see versions/store.py.
CREATE TABLE app_versions (
    app_name text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    version text COLLATE "C" NOT NULL,
    data text NOT NULL,
    whole text NOT NULL,
    archive bytea NOT NULL,
    PRIMARY KEY (app_name, number)
);
CREATE UNIQUE INDEX app_versions_by_hash ON app_versions (app_name, version);
CREATE TABLE app_traffic (
    app_name text COLLATE "C" PRIMARY KEY,
    revision bigint NOT NULL,
    last_number bigint NOT NULL,
    data text NOT NULL
);
