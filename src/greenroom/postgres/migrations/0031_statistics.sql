-- What runs add to the sums, moved into the sums by a background task.
CREATE TABLE statistics_journal (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    data text NOT NULL
);

-- Sums of a minute, an hour or a day (step, in seconds) by app, model, tool and user.
CREATE TABLE statistics (
    step integer NOT NULL,
    kind text COLLATE "C" NOT NULL,
    time bigint NOT NULL,
    app_name text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    data text NOT NULL,
    PRIMARY KEY (step, kind, time, app_name, name)
);

CREATE INDEX statistics_of_user ON statistics (name, app_name, time) WHERE kind = 'user';

-- The load of the servers in a minute, an hour or a day; the app '' has that of all apps.
CREATE TABLE statistics_load (
    step integer NOT NULL,
    app_name text COLLATE "C" NOT NULL,
    time bigint NOT NULL,
    samples bigint NOT NULL,
    running bigint NOT NULL,
    queued bigint NOT NULL,
    open_requests bigint NOT NULL,
    replicas bigint NOT NULL,
    running_maximum bigint NOT NULL,
    queued_maximum bigint NOT NULL,
    open_requests_maximum bigint NOT NULL,
    replicas_maximum bigint NOT NULL,
    PRIMARY KEY (step, app_name, time)
);
