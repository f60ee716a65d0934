"""A session in memory, shared by its holders: callers get copy-on-write snapshots of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from greenroom.errors import InvalidRequest
from greenroom.records import wire
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.copy_on_write import CopyOnWriteList
from greenroom.records.event import Event
from greenroom.records.identifiers import new_session_id
from greenroom.records.session import GetSessionConfig, Session, SessionFilter, SessionKey, title_of
from greenroom.records.state import TEMP_PREFIX, ScopedDelta, apply_delta, merge_scopes, split_by_scope


class Frozen(msgspec.Struct, frozen=True):
    """A list or map of a state as JSON: each caller decodes its own copy."""

    data: bytes


def to_frozen(values: Mapping[str, Any]) -> JsonObject:
    """A state or delta that no caller can change. Raises TypeError for what JSON can't hold."""
    return {
        key: value if value is None or isinstance(value, (str, int, float, Frozen)) else Frozen(wire.encode(value))
        for key, value in values.items()
    }


def from_frozen(values: Mapping[str, Any]) -> JsonObject:
    """The caller's own copy of a frozen state or delta."""
    return {key: msgspec.json.decode(value.data) if type(value) is Frozen else value for key, value in values.items()}


def frozen_json(value: JsonValue) -> str:
    """One frozen value as the JSON that is stored."""
    return (value.data if type(value) is Frozen else wire.encode(value)).decode()


def frozen_from_json(text: str) -> JsonValue:
    return Frozen(text.encode()) if text[0] in "[{" else msgspec.json.decode(text)


class PartialLog(CopyOnWriteList[Event]):
    """The events of a session that was loaded in part."""

    __slots__ = ()


class ScopeState:
    """The state of an app or of a user, as all sessions in memory see it."""

    __slots__ = ("__weakref__", "values", "version")

    def __init__(self, values: JsonObject, version: int = 0) -> None:
        self.values = values
        """Frozen."""

        self.version = version
        """Of the state in the database, where that counts them; negative when it must be read again."""


class CachedSession:
    """A session with its log and its state. Its holders get copies; `append` is the one way to add an event."""

    __slots__ = ("app", "checked_at", "epoch", "events", "key", "number", "size", "state", "update_time", "user")

    def __init__(
        self,
        key: SessionKey,
        *,
        app: ScopeState,
        user: ScopeState,
        state: JsonObject,
        events: Iterable[Event] = (),
        update_time: float,
        number: int = 0,
    ) -> None:
        self.key = key
        self.app = app
        self.user = user
        self.state = state
        """The session's own state, frozen."""

        self.events = CopyOnWriteList(events)
        self.update_time = update_time
        self.number = number
        """The store's own, never used for another session."""

        # Kept by the cache that holds it:
        self.size = 0
        """Of its events in bytes, an estimate."""

        self.epoch = 0
        """That of the backend when the session was read, or last found to be current."""

        self.checked_at = 0.0
        """Monotonic time at which the session was known to be current."""

    def fits(self, where: SessionFilter | None) -> bool:
        if where is None:
            return True
        state = self.merged_state()
        return (
            (where.updated_from is None or self.update_time >= where.updated_from)
            and (where.updated_before is None or self.update_time < where.updated_before)
            and fits_state(state, where)
            and (where.text is None or fits_text(state, self.events, where.text))
        )

    def append(self, event: Event, delta: JsonObject) -> None:
        """Add a stored event. delta: of the session's own scope, frozen."""
        self.events.append(event)
        if delta:
            apply_delta(self.state, delta)
        self.update_time = event.timestamp

    def merged_state(self, own: JsonObject | None = None) -> JsonObject:
        """own: the session's own state, frozen; None: as it is now."""
        session = self.state if own is None else own
        return from_frozen(merge_scopes(app=self.app.values, user=self.user.values, session=session))

    def copy_for_caller(self, config: GetSessionConfig | None = None, own: JsonObject | None = None) -> Session:
        """own: the session's own state after event `config.until_seq`, frozen."""
        events = self.events.snapshot()
        if config is not None:
            events = filter_events(events, config)
        return Session(
            id=self.key.session_id,
            app_name=self.key.app_name,
            user_id=self.key.user_id,
            state=self.merged_state(own),
            events=events,
            last_update_time=self.update_time,
        )

    def without_events(self) -> Session:
        return self.copy_for_caller(GetSessionConfig(num_recent_events=0))


def filter_events(events: CopyOnWriteList[Event], config: GetSessionConfig) -> CopyOnWriteList[Event]:
    recent = config.num_recent_events
    since = config.after_timestamp
    if config.until_seq is not None and config.until_seq < len(events):
        events = events.first(config.until_seq)
    elif recent is None and since is None:
        return events

    first = 0 if recent is None else max(len(events) - recent, 0)
    window = events[first:]
    return PartialLog(window if since is None else [event for event in window if event.timestamp >= since])


def check_config(config: GetSessionConfig | None) -> None:
    if config is not None and config.num_recent_events is not None and config.num_recent_events < 0:
        raise InvalidRequest("numRecentEvents must not be negative", location=("query", "numRecentEvents"))
    if config is not None and config.until_seq is not None and config.until_seq < 0:
        raise InvalidRequest("untilSeq must not be negative", location=("query", "untilSeq"))


def check_fork(seq: int | None, last_seq: int) -> int:
    """The sequence number after which a log of `last_seq` events is forked."""
    if seq is not None and not 0 <= seq <= last_seq:
        raise InvalidRequest(f"seq must be between 0 and {last_seq}, the last event's", location=("body", "seq"))
    return last_seq if seq is None else seq


