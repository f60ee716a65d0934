-- Messages to webhooks, one for each state of a run that a webhook receives; see records/webhook_delivery.py.
-- run_id: empty for a test that concerns no run. next_try_at: NULL unless the message is to be sent.
CREATE TABLE webhook_deliveries (
    id text COLLATE "C" PRIMARY KEY,
    run_id text COLLATE "C" NOT NULL,
    app_name text COLLATE "C" NOT NULL,
    webhook_id text COLLATE "C" NOT NULL,
    created_at double precision NOT NULL,
    number integer NOT NULL,
    next_try_at double precision,
    data text NOT NULL
);
CREATE INDEX webhook_deliveries_of_run ON webhook_deliveries (run_id);
CREATE INDEX webhook_deliveries_of_webhook ON webhook_deliveries (app_name, webhook_id, created_at, number, id);
CREATE INDEX webhook_deliveries_pending ON webhook_deliveries (next_try_at) WHERE next_try_at IS NOT NULL;
