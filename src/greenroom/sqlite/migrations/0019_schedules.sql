-- Schedules of runs, and their histories; see schedules/store.py.
CREATE TABLE schedules (
    app_name TEXT NOT NULL,
    id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    is_of_app INTEGER NOT NULL,
    created_at REAL NOT NULL,
    shard INTEGER NOT NULL,
    next_at REAL,
    revision INTEGER NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (app_name, id)
);
CREATE INDEX schedules_by_next_time ON schedules (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX schedules_by_creation ON schedules (app_name, created_at, id);
CREATE INDEX schedules_by_user ON schedules (app_name, user_id, created_at, id);
CREATE INDEX schedules_of_apps ON schedules (app_name) WHERE is_of_app = 1;

CREATE TABLE schedule_runs (
    app_name TEXT NOT NULL,
    schedule_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (app_name, schedule_id, number)
) WITHOUT ROWID;
