"""Queries of the SQLite session store, and the records that their rows become."""

from __future__ import annotations

import sqlite3

from greenroom.errors import SessionExists, SessionNotFound
from greenroom.records import wire
from greenroom.records.base import JsonObject
from greenroom.records.event import Event
from greenroom.records.session import GetSessionConfig, SessionKey
from greenroom.records.state import ScopedDelta
from greenroom.sessions.cached_session import CachedSession, PreparedEvent, ScopeState, frozen_from_json, frozen_json

_decode_event = wire.decoder(Event)

_APPEND = """
    INSERT INTO events (session, seq, id, timestamp, data)
    SELECT number,
           ifnull((SELECT seq FROM events WHERE session = sessions.number ORDER BY seq DESC LIMIT 1), 0) + 1,
           ?4, ?5, CAST(?6 AS TEXT)
    FROM sessions WHERE app_name = ?1 AND user_id = ?2 AND id = ?3
    ON CONFLICT (session, id) DO NOTHING
    RETURNING session, seq
"""
_FIND_EVENT = """
    SELECT events.seq FROM sessions LEFT JOIN events ON events.session = sessions.number AND events.id = ?4
    WHERE sessions.app_name = ?1 AND sessions.user_id = ?2 AND sessions.id = ?3
"""
_CREATE = """
    INSERT INTO sessions (app_name, user_id, id, update_time) VALUES (?, ?, ?, ?)
    ON CONFLICT (app_name, user_id, id) DO NOTHING RETURNING number
"""
_FIND = "SELECT number, update_time FROM sessions WHERE app_name = ? AND user_id = ? AND id = ?"
_END = "SELECT seq, timestamp FROM events WHERE session = ? ORDER BY seq DESC LIMIT 1"
_EVENTS_AFTER = "SELECT data FROM events WHERE session = ? AND seq > ? ORDER BY seq LIMIT ?"
_WINDOW = """
    SELECT data FROM (SELECT seq, timestamp, data FROM events WHERE session = ? ORDER BY seq DESC LIMIT ?)
    WHERE timestamp >= ? ORDER BY seq
"""
_SESSION_STATE = "SELECT key, value FROM session_state WHERE session = ?"
_USER_STATE = "SELECT key, value FROM user_state WHERE app_name = ? AND user_id = ?"
_APP_STATE = "SELECT key, value FROM app_state WHERE app_name = ?"
_SET = {
    "session": "INSERT INTO session_state VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET value = excluded.value",
    "user": "INSERT INTO user_state VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET value = excluded.value",
    "app": "INSERT INTO app_state VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET value = excluded.value",
}
_UNSET = {
    "session": "DELETE FROM session_state WHERE session = ? AND key = ?",
    "user": "DELETE FROM user_state WHERE app_name = ? AND user_id = ? AND key = ?",
    "app": "DELETE FROM app_state WHERE app_name = ? AND key = ?",
}
_PAGE = """
    SELECT number, user_id, id, update_time FROM sessions
    WHERE app_name = ?1 {of_user} AND (update_time, user_id, id) > (?3, ?4, ?5)
    ORDER BY update_time, user_id, id LIMIT ?6
"""
_PAGE_OF_APP = _PAGE.format(of_user="AND ?2 IS NULL")
_PAGE_OF_USER = _PAGE.format(of_user="AND user_id = ?2")
_LIST_TO = "UPDATE session_listing SET listed_to = (SELECT ifnull(max(number), 0) FROM events)"
_ROLL_FORWARD = """
    UPDATE sessions SET update_time = newest.timestamp
    FROM (
        SELECT session, timestamp, max(number) FROM events
        WHERE number > (SELECT listed_to FROM session_listing) GROUP BY session
    ) AS newest
    WHERE sessions.number = newest.session
"""


def create(cursor: sqlite3.Cursor, key: SessionKey, now: float, delta: ScopedDelta) -> CachedSession:
    """Raises SessionExists."""
    row = cursor.execute(_CREATE, (*key, now)).fetchone()
    if row is None:
        raise SessionExists(*key)
    _write_state(cursor, key, row[0], delta)
    state = {name: value for name, value in delta.session.items() if value is not None}
    return CachedSession(
        key, app=_app_state(cursor, key), user=_user_state(cursor, key), state=state, update_time=now, number=row[0]
    )


def append(cursor: sqlite3.Cursor, key: SessionKey, one: PreparedEvent) -> tuple[int, bool]:
    """The event's sequence number, and whether it is new in the log. Raises SessionNotFound."""
    event = one.event
    row = cursor.execute(_APPEND, (*key, event.id, event.timestamp, one.json)).fetchone()
    if row is None:
        row = cursor.execute(_FIND_EVENT, (*key, event.id)).fetchone()
        if row is None:
            raise SessionNotFound(*key)
        return row[0], False
    delta = one.scoped
    if delta.session or delta.user or delta.app:
        _write_state(cursor, key, row[0], delta)
    return row[1], True


def delete(cursor: sqlite3.Cursor, key: SessionKey) -> None:
    row = cursor.execute(_FIND, key).fetchone()
    if row is None:
        return
    roll_forward(cursor)
    for table, column in (("events", "session"), ("session_state", "session"), ("sessions", "number")):
        cursor.execute(f"DELETE FROM {table} WHERE {column} = ?", row[:1])
    # SQLite may give the last events' numbers out again.
    cursor.execute(_LIST_TO)


