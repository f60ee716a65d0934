"""Queries of the session stores in databases, in statements that SQLite and PostgreSQL share.

Of a session with the events 1 to 5, a fork after 3 that got an own event, and a fork of that one after 4:

    session 1: events 1 2 3 4 5
    session 2: event 4               fork_seq 3; ancestors: (upto 3, above 0, session 1)
    session 3: no events             fork_seq 4; ancestors: (upto 3, above 0, session 1), (upto 4, above 3, session 2)

When session 1 is deleted, its events 4 and 5 are; the others are kept until sessions 2 and 3 are deleted.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

from greenroom.encryption.codec import Codec
from greenroom.errors import SessionExists, SessionNotFound
from greenroom.log.compaction import changes_loading, range_of
from greenroom.records import wire
from greenroom.records.base import JsonObject
from greenroom.records.copy_on_write import CopyOnWriteList
from greenroom.records.event import Event
from greenroom.records.session import GetSessionConfig, SessionFilter, SessionKey
from greenroom.records.state import REMOVED, ScopedDelta, apply_delta, split_by_scope
from greenroom.sessions.arguments import check_fork
from greenroom.sessions.backend import LogPage, Stored
from greenroom.sessions.cached_session import CachedSession, ScopeState, fits_text
from greenroom.sessions.frozen import from_frozen, frozen_json, to_frozen
from greenroom.sessions.places import decode_event, decode_state
from greenroom.sessions.prepared_event import PreparedEvent
from greenroom.sessions.stored_event import inline_blobs, to_stored

_decode_event = wire.decoder(Event)

_ALL = 2**62
_FROM_START = float("-inf")
_PAGE_ROWS = 200

SESSIONS_PER_DELETION = 100
"""Sessions of a user that one transaction deletes, so that other writes needn't wait for all of them."""

