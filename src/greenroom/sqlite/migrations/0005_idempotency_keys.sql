-- A run may have come by several keys: of the request that began it, and of each answer that it went on with.
CREATE TABLE idempotency_keys (
    app_name TEXT NOT NULL,
    user_id TEXT NOT NULL,
    key TEXT NOT NULL,
    run_id TEXT NOT NULL,
    digest TEXT,
    PRIMARY KEY (app_name, user_id, key)
) WITHOUT ROWID;
INSERT INTO idempotency_keys
    SELECT app_name, user_id, idempotency_key, id, json_extract(data, '$.requestDigest')
    FROM runs WHERE idempotency_key IS NOT NULL;
DROP INDEX runs_by_idempotency_key;
-- runs.idempotency_key is written no more; older releases of SQLite can't drop a column.
