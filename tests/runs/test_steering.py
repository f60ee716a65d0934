"""Messages that the active run of a session reads within its turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from greenroom.agents.agent import BaseAgent
from greenroom.agents.agent_tool import AgentTool
from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.workflow.workflow import Workflow
from greenroom.agents.workflows import ParallelAgent, SequentialAgent
from greenroom.apps.app import App
from greenroom.errors import IdempotencyConflict, StorageError
from greenroom.evaluation.replay import replay_session
from greenroom.event_streams.stream import LiveItem, RunEnded, StreamItem
from greenroom.invocation.context import InvocationContext
from greenroom.invocation.user_context import ToolContext
from greenroom.plugins.plugin import BasePlugin
from greenroom.records.content import Content, FunctionCall, FunctionResponse, Part
from greenroom.records.event import Event
from greenroom.records.model_exchange import LlmRequest
from greenroom.records.run import AgentRunRequest, Caller, Run, RunStatus
from greenroom.records.session import Session
from greenroom.runs.engine import Attachment
from greenroom.runs.in_process import InProcessRunEngine
from greenroom.runs.memory_store import InMemoryRunStore
from greenroom.sessions.in_memory import InMemorySessionService
from greenroom.sessions.service import StoredEvent
from greenroom.testing.scripted_model import Said, ScriptedModel
from greenroom.tools.functions.function_tool import FunctionTool, LongRunningFunctionTool
from tests.durability.engines import (
    WHERE,
    Gate,
    HeldStore,
    Stores,
    asking,
    end_of,
    engine_over,
    finish,
    items_of,
    start,
    stores_in,
)


class TwoGates(Gate):
    """Two tools, the second of which ends the turn."""

    async def last(self, tool_context: ToolContext) -> str:
        """Waits, and ends the turn."""
        tool_context.actions.skip_summarization = True
        return await self.wait()


def words_of(request: LlmRequest) -> list[str]:
    """Texts of a prompt, and the names of its calls and responses."""
    return [_text(content) for content in request.contents]


def waiting_model() -> ScriptedModel:
    """Calls the tool named in a message that begins with `call`, then says what it has been told since."""

    def answer(request: LlmRequest) -> Said:
        begin = next(
            i for i in range(len(request.contents) - 1, -1, -1) if _text(request.contents[i]).startswith("call ")
        )
        told = [_text(content) for content in request.contents[begin:]]
        if len(told) == 1:
            return FunctionCall(id=f"c-{len(request.contents)}", name=told[0].split()[1], args={})
        return "I know: " + ", ".join(told[3:])

    return ScriptedModel(answer)


def steer(message: str | Part, **more: Any) -> AgentRunRequest:
    return asking(message, multitask_strategy="steer", **more)


def _text(one: Event | Content | None) -> str:
    content = one.content if isinstance(one, Event) else one
    for part in (content.parts if content is not None else None) or ():
        if part.function_call is not None:
            return f"calls {part.function_call.name}"
        if part.function_response is not None:
            return f"gets {part.function_response.name}"
    return content.text() if content is not None else "-"


def numbered(items: Sequence[LiveItem]) -> list[str]:
    return [f"{item.seq} {_text(item.event)}" for item in items if isinstance(item, StreamItem)]


async def texts_of(stores: Stores) -> list[str]:
    return [_text(event) for event in await stores.log()]


async def wait_at(gate: Gate, engine: InProcessRunEngine, message: str = "call wait") -> tuple[Run, Attachment]:
    """Starts a run, and returns when it is in the tool."""
    run, attachment = await start(engine, asking(message))
    async with asyncio.timeout(5):
        await gate.entered.wait()
    return run, attachment


async def _wait_until_all_ended(stores: Stores) -> None:
    async with asyncio.timeout(5):
        while await stores.runs.list_unfinished():
            await asyncio.sleep(0.01)


@pytest.fixture
async def stores() -> AsyncGenerator[Stores]:
    async with stores_in(None) as made:
        yield made


async def test_the_running_run_reads_a_message_after_its_tools(stores: Stores) -> None:
    gate = Gate()
    model = waiting_model()
    async with engine_over(stores, LlmAgent(name="desk", model=model, tools=[gate.wait])) as engine:
        run, first = await wait_at(gate, engine)
        metadata = {"mine": 1, "greenroom:guardrails": [{"check": "forged"}]}
        request = steer("be brief", state_delta={"tone": "brief"}, custom_metadata=metadata)
        steering, second = await start(engine, request)
        assert (steering.status, steering.steered_into, steering.read_at_seq) == (RunStatus.QUEUED, run.id, None)
        assert await second.next_batch(idle_seconds=0.01) == []
        gate.open.set()
        items = await items_of(second)
        assert numbered(items) == ["4 be brief", "5 I know: be brief"]
        assert isinstance(items[-1], RunEnded)
        assert items[-1].run.id == run.id
        await items_of(first)

        read = await engine.get(steering.id)
        assert (read.status, read.steered_into, read.read_at_seq) == (RunStatus.SUCCEEDED, run.id, 4)
        log = await stores.log()
        assert [_text(event) for event in log] == [
            "call wait", "calls wait", "gets wait", "be brief", "I know: be brief",
        ]  # fmt: skip
        assert {event.invocation_id for event in log} == {run.id}
        assert log[3].custom_metadata == {"mine": 1}
        assert (await stores.session()).state["tone"] == "brief"
        await _wait_until_all_ended(stores)


async def test_a_late_reader_gets_what_followed_the_message(stores: Stores) -> None:
    gate = Gate()
    async with engine_over(stores, LlmAgent(name="desk", model=waiting_model(), tools=[gate.wait])) as engine:
        run, first = await wait_at(gate, engine)
        steering, second = await start(engine, steer("be brief"))
        waiting = asyncio.create_task(items_of(await engine.attach(steering.id)))
        gate.open.set()
        await items_of(first)
        second.close()
        expected = ["4 be brief", "5 I know: be brief"]
        assert numbered(await waiting) == expected
        assert numbered(await items_of(await engine.attach(steering.id))) == expected
        assert numbered(await items_of(await engine.attach(steering.id, with_user_events=False))) == expected
        late = await items_of(await engine.attach(steering.id, after=4))
        assert numbered(late) == expected[1:]
        assert isinstance(late[-1], RunEnded)
        assert late[-1].run.id == run.id


async def test_messages_are_read_in_order_past_queued_runs(stores: Stores) -> None:
    gate = Gate()
    async with engine_over(stores, LlmAgent(name="desk", model=waiting_model(), tools=[gate.wait])) as engine:
        _, first = await wait_at(gate, engine)
        readers = [first]
        for request in (steer("one"), asking("call nothing"), steer("two"), steer("three")):
            readers.append((await start(engine, request))[1])
        gate.open.set()
        for reader in readers:
            await items_of(reader)
        assert (await texts_of(stores))[:7] == [
            "call wait", "calls wait", "gets wait", "one", "two", "three", "I know: one, two, three",
        ]  # fmt: skip
        assert (await texts_of(stores))[7] == "call nothing"


async def test_a_turn_that_ends_first_takes_the_message_as_the_next_turn(stores: Stores) -> None:
    gate = TwoGates()
    async with engine_over(stores, LlmAgent(name="desk", model=waiting_model(), tools=[gate.last])) as engine:
        run, first = await wait_at(gate, engine, "call last")
        steering, second = await start(engine, steer("and then"))
        gate.open.set()
        items = await items_of(second)
        await items_of(first)
        assert isinstance(items[-1], RunEnded)
        assert items[-1].run.id == steering.id != run.id
        own = await engine.get(steering.id)
        assert (own.status, own.steered_into, own.read_at_seq) == (RunStatus.SUCCEEDED, None, None)
        log = await stores.log()
        assert [_text(event) for event in log[3:]] == ["and then", "I know: and then"]
        assert {event.invocation_id for event in log[3:]} == {steering.id}


async def test_an_idle_session_starts_a_run_of_its_own(stores: Stores) -> None:
    async with engine_over(stores, LlmAgent(name="desk", model=ScriptedModel(["hello"]))) as engine:
        run = await finish(engine, steer("hi"))
        assert (run.status, run.steered_into) == (RunStatus.SUCCEEDED, None)
        assert await texts_of(stores) == ["hi", "hello"]


async def test_a_run_that_waits_is_not_steered(stores: Stores) -> None:
    def export() -> None:
        """Answers later."""

    call = FunctionCall(id="c-1", name="export", args={})
    agent = LlmAgent(name="desk", model=ScriptedModel([call, "hello"]), tools=[LongRunningFunctionTool(export)])
    async with engine_over(stores, agent) as engine:
        assert (await finish(engine, asking("go"))).status is RunStatus.WAITING
        run = await finish(engine, steer("hi"))
        assert (run.status, run.steered_into) == (RunStatus.SUCCEEDED, None)
        assert await texts_of(stores) == ["go", "calls export", "hi", "hello"]


async def test_an_answer_to_a_call_is_queued(stores: Stores) -> None:
    def export() -> None:
        """Answers later."""

    gate = Gate()
    calls = [FunctionCall(id="c-1", name="export", args={}), FunctionCall(id="c-2", name="wait", args={})]
    agent = LlmAgent(
        name="desk",
        model=ScriptedModel([calls, "the gate is open", "exported"]),
        tools=[LongRunningFunctionTool(export), gate.wait],
    )
    async with engine_over(stores, agent) as engine:
        run, first = await wait_at(gate, engine, "go")
        response = FunctionResponse(id="c-1", name="export", response={"rows": 7})
        answering, second = await start(engine, steer(Part(function_response=response)))
        assert (answering.id, answering.steered_into) == (run.id, None)
        gate.open.set()
        await items_of(first)
        await items_of(second)


async def test_a_message_of_another_caller_starts_a_run_of_its_own(stores: Stores) -> None:
    gate = Gate()
    async with engine_over(stores, LlmAgent(name="desk", model=waiting_model(), tools=[gate.wait])) as engine:
        ann = Caller(user_id="ann", key_id="k-1", scopes=["run", "read"])
        run, first = await engine.start(asking("call wait"), caller=ann)
        await gate.entered.wait()
        of_other = await engine.start(steer("call wait"), caller=Caller(user_id="bob", scopes=["run", "read"]))
        with_less = await engine.start(steer("call wait"), caller=Caller(user_id="ann", scopes=["run"]))
        by_other_key = await engine.start(steer("be brief"), caller=Caller(user_id="ann", scopes=["read", "run"]))
        gate.open.set()
        for _, reader in ((run, first), of_other, with_less, by_other_key):
            assert reader is not None
            await items_of(reader)
        steered = [(await engine.get(one.id)).steered_into for one, _ in (of_other, with_less, by_other_key)]
        assert steered == [None, None, run.id]


async def test_a_message_for_the_active_run_by_its_id_is_read_by_it(stores: Stores) -> None:
    gate = Gate()
    async with engine_over(stores, LlmAgent(name="desk", model=waiting_model(), tools=[gate.wait])) as engine:
        run, first = await wait_at(gate, engine)
        steering, second = await start(engine, steer("be brief", invocation_id=run.id))
        assert steering.id != run.id
        gate.open.set()
        assert numbered(await items_of(second)) == ["4 be brief", "5 I know: be brief"]
        await items_of(first)


async def test_cancelling_an_unread_message_removes_it(stores: Stores) -> None:
    gate = Gate()
    async with engine_over(stores, LlmAgent(name="desk", model=waiting_model(), tools=[gate.wait])) as engine:
        _, first = await wait_at(gate, engine)
        steering, second = await start(engine, steer("never"))
        cancelled = await engine.cancel(steering.id, reason="a test")
        assert (cancelled.status, cancelled.steered_into) == (RunStatus.CANCELLED, None)
        items = await items_of(second)
        assert isinstance(items[-1], RunEnded)
        assert (items[-1].run.id, items[-1].run.status) == (steering.id, RunStatus.CANCELLED)
        gate.open.set()
        await items_of(first)
        assert await texts_of(stores) == ["call wait", "calls wait", "gets wait", "I know: "]


async def test_cancelling_a_read_message_does_nothing(stores: Stores) -> None:
    gate = Gate()
    async with engine_over(stores, LlmAgent(name="desk", model=waiting_model(), tools=[gate.wait])) as engine:
        _, first = await wait_at(gate, engine)
        steering, second = await start(engine, steer("be brief"))
        gate.open.set()
        await items_of(first)
        await items_of(second)
        assert (await engine.cancel(steering.id, reason="a test")).status is RunStatus.SUCCEEDED


async def test_an_interrupting_request_cancels_unread_messages(stores: Stores) -> None:
    gate = TwoGates()
    async with engine_over(
        stores, LlmAgent(name="desk", model=waiting_model(), tools=[gate.wait, gate.last])
    ) as engine:
        _, first = await wait_at(gate, engine)
        _, second = await start(engine, steer("never"))
        gate.open.set()
        await finish(engine, asking("call last", multitask_strategy="interrupt"))
        for reader in (first, second):
            ended = (await items_of(reader))[-1]
            assert isinstance(ended, RunEnded)
            assert ended.run.status is RunStatus.CANCELLED
        assert "never" not in await texts_of(stores)


async def test_a_cancelled_run_leaves_the_message_for_the_next_turn(stores: Stores) -> None:
    gate = TwoGates()
    async with engine_over(
        stores, LlmAgent(name="desk", model=waiting_model(), tools=[gate.wait, gate.last])
    ) as engine:
        run, first = await wait_at(gate, engine)
        steering, second = await start(engine, steer("call last"))
        gate.open.set()
        await engine.cancel(run.id, reason="a test")
        await items_of(first)
        ended = (await items_of(second))[-1]
        assert isinstance(ended, RunEnded)
        assert (ended.run.id, ended.run.status) == (steering.id, RunStatus.SUCCEEDED)


async def test_one_key_is_read_once(stores: Stores) -> None:
    gate = Gate()
    async with engine_over(stores, LlmAgent(name="desk", model=waiting_model(), tools=[gate.wait])) as engine:
        _, first = await wait_at(gate, engine)
        started = [await engine.start(steer("be brief"), idempotency_key="k") for _ in range(3)]
        assert len({run.id for run, _ in started}) == 1
        with pytest.raises(IdempotencyConflict):
            await engine.start(steer("be verbose"), idempotency_key="k")
        gate.open.set()
        await items_of(first)
        started.append(await engine.start(steer("be brief"), idempotency_key="k"))
        for _, reader in started:
            assert reader is not None
            assert numbered(await items_of(reader)) == ["4 be brief", "5 I know: be brief"]
        assert (await texts_of(stores)).count("be brief") == 1


class _SlowSessions(InMemorySessionService):
    """Stores a steering message when a test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = asyncio.Event()
        self.proceed = asyncio.Event()
        self.fails = False

    async def append(self, session: Session, *events: Event) -> list[StoredEvent]:
        if events[0].id.startswith("steering-"):
            self.entered.set()
            await self.proceed.wait()
            if self.fails:
                self.fails = False
                raise StorageError("Writing", "a test says so")
        return await super().append(session, *events)


