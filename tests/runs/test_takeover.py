"""Engines that share a database: each resumes the runs of the sessions that it takes from another one."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.app import App
from greenroom.apps.loader import StaticAppLoader
from greenroom.errors import OwnershipLost
from greenroom.event_streams.stream import RunEnded
from greenroom.postgres.database import Database
from greenroom.postgres.shard_owner import ShardOwner
from greenroom.records.content import Content, FunctionCall, FunctionResponse, Part
from greenroom.records.event import Event
from greenroom.records.model_exchange import LlmRequest
from greenroom.records.run import AgentRunRequest, PushConfig, Run, RunFilter, RunStatus, Webhook
from greenroom.records.session import SessionKey
from greenroom.records.shard import SHARDS, shard_of
from greenroom.records.webhook_delivery import DeliveryAttempt, WebhookDelivery
from greenroom.runs.in_process import InProcessRunEngine
from greenroom.runs.postgres_store import PostgresRunStore
from greenroom.sessions.postgres import PostgresSessionService
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.functions.function_tool import FunctionTool, LongRunningFunctionTool
from tests.durability.engines import items_of


def _keys_of_shards(count: int) -> list[SessionKey]:
    """Sessions of different shards."""
    keys: dict[int, SessionKey] = {}
    for number in range(10_000):
        key = SessionKey("desk", "ann", f"s-{number}")
        keys.setdefault(shard_of(key), key)
    return list(keys.values())[:count]


KEYS = _keys_of_shards(140)
"""Of more shards than the share of a second server, so that it also gets some with runs."""


ASK_AND_WAIT = "ask and wait"
"""The message for two calls, one of which a client answers."""


class Ledger:
    """The effects of the tools of all engines, and the gate at which they wait."""

    def __init__(self) -> None:
        self.entered = Counter[str]()
        self.open = asyncio.Event()


def _reply(request: LlmRequest) -> list[FunctionCall] | FunctionCall | str:
    parts = request.contents[-1].parts or []
    if any(part.function_response for part in parts):
        return "done"
    if parts[0].text == ASK_AND_WAIT:
        return [FunctionCall(id="c-ask", name="ask", args={}), FunctionCall(id="c-wait", name="wait", args={})]
    return FunctionCall(id="c", name=parts[0].text or "", args={})


class Replica:
    """An engine that shares its database with others."""

    def __init__(self, uri: str, name: str, ledger: Ledger) -> None:
        async def wait() -> str:
            ledger.entered[name] += 1
            await ledger.open.wait()
            return name

        def ask() -> None:
            """Answered later, by a client."""

        self.is_closed = False
        uri = uri.replace("postgres@", f"postgres:{name}@")  # connections of its own, as of another process
        tools = [FunctionTool(wait, on_interrupt="retry"), LongRunningFunctionTool(ask)]
        agent = LlmAgent(name="agent", model=ScriptedModel(_reply), tools=tools)
        self.database = Database.open(uri)
        self.owner = self.database.companion(
            ShardOwner, lambda: ShardOwner(self.database, is_exclusive=False, patience_seconds=0)
        )
        self.sessions = PostgresSessionService(uri)
        self.engine = InProcessRunEngine(
            apps=StaticAppLoader([App(name="desk", root_agent=agent)]),
            run_store=PostgresRunStore(uri),
            session_service=self.sessions,
            auto_create_session=True,
            send_webhook=self._send_webhook,
        )
        self.engine.webhooks.retry_seconds = (60.0,)
        self.sent: list[WebhookDelivery] = []
        self.receiver_is_down = False

    async def _send_webhook(self, delivery: WebhookDelivery) -> DeliveryAttempt:
        self.sent.append(delivery)
        return DeliveryAttempt(at=0.0, seconds=0.0, error="down" if self.receiver_is_down else None)

    def owned(self) -> list[SessionKey]:
        return [key for key in KEYS if self.database.owned_shards.owns(key)]

    async def start(self, key: SessionKey, message: str | Part) -> Run:
        part = Part(text=message) if isinstance(message, str) else message
        request = AgentRunRequest(**key._asdict(), new_message=Content(role="user", parts=[part]))
        run, _ = await self.engine.start(request, attach=False)
        return run

    async def statuses(self) -> Counter[RunStatus]:
        listed = await self.engine.list_runs(RunFilter(), limit=None)
        return Counter(run.status for run in listed.runs)

    async def log(self, key: SessionKey) -> list[Event]:
        return (await self.sessions.list_events(**key._asdict())).events

    async def close(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        await self.engine.close(grace_seconds=0)
        await self.sessions.close()
        await self.database.close()


@pytest.fixture
async def ledger() -> Ledger:
    return Ledger()


@pytest.fixture
async def replicas(postgres_uri: str, ledger: Ledger) -> AsyncIterator[tuple[Replica, Replica]]:
    """Two; only the first one has started."""
    first, second = (Replica(postgres_uri, name, ledger) for name in ("first", "second"))
    assert await first.engine.recover() == 0
    assert first.owned() == KEYS
    yield first, second
    ledger.open.set()
    await first.close()
    await second.close()


async def _until(is_reached: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not is_reached():
            await asyncio.sleep(0.01)


async def _until_finished(replica: Replica, count: int) -> None:
    async with asyncio.timeout(10):
        while (await replica.statuses())[RunStatus.SUCCEEDED] < count:
            await asyncio.sleep(0.05)


async def _join(first: Replica, second: Replica) -> None:
    """The second engine starts, and gets the half of the shards."""
    await second.engine.recover()
    await _until(lambda: len(second.database.owned_shards.epochs or ()) == 128)
    assert sorted([*first.owned(), *second.owned()]) == sorted(KEYS)
    assert first.owned()
    assert second.owned()


async def test_runs_continue_with_the_engine_that_takes_their_sessions(
    replicas: tuple[Replica, Replica], ledger: Ledger
) -> None:
    first, second = replicas
    runs = {key: await first.start(key, "wait") for key in KEYS}
    await _until(lambda: ledger.entered["first"] == len(KEYS))
    await _join(first, second)
    moved = second.owned()
    await _until(lambda: ledger.entered["second"] == len(moved))
    assert second.engine.load()["desk"].running == len(moved)
    assert first.engine.load()["desk"].running == len(KEYS) - len(moved)

    ledger.open.set()
    await _until_finished(first, len(KEYS))
    for key, run in runs.items():
        events = await first.log(key)
        answers = [one.response for event in events for one in event.get_function_responses()]
        assert answers == [{"result": "second" if key in moved else "first"}]
        assert (await first.engine.get(run.id)).stalled == 0
        assert {event.invocation_id for event in events} == {run.id}
        assert len(events) == 4


async def test_answers_behind_active_runs_move_with_their_sessions(
    replicas: tuple[Replica, Replica], ledger: Ledger
) -> None:
    first, second = replicas
    runs = {key: await first.start(key, ASK_AND_WAIT) for key in KEYS}
    await _until(lambda: ledger.entered["first"] == len(KEYS))
    answer = Part(function_response=FunctionResponse(id="c-ask", name="ask", response={"answer": 42}))
    for key, run in runs.items():
        assert (await first.start(key, answer)).id == run.id
    await _join(first, second)

    ledger.open.set()
    await _until_finished(first, len(KEYS))
    for key in KEYS:
        responses = [one for event in await first.log(key) for one in event.get_function_responses()]
        assert [one.response for one in responses if one.name == "ask"] == [{"answer": 42}]


async def test_shards_without_runs_are_given_back_first(replicas: tuple[Replica, Replica], ledger: Ledger) -> None:
    first, second = replicas
    busy = KEYS[:120]
    for key in busy:
        await first.start(key, "wait")
    await _until(lambda: ledger.entered["first"] == len(busy))
    await _join(first, second)
    assert first.owned()[: len(busy)] == busy
    ledger.open.set()
    await _until_finished(first, len(busy))
    assert ledger.entered == {"first": len(busy)}


async def test_an_engine_that_drains_leaves_a_shard_when_its_last_run_has_ended(
    replicas: tuple[Replica, Replica], ledger: Ledger
) -> None:
    first, second = replicas
    await _join(first, second)
    busy, idle = first.owned()[:2]
    await first.start(busy, "wait")
    await _until(lambda: ledger.entered["first"] == 1)
    draining = asyncio.create_task(first.engine.drain())
    await _until(lambda: second.database.owned_shards.owns(idle))
    await _until(lambda: len(second.database.owned_shards.epochs or ()) == SHARDS - 1)
    with pytest.raises(OwnershipLost):
        await first.start(idle, "wait")
    await second.start(idle, "wait")
    await first.start(busy, "wait")  # queued after the run, and executed here
    assert not draining.done()

    ledger.open.set()
    async with asyncio.timeout(5):
        assert await draining
    await _until(lambda: second.database.owned_shards.owns(busy))
    await _until_finished(second, 3)
    assert ledger.entered == {"first": 2, "second": 1}


async def test_an_engine_without_others_keeps_its_sessions_while_it_drains(
    replicas: tuple[Replica, Replica], ledger: Ledger
) -> None:
    first, second = replicas
    ledger.open.set()
    assert not await first.engine.drain()
    await first.start(KEYS[0], "wait")
    await _until_finished(first, 1)
    await second.engine.recover()
    await _until(lambda: len(second.database.owned_shards.epochs or ()) == SHARDS)


async def test_the_runs_of_an_engine_that_ends_continue_with_the_other_one(
    replicas: tuple[Replica, Replica], ledger: Ledger
) -> None:
    first, second = replicas
    await _join(first, second)
    for replica in replicas:
        for key in replica.owned():
            await replica.start(key, "wait")
    await _until(lambda: ledger.entered.total() == len(KEYS))
    left = ledger.entered["first"]
    await first.close()
    await _until(lambda: ledger.entered["second"] == len(KEYS))
    ledger.open.set()
    await _until_finished(second, len(KEYS))
    assert ledger.entered == {"first": left, "second": len(KEYS)}
    runs = await second.engine.list_runs(RunFilter(), limit=None)
    assert {run.stalled for run in runs.runs} == {0}


async def test_an_answer_is_accepted_by_the_owner_only(replicas: tuple[Replica, Replica]) -> None:
    first, second = replicas
    for key in KEYS:
        await first.start(key, "ask")
    async with asyncio.timeout(10):
        while (await first.statuses())[RunStatus.WAITING] < len(KEYS):
            await asyncio.sleep(0.02)
    await _join(first, second)
    answer = Part(function_response=FunctionResponse(id="c", name="ask", response={"answer": "yes"}))
    for key in second.owned():
        with pytest.raises(OwnershipLost):
            await first.start(key, answer)
        await second.start(key, answer)
    await _until_finished(second, len(second.owned()))
    for key in second.owned():
        assert [event.author for event in await second.log(key)] == ["user", "agent", "user", "agent"]


async def test_a_request_waits_until_the_runs_of_its_session_are_resumed(
    replicas: tuple[Replica, Replica], ledger: Ledger
) -> None:
    first, second = replicas
    for key in KEYS:
        await first.start(key, "wait")
    await _until(lambda: ledger.entered["first"] == len(KEYS))
    await second.engine.recover()
    while not second.owned():
        await asyncio.sleep(0)
    key = second.owned()[0]  # its runs have yet to be resumed
    queued = await second.start(key, "wait")
    assert queued.status is RunStatus.QUEUED
    ledger.open.set()
    *_, last = await items_of(await second.engine.attach(queued.id))
    assert isinstance(last, RunEnded)
    assert last.run.status is RunStatus.SUCCEEDED
    authors = [event.invocation_id for event in await second.log(key)]
    assert authors.index(queued.id) == 4


async def test_messages_to_webhooks_are_sent_by_the_engine_that_takes_the_session(
    replicas: tuple[Replica, Replica], ledger: Ledger
) -> None:
    first, second = replicas
    first.receiver_is_down = True
    for key in KEYS:
        run = await first.start(key, "wait")
        states = [RunStatus.RUNNING, RunStatus.SUCCEEDED]
        await first.engine.add_webhook(run.id, Webhook(url="https://h/", id=key.session_id, states=states))
    await _until(lambda: len(first.sent) == len(KEYS))
    tried = {delivery.webhook_id: delivery.id for delivery in first.sent}
    await _join(first, second)
    moved = second.owned()
    first.receiver_is_down = False
    first.sent.clear()
    ledger.open.set()
    await _until_finished(first, len(KEYS))
    await _until(lambda: len(first.sent) + len(second.sent) >= 2 * len(KEYS))
    for replica, keys in ((first, first.owned()), (second, moved)):
        for key in keys:
            sent = [delivery for delivery in replica.sent if delivery.webhook_id == key.session_id]
            assert [delivery.type for delivery in sent] == ["run.running", "run.succeeded"]
            assert sent[0].id == tried[key.session_id]


async def test_push_notifications_are_sent_by_the_engine_that_takes_the_session(
    replicas: tuple[Replica, Replica], ledger: Ledger
) -> None:
    first, second = replicas
    sent: dict[str, list[str]] = {"first": [], "second": []}

    async def send_first(run: Run, webhook: PushConfig) -> None:
        sent["first"].append(f"{webhook.id} {run.status}")

    async def send_second(run: Run, webhook: PushConfig) -> None:
        sent["second"].append(f"{webhook.id} {run.status}")

    async with (
        first.engine.push_notifications.reporting(send_first),
        second.engine.push_notifications.reporting(send_second),
    ):
        for key in KEYS:
            run = await first.start(key, "wait")
            await first.engine.push_notifications.save(run, PushConfig(run_id=run.id, id=key.session_id, config={}))
        await _until(lambda: len(sent["first"]) == len(KEYS))
        await _join(first, second)
        moved = [key.session_id for key in second.owned()]
        ledger.open.set()
        await _until_finished(first, len(KEYS))
        await _until(lambda: len(sent["first"]) + len(sent["second"]) >= 2 * len(KEYS))
    ended = [line.split()[0] for line in sent["second"] if line.endswith("succeeded")]
    assert sorted(ended) == sorted(moved)
    ended = [line.split()[0] for line in sent["first"] if line.endswith("succeeded")]
    assert sorted(ended) == sorted(key.session_id for key in first.owned())
