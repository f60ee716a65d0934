"""Messages between servers by LISTEN and NOTIFY."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

import pytest

from greenroom.postgres.database import Database
from greenroom.postgres.notifications import RUN_LISTENER_LOCKS, RUNS_CHANNEL, Notifications

CHANNEL = "test_channel"
_LOCKS = f"SELECT objid::int FROM pg_locks WHERE locktype = 'advisory' AND classid = {RUN_LISTENER_LOCKS}"
_CUT = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = 'SELECT 1' AND pid <> pg_backend_pid()"


class Received:
    """Messages that a server has received; None where some may be missing."""

    def __init__(self) -> None:
        self.messages: list[str | None] = []
        self._changed = asyncio.Event()

    def __call__(self, messages: Sequence[str] | None) -> None:
        self.messages += [None] if messages is None else messages
        self._changed.set()

    async def until(self, is_reached: Callable[[list[str | None]], bool]) -> None:
        async with asyncio.timeout(5):
            while not is_reached(self.messages):
                self._changed.clear()
                await self._changed.wait()


@pytest.fixture
async def database(postgres_uri: str) -> AsyncIterator[Database]:
    database = Database.open(postgres_uri)
    yield database
    await database.close()


@pytest.fixture
async def servers(database: Database) -> AsyncIterator[tuple[Notifications, Notifications]]:
    servers = Notifications(database), Notifications(database)
    yield servers
    for server in servers:
        await server.close()


async def until_locked(database: Database, numbers: list[int]) -> None:
    async with asyncio.timeout(5):
        while [number for (number,) in await database.fetch(_LOCKS)] != numbers:
            await asyncio.sleep(0.01)


async def test_many_messages_arrive_in_order_at_the_other_server_only(
    servers: tuple[Notifications, Notifications],
) -> None:
    one, two = servers
    own = Received()
    received = Received()
    await one.listen(CHANNEL, own)
    await two.listen(CHANNEL, received)
    await two.listen("another_channel", own)
    messages = [f"{number} ü {'x' * (number % 90)}" for number in range(2_000)]
    await one.notify(CHANNEL, [*messages, "x" * 7_000])
    await received.until(lambda got: len(got) > len(messages))
    assert received.messages == [*messages, "x" * 7_000]
    assert own.messages == []


async def test_a_lost_connection_is_noted_and_replaced(
    database: Database, servers: tuple[Notifications, Notifications]
) -> None:
    one, two = servers
    received = Received()
    await one.listen(CHANNEL, received)
    await two.notify(CHANNEL, ["before"])
    await received.until(lambda got: got == ["before"])
    await database.fetch(_CUT)
    await received.until(lambda got: None in got)
    await two.notify(CHANNEL, ["after"])
    await received.until(lambda got: got == ["before", None, "after"])


async def test_listeners_to_changed_runs_hold_a_lock(
    database: Database, servers: tuple[Notifications, Notifications]
) -> None:
    one, two = servers
    stop_first = await one.listen(RUNS_CHANNEL, Received())
    stop_second = await one.listen(RUNS_CHANNEL, Received())
    stop_other = await one.listen(CHANNEL, Received())
    await two.listen(CHANNEL, Received())
    assert await database.fetch(_LOCKS) == [(one.number,)]
    stop_first()
    stop_second()
    await until_locked(database, [])
    received = Received()
    await one.listen(RUNS_CHANNEL, received)
    await until_locked(database, [one.number])
    await two.notify(RUNS_CHANNEL, ["e-1"])
    await received.until(lambda got: got == ["e-1"])
    stop_other()


async def test_a_server_listens_again_after_its_last_listener_has_left(
    database: Database, servers: tuple[Notifications, Notifications]
) -> None:
    stop = await servers[0].listen(RUNS_CHANNEL, Received())
    stop()
    await until_locked(database, [])
    received = Received()
    await servers[0].listen(CHANNEL, received)
    await servers[1].notify(CHANNEL, [])
    await servers[1].notify(CHANNEL, ["hello"])
    await received.until(lambda got: got == ["hello"])