@pytest.fixture
async def slow_stores() -> tuple[Stores, _SlowSessions]:
    sessions = _SlowSessions()
    await sessions.create_session(**WHERE)
    return Stores(sessions, InMemoryRunStore()), sessions


async def test_a_cancellation_while_the_message_is_stored_comes_too_late(
    slow_stores: tuple[Stores, _SlowSessions],
) -> None:
    stores, sessions = slow_stores
    gate = Gate()
    gate.open.set()
    async with engine_over(stores, LlmAgent(name="desk", model=waiting_model(), tools=[gate.wait])) as engine:
        _, first = await start(engine, asking("call wait"))
        steering, second = await start(engine, steer("be brief"))
        await sessions.entered.wait()
        cancelling = asyncio.create_task(engine.cancel(steering.id, reason="a test"))
        await asyncio.sleep(0)
        sessions.proceed.set()
        assert (await cancelling).status is RunStatus.SUCCEEDED
        await items_of(first)
        await items_of(second)
        assert (await texts_of(stores)).count("be brief") == 1


async def test_a_message_that_could_not_be_stored_becomes_the_next_turn(
    slow_stores: tuple[Stores, _SlowSessions],
) -> None:
    stores, sessions = slow_stores
    gate = Gate()
    gate.open.set()
    sessions.fails = True
    sessions.proceed.set()
    async with engine_over(stores, LlmAgent(name="desk", model=waiting_model(), tools=[gate.wait])) as engine:
        run, first = await start(engine, asking("call wait"))
        steering, second = await start(engine, steer("call wait"))
        await items_of(first)
        ended = (await items_of(second))[-1]
        assert isinstance(ended, RunEnded)
        assert (ended.run.id, ended.run.status) == (steering.id, RunStatus.SUCCEEDED)
        assert (await engine.get(run.id)).status is RunStatus.FAILED


