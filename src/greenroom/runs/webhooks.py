"""Sends the messages about runs to webhooks, in the background.

A message is stored in the same transaction as the status that it reports (`RunStore.save`), and sent until the receiver
has accepted it or all retries have failed: each at least once, those of a run to a webhook in their order. Its next try
is stored, so that the next process continues where this one stopped.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import random
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple, TypeAlias
from urllib.parse import urlsplit

from greenroom.errors import OwnershipLost, StorageError
from greenroom.records.identifiers import new_delivery_id
from greenroom.records.run import Run, Webhook
from greenroom.records.session import SessionKey
from greenroom.records.shard import Shards
from greenroom.records.webhook_delivery import TEST, DeliveryAttempt, WebhookDelivery, event_body
from greenroom.runs.ownership import IsOf, require
from greenroom.runs.store import RunStore

_log = logging.getLogger("greenroom.runs")

RETRY_SECONDS = (5.0, 30.0, 120.0, 600.0, 1800.0, 7200.0, 18000.0, 36000.0, 50400.0)
"""The pauses after failures: 32 hours in all. Each is shortened by up to a half at random."""

GONE = 410
"""The HTTP status of a receiver that wants no more of these messages."""

KEPT = 1000
"""Number of messages that are kept of a webhook, besides those that are to be sent."""

_PRUNE_EVERY = 100
_AT_ONCE = 64
_AT_ONCE_PER_HOST = 16
_STORE_RETRY_SECONDS = 2.0
_LONGEST_SLEEP = 30.0
"""The clock may be set, and the machine may sleep: the time of the next try is looked at again after this time."""

_CLOSE_SECONDS = 2.0
"""Time for tries that are under way when the server stops."""

SendWebhook: TypeAlias = Callable[[WebhookDelivery], Awaitable[DeliveryAttempt]]
"""Sends a message once. It doesn't raise: the attempt has the error."""

_Key: TypeAlias = tuple[str, str]
"""Run and webhook."""


class _Pending(NamedTuple):
    delivery_id: str
    session_key: SessionKey | None
    host: str
    next_try_at: float