LIST_APPS = "SELECT DISTINCT app_name FROM sessions ORDER BY app_name"
_IS_SESSION = "app_name = ?1 AND user_id = ?2 AND sessions.id = ?3"
_EVENTS = """
    SELECT seq, id, data FROM events WHERE session = ?1 AND seq > ?2 AND seq <= ?3 AND timestamp >= ?4
    ORDER BY seq LIMIT ?5
"""
_ANCESTORS = "SELECT ancestor, above, upto FROM session_ancestors WHERE session = ?1 AND upto > ?2 ORDER BY upto"
SEQ_OF_EVENT = f"""
    SELECT seq FROM sessions JOIN events ON events.session = sessions.number AND events.id = ?4 WHERE {_IS_SESSION}
    UNION ALL
    SELECT seq FROM sessions JOIN session_ancestors ON session_ancestors.session = sessions.number
    JOIN events ON events.session = ancestor AND events.id = ?4 AND seq > above AND seq <= upto WHERE {_IS_SESSION}
"""
_STATE = """
    SELECT 'session', key, value FROM session_state WHERE session = ?1 AND value IS NOT NULL
    UNION ALL SELECT 'app', key, value FROM app_state WHERE app_name = ?2 AND value IS NOT NULL
    UNION ALL SELECT 'user', key, value FROM user_state WHERE app_name = ?2 AND user_id = ?3 AND value IS NOT NULL
"""
# The keys are found by one index look-up each, not by reading all changes.
_STATE_AFTER = """
    WITH RECURSIVE changed AS (
        SELECT min(key) AS key FROM state_changes WHERE session = ?1
        UNION ALL
        SELECT (SELECT min(key) FROM state_changes WHERE session = ?1 AND key > changed.key)
        FROM changed WHERE key IS NOT NULL
    )
    SELECT key, (SELECT value FROM state_changes WHERE session = ?1 AND key = latest.key AND seq = latest.seq), seq,
        (SELECT id FROM events WHERE session = ?1 AND seq = latest.seq),
        (SELECT data FROM events WHERE session = ?1 AND seq = latest.seq)
    FROM (SELECT key, (
        SELECT max(seq) FROM state_changes WHERE session = ?1 AND key = changed.key AND seq <= ?2
    ) AS seq FROM changed WHERE key IS NOT NULL) AS latest
    UNION ALL
    SELECT key, value, 0, NULL, NULL FROM session_state WHERE session = ?1 AND value IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM state_changes WHERE session = ?1 AND key = session_state.key)
"""
PAGE = """
    SELECT number, fork_seq, update_time, user_id, id FROM sessions WHERE {terms} ORDER BY {order} LIMIT ?
"""
_INHERIT = """
    INSERT INTO session_ancestors (session, upto, above, ancestor)
    SELECT ?1, CASE WHEN upto < ?3 THEN upto ELSE ?3 END, above, ancestor
    FROM session_ancestors WHERE session = ?2 AND above < ?3
"""
_INHERIT_OWN = "INSERT INTO session_ancestors (session, upto, above, ancestor) VALUES (?, ?, ?, ?)"
_SHARED_TO = """
    SELECT coalesce((SELECT max(upto) FROM session_ancestors WHERE ancestor = ?1), 0)
    WHERE NOT EXISTS (SELECT 1 FROM sessions WHERE number = ?1)
"""
_BLOBS = """
    SELECT seq, position, sha256, blobs.data FROM event_blobs JOIN blobs ON blobs.number = blob
    WHERE session = ? AND seq > ? AND seq <= ?
"""
_SAVE_BLOB = "INSERT INTO blobs (sha256, data) VALUES (?, ?) ON CONFLICT DO NOTHING"
_REFER = f"""
    INSERT INTO event_blobs (session, seq, position, blob)
    SELECT sessions.number, ?4, ?5, blobs.number FROM sessions, blobs WHERE {_IS_SESSION} AND sha256 = ?6
"""
_CUT = (
    """
    DELETE FROM blobs WHERE number IN (SELECT blob FROM event_blobs WHERE session = ?1 AND seq > ?2)
    AND NOT EXISTS (SELECT 1 FROM event_blobs WHERE blob = blobs.number AND NOT (session = ?1 AND seq > ?2))
    """,
    "DELETE FROM event_blobs WHERE session = ?1 AND seq > ?2",
    "DELETE FROM events WHERE session = ?1 AND seq > ?2",
    "DELETE FROM compactions WHERE session = ?1 AND seq > ?2",
    "DELETE FROM state_changes WHERE session = ?1 AND (seq > ?2 OR ?2 = 0)",
)
# A row of compactions is of a compaction, or of a rewind: its load_seq is 0, since then all events are needed.
_SAVE_LOAD_POINT = f"""
    INSERT INTO compactions (session, seq, first_seq, load_seq)
    SELECT number, CAST(?4 AS bigint), CAST(?5 AS bigint), CAST(?6 AS bigint) FROM sessions WHERE {_IS_SESSION}
"""
_NEWEST_LOAD_POINT = """
    SELECT first_seq, load_seq FROM compactions
    WHERE session = ?1 AND seq > ?2 AND seq <= ?3 AND load_seq IS NOT NULL ORDER BY seq DESC LIMIT 1
"""
_EARLIER_COMPACTIONS = """
    SELECT events.id, data FROM compactions
    JOIN events ON events.session = compactions.session AND events.seq = compactions.seq
    WHERE compactions.session = ?1 AND compactions.seq > ?2 AND compactions.seq <= ?3
        AND (first_seq IS NULL OR first_seq < ?4) ORDER BY events.seq
"""
_HAS_STATE = {
    "session": "EXISTS (SELECT 1 FROM session_state WHERE session = number AND key = ? AND value = ?)",
    "user": """EXISTS (SELECT 1 FROM user_state WHERE app_name = sessions.app_name AND user_id = sessions.user_id
        AND key = ? AND value = ?)""",
    "app": "EXISTS (SELECT 1 FROM app_state WHERE app_name = sessions.app_name AND key = ? AND value = ?)",
}
_TEXTS = "SELECT value FROM json_each(CAST(? AS text))"
_NUMBERS = "SELECT CAST(value AS bigint) FROM json_each(CAST(? AS text))"
_STATES = {
    "session": """SELECT session, key, value FROM session_state WHERE value IS NOT NULL
        AND session {is_one_of_numbers}""",
    "user": "SELECT user_id, key, value FROM user_state WHERE value IS NOT NULL AND app_name = ? AND user_id = ?",
    "users": """SELECT user_id, key, value FROM user_state WHERE value IS NOT NULL AND app_name = ?
        AND user_id {is_one_of_texts}""",
    "app": "SELECT app_name, key, value FROM app_state WHERE value IS NOT NULL AND app_name = ?",
}


