"""Random agent trees with scripts that read what comes next from the request, so that a tree says the same every time.

A plan is plain data, so that a failing one can be read and kept. `built` makes the agents of it, new ones each time.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Literal

from hypothesis import strategies as st

from greenroom.agents.agent import BaseAgent
from greenroom.agents.agent_tool import AgentTool
from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.workflows import LoopAgent, ParallelAgent, SequentialAgent
from greenroom.invocation.user_context import ToolContext
from greenroom.records.base import JsonObject
from greenroom.records.content import FunctionCall
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.testing.scripted_model import Said, ScriptedModel
from greenroom.tools.builtin.run_control import exit_loop
from greenroom.tools.functions.function_tool import FunctionTool, LongRunningFunctionTool

Turn = Literal[
    "says", "looks up", "charges", "does both", "escalates", "fails softly", "breaks", "mistakes", "hands over",
    "lends", "exports", "orders", "falls silent", "consults",
]  # fmt: skip

CHARGED = "charged"
"""Begins the state keys that the tool with on_interrupt="report" writes."""

HITS = "hits"
"""The state key that all agents write."""

WAITING_TOOLS = ("export", "order")
REPORTED_TOOL = "charge"


@dataclass(frozen=True)
class Speaker:
    """turns: said one by one, from the first again when all are said. "lends" is a hand-over that is to come back."""

    turns: tuple[Turn, ...]
    below: tuple[Plan, ...] = ()
    keeps_output: bool = False


@dataclass(frozen=True)
class Flow:
    kind: Literal["sequence", "parallel", "loop"]
    below: tuple[Plan, ...]
    rounds: int = 1


Plan = Speaker | Flow


def walk(plan: Plan) -> Iterator[Plan]:
    yield plan
    for child in plan.below:
        yield from walk(child)


def has_parallel(plan: Plan) -> bool:
    return any(isinstance(one, Flow) and one.kind == "parallel" for one in walk(plan))


def length(plan: Plan) -> int:
    """About how many turns are taken in a run."""
    below = sum(length(child) for child in plan.below)
    if isinstance(plan, Speaker):
        return len(plan.turns) + below
    return below * (plan.rounds if plan.kind == "loop" else 1)


def built(plan: Plan, seed: float) -> BaseAgent:
    """seed: of the pauses, which decide who of parallel branches is first."""
    return _agent(plan, count(1), random.Random(seed))


def _agent(plan: Plan, numbers: Iterator[int], chance: random.Random) -> BaseAgent:
    if isinstance(plan, Speaker):
        return _speaker(plan, numbers, chance)
    name = f"{plan.kind}{next(numbers)}"
    children = [_agent(child, numbers, chance) for child in plan.below]
    if plan.kind == "sequence":
        return SequentialAgent(name=name, sub_agents=children)
    if plan.kind == "loop":
        return LoopAgent(name=name, sub_agents=children, max_iterations=plan.rounds)
    return ParallelAgent(name=name, sub_agents=children, state_reducers={HITS: "sum"})


def _speaker(plan: Speaker, numbers: Iterator[int], chance: random.Random) -> LlmAgent:
    name = f"a{next(numbers)}"
    below = [_agent(child, numbers, chance) for child in plan.below]
    targets = [agent.name for agent in below]
    aside: tuple[Turn, ...] = tuple(turn for turn in plan.turns if turn not in ("consults", "hands over", "lends"))
    return LlmAgent(
        name=name,
        model=_model(name, plan.turns, targets, chance),
        sub_agents=below,
        tools=[*TOOLS, _aide(name, aside, chance)],
        output_key=f"said_{name}" if plan.keeps_output else None,
        disallow_transfer_to_parent=True,
        disallow_transfer_to_peers=True,
        on_tool_error_callback=_soften,
        max_steps=12,
    )


def _aide(name: str, turns: tuple[Turn, ...], chance: random.Random) -> AgentTool:
    """An agent that its caller can ask, and that takes the same turns."""
    aide = f"aide_of_{name}"
    model = _model(aide, turns, [], chance)
    return AgentTool(LlmAgent(name=aide, model=model, tools=TOOLS, on_tool_error_callback=_soften, max_steps=6))


def _model(name: str, turns: tuple[Turn, ...], targets: list[str], chance: random.Random) -> ScriptedModel:
    async def answer(request: LlmRequest) -> Said:
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)
        number = sum(content.role == "model" for content in request.contents)
        asked = request.contents[0].text() if name.startswith("aide") else ""
        return _said(turns[number % len(turns)], name, f"{number}.{_answers(request)}{asked}", targets)

    return ScriptedModel(answer)


def _answers(request: LlmRequest) -> int:
    """Counts the calls that waited and were answered; the model then gets the earlier request once more."""
    parts = [part for content in request.contents for part in content.parts or ()]
    return sum("done" in (part.function_response.response or {}) for part in parts if part.function_response)


def _said(turn: Turn, name: str, number: str, targets: list[str]) -> Said:
    def call(tool: str, letter: str = "c", **args: str) -> FunctionCall:
        return FunctionCall(id=f"{name}-{number}{letter}", name=tool, args={**args})

    match turn:
        case "looks up":
            return call("lookup", key=name)
        case "charges":
            return call("charge", key=name)
        case "does both":
            return [call("charge", "d", key=name), call("lookup", key=name)]
        case "escalates":
            return call("exit_loop")
        case "fails softly":
            return call("stumble", kind="soft")
        case "breaks":
            return call("stumble", kind="hard")
        case "mistakes":
            return call("no_such_tool")
        case "hands over" | "lends" if targets:
            target = targets[int(number[0]) % len(targets)]
            asks_for_return: JsonObject = {"return": True} if turn == "lends" else {}
            return FunctionCall(
                id=f"{name}-{number}c", name="transfer_to_agent", args={"agent_name": target, **asks_for_return}
            )
        case "exports":
            return call("export")
        case "orders":
            return call("order")
        case "consults" if not name.startswith("aide"):
            return [call(f"aide_of_{name}", "e", request=f"-{number}"), call("lookup", key=name)]
        case "falls silent":
            return LlmResponse(error_code="SAFETY", error_message="no")
        case _:
            return f"{name} says {number}."


def charge(tool_context: ToolContext, key: str) -> JsonObject:
    """Charges a card."""
    tool_context.state[f"{CHARGED}_{key}"] = tool_context.function_call_id
    return {"paid": key}


async def lookup(tool_context: ToolContext, key: str) -> JsonObject:
    """Looks something up."""
    await asyncio.sleep(0)
    tool_context.state[f"seen_{key}"] = tool_context.function_call_id
    tool_context.state[HITS] = len(key)
    return {"value": key}


def stumble(kind: str) -> JsonObject:
    """Fails."""
    raise RuntimeError(kind)


def export() -> None:
    """Starts an export that answers later."""


def order() -> JsonObject:
    """Starts an order that answers later."""
    return {"status": "under way"}


def _soften(error: Exception, **_: object) -> JsonObject | None:
    return {"error": "softened"} if str(error) == "soft" else None


TOOLS = [
    FunctionTool(charge),
    FunctionTool(lookup, on_interrupt="retry"),
    FunctionTool(stumble, on_interrupt="retry"),
    FunctionTool(exit_loop, on_interrupt="retry"),
    LongRunningFunctionTool(export, on_interrupt="retry"),
    LongRunningFunctionTool(order, on_interrupt="retry"),
]

_QUIET: list[Turn] = [
    "says", "says", "looks up", "looks up", "charges", "does both", "escalates", "fails softly", "mistakes",
    "hands over", "lends", "falls silent", "consults",
]  # fmt: skip


def plans(*more: Turn) -> st.SearchStrategy[Plan]:
    """Trees of which some agents take turns out of `more`. No run of one takes more than some hundred turns."""
    # A run that waits is reported as failed when a silent reply of a sibling comes last, which is a matter of luck: see
    # test_resume_workflows, where that is marked as known.
    may_wait = "exports" in more or "orders" in more
    quiet = [turn for turn in _QUIET if turn != "falls silent" or not may_wait]
    turn = st.one_of(st.sampled_from(quiet), st.sampled_from(more or quiet), st.sampled_from(quiet))
    turns = st.lists(turn, min_size=1, max_size=3).map(lambda some: (*some, "says"))

    def handing_over(children: st.SearchStrategy[Plan]) -> st.SearchStrategy[Plan]:
        leaving = st.lists(st.sampled_from(["lends", "hands over"]), min_size=1, max_size=2)
        some = st.builds(lambda first, left: (*first, *left, "says"), st.lists(turn, max_size=1), leaving)
        return st.builds(Speaker, some, st.lists(children, min_size=1, max_size=2).map(tuple))

    def flow(children: st.SearchStrategy[Plan]) -> st.SearchStrategy[Plan]:
        kind = st.sampled_from(["sequence", "parallel", "loop"])
        return st.builds(Flow, kind, st.lists(children, min_size=2, max_size=3).map(tuple), rounds=st.integers(1, 3))

    leaf = st.builds(Speaker, turns, keeps_output=st.booleans())
    low = flow(leaf)
    middle = flow(st.one_of(leaf, low, handing_over(leaf)))
    high = flow(st.one_of(leaf, low, middle, handing_over(low)))
    return st.one_of(low, middle, high, handing_over(middle)).filter(lambda plan: length(plan) <= 100)
