"""Conversations with agents in modes `task` and `single_turn`, cut off at each stored event, end the same (1.8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from greenroom.agents.agent import BaseAgent
from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.workflow.nodes import node as run_again
from greenroom.agents.workflow.workflow import Workflow
from greenroom.agents.workflows import SequentialAgent
from greenroom.records import wire
from greenroom.records.event import Event
from greenroom.records.model_exchange import LlmRequest
from greenroom.records.run import Run, RunStatus
from greenroom.testing.scripted_model import ScriptedModel
from tests.agents.talk import call, shown
from tests.durability.engines import WHERE, Stores, asking, end_of, engine_over, finish, stores_in

MESSAGES = ("Book a table", "four", "at noon", "thanks")


def reply(request: LlmRequest) -> Any:
    """Depends on the request alone, so that a repeated one gets the same."""
    about = str(request.config.system_instruction)
    lines = shown(request)
    if '"booker"' in about:
        asked = sum(line in ("user: four", "user: at noon") for line in lines)
        if asked == 2 and "menu" not in str(lines):
            return call("menu", "m-1", request="for 4")
        return ["How many?", "When?", call("finish_task", "f-1", result="4 at noon")][asked]
    if about == "Show it.":
        return "soup"
    if "Book a table" in lines[-1]:
        return call("booker", "c-1", request="a table")
    return f"{len(lines)} lines"


def booker(model: ScriptedModel) -> LlmAgent:
    menu = LlmAgent(name="menu", model=model, mode="single_turn", instruction="Show it.")
    return LlmAgent(name="booker", model=model, mode="task", sub_agents=[menu], output_key="booked")


def delegate() -> BaseAgent:
    model = ScriptedModel(reply)
    return LlmAgent(name="desk", model=model, sub_agents=[booker(model)])


def root() -> BaseAgent:
    return booker(ScriptedModel(reply))


def node() -> BaseAgent:
    model = ScriptedModel(reply)

    def shout(node_input: dict[str, str]) -> str:
        return node_input["result"].upper()

    return Workflow(name="wf", edges=[("START", booker(model), run_again(shout, on_interrupt="retry"))])


def in_sequence() -> BaseAgent:
    model = ScriptedModel(reply)
    return SequentialAgent(name="seq", sub_agents=[booker(model), LlmAgent(name="after", model=model)])


def _plain(log: list[Event]) -> list[Any]:
    """Without what differs each time."""
    found: list[Any] = []
    for event in log:
        one = wire.to_plain(event)
        for name in ("id", "timestamp", "invocationId"):
            one.pop(name, None)
        found.append(one)
    return found


async def _talk(stores: Stores, engine: Any, messages: tuple[str, ...]) -> list[tuple[Run, int]]:
    """Each message's run, and where the log ended before it."""
    runs: list[tuple[Run, int]] = []
    for message in messages:
        begin = len(await stores.log())
        request = asking(message)
        run = await finish(engine, request)
        runs.append((msgspec.structs.replace(run, request=request), begin))
    return runs


@pytest.mark.parametrize("build", [delegate, root, node, in_sequence])
async def test_a_conversation_cut_off_at_any_event_ends_the_same(build: Callable[[], BaseAgent]) -> None:
    async with stores_in(None) as stores, engine_over(stores, build()) as engine:
        runs = await _talk(stores, engine, MESSAGES[:3])
        whole = await stores.log()
    assert [run.status for run, _ in runs] == [RunStatus.WAITING, RunStatus.WAITING, RunStatus.SUCCEEDED]
    assert len({run.id for run, _ in runs}) == 1
    for cut_at in range(1, len(whole)):
        at = max(number for number, (_, begin) in enumerate(runs) if begin < cut_at)
        async with stores_in(None) as stores:
            for event in whole[:cut_at]:
                await stores.sessions.append(await stores.session(), wire.decoder(Event)(wire.encode(event)))
            record = msgspec.structs.replace(
                runs[at][0], status=RunStatus.RUNNING, ended_at=None, error=None, usage=None, attempts=1
            )
            await stores.runs.save(record)
            async with engine_over(stores, build()) as engine:
                assert await engine.recover() == 1
                await end_of(engine, record.id)
                await _talk(stores, engine, MESSAGES[at + 1 : 3])
            assert _plain(await stores.log()) == _plain(whole), cut_at


async def test_a_message_after_the_end_of_a_task_begins_a_run() -> None:
    async with stores_in(None) as stores, engine_over(stores, delegate()) as engine:
        runs = await _talk(stores, engine, MESSAGES)
        assert len({run.id for run, _ in runs}) == 2
        assert runs[-1][0].status is RunStatus.SUCCEEDED
        assert WHERE["session_id"] == runs[-1][0].session_id


async def test_a_cancelled_task_does_not_take_the_next_message() -> None:
    async with stores_in(None) as stores, engine_over(stores, delegate()) as engine:
        [(run, _)] = await _talk(stores, engine, MESSAGES[:1])
        await engine.cancel(run.id, reason="enough")
        [(later, _)] = await _talk(stores, engine, ("four",))
        assert later.id != run.id
