-- What runs add to the sums, in the order in which it was stored; moved into the sums by a background task.
CREATE TABLE statistics_journal (
    id INTEGER PRIMARY KEY,
    data TEXT NOT NULL
);

-- Sums of a minute, an hour or a day (step, in seconds) by app, model, tool and user.
CREATE TABLE statistics (
    step INTEGER NOT NULL,
    kind TEXT NOT NULL,
    time INTEGER NOT NULL,
    app_name TEXT NOT NULL,
    name TEXT NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (step, kind, time, app_name, name)
) WITHOUT ROWID;

CREATE INDEX statistics_of_user ON statistics (name, app_name, time) WHERE kind = 'user';

-- The load of the servers in a minute, an hour or a day; the app '' has that of all apps.
CREATE TABLE statistics_load (
    step INTEGER NOT NULL,
    app_name TEXT NOT NULL,
    time INTEGER NOT NULL,
    samples INTEGER NOT NULL,
    running INTEGER NOT NULL,
    queued INTEGER NOT NULL,
    open_requests INTEGER NOT NULL,
    replicas INTEGER NOT NULL,
    running_maximum INTEGER NOT NULL,
    queued_maximum INTEGER NOT NULL,
    open_requests_maximum INTEGER NOT NULL,
    replicas_maximum INTEGER NOT NULL,
    PRIMARY KEY (step, app_name, time)
) WITHOUT ROWID;
