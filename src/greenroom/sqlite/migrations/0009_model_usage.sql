-- What each run used of each model on each day, and what budgets have reserved for its calls; see usage/store.py.
-- estimated: 1 for calls whose usage the model did not report. cost: NULL when the model's price was unknown.
CREATE TABLE model_usage (
    app_name TEXT NOT NULL,
    user_id TEXT NOT NULL,
    session_id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    key_id TEXT NOT NULL,
    model TEXT NOT NULL,
    day TEXT NOT NULL,
    estimated SMALLINT NOT NULL,
    calls BIGINT NOT NULL,
    prompt_tokens BIGINT NOT NULL,
    cached_tokens BIGINT NOT NULL,
    tool_use_tokens BIGINT NOT NULL,
    candidates_tokens BIGINT NOT NULL,
    thoughts_tokens BIGINT NOT NULL,
    total_tokens BIGINT NOT NULL,
    cost DOUBLE PRECISION,
    held_tokens BIGINT NOT NULL DEFAULT 0,
    held_cost DOUBLE PRECISION NOT NULL DEFAULT 0,
    held_until DOUBLE PRECISION NOT NULL DEFAULT 0,
    PRIMARY KEY (run_id, model, day, estimated)
);
-- With the columns that budgets sum before each model call.
CREATE INDEX model_usage_of_app
    ON model_usage (app_name, day, total_tokens, cost, held_until, held_tokens, held_cost);
CREATE INDEX model_usage_of_user
    ON model_usage (app_name, user_id, day, total_tokens, cost, held_until, held_tokens, held_cost);
CREATE INDEX model_usage_of_key
    ON model_usage (key_id, day, total_tokens, cost, held_until, held_tokens, held_cost) WHERE key_id <> '';
