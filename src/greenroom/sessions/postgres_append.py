"""The statements that append events to their logs, with their state deltas, in one round trip: many events of many
sessions, or one.

They lock the sessions, so that concurrent transactions append one after the other. Their snapshot may be older than the
locks: when another transaction has stored an event of the same id or number meanwhile, they fail with
unique_violation, and the database repeats them.

Events may carry the epoch of their session's shard: see `postgres/ownership.py`. They are written only if it is still
the shard's, and the statement keeps it so until its commit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from greenroom.encryption.codec import PLAIN, Codec
from greenroom.errors import OwnershipLost, SessionNotFound
from greenroom.postgres.connection import Connection
from greenroom.postgres.ownership import IS_OWNER, IS_OWNER_OF_ONE, Fence, columns_of, lost_of, parameters_of
from greenroom.records.session import SessionKey
from greenroom.records.state import REMOVED, ScopedDelta
from greenroom.sessions.backend import Stored
from greenroom.sessions.places import encode_state
from greenroom.sessions.prepared_event import PreparedEvent

# Sets `delta` (number, app_name, user_id, place, scope, key, value); of equal keys the greatest place counts.
_SET_STATE = """
), of_session AS (
    INSERT INTO session_state (session, key, value)
    SELECT DISTINCT ON (number, key) number, key, value FROM delta WHERE scope = 'session'
    ORDER BY number, key, place DESC
    ON CONFLICT (session, key) DO UPDATE SET value = excluded.value
), of_user AS (
    INSERT INTO user_state (app_name, user_id, key, value)
    SELECT DISTINCT ON (app_name, user_id, key) app_name, user_id, key, value FROM delta WHERE scope = 'user'
    ORDER BY app_name, user_id, key, place DESC
    ON CONFLICT (app_name, user_id, key) DO UPDATE SET value = excluded.value
), of_app AS (
    INSERT INTO app_state (app_name, key, value)
    SELECT DISTINCT ON (app_name, key) app_name, key, value FROM delta WHERE scope = 'app'
    ORDER BY app_name, key, place DESC
    ON CONFLICT (app_name, key) DO UPDATE SET value = excluded.value
), versions AS (
    INSERT INTO state_versions (scope, app_name, user_id, version)
    SELECT DISTINCT scope, app_name, CASE scope WHEN 'user' THEN user_id ELSE '' END, 1
    FROM delta WHERE scope <> 'session' ORDER BY 1, 2, 3
    ON CONFLICT (scope, app_name, user_id) DO UPDATE SET version = state_versions.version + 1
)
"""
_SAVE_STATE = f"""
WITH delta AS (
    SELECT $1::bigint AS number, $2::text AS app_name, $3::text AS user_id, 0 AS place, scope, key, value
    FROM unnest($4::text[], $5::text[], $6::text[]) AS given (scope, key, value)
{_SET_STATE}
SELECT
"""
_APPEND = f"""
WITH given AS MATERIALIZED (
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::float8[], $6::text[])
        WITH ORDINALITY AS given (app_name, user_id, session_id, id, timestamp, data, place)
), locked AS MATERIALIZED (
    SELECT number, app_name, user_id, id, last_seq, fork_seq FROM sessions
    WHERE (app_name, user_id, id) IN (SELECT app_name, user_id, session_id FROM given)
        AND {IS_OWNER.format(shards="$7", epochs="$8")}
    ORDER BY number FOR UPDATE
), found AS MATERIALIZED (
    SELECT given.place, given.id, number, locked.app_name, locked.user_id, last_seq, given.timestamp, given.data,
        coalesce(
            (SELECT seq FROM events WHERE session = number AND events.id = given.id),
            CASE WHEN fork_seq > 0 THEN (
                SELECT seq FROM session_ancestors JOIN events ON events.session = ancestor AND events.id = given.id
                WHERE session_ancestors.session = number AND seq > above AND seq <= upto
            ) END
        ) AS stored_seq,
        row_number() OVER (PARTITION BY number, given.id ORDER BY place) > 1 AS is_copy
    FROM given JOIN locked
        ON locked.app_name = given.app_name AND locked.user_id = given.user_id AND locked.id = given.session_id
), new AS MATERIALIZED (
    SELECT *, last_seq + row_number() OVER (PARTITION BY number ORDER BY place) AS seq
    FROM found WHERE stored_seq IS NULL AND NOT is_copy
), inserted AS (
    INSERT INTO events (session, seq, id, timestamp, data) SELECT number, seq, id, timestamp, data FROM new
), updated AS (
    UPDATE sessions SET last_seq = last.seq, update_time = last.timestamp
    FROM (SELECT DISTINCT ON (number) number, seq, timestamp FROM new ORDER BY number, seq DESC) AS last
    WHERE sessions.number = last.number
"""
# Rows of state_changes have no value, since the event has it; at seq 0 is the value before the first change of a key.
_WITH_STATE = f"""
), delta AS (
    SELECT number, app_name, user_id, place, seq, scope, key, value
    FROM unnest($9::bigint[], $10::text[], $11::text[], $12::text[]) AS changed (place, scope, key, value)
    JOIN new USING (place)
), changes AS (
    INSERT INTO state_changes (session, key, seq, value)
    SELECT number, key, seq, NULL FROM delta WHERE scope = 'session'
    UNION ALL
    SELECT DISTINCT number, session_state.key, 0, session_state.value
    FROM delta JOIN session_state ON session_state.session = number AND session_state.key = delta.key
    WHERE scope = 'session' AND session_state.value IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM state_changes WHERE state_changes.session = number AND state_changes.key = delta.key
    )
    ON CONFLICT DO NOTHING
{_SET_STATE}
"""
_RESULT = """
SELECT found.place, coalesce(found.stored_seq, new.seq), found.stored_seq IS NULL AND NOT found.is_copy
FROM found LEFT JOIN new ON new.number = found.number AND new.id = found.id
"""
_APPEND_EVENTS = f"{_APPEND}){_RESULT}"
_APPEND_EVENTS_AND_STATE = f"{_APPEND}{_WITH_STATE}{_RESULT}"

# For one event, in a fraction of the time: most of a small append is the start of the statement's many parts. Without
# a row when the session is not found or has the event, or the shard is lost: the statement for many says which.
_APPEND_ONE = f"""
WITH updated AS (
    UPDATE sessions SET last_seq = last_seq + 1, update_time = $5
    WHERE app_name = $1 AND user_id = $2 AND id = $3
        AND {IS_OWNER_OF_ONE.format(shard="$7", epoch="$8")}
        AND NOT EXISTS (SELECT 1 FROM events WHERE session = number AND events.id = $4)
        AND NOT (fork_seq > 0 AND EXISTS (
            SELECT 1 FROM session_ancestors JOIN events ON events.session = ancestor AND events.id = $4
            WHERE session_ancestors.session = number AND seq > above AND seq <= upto
        ))
    RETURNING number, last_seq
), inserted AS (
    INSERT INTO events (session, seq, id, timestamp, data) SELECT number, last_seq, $4, $5, $6 FROM updated
"""
_WITH_STATE_OF_SESSION = """
), delta AS (
    SELECT number, last_seq AS seq, key, value FROM updated, unnest($9::text[], $10::text[]) AS changed (key, value)
), changes AS (
    INSERT INTO state_changes (session, key, seq, value)
    SELECT number, key, seq, NULL FROM delta
    UNION ALL
    SELECT number, session_state.key, 0, session_state.value
    FROM delta JOIN session_state ON session_state.session = number AND session_state.key = delta.key
    WHERE session_state.value IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM state_changes WHERE state_changes.session = number AND state_changes.key = delta.key
    )
    ON CONFLICT DO NOTHING
), of_session AS (
    INSERT INTO session_state (session, key, value) SELECT number, key, value FROM delta
    ON CONFLICT (session, key) DO UPDATE SET value = excluded.value
"""
_RESULT_OF_ONE = "SELECT last_seq FROM updated"
_APPEND_ONE_EVENT = f"{_APPEND_ONE}){_RESULT_OF_ONE}"
_APPEND_ONE_EVENT_AND_STATE = f"{_APPEND_ONE}{_WITH_STATE_OF_SESSION}){_RESULT_OF_ONE}"


class Append(NamedTuple):
    """Events of one session to be stored."""

    key: SessionKey
    prepared: Sequence[PreparedEvent]
    jsons: Sequence[str]
    """In which the events are stored."""

    fence: Fence | None
    """None for a program that owns no shards."""

    codec: Codec = PLAIN


class AppendBatch:
    """Results are `Stored`, SessionNotFound, or OwnershipLost."""

    async def write(
        self, connection: Connection, rows: Sequence[Append]
    ) -> Sequence[Stored | SessionNotFound | OwnershipLost]:
        events = [
            (*append.key, prepared_event.event.id, prepared_event.event.timestamp, json)
            for append in rows
            for prepared_event, json in zip(append.prepared, append.jsons, strict=True)
        ]
        if not events:
            return [[] for _ in rows]

        scoped = [(append, prepared_event.scoped) for append in rows for prepared_event in append.prepared]
        changes = [
            (place, *change)
            for place, (append, delta) in enumerate(scoped, start=1)
            for change in _changes(append.codec, append.key, delta)
        ]

        if len(events) == 1 and len(rows) == 1 and all(scope == "session" for _, scope, _, _ in changes):
            own_changes = [(key, value) for _, _, key, value in changes]
            seq = await _append_one(connection, events[0], rows[0].fence, own_changes)
            if seq is not None:
                return [[(seq, True)]]

        fences = [append.fence for append in rows]
        columns = (*_columns(events), *columns_of(fences))
        if changes:
            appended = await connection.fetch(_APPEND_EVENTS_AND_STATE, *columns, *_columns(changes))
        else:
            appended = await connection.fetch(_APPEND_EVENTS, *columns)
        if not appended and (lost := await lost_of(connection, fences)):
            return await self._write_others(connection, rows, lost)
        stored = {place: (seq, is_new) for place, seq, is_new in appended}

        results: list[Stored | SessionNotFound] = []
        place = 0
        for append in rows:
            places = range(place + 1, place + 1 + len(append.prepared))
            place += len(append.prepared)
            is_found = not append.prepared or places[0] in stored
            results.append([stored[place] for place in places] if is_found else SessionNotFound(*append.key))
        return results

    async def _write_others(
        self, connection: Connection, rows: Sequence[Append], lost: Collection[Fence]
    ) -> Sequence[Stored | SessionNotFound | OwnershipLost]:
        """Writes the rows whose shards aren't lost."""
        written = iter(await self.write(connection, [append for append in rows if append.fence not in lost]))
        results: list[Stored | SessionNotFound | OwnershipLost] = []
        for append in rows:
            if append.fence is not None and append.fence in lost:
                results.append(append.fence.refuse())
            else:
                results.append(next(written))
        return results


async def _append_one(
    connection: Connection, event: Sequence[object], fence: Fence | None, changes: Sequence[tuple[str, str | None]]
) -> int | None:
    """The sequence number; None when nothing was written."""
    if changes:
        columns = _columns(changes)
        return await connection.fetchval(_APPEND_ONE_EVENT_AND_STATE, *event, *parameters_of(fence), *columns)
    return await connection.fetchval(_APPEND_ONE_EVENT, *event, *parameters_of(fence))


async def save_state(connection: Connection, codec: Codec, number: int, key: SessionKey, delta: ScopedDelta) -> None:
    """Sets the state of a new session, and of its user and app."""
    changes = list(_changes(codec, key, delta))
    if changes:
        await connection.execute(_SAVE_STATE, number, key.app_name, key.user_id, *_columns(changes))


def _changes(codec: Codec, key: SessionKey, delta: ScopedDelta) -> Iterable[tuple[str, str, str | None]]:
    for scope, values in (("session", delta.session), ("user", delta.user), ("app", delta.app)):
        for name, value in values.items():
            yield scope, name, None if value == REMOVED else encode_state(codec, key, scope, name, value)


def _columns(rows: Sequence[Sequence[object]]) -> list[list[object]]:
    return [list(column) for column in zip(*rows, strict=True)]
