-- The usage of runs that ended before usage was counted by model, from their records. Which model it was is not known.
INSERT INTO model_usage (
    app_name, user_id, session_id, run_id, key_id, model, day, estimated, calls, prompt_tokens, cached_tokens,
    tool_use_tokens, candidates_tokens, thoughts_tokens, total_tokens, cost
)
SELECT app_name, user_id, session_id, id, key_id, 'unknown', day, 0, 1, prompt, cached, tool_use, candidates, thoughts,
    CASE WHEN total > prompt + tool_use + candidates + thoughts THEN total
        ELSE prompt + tool_use + candidates + thoughts END,
    NULL
FROM (
    SELECT app_name, user_id, session_id, id, key_id, to_char(to_timestamp(created_at) AT TIME ZONE 'UTC', 'YYYY-MM-DD') AS day,
        CAST(coalesce(json_extract(used, '$.promptTokenCount'), '0') AS bigint) AS prompt,
        CAST(coalesce(json_extract(used, '$.cachedContentTokenCount'), '0') AS bigint) AS cached,
        CAST(coalesce(json_extract(used, '$.toolUsePromptTokenCount'), '0') AS bigint) AS tool_use,
        CAST(coalesce(json_extract(used, '$.candidatesTokenCount'), '0') AS bigint) AS candidates,
        CAST(coalesce(json_extract(used, '$.thoughtsTokenCount'), '0') AS bigint) AS thoughts,
        CAST(coalesce(json_extract(used, '$.totalTokenCount'), '0') AS bigint) AS total
    FROM (
        SELECT app_name, user_id, session_id, id, created_at, json_extract(data, '$.usage') AS used,
            coalesce(json_extract(json_extract(data, '$.caller'), '$.keyId'), '') AS key_id
        FROM runs
        WHERE replace(status, ' unremembered', '') IN ('succeeded', 'failed', 'cancelled')
            AND NOT EXISTS (SELECT 1 FROM model_usage WHERE run_id = runs.id)
    ) AS ended
    WHERE used IS NOT NULL
) AS counted
WHERE prompt + cached + tool_use + candidates + thoughts + total > 0;
