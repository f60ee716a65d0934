-- The servers on this database. address: where other servers reach it. Times are the database's.
CREATE TABLE replicas (
    id text COLLATE "C" PRIMARY KEY,
    address text,
    version text NOT NULL,
    started double precision NOT NULL,
    heartbeat double precision NOT NULL
);
-- Who owns the shards of sessions; see postgres/ownership.py. Rows are made when a shard is first taken, which raises
-- its epoch. Appends lock their row, so that pages need no room for new rows, but for new versions of all.
CREATE TABLE shards (
    shard smallint PRIMARY KEY,
    epoch bigint NOT NULL,
    owner text COLLATE "C" NOT NULL
) WITH (fillfactor = 50);
