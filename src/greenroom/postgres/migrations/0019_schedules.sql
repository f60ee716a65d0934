-- Schedules of runs, and their histories; see schedules/store.py.
CREATE TABLE schedules (
    app_name text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    is_of_app smallint NOT NULL,
    created_at double precision NOT NULL,
    shard smallint NOT NULL,
    next_at double precision,
    revision bigint NOT NULL,
    data text NOT NULL,
    PRIMARY KEY (app_name, id)
);
CREATE INDEX schedules_by_next_time ON schedules (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX schedules_by_creation ON schedules (app_name, created_at, id);
CREATE INDEX schedules_by_user ON schedules (app_name, user_id, created_at, id);
CREATE INDEX schedules_of_apps ON schedules (app_name) WHERE is_of_app = 1;

CREATE TABLE schedule_runs (
    app_name text COLLATE "C" NOT NULL,
    schedule_id text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    data text NOT NULL,
    PRIMARY KEY (app_name, schedule_id, number)
);
