"""Live events for readers in this process."""

from __future__ import annotations

import asyncio
from collections import deque

from greenroom.event_streams.stream import EventStream, LiveItem, RunEnded, StreamItem, Subscription
from greenroom.records.session import SessionKey

MAX_WAITING_ITEMS = 4096
"""How far a reader may fall behind before it is sent back to the log."""


class InProcessEventStream(EventStream):
    def __init__(self, *, max_waiting_items: int = MAX_WAITING_ITEMS) -> None:
        self._max_waiting_items = max_waiting_items
        self._subscriptions: dict[SessionKey, list[_InProcessSubscription]] = {}
        self._being_written: dict[SessionKey, list[LiveItem]] = {}

    def publish(self, key: SessionKey, item: LiveItem) -> None:
        if isinstance(item, StreamItem) and item.seq is None:
            self._being_written.setdefault(key, []).append(item)
        else:
            self._being_written.pop(key, None)
        for subscription in self._subscriptions.get(key, ()):
            if subscription.run_id is None or subscription.run_id == item.run_id:
                subscription.put(item)

    def subscribe(self, key: SessionKey, *, run_id: str | None = None) -> Subscription:
        subscription = _InProcessSubscription(self, key, run_id)
        for item in self._being_written.get(key, ()):
            if run_id is None or run_id == item.run_id:
                subscription.put(item)
        self._subscriptions.setdefault(key, []).append(subscription)
        return subscription

    def unsubscribe(self, key: SessionKey, subscription: _InProcessSubscription) -> None:
        readers = self._subscriptions.get(key)
        if readers is not None and subscription in readers:
            readers.remove(subscription)
            if not readers:
                del self._subscriptions[key]

    @property
    def max_waiting_items(self) -> int:
        return self._max_waiting_items


class _InProcessSubscription(Subscription):
    __slots__ = ("_dropped", "_items", "_key", "_stream", "_waiter", "run_id")

    def __init__(self, stream: InProcessEventStream, key: SessionKey, run_id: str | None) -> None:
        self._stream = stream
        self._key = key
        self.run_id = run_id
        self._items: deque[LiveItem] = deque()
        self._dropped = False
        self._waiter: asyncio.Future[None] | None = None

    def put(self, item: LiveItem) -> None:
        if len(self._items) >= self._stream.max_waiting_items:
            self._items.clear()
            self._dropped = True
        if not self._dropped or isinstance(item, RunEnded):
            self._items.append(item)
        self._wake()

    async def next_batch(self, *, idle_seconds: float | None = None) -> list[LiveItem] | None:
        if not self._items and not self._dropped:
            await self._wait(idle_seconds)
        if self._dropped:
            self._dropped = False
            return None
        batch = list(self._items)
        self._items.clear()
        return batch

    async def _wait(self, idle_seconds: float | None) -> None:
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        alarm = loop.call_later(idle_seconds, self._wake) if idle_seconds is not None else None
        try:
            await self._waiter
        finally:
            self._waiter = None
            if alarm is not None:
                alarm.cancel()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def close(self) -> None:
        self._wake()
        self._stream.unsubscribe(self._key, self)