def roll_forward(cursor: sqlite3.Cursor) -> None:
    """Carry the times of new events over to `sessions.update_time`.

    Done before listing, not with each append, where it would move two index entries.
    """
    cursor.execute(_ROLL_FORWARD)
    if cursor.rowcount:
        cursor.execute(_LIST_TO)


def read(
    cursor: sqlite3.Cursor, key: SessionKey, *, known_number: int = 0, known_events: int = 0
) -> CachedSession | None:
    """The session with its log; without the first `known_events` of them if it still is the session of that number."""
    found = cursor.execute(_FIND, key).fetchone()
    if found is None:
        return None
    number, update_time = found
    after = known_events if number == known_number else 0
    rows = cursor.execute(_EVENTS_AFTER, (number, after, -1)).fetchall()
    return _with_events(cursor, key, number, update_time, rows)


def read_part(cursor: sqlite3.Cursor, key: SessionKey, config: GetSessionConfig) -> CachedSession | None:
    """The session with the requested part of its log."""
    found = cursor.execute(_FIND, key).fetchone()
    if found is None:
        return None
    number, update_time = found
    recent = -1 if config.num_recent_events is None else config.num_recent_events
    since = float("-inf") if config.after_timestamp is None else config.after_timestamp
    rows = cursor.execute(_WINDOW, (number, recent, since)).fetchall()
    return _with_events(cursor, key, number, update_time, rows)


def read_events(
    cursor: sqlite3.Cursor, key: SessionKey, after: int, limit: int | None
) -> tuple[list[Event], int] | None:
    """Events after a sequence number, and the last one of the log."""
    found = cursor.execute(_FIND, key).fetchone()
    if found is None:
        return None
    rows = cursor.execute(_EVENTS_AFTER, (found[0], max(after, 0), -1 if limit is None else limit)).fetchall()
    end = cursor.execute(_END, found[:1]).fetchone()
    return [_decode(row[0]) for row in rows], end[0] if end else 0


def read_later(cursor: sqlite3.Cursor, key: SessionKey, last_id: str | None, known: int) -> list[Event] | None:
    """The events after sequence number `known`, if that is of the event `last_id`, or zero."""
    if last_id is not None:
        row = cursor.execute(_FIND_EVENT, (*key, last_id)).fetchone()
        if row is None or row[0] != known:
            return None
    page = read_events(cursor, key, known, None)
    return page[0] if page else None


def read_page(
    cursor: sqlite3.Cursor,
    app_name: str,
    user_id: str | None,
    behind: tuple[float, str, str] | None,
    limit: int | None,
) -> list[CachedSession]:
    """Sessions without their logs."""
    query = _PAGE_OF_APP if user_id is None else _PAGE_OF_USER
    position = behind or (float("-inf"), "", "")
    rows = cursor.execute(query, (app_name, user_id, *position, -1 if limit is None else limit)).fetchall()
    app: ScopeState | None = None
    users: dict[str, ScopeState] = {}
    page: list[CachedSession] = []
    for number, user, session_id, update_time in rows:
        key = SessionKey(app_name, user, session_id)
        app = app or _app_state(cursor, key)
        if user not in users:
            users[user] = _user_state(cursor, key)
        state = _values(cursor, _SESSION_STATE, number)
        page.append(CachedSession(key, app=app, user=users[user], state=state, update_time=update_time))
    return page


def _with_events(
    cursor: sqlite3.Cursor, key: SessionKey, number: int, update_time: float, rows: list[tuple[str]]
) -> CachedSession:
    end = cursor.execute(_END, (number,)).fetchone()
    session = CachedSession(
        key,
        app=_app_state(cursor, key),
        user=_user_state(cursor, key),
        state=_values(cursor, _SESSION_STATE, number),
        events=[_decode(data) for (data,) in rows],
        update_time=end[1] if end else update_time,
        number=number,
    )
    session.size = sum(len(data) for (data,) in rows)
    return session


def _decode(data: str) -> Event:
    return _decode_event(data.encode())


def _app_state(cursor: sqlite3.Cursor, key: SessionKey) -> ScopeState:
    return ScopeState(_values(cursor, _APP_STATE, key.app_name))


def _user_state(cursor: sqlite3.Cursor, key: SessionKey) -> ScopeState:
    return ScopeState(_values(cursor, _USER_STATE, key.app_name, key.user_id))


def _values(cursor: sqlite3.Cursor, query: str, *owner: str | int) -> JsonObject:
    return {key: frozen_from_json(value) for key, value in cursor.execute(query, owner).fetchall()}


def _write_state(cursor: sqlite3.Cursor, key: SessionKey, number: int, delta: ScopedDelta) -> None:
    for scope, owner, values in (
        ("session", (number,), delta.session),
        ("user", (key.app_name, key.user_id), delta.user),
        ("app", (key.app_name,), delta.app),
    ):
        for name, value in values.items():
            if value is None:
                cursor.execute(_UNSET[scope], (*owner, name))
            else:
                cursor.execute(_SET[scope], (*owner, name, frozen_json(value)))
