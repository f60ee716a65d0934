"""Waiting runs, replayed with changed code of their app: nothing is executed, and the first difference is found."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
from pydantic import BaseModel

from greenroom import AgentTool, FunctionTool, LongRunningFunctionTool
from greenroom.agents.agent import BaseAgent
from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.workflow.nodes import node
from greenroom.agents.workflow.workflow import Workflow
from greenroom.agents.workflows import LoopAgent, ParallelAgent, SequentialAgent
from greenroom.apps.app import App
from greenroom.invocation.context import InvocationContext
from greenroom.invocation.user_context import Context, ToolContext
from greenroom.models.model import BaseLlm
from greenroom.records.base import JsonObject
from greenroom.records.content import Content, FunctionCall, FunctionResponse, Part
from greenroom.records.event import Event, EventActions
from greenroom.records.human_requests import RequestInput, requests_in
from greenroom.records.run import RunStatus
from greenroom.records.session import Session
from greenroom.records.steering import steering_event_id
from greenroom.runner.version_replay import find_difference
from greenroom.tools.builtin.sleep import wait
from tests.durability.engines import Stores, asking, end_of, engine_over, finish, stores_in
from tests.durability.scripts import call, model_of

_Executed = list[str]


def desk(agent: BaseAgent) -> App:
    return App(name="desk", root_agent=agent)


def answer_to(log: Sequence[Event], response: JsonObject, *, newest: int = 0) -> Part:
    """A response to one of the requests of the newest event that asks."""
    asking_events = [event for event in log if requests_in(event)]
    request = requests_in(asking_events[-1])[newest]
    return Part(function_response=FunctionResponse(id=request.id, name=request.name, response=response))


class Clerk:
    """A clerk with tools that note their calls."""

    def __init__(self) -> None:
        self.executed: _Executed = []
        self.model = model_of(
            call("look", "c-1"),
            call("pay", "c-2", to="Roof", amount="7"),
            call("pay", "c-3", to="Ada", amount="9"),
            "ok",
        )

    def look(self) -> JsonObject:
        """Looks."""
        self.executed.append("look")
        return {"bills": 2}

    def pay(self, to: str, amount: str) -> JsonObject:
        """Pays."""
        self.executed.append("pay")
        return {"paid": amount}

    def agent(self, *tools: Any, model: str | BaseLlm | None = None, **fields: Any) -> LlmAgent:
        tools = tools or (self.look, FunctionTool(self.pay, require_confirmation=True))
        return LlmAgent(name="clerk", model=model or self.model, tools=list(tools), **fields)


async def wait_with(agent: BaseAgent, stores: Stores, *answers: JsonObject) -> Session:
    """Starts a run, answers its requests, and returns the session when the run waits again."""
    async with engine_over(stores, agent) as engine:
        run = await finish(engine, asking("go"))
        for response in answers:
            assert run.status is RunStatus.WAITING
            run = await finish(engine, asking(answer_to(await stores.log(), response)))
    assert run.status is RunStatus.WAITING
    return await stores.session()


def run_id_of(session: Session) -> str:
    return session.events[0].invocation_id


async def difference(agent: BaseAgent, session: Session) -> tuple[int, str] | None:
    found = await find_difference(desk(agent), session, run_id_of(session))
    return None if found is None else (found.seq, found.text)


async def test_an_equal_replay_executes_no_tool_and_asks_no_model() -> None:
    clerk = Clerk()
    async with stores_in(None) as stores:
        session = await wait_with(clerk.agent(), stores, {"confirmed": True})
        assert clerk.executed == ["look", "pay"]
        before = list(session.events)
        assert await difference(clerk.agent(model="gemini-2.5-flash"), session) is None
        assert clerk.executed == ["look", "pay"]
        assert session.events == before


async def test_changed_tools_are_found_at_the_call() -> None:
    clerk = Clerk()

    def transfer(to: str, amount: str) -> None:
        """Pays."""

    def pay(to: str, amount: str, iban: str) -> None:
        """Pays."""

    async with stores_in(None) as stores:
        session = await wait_with(clerk.agent(), stores)
        renamed = clerk.agent(clerk.look, FunctionTool(transfer, require_confirmation=True))
        changed = clerk.agent(clerk.look, FunctionTool(pay, require_confirmation=True))
        unasked = clerk.agent(clerk.look, clerk.pay)
        asked_earlier = clerk.agent(
            FunctionTool(clerk.look, require_confirmation=True), FunctionTool(clerk.pay, require_confirmation=True)
        )
        called = "agent 'clerk' calls pay(amount, to); now "
        assert await difference(renamed, session) == (4, called + "it has no tool of this name")
        assert await difference(changed, session) == (4, called + "pay requires 'iban'")
        assert await difference(unasked, session) == (4, called + "pay needs no approval")
        assert await difference(asked_earlier, session) == (
            2,
            "agent 'clerk' calls look(); now look needs an approval first",
        )


@pytest.mark.parametrize(
    ("changed", "expected"),
    [(lambda to, euros="": None, "pay takes no 'amount'"), (lambda to, amount: None, None)],
)
async def test_arguments_that_the_function_drops_are_a_difference(
    changed: Callable[..., None], expected: str | None
) -> None:
    clerk = Clerk()
    changed.__name__ = "pay"
    async with stores_in(None) as stores:
        session = await wait_with(clerk.agent(), stores)
        found = await difference(clerk.agent(clerk.look, FunctionTool(changed, require_confirmation=True)), session)
        assert (found is None) if expected is None else (found is not None and expected in found[1])


async def test_the_request_to_a_person_must_be_the_same() -> None:
    def close(account: str, tool_context: ToolContext) -> JsonObject:
        """Closes an account."""
        if tool_context.tool_confirmation is None:
            tool_context.request_confirmation(hint="Close it?")
        return {"status": "waits"}

    model = model_of(call("close", "c-1", account="A-1"), "closed")
    async with stores_in(None) as stores:
        session = await wait_with(LlmAgent(name="clerk", model=model, tools=[close]), stores)
        assert await difference(LlmAgent(name="clerk", model=model, tools=[close]), session) is None
        framework = LlmAgent(name="clerk", model=model, tools=[FunctionTool(close, require_confirmation=True)])
        found = await difference(framework, session)
        assert found is not None
        assert found[0] == 3
        assert found[1] == "agent 'clerk' asks a person to approve close(account); now with another hint"


async def test_a_second_wait_is_compared_after_the_first() -> None:
    clerk = Clerk()

    def pay(to: str, amount: str) -> None:
        """Pays."""

    async with stores_in(None) as stores:
        session = await wait_with(clerk.agent(), stores, {"confirmed": True})
        second = [index for index, event in enumerate(session.events, 1) if event.get_function_calls()][-2]
        only_ada = FunctionTool(pay, require_confirmation=lambda to: to == "Roof")
        assert await difference(clerk.agent(clerk.look, only_ada), session) == (
            second,
            "agent 'clerk' calls pay(amount, to); now pay needs no approval",
        )


async def test_other_agents_are_found_at_the_first_step() -> None:
    clerk = Clerk()
    async with stores_in(None) as stores:
        session = await wait_with(clerk.agent(), stores)
        renamed = LlmAgent(name="boss", model=clerk.model)
        first = SequentialAgent(name="both", sub_agents=[LlmAgent(name="first", model=clerk.model), clerk.agent()])
        assert await difference(renamed, session) == (2, "agent 'clerk' calls look(); now agent 'boss' asks its model")
        assert await difference(first, session) == (2, "agent 'clerk' calls look(); now agent 'first' asks its model")


async def test_an_instruction_that_fails_is_a_difference() -> None:
    def broken(_: Any) -> str:
        raise KeyError("customer")

    clerk = Clerk()
    async with stores_in(None) as stores:
        session = await wait_with(clerk.agent(), stores)
        found = await difference(clerk.agent(instruction=broken), session)
        assert found is not None
        assert found[0] == 2
        assert "KeyError" in found[1]


async def test_callbacks_of_models_and_tools_and_plugins_are_not_called() -> None:
    executed: _Executed = []

    def note(*_: Any, **__: Any) -> None:
        executed.append("callback")

    clerk = Clerk()
    async with stores_in(None) as stores:
        session = await wait_with(clerk.agent(), stores)
        watched = clerk.agent(
            before_model_callback=note,
            after_model_callback=note,
            before_tool_callback=note,
            after_tool_callback=note,
        )
        assert await difference(watched, session) is None
        assert executed == []


async def test_a_long_running_call_must_stay_open() -> None:
    def export() -> None:
        """Exports."""

    model = model_of(call("export", "c-1"), "done")
    async with stores_in(None) as stores:
        waiting = LlmAgent(name="clerk", model=model, tools=[LongRunningFunctionTool(export)])
        session = await wait_with(waiting, stores)
        assert await difference(waiting, session) is None
        found = await difference(LlmAgent(name="clerk", model=model, tools=[export]), session)
        assert found is not None
        assert "export" in found[1]


async def test_structured_answers_are_replayed() -> None:
    class Bill(BaseModel):
        amount: int

    def planner() -> LlmAgent:
        model = model_of(call("look", "p-1"), FunctionCall(id="p-2", name="set_model_response", args={"amount": 7}))
        return LlmAgent(name="planner", model=model, tools=[clerk.look], output_schema=Bill)

    def flow(*tools: Any) -> LoopAgent:
        return LoopAgent(name="flow", sub_agents=[planner(), clerk.agent(*tools)], max_iterations=2)

    clerk = Clerk()
    clerk.model = model_of("Planned.", call("pay", "c-2", to="Roof", amount="7"), "ok")
    async with stores_in(None) as stores:
        session = await wait_with(flow(), stores)
        assert sum(event.author == "planner" for event in session.events) == 8
        assert await difference(flow(), session) is None
        assert await difference(flow(clerk.pay), session) is not None


async def test_a_sleeping_run_is_equal() -> None:
    model = model_of(call("wait", "c-1", until="2999-01-01T00:00:00Z"), "done")
    sleeper = LlmAgent(name="clerk", model=model, tools=[wait])
    async with stores_in(None) as stores:
        session = await wait_with(sleeper, stores)
        assert await difference(sleeper, session) is None


async def test_code_that_sleeps_is_replayed() -> None:
    class Nag(BaseAgent):
        text: str = "I will."

        async def _run_async_impl(self, ctx: InvocationContext) -> AsyncIterator[Event]:
            yield Event(author=self.name, content=Content(role="model", parts=[Part(text=self.text)]))
            await ctx.sleep(3600)
            yield Event(author=self.name, content=Content(role="model", parts=[Part(text="Done.")]))

    class Hasty(Nag):
        async def _run_async_impl(self, ctx: InvocationContext) -> AsyncIterator[Event]:
            await ctx.sleep(3600)
            yield Event(author=self.name, content=Content(role="model", parts=[Part(text="Done.")]))

    async with stores_in(None) as stores:
        session = await wait_with(Nag(name="nag"), stores)
        assert await difference(Nag(name="nag", text="I shall."), session) is None
        assert await difference(Hasty(name="nag"), session) == (
            2,
            "agent 'nag' answers; now agent 'nag' calls wait(seconds), which is answered later",
        )


async def test_a_node_that_sleeps_is_answered_from_the_log() -> None:
    executed: _Executed = []

    async def remind(ctx: Context) -> str:
        executed.append("remind")
        await ctx.sleep(3600)
        return "reminded"

    flow = Workflow(name="flow", edges=[("START", node(remind, rerun_on_resume=True))])
    async with stores_in(None) as stores:
        session = await wait_with(flow, stores)
        assert await difference(flow, session) is None
        assert executed == ["remind"]


async def test_an_agent_that_waits_inside_a_tool_is_replayed_too() -> None:
    clerk = Clerk()

    def boss(inner: LlmAgent, *, include_plugins: bool = True) -> LlmAgent:
        tool = AgentTool(inner, include_plugins=include_plugins)
        return LlmAgent(name="boss", model=model_of(call("clerk", "a-1", request="pay"), "done"), tools=[tool])

    async with stores_in(None) as stores:
        session = await wait_with(boss(clerk.agent()), stores)
        assert await difference(boss(clerk.agent()), session) is None
        assert await difference(boss(clerk.agent(), include_plugins=False), session) is None
        found = await difference(boss(clerk.agent(clerk.look, clerk.pay)), session)
        assert found is not None
        assert "pay needs no approval" in found[1]
        assert clerk.executed == ["look"]


async def test_parallel_agents_are_compared_branch_by_branch() -> None:
    clerk = Clerk()

    def both(*tools: Any) -> ParallelAgent:
        other = LlmAgent(name="other", model=model_of(call("look", "o-1"), "fine"), tools=list(tools))
        return ParallelAgent(name="both", sub_agents=[clerk.agent(), other])

    async with stores_in(None) as stores:
        session = await wait_with(both(clerk.look), stores)
        assert await difference(both(clerk.look), session) is None
        found = await difference(both(), session)
        assert found is not None
        assert "agent 'other' calls look()" in found[1]


class Graph:
    """A workflow whose nodes note their execution."""

    def __init__(self) -> None:
        self.executed: _Executed = []

        def check() -> Event:
            self.executed.append("check")
            return Event(author="", output="large", actions=EventActions(route="large"))

        def ask() -> RequestInput:
            self.executed.append("ask")
            return RequestInput(interrupt_id="sure", message="Sure?")

        def book(node_input: Any) -> str:
            self.executed.append("book")
            return "booked"

        def log(node_input: Any) -> str:
            self.executed.append("log")
            return "logged"

        self.check = check
        self.ask = ask
        self.book = book
        self.log = log

    def workflow(self, *edges: Any) -> Workflow:
        default = [("START", self.check, {"large": self.ask, "small": self.book}), (self.ask, self.book)]
        return Workflow(name="booking", edges=list(edges) or default)


async def test_the_code_of_nodes_is_not_executed() -> None:
    graph = Graph()
    async with stores_in(None) as stores:
        session = await wait_with(graph.workflow(), stores)
        assert graph.executed == ["check", "ask"]
        assert await difference(graph.workflow(), session) is None
        assert graph.executed == ["check", "ask"]


async def test_a_changed_graph_is_found_at_the_first_other_node() -> None:
    graph = Graph()
    async with stores_in(None) as stores:
        session = await wait_with(graph.workflow(), stores)
        asked = next(index for index, event in enumerate(session.events, 1) if requests_in(event))

        with_log = graph.workflow(
            ("START", graph.check, {"large": graph.log, "small": graph.book}), (graph.log, graph.ask, graph.book)
        )
        assert await difference(with_log, session) == (
            asked,
            "node 'booking@1/ask@1' calls adk_request_input; now node 'booking@1/log@1' runs",
        )

        without_ask = graph.workflow(("START", graph.check, {"large": graph.book, "small": graph.book}))
        found = await difference(without_ask, session)
        assert found == (asked, "node 'booking@1/ask@1' calls adk_request_input; now node 'booking@1/book@1' runs")

        added_later = graph.workflow(
            ("START", graph.check, {"large": graph.ask, "small": graph.book}), (graph.ask, graph.log, graph.book)
        )
        assert await difference(added_later, session) is None
        assert graph.executed == ["check", "ask"]


async def test_a_node_that_needs_no_approval_any_more_is_a_difference() -> None:
    graph = Graph()

    def booking(**options: Any) -> Workflow:
        return graph.workflow(("START", node(graph.book, **options)))

    async with stores_in(None) as stores:
        session = await wait_with(booking(require_confirmation=True), stores)
        assert await difference(booking(require_confirmation=True), session) is None
        found = await difference(booking(), session)
        assert found is not None
        assert "needs no approval" in found[1]
        assert graph.executed == []


async def test_agents_in_a_workflow_are_replayed() -> None:
    clerk = Clerk()

    def flow(*tools: Any) -> Workflow:
        return Workflow(name="flow", edges=[("START", Graph().book, clerk.agent(*tools))])

    async with stores_in(None) as stores:
        session = await wait_with(flow(), stores)
        assert await difference(flow(), session) is None
        found = await difference(flow(clerk.look, clerk.pay), session)
        assert found is not None
        assert "pay needs no approval" in found[1]


async def test_runs_of_other_messages_between_are_left_alone() -> None:
    clerk = Clerk()
    async with stores_in(None) as stores:
        await wait_with(clerk.agent(), stores)
        async with engine_over(stores, LlmAgent(name="clerk", model=model_of("Hello."))) as engine:
            assert (await finish(engine, asking("hi"))).status is RunStatus.SUCCEEDED
        assert await difference(clerk.agent(), await stores.session()) is None


@pytest.mark.parametrize("fork", [False, True])
async def test_a_run_that_was_retried_is_compared_without_its_failure(fork: bool) -> None:
    clerk = Clerk()
    failures = [True]

    def look() -> JsonObject:
        """Looks."""
        if failures.pop():
            raise ConnectionError("down")
        return {"bills": 2}

    def agent(*more: Any) -> LlmAgent:
        tools = more or (FunctionTool(clerk.pay, require_confirmation=True),)
        return clerk.agent(FunctionTool(look, on_interrupt="retry"), *tools)

    async with stores_in(None) as stores:
        async with engine_over(stores, agent()) as engine:
            failed = await finish(engine, asking("go"))
            assert failed.status is RunStatus.FAILED
            failures.append(False)
            retried = await engine.retry(failed.id, fork=fork)
            assert (await end_of(engine, retried.id)).status is RunStatus.WAITING
            session = await stores.sessions.get_session(**retried.session_key._asdict())
            assert session is not None
        assert await find_difference(desk(agent()), session, retried.id) is None
        found = await find_difference(desk(agent(clerk.pay)), session, retried.id)
        assert found is not None
        assert "pay needs no approval" in found.text


async def test_a_message_that_was_read_within_the_turn_is_no_step() -> None:
    clerk = Clerk()
    async with stores_in(None) as stores:
        session = await wait_with(clerk.agent(), stores)
        steering = Event(
            id=steering_event_id("e-2"),
            invocation_id=run_id_of(session),
            author="user",
            content=Content(role="user", parts=[Part(text="Hurry.")]),
        )
        session.events.insert(3, steering)
        assert await difference(clerk.agent(), session) is None
        found = await difference(clerk.agent(clerk.look, clerk.pay), session)
        assert found is not None
        assert found[0] == 5


async def test_a_replay_has_a_time_limit() -> None:
    async def slow(_: Any) -> str:
        await asyncio.sleep(60)
        return "never"

    clerk = Clerk()
    async with stores_in(None) as stores:
        session = await wait_with(clerk.agent(), stores)
        app = desk(clerk.agent(instruction=slow))
        found = await find_difference(app, session, run_id_of(session), timeout_seconds=0.05)
        assert found is not None
        assert found.text == "the replay of the run took longer than 0.05 seconds"


async def test_an_unfinished_run_is_compared_as_far_as_its_log_goes() -> None:
    clerk = Clerk()
    async with stores_in(None) as stores:
        session = await wait_with(clerk.agent(), stores)
        del session.events[3:]  # a crash after the response of `look`
        assert await find_difference(desk(clerk.agent()), session, run_id_of(session), is_unfinished=True) is None
        assert await difference(clerk.agent(), session) is not None
        found = await find_difference(
            desk(LlmAgent(name="clerk", model=clerk.model)), session, run_id_of(session), is_unfinished=True
        )
        assert found is not None
        assert found.seq == 2