def fits_state(state: Mapping[str, Any], where: SessionFilter) -> bool:
    """True if a merged state has the wanted values; as JSON, in which 1 and 1.0 differ, and so do 1 and true."""
    return all(
        key in state and wire.encode(state[key]) == wire.encode(value) for key, value in (where.state or {}).items()
    )


def fits_text(state: JsonObject, events: Iterable[Event], text: str) -> bool:
    wanted = text.casefold()
    return wanted in (title_of(state) or "").casefold() or any(
        wanted in part.text.casefold()
        for event in events
        for part in (event.content and event.content.parts) or ()
        if part.text and not part.thought
    )


def check_limit(limit: int | None) -> None:
    if limit is not None and limit < 1:
        raise InvalidRequest("limit must be at least 1", location=("query", "limit"))


def clean_session_id(session_id: str | None) -> str:
    return (session_id or "").strip() or new_session_id()


class PreparedEvent:
    """An event ready to be stored: its state delta without `temp:` keys, and no longer shared with the caller."""

    __slots__ = ("event", "json", "original", "scoped", "temp")

    def __init__(self, event: Event) -> None:
        self.event = event
        self.json: bytes | None = None
        """The stored form, where the store encodes events."""

        self.original = event.actions.state_delta
        """The caller's delta."""

        self.temp: JsonObject = {}
        """Its `temp:` keys, which are not stored."""

        self.scoped = _NO_DELTA
        """The rest, frozen."""

        if self.original:
            self.temp = {key: value for key, value in self.original.items() if key.startswith(TEMP_PREFIX)}
            stored = to_frozen({key: value for key, value in self.original.items() if key not in self.temp})
            self.scoped = split_by_scope(stored)
            event.actions.state_delta = from_frozen(stored)


_NO_DELTA = ScopedDelta({}, {}, {})


def prepare(events: Sequence[Event], *, encode: bool = False) -> list[PreparedEvent]:
    """Prepares events that are stored together; when one can't be, all are as they were."""
    prepared: list[PreparedEvent] = []
    try:
        for event in events:
            one = PreparedEvent(event)
            prepared.append(one)
            if encode:
                one.json = wire.encode(event)
    except Exception:
        undo(prepared)
        raise
    return prepared


def undo(prepared: Sequence[PreparedEvent]) -> None:
    """Gives the events their deltas back: they were not stored, and may be appended again."""
    for one in prepared:
        one.event.actions.state_delta = one.original


def sync(session: Session, log: CopyOnWriteList[Event], prepared: Sequence[PreparedEvent]) -> None:
    """Adds to a caller's session the events that it lacks, and their deltas.

    A caller that holds the whole log gets all that is new. One that holds a part (a filtered session, or a list of its
    own making) gets the events it appended. `session.state` stays the same map, since views of it are held.
    """
    known = session.events.end
    at = known - log.skipped

    if type(session.events) is not CopyOnWriteList and is_partial(session):
        append_own(session, prepared)
    elif log.shares_items_with(session.events):
        session.events = log.snapshot()
        if len(log) == at + 1 and log[at] is prepared[0].event and len(prepared) == 1:  # there are no other writers
            if prepared[0].original:
                apply_delta(session.state, prepared[0].original)
            session.last_update_time = prepared[0].event.timestamp
        else:
            _apply_deltas(session, log[at:], prepared)
    elif known == at == 0 or (0 < at <= len(log) and len(session.events) and session.events[-1].id == log[at - 1].id):
        extend_log(session, log[at:], prepared)
    else:
        append_own(session, prepared)


def is_partial(session: Session) -> bool:
    # Once a caller has assigned a list of its own, the type can be any.
    return not isinstance(session.events, CopyOnWriteList) or isinstance(session.events, PartialLog)


def extend_log(session: Session, later: Sequence[Event], prepared: Sequence[PreparedEvent]) -> None:
    """Lengthen a caller's own list, which it may have changed on purpose, by the events that it lacks."""
    session.events.extend(later)
    _apply_deltas(session, later, prepared)


def append_own(session: Session, prepared: Sequence[PreparedEvent]) -> None:
    """Adds the appended events only."""
    known = {event.id for event in session.events[-20:]}
    own = {one.event.id: one.event for one in prepared if one.event.id not in known}
    extend_log(session, list(own.values()), prepared)


def _apply_deltas(session: Session, later: Sequence[Event], prepared: Sequence[PreparedEvent]) -> None:
    own = {one.event.id: one for one in prepared}
    for event in later:
        if event.id in own:
            apply_delta(session.state, own[event.id].original)
        elif event.actions.state_delta:
            apply_delta(session.state, from_frozen(to_frozen(event.actions.state_delta)))
    for one in prepared:
        apply_delta(session.state, one.temp)
    if session.events:
        session.last_update_time = session.events[-1].timestamp


def next_page(page: Sequence[Session]) -> str:
    """The token of the next page."""
    last = page[-1]
    return wire.write_page_token(last.last_update_time, last.user_id, last.id)


def page_position(page_token: str | None) -> tuple[float, str, str] | None:
    """Update time, user and id of the last session of the previous page. Raises InvalidRequest."""
    if not page_token:
        return None
    time, (user_id, session_id) = wire.read_page_token(page_token, keys=2)
    return time, user_id, session_id
