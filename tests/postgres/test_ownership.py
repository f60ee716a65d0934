"""PostgreSQL refuses the writes of a session's former owner."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import pytest
from asyncpg.exceptions import DeadlockDetectedError

from greenroom.encryption.codec import PLAIN
from greenroom.errors import OwnershipLost
from greenroom.postgres.connection import LEASE_SECONDS, Connection, connect
from greenroom.postgres.database import Database
from greenroom.postgres.ownership import Fence, take
from greenroom.postgres.shard_owner import ShardOwner
from greenroom.records.content import Blob, Content, Part
from greenroom.records.event import Event
from greenroom.records.run import PushConfig, Run, RunStatus, Webhook
from greenroom.records.session import Session, SessionKey
from greenroom.records.shard import SHARDS, shard_of
from greenroom.records.webhook_delivery import DeliveryAttempt, add_webhooks
from greenroom.runs.postgres_store import FencedRun, PostgresRunStore, SaveRuns
from greenroom.runs.sql_store import row_of
from greenroom.sessions.postgres import PostgresSessionService
from greenroom.sessions.postgres_append import Append, AppendBatch
from greenroom.sessions.prepared_event import prepare
from greenroom.sessions.stored_event import BLOB_BYTES

KEY = SessionKey("a", "u", "s")
OTHER = SessionKey("a", "u", "other")
HOUR = 3600.0


class Server:
    """The stores of one server, with the run that it executes."""

    def __init__(self, uri: str) -> None:
        self.sessions = PostgresSessionService(uri)
        self.runs = PostgresRunStore(uri)
        self.database = Database.open(uri)
        self.database.companion(ShardOwner, self._owner)

    def _owner(self) -> ShardOwner:
        """It doesn't take a shard again that a test takes by hand."""
        return ShardOwner(self.database, is_exclusive=True, lease_seconds=HOUR, beat_seconds=HOUR)

    async def start(self) -> None:
        await self.runs.lock(wait_seconds=0)

    async def session(self, key: SessionKey = KEY) -> Session:
        found = await self.sessions.get_session(**key._asdict())
        return found or await self.sessions.create_session(**key._asdict())

    async def close(self) -> None:
        for service in (self.runs, self.sessions, self.database):
            await service.close()


@pytest.fixture
async def server(postgres_uri: str) -> AsyncIterator[Server]:
    server = Server(postgres_uri)
    await server.start()
    yield server
    await server.close()


@pytest.fixture
async def program(postgres_uri: str) -> AsyncIterator[Server]:
    """A process beside the server."""
    program = Server(postgres_uri.replace("postgres@", "postgres:unused@"))
    yield program
    await program.close()


def _run(run_id: str = "e-1", key: SessionKey = KEY, *, idempotency_key: str | None = None) -> Run:
    return Run(id=run_id, **key._asdict(), status=RunStatus.RUNNING, created_at=1.0, idempotency_key=idempotency_key)


async def _take_over(program: Server, key: SessionKey = KEY) -> None:
    await program.database.submit(lambda connection: take(connection, [shard_of(key)], "another server"))


async def _authors(program: Server) -> list[str | None]:
    query = """
        SELECT json_extract(data, '$.author') FROM events JOIN sessions ON number = session
        WHERE app_name = ? AND user_id = ? AND sessions.id = ? ORDER BY seq
    """
    return [author for (author,) in await program.database.fetch(query, *KEY)]


def test_the_shard_of_a_session_is_the_same_in_all_releases() -> None:
    assert [shard_of(SessionKey("app", "user", session_id)) for session_id in ("", "s", "t", "ü", "\ud800")] == [
        203,
        157,
        228,
        88,
        221,
    ]


async def test_postgresql_computes_the_same_shard(program: Server) -> None:
    for key in (KEY, OTHER, SessionKey("Ä", "", "日本語"), SessionKey("a\\", "'", "x" * 1000)):
        assert await program.database.fetch("SELECT shard_of(?, ?, ?)", *key) == [(shard_of(key),)]


async def test_the_owner_appends_and_programs_may_append_beside_it(server: Server, program: Server) -> None:
    await server.sessions.append(await server.session(), Event(author="owner"))
    await program.sessions.append(await program.session(), Event(author="program"))
    await server.sessions.append(await server.session(), Event(author="owner"))
    assert await _authors(program) == ["owner", "program", "owner"]


