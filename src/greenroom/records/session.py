"""A conversation: its state, its scopes and its log."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from greenroom.records.base import JsonObject, Record, empty_map
from greenroom.records.copy_on_write import CopyOnWriteList
from greenroom.records.event import Event


class SessionKey(NamedTuple):
    app_name: str
    user_id: str
    session_id: str


class Session(Record, kw_only=True, eq=False, omit_defaults=False):
    """A copy of a session: the maps and lists belong to the holder, the events are shared and immutable.

    state: merged view, with `app:` and `user:` keys under their prefixes. events: any iterable is taken.
    last_update_time: Unix seconds, the timestamp of the last stored event.
    """

    id: str
    app_name: str
    user_id: str
    state: JsonObject = msgspec.field(default_factory=empty_map)
    events: CopyOnWriteList[Event] = msgspec.field(default_factory=CopyOnWriteList[Event])
    last_update_time: float = msgspec.field(default_factory=time.time)

    @property
    def key(self) -> SessionKey:
        return SessionKey(self.app_name, self.user_id, self.id)

    def __post_init__(self) -> None:
        given: Iterable[Event] = self.events
        if not isinstance(given, CopyOnWriteList):
            self.events = CopyOnWriteList(given)


class GetSessionConfig(Record, kw_only=True):
    """Which events to load. Both given: of the newest `num_recent_events`, those at or after `after_timestamp`.

    num_recent_events: 0 means none; a negative number is refused. after_timestamp: Unix seconds.
    """

    num_recent_events: int | None = None
    after_timestamp: float | None = None


class ListSessionsResponse(Record, kw_only=True, omit_defaults=False):
    """Sessions without their events, oldest update first. next_page_token is None on the last page."""

    sessions: list[Session] = msgspec.field(default_factory=list[Session])
    next_page_token: str | None = None


class ListEventsResponse(Record, kw_only=True, omit_defaults=False):
    """A gapless part of the log: `events[i]` has the sequence number `after + 1 + i`. last_seq: the log's end."""

    events: list[Event] = msgspec.field(default_factory=list[Event])
    last_seq: int = 0