class SessionRow(NamedTuple):
    """A session's row."""

    number: int
    last_seq: int
    """The sequence number of the log's last event."""

    fork_seq: int
    """That of the last event that it has from the session of which it is a fork; 0 for others."""

    update_time: float
    app_version: int | None
    """Of the app's state, where the database counts versions."""

    user_version: int | None
    """Of the user's state in the app."""


class Transaction(Protocol):
    """A transaction of either database. Parameters of statements are written `?`, or `?1`, `?2`, …"""

    async def fetch(self, statement: str, *arguments: Any) -> list[Any]: ...


class SessionQueries(ABC):
    """Queries on sessions in one transaction. Subclasses implement the differences between the databases."""

    find_statement: ClassVar[str]
    """Selects `SessionRow` by app, user and id."""

    find_locked_statement: ClassVar[str]
    """The same, and keeps the session from being changed until the end of the transaction."""

    create_statement: ClassVar[str]
    """Makes a session by app, user, id, time and fork_seq. Returns its number; nothing when another one is there."""

    is_one_of: ClassVar[str] = "IN ({})"
    """Compares with the values of a query, by an index of the compared column."""

    before_deletion: ClassVar[tuple[str, ...]] = ()
    after_deletion: ClassVar[tuple[str, ...]] = ()

    def __init__(self, transaction: Transaction, codec: Codec) -> None:
        self.fetch = transaction.fetch
        self.codec = codec

    @abstractmethod
    async def insert(self, key: SessionKey, prepared: Sequence[PreparedEvent], jsons: Sequence[bytes]) -> Stored:
        """Adds events to the log, in the JSON given, and their deltas to the states. Raises SessionNotFound."""

    @abstractmethod
    async def save_state(self, key: SessionKey, number: int, delta: ScopedDelta) -> None:
        """Sets the state of a new session, and of its user and app."""

    async def create(self, key: SessionKey, now: float, delta: ScopedDelta, *, fork_seq: int = 0) -> CachedSession:
        """Raises SessionExists."""
        rows = await self.create_row(key, now, fork_seq)
        if not rows:
            raise SessionExists(*key)
        await self.save_state(key, rows[0][0], delta)
        return await self._with_state(key, SessionRow(rows[0][0], fork_seq, fork_seq, now, 0, 0))

    async def create_row(self, key: SessionKey, now: float, fork_seq: int) -> list[Any]:
        """Returns the number of the new session in a row; no row when another one is there."""
        return await self.fetch(self.create_statement, *key, now, fork_seq)

    async def append(self, key: SessionKey, prepared: Sequence[PreparedEvent]) -> Stored:
        """Raises SessionNotFound."""
        split = [to_stored(prepared_event.json or b"") for prepared_event in prepared]
        stored = await self.insert(key, prepared, [json for json, _ in split])
        for prepared_event, (seq, is_new) in zip(prepared, stored, strict=True):
            if is_new and changes_loading(prepared_event.event):
                await self._save_load_point(key, prepared_event.event, seq)

        for (seq, is_new), (_, blobs) in zip(stored, split, strict=True):
            if not is_new:
                continue
            for position, data in blobs:
                digest = blob_digest(self.codec, data)
                await self.fetch(_SAVE_BLOB, digest, self.codec.encode_bytes(data, "blobs", digest.hex()))
                await self.fetch(_REFER, *key, seq, position, digest)
        return stored

    async def _save_load_point(self, key: SessionKey, event: Event, seq: int) -> None:
        """Writes from which event on a run loads the log after this compaction or rewind.

        A range that isn't one of this log, as after an import in part, is no reason to load less.
        """
        first_seq: int | None = None
        load_seq = 0 if event.actions.compaction is None else None
        replaced = range_of(event)
        if replaced is not None:
            seq_of_last = await self.find_event(key, replaced.last_id)
            if seq_of_last == replaced.last_seq < seq:
                first_seq = replaced.first_seq
                load_seq = max(min(replaced.load_seq, replaced.last_seq + 1), 0)
        await self.fetch(_SAVE_LOAD_POINT, *key, seq, first_seq, load_seq)

    async def fork(self, key: SessionKey, new_key: SessionKey, seq: int | None, now: float) -> CachedSession:
        """The new session without its events. Raises SessionNotFound, SessionExists, InvalidRequest."""
        parent = await self.require(key, lock=True)
        seq = check_fork(seq, parent.last_seq)
        if seq == parent.last_seq:
            state = (await self._with_state(key, parent)).state
        else:
            state = await self._state_after(key, parent, seq)
        fork = await self.create(new_key, now, ScopedDelta({}, {}, state), fork_seq=seq)
        await self.fetch(_INHERIT, fork.number, parent.number, seq)
        if seq > parent.fork_seq:
            await self.fetch(_INHERIT_OWN, fork.number, seq, parent.fork_seq, parent.number)
        return fork

    async def delete(self, key: SessionKey) -> None:
        await self._delete_all([key])

    async def _delete_all(self, keys: Sequence[SessionKey]) -> None:
        for statement in self.before_deletion:
            await self.fetch(statement)
        for key in keys:
            await self._delete(key)
        for statement in self.after_deletion:
            await self.fetch(statement)

    async def _delete(self, key: SessionKey) -> None:
        rows = await self.fetch(f"DELETE FROM sessions WHERE {_IS_SESSION} RETURNING number", *key)
        if not rows:
            return
        await self.fetch("DELETE FROM spans WHERE app_name = ? AND user_id = ? AND session_id = ?", *key)
        number: int = rows[0][0]
        owners: list[int] = [number, *(row[0] for row in await self.fetch(_ANCESTORS, number, 0))]
        await self.fetch("DELETE FROM session_ancestors WHERE session = ?", number)
        for owner in owners:
            for (shared_to,) in await self.fetch(_SHARED_TO, owner):
                await self._cut(key, owner, shared_to)

    async def _cut(self, key: SessionKey, number: int, seq: int) -> None:
        """Deletes the events after `seq` of a session without row; its state becomes that after it.

        key: the session's, or a fork's, which has the same app and user.
        """
        state = await self._state_after(key, SessionRow(number, _ALL, 0, 0, 0, 0), seq) if seq else {}
        for statement in _CUT:
            await self.fetch(statement, number, seq)
        await self.fetch("DELETE FROM session_state WHERE session = ?", number)
        await self.save_state(key, number, ScopedDelta({}, {}, state))

    async def delete_user(self, app_name: str, user_id: str) -> list[SessionKey]:
        """The keys of the deleted sessions: at most `SESSIONS_PER_DELETION`; if fewer, these were the last ones, and
        the user's state was deleted, too."""
        owner = app_name, user_id
        query = "SELECT id FROM sessions WHERE app_name = ? AND user_id = ? LIMIT ?"
        keys = [SessionKey(*owner, row[0]) for row in await self.fetch(query, *owner, SESSIONS_PER_DELETION)]
        await self._delete_all(keys)
        if len(keys) < SESSIONS_PER_DELETION:
            await self.fetch("DELETE FROM user_state WHERE app_name = ? AND user_id = ?", *owner)
        return keys

    async def find(self, key: SessionKey) -> SessionRow | None:
        rows = await self.fetch(self.find_statement, *key)
        return SessionRow(*rows[0]) if rows else None

    async def require(self, key: SessionKey, *, lock: bool = False) -> SessionRow:
        rows = await self.fetch(self.find_locked_statement if lock else self.find_statement, *key)
        if not rows:
            raise SessionNotFound(*key)
        return SessionRow(*rows[0])

    async def find_event(self, key: SessionKey, event_id: str) -> int | None:
        """The sequence number of an event, own or inherited. Raises SessionNotFound."""
        rows = await self.fetch(SEQ_OF_EVENT, *key, event_id)
        if not rows:
            await self.require(key)
        return rows[0][0] if rows else None

    async def read(
        self, key: SessionKey, *, known_number: int = 0, known_events: int = 0, from_compaction: bool = False
    ) -> CachedSession | None:
        """The session with its log; without its first `known_events` if it still is the session of that number.

        from_compaction: else without the events that a run doesn't need since the newest compaction."""
        row = await self.find(key)
        if row is None:
            return None
        session = await self._with_state(key, row)
        after = 0
        carried: list[Event] = []
        if row.number == known_number:
            after = known_events
        elif from_compaction:
            after, carried = await self._load_point(key, row)
        events, session.size = await self._read_log(key, row, after=after)
        session.events = CopyOnWriteList(events, skipped=after, carried=carried)
        return session

    async def _load_point(self, key: SessionKey, session: SessionRow) -> tuple[int, list[Event]]:
        """The last sequence number of a log that a run doesn't need, and the earlier compactions that it does.

        After a rewind all events are needed, until the next compaction.
        """
        parts = await self._stored_parts(session, 0, _ALL)
        for part in reversed(parts):
            rows = await self.fetch(_NEWEST_LOAD_POINT, *part)
            if rows:
                break
        else:
            return 0, []

        first_seq, load_seq = rows[0]
        earlier: list[Event] = []
        for number, above, last in parts:
            if above < load_seq - 1:
                compactions = await self.fetch(_EARLIER_COMPACTIONS, number, above, min(last, load_seq - 1), first_seq)
                earlier += [self._event(key, event_id, data) for event_id, data in compactions]
        return max(load_seq - 1, 0), earlier

    async def read_part(self, key: SessionKey, config: GetSessionConfig) -> CachedSession | None:
        """The session with the requested part of its log, and its state after that."""
        row = await self.find(key)
        if row is None:
            return None
        last = row.last_seq
        until = last if config.until_seq is None else min(config.until_seq, last)
        after = 0 if config.num_recent_events is None else max(until - config.num_recent_events, 0)
        since = _FROM_START if config.after_timestamp is None else config.after_timestamp
        session = await self._with_state(key, row)
        session.events.extend((await self._read_log(key, row, after=after, upto=until, since=since))[0])
        if until < last:
            session.state = await self._state_after(key, row, until)
        return session

    async def read_events(self, key: SessionKey, after: int, limit: int | None) -> LogPage | None:
        row = await self.find(key)
        if row is None:
            return None
        events, _ = await self._read_log(key, row, after=max(after, 0), limit=limit)
        return LogPage(events, row.last_seq)

    async def read_later(self, key: SessionKey, last_id: str | None, known: int) -> list[Event] | None:
        """The events after sequence number `known`, if that is of the event `last_id`, or zero."""
        row = await self.find(key)
        if row is None or (last_id is not None and await self.find_event(key, last_id) != known):
            return None
        return (await self._read_log(key, row, after=known))[0]

    async def read_page(
        self,
        app_name: str,
        user_id: str | None,
        where: SessionFilter,
        before: tuple[float, str, str] | None,
        limit: int | None,
    ) -> list[CachedSession]:
        """Sessions without their logs: all, oldest update first, or as many as `limit` says, newest update first."""
        terms: list[str] = ["app_name = ?"]
        arguments: list[str | float] = [app_name]
        for term, value in (
            ("user_id = ?", user_id),
            ("update_time >= ?", where.updated_from),
            ("update_time < ?", where.updated_before),
        ):
            if value is not None:
                terms.append(term)
                arguments.append(value)
        wanted = split_by_scope(to_frozen(where.state or {}))
        if self.codec.is_plain:
            for scope, values in wanted._asdict().items():
                for name, value in values.items():
                    terms.append(_HAS_STATE[scope])
                    arguments += [name, frozen_json(value).decode()]
        is_read_here = where.text is not None or (bool(where.state) and not self.codec.is_plain)
        if limit is None:
            direction = "ASC"
            count = _ALL
        else:
            direction = "DESC"
            count = _PAGE_ROWS if is_read_here else limit
        order = f"update_time {direction}, user_id {direction}, id {direction}"

        page: list[CachedSession] = []
        while True:
            more = ["(update_time, user_id, id) < (?, ?, ?)"] if before is not None else []
            rows = await self.fetch_page([*terms, *more], [*arguments, *(before or ())], order, count)
            by_key = {
                SessionKey(app_name, user, session_id): SessionRow(number, 0, fork_seq, update_time, None, None)
                for number, fork_seq, update_time, user, session_id in rows
            }
            for session in await self._without_logs(app_name, by_key):
                if not self.codec.is_plain and not _has_state(session, wanted):
                    continue
                if where.text is None or await self._has_text(session, by_key[session.key], where.text):
                    page.append(session)
                if len(page) == limit:
                    return page
            if len(rows) < count:
                return page
            before = rows[-1][2], rows[-1][3], rows[-1][4]

    async def fetch_page(
        self, terms: Sequence[str], arguments: Sequence[str | float], order: str, limit: int
    ) -> list[Any]:
        """Sessions for which all terms hold, as number, fork_seq, update_time, user and id."""
        return await self.fetch(PAGE.format(terms=" AND ".join(terms), order=order), *arguments, limit)

    async def _without_logs(self, app_name: str, rows: dict[SessionKey, SessionRow]) -> list[CachedSession]:
        if not rows:
            return []
        numbers = wire.encode([row.number for row in rows.values()]).decode()
        users = list({key.user_id for key in rows})

        user_of = {row.number: key.user_id for key, row in rows.items()}
        session_states = await self._states("session", lambda number: (app_name, user_of[number]), numbers)
        if len(users) == 1:
            user_states = await self._states("user", lambda user: (app_name, user), app_name, users[0])
        else:
            named = wire.encode(users).decode()
            user_states = await self._states("users", lambda user: (app_name, user), app_name, named)

        app = ScopeState((await self._states("app", lambda app: (app, ""), app_name)).get(app_name, {}))
        of_users = {key.user_id: ScopeState(user_states.get(key.user_id, {})) for key in rows}
        return [
            CachedSession(
                key,
                app=app,
                user=of_users[key.user_id],
                state=session_states.get(row.number, {}),
                update_time=row.update_time,
            )
            for key, row in rows.items()
        ]

    async def _states(
        self, owners_are: str, names_of: Callable[[Any], tuple[str, str]], *owners: str
    ) -> dict[Any, JsonObject]:
        """States by their owners: numbers of sessions, users, the app.

        owners_are: a key of `_STATES`. names_of: returns the app and the user of an owner.
        """
        scope = owners_are.removesuffix("s") if owners_are == "users" else owners_are
        states: dict[Any, JsonObject] = {}
        statement = _STATES[owners_are].format(
            is_one_of_numbers=self.is_one_of.format(_NUMBERS), is_one_of_texts=self.is_one_of.format(_TEXTS)
        )
        for owner, key, value in await self.fetch(statement, *owners):
            states.setdefault(owner, {})[key] = decode_state(self.codec, *names_of(owner), scope, key, value)
        return states

    async def _has_text(self, session: CachedSession, row: SessionRow, text: str) -> bool:
        """Whether the title or an event has the text. Reads the log; decodes only events that may have it."""
        if fits_text(from_frozen(session.state), (), text):
            return True
        in_json = wire.encode(text)[1:-1].decode().casefold()
        for part in await self._stored_parts(row, 0, _ALL):
            for _, event_id, data in await self.fetch(_EVENTS, *part, _FROM_START, _ALL):
                json = decode_event(self.codec, session.key, event_id, data)
                if in_json in json.decode().casefold() and fits_text({}, [_decode_event(json)], text):
                    return True
        return False

    async def _stored_parts(self, session: SessionRow, after: int, upto: int) -> list[tuple[int, int, int]]:
        """Positions of the events after `after` up to `upto`: session number, first sequence number - 1, last."""
        parts: list[tuple[int, int, int]] = []
        if after < session.fork_seq:
            for ancestor, above, last in await self.fetch(_ANCESTORS, session.number, after):
                if above < upto:
                    parts.append((ancestor, max(above, after), min(last, upto)))
        if upto > session.fork_seq:
            parts.append((session.number, max(after, session.fork_seq), upto))
        return parts

    def _event(self, key: SessionKey, event_id: str, data: str) -> Event:
        return _decode_event(decode_event(self.codec, key, event_id, data))

    async def _read_log(
        self,
        key: SessionKey,
        session: SessionRow,
        *,
        after: int = 0,
        upto: int = _ALL,
        since: float = _FROM_START,
        limit: int | None = None,
    ) -> tuple[list[Event], int]:
        """Events, own and inherited, and the length of their JSON."""
        events: list[Event] = []
        size = 0
        if after >= session.last_seq:
            return events, size
        for part in await self._stored_parts(session, after, upto):
            rows = await self.fetch(_EVENTS, *part, since, _ALL if limit is None else limit - len(events))
            if self.codec.is_plain:
                by_seq: dict[int, Event] = {seq: _decode_event(data.encode()) for seq, _, data in rows}
            else:
                by_seq = {seq: self._event(key, event_id, data) for seq, event_id, data in rows}
            for seq, position, digest, data in await self.fetch(_BLOBS, *part) if rows else ():
                if seq in by_seq:
                    content = self.codec.decode_bytes(data, "blobs", digest.hex())
                    list(inline_blobs(by_seq[seq]))[position].data = content
                    size += len(data)
            events += by_seq.values()
            size += sum(len(data) for _, _, data in rows)
        return events, size

    async def _state_after(self, owner: SessionKey, session: SessionRow, seq: int) -> JsonObject:
        """The session's own state after an event, frozen. Takes a few look-ups per key, however long the log is."""
        number = session.number
        if seq < session.fork_seq:
            number = (await self.fetch(_ANCESTORS, number, max(seq - 1, 0)))[0][0]
        state: JsonObject = {}
        deltas: dict[int, JsonObject] = {}
        for key, value, at, event_id, data in await self.fetch(_STATE_AFTER, number, seq):
            if data is not None and at not in deltas:
                event = self._event(owner, event_id, data)
                deltas[at] = to_frozen(split_by_scope(event.actions.state_delta).session)
            if data is not None:
                apply_delta(state, {key: deltas[at].get(key, REMOVED)})
            elif value is not None:
                state[key] = decode_state(self.codec, owner.app_name, owner.user_id, "session", key, value)
        return state

    async def _with_state(self, key: SessionKey, row: SessionRow) -> CachedSession:
        """The session without its log."""
        scopes: dict[str, JsonObject] = {"session": {}, "app": {}, "user": {}}
        for scope, name, value in await self.fetch(_STATE, row.number, key.app_name, key.user_id):
            scopes[scope][name] = decode_state(self.codec, key.app_name, key.user_id, scope, name, value)
        return CachedSession(
            key,
            app=ScopeState(scopes["app"], row.app_version or 0),
            user=ScopeState(scopes["user"], row.user_version or 0),
            state=scopes["session"],
            update_time=row.update_time,
            number=row.number,
        )


def blob_digest(codec: Codec, data: bytes) -> bytes:
    """Identifies inline data, so that it is stored once: its hash, or a keyed one where it is encrypted."""
    digest = hashlib.sha256(data).digest()
    return digest if codec.is_plain else bytes.fromhex(codec.digest(digest.hex(), "blobs"))


def _has_state(session: CachedSession, wanted: ScopedDelta) -> bool:
    """True if keys have the values that are wanted, as the database compares them where it can."""
    for values, stored in (
        (wanted.session, session.state),
        (wanted.user, session.user.values),
        (wanted.app, session.app.values),
    ):
        for name, value in values.items():
            if name not in stored or frozen_json(stored[name]) != frozen_json(value):
                return False
    return True
