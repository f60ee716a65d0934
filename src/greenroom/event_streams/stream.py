"""The contract of live events, and a reader that follows a session from any sequence number without gap or repeat."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection
from typing import TypeAlias

from greenroom.records import wire
from greenroom.records.event import Event
from greenroom.records.run import Run
from greenroom.records.session import SessionKey


class StreamItem:
    """An event for readers. seq: its sequence number in the log, None for a partial event, which
    has none. json: the event's JSON where a store has made it."""

    __slots__ = ("_json", "event", "run_id", "seq")

    def __init__(self, event: Event, *, run_id: str, seq: int | None, json: bytes | None = None) -> None:
        self.event = event
        self.run_id = run_id
        self.seq = seq
        self._json = json

    @property
    def json(self) -> bytes:
        """The event's JSON, made once for all readers."""
        if self._json is None:
            self._json = wire.encode(self.event)
        return self._json


class RunEnded:
    """The last item of a run. run: its current record. error: the exception that failed it."""

    __slots__ = ("error", "run")

    def __init__(self, run: Run, error: Exception | None = None) -> None:
        self.run = run
        self.error = error

    @property
    def run_id(self) -> str:
        return self.run.id


LiveItem: TypeAlias = StreamItem | RunEnded


class Subscription(ABC):
    """Live items of a session from the moment of subscribing. Close it when done."""

    @abstractmethod
    async def next_batch(self, *, idle_seconds: float | None = None) -> list[LiveItem] | None:
        """Returns all items that are ready. Empty after `idle_seconds` without one; None if items were dropped because
        this reader was too slow. After the last item, raises SessionNotFound if the session was deleted, and
        OwnershipLost if another server runs it now.
        """

    @abstractmethod
    def close(self) -> None: ...


class EventStream(ABC):
    @abstractmethod
    def publish(self, key: SessionKey, item: LiveItem) -> None:
        """Delivers an item to all subscribers. Never waits: slow subscribers lose items and reread them from the log.

        Events are published after they are stored, in the order of the log.
        """

    @abstractmethod
    def subscribe(self, key: SessionKey, *, run_id: str | None = None, with_user_events: bool = True) -> Subscription:
        """Live items, of one run or of all. The partial events of an unfinished message come first."""

    @abstractmethod
    def end(self, key: SessionKey) -> None:
        """Ends the subscriptions to all runs of a deleted session: a new session may get its id."""


ReadLog: TypeAlias = Callable[[int], Awaitable[list[Event]]]
"""Reads the events after a sequence number, at most one page; empty at the end of the log."""


class Follower:
    """Reads a session from a sequence number on: first stored events, then live ones; each stored
    event exactly once, in order.

    subscription: closed with the follower. run_id: only this run's events. catch_up False skips the
    first read of the log, for a reader who knows that the log ends at `after`.
    """

    __slots__ = (
        "_is_replaying",
        "_last_seq",
        "_read_log",
        "_replayed_ids",
        "_run_id",
        "_subscription",
        "_with_user_events",
    )

    def __init__(
        self,
        subscription: Subscription,
        *,
        after: int,
        read_log: ReadLog,
        run_id: str | None = None,
        with_user_events: bool = True,
        catch_up: bool = True,
    ) -> None:
        self._subscription = subscription
        self._with_user_events = with_user_events
        self._last_seq = after
        self._read_log = read_log
        self._run_id = run_id
        self._is_replaying = catch_up
        self._replayed_ids: Collection[str] = ()

    async def next_batch(self, *, idle_seconds: float | None = None) -> list[LiveItem]:
        """Returns all items that are ready. Empty after `idle_seconds` without one, or if the follower was closed."""
        while True:
            if self._is_replaying:
                batch = await self._replay()
                if batch:
                    return batch
                continue

            live = await self._subscription.next_batch(idle_seconds=idle_seconds)
            if live is None:
                self._is_replaying = True
                continue

            batch = await self._unseen(live)
            if batch or not live:
                return batch

    async def _replay(self) -> list[LiveItem]:
        """Reads the next page of the log. Ends the replay at the end of the log."""
        events = await self._read_log(self._last_seq)
        if not events:
            self._is_replaying = False
            return []

        batch = stored_items(events, after=self._last_seq, run_id=self._run_id, with_user_events=self._with_user_events)
        self._last_seq += len(events)
        self._replayed_ids = {event.id for event in events}
        return batch

    async def _unseen(self, live: list[LiveItem]) -> list[LiveItem]:
        """The live items that were not read from the log, with the events that were missed before them."""
        batch: list[LiveItem] = []
        for item in live:
            if isinstance(item, RunEnded):
                batch.append(item)
            elif item.seq is None:
                # Drops chunks of a message that was already read whole from the log.
                if item.event.id not in self._replayed_ids:
                    batch.append(item)
            else:
                if self._run_id is None:
                    batch += await self._missed_before(item.seq)
                if item.seq > self._last_seq:
                    self._last_seq = item.seq
                    batch.append(item)
        return batch

    def close(self) -> None:
        self._subscription.close()

    async def _missed_before(self, seq: int) -> list[LiveItem]:
        """Reads events that were stored but not published: by another process, or out of order."""
        missed: list[LiveItem] = []
        while self._last_seq < seq - 1 and (events := await self._read_log(self._last_seq)):
            events = events[: seq - 1 - self._last_seq]
            missed += stored_items(events, after=self._last_seq, run_id=None, with_user_events=self._with_user_events)
            self._last_seq += len(events)
        return missed


class EndedRunReader:
    """Reads a run that has ended: its events from the log, a page at a time, then `RunEnded`."""

    def __init__(self, run: Run, read_log: ReadLog, *, after: int, with_user_events: bool) -> None:
        self._run = run
        self._with_user_events = with_user_events
        self._read_log = read_log
        self._after = after

    async def next_batch(self, *, idle_seconds: float | None = None) -> list[LiveItem]:
        while events := await self._read_log(self._after):
            batch = stored_items(
                events, after=self._after, run_id=self._run.id, with_user_events=self._with_user_events
            )
            self._after += len(events)
            if batch:
                return batch
        return [RunEnded(self._run)]

    def close(self) -> None:
        pass


def stored_items(
    events: list[Event], *, after: int, run_id: str | None, with_user_events: bool = True
) -> list[LiveItem]:
    """Numbers the events after sequence number `after`; returns only those of one run if its id is given."""
    return [
        StreamItem(event, run_id=event.invocation_id, seq=seq)
        for seq, event in enumerate(events, after + 1)
        if (run_id is None or event.invocation_id == run_id) and (with_user_events or event.author != "user")
    ]
