"""Agents whose words and calls follow from the user's message, and whose tools note each call in a ledger.

A message is `KIND NUMBER AMOUNT`: `talk 17 40` is answered with 40 words. The number is unique among all messages of a
test, and so are the ids of calls, which begin with it.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from greenroom import (
    ApprovalPolicy,
    Context,
    FunctionTool,
    JoinNode,
    LlmAgent,
    LongRunningFunctionTool,
    ParallelAgent,
    SequentialAgent,
    ToolContext,
    Workflow,
    node,
    wait,
    wait_for,
)
from greenroom.records.content import Content, FunctionCall, Part
from greenroom.records.model_exchange import LlmRequest
from greenroom.testing import ScriptedLiveModel
from greenroom.testing.scripted_live_model import Heard, LiveItem, ScriptedConnection
from greenroom.testing.scripted_model import Said, ScriptedModel
from tests.durability.scripts import call, conversation, is_message

LEDGER = "CHAOS_LEDGER"
"""Name of the environment variable with the path of the ledger."""

CHUNK_SECONDS = 0.05
TOOL_SECONDS = 0.3

TELL_STEPS = 6
"""Replies to `tell`. A reply that is cut off begins again, so that one of half a minute would hardly end."""

COURSES: dict[str, list[list[str]]] = {
    "talk": [["words"]],
    "tell": [["more", "lookup"]] * (TELL_STEPS - 1) + [["words"]],
    "buy": [["I will buy it.", "charge"], ["words"]],
    "search": [["lookup", "lookup"], ["words"]],
    "shop": [["lookup"], ["Found it.", "charge", "lookup", "charge"], ["charge"], ["words"]],
    "pay": [["pay"], ["words"]],
    "inspect": [["inspect"], ["words"]],
    "export": [["export"], ["words"]],
    "draw": [["draw"], ["words"]],
    "remit": [["remit"], ["words"]],
    "sleep": [["wait"], ["words"]],
    "expire": [["wait_for with a timeout"], ["words"]],
    "listen": [["wait_for"], ["words"]],
}
"""Replies to each kind of message, step by step: texts, names of tools to call, and `words` or
`more` words."""

SLEEPS = ("wait", "wait_for")
SIGNAL = "go"
TWO_OF_THREE = ApprovalPolicy(users=["bob", "carol", "dave"], required=2)

LONG_RUNNING = "export"


def last_words(number: str, amount: int) -> str:
    """The final answer to a message."""
    return "".join(f"{number}-{position} " for position in range(amount))


def charge(order: str, tool_context: ToolContext) -> dict[str, str]:
    """Charges for an order. It runs in a thread, which nobody can stop."""
    _note("begin", "report", tool_context)
    time.sleep(TOOL_SECONDS)
    _note("end", "report", tool_context)
    return {"charged": order}


async def lookup(order: str, tool_context: ToolContext) -> dict[str, str]:
    """Looks an order up."""
    _note("begin", "retry", tool_context)
    await asyncio.sleep(TOOL_SECONDS)
    tool_context.state[f"seen-{tool_context.function_call_id}"] = order
    _note("end", "retry", tool_context)
    return {"found": order}


async def pay(order: str, tool_context: ToolContext) -> dict[str, str]:
    """Pays, after a person has approved it."""
    _note("begin", "report", tool_context)
    await asyncio.sleep(TOOL_SECONDS)
    _note("end", "report", tool_context)
    return {"paid": order}


async def inspect(order: str, tool_context: ToolContext) -> dict[str, str]:
    """Inspects, after a person has approved it."""
    _note("begin", "retry", tool_context)
    await asyncio.sleep(TOOL_SECONDS)
    _note("end", "retry", tool_context)
    return {"inspected": order}


async def remit(order: str, tool_context: ToolContext) -> dict[str, str]:
    """Remits, after two of three people have approved it."""
    _note("begin", "report", tool_context)
    await asyncio.sleep(TOOL_SECONDS)
    _note("end", "report", tool_context)
    return {"remitted": order}


def drawing(name: str) -> bytes:
    """The artifact of this name."""
    return f"{name} ".encode() * 5_000


async def draw(order: str, tool_context: ToolContext) -> dict[str, int]:
    """Draws, and saves the drawing as an artifact."""
    _note("begin", "retry", tool_context)
    await asyncio.sleep(TOOL_SECONDS)
    part = Part.from_bytes(data=drawing(order), mime_type="image/png")
    version = await tool_context.save_artifact(order, part)
    _note("end", "retry", tool_context)
    return {"version": version}


def export(order: str, tool_context: ToolContext) -> None:
    """Orders an export, which is sent later."""
    _note("begin", "report", tool_context)
    _note("end", "report", tool_context)


def _note(phase: str, policy: str, tool_context: ToolContext | Context, *, call_id: str | None = None) -> None:
    """Appends a line to the ledger. A line in the page cache outlives its process."""
    line = {
        "phase": phase,
        "policy": policy,
        "session": tool_context.session.id,
        "call": call_id or tool_context.function_call_id,
        "key": tool_context.idempotency_key,
        "process": os.getpid(),
        "time": time.time(),
    }
    ledger = os.open(os.environ[LEDGER], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(ledger, json.dumps(line).encode() + b"\n")
    finally:
        os.close(ledger)


def _model(agent: str) -> ScriptedModel:
    def answer(request: LlmRequest) -> Said:
        message, replies = conversation(request)
        kind, number, amount = message.split()
        course = COURSES[kind]
        said = course[min(replies, len(course) - 1)]
        parts = [
            _part(item, f"{number}-{agent}-{replies}-{position}", int(amount)) for position, item in enumerate(said)
        ]
        return last_words(number, int(amount)) if said == ["words"] else parts

    return ScriptedModel(answer, delay=CHUNK_SECONDS)


def _part(item: str, call_id: str, amount: int) -> Part | FunctionCall:
    """A sentence, more words, or a call of the tool that is named."""
    if item == "more":
        return Part(text=last_words(call_id, amount))
    if item == "wait":
        return FunctionCall(id=call_id, name="wait", args={"seconds": amount})
    if item == "wait_for":
        return FunctionCall(id=call_id, name="wait_for", args={"signal": SIGNAL})
    if item == "wait_for with a timeout":
        return FunctionCall(id=call_id, name="wait_for", args={"signal": SIGNAL, "timeout_seconds": amount})
    return Part(text=item) if " " in item else call(item, call_id, order=call_id)


def _agent(name: str) -> LlmAgent:
    tools = [
        FunctionTool(charge, on_interrupt="report"),
        FunctionTool(lookup, on_interrupt="retry"),
        FunctionTool(pay, require_confirmation=True),
        FunctionTool(inspect, require_confirmation=True, on_interrupt="retry"),
        FunctionTool(remit, require_confirmation=TWO_OF_THREE),
        LongRunningFunctionTool(export),
        FunctionTool(draw, on_interrupt="retry"),
        wait,
        wait_for,
    ]
    return LlmAgent(name=name, model=_model(name), tools=tools)


def _work(request: LlmRequest) -> Said:
    """Looks up as often as the message `go NUMBER AMOUNT` says, whatever it is told meanwhile."""
    replies = 0
    for content in reversed(request.contents):
        if is_message(content) and content.text().startswith("go "):
            _, number, amount = content.text().split()
            call_id = f"{number}-steered-{replies}-0"
            return last_words(number, 3) if replies == int(amount) else call("lookup", call_id, order=call_id)
        if content.role == "model":
            if content.text():
                break
            replies += 1
    return "heard"  # the turn of `go` is over: this is the turn of a message that came too late


steered = LlmAgent(name="steered", model=ScriptedModel(_work), tools=[FunctionTool(lookup, on_interrupt="retry")])

desk = _agent("desk")

team = SequentialAgent(
    name="team",
    sub_agents=[ParallelAgent(name="crew", sub_agents=[_agent("ann"), _agent("ben"), _agent("cleo")]), _agent("dora")],
)


def plan(node_input: str) -> str:
    return node_input


async def book(node_input: str, ctx: Context) -> str:
    """A node that must not run twice."""
    _note("begin", "report", ctx, call_id=f"{node_input.split()[1]}-book")
    await asyncio.sleep(TOOL_SECONDS)
    _note("end", "report", ctx, call_id=f"{node_input.split()[1]}-book")
    return node_input


def summary(node_input: dict[str, str]) -> str:
    return node_input["first"]


flow = Workflow(
    name="flow",
    edges=[
        (
            "START",
            node(plan, on_interrupt="retry"),
            node(book),
            (_agent("first"), _agent("second")),
            JoinNode(name="both"),
            node(summary, on_interrupt="retry"),
        )
    ],
)


def _live_turn(heard: Heard) -> LiveItem:
    """`work 17` is answered with a call, everything else with words."""
    text = heard.text() if isinstance(heard, Content) else ""
    if text.startswith("work "):
        call_id = f"{text.removeprefix('work ')}-phone"
        return call("lookup", call_id, order=call_id)
    if text:
        return f"You said {text}"
    parts = heard.parts if isinstance(heard, Content) else None
    done = [part.function_response.id for part in parts or () if part.function_response is not None]
    return f"Done with {done}"


class PhoneModel(ScriptedLiveModel):
    """A script for each connection: those of one model share what it has to say."""

    def __init__(self) -> None:
        super().__init__(_live_turn)

    @asynccontextmanager
    async def connect(self, llm_request: LlmRequest) -> AsyncGenerator[ScriptedConnection]:
        async with ScriptedLiveModel(_live_turn).connect(llm_request) as connection:
            yield connection


phone = LlmAgent(name="phone", model=PhoneModel(), tools=[FunctionTool(lookup, on_interrupt="retry")])
