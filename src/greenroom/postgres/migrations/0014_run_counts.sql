-- Unfinished runs of users and apps, as each server counts its own where a limit is set; see runs/postgres_counts.py.
-- owner: `user` or `app`, and a digest of its name. replica: the server. The rows change with every run, and are
-- written again after a crash: they need no log.
CREATE UNLOGGED TABLE run_counts (
    owner text COLLATE "C" NOT NULL,
    replica text COLLATE "C" NOT NULL,
    count integer NOT NULL,
    PRIMARY KEY (owner, replica)
) WITH (fillfactor = 50);
