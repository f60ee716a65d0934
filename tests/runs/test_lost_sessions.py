"""The runs of a session that another server takes over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import msgspec
import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.app import App
from greenroom.apps.loader import StaticAppLoader
from greenroom.errors import OwnershipLost
from greenroom.invocation.context import InvocationContext
from greenroom.plugins.plugin import BasePlugin
from greenroom.postgres.database import Database
from greenroom.postgres.ownership import take
from greenroom.postgres.shard_owner import ShardOwner
from greenroom.records.content import FunctionCall
from greenroom.records.event import Event
from greenroom.records.model_exchange import LlmRequest
from greenroom.records.run import PushConfig, Run, RunStatus
from greenroom.records.session import SessionKey
from greenroom.records.shard import shard_of
from greenroom.runs.in_process import InProcessRunEngine
from greenroom.runs.postgres_store import PostgresRunStore
from greenroom.sessions.postgres import PostgresSessionService
from greenroom.testing.scripted_model import ScriptedModel
from tests.durability.engines import WHERE, asking, ended, finish, items_of, start, wait_for

KEY = SessionKey(**WHERE)
OTHER = SessionKey("desk", "ben", "s-2")
HOUR = 3600.0


class Tool:
    """A tool that waits until the test opens it, and that ignores its cancellation where it is told to."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.open = asyncio.Event()
        self.returned = asyncio.Event()
        self.ignores_cancellation = False
        self.when_cancelled: Callable[[], None] | None = None

    async def wait(self) -> str:
        self.entered.set()
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            if self.when_cancelled is not None:
                self.when_cancelled()
            if not self.ignores_cancellation:
                raise
            await self.open.wait()
        self.returned.set()
        return "late"


class StubbornPlugin(BasePlugin):
    """A plugin that ignores the cancellation of the first run, before its event is stored."""

    def __init__(self) -> None:
        super().__init__(name="stubborn")
        self.events = 0
        self.entered = asyncio.Event()
        self.was_cancelled = asyncio.Event()
        self.open = asyncio.Event()
        self.has_returned = asyncio.Event()

    async def on_event_callback(self, *, invocation_context: InvocationContext, event: Event) -> Event | None:
        self.events += 1
        if self.events > 1:
            return None
        self.entered.set()
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.was_cancelled.set()
            await self.open.wait()
        self.has_returned.set()
        return None


def _reply(request: LlmRequest) -> FunctionCall | str:
    parts = request.contents[-1].parts or []
    if any(part.function_response for part in parts):
        return "done"
    return FunctionCall(id="c", name="wait", args={}) if parts[0].text == "wait" else "hello"


class Server:
    """An engine on PostgreSQL, and another server's view of the database."""

    def __init__(self, uri: str) -> None:
        self.own_database = Database.open(uri)
        self.own_database.companion(ShardOwner, self._owner)
        self.tool = Tool()
        self.stubborn = StubbornPlugin()
        agent = LlmAgent(name="agent", model=ScriptedModel(_reply), tools=[self.tool.wait])
        self.sessions = PostgresSessionService(uri)
        self.store = PostgresRunStore(uri)
        self.engine = InProcessRunEngine(
            apps=StaticAppLoader(
                [
                    App(name="desk", root_agent=agent),
                    App(name="stubborn", root_agent=agent, plugins=[self.stubborn]),
                ],
            ),
            run_store=self.store,
            session_service=self.sessions,
            auto_create_session=True,
        )
        other_uri = uri.replace("postgres@", "postgres:unused@")
        self.database = Database.open(other_uri)
        self.stored = PostgresRunStore(other_uri)
        self.logs = PostgresSessionService(other_uri)

    def _owner(self) -> ShardOwner:
        """It doesn't take a shard again that a test takes by hand."""
        return ShardOwner(self.own_database, is_exclusive=True, lease_seconds=HOUR, beat_seconds=HOUR)

    async def lose(self, key: SessionKey = KEY) -> None:
        """Another server takes over the session's shard, of which this one learns by its next write."""
        await self.database.submit(lambda connection: take(connection, [shard_of(key)], "another server"))

    async def log(self) -> list[Event]:
        return (await self.logs.list_events(**WHERE)).events

    async def stored_run(self, run_id: str) -> Run:
        run = await self.stored.get(run_id)
        assert run is not None
        return run

    async def close(self) -> None:
        self.tool.open.set()
        await self.engine.close(grace_seconds=0)
        for service in (self.sessions, self.own_database, self.database, self.stored, self.logs):
            await service.close()