# plugins and other agents


class _Plugin(BasePlugin):
    async def on_user_message_callback(
        self, *, invocation_context: InvocationContext, user_message: Content
    ) -> Content | None:
        text = user_message.text()
        if text == "refused":
            raise ValueError("not that")
        return Content(role="user", parts=[Part(text=text.replace("secret", "***"))])


async def test_plugins_see_the_message(stores: Stores) -> None:
    gate = Gate()
    agent = LlmAgent(name="desk", model=waiting_model(), tools=[gate.wait])
    async with engine_over(stores, agent, plugins=[_Plugin(name="mask")]) as engine:
        _, first = await wait_at(gate, engine)
        _, second = await start(engine, steer("my secret"))
        refused, third = await start(engine, steer("refused"))
        gate.open.set()
        await items_of(first)
        assert numbered(await items_of(second)) == ["4 my ***", "5 I know: my ***"]
        await items_of(third)
        own = await engine.get(refused.id)
        assert (own.status, own.steered_into) == (RunStatus.FAILED, None)


async def test_an_agent_as_a_tool_and_parallel_agents_leave_the_message_to_the_conversation(stores: Stores) -> None:
    gate = Gate()
    inner = waiting_model()
    branch = waiting_model()
    asker = LlmAgent(name="asker", description="Asks.", model=inner, tools=[gate.wait])
    one = LlmAgent(name="one", model=branch, tools=[gate.wait])
    outer = LlmAgent(
        name="outer",
        model=ScriptedModel([FunctionCall(id="c-1", name="asker", args={"request": "call wait"}), "done"]),
        tools=[AgentTool(asker)],
    )
    root = SequentialAgent(name="root", sub_agents=[ParallelAgent(name="both", sub_agents=[one]), outer])
    async with engine_over(stores, root) as engine:
        _, first = await wait_at(gate, engine)
        _, second = await start(engine, steer("early"))
        gate.entered.clear()
        gate.open.set()
        await items_of(first)
        await items_of(second)
        assert "early" not in "".join(map("".join, map(words_of, (*branch.requests, *inner.requests))))
        texts = [f"{event.author}: {_text(event)}" for event in await stores.log() if event.content is not None]
        assert texts[3:5] == ["one: I know: ", "user: early"]