_LARGE = Content(parts=[Part(inline_data=Blob(mime_type="image/png", data=b"x" * 2 * BLOB_BYTES))])


@pytest.mark.parametrize(
    "events",
    [
        [Event(author="late")],
        [Event(author="late"), Event(author="late")],
        [Event(author="late", content=_LARGE)],
        [],
    ],
    ids=["one", "several", "large", "none"],
)
async def test_an_append_of_a_former_owner_is_refused(server: Server, program: Server, events: list[Event]) -> None:
    session = await server.session()
    await server.sessions.append(session, Event(author="owner"))
    await _take_over(program)
    if not events:
        assert await server.sessions.append(session) == []
        return
    with pytest.raises(OwnershipLost):
        await server.sessions.append(session, *events)
    assert not server.runs.ownership.owns(KEY)
    assert server.runs.ownership.owns(OTHER)
    with pytest.raises(OwnershipLost):  # without asking the database
        await server.sessions.append(session, *events)
    assert await _authors(program) == ["owner"]


async def test_only_the_refused_rows_of_a_group_fail(server: Server, program: Server) -> None:
    session, other = await server.session(), await server.session(OTHER)
    await _take_over(program)
    results = await asyncio.gather(
        server.sessions.append(session, Event(author="late")),
        server.sessions.append(other, Event(author="owner")),
        server.runs.save(_run("e-1")),
        server.runs.save(_run("e-2", OTHER)),
        server.runs.save(_run("e-3", idempotency_key="k")),
        server.runs.save(_run("e-4", OTHER, idempotency_key="l")),
        return_exceptions=True,
    )
    refused = [isinstance(result, OwnershipLost) for result in results]
    assert refused == [True, False, True, False, True, False]
    assert await _authors(program) == []
    assert [run is None for run in [await program.runs.get(f"e-{n}") for n in range(1, 5)]] == [
        True,
        False,
        True,
        False,
    ]


async def test_the_record_of_a_run_is_not_changed_by_a_former_owner(server: Server, program: Server) -> None:
    run = _run()
    await server.runs.save(run)
    await _take_over(program)
    run.status = RunStatus.FAILED
    with pytest.raises(OwnershipLost):
        await server.runs.save_progress(run)
    with pytest.raises(OwnershipLost):
        await server.runs.save(run)
    stored = await program.runs.get("e-1")
    assert stored is not None
    assert stored.status is RunStatus.RUNNING


async def test_the_state_of_a_push_config_is_not_changed_by_a_former_owner(server: Server, program: Server) -> None:
    await server.runs.save(_run())
    webhook = PushConfig(run_id="e-1", id="w", config={}, reported="running 0")
    await server.runs.save_push_config(webhook)
    await _take_over(program)
    with pytest.raises(OwnershipLost):
        await server.runs.save_push_config(PushConfig(run_id="e-1", id="w", config={}, reported="failed 0"))
    assert await program.runs.list_push_configs("e-1") == [webhook]


async def test_a_message_to_a_webhook_is_not_changed_by_a_former_owner(server: Server, program: Server) -> None:
    run = _run()
    add_webhooks(run, [Webhook(url="https://h/", id="w", states=[run.status])])
    await server.runs.save(run)
    (message,) = await server.runs.list_pending_deliveries()
    await _take_over(program)
    message.note(DeliveryAttempt(at=1.0, seconds=0.0))
    with pytest.raises(OwnershipLost):
        await server.runs.update_delivery(message)
    assert [one.status for one in await program.runs.list_pending_deliveries()] == ["pending"]


async def _delete(server: Server) -> None:
    await server.sessions.delete_session(**KEY._asdict())


async def _delete_user(server: Server) -> None:
    await server.sessions.delete_user(app_name=KEY.app_name, user_id=KEY.user_id)


async def _delete_runs(server: Server) -> None:
    await server.runs.delete_session(**KEY._asdict())


async def _delete_push_config(server: Server) -> None:
    await server.runs.delete_push_config("e-1", "w")