@pytest.fixture
async def server(postgres_uri: str) -> AsyncIterator[Server]:
    server = Server(postgres_uri)
    await server.engine.recover()
    yield server
    await server.close()


async def test_a_run_of_a_lost_session_stores_nothing_more_and_keeps_its_record(server: Server) -> None:
    run, attachment = await start(server.engine, asking("wait"))
    queued, later = await start(server.engine, asking("hello"))
    await server.tool.entered.wait()
    logged = await server.log()
    await server.lose()
    server.tool.open.set()

    for reader, run_id in ((attachment, run.id), (later, queued.id)):
        with pytest.raises(OwnershipLost):
            await items_of(reader)
        stored = await server.stored_run(run_id)
        assert (stored.status.is_over, stored.error, stored.ended_at) == (False, None, None)
    assert await server.log() == logged
    assert server.engine.load() == {}
    for asked in (asking("hello"), asking("wait")):
        with pytest.raises(OwnershipLost):
            await server.engine.start(asked)


async def test_a_run_whose_write_is_refused_before_its_loss_is_noticed_has_not_failed(server: Server) -> None:
    run, attachment = await start(server.engine, asking("wait"))
    await server.tool.entered.wait()
    server.store.ownership.epochs = {}  # as in the moment before the listeners are called
    server.tool.open.set()
    with pytest.raises(OwnershipLost):
        await items_of(attachment)
    with pytest.raises(OwnershipLost):
        await server.engine.get(run.id)
    assert not (await server.stored_run(run.id)).status.is_over
    assert server.engine.load() == {}


async def test_a_run_that_is_cancelled_as_its_session_is_lost_is_not_cancelled(server: Server) -> None:
    run, attachment = await start(server.engine, asking("wait"))
    await server.tool.entered.wait()

    def lose() -> None:
        server.store.ownership.epochs = {}  # as in the moment before the listeners are called

    server.tool.when_cancelled = lose
    with pytest.raises(OwnershipLost):
        await server.engine.cancel(run.id, reason="asked by a test")
    with pytest.raises(OwnershipLost):
        await items_of(attachment)
    assert not (await server.stored_run(run.id)).status.is_over


async def test_the_result_of_a_tool_that_ignores_the_loss_of_its_session_is_not_stored(server: Server) -> None:
    """Not even when this server has taken the session again, and resumed the run."""
    server.tool.ignores_cancellation = True
    run, attachment = await start(server.engine, asking("wait"))
    await server.tool.entered.wait()
    shards = server.store.ownership
    shards.drop([shard_of(KEY)])
    with pytest.raises(OwnershipLost):
        await ended(attachment)
    taken = await server.database.submit(lambda connection: take(connection, [shard_of(KEY)], "this server"))
    shards.add(taken)
    server.tool.open.set()
    await server.tool.returned.wait()

    resumed = await ended(await server.engine.attach(run.id))
    assert resumed.status is RunStatus.SUCCEEDED
    answers = [one.response for event in await server.log() for one in event.get_function_responses()]
    assert len(answers) == 1
    assert answers != [{"result": "late"}]


async def test_a_run_whose_plugin_ignores_the_loss_of_its_session_stores_nothing(server: Server) -> None:
    """Not even when this server has taken the session again, and resumed the run."""
    plugin = server.stubborn
    request = asking("hello")
    request.app_name = "stubborn"
    key = SessionKey("stubborn", KEY.user_id, KEY.session_id)
    run, attachment = await start(server.engine, request)
    await plugin.entered.wait()
    shards = server.store.ownership
    shards.drop([shard_of(key)])
    with pytest.raises(OwnershipLost):
        await ended(attachment)
    await plugin.was_cancelled.wait()
    taken = await server.database.submit(lambda connection: take(connection, [shard_of(key)], "this server"))
    shards.add(taken)
    resumed = await ended(await server.engine.attach(run.id))
    assert resumed.status is RunStatus.SUCCEEDED

    plugin.open.set()
    await plugin.has_returned.wait()
    for _ in range(5):  # after what the callback's return has queued
        await server.own_database.execute("SELECT 1")
    events = (await server.logs.list_events(**key._asdict())).events
    assert [event.content.text() for event in events if event.content is not None] == ["hello", "hello"]


