-- What each run used of each model on each day, and what budgets have reserved for its calls; see usage/store.py.
-- estimated: 1 for calls whose usage the model did not report. cost: NULL when the model's price was unknown.
CREATE TABLE model_usage (
    app_name text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    run_id text COLLATE "C" NOT NULL,
    key_id text COLLATE "C" NOT NULL,
    model text COLLATE "C" NOT NULL,
    day text COLLATE "C" NOT NULL,
    estimated smallint NOT NULL,
    calls bigint NOT NULL,
    prompt_tokens bigint NOT NULL,
    cached_tokens bigint NOT NULL,
    tool_use_tokens bigint NOT NULL,
    candidates_tokens bigint NOT NULL,
    thoughts_tokens bigint NOT NULL,
    total_tokens bigint NOT NULL,
    cost double precision,
    held_tokens bigint NOT NULL DEFAULT 0,
    held_cost double precision NOT NULL DEFAULT 0,
    held_until double precision NOT NULL DEFAULT 0,
    PRIMARY KEY (run_id, model, day, estimated)
);
-- With the columns that budgets sum before each model call.
CREATE INDEX model_usage_of_app
    ON model_usage (app_name, day, total_tokens, cost, held_until, held_tokens, held_cost);
CREATE INDEX model_usage_of_user
    ON model_usage (app_name, user_id, day, total_tokens, cost, held_until, held_tokens, held_cost);
CREATE INDEX model_usage_of_key
    ON model_usage (key_id, day, total_tokens, cost, held_until, held_tokens, held_cost) WHERE key_id <> '';
