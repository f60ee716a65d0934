"""Events that an app's memory policy selects are added to memory when a run has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.app import App, MemoryPolicy
from greenroom.apps.loader import StaticAppLoader
from greenroom.errors import StorageError
from greenroom.memory.in_memory import InMemoryMemoryService
from greenroom.records.content import FunctionCall, UserContent
from greenroom.records.event import Event
from greenroom.records.run import AgentRunRequest, RunFilter, Webhook
from greenroom.records.session import SessionKey
from greenroom.runner.runner import Runner
from greenroom.runs.in_process import InProcessRunEngine
from greenroom.runs.memory_store import InMemoryRunStore
from greenroom.runs.memory_writer import MemoryWriter
from greenroom.sessions.in_memory import InMemorySessionService
from greenroom.testing.scripted_model import ScriptedModel
from tests.durability.engines import Gate, asking, ended, engine_over, finish, stores_in
from tests.durability.engines import start as begin

KEY = SessionKey("a", "ann", "s")
OWNER: dict[str, Any] = {"app_name": "a", "user_id": "ann"}


class FailingMemory(InMemoryMemoryService):
    """Fails so many times."""

    def __init__(self, failures: int) -> None:
        super().__init__()
        self.failures = failures
        self.may_add = asyncio.Event()
        self.may_add.set()
        self.asked = asyncio.Event()
        self.added = asyncio.Event()

    async def add_events_to_memory(
        self, *, app_name: str, user_id: str, session_id: str, events: Sequence[Event]
    ) -> None:
        self.asked.set()
        await self.may_add.wait()
        if self.failures:
            self.failures -= 1
            raise StorageError("Writing", "the disk is full")
        await super().add_events_to_memory(app_name=app_name, user_id=user_id, session_id=session_id, events=events)
        self.added.set()

    async def texts(self) -> list[str]:
        found = await self.search_memory(**OWNER, query="tea coffee")
        return sorted(entry.content.text() for entry in found.memories)


def app_with(policy: MemoryPolicy | None) -> App:
    return App(name="a", root_agent=LlmAgent(name="a", model=ScriptedModel(["green tea"])), memory_policy=policy)


async def engine_with(memory: InMemoryMemoryService, policy: MemoryPolicy | None) -> InProcessRunEngine:
    sessions = InMemorySessionService()
    await sessions.create_session(**KEY._asdict())
    return InProcessRunEngine(
        apps=StaticAppLoader([app_with(policy)]),
        run_store=InMemoryRunStore(),
        session_service=sessions,
        memory_service=memory,
    )


async def start(engine: InProcessRunEngine) -> None:
    await engine.start(AgentRunRequest(**KEY._asdict(), new_message=UserContent("tea or coffee?")), attach=False)


async def test_a_run_is_added_when_it_has_ended() -> None:
    memory = FailingMemory(0)
    engine = await engine_with(memory, MemoryPolicy())
    async with asyncio.timeout(5):
        await start(engine)
        await memory.added.wait()
    assert await memory.texts() == ["green tea", "tea or coffee?"]
    await engine.close()


async def test_the_policy_selects_events() -> None:
    memory = FailingMemory(0)
    engine = await engine_with(memory, MemoryPolicy(selects=lambda event: event.author == "user"))
    async with asyncio.timeout(5):
        await start(engine)
        await memory.added.wait()
    assert await memory.texts() == ["tea or coffee?"]
    await engine.close()


async def test_nothing_is_added_without_a_policy() -> None:
    memory = FailingMemory(0)
    engine = await engine_with(memory, None)
    await start(engine)
    await engine.close()
    assert await memory.texts() == []


async def test_a_run_of_a_deleted_session_is_not_added() -> None:
    memory = FailingMemory(0)
    memory.may_add.clear()
    engine = await engine_with(memory, MemoryPolicy())
    async with asyncio.timeout(5):
        await start(engine)
        await memory.asked.wait()
        async for _ in engine.delete_user(**OWNER):
            pass
    memory.may_add.set()
    await engine.close()
    assert await memory.texts() == []


@pytest.mark.parametrize(("failures", "texts"), [(2, ["green tea", "tea or coffee?"]), (3, [])])
async def test_failures_are_retried_a_few_times(failures: int, texts: list[str]) -> None:
    memory, sessions = FailingMemory(failures), InMemorySessionService()
    session = await sessions.create_session(**KEY._asdict())
    runner = Runner(app=app_with(MemoryPolicy()), session_service=sessions, memory_service=memory)
    engine = await engine_with(InMemoryMemoryService(), None)
    await sessions.append(session, Event(invocation_id="r", author="user", content=UserContent("tea or coffee?")))
    await sessions.append(session, Event(invocation_id="r", author="a", content=UserContent("green tea")))
    run, _ = await engine.start(AgentRunRequest(**KEY._asdict(), new_message=UserContent("x")), attach=False)
    run.id, run.after_seq = "r", 0
    writer = MemoryWriter(InMemoryRunStore(), retry_seconds=(0.0, 0.0))
    writer.add(run, runner)
    writer.add(run, runner)
    await writer.close(grace_seconds=5)
    assert await memory.texts() == texts
    await engine.close()


async def test_a_runner_without_a_server_adds_its_run_at_the_end() -> None:
    memory, sessions = FailingMemory(0), InMemorySessionService()
    await sessions.create_session(**KEY._asdict())
    async with Runner(app=app_with(MemoryPolicy()), session_service=sessions, memory_service=memory) as runner:
        _ = [e async for e in runner.run_async(user_id="ann", session_id="s", new_message=UserContent("coffee"))]
    assert await memory.texts() == ["coffee", "green tea"]


async def test_a_run_that_continues_while_it_is_added_is_added_again_and_stays_unfinished(tmp_path: Path) -> None:
    memory = FailingMemory(0)
    memory.may_add.clear()
    gate = Gate()
    replies = ["green tea", FunctionCall(id="c-1", name="wait", args={}), "black coffee"]
    agent = LlmAgent(name="desk", model=ScriptedModel(replies), tools=[gate.wait])
    app = App(name="desk", root_agent=agent, memory_policy=MemoryPolicy())
    async with stores_in(tmp_path) as stores, engine_over(stores, app, memory_service=memory) as engine:
        run = await finish(engine, asking("tea or coffee?"))
        async with asyncio.timeout(5):
            await memory.asked.wait()
        _, reader = await begin(engine, asking("really?", invocation_id=run.id))
        await gate.entered.wait()
        await engine.add_webhook(run.id, Webhook(url="https://example.com/"))
        assert [left.id for left in await stores.runs.list_unfinished()] == [run.id]

        gate.open.set()
        assert (await ended(reader)).id == run.id
        await stores.runs.list_runs(RunFilter())  # waits for the record of the end
        memory.may_add.set()
        async with asyncio.timeout(5):
            while await stores.runs.list_to_remember():
                await asyncio.sleep(0.01)
        found = await memory.search_memory(app_name="desk", user_id="ann", query="tea coffee")
        assert "black coffee" in [entry.content.text() for entry in found.memories]