@dataclass(eq=False)
class Webhooks:
    """Sends messages to webhooks.

    Of each run and webhook, the oldest message is tried first; the others wait for it. Until its next try, it costs a
    few hundred bytes: neither a task nor its body.
    """

    run_store: RunStore
    send: SendWebhook | None
    """None: messages are stored, and sent by a later process."""

    retry_seconds: Sequence[float] = RETRY_SECONDS

    def __post_init__(self) -> None:
        self._queues: dict[_Key, deque[_Pending]] = {}
        self._due: list[tuple[float, int, _Key]] = []
        """A heap of the times of the next tries."""

        self._next_try_at: dict[_Key, float] = {}
        """The valid entry of each queue in the heap."""

        self._numbers = count()
        self._timer: asyncio.TimerHandle | None = None
        self._ready: dict[str, deque[_Key]] = {}
        """By host, in the order of their times."""

        self._is_ready: set[_Key] = set()
        self._tasks: dict[_Key, asyncio.Task[None]] = {}
        self._at_host: Counter[str] = Counter()
        self._finished: Counter[tuple[str, str]] = Counter()
        self._is_closed = False
        if self.send is not None:
            self.run_store.added = self.add

    def add(self, deliveries: Sequence[WebhookDelivery]) -> None:
        """Sends messages that have been stored, after earlier ones of the same run to the same webhook.

        If one of these has failed, it is tried again at once: the receiver may have recovered.
        """
        for delivery in deliveries:
            key = self._enqueue(delivery)
            if key is not None:
                self._make_ready(key)
        self._start_ready()

    async def resume(self, shards: Shards | None = None) -> None:
        """Sends what earlier processes have not sent. shards: of the sessions; None for all."""
        if self.send is None:
            return
        for delivery in await self.run_store.list_pending_deliveries(shards):
            key = self._enqueue(delivery)
            if key is not None and self._queues[key][0].delivery_id == delivery.id:
                self._schedule(key, delivery.next_try_at or 0.0)
        self._wake()

    def abandon(self, is_lost: IsOf) -> None:
        """Drops the messages about sessions that another server runs now."""
        for key, queue in list(self._queues.items()):
            session_key = queue[0].session_key
            if session_key is not None and is_lost(session_key):
                del self._queues[key]

    def drop(self, run_id: str, webhook_id: str) -> None:
        """Sends nothing more to a webhook that was removed from a run."""
        self._queues.pop((run_id, webhook_id), None)

    async def redeliver(self, delivery: WebhookDelivery) -> WebhookDelivery:
        """Sends a message once more, at once, and returns it with that try. Raises OwnershipLost, StorageError."""
        self._require(delivery.session_key)
        await self._try(delivery)
        await self.run_store.update_delivery(delivery)
        return delivery

    async def test(self, app_name: str, webhook: Webhook, run: Run | None = None) -> WebhookDelivery:
        """Sends a test message once, at once, and returns it. Raises OwnershipLost, StorageError."""
        if run is not None:
            self._require(run.session_key)
        now = time.time()
        data = {"appName": app_name, "webhookId": webhook.id}
        delivery = WebhookDelivery(
            id=new_delivery_id(),
            webhook_id=webhook.id,
            app_name=app_name,
            run_id=run.id if run is not None else None,
            user_id=run.user_id if run is not None else None,
            session_id=run.session_id if run is not None else None,
            url=webhook.url,
            type=TEST,
            created_at=now,
            body=event_body(TEST, data, now),
            status="failed",
        )
        await self._try(delivery)
        await self.run_store.add_delivery(delivery)
        return delivery

    async def close(self) -> None:
        """Waits a moment for tries that are under way. The next process makes the others."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._tasks:
            tasks = list(self._tasks.values())
            _, running = await asyncio.wait(tasks, timeout=_CLOSE_SECONDS)
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    def _require(self, key: SessionKey | None) -> None:
        """Raises OwnershipLost for the session of another server."""
        if key is not None and self.run_store.ownership is not None:
            require(self.run_store.ownership, key)

    def _enqueue(self, delivery: WebhookDelivery) -> _Key | None:
        """Returns the key of the queue; None if the message is in it already."""
        key = delivery.run_id or "", delivery.webhook_id
        queue = self._queues.setdefault(key, deque())
        if any(pending.delivery_id == delivery.id for pending in queue):
            return None
        host = urlsplit(delivery.url).netloc
        queue.append(_Pending(delivery.id, delivery.session_key, host, delivery.next_try_at or 0.0))
        return key

    def _schedule(self, key: _Key, at: float) -> None:
        self._next_try_at[key] = at
        heapq.heappush(self._due, (at, next(self._numbers), key))

    def _make_ready(self, key: _Key) -> None:
        """Notes that the first message of a queue is to be tried now."""
        queue = self._queues.get(key)
        if queue and key not in self._is_ready and key not in self._tasks:
            self._next_try_at.pop(key, None)
            self._is_ready.add(key)
            self._ready.setdefault(queue[0].host, deque()).append(key)

    def _wake(self) -> None:
        """Starts what is due, and sleeps until the next message is."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = time.time()
        while self._due and self._due[0][0] <= now:
            at, _, key = heapq.heappop(self._due)
            if self._next_try_at.get(key) == at:
                del self._next_try_at[key]
                self._make_ready(key)
        self._start_ready()
        if self._due and not self._is_closed:
            pause = min(max(self._due[0][0] - now, 0.0), _LONGEST_SLEEP)
            self._timer = asyncio.get_running_loop().call_later(pause, self._wake)

    def _start_ready(self) -> None:
        """Starts tries as far as the limits allow; hosts take turns."""
        has_started = True
        while has_started and not self._is_closed:
            has_started = False
            for host, keys in list(self._ready.items()):
                if len(self._tasks) >= _AT_ONCE:
                    return
                if self._at_host[host] >= _AT_ONCE_PER_HOST:
                    continue
                key = keys.popleft()
                if not keys:
                    del self._ready[host]
                self._is_ready.discard(key)
                if self._queues.get(key):
                    self._at_host[host] += 1
                    self._tasks[key] = asyncio.create_task(self._send_queue(key, host))
                has_started = True

    async def _send_queue(self, key: _Key, host: str) -> None:
        """Sends the messages of a run to a webhook, until one fails or all are sent."""
        next_try_at: float | None = None
        try:
            while next_try_at is None and not self._is_closed and (queue := self._queues.get(key)):
                pending = queue[0]
                next_try_at = await self._send_stored(pending)
                if next_try_at is None and queue and queue[0] is pending:
                    queue.popleft()
        except OwnershipLost:  # the server that runs the session sends them
            self._queues.pop(key, None)
        except StorageError as error:
            _log.error("messages to webhook %s of run %s can't be read or stored: %s", key[1], key[0], error)
            next_try_at = time.time() + _STORE_RETRY_SECONDS
        finally:
            del self._tasks[key]
            self._at_host[host] -= 1
            if not self._at_host[host]:
                del self._at_host[host]
            if not self._queues.get(key):
                self._queues.pop(key, None)
            elif next_try_at is not None:
                self._schedule(key, next_try_at)
            if not self._is_closed:
                self._wake()

    async def _send_stored(self, pending: _Pending) -> float | None:
        """Tries a message, and returns the time of its next try. Raises OwnershipLost, StorageError."""
        self._require(pending.session_key)
        delivery = await self.run_store.get_delivery(pending.delivery_id)
        if delivery is None or delivery.status != "pending":
            return None  # it was deleted, or a client had it delivered
        attempt = await self._try(delivery)
        if attempt.error is not None:
            self._plan_next_try(delivery, attempt)
        await self.run_store.update_delivery(delivery)
        if delivery.status != "pending":
            await self._prune(delivery)
        return delivery.next_try_at

    def _plan_next_try(self, delivery: WebhookDelivery, attempt: DeliveryAttempt) -> None:
        where = f"{delivery.type} of run {delivery.run_id} to webhook {delivery.webhook_id}"
        if attempt.status_code == GONE or delivery.failures > len(self.retry_seconds):
            delivery.status = "failed"
            delivery.next_try_at = None
            _log.error("%s is not sent: %s", where, attempt.error)
        else:
            pause = self.retry_seconds[delivery.failures - 1] * random.uniform(0.5, 1.0)
            delivery.next_try_at = time.time() + pause
            _log.warning("%s failed, next try in %.0f s: %s", where, pause, attempt.error)

    async def _try(self, delivery: WebhookDelivery) -> DeliveryAttempt:
        assert self.send is not None
        attempt = await self.send(delivery)
        delivery.note(attempt)
        return attempt

    async def _prune(self, delivery: WebhookDelivery) -> None:
        """Deletes old messages to the webhook, now and then."""
        name = delivery.app_name, delivery.webhook_id
        self._finished[name] += 1
        if self._finished[name] >= _PRUNE_EVERY:
            del self._finished[name]
            await self.run_store.prune_deliveries(app_name=name[0], webhook_id=name[1], keep=KEPT)
