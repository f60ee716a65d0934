"""Sessions in Firestore, in the documents in which ADK for Java keeps them.

    adk-session/{user}/sessions/{session}                      id, appName, userId, updateTime, state
    adk-session/{user}/sessions/{session}/user-event/{event}   author, timestamp, appName, userId, content, keywords
    app-state/{app}, user-state/{app}/users/{user}             the state's keys

Beside these fields a session has `number`, `lastSeq`, `updated` (Unix seconds), `numbered` (the `updateTime` up to
which its events have numbers) and `initialState`; an event has its `seq`, its `id` and its JSON, `event`.

The event with the sequence number 7 is the document 0000000007. When two processes append at once, both create it; one
fails and starts again. Events that ADK for Java wrote have none of our fields; they get sequence numbers, in the order
of their times, when the session is next read.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from greenroom.errors import NotOffered, SessionExists, SessionNotFound, TooLarge
from greenroom.google_cloud.document_names import DocumentCollections as Collections
from greenroom.google_cloud.document_names import DocumentKeys as Keys
from greenroom.google_cloud.firestore import (
    FirestoreDatabase,
    document_id,
    from_fields,
    from_iso,
    merge_fields,
    set_paths,
    to_field,
    to_fields,
    to_iso,
    where,
)
from greenroom.records import wire
from greenroom.records.base import JsonObject
from greenroom.records.event import Event
from greenroom.records.session import GetSessionConfig, SessionFilter, SessionKey
from greenroom.records.state import ScopedDelta, apply_delta, split_by_scope
from greenroom.sessions.arguments import page_position
from greenroom.sessions.backend import (
    Created,
    LogPage,
    SessionBackend,
    SessionPage,
    Stored,
    first_page,
    is_trusted,
)
from greenroom.sessions.cached_session import CachedSession, ScopeState
from greenroom.sessions.frozen import from_frozen, to_frozen
from greenroom.sessions.prepared_event import PreparedEvent
from greenroom.sessions.remote import RemoteSessionService, RemoteWrites
from greenroom.sessions.service import SessionCapability

T = TypeVar("T")

_MAX_EVENT_BYTES = 950_000
"""A document may have 1 MiB."""
_MAX_CONTENT_BYTES = 100_000
"""Longer events are stored as JSON only."""

_IDS_PER_QUERY = 30
_PAGE = 200

_decode_event = wire.decoder(Event)


class FirestoreSessionService(RemoteSessionService):
    """Keeps sessions in Firestore, where any number of processes may use them at the same time.

    `get_session` sees writes of other processes within a twentieth of a second, `append` at once. An event of more than
    950,000 bytes raises TooLarge.
    """

    not_offered = frozenset[SessionCapability](("forks", "search by text"))

    def __init__(
        self,
        client: Any = None,
        root_collection: str = Collections.ROOT,
        *,
        database: FirestoreDatabase | None = None,
        cache_bytes: int = 64 * 1024 * 1024,
    ) -> None:
        """Connects on the first call, which raises MissingExtra without the package.

        client: an `AsyncClient` of google-cloud-firestore, which the caller closes. database: in place of a client.
        Without both, the default database of the machine's project. cache_bytes: for sessions in use.
        """
        backend = FirestoreSessionBackend(database or FirestoreDatabase(client), root_collection)
        super().__init__(backend, cache_bytes=cache_bytes, close=backend.close)


class _SessionDocument(NamedTuple):
    reference: Any
    fields: dict[str, Any]
    number: int
    last_seq: int
    app: ScopeState
    user: ScopeState


class _WrittenByOthers(Exception):
    """The session has events of another program, which have no sequence numbers yet."""

    def __init__(self, reference: Any) -> None:
        super().__init__()
        self.reference = reference


class FirestoreSessionBackend(SessionBackend):
    def __init__(self, database: FirestoreDatabase, root: str) -> None:
        self._database = database
        self._root = root
        self._writes = RemoteWrites()

    async def close(self) -> None:
        await self._writes.finish()
        await self._database.close()

    def create(
        self,
        key: SessionKey,
        now: float,
        delta: ScopedDelta,
        prepared: Sequence[PreparedEvent],
        after_commit: Callable[[Created], None],
    ) -> Awaitable[Created]:
        return self._writes.start(lambda: self._create(key, now, delta, prepared), after_commit)

    async def _create(
        self, key: SessionKey, now: float, delta: ScopedDelta, prepared: Sequence[PreparedEvent]
    ) -> Created:
        state: JsonObject = {}
        apply_delta(state, delta.session)
        unknown = ScopeState({}, -2)
        session = CachedSession(
            key, app=unknown, user=unknown, state=state, update_time=now, number=time.time_ns() // 1000
        )
        session.checked_at = time.monotonic()

        for snapshot in (await self._database.get_all(self._references(key))).values():
            if snapshot.exists and snapshot.to_dict().get("deleting"):  # by a process that died
                await self._delete(snapshot.reference)

        stored = await self._transact(lambda transaction: self._add(transaction, session, delta, prepared))
        existing = await self._find_numbered(key)
        if existing is not None:
            session.app = existing.app
            session.user = existing.user
        return Created(session, stored)

    async def _add(
        self, transaction: Any, new: CachedSession, delta: ScopedDelta, prepared: Sequence[PreparedEvent]
    ) -> Stored:
        key = new.key
        if await self._find(key, transaction) is not None:
            raise SessionExists(*key)
        references = self._references(key)
        snapshots = await self._database.get_all(references, transaction)
        reference = next(candidate for candidate in references if not snapshots[candidate.path].exists)
        stored = _add_events(transaction, key, reference, 0, {}, prepared)

        added = [prepared_event for prepared_event, (_, is_new) in zip(prepared, stored, strict=True) if is_new]
        state = dict(new.state)
        for prepared_event in added:
            apply_delta(state, prepared_event.scoped.session)
        fields: dict[str, Any] = {
            Keys.ID: key.session_id,
            Keys.APP_NAME: key.app_name,
            Keys.USER_ID: key.user_id,
            "number": new.number,
            "lastSeq": max((seq for seq, _ in stored), default=0),
            Keys.STATE: to_fields(from_frozen(state)),
            "initialState": to_fields(from_frozen(new.state)),
        }
        transaction.create(reference, fields | _times(added[-1].event.timestamp if added else new.update_time))
        self._merge_scopes(transaction, key, [delta, *(prepared_event.scoped for prepared_event in added)])
        return stored

    async def fork(self, key: SessionKey, new_key: SessionKey, seq: int | None, now: float) -> CachedSession:
        raise NotOffered("Sessions in Firestore can't be forked")

    def append(
        self, key: SessionKey, prepared: Sequence[PreparedEvent], after_commit: Callable[[Stored], None]
    ) -> Awaitable[Stored]:
        return self._writes.start(
            lambda: self._transact(lambda transaction: self._append(transaction, key, prepared)),
            after_commit,
            in_order_of=key,
        )

    async def _append(self, transaction: Any, key: SessionKey, prepared: Sequence[PreparedEvent]) -> Stored:
        document = await self._find(key, transaction)
        if document is None:
            raise SessionNotFound(*key)
        stored_seqs = await self._seqs(
            document.reference, [prepared_event.event.id for prepared_event in prepared], transaction
        )
        stored = _add_events(transaction, key, document.reference, document.last_seq, stored_seqs, prepared)

        new = [prepared_event for prepared_event, (_, is_new) in zip(prepared, stored, strict=True) if is_new]
        if new:
            changes: JsonObject = {}
            for prepared_event in new:
                changes |= prepared_event.scoped.session
            update = {**set_paths(Keys.STATE, from_frozen(changes)), "lastSeq": document.last_seq + len(new)}
            transaction.update(document.reference, update | _times(new[-1].event.timestamp))
            self._merge_scopes(transaction, key, [prepared_event.scoped for prepared_event in new])
        return stored

    def delete(self, key: SessionKey, after_commit: Callable[[], None]) -> Awaitable[None]:
        return self._writes.start(lambda: self._delete_session(key), lambda _: after_commit())

    async def _delete_session(self, key: SessionKey) -> None:
        for snapshot in (await self._database.get_all(self._references(key))).values():
            if snapshot.exists and snapshot.to_dict().get(Keys.APP_NAME) == key.app_name:
                await self._delete(snapshot.reference)

    async def delete_user(
        self, app_name: str, user_id: str, after_commit: Callable[[Sequence[SessionKey]], None]
    ) -> None:
        await self._writes.start(lambda: self._delete_user(app_name, user_id), after_commit)

    async def _delete_user(self, app_name: str, user_id: str) -> list[SessionKey]:
        """The keys of the deleted sessions."""
        sessions = where(self._sessions(user_id), (Keys.APP_NAME, "==", app_name))
        keys = [SessionKey(app_name, user_id, one.get(Keys.ID)) for one in await self._database.fetch(sessions)]
        for key in keys:
            await self._delete_session(key)
        await self._database.delete(self._scopes(SessionKey(app_name, user_id, ""))[1])
        return keys

    async def read(
        self, key: SessionKey, *, known_number: int = 0, known_events: int = 0, from_compaction: bool = False
    ) -> CachedSession | None:
        document = await self._find_numbered(key)
        if document is None:
            return None
        session = _session(key, document)
        after = known_events if document.number == known_number else 0
        session.events.extend(await self._events(document, after=after))
        return session

    async def read_part(self, key: SessionKey, config: GetSessionConfig) -> CachedSession | None:
        document = await self._find_numbered(key)
        if document is None:
            return None
        session = _session(key, document)
        upto = document.last_seq if config.until_seq is None else min(config.until_seq, document.last_seq)
        after = 0 if config.num_recent_events is None else max(upto - config.num_recent_events, 0)

        is_past = upto < document.last_seq
        events = await self._events(document, after=0 if is_past else after, upto=upto)
        if is_past:
            session.state = to_frozen(from_fields(document.fields.get("initialState") or {}))
            for event in events:
                apply_delta(session.state, to_frozen(split_by_scope(event.actions.state_delta).session))
            events = events[after:]

        since = float("-inf") if config.after_timestamp is None else config.after_timestamp
        session.events.extend(event for event in events if event.timestamp >= since)
        return session

    async def read_events(self, key: SessionKey, after: int, limit: int | None) -> LogPage | None:
        document = await self._find_numbered(key)
        if document is None:
            return None
        upto = document.last_seq if limit is None else min(max(after, 0) + limit, document.last_seq)
        events = await self._events(document, after=max(after, 0), upto=upto)
        return LogPage(events, document.last_seq)

    async def read_later(self, key: SessionKey, last_id: str | None, known: int) -> list[Event] | None:
        document = await self._find_numbered(key)
        if document is None:
            return None
        if last_id is not None and await self._seqs(document.reference, [last_id]) != {last_id: known}:
            return None
        return await self._events(document, after=known)

    async def find_event(self, key: SessionKey, event_id: str) -> int | None:
        document = await self._find_numbered(key)
        if document is None:
            raise SessionNotFound(*key)
        return (await self._seqs(document.reference, [event_id])).get(event_id)

    async def list_sessions(
        self, app_name: str, user_id: str | None, where: SessionFilter, limit: int | None, page_token: str | None
    ) -> SessionPage:
        if where.text is not None:
            raise NotOffered("Sessions in Firestore can't be searched by text")
        before = page_position(page_token)
        wanted = None if limit is None else limit + 1

        sessions: list[CachedSession] = []
        scopes: dict[str, Any] = {}
        while wanted is None or len(sessions) < wanted:
            snapshots = await self._database.fetch(self._newest_sessions(app_name, user_id, before).limit(_PAGE))
            for session in await self._without_logs(app_name, snapshots, scopes):
                if session.fits(where):
                    sessions.append(session)
            if len(snapshots) < _PAGE:
                break
            last = snapshots[-1]
            before = from_iso(last.get(Keys.UPDATE_TIME)), last.get(Keys.USER_ID), last.get(Keys.ID)

        if limit is None:
            return SessionPage(sessions[::-1], None)
        return first_page(sessions, limit)

    def _newest_sessions(self, app_name: str, user_id: str | None, before: tuple[float, str, str] | None) -> Any:
        """A query of an app's sessions, newest update first, after a position in this order."""
        if user_id is None:
            query = self._database.client.collection_group(Collections.SESSIONS)
        else:
            query = self._sessions(user_id)
        query = where(query, (Keys.APP_NAME, "==", app_name))
        for field in (Keys.UPDATE_TIME, Keys.USER_ID, Keys.ID):
            query = query.order_by(field, direction="DESCENDING")
        if before is None:
            return query
        update_time, user, session_id = before
        return query.start_after({Keys.UPDATE_TIME: to_iso(update_time), Keys.USER_ID: user, Keys.ID: session_id})

    async def _without_logs(
        self, app_name: str, snapshots: Sequence[Any], scopes: dict[str, Any]
    ) -> list[CachedSession]:
        """Reads sessions without their logs.

        scopes: documents of states that were read already, by path; the missing ones are added.
        """
        keys = [SessionKey(app_name, one.get(Keys.USER_ID), one.get(Keys.ID)) for one in snapshots]
        wanted = {one.path: one for key in keys for one in self._scopes(key) if one.path not in scopes}
        if wanted:
            scopes |= await self._database.get_all(wanted.values())

        sessions: list[CachedSession] = []
        for key, snapshot in zip(keys, snapshots, strict=True):
            fields = snapshot.to_dict()
            if fields.get("deleting") or not snapshot.reference.path.startswith(f"{self._root}/"):
                continue
            app, user = (_scope(scopes[one.path]) for one in self._scopes(key))
            sessions.append(_session(key, _SessionDocument(snapshot.reference, fields, 0, 0, app, user)))
        return sessions

    async def list_apps(self) -> list[str]:
        raise NotOffered("FirestoreSessionService can't list its apps")

    async def is_current(self, cached: CachedSession) -> bool:
        started = time.monotonic()
        if is_trusted(cached, started):
            return True

        document = await self._find_numbered(cached.key)
        if document is None or (document.number, document.last_seq) != (cached.number, len(cached.events)):
            return False
        if (document.app.version, document.user.version) != (cached.app.version, cached.user.version):
            return False
        cached.checked_at = started
        return True

    async def _find_numbered(self, key: SessionKey) -> _SessionDocument | None:
        """The session, after all its events have got sequence numbers."""
        try:
            return await self._find(key)
        except _WrittenByOthers as found:
            await self._number_events(found.reference)
            return await self._find(key)

    async def _transact(self, work: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        """Runs a transaction; again, if it met events without sequence numbers, which have got these meanwhile."""
        try:
            return await self._database.transact(work)
        except _WrittenByOthers as found:
            await self._number_events(found.reference)
            return await self._database.transact(work)

    async def _find(self, key: SessionKey, transaction: Any = None) -> _SessionDocument | None:
        """Raises _WrittenByOthers."""
        references = self._references(key)
        scopes = self._scopes(key)
        snapshots = await self._database.get_all([*references, *scopes], transaction)
        for reference in references:
            fields: dict[str, Any] = snapshots[reference.path].to_dict() or {}
            if fields.get(Keys.APP_NAME) == key.app_name and not fields.get("deleting"):
                if fields.get("numbered") != fields[Keys.UPDATE_TIME]:
                    raise _WrittenByOthers(reference)
                app, user = (_scope(snapshots[one.path]) for one in scopes)
                return _SessionDocument(reference, fields, fields["number"], fields["lastSeq"], app, user)
        return None

    async def _number_events(self, reference: Any) -> None:
        """Gives sequence numbers to the events that another program has appended."""

        async def apply(transaction: Any) -> None:
            fields = (await self._database.get_all([reference], transaction))[reference.path].to_dict()
            events = await self._database.fetch(reference.collection(Collections.EVENTS), transaction)
            others = [snapshot for snapshot in events if "seq" not in snapshot.to_dict()]
            others.sort(key=lambda snapshot: (from_iso(snapshot.get(Keys.TIMESTAMP)), snapshot.id))
            last_seq = fields.get("lastSeq", 0)
            for seq, snapshot in enumerate(others, start=last_seq + 1):
                transaction.update(snapshot.reference, {"seq": seq, Keys.ID: snapshot.id})
            update: dict[str, Any] = {"number": time.time_ns() // 1000, "initialState": fields.get(Keys.STATE) or {}}
            update = {name: fields.get(name, value) for name, value in update.items()}
            update |= {"lastSeq": last_seq + len(others), **_times(from_iso(fields[Keys.UPDATE_TIME]))}
            transaction.update(reference, update)

        await self._database.transact(apply)

    async def _seqs(self, reference: Any, ids: Sequence[str], transaction: Any = None) -> dict[str, int]:
        """Returns the sequence numbers of the stored events."""
        seqs: dict[str, int] = {}
        for first in range(0, len(ids), _IDS_PER_QUERY):
            query = where(
                reference.collection(Collections.EVENTS), (Keys.ID, "in", ids[first : first + _IDS_PER_QUERY])
            )
            for one in await self._database.fetch(query, transaction):
                seqs[one.get(Keys.ID)] = one.get("seq")
        return seqs

    async def _events(self, document: _SessionDocument, *, after: int, upto: int | None = None) -> list[Event]:
        last = document.last_seq if upto is None else upto
        if after >= last:
            return []
        query = where(
            document.reference.collection(Collections.EVENTS), ("seq", ">", after), ("seq", "<=", last)
        ).order_by("seq")
        return [_event(one.to_dict()) for one in await self._database.fetch(query)]

    def _merge_scopes(self, transaction: Any, key: SessionKey, deltas: Iterable[ScopedDelta]) -> None:
        app: JsonObject = {}
        user: JsonObject = {}
        for delta in deltas:
            app |= delta.app
            user |= delta.user
        for reference, changes in zip(self._scopes(key), (app, user), strict=True):
            merge_fields(transaction, reference, from_frozen(changes))

    async def _delete(self, reference: Any) -> None:
        """Hides the session before its first event is deleted."""
        await self._database.merge(reference, {"deleting": True})
        await self._database.delete_all(reference.collection(Collections.EVENTS))
        await self._database.delete(reference)

    def _sessions(self, user_id: str) -> Any:
        return self._database.client.collection(self._root, document_id(user_id), Collections.SESSIONS)

    def _references(self, key: SessionKey) -> list[Any]:
        """Returns the documents that may hold the session: the document with its id, or another one if that belongs to
        another app.
        """
        ids = [document_id(key.session_id), document_id(f"{key.session_id}%@{key.app_name}")]
        return [self._sessions(key.user_id).document(one) for one in ids]

    def _scopes(self, key: SessionKey) -> tuple[Any, Any]:
        client = self._database.client
        app = document_id(key.app_name)
        user = document_id(key.user_id)
        return (
            client.document(Collections.APP_STATE, app),
            client.document(Collections.USER_STATE, app, "users", user),
        )


def _add_events(
    transaction: Any,
    key: SessionKey,
    reference: Any,
    last_seq: int,
    stored_seqs: Mapping[str, int],
    prepared: Sequence[PreparedEvent],
) -> Stored:
    """Adds events to the transaction.

    known: sequence numbers of the events that are stored already.
    """
    seqs = dict(stored_seqs)
    stored: Stored = []
    for prepared_event in prepared:
        seq = seqs.get(prepared_event.event.id)
        is_new = seq is None
        if seq is None:
            last_seq += 1
            seq = seqs[prepared_event.event.id] = last_seq
            transaction.create(
                reference.collection(Collections.EVENTS).document(f"{seq:010}"), _event_fields(key, seq, prepared_event)
            )
        stored.append((seq, is_new))
    return stored


def _times(updated: float) -> dict[str, Any]:
    text = to_iso(updated)
    return {"updated": updated, Keys.UPDATE_TIME: text, "numbered": text}


def _scope(snapshot: Any) -> ScopeState:
    version = int(snapshot.update_time.timestamp() * 1e6) if snapshot.exists else 0
    return ScopeState(to_frozen(from_fields(snapshot.to_dict() or {})), version)


def _session(key: SessionKey, document: _SessionDocument) -> CachedSession:
    fields = document.fields
    is_numbered = fields.get("numbered") == fields[Keys.UPDATE_TIME]
    return CachedSession(
        key,
        app=document.app,
        user=document.user,
        state=to_frozen(from_fields(fields.get(Keys.STATE) or {})),
        update_time=fields["updated"] if is_numbered else from_iso(fields[Keys.UPDATE_TIME]),
        number=document.number,
    )


def _event_fields(key: SessionKey, seq: int, prepared: PreparedEvent) -> dict[str, Any]:
    event = prepared.event
    json = prepared.json or b""
    if len(json) > _MAX_EVENT_BYTES:
        raise TooLarge("An event in Firestore", limit_bytes=_MAX_EVENT_BYTES)

    fields: dict[str, Any] = {
        Keys.AUTHOR: key.user_id if event.author == "user" else event.author,
        Keys.TIMESTAMP: to_iso(event.timestamp),
        Keys.APP_NAME: key.app_name,
        Keys.USER_ID: key.user_id,
        Keys.ID: event.id,
        "seq": seq,
        "event": json.decode(),
    }
    if event.content is not None and len(json) <= _MAX_CONTENT_BYTES:
        parts = [_thin(part) for part in wire.to_plain(event.content).get("parts") or ()]
        fields["content"] = {"parts": parts}
        fields["keywords"] = sorted(set(re.findall("[a-z]+", event.content.text().lower())))
    return fields


def _thin(part: JsonObject) -> dict[str, Any]:
    """Reduces a part to the fields that ADK for Java stores."""
    kept_fields: dict[str, Any] = {}
    for name, inner in (
        ("text", None), ("functionCall", ("name", "args")), ("functionResponse", ("name", "response")),
        ("fileData", ("fileUri", "mimeType")),
    ):  # fmt: skip
        if (value := part.get(name)) is not None:
            kept_fields[name] = value if inner is None else {one: to_field(value[one]) for one in inner if one in value}
    return kept_fields


def _event(fields: Mapping[str, Any]) -> Event:
    if "event" in fields:
        return _decode_event(fields["event"].encode())
    author = "user" if fields.get(Keys.AUTHOR) == fields.get(Keys.USER_ID) else fields.get(Keys.AUTHOR)
    content = from_fields(fields.get("content") or {})
    plain = {"id": fields[Keys.ID], "author": author, "timestamp": from_iso(fields[Keys.TIMESTAMP])}
    role = {"role": "user" if author == "user" else "model"}
    return wire.from_plain(plain | ({"content": role | content} if content else {}), Event)
