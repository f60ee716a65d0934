"""Resumption of workflows in cases that the random trees do not cover."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from greenroom.agents.agent import BaseAgent
from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.workflows import ParallelAgent, SequentialAgent
from greenroom.errors import ModelError
from greenroom.invocation.user_context import CallbackContext
from greenroom.log.calls import INTERRUPTED
from greenroom.records import wire
from greenroom.records.base import JsonObject
from greenroom.records.content import Content, FunctionResponse, Part
from greenroom.records.event import Event
from greenroom.records.model_exchange import LlmResponse
from greenroom.records.run import AgentRunRequest, Run, RunStatus
from greenroom.tools.functions.function_tool import LongRunningFunctionTool
from greenroom.tools.tool import OnInterrupt
from tests.durability.engines import Stores, asking, end_of, engine_over, finish, start, stores_in, wait_for
from tests.durability.scripts import call, model_of


def _speaker(name: str, *turns: object, **options: object) -> LlmAgent:
    return LlmAgent(name=name, model=model_of(*turns), **options)  # pyright: ignore


def _exporter(begun: list[str], on_interrupt: OnInterrupt) -> LlmAgent:
    def export() -> None:
        """Starts an export that answers later."""
        begun.append("export")

    tool = LongRunningFunctionTool(export, on_interrupt=on_interrupt)
    return _speaker("a", call("export", "x-1"), "I don't know.", tools=[tool])


async def _carried_out(agent: BaseAgent, *requests: AgentRunRequest) -> tuple[list[Event], Run]:
    """The log, and the record of the last run at its end."""
    async with stores_in(None) as stores, engine_over(stores, agent) as engine:
        for request in requests[:-1]:
            await finish(engine, request)
        run = await finish(engine, requests[-1])
        return await stores.log(), msgspec.structs.replace(run, request=requests[-1])


async def _taken_up(agent: BaseAgent, log: list[Event], run: Run) -> tuple[list[Event], Run]:
    """Resumes a run that was cut off behind these events, and returns its end."""
    async with stores_in(None) as stores:
        await _store(stores, log, run)
        async with engine_over(stores, agent) as engine:
            assert await engine.recover() == 1
            ended = await end_of(engine, run.id)
            return await stores.log(), ended


async def _store(stores: Stores, log: list[Event], run: Run) -> None:
    session = await stores.session()
    for event in log:
        await stores.sessions.append(session, wire.decoder(Event)(wire.encode(event)))
    await stores.runs.save(
        msgspec.structs.replace(run, status=RunStatus.RUNNING, ended_at=None, error=None, usage=None, attempts=1)
    )


def _comparable(log: list[Event]) -> list[JsonObject]:
    plain: list[JsonObject] = [wire.to_plain(event) for event in log]
    return [{name: value for name, value in one.items() if name not in ("id", "timestamp")} for one in plain]


async def _same_wherever_it_is_cut(agent: Callable[[], BaseAgent], *requests: AgentRunRequest) -> None:
    whole, run = await _carried_out(agent(), *requests)
    for cut in range(run.message_after_seq or 0, len(whole) + 1):
        log, ended = await _taken_up(agent(), whole[:cut], run)
        assert _comparable(log) == _comparable(whole), f"cut off after {cut} events"
        assert ended.status == run.status, f"cut off after {cut} events"


async def test_a_long_running_call_that_was_given_up_does_not_halt_the_sequence() -> None:
    def flow() -> SequentialAgent:
        return SequentialAgent(name="flow", sub_agents=[_exporter([], "report"), _speaker("b", "two")])

    whole, run = await _carried_out(flow(), asking("go"))
    assert run.status is RunStatus.WAITING
    log, ended = await _taken_up(flow(), whole, run)
    assert ended.status is RunStatus.SUCCEEDED
    assert [response.response for event in log for response in event.get_function_responses()] == [INTERRUPTED]
    assert [event.content.text() for event in log if event.content][-2:] == ["I don't know.", "two"]
    assert log[-1].actions.end_of_agent


@pytest.mark.parametrize("on_interrupt", ["retry", "report"])
async def test_a_call_whose_start_is_unknown_is_not_taken_for_waiting_because_a_sibling_went_on(
    on_interrupt: OnInterrupt,
) -> None:
    """The log ends with the sibling's event: the call may not have been begun."""
    begun: list[str] = []

    def team() -> ParallelAgent:
        return ParallelAgent(name="team", sub_agents=[_exporter(begun, on_interrupt), _speaker("b", "two")])

    whole, run = await _carried_out(team(), asking("go"))
    halted_at = next(i for i, event in enumerate(whole) if event.branch == "team.a" and event.content is None)
    cut = [event for event in whole[:halted_at] if event.branch != "team.b"]
    cut += [event for event in whole if event.branch == "team.b"]
    begun.clear()
    log, ended = await _taken_up(team(), cut, run)
    responses = [response.response for event in log for response in event.get_function_responses()]
    if on_interrupt == "retry":
        assert (begun, responses, ended.status) == (["export"], [], RunStatus.WAITING)
    else:
        assert (begun, responses, ended.status) == ([], [INTERRUPTED], RunStatus.SUCCEEDED)


