"""Nodes that run others, and workers that run side by side (1.9, 1.10)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from greenroom.agents.workflow.errors import DynamicNodeFailError
from greenroom.agents.workflow.nodes import node
from greenroom.agents.workflow.workflow import Workflow
from greenroom.invocation.user_context import Context
from greenroom.records.human_requests import RequestInput
from tests.agents.workflow.walks import Walk, lines_of


def double(node_input: int) -> int:
    return node_input * 2


def echo(node_input: Any) -> Any:
    return node_input


def bad(node_input: Any) -> None:
    raise KeyError("boom")


def ask(node_input: Any) -> RequestInput:
    return RequestInput(interrupt_id=f"q{node_input}")


def numbers() -> list[int]:
    return [1, 2, 3]


async def test_children_have_paths_of_their_own() -> None:
    """1.9.1, 1.9.3."""

    @node(rerun_on_resume=True)
    async def parent(ctx: Context) -> int:
        first = await ctx.run_node(double, 2)
        second = await ctx.run_node(double, 3)
        return first + second + await ctx.run_node(double, 4, run_id="named")

    assert lines_of(await Walk(Workflow(name="wf", edges=[("START", parent)])).go()) == [
        "parent@1/double@1 = 4",
        "parent@1/double@2 = 6",
        "parent@1/double@named = 8",
        "parent@1 = 18",
    ]


@pytest.mark.parametrize("run_id", [None, "12"])
async def test_wrong_uses_are_refused(run_id: str | None) -> None:
    """1.9.2, 1.9.3."""

    @node(rerun_on_resume=run_id is not None)
    async def parent(ctx: Context) -> Any:
        return await ctx.run_node(double, 2, run_id=run_id)

    walk = Walk(Workflow(name="wf", edges=[("START", parent)]))
    await walk.go()
    assert isinstance(walk.error, ValueError)


async def test_a_childs_failure_can_be_handled_or_is_the_parents() -> None:
    """1.9.5, 1.15.3."""

    @node(rerun_on_resume=True)
    async def handles(ctx: Context) -> Any:
        try:
            await ctx.run_node(bad)
        except DynamicNodeFailError as error:
            return [error.error_node_path, str(error.error)]

    assert lines_of(await Walk(Workflow(name="wf", edges=[("START", handles)])).go()) == [
        "handles@1/bad@1 ! KeyError",
        "handles@1 = ['wf@1/handles@1/bad@1', \"'boom'\"]",
    ]

    @node(rerun_on_resume=True)
    async def fails(ctx: Context) -> Any:
        await ctx.run_node(bad)

    walk = Walk(Workflow(name="wf", edges=[("START", fails)]))
    assert lines_of(await walk.go()) == ["fails@1/bad@1 ! KeyError"]
    assert isinstance(walk.error, KeyError)


async def test_a_childs_output_can_be_the_parents() -> None:
    """1.9.6."""

    @node(rerun_on_resume=True)
    async def parent(ctx: Context) -> None:
        await ctx.run_node(double, 2, use_as_output=True)

    events = await Walk(Workflow(name="wf", edges=[("START", parent, echo)])).go()
    assert events[0].model_dump(by_alias=True)["nodeInfo"]["outputFor"] == ["wf@1/parent@1/double@1", "wf@1/parent@1"]
    assert lines_of(events)[1] == "echo@1 = 4"


async def test_an_output_of_its_own_replaces_that_of_the_child() -> None:
    """As in ADK, and stored, so that a resumed run continues with it."""

    @node(rerun_on_resume=True)
    async def parent(ctx: Context) -> Any:
        await ctx.run_node(double, 2, use_as_output=True)
        return "another"

    @node(rerun_on_resume=True)
    async def early(ctx: Context) -> Any:
        yield "early"
        await ctx.run_node(double, 2, use_as_output=True)

    events = await Walk(Workflow(name="wf", edges=[("START", parent, early, echo)])).go()
    outputs = ["double@1 = 4", "parent@1 = 'another'", "early@1 = 'early'", "double@1 = 4", "echo@1 = 'early'"]
    assert [line.rpartition("/")[2] for line in lines_of(events)] == outputs


async def test_the_output_of_the_child_is_stored_once() -> None:
    @node(rerun_on_resume=True)
    async def parent(ctx: Context) -> Any:
        ctx.state["seen"] = True
        return await ctx.run_node(double, 2, use_as_output=True)

    events = await Walk(Workflow(name="wf", edges=[("START", parent, echo)])).go()
    assert [event.output for event in events] == [4, None, 4]
    assert events[1].actions.state_delta == {"seen": True}


async def test_a_parent_whose_child_waits_runs_again_and_takes_what_is_done_from_the_log() -> None:
    """1.9.4, 1.13.2."""
    doubled = 0

    def counted(node_input: int) -> int:
        nonlocal doubled
        doubled += 1
        return node_input * 2

    @node(rerun_on_resume=True)
    async def parent(ctx: Context) -> Any:
        return [await ctx.run_node(counted, 2), await ctx.run_node(ask, 3)]

    walk = Walk(Workflow(name="wf", edges=[("START", parent, echo)]))
    await walk.go()
    assert lines_of(await walk.answer("q3", 5)) == ["parent@1 = [4, 5]", "echo@1 = [4, 5]"]
    assert doubled == 1


async def test_children_can_run_side_by_side_while_one_waits() -> None:
    """1.9.4, 1.9.7."""

    @node(rerun_on_resume=True)
    async def parent(ctx: Context) -> Any:
        return await asyncio.gather(ctx.run_node(ask, 1), ctx.run_node(double, 2), ctx.run_node(double, 3))

    walk = Walk(Workflow(name="wf", edges=[("START", parent)]))
    assert len(await walk.go()) == 3
    assert lines_of(await walk.answer("q1", 9)) == ["parent@1 = [9, 4, 6]"]


async def test_a_worker_runs_once_per_item_in_branches_and_keeps_the_order() -> None:
    """1.10.1, 1.10.2."""

    async def slow(node_input: int) -> int:
        await asyncio.sleep(0.002 * (3 - node_input))
        return node_input * 2

    events = await Walk(Workflow(name="wf", edges=[("START", numbers, node(slow, parallel_worker=True))])).go()
    assert sorted(lines_of(events)[1:-1]) == [f"slow@1/slow@{n} [slow@{n}] = {2 * n}" for n in (1, 2, 3)]
    assert lines_of(events)[-1] == "slow@1 = [2, 4, 6]"


@pytest.mark.parametrize(("text", "output"), [("[4, 5]", [8, 10]), ("[]", []), ("7", [14])])
async def test_a_worker_takes_any_input_as_a_list(text: str, output: list[int]) -> None:
    """1.10.1."""
    events = await Walk(Workflow(name="wf", edges=[("START", node(double, parallel_worker=True))])).go(text)
    assert events[-1].output == output


async def test_no_more_workers_run_than_the_limit() -> None:
    """1.10.2."""
    running = peak = 0

    async def work(node_input: int) -> None:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        await asyncio.sleep(0.001)
        running -= 1

    worker = node(work, parallel_worker=True, max_parallel_workers=2)
    await Walk(Workflow(name="wf", edges=[("START", worker)])).go("[1, 2, 3, 4, 5]")
    assert peak == 2


async def test_a_failing_worker_ends_the_others() -> None:
    """1.10.3."""
    was_cancelled = False

    async def work(node_input: int) -> None:
        nonlocal was_cancelled
        if node_input == 2:
            raise ValueError("two")
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            was_cancelled = True
            raise

    walk = Walk(Workflow(name="wf", edges=[("START", numbers, node(work, parallel_worker=True))]))
    events = await walk.go()
    assert isinstance(walk.error, ValueError)
    assert was_cancelled
    assert lines_of(events)[-1] == "work@1/work@2 [work@2] ! ValueError"


async def test_only_unfinished_items_run_when_workers_were_answered() -> None:
    """1.10.3."""
    walk = Walk(Workflow(name="wf", edges=[("START", numbers, node(ask, parallel_worker=True), echo)]))
    assert [event.long_running_tool_ids for event in (await walk.go())[1:]] == [["q1"], ["q2"], ["q3"]]
    assert await walk.answer("q2", 6) == []
    assert await walk.answer("q1", 5) == []
    assert lines_of(await walk.answer("q3", 7)) == ["ask@1 = [5, 6, 7]", "echo@1 = [5, 6, 7]"]
