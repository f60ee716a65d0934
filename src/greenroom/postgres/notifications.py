"""Messages between the servers on a database, by LISTEN and NOTIFY.

A server holds one connection while it listens. On the channel of changed runs it also holds an advisory lock meanwhile:
the other servers see it when they survey the locks, and send nothing while nobody listens.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeAlias

from greenroom.postgres.connection import LEASE_SECONDS, Connection, connect
from greenroom.postgres.database import Database, connection_failures

_log = logging.getLogger("greenroom.postgres")

SHARDS_CHANNEL = "greenroom_shards"
"""Channel that wakes the servers' shard owners."""

RUNS_CHANNEL = "greenroom_runs"
"""Channel of the ids of changed runs."""

RUN_LISTENER_LOCKS = 0x67726E77
"""First key of the advisory locks of the servers that listen to `RUNS_CHANNEL`; the second is a server's `number`."""

MAX_PAYLOAD_BYTES = 7900
"""PostgreSQL accepts at most 7,999."""

_CHECK_SECONDS = 1.0
"""Interval in which a listening connection is checked."""

_LISTEN_SECONDS = 2.0
_FIRST_PAUSE_SECONDS = 0.05
_LOCK = f"SELECT pg_advisory_lock({RUN_LISTENER_LOCKS}, $1)"
_UNLOCK = f"SELECT pg_advisory_unlock({RUN_LISTENER_LOCKS}, $1)"
_NOTIFY = "SELECT pg_notify($1, payload) FROM unnest($2::text[]) AS payload"

Received: TypeAlias = Callable[[Sequence[str] | None], None]
"""Takes the messages of another server; None when some may have been missed, since the connection was lost."""


class RunListeners:
    """The servers that listen to changed runs, as the shard owner of this process saw them last."""

    def __init__(self) -> None:
        self.numbers = frozenset[int]()
        self._on_change: list[Callable[[], None]] = []

    def update(self, numbers: Iterable[int]) -> None:
        found = frozenset(numbers)
        if found != self.numbers:
            self.numbers = found
            for call in list(self._on_change):
                call()

    def add_listener(self, call: Callable[[], None]) -> Callable[[], None]:
        """Calls `call`, in any thread, when they change. Returns a function that removes the listener."""
        self._on_change.append(call)
        return partial(self._on_change.remove, call)


class _Listener:
    def __init__(self, channel: str, received: Received) -> None:
        self.channel = channel
        self.received = received
        self.is_listening = asyncio.Event()


class Notifications:
    """The notifications of one server, in its event loop. It doesn't receive its own."""

    def __init__(self, database: Database) -> None:
        self.number = random.getrandbits(31)
        self._id = secrets.token_hex(4)
        self._database = database
        self._listeners: list[_Listener] = []
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def listen(self, channel: str, received: Received) -> Callable[[], None]:
        """Calls `received` for what is sent after this has returned. Returns a function that ends it.

        Without a connection it returns after two seconds, and connects later.
        """
        listener = _Listener(channel, received)
        self._listeners.append(listener)
        self._wake.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LISTEN_SECONDS):
                    await listener.is_listening.wait()
        except BaseException:
            self._remove(listener)
            raise
        return partial(self._remove, listener)

    async def notify(self, channel: str, messages: Sequence[str]) -> None:
        """Sends messages, in as many notifications as needed; without messages one that is empty. Raises StorageError.

        messages: without line breaks, of at most 7,000 bytes each.
        """
        payloads = list(_payloads(self._id, messages))
        # On a connection of its own: the commit of a notification waits for that of any other in PostgreSQL.
        await self._database.read(lambda connection: connection.execute(_NOTIFY, channel, payloads))

    async def close(self) -> None:
        self._listeners.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _remove(self, listener: _Listener) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)
            self._wake.set()

    async def _run(self) -> None:
        """Holds a connection while there are listeners."""
        pause = _FIRST_PAUSE_SECONDS
        try:
            while self._listeners:
                try:
                    connection = await connect(self._database.uri)
                    try:
                        await self._listen(connection)
                        await connection.close(timeout=_LISTEN_SECONDS)
                    finally:
                        connection.terminate()
                    pause = _FIRST_PAUSE_SECONDS
                except connection_failures() as error:  # TimeoutError is one of them
                    _log.info("the connection for notifications was lost: %s", error or type(error).__name__)
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _CHECK_SECONDS)
        finally:
            self._task = None

    async def _listen(self, connection: Connection) -> None:
        """Listens to the channels of the listeners until there are none."""
        connection.add_termination_listener(lambda _: self._wake.set())
        channels = set[str]()
        while self._listeners:
            self._wake.clear()
            async with asyncio.timeout(LEASE_SECONDS):
                await self._change_channels(connection, channels)
                await connection.fetchval("SELECT 1")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CHECK_SECONDS):
                    await self._wake.wait()

    async def _change_channels(self, connection: Connection, channels: set[str]) -> None:
        wanted = {listener.channel for listener in self._listeners}
        for channel in wanted - channels:
            await connection.add_listener(channel, self._received)
            channels.add(channel)
            if channel == RUNS_CHANNEL:
                await connection.execute(_LOCK, self.number)
                await connection.execute(f"NOTIFY {SHARDS_CHANNEL}")  # so that the other servers survey the locks now
            self._set_listening(channel)
        for channel in channels - wanted:
            if channel == RUNS_CHANNEL:
                await connection.execute(_UNLOCK, self.number)
            await connection.remove_listener(channel, self._received)
            channels.remove(channel)
        for channel in channels:
            self._set_listening(channel, is_new=False)

    def _set_listening(self, channel: str, *, is_new: bool = True) -> None:
        """is_new: the connection has not listened to the channel before."""
        for listener in list(self._listeners):
            if listener.channel != channel:
                continue
            if not listener.is_listening.is_set():
                listener.is_listening.set()
            elif is_new:
                listener.received(None)

    def _received(self, connection: object, pid: int, channel: str, payload: str) -> None:
        sender, *messages = payload.split("\n")
        if sender == self._id:
            return
        for listener in list(self._listeners):
            if listener.channel == channel:
                listener.received(messages)


def _payloads(sender: str, messages: Sequence[str]) -> Iterator[str]:
    payload = sender
    size = len(sender)
    for message in messages:
        added = 1 + len(message.encode())
        if size + added > MAX_PAYLOAD_BYTES:
            yield payload
            payload = sender
            size = len(sender)
        payload += f"\n{message}"
        size += added
    yield payload
