-- The shard of a session, as records/shard.py has it. In PL/pgSQL, which takes half the time of an SQL function here.
CREATE FUNCTION shard_of(app_name text, user_id text, session_id text) RETURNS smallint
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN get_byte(sha256(convert_to(app_name, 'UTF8') || '\x00' || convert_to(user_id, 'UTF8') || '\x00'
        || convert_to(session_id, 'UTF8')), 0);
END
$$;
-- For the server that takes a shard, and resumes its runs. Rows that servers of the release before write are in it, too.
CREATE INDEX runs_unfinished_of_shard ON runs (shard_of(app_name, user_id, session_id))
    WHERE status IN ('queued', 'running');