async def test_runs_of_other_sessions_continue(server: Server) -> None:
    _, attachment = await start(server.engine, asking("wait"))
    await server.tool.entered.wait()
    await server.lose(OTHER)
    request = asking("hello")
    request.user_id = OTHER.user_id
    request.session_id = OTHER.session_id
    with pytest.raises(OwnershipLost):
        await server.engine.start(request)
    server.tool.open.set()
    assert (await ended(attachment)).status is RunStatus.SUCCEEDED


async def test_the_cancellation_of_a_run_that_is_lost_meanwhile_is_refused(server: Server) -> None:
    server.tool.ignores_cancellation = True
    run, _ = await start(server.engine, asking("wait"))
    await server.tool.entered.wait()
    cancelling = asyncio.create_task(server.engine.cancel(run.id, reason="test"))
    await asyncio.sleep(0)
    server.store.ownership.drop([shard_of(KEY)])
    with pytest.raises(OwnershipLost):
        await cancelling
    assert (await server.stored_run(run.id)).status is RunStatus.RUNNING


async def test_readers_of_a_lost_session_are_sent_to_the_other_server(server: Server) -> None:
    await finish(server.engine, asking("hello"))
    reader = server.engine.attach_to_session(KEY, after=0)
    await wait_for(reader, lambda event: event.author == "agent")
    server.store.ownership.drop([shard_of(KEY)])
    with pytest.raises(OwnershipLost):
        async with asyncio.timeout(5):
            while True:
                await reader.next_batch()
    reader.close()


async def test_push_notifications_of_a_lost_run_are_left_to_the_other_server(server: Server) -> None:
    sent: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

    async def send(run: Run, webhook: PushConfig) -> None:
        sent.put_nowait((webhook.id, run.status))

    webhooks = server.engine.push_notifications
    async with asyncio.timeout(10), webhooks.reporting(send):
        run, _ = await start(server.engine, asking("wait"))
        await server.tool.entered.wait()
        await webhooks.save(run, PushConfig(run_id=run.id, id="lost", config={}))
        assert await sent.get() == ("lost", RunStatus.RUNNING)
        await server.lose()
        with pytest.raises(OwnershipLost):
            await webhooks.save(run, PushConfig(run_id=run.id, id="late", config={}))

        over = msgspec.structs.replace(run, status=RunStatus.SUCCEEDED)
        await server.stored.save(over)  # by the other server
        webhooks.watches.publish(over)
        other = asking("hello")
        other.user_id = OTHER.user_id
        other.session_id = OTHER.session_id
        kept = await finish(server.engine, other)
        await webhooks.save(kept, PushConfig(run_id=kept.id, id="kept", config={}))
        assert await sent.get() == ("kept", RunStatus.SUCCEEDED)


async def test_an_event_of_no_run_is_refused(server: Server) -> None:
    run = await finish(server.engine, asking("hello"))
    await server.lose()
    session = await server.sessions.get_session(**WHERE)
    assert session is not None
    with pytest.raises(OwnershipLost):
        await server.engine.append(session, Event(author="ann", invocation_id=run.id))
    assert [event.author for event in await server.log()] == ["user", "agent"]


async def test_a_run_that_the_new_owner_has_started_is_not_cancelled_here(server: Server) -> None:
    run = await finish(server.engine, asking("hello"))
    await server.lose()
    await server.stored.save(msgspec.structs.replace(run, id="newer", status=RunStatus.RUNNING))
    with pytest.raises(OwnershipLost):
        await server.engine.cancel("newer", reason="asked by a test")
