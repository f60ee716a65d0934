"""Resumption of a workflow, for each record of its nodes (1.13)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from greenroom.agents.workflow.function_node import FunctionNode
from greenroom.agents.workflow.nodes import Node, node
from greenroom.agents.workflow.workflow import Workflow
from greenroom.apps.app import App, ResumabilityConfig
from greenroom.invocation.user_context import Context
from greenroom.records.content import ModelContent, UserContent
from greenroom.records.human_requests import RequestInput
from greenroom.runner.in_memory import InMemoryRunner
from tests.agents.workflow.walks import Walk, lines_of


def echo(node_input: Any) -> Any:
    return node_input


def ask(node_input: Any) -> RequestInput:
    return RequestInput(interrupt_id="q-1")


@pytest.mark.parametrize("is_dynamic", [False, True])
async def test_a_node_with_events_and_no_result_is_done_without_output(is_dynamic: bool) -> None:
    """1.13.7: of a graph, or run by another node."""
    ran: list[Any] = []

    def says(node_input: Any) -> Any:
        ran.append(node_input)
        return ModelContent("said")

    @node(rerun_on_resume=True)
    async def parent(ctx: Context) -> Any:
        return [await ctx.run_node(says, 1), await ctx.run_node(ask)]

    edges: Any = ("START", parent) if is_dynamic else ("START", says, ask, echo)
    walk = Walk(Workflow(name="wf", edges=[edges]))
    await walk.go("hi")
    events = await walk.answer("q-1", 5)
    assert lines_of(events) == (["parent@1 = [None, 5]"] if is_dynamic else ["echo@1 = 5"])
    assert len(ran) == 1


async def test_a_node_that_waits_for_output_runs_again_when_it_is_triggered() -> None:
    """1.13.7, 1.1.4."""

    class Both(Node):
        """Has an output when it was triggered twice."""

        wait_for_output: bool = True

        async def run_node_impl(self, *, ctx: Context, node_input: Any) -> AsyncIterator[Any]:
            seen = [*ctx.state.get("seen", []), node_input]
            ctx.state["seen"] = seen
            if len(seen) == 2:
                yield seen

    def one() -> str:
        return "one"

    walk = Walk(Workflow(name="wf", edges=[("START", (one, ask), Both(name="both"), echo)]))
    assert lines_of(await walk.go())[-1] == "both@1 [one@1] sets {'seen': ['one']}"
    assert lines_of(await walk.answer("q-1", "two"))[-1].endswith("= ['one', 'two']")


async def test_the_checkpoint_of_a_node_that_waits_names_its_requests() -> None:
    """1.14.7."""

    async def asks(node_input: Any) -> AsyncIterator[Any]:
        yield RequestInput(interrupt_id="q-1")

    walk = Walk(Workflow(name="wf", edges=[("START", asks, echo)]))
    await walk.go("hi")
    states = [event.actions.agent_state for event in await walk.log() if event.actions.agent_state is not None]
    assert states[-1] == {"nodes": {"asks": {"status": 4, "interrupts": ["q-1"]}}}
    assert {"nodes": {"asks": {"status": 2}}} in states


@pytest.mark.parametrize("is_resumable", [False, True])
async def test_a_resumable_app_yields_the_checkpoints_of_a_workflow_and_nothing_else(is_resumable: bool) -> None:
    """3.2."""

    def one() -> str:
        return "one"

    flow = Workflow(name="wf", edges=[("START", one, echo)])
    app = App(name="app", root_agent=flow, resumability_config=ResumabilityConfig(is_resumable=is_resumable))
    async with InMemoryRunner(app=app) as runner:
        session = await runner.session_service.create_session(app_name="app", user_id="ann")
        run = runner.run_async(user_id="ann", session_id=session.id, new_message=UserContent("go"))
        events = [event async for event in run]
    checkpoints = [event for event in events if event.is_checkpoint()]
    assert bool(checkpoints) == is_resumable
    assert [event.output for event in events if not event.is_checkpoint()] == ["one", "one"]


async def test_a_nested_workflow_is_entered_and_each_of_its_nodes_decided() -> None:
    """1.13.8."""
    ran: list[str] = []

    def first(node_input: Any) -> Any:
        ran.append("first")
        return node_input

    inner = Workflow(name="inner", edges=[("START", first, ask, FunctionNode(func=echo, name="inside"))])
    walk = Walk(Workflow(name="wf", edges=[("START", inner, echo)]))
    await walk.go("hi")
    assert lines_of(await walk.answer("q-1", 5)) == ["inner@1/inside@1 = 5", "echo@1 = 5"]
    assert ran == ["first"]


async def test_what_is_done_triggers_in_the_order_in_which_it_was_done() -> None:
    """1.13.9: the run that waits is that of the node that ended first, which is the second edge's."""
    is_done = asyncio.Event()

    async def slow() -> str:
        await is_done.wait()
        return "slow"

    def quick() -> str:
        return "quick"

    @node(rerun_on_resume=True)
    async def pairs(ctx: Context, node_input: str) -> Any:
        is_done.set()
        answer = ctx.resume_inputs.get(f"q-{node_input}")
        yield RequestInput(interrupt_id=f"q-{node_input}") if answer is None else [node_input, answer]

    walk = Walk(Workflow(name="wf", edges=[("START", (slow, quick), pairs)]))
    await walk.go()
    assert walk.error is None
    assert lines_of(await walk.answer("q-quick", 1))[0] == "pairs@1 [quick@1] = ['quick', 1]"
    assert lines_of(await walk.answer("q-slow", 2)) == ["pairs@2 [slow@1] = ['slow', 2]"]