async def test_an_agent_without_history_keeps_its_turn(stores: Stores) -> None:
    gate = Gate()
    model = waiting_model()
    agent = LlmAgent(name="desk", model=model, tools=[gate.wait], include_contents="none")
    async with engine_over(stores, agent) as engine:
        _, first = await wait_at(gate, engine)
        _, second = await start(engine, steer("be brief"))
        gate.open.set()
        await items_of(first)
        await items_of(second)
        assert words_of(model.requests[-1]) == ["call wait", "calls wait", "gets wait", "be brief"]


# after a crash


async def test_a_message_whose_record_was_left_queued_is_not_read_again(tmp_path: Path) -> None:
    gate = Gate()
    agent = LlmAgent(name="desk", model=waiting_model(), tools=[gate.wait])
    async with stores_in(tmp_path) as stores:
        held = HeldStore()
        async with engine_over(Stores(stores.sessions, held), agent) as engine:
            _, first = await wait_at(gate, engine)
            steering, second = await start(engine, steer("be brief"))
            gate.open.set()
            await held.saving()
            first.close()
            second.close()
        left = await held.list_unfinished()
        assert [run.id for run in left][-1] == steering.id
        for run in left:
            await stores.runs.save(run)
        async with engine_over(stores, agent) as engine:
            await engine.recover()
            assert (await engine.get(steering.id)).read_at_seq == 4
            assert numbered(await items_of(await engine.attach(steering.id)))[0] == "4 be brief"
            await end_of(engine, left[0].id)
        await _wait_until_all_ended(stores)
        assert await texts_of(stores) == ["call wait", "calls wait", "gets wait", "be brief", "I know: be brief"]