@pytest.mark.parametrize("delete", [_delete, _delete_user, _delete_runs, _delete_push_config])
async def test_a_former_owner_deletes_nothing(
    server: Server, program: Server, delete: Callable[[Server], Awaitable[None]]
) -> None:
    await server.sessions.append(await server.session(), Event(author="owner"))
    await server.runs.save(_run(idempotency_key="k"))
    webhook = PushConfig(run_id="e-1", id="w", config={}, reported="running 0")
    await server.runs.save_push_config(webhook)
    await _take_over(program)
    for _ in range(2):  # the second time, the server knows it
        with pytest.raises(OwnershipLost):
            await delete(server)
    assert await _authors(program) == ["owner"]
    assert await program.runs.find_by_idempotency_key(app_name="a", user_id="u", key="k") is not None
    assert await program.runs.list_push_configs("e-1") == [webhook]
    await delete(program)


@pytest.mark.parametrize("is_fork", [False, True])
async def test_a_former_owner_creates_no_session(server: Server, program: Server, is_fork: bool) -> None:
    await server.session(OTHER)
    await _take_over(program)
    for _ in range(2):
        with pytest.raises(OwnershipLost):
            if is_fork:
                await server.sessions.fork_session(**OTHER._asdict(), new_session_id=KEY.session_id)
            else:
                await server.sessions.create_session(**KEY._asdict(), state={"a": 1, "user:b": 2})
    assert await program.sessions.get_session(**KEY._asdict()) is None
    assert (await program.session(OTHER)).state == {}


async def test_a_write_that_was_asked_for_before_the_shard_was_taken_again_is_refused(
    server: Server, program: Server
) -> None:
    """It is of a run that was abandoned when the shard was lost."""
    session = await server.session()
    has_begun, may_end = asyncio.Event(), asyncio.Event()

    async def hold_up(connection: Connection) -> None:
        has_begun.set()
        await may_end.wait()

    held_up = server.database.submit(hold_up)
    await has_begun.wait()
    late = asyncio.ensure_future(server.sessions.append(session, Event(author="late")))
    large = asyncio.ensure_future(server.sessions.append(session, Event(author="late", content=_LARGE)))
    await asyncio.sleep(0)  # both are queued
    shard = shard_of(KEY)
    taken = await program.database.submit(lambda connection: take(connection, [shard], "this server, again"))
    server.runs.ownership.add(taken)
    may_end.set()
    await held_up
    for write in (late, large):
        with pytest.raises(OwnershipLost):
            await write
    assert server.runs.ownership.owns(KEY)
    await server.sessions.append(session, Event(author="owner"))
    assert await _authors(program) == ["owner"]


async def test_a_cached_session_is_dropped_when_its_shard_is_lost(server: Server, program: Server) -> None:
    await server.session()
    await server.session(OTHER)
    decoded = server.sessions.database_stats.reads
    server.runs.ownership.drop([shard_of(KEY)])
    await server.session(OTHER)
    assert server.sessions.database_stats.reads == decoded
    await server.session()
    assert server.sessions.database_stats.reads > decoded


async def _append(connection: Connection, fence: Fence, count: int) -> None:
    prepared = prepare([Event(author="owner") for _ in range(count)], encode=True)
    append = Append(KEY, prepared, [(one.json or b"").decode() for one in prepared], fence)
    (stored,) = await AppendBatch().write(connection, [append])
    assert not isinstance(stored, Exception)
    assert len(stored) == count


async def _save(connection: Connection, fence: Fence, count: int) -> None:
    rows = [FencedRun(row_of(PLAIN, _run(f"e-{number}")), fence) for number in range(count)]
    assert await SaveRuns(lambda: PLAIN).write(connection, rows) == [None] * count


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("write", [_append, _save])
async def test_a_shard_is_taken_after_the_writes_of_its_owner_that_are_under_way(
    server: Server, program: Server, write: Callable[[Connection, Fence, int], Awaitable[None]], count: int
) -> None:
    await server.session()
    fence = server.runs.ownership.fence(KEY, server.runs.ownership.epochs)
    assert fence is not None
    connection = await connect(program.database.uri)
    taking: asyncio.Task[dict[int, int]] | None = None

    async def write_slowly(writer: Connection) -> None:
        nonlocal taking
        await write(writer, fence, count)
        taking = asyncio.create_task(take(connection, [fence.shard], "another server"))
        waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%INTO shards%'"
        async with asyncio.timeout(2):
            while not await program.database.fetch(waiting):
                await asyncio.sleep(0.01)
        assert not taking.done()

    await server.database.submit(write_slowly)
    assert taking is not None
    async with asyncio.timeout(2):
        assert await taking == {fence.shard: 2}
    await connection.close()
    with pytest.raises(OwnershipLost):
        await server.sessions.append(await server.session(), Event(author="late"))


