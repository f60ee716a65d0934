"""Live events for readers in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from greenroom.errors import GreenroomError, OwnershipLost, SessionNotFound
from greenroom.event_streams.stream import EventStream, LiveItem, RunEnded, StreamItem, Subscription
from greenroom.records.session import SessionKey

MAX_WAITING_ITEMS = 4096
MAX_WAITING_BYTES = 8 * 1024 * 1024
"""Greatest backlog of a reader, in items and in bytes of JSON, before it has to reread the log. A
single item may be larger."""

GATHER_SECONDS = 0.005
"""Time for which partial events are gathered after the last delivery, so that fast models don't cost
a write per token. A stored event, and the first partial one after a pause, are delivered at once."""


class InProcessEventStream(EventStream):
    def __init__(
        self, *, max_waiting_items: int = MAX_WAITING_ITEMS, max_waiting_bytes: int = MAX_WAITING_BYTES
    ) -> None:
        self.max_waiting_items = max_waiting_items
        self.max_waiting_bytes = max_waiting_bytes
        self._subscriptions: dict[SessionKey, list[_InProcessSubscription]] = {}
        self._being_written: dict[SessionKey, list[StreamItem]] = {}

    def publish(self, key: SessionKey, item: LiveItem) -> None:
        if isinstance(item, StreamItem) and item.seq is None:
            if item.event.partial:  # late subscribers get no media of a live run
                self._being_written.setdefault(key, []).append(item)
        elif key in self._being_written:
            unfinished = _unfinished(self._being_written[key], item)
            if unfinished:
                self._being_written[key] = unfinished
            else:
                del self._being_written[key]

        for subscription in self._subscriptions.get(key, ()):
            subscription.put(item)

    def subscribe(self, key: SessionKey, *, run_id: str | None = None, with_user_events: bool = True) -> Subscription:
        subscription = _InProcessSubscription(self, key, run_id, with_user_events)
        for item in self._being_written.get(key, ()):
            subscription.put(item)
        self._subscriptions.setdefault(key, []).append(subscription)
        return subscription

    def end(self, key: SessionKey) -> None:
        self._being_written.pop(key, None)
        for subscription in self._subscriptions.get(key, ()):
            if not subscription.is_of_run:  # readers of a run get its end
                subscription.end(SessionNotFound(*key))

    def end_lost(self, is_lost: Callable[[SessionKey], bool]) -> None:
        """Ends all subscriptions to sessions that another server runs now, with OwnershipLost: their runs continue."""
        for key in [key for key in self._subscriptions if is_lost(key)]:
            self._being_written.pop(key, None)
            for subscription in self._subscriptions[key]:
                subscription.end(OwnershipLost(*key))

    def unsubscribe(self, key: SessionKey, subscription: _InProcessSubscription) -> None:
        readers = self._subscriptions.get(key)
        if readers is not None and subscription in readers:
            readers.remove(subscription)
            if not readers:
                del self._subscriptions[key]


def _unfinished(partial: list[StreamItem], newest: LiveItem) -> list[StreamItem]:
    """The partial items whose message is still being written: parallel agents write messages at once. A stored event
    completes those of its author, the end of a run all of them."""
    run_id = newest.run_id
    if isinstance(newest, RunEnded):
        return [item for item in partial if item.run_id != run_id]
    author = newest.event.author
    return [item for item in partial if item.run_id != run_id or item.event.author != author]


class _InProcessSubscription(Subscription):
    __slots__ = (
        "_alarm",
        "_bytes",
        "_delivered_at",
        "_dropped",
        "_end",
        "_is_urgent",
        "_items",
        "_key",
        "_loop",
        "_run_id",
        "_stream",
        "_waiter",
        "_with_user_events",
    )

    def __init__(
        self, stream: InProcessEventStream, key: SessionKey, run_id: str | None, with_user_events: bool
    ) -> None:
        self._stream = stream
        self._key = key
        self._run_id = run_id
        self._with_user_events = with_user_events
        self._loop = asyncio.get_running_loop()
        self._items: list[LiveItem] = []
        self._bytes = 0
        self._end: GreenroomError | None = None
        self._is_urgent = False
        self._dropped = False
        self._delivered_at = 0.0
        self._waiter: asyncio.Future[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None

    @property
    def is_of_run(self) -> bool:
        """True for the items of one run."""
        return self._run_id is not None

    def put(self, item: LiveItem) -> None:
        """Queues an item that the reader asked for, and wakes the reader."""
        if self._run_id is not None and self._run_id != item.run_id:
            return

        is_urgent = True
        if isinstance(item, RunEnded):
            self._items.append(item)
        elif not self._with_user_events and item.event.author == "user":
            return
        elif not self._dropped:
            items = self._items
            stream = self._stream
            self._bytes += len(item.json)
            if items and (len(items) >= stream.max_waiting_items or self._bytes > stream.max_waiting_bytes):
                self._items = [waiting for waiting in items if isinstance(waiting, RunEnded)]
                self._dropped = True
            else:
                items.append(item)
                is_urgent = item.seq is not None

        if is_urgent:
            self._is_urgent = True
            self._wake()
        elif self._alarm is None and self._waiter is not None:
            self._wake_when_due()

    async def next_batch(self, *, idle_seconds: float | None = None) -> list[LiveItem] | None:
        if not self._is_urgent and (not self._items or self._loop.time() < self._delivered_at + GATHER_SECONDS):
            await self._wait(idle_seconds)
        self._delivered_at = self._loop.time()
        self._is_urgent = self._end is not None
        self._bytes = 0
        if self._dropped:
            self._dropped = False
            self._is_urgent = bool(self._items) or self._end is not None
            return None
        if self._end is not None and not self._items:
            raise self._end

        batch = self._items
        self._items = []
        return batch

    async def _wait(self, idle_seconds: float | None) -> None:
        self._waiter = self._loop.create_future()
        if self._items:
            self._wake_when_due()
        idle: asyncio.TimerHandle | None = None
        if idle_seconds is not None:
            idle = self._loop.call_later(idle_seconds, self._wake)

        try:
            await self._waiter
        finally:
            self._waiter = None
            if idle is not None:
                idle.cancel()
            if self._alarm is not None:
                self._alarm.cancel()
                self._alarm = None

    def _wake_when_due(self) -> None:
        due = self._delivered_at + GATHER_SECONDS
        if due <= self._loop.time():
            self._wake()
        else:
            self._alarm = self._loop.call_at(due, self._wake)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def end(self, reason: GreenroomError) -> None:
        """Makes this the last of its items."""
        self._end = reason
        self._is_urgent = True
        self._wake()

    def close(self) -> None:
        self._is_urgent = True
        self._wake()
        self._stream.unsubscribe(self._key, self)