def _desk(gate: Gate, model: ScriptedModel) -> BaseAgent:
    return LlmAgent(name="desk", model=model, tools=[gate.wait])


def _second_of_sequence(gate: Gate, model: ScriptedModel) -> BaseAgent:
    draft = LlmAgent(name="draft", model=ScriptedModel(["a draft"]))
    return SequentialAgent(name="flow", sub_agents=[draft, LlmAgent(name="desk", model=model, tools=[gate.wait])])


def _node_of_graph(gate: Gate, model: ScriptedModel) -> BaseAgent:
    draft = LlmAgent(name="draft", model=ScriptedModel(["a draft"]))
    desk = LlmAgent(name="desk", model=model, tools=[gate.wait])
    return Workflow(name="flow", edges=[("START", draft), (draft, desk)])


def _transferred_to(gate: Gate, model: ScriptedModel) -> BaseAgent:
    desk = LlmAgent(
        name="desk", description="A desk.", model=model, tools=[gate.wait], disallow_transfer_to_parent=True
    )
    transfer = FunctionCall(id="c-0", name="transfer_to_agent", args={"agent_name": "desk"})
    return LlmAgent(name="root", model=ScriptedModel([transfer]), sub_agents=[desk])


@pytest.mark.parametrize(
    ("root_of", "before"),
    [
        (_desk, []),
        (_second_of_sequence, ["draft: a draft"]),
        (_node_of_graph, ["draft: a draft"]),
        (_transferred_to, ["root: calls transfer_to_agent", "root: gets transfer_to_agent"]),
    ],
)
async def test_a_run_cut_off_after_it_has_read_a_message_goes_on_with_it(
    root_of: Callable[[Gate, ScriptedModel], BaseAgent], before: list[str], tmp_path: Path
) -> None:
    called = asyncio.Event()
    gate = Gate()

    async def hang(request: LlmRequest) -> Said:
        if not gate.open.is_set():
            return FunctionCall(id="c-1", name="wait", args={})
        called.set()
        await asyncio.Event().wait()
        return "never"

    async with stores_in(tmp_path) as stores:
        async with engine_over(stores, root_of(gate, ScriptedModel(hang))) as engine:
            run, first = await wait_at(gate, engine, "go")
            _, second = await start(engine, steer("be brief"))
            gate.open.set()
            await called.wait()
            first.close()
            second.close()
        again = ScriptedModel(["brief"])
        async with engine_over(stores, root_of(gate, again)) as engine:
            await engine.recover()
            assert (await end_of(engine, run.id)).status is RunStatus.SUCCEEDED
        await _wait_until_all_ended(stores)
        log = [f"{event.author}: {_text(event)}" for event in await stores.log() if event.content is not None]
        assert log == ["user: go", *before, "desk: calls wait", "desk: gets wait", "user: be brief", "desk: brief"]
        assert words_of(again.requests[0])[-3:] == ["calls wait", "gets wait", "be brief"]


