"""`sleep` and `wait_for` in the code of workflow nodes and custom agents."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from greenroom.agents.agent import BaseAgent
from greenroom.agents.agent_tool import AgentTool
from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.workflow.nodes import JoinNode, node
from greenroom.agents.workflow.workflow import Workflow
from greenroom.agents.workflows import LoopAgent, SequentialAgent
from greenroom.invocation.context import InvocationContext
from greenroom.invocation.user_context import Context, ToolContext
from greenroom.records.content import Content, FunctionCall, FunctionResponse, Part
from greenroom.records.event import Event
from greenroom.records.human_requests import RequestInput
from greenroom.records.run import RunStatus
from greenroom.runs.signals import new_signal
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.functions.function_tool import FunctionTool
from tests.durability.engines import Stores, asking, end_of, engine_over, finish, stores_in
from tests.runs.test_wake_ups import until_over


def flow(*functions: Callable[..., Any], **options: Any) -> Workflow:
    nodes = [node(function, rerun_on_resume=True, **options) for function in functions]
    return Workflow(name="desk", edges=[("START", *nodes)])


async def outputs(stores: Stores) -> list[Any]:
    return [event.output for event in await stores.log() if event.output is not None]


async def texts(stores: Stores) -> list[str]:
    """The texts of agents."""
    said: list[str] = []
    for event in await stores.log():
        if event.content is not None and event.author != "user":
            said += [part.text for part in event.content.parts or () if part.text]
    return said


async def test_a_node_sleeps_twice_and_waits_for_a_signal(stores: Stores) -> None:
    begun: list[int] = []

    async def remind(ctx: Context) -> str:
        begun.append(len(begun))
        late = await ctx.sleep(seconds=0.05)
        await ctx.sleep(until=datetime.now(UTC) + timedelta(seconds=0.05))
        assert 0 <= late < 5
        assert not ctx.resume_inputs
        paid = await ctx.wait_for("paid", timeout=60)
        return f"paid {paid}"

    async with engine_over(stores, flow(remind)) as engine:
        await engine.recover()
        run = await finish(engine, asking("go"))
        assert run.status is RunStatus.WAITING
        async with asyncio.timeout(10):
            while len(begun) < 3 or (await engine.get(run.id)).status is not RunStatus.WAITING:
                await asyncio.sleep(0.01)
        [wake_up] = (await engine.get(run.id)).wake_ups.values()
        assert wake_up.signal == "paid"

        await engine.signal(run.id, new_signal("paid", 12))
        assert (await end_of(engine, run.id)).status is RunStatus.SUCCEEDED
    assert begun == [0, 1, 2, 3]
    assert await outputs(stores) == ["paid 12"]


async def test_a_generator_node_and_one_that_retries_sleep(stores: Stores) -> None:
    async def announce(ctx: Context) -> AsyncGenerator[Any]:
        await ctx.sleep(seconds=0.05)
        yield "announced"

    async with engine_over(stores, flow(announce, on_interrupt="retry")) as engine:
        await engine.recover()
        run = await finish(engine, asking("go"))
        assert run.status is RunStatus.WAITING
        await until_over(engine, run.id)
    assert await outputs(stores) == ["announced"]


async def test_a_signal_times_out_in_a_node(stores: Stores) -> None:
    async def collect(ctx: Context) -> str:
        try:
            await ctx.wait_for("paid", timeout=0.05)
        except TimeoutError as error:
            return str(error)
        return "paid"

    async with engine_over(stores, flow(collect)) as engine:
        await engine.recover()
        run = await finish(engine, asking("go"))
        await until_over(engine, run.id)
    assert await outputs(stores) == ["The signal 'paid' did not come in time"]


async def test_a_node_waits_for_several_signals_at_a_time(stores: Stores) -> None:
    async def gather(ctx: Context) -> Any:
        return list(await asyncio.gather(ctx.wait_for("a"), ctx.wait_for("b"), ctx.wait_for("c")))

    async with engine_over(stores, flow(gather)) as engine:
        run = await finish(engine, asking("go"))
        assert [wake_up.signal for wake_up in run.wake_ups.values()] == ["a", "b", "c"]
        for name in ("b", "a"):
            await engine.signal(run.id, new_signal(name, name.upper()))
            assert (await end_of(engine, run.id)).status is RunStatus.WAITING
        await engine.signal(run.id, new_signal("c", "C"))
        assert (await end_of(engine, run.id)).status is RunStatus.SUCCEEDED
    assert await outputs(stores) == [["A", "B", "C"]]


async def test_branches_sleep_beside_a_person(stores: Stores) -> None:
    async def sleep(ctx: Context) -> str:
        await ctx.sleep(seconds=0.05)
        return "slept"

    async def ask(ctx: Context) -> Any:
        if "q" not in ctx.resume_inputs:
            return RequestInput(interrupt_id="q", message="Well?")
        await ctx.sleep(seconds=0.05)
        return ctx.resume_inputs["q"]

    sleeping, asked = (node(function, rerun_on_resume=True) for function in (sleep, ask))
    agent = Workflow(name="desk", edges=[("START", (sleeping, asked), JoinNode(name="both"))])
    async with engine_over(stores, agent) as engine:
        await engine.recover()
        run = await finish(engine, asking("go"))
        async with asyncio.timeout(10):
            while "slept" not in await outputs(stores):
                await asyncio.sleep(0.01)
        await end_of(engine, run.id)
        answer = FunctionResponse(id="q", name="adk_request_input", response={"result": "yes"})
        await finish(engine, asking(Part(function_response=answer)))
        await until_over(engine, run.id)
    assert (await outputs(stores))[-1] == {"sleep": "slept", "ask": "yes"}


async def test_each_run_of_a_session_waits_for_itself(stores: Stores) -> None:
    async def collect(ctx: Context) -> Any:
        return await ctx.wait_for("paid")

    async with engine_over(stores, flow(collect)) as engine:
        runs = [await finish(engine, asking("go")) for _ in range(2)]
        for number, run in enumerate(runs):
            await engine.signal(run.id, new_signal("paid", number))
            assert (await end_of(engine, run.id)).status is RunStatus.SUCCEEDED
    assert await outputs(stores) == [0, 1]


@pytest.mark.parametrize(
    ("wait", "expected"),
    [
        (lambda ctx: ctx.sleep(), "give either seconds or until"),
        (lambda ctx: ctx.sleep(-1), "seconds must be a number from 0"),
        (lambda ctx: ctx.sleep(until="soon"), "until must be a time in ISO 8601"),
        (lambda ctx: ctx.sleep(1, max_late_seconds=-1), "max_late_seconds must be a number"),
        (lambda ctx: ctx.wait_for(""), "signal must be a text"),
    ],
)
async def test_invalid_waits_fail_the_node(wait: Callable[[Context], Awaitable[Any]], expected: str) -> None:
    async def work(ctx: Context) -> Any:
        return await wait(ctx)

    async with stores_in(None) as stores, engine_over(stores, flow(work)) as engine:
        run = await finish(engine, asking("go"))
    assert run.error is not None
    assert run.error.message.startswith(expected)


async def test_a_node_needs_rerun_on_resume() -> None:
    async def work(ctx: Context) -> None:
        await ctx.sleep(1)

    agent = Workflow(name="desk", edges=[("START", work)])
    async with stores_in(None) as stores, engine_over(stores, agent) as engine:
        run = await finish(engine, asking("go"))
    assert run.error is not None
    assert run.error.message == "Node 'work' needs rerun_on_resume=True to wait"


async def test_a_tool_of_a_model_can_not_sleep() -> None:
    async def nap(tool_context: ToolContext) -> None:
        await tool_context.sleep(1)

    model = ScriptedModel([[Part(function_call=FunctionCall(id="c-1", name="nap", args={}))], "done"])
    agent = LlmAgent(name="desk", model=model, tools=[FunctionTool(nap)])
    async with stores_in(None) as stores, engine_over(stores, agent) as engine:
        run = await finish(engine, asking("go"))
    assert run.error is not None
    assert run.error.message == "sleep() and wait_for() are for nodes of workflows; a model has tools of that name"


class Nag(BaseAgent):
    """Says something, sleeps, waits for a signal, and says its value."""

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event]:
        yield self.say(ctx, "I will")
        await ctx.sleep(seconds=0.05)
        yield self.say(ctx, "Pay!")
        try:
            paid = await ctx.wait_for("paid", timeout=0.2)
        except TimeoutError:
            paid = "nothing"
        yield self.say(ctx, f"Got {paid}")

    def say(self, ctx: InvocationContext, text: str) -> Event:
        return ctx.new_event(content=Content(role="model", parts=[Part(text=text)]))


async def test_an_agent_sleeps_and_says_everything_once(stores: Stores) -> None:
    async with engine_over(stores, Nag(name="desk")) as engine:
        await engine.recover()
        run = await finish(engine, asking("go"))
        assert run.status is RunStatus.WAITING
        await until_over(engine, run.id)
        again = await finish(engine, asking("go"))
        assert again.status is RunStatus.WAITING
        await engine.cancel(again.id, reason="test")
    assert await texts(stores) == ["I will", "Pay!", "Got nothing", "I will"]


async def test_an_agent_below_others_sleeps_each_time(stores: Stores) -> None:
    last = LlmAgent(name="last", model=ScriptedModel(["the end"]))
    twice = LoopAgent(name="twice", sub_agents=[Nag(name="nag")], max_iterations=2)
    async with engine_over(stores, SequentialAgent(name="desk", sub_agents=[twice, last])) as engine:
        await engine.recover()
        run = await finish(engine, asking("go"))
        await until_over(engine, run.id)
    assert await texts(stores) == [*["I will", "Pay!", "Got nothing"] * 2, "the end"]


class Boss(BaseAgent):
    """Runs its agents around a wait of its own."""

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event]:
        first, second = self.sub_agents
        async for event in first.run_async(ctx):
            yield event
        await ctx.sleep(0.05)
        async for event in second.run_async(ctx):
            yield event


async def test_an_agent_that_runs_others_sleeps_between_them(stores: Stores) -> None:
    agents = [LlmAgent(name=name, model=ScriptedModel([name])) for name in ("first", "second")]
    async with engine_over(stores, Boss(name="desk", sub_agents=agents)) as engine:
        await engine.recover()
        run = await finish(engine, asking("go"))
        await until_over(engine, run.id)
    assert await texts(stores) == ["first", "second"]


async def test_an_agent_sleeps_as_a_node(stores: Stores) -> None:
    def after(node_input: Any) -> str:
        return "after"

    agent = Workflow(name="desk", edges=[("START", Nag(name="nag"), after)])
    async with engine_over(stores, agent) as engine:
        await engine.recover()
        run = await finish(engine, asking("go"))
        assert run.status is RunStatus.WAITING
        await until_over(engine, run.id)
    assert await texts(stores) == ["I will", "Pay!", "Got nothing"]
    assert await outputs(stores) == ["after"]


async def test_an_agent_sleeps_as_a_tool(stores: Stores) -> None:
    call = FunctionCall(id="c-1", name="nag", args={"request": "nag"})
    model = ScriptedModel([[Part(function_call=call)], "done"])
    async with engine_over(stores, LlmAgent(name="desk", model=model, tools=[AgentTool(Nag(name="nag"))])) as engine:
        await engine.recover()
        run = await finish(engine, asking("go"))
        assert run.status is RunStatus.WAITING
        await until_over(engine, run.id)
    assert await texts(stores) == ["I will", "Pay!", "Got nothing", "done"]