async def test_a_branch_that_waits_keeps_waiting_when_the_run_is_cut_off_in_another_one() -> None:
    begun: list[str] = []
    begins_late = asyncio.Event()

    async def late(message: str) -> str:
        await begins_late.wait()
        return "two"

    def team() -> ParallelAgent:
        return ParallelAgent(
            name="team", sub_agents=[_exporter(begun, "report"), _speaker("b", late), _speaker("c", "three")]
        )

    async with stores_in(None) as stores:
        async with engine_over(stores, team()) as engine:
            _, reader = await start(engine, asking("go"))
            await wait_for(reader, lambda event: event.branch == "team.a" and event.content is None)
            reader.close()
        begins_late.set()
        async with engine_over(stores, team()) as engine:
            (run,) = await stores.runs.list_unfinished()
            await engine.recover()
            assert (await end_of(engine, run.id)).status is RunStatus.WAITING
            assert begun == ["export"]
            response = FunctionResponse(id="x-1", name="export", response={"rows": 7})
            assert (await finish(engine, asking(Part(function_response=response)))).status is RunStatus.SUCCEEDED
            log = await stores.log()
            texts = sorted(event.content.text() for event in log if event.content)
            assert texts == ["", "", "I don't know.", "go", "three", "two"]
            assert log[-1].actions.end_of_agent


@pytest.mark.parametrize("kind", [SequentialAgent, ParallelAgent])
async def test_a_failed_run_whose_record_was_not_written_is_not_run_again(
    kind: type[SequentialAgent] | type[ParallelAgent],
) -> None:
    def flow() -> BaseAgent:
        return kind(name="flow", sub_agents=[_speaker("a", ModelError("overloaded", model="scripted"))])

    def handed_over() -> BaseAgent:
        return _speaker("root", call("transfer_to_agent", "t-1", agent_name="flow"), sub_agents=[flow()])

    await _same_wherever_it_is_cut(flow, asking("go"))
    await _same_wherever_it_is_cut(handed_over, asking("go"))


async def test_a_second_message_in_the_same_run_is_answered_after_a_crash_too() -> None:
    def flow() -> BaseAgent:
        return SequentialAgent(name="flow", sub_agents=[_speaker("a", "a: {}".format), _speaker("b", "b: {}".format)])

    async with stores_in(None) as stores, engine_over(stores, flow()) as engine:
        first = await finish(engine, asking("one"))
        request = asking("two", invocation_id=first.id)
        second = await finish(engine, request)
        assert second.id == first.id
        whole, run = await stores.log(), msgspec.structs.replace(second, request=request)
    for cut in range(len(whole) // 2, len(whole) + 1):
        log, _ = await _taken_up(flow(), whole[:cut], run)
        assert _comparable(log) == _comparable(whole), f"cut off after {cut} events"


async def test_a_callback_that_answered_in_place_of_a_workflow_is_not_overruled_after_a_crash() -> None:
    def skip(callback_context: CallbackContext) -> Content:
        return Content(role="model", parts=[Part(text="skipped")])

    def flow() -> BaseAgent:
        inner = ParallelAgent(name="inner", sub_agents=[_speaker("a", "never said")], before_agent_callback=skip)
        return SequentialAgent(name="flow", sub_agents=[inner, _speaker("b", "two")])

    await _same_wherever_it_is_cut(flow, asking("go"))


async def test_a_callback_after_a_workflow_that_has_spoken_is_not_asked_again() -> None:
    def sign(callback_context: CallbackContext) -> Content:
        return Content(role="model", parts=[Part(text="signed")])

    def flow() -> BaseAgent:
        return SequentialAgent(name="flow", sub_agents=[_speaker("a", "one")], after_agent_callback=sign)

    whole, run = await _carried_out(flow(), asking("go"))
    assert whole[-1].content == Content(role="model", parts=[Part(text="signed")])
    log, _ = await _taken_up(flow(), whole, run)
    assert _comparable(log) == _comparable(whole)


async def test_a_run_waits_though_the_last_thing_a_sibling_did_was_to_say_nothing() -> None:
    halted = asyncio.Event()

    async def silent(message: str) -> LlmResponse:
        await halted.wait()
        return LlmResponse(error_code="SAFETY", error_message="no")

    team = ParallelAgent(name="team", sub_agents=[_exporter([], "report"), _speaker("b", silent)])
    async with stores_in(None) as stores, engine_over(stores, team) as engine:
        run, reader = await start(engine, asking("go"))
        await wait_for(reader, lambda event: event.branch == "team.a" and event.content is None)
        halted.set()
        assert (await end_of(engine, run.id)).status is RunStatus.WAITING
