"""A conversation: its state, its scopes and its log."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple, cast

import msgspec

from greenroom.records.base import JsonObject, Record, empty_map
from greenroom.records.copy_on_write import CopyOnWriteList
from greenroom.records.event import Event
from greenroom.records.state import REMOVED

_METADATA = "__session_metadata__"
_TITLE = "displayName"
"""The key of a session's state, and the field in it, that hold the session's title. Source: ADK's UI."""


class SessionKey(NamedTuple):
    app_name: str
    user_id: str
    session_id: str


class Session(Record, kw_only=True, eq=False, omit_defaults=False):
    """A copy of a session: the maps and lists belong to the holder, the events are shared and immutable."""

    id: str
    """The session's id."""
    app_name: str
    """The app that the session belongs to."""
    user_id: str
    """The owner of the session."""
    state: JsonObject = msgspec.field(default_factory=empty_map)
    """The merged state, with `app:` and `user:` keys under their prefixes."""
    events: CopyOnWriteList[Event] = msgspec.field(default_factory=CopyOnWriteList[Event])
    """Any iterable is accepted."""
    last_update_time: float = msgspec.field(default_factory=time.time)
    """Timestamp of the last stored event, Unix seconds."""

    @property
    def key(self) -> SessionKey:
        return SessionKey(self.app_name, self.user_id, self.id)

    @property
    def last_updated_at(self) -> datetime:
        """`last_update_time` as an instant, in UTC."""
        return datetime.fromtimestamp(self.last_update_time, UTC)

    @property
    def title(self) -> str | None:
        return title_of(self.state)

    def __post_init__(self) -> None:
        given: Iterable[Event] = self.events
        if not isinstance(given, CopyOnWriteList):
            self.events = CopyOnWriteList(given)


def title_of(state: JsonObject) -> str | None:
    title = _metadata(state).get(_TITLE)
    return title if isinstance(title, str) else None


def title_delta(state: JsonObject, title: str | None) -> JsonObject:
    """The delta that gives a session with this state a title, or takes it away."""
    metadata = {key: value for key, value in _metadata(state).items() if key != _TITLE}
    return {_METADATA: metadata | ({} if title is None else {_TITLE: title}) or REMOVED}


def _metadata(state: JsonObject) -> JsonObject:
    metadata = state.get(_METADATA)
    return cast("JsonObject", metadata) if isinstance(metadata, dict) else {}


class GetSessionConfig(Record, kw_only=True):
    """Selection of the events to load. With both of the first two fields: those of the newest
    `num_recent_events` at or after `after_timestamp`.
    """

    num_recent_events: int | None = None
    """0 means none; a negative number is refused."""
    after_timestamp: float | None = None
    """Unix seconds."""
    until_seq: int | None = None
    """Loads the session as it was after the event with this sequence number: the events up to it,
    and the session's own state at that time. 0 means before the first event; a number past the end
    means the session as it is. The state of app and user is the current one."""
    from_compaction: bool = False
    """If nothing else is selected, events that a run doesn't need since the newest compaction may
    be left out; `events.skipped` is their number."""


class SessionFilter(Record, kw_only=True):
    """Filter of a list of sessions: a session must match every field that is given. Times are Unix
    seconds.
    """

    text: str | None = None
    """A part of the session's title or of an event's visible text, ignoring case."""
    state: dict[str, str | int | float | bool] | None = None
    """Current values of keys of the merged state: text, numbers or booleans."""
    updated_from: float | None = None
    """Start of the range of the last update, included."""
    updated_before: float | None = None
    """End of the range of the last update, not included."""


class ListSessionsResponse(Record, kw_only=True, omit_defaults=False):
    """Sessions without their events."""

    sessions: list[Session] = msgspec.field(default_factory=list[Session])
    next_page_token: str | None = None


class ListEventsResponse(Record, kw_only=True, omit_defaults=False):
    """A gapless part of the log: `events[i]` has the sequence number `after + 1 + i`."""

    events: list[Event] = msgspec.field(default_factory=list[Event])
    last_seq: int = 0
    """Sequence number of the log's last event."""
