"""Random workflows whose nodes do the same each time. A plan is plain data, so that a failing one can be read and kept."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from itertools import count, pairwise
from pathlib import Path
from typing import Any, Literal

from hypothesis import strategies as st

from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.node import BaseNode, RetryConfig
from greenroom.agents.workflow.edges import DEFAULT_ROUTE, START, Edge
from greenroom.agents.workflow.errors import DynamicNodeFailError
from greenroom.agents.workflow.function_node import FunctionNode
from greenroom.agents.workflow.nodes import JoinNode, node
from greenroom.agents.workflow.workflow import Workflow
from greenroom.invocation.user_context import Context
from greenroom.records.content import FunctionCall, ModelContent
from greenroom.records.event import Event, EventActions
from greenroom.records.human_requests import RequestInput
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.functions.function_tool import FunctionTool
from greenroom.tools.tool import OnInterrupt

Kind = Literal[
    "plain", "silent", "state", "generator", "flaky", "agent", "tool", "dynamic", "delegates", "catches", "worker",
    "asks", "asks twice", "asks below", "breaks",
]  # fmt: skip


@dataclass(frozen=True)
class Step:
    kind: Kind


@dataclass(frozen=True)
class Block:
    """loop: twice through. choice: one of them, by the number of the node before. fork: all of them, without a join."""

    kind: Literal["sequence", "fan", "choice", "fork", "loop", "nested"]
    below: tuple[Plan, ...]


Plan = Step | Block


def walk(plan: Plan) -> Iterator[Plan]:
    yield plan
    for child in plan.below if isinstance(plan, Block) else ():
        yield from walk(child)


def kinds(plan: Plan) -> set[str]:
    return {one.kind for one in walk(plan)}


@dataclass
class _Part:
    """Edges of a part of a graph: its first nodes, and its last ones with the routes by which they are left."""

    entries: list[BaseNode]
    exits: list[tuple[BaseNode, str | None]]


class Builder:
    """The same seed builds the same workflow, in any process. diary: a file with a line for each body that ran."""

    def __init__(self, seed: int, *, reported: bool, diary: Path | None = None) -> None:
        self._numbers = count(1)
        self._chance = random.Random(seed)
        self._reported = reported
        self._diary = diary

    def workflow(self, plan: Plan, name: str = "wf") -> Workflow:
        edges: list[Edge] = []
        part = self._part(plan, edges)
        last = self._function(lambda node_input: "end", "last")
        edges += [Edge(from_node=START, to_node=entry) for entry in part.entries]
        edges += [Edge(from_node=source, to_node=last, route=route) for source, route in part.exits]
        return Workflow(name=name, edges=edges, max_concurrency=self._chance.choice([None, None, 1, 2]))

    def _name(self, kind: str) -> str:
        return f"{kind.replace(' ', '_')}{next(self._numbers)}"

    def _function(self, body: Callable[..., Any], kind: str, **options: Any) -> FunctionNode:
        on_interrupt: OnInterrupt = "report" if self._reported and self._chance.random() < 0.5 else "retry"
        return FunctionNode(func=body, name=self._name(kind), on_interrupt=on_interrupt, **options)

    def _part(self, plan: Plan, edges: list[Edge]) -> _Part:
        if isinstance(plan, Step):
            made = self._step(plan.kind)
            return _Part([made], [(made, None)])
        if plan.kind == "nested":
            inner = self.workflow(Block("sequence", plan.below), self._name("inner"))
            return _Part([inner], [(inner, None)])
        parts = [self._part(child, edges) for child in plan.below]
        if plan.kind == "sequence":
            for before, after in pairwise(parts):
                edges += [Edge(from_node=a, to_node=b, route=route) for a, route in before.exits for b in after.entries]
            return _Part(parts[0].entries, parts[-1].exits)
        if plan.kind == "fan":
            split, join = (
                self._function(self._slow(lambda node_input: "split"), "split"),
                JoinNode(name=self._name("join")),
            )
            for part in parts:
                # a part with a choice has several last nodes, of which one runs: what follows joins them
                gather = self._function(lambda node_input: node_input, "gather")
                edges += [Edge(from_node=split, to_node=entry) for entry in part.entries]
                edges += [Edge(from_node=source, to_node=gather, route=route) for source, route in part.exits]
                edges.append(Edge(from_node=gather, to_node=join))
            return _Part([split], [(join, None)])
        if plan.kind == "fork":
            split = self._function(self._slow(lambda node_input: "split"), "split")
            edges += [Edge(from_node=split, to_node=entry) for part in parts for entry in part.entries]
            return _Part([split], [leaving for part in parts for leaving in part.exits])
        if plan.kind == "choice":
            first = self._chance.randrange(3)

            def chosen(ctx: Context) -> Event:
                route = f"r{(first + int(ctx.run_id)) % 3}"
                return Event(output="chosen", actions=EventActions(route=route), author="")

            choose = self._function(chosen, "choose")
            for index, part in enumerate(parts):
                route = DEFAULT_ROUTE if part is parts[-1] else f"r{index}"
                edges += [Edge(from_node=choose, to_node=entry, route=route) for entry in part.entries]
            return _Part([choose], [leaving for part in parts for leaving in part.exits])
        return self._loop(parts, edges)

    def _loop(self, parts: list[_Part], edges: list[Edge]) -> _Part:
        for before, after in pairwise(parts):
            edges += [Edge(from_node=a, to_node=b, route=route) for a, route in before.exits for b in after.entries]

        def again(ctx: Context) -> Event:
            # Only two passes back: branches that meet without a join would multiply, and the loop never end.
            route = "again" if int(ctx.run_id) in (1, 3) else "on"
            return Event(author="", output=ctx.run_id, actions=EventActions(route=route))

        check = self._function(again, "again")
        edges += [Edge(from_node=source, to_node=check, route=route) for source, route in parts[-1].exits]
        edges += [Edge(from_node=check, to_node=entry, route="again") for entry in parts[0].entries]
        return _Part(parts[0].entries, [(check, "on")])

    def _slow(self, body: Callable[..., Any]) -> Callable[..., Any]:
        pauses = self._chance.randrange(4)

        async def slow(ctx: Context, node_input: Any) -> Any:
            if self._diary is not None:
                with self._diary.open("a") as diary:
                    diary.write(f"{ctx.node_path}\n")
            for _ in range(pauses):
                await asyncio.sleep(0)
            return body(node_input)

        return slow

    def _step(self, kind: Kind) -> Any:
        match kind:
            case "plain":
                return self._function(
                    self._slow(lambda node_input: {"got": node_input if isinstance(node_input, str) else 1}), kind
                )
            case "silent":
                return self._function(self._slow(lambda node_input: None), kind)
            case "state":

                def state(ctx: Context) -> None:
                    ctx.state[f"by_{ctx.node_path}"] = ctx.run_id

                return self._function(state, kind)
            case "generator":

                async def generator(ctx: Context) -> AsyncIterator[Any]:
                    yield ModelContent("working")
                    ctx.state[f"by_{ctx.node_path}"] = 1
                    await asyncio.sleep(0)
                    yield [1, 2]

                return self._function(generator, kind)
            case "flaky":

                def flaky(ctx: Context) -> str:
                    if ctx.attempt_count < 3:
                        raise ConnectionError(f"attempt {ctx.attempt_count}")
                    return "at last"

                return self._function(flaky, kind, retry_config=RetryConfig(max_attempts=3, initial_delay=0.0))
            case "breaks":

                def breaks() -> str:
                    raise KeyError("broken")

                return self._function(self._slow(lambda node_input: breaks()), kind)
            case "agent":
                name = self._name(kind)
                look = FunctionTool(lookup, on_interrupt="retry")

                def answer(request: Any) -> Any:
                    replies = sum(content.role == "model" for content in request.contents)
                    call = FunctionCall(id=f"{name}-{replies}", name="lookup", args={"key": "k"})
                    return call if replies == 0 else f"{name} says"

                return LlmAgent(name=name, model=ScriptedModel(answer), tools=[look])
            case "tool":
                return node(FunctionTool(_constant, name=self._name(kind), on_interrupt="retry"))
            case "worker":
                inner = self._function(self._slow(lambda node_input: node_input), kind)
                many = self._function(lambda node_input: [1, 2, 3], "many")
                worker = node(inner, parallel_worker=True, max_parallel_workers=self._chance.choice([None, 1, 2]))

                async def run_worker(ctx: Context) -> Any:
                    return await ctx.run_node(worker, await ctx.run_node(many))

                return self._function(run_worker, kind, rerun_on_resume=True)
            case "delegates":
                inner = self._step("generator")

                async def delegate(ctx: Context) -> None:
                    await ctx.run_node(inner, use_as_output=True)

                return self._function(delegate, kind, rerun_on_resume=True)
            case "dynamic" | "asks below" | "catches":
                return self._dynamic(kind)
            case "asks":

                def ask(ctx: Context) -> RequestInput:
                    return RequestInput(interrupt_id=f"q:{ctx.node_path}", response_schema={"type": "object"})

                return self._function(ask, kind)
            case "asks twice":

                async def ask_twice(ctx: Context) -> AsyncIterator[Any]:
                    asked = [f"{letter}:{ctx.node_path}" for letter in "ab"]
                    for one in asked:
                        if one not in ctx.resume_inputs:
                            yield RequestInput(interrupt_id=one)
                    if len(ctx.resume_inputs) == 2:
                        yield sorted(ctx.resume_inputs)

                return self._function(ask_twice, kind, rerun_on_resume=True)

    def _dynamic(self, kind: Kind) -> BaseNode:
        first = self._step("flaky" if kind == "catches" else "plain")
        second = self._step({"dynamic": "generator", "asks below": "asks", "catches": "breaks"}[kind])  # type: ignore

        async def parent(ctx: Context) -> Any:
            one = await ctx.run_node(first, "in")
            try:
                two = await ctx.run_node(second, "in")
            except DynamicNodeFailError as error:
                two = str(error.error)
            return [one, two]

        return self._function(parent, kind, rerun_on_resume=True)


async def lookup(key: str) -> str:
    """Looks something up."""
    await asyncio.sleep(0)
    return key


def _constant(value: int = 1) -> int:
    """Returns its argument."""
    return 7


_QUIET: list[Kind] = [
    "plain", "silent", "state", "generator", "flaky", "agent", "tool", "dynamic", "delegates", "catches", "worker",
]  # fmt: skip


def size(plan: Plan) -> int:
    if isinstance(plan, Step):
        return 1
    return sum(size(child) for child in plan.below) * (2 if plan.kind == "loop" else 1)


def graphs(*more: Kind) -> st.SearchStrategy[Plan]:
    """Graphs of which some nodes are of the kinds in `more`."""
    step = st.one_of(st.sampled_from(_QUIET), st.sampled_from(more or tuple(_QUIET))).map(Step)

    def block(children: st.SearchStrategy[Plan]) -> st.SearchStrategy[Plan]:
        shapes = st.sampled_from(["sequence", "fan", "choice", "fork", "loop", "nested"])
        two = st.lists(children, min_size=2, max_size=3).map(tuple)
        return st.builds(Block, shapes, two)

    low = block(step)
    middle = block(st.one_of(step, low))
    return st.one_of(low, middle, block(st.one_of(step, middle))).filter(lambda plan: size(plan) <= 40)
