-- The webhooks of apps that clients have stored; see runs/app_webhooks.py.
CREATE TABLE app_webhooks (
    app_name TEXT NOT NULL,
    id TEXT NOT NULL,
    data TEXT NOT NULL,
    PRIMARY KEY (app_name, id)
);