async def test_a_transaction_of_a_paused_process_keeps_a_shard_for_the_lease_only(program: Server) -> None:
    paused, taking = await connect(program.database.uri), await connect(program.database.uri)
    await program.session()
    await take(taking, [7], "paused")
    await paused.execute("BEGIN")
    await paused.execute("SELECT 1 FROM shards WHERE shard = 7 FOR SHARE")
    async with asyncio.timeout(LEASE_SECONDS + 1):
        assert await take(taking, [7], "another server") == {7: 2}
    paused.terminate()
    await taking.close()


async def test_only_connections_that_write_have_a_lease(program: Server) -> None:
    """A long log is decoded in a transaction that reads."""
    show = "SHOW idle_in_transaction_session_timeout"
    assert await program.database.submit(lambda connection: connection.fetchval(show)) == f"{LEASE_SECONDS:.0f}s"
    assert await program.database.read(lambda connection: connection.fetchval(show)) == "0"


async def test_a_server_takes_all_shards_and_each_start_raises_their_epochs(postgres_uri: str) -> None:
    for epoch in (1, 2):
        server = Server(postgres_uri)
        await server.start()
        assert server.runs.ownership.epochs == dict.fromkeys(range(SHARDS), epoch)
        replicas = await server.database.fetch("SELECT id FROM replicas")
        assert await server.database.fetch("SELECT DISTINCT owner, epoch FROM shards") == [(*replicas[0], epoch)]
        await server.runs.close()
        assert await server.database.fetch("SELECT 1 FROM replicas") == []
        await server.close()


async def test_a_server_starts_though_a_transaction_locks_shards_in_another_order(postgres_uri: str) -> None:
    """That of a former owner, whose writes lock the rows of their shards one after the other."""
    database = Database.open(postgres_uri)
    await database.fetch("SELECT 1")
    former = await connect(postgres_uri)
    await take(former, range(SHARDS), "former")
    lock = "SELECT 1 FROM shards WHERE shard = $1 FOR SHARE"
    waiting = "SELECT 1 FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'"
    runs = PostgresRunStore(postgres_uri)
    async with asyncio.timeout(20):
        async with former.transaction():
            await former.fetch(lock, 7)
            starting = asyncio.create_task(runs.lock(wait_seconds=0))
            while not await database.fetch(waiting):
                await asyncio.sleep(0.02)
            # The starting server has locked it, and waits for 7. PostgreSQL ends either transaction.
            with suppress(DeadlockDetectedError):
                await former.fetch(lock, 3)
        await starting
    assert runs.ownership.epochs == dict.fromkeys(range(SHARDS), 2)
    await former.close()
    await runs.close()
    await database.close()


async def test_a_server_starts_though_its_connection_is_cut_meanwhile(postgres_uri: str) -> None:
    """As by a database that restarts."""
    database = Database.open(postgres_uri)
    await database.fetch("SELECT 1")
    former = await connect(postgres_uri)
    await take(former, [7], "former")
    runs = PostgresRunStore(postgres_uri)
    waiting = "SELECT pid FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'"
    async with asyncio.timeout(20):
        async with former.transaction():
            await former.fetch("SELECT 1 FROM shards WHERE shard = 7 FOR SHARE")
            starting = asyncio.create_task(runs.lock(wait_seconds=0))
            while not (found := await database.fetch(waiting)):
                await asyncio.sleep(0.02)
            await database.fetch("SELECT pg_terminate_backend(?)", found[0][0])
        await starting
    assert len(runs.ownership.epochs or ()) == SHARDS
    await former.close()
    await runs.close()
    await database.close()
