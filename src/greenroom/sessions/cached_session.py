"""A session in memory, shared by its holders: callers get copy-on-write snapshots of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from greenroom.records import wire
from greenroom.records.base import JsonObject
from greenroom.records.copy_on_write import CopyOnWriteList
from greenroom.records.event import Event
from greenroom.records.session import GetSessionConfig, Session, SessionFilter, SessionKey, title_of
from greenroom.records.state import apply_delta, merge_scopes
from greenroom.sessions.frozen import from_frozen


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
        """Adds a stored event. delta: of the session's own scope, frozen."""
        self.events.append(event)
        if delta:
            apply_delta(self.state, delta)
        self.update_time = event.timestamp

    def merged_state(self, own: JsonObject | None = None) -> JsonObject:
        """Returns the merged state.

        own: the session's own state, frozen; None: the current one.
        """
        session = self.state if own is None else own
        return from_frozen(merge_scopes(app=self.app.values, user=self.user.values, session=session))

    def copy_for_caller(self, config: GetSessionConfig | None = None, own: JsonObject | None = None) -> Session:
        """Returns a copy for a caller.

        own: the session's own state after event `config.until_seq`, frozen.
        """
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