async def test_an_unread_message_is_read_after_a_crash(tmp_path: Path) -> None:
    gate = Gate()
    async with stores_in(tmp_path) as stores:
        agent = LlmAgent(name="desk", model=waiting_model(), tools=[FunctionTool(gate.wait, on_interrupt="retry")])
        async with engine_over(stores, agent) as engine:
            run, first = await wait_at(gate, engine)
            steering, second = await start(engine, steer("be brief"))
            first.close()
            second.close()
        gate.open.set()
        async with engine_over(stores, agent) as engine:
            await engine.recover()
            assert numbered(await items_of(await engine.attach(steering.id))) == ["4 be brief", "5 I know: be brief"]
            assert (await engine.get(steering.id)).steered_into == run.id


async def test_a_steered_session_can_be_replayed(stores: Stores) -> None:
    gate = Gate()
    async with engine_over(stores, LlmAgent(name="desk", model=waiting_model(), tools=[gate.wait])) as engine:
        _, first = await wait_at(gate, engine)
        _, second = await start(engine, steer("be brief"))
        gate.open.set()
        await items_of(first)
        await items_of(second)
        await finish(engine, asking("call wait"))
    session = await stores.session()
    silent = LlmAgent(name="desk", model=ScriptedModel([]), tools=[gate.wait])
    assert await replay_session(App(name="desk", root_agent=silent), session) == ""
