"""A run that was cut off anywhere is finished by the next process as if nothing had happened."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from greenroom.agents.agent import BaseAgent
from greenroom.agents.agent_tool import AgentTool
from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.workflows import LoopAgent, SequentialAgent
from greenroom.code_executors.context import RESULTS
from greenroom.code_executors.unsafe_local import UnsafeLocalCodeExecutor
from greenroom.errors import GreenroomError, ModelError
from greenroom.invocation.user_context import CallbackContext, ToolContext
from greenroom.log.calls import INTERRUPTED
from greenroom.records import wire
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import Content, FunctionCall, FunctionResponse, Part
from greenroom.records.event import Event, EventActions
from greenroom.records.run import AgentRunRequest, Run, RunStatus
from greenroom.runs.task import MAX_ATTEMPTS, MAX_ATTEMPTS_ALONE
from greenroom.testing.scripted_model import Fails
from greenroom.tools.functions.function_tool import FunctionTool, LongRunningFunctionTool
from tests.durability.engines import WHERE, Stores, asking, end_of, engine_over, finish, stores_in
from tests.durability.scripts import call, model_of

REPORTED = "charge"
"""The tool with on_interrupt="report"."""


def charge(tool_context: ToolContext, amount: str = "1") -> dict[str, str]:
    """Charges a card."""
    tool_context.state["charge"] = amount
    return {"paid": amount}


def lookup(tool_context: ToolContext, key: str = "k") -> dict[str, str]:
    """Looks something up."""
    tool_context.state["lookup"] = key
    return {"value": key}


def export() -> None:
    """Starts an export that answers later."""


def order() -> dict[str, str]:
    """Starts an order that answers later."""
    return {"status": "under way"}


def summary(tool_context: ToolContext) -> str:
    """Gives the answer itself."""
    tool_context.actions.skip_summarization = True
    return "all is well"


class OutOfPaper(GreenroomError):
    """An error of an app's own."""


def print_it() -> None:
    """Prints a page."""
    raise OutOfPaper("no paper left")


def staple() -> None:
    """Staples pages."""
    raise ValueError("no pages")


CHARGE = FunctionTool(charge)
LOOKUP = FunctionTool(lookup, on_interrupt="retry")
SUMMARY = FunctionTool(summary, on_interrupt="retry")
PRINT = FunctionTool(print_it, on_interrupt="retry")
STAPLE = FunctionTool(staple, on_interrupt="retry")
EXPORT = LongRunningFunctionTool(export, on_interrupt="retry")
ORDER = LongRunningFunctionTool(order, on_interrupt="retry")


@dataclasses.dataclass
class Offer:
    price: int


@dataclasses.dataclass(frozen=True)
class Case:
    """request: the run that is cut off. before: requests that were carried out in the session before."""

    agent: Callable[[], BaseAgent]
    ends: RunStatus = RunStatus.SUCCEEDED
    request: AgentRunRequest = dataclasses.field(default_factory=lambda: asking("go"))
    before: tuple[AgentRunRequest, ...] = ()
    events: int = 0


def _speaker(**options: Any) -> LlmAgent:
    return LlmAgent(name="desk", **options)


def _coder(*turns: str, name: str = "desk", optimize_data_file: bool = False) -> LlmAgent:
    executor = UnsafeLocalCodeExecutor(optimize_data_file=optimize_data_file)
    return LlmAgent(name=name, model=model_of(*turns), code_executor=executor)


def _hand_over(name: str, target: str):
    return call("transfer_to_agent", f"to-{target}-by-{name}", agent_name=target)


def _tree() -> LlmAgent:
    """desk hands over to shop, and shop to clerk, who may not hand back and calls tools."""
    clerk = LlmAgent(
        name="clerk",
        model=model_of([call("charge", "c-1"), call("lookup", "c-2")], "Bought."),
        tools=[CHARGE, LOOKUP],
        disallow_transfer_to_parent=True,
        output_key="receipt",
    )
    shop = LlmAgent(name="shop", model=model_of(_hand_over("shop", "clerk"), "Never said."), sub_agents=[clerk])
    model = model_of(call("lookup", "d-1"), _hand_over("desk", "shop"))
    return _speaker(model=model, tools=[LOOKUP], sub_agents=[shop])


def _lend(name: str, target: str):
    return call("transfer_to_agent", f"to-{target}-by-{name}", agent_name=target, **{"return": True})


def _lent() -> LlmAgent:
    """desk lends control to shop, and shop to clerk; each continues when it comes back."""
    clerk = LlmAgent(name="clerk", model=model_of(call("lookup", "c-1"), "Found."), tools=[LOOKUP])
    shop = LlmAgent(name="shop", model=model_of(_lend("shop", "clerk"), "The clerk found it."), sub_agents=[clerk])
    model = model_of(_lend("desk", "shop"), call("charge", "d-1"), "Sold.")
    return _speaker(model=model, tools=[CHARGE], sub_agents=[shop])


def _lent_to_one_who_waits() -> LlmAgent:
    shop = LlmAgent(name="shop", model=model_of(call("export", "x-1"), "It is here."), tools=[EXPORT])
    return _speaker(model=model_of(_lend("desk", "shop"), "All is done."), sub_agents=[shop])


def _breaking(name: str = "desk", **options: Any) -> LlmAgent:
    model = model_of([call("lookup", "c-1"), call("staple", "c-2")], "Never said.")
    return LlmAgent(name=name, model=model, tools=[LOOKUP, STAPLE], **options)


def _asks_one_who_breaks() -> LlmAgent:
    aide = AgentTool(_breaking("aide", description="Staples."))
    return _speaker(model=model_of(call("aide", "d-1", request="staple"), "Never said."), tools=[aide])


def _hands_over_to_one_who_breaks() -> LlmAgent:
    return _speaker(model=model_of(_hand_over("desk", "shop")), sub_agents=[_breaking("shop")])


def _there_and_back() -> LlmAgent:
    """desk hands over to shop, and shop hands back."""
    shop = LlmAgent(name="shop", model=model_of(_hand_over("shop", "desk")))
    return _speaker(model=model_of(_hand_over("desk", "shop"), "Back again."), sub_agents=[shop])


def _one(name: str) -> LlmAgent:
    return LlmAgent(name=name, model=model_of(f"This is {name}."))


def _row(name: str, *names: str) -> SequentialAgent:
    return SequentialAgent(name=name, sub_agents=[_one(one) for one in names])


def _behind(first: BaseAgent) -> SequentialAgent:
    return SequentialAgent(name="desk", sub_agents=[first, _one("last")])


def _note_visit(callback_context: CallbackContext) -> None:
    callback_context.state["visits"] = callback_context.state.get("visits", 0) + 1


def _refuse(callback_context: CallbackContext) -> Content:
    return Content(role="model", parts=[Part(text="The desk is closed.")])


def _answers_of(call_id: str, name: str) -> AgentRunRequest:
    response = FunctionResponse(id=call_id, name=name, response={"file": "all.csv"})
    return asking(Part(function_response=response))


_broken = ModelError("overloaded", model="scripted")
_answer = FunctionCall(id="c-2", name="set_model_response", args={"price": 3})
_two_exports = [call("export", "x-1"), call("export", "x-2")]

CASES = {
    "a plain answer": Case(lambda: _speaker(model=model_of("Good day.")), events=2),
    "a plain answer with history": Case(
        lambda: _speaker(model=model_of("Good day.")), before=(asking("one"), asking("two")), events=6
    ),
    "an answer kept under a key": Case(lambda: _speaker(model=model_of("Good day."), output_key="word"), events=2),
    "a call that is repeated": Case(
        lambda: _speaker(model=model_of(call("lookup", "c-1"), "Found."), tools=[LOOKUP]), events=4
    ),
    "a call that is reported": Case(
        lambda: _speaker(model=model_of(call("charge", "c-1"), "Paid."), tools=[CHARGE]), events=4
    ),
    "text beside a call": Case(
        lambda: _speaker(model=model_of([Part(text="One moment."), call("lookup", "c-1")], "Found."), tools=[LOOKUP]),
        events=4,
    ),
    "calls side by side": Case(
        lambda: _speaker(
            model=model_of([call("charge", "c-1"), call("lookup", "c-2"), call("charge", "c-3")], "Done."),
            tools=[CHARGE, LOOKUP],
        ),
        events=4,
    ),
    "a call of an unknown tool": Case(lambda: _speaker(model=model_of(call("nothing", "c-1"), "Sorry.")), events=4),
    "two rounds of calls": Case(
        lambda: _speaker(
            model=model_of(call("lookup", "c-1"), [call("charge", "c-2"), call("lookup", "c-3")], "Done."),
            tools=[CHARGE, LOOKUP],
        ),
        events=6,
    ),
    "a result that needs no summary": Case(
        lambda: _speaker(model=model_of(call("summary", "c-1"), "Never said."), tools=[SUMMARY]), events=3
    ),
    "a nested transfer": Case(_tree, events=10),
    "a nested transfer, then a second message": Case(_tree, before=(asking("one"),), events=16),
    "a transfer there and back": Case(_there_and_back, events=6),
    "control that comes back": Case(_lent, events=12),
    "control that comes back from a workflow agent": Case(
        lambda: _speaker(
            model=model_of(_lend("desk", "row"), "They are done."), sub_agents=[_row("row", "one", "two")]
        ),
        events=9,
    ),
    "control that comes back from a workflow agent twice": Case(
        lambda: _speaker(
            model=model_of(
                _lend("desk", "row"),
                call("transfer_to_agent", "again", agent_name="row", **{"return": True}),
                "They are done.",
            ),
            sub_agents=[_row("row", "one", "two")],
        ),
        events=16,
    ),
    "control that comes back once somebody has answered": Case(
        _lent_to_one_who_waits, before=(asking("go"),), request=_answers_of("x-1", "export"), events=7
    ),
    "an answer of a declared shape": Case(
        lambda: _speaker(
            model=model_of(call("lookup", "c-1"), _answer),
            tools=[LOOKUP],
            output_schema=Offer,
            output_key="offer",
        ),
        events=6,
    ),
    "a call left open": Case(
        lambda: _speaker(model=model_of(call("export", "c-1"), "Never said."), tools=[EXPORT]),
        ends=RunStatus.WAITING,
        events=2,
    ),
    "a call left open beside another": Case(
        lambda: _speaker(
            model=model_of([call("export", "c-1"), call("lookup", "c-2")], "Wait."), tools=[EXPORT, LOOKUP]
        ),
        ends=RunStatus.WAITING,
        events=4,
    ),
    "a first word of a long-running call": Case(
        lambda: _speaker(model=model_of(call("order", "c-1"), "Ordered."), tools=[ORDER]),
        ends=RunStatus.WAITING,
        events=4,
    ),
    "the answer to an open call": Case(
        lambda: _speaker(model=model_of(call("export", "c-1"), "Here it is."), tools=[EXPORT]),
        before=(asking("go"),),
        request=_answers_of("c-1", "export"),
        events=4,
    ),
    "the answer to one of two open calls": Case(
        lambda: _speaker(model=model_of(_two_exports, "One is here."), tools=[EXPORT]),
        before=(asking("go"),),
        request=_answers_of("x-1", "export"),
        ends=RunStatus.WAITING,
        events=4,
    ),
    "the answer to a call with first words": Case(
        lambda: _speaker(model=model_of(call("order", "c-1"), "Words."), tools=[ORDER]),
        before=(asking("go"), asking("meanwhile")),
        request=_answers_of("c-1", "order"),
        events=10,
    ),
    "a model that fails": Case(lambda: _speaker(model=model_of(_broken)), ends=RunStatus.FAILED, events=2),
    "a model that fails in the middle of a sentence": Case(
        lambda: _speaker(model=model_of(Fails(error=_broken, after_chunks=2))),
        request=asking("go", streaming=True),
        ends=RunStatus.FAILED,
        events=2,
    ),
    "a model that fails after a call": Case(
        lambda: _speaker(model=model_of(call("lookup", "c-1"), _broken), tools=[LOOKUP]),
        ends=RunStatus.FAILED,
        events=4,
    ),
    "a tool that breaks": Case(_breaking, ends=RunStatus.FAILED, events=3),
    "a tool that breaks after one that waits": Case(
        lambda: _speaker(
            model=model_of([call("export", "c-1"), call("print_it", "c-2")], "Never said."), tools=[EXPORT, PRINT]
        ),
        ends=RunStatus.FAILED,
        events=3,
    ),
    "a tool that breaks with an error of the app's own": Case(
        lambda: _speaker(model=model_of(call("print_it", "c-1"), "Never said."), tools=[PRINT]),
        ends=RunStatus.FAILED,
        events=3,
    ),
    "a tool that breaks in an agent that is a tool": Case(_asks_one_who_breaks, ends=RunStatus.FAILED, events=5),
    "a tool that breaks behind a transfer": Case(_hands_over_to_one_who_breaks, ends=RunStatus.FAILED, events=5),
    "a tool that broke, then a second message": Case(
        lambda: _speaker(model=model_of(call("staple", "c-1"), "Good day."), tools=[STAPLE]),
        before=(asking("go"),),
        ends=RunStatus.FAILED,
        events=6,
    ),
    "a callback that writes state first": Case(
        lambda: _speaker(model=model_of("Good day."), before_agent_callback=_note_visit), events=3
    ),
    "a callback that answers first": Case(
        lambda: _speaker(model=model_of("Never said."), before_agent_callback=_refuse), events=2
    ),
    "a callback before a sub-agent": Case(
        lambda: _speaker(
            model=model_of(_hand_over("desk", "shop")),
            sub_agents=[LlmAgent(name="shop", model=model_of("Never said."), before_agent_callback=_refuse)],
        ),
        events=4,
    ),
    "code in a reply": Case(
        lambda: _coder("Let me see.\n```python\nprint(6 * 7)\n```\nSo it is.", "It is 42."), events=4
    ),
    "code of an agent that has been handed over to": Case(
        lambda: _speaker(
            model=model_of(_hand_over("desk", "coder")),
            sub_agents=[_coder("```python\nprint(6 * 7)\n```", "It is 42.", name="coder")],
        ),
        events=6,
    ),
    "an agent with a limit of steps": Case(
        lambda: _speaker(model=model_of(call("lookup", "c-1"), "Never said."), tools=[LOOKUP], max_steps=1), events=3
    ),
    "a sequence that was finished in another one": Case(lambda: _behind(_row("inner", "one", "two")), events=10),
    "a loop that was finished in a sequence": Case(
        lambda: _behind(LoopAgent(name="loop", sub_agents=[_one("one")], max_iterations=2)), events=10
    ),
    "a run without a message": Case(
        lambda: _speaker(model=model_of("Good day.")), before=(asking("one"),), request=asking(None), events=3
    ),
}


INTERRUPTED_CODE = Content(
    role="model",
    parts=[
        Part.from_code_execution_result(
            outcome="OUTCOME_FAILED",
            output="The run of this code was interrupted. Whether it had any effect is not known.",
        )
    ],
)


@pytest.fixture(params=["memory", "sqlite"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path if request.param == "sqlite" else None


@pytest.mark.parametrize("name", CASES)
async def test_a_run_cut_off_after_any_event_ends_as_if_it_had_not_been(name: str, folder: Path | None) -> None:
    case = CASES[name]
    whole, run, began_at = await _uncut(case)
    assert (run.status, len(whole)) == (case.ends, case.events), [wire.to_plain(event) for event in whole]
    for cut in range(began_at, len(whole) + 1):
        place = folder and folder / str(cut)
        async with stores_in(place) as stores:
            await _store(stores, whole[:cut], _as_it_was(run))
            async with engine_over(stores, case.agent()) as engine:
                assert await engine.recover() == 1
                ended = await end_of(engine, run.id)
                expected = _with_interruption(whole, cut)
                assert _comparable(await stores.log()) == _comparable(expected), f"cut off after {cut} events"
                assert ended.status == run.status, f"cut off after {cut} events"
                assert _code_and_message(ended) == _code_and_message(run)
                assert _untimed((await stores.session()).state) == _untimed(_folded(expected))
                assert await _stored_record(stores, run.id) == ended


async def test_a_long_running_call_whose_start_is_unknown_is_reported(folder: Path | None) -> None:
    def agent() -> LlmAgent:
        return _speaker(model=model_of(call("export", "c-1"), "I don't know."), tools=[LongRunningFunctionTool(export)])

    whole, run, _ = await _uncut(Case(agent))
    assert run.status is RunStatus.WAITING
    async with stores_in(folder) as stores:
        await _store(stores, whole, _as_it_was(run))
        async with engine_over(stores, agent()) as engine:
            await engine.recover()
            assert (await end_of(engine, run.id)).status is RunStatus.SUCCEEDED
            log = await stores.log()
            assert [r.response for event in log for r in event.get_function_responses()] == [INTERRUPTED]
            assert log[-1].content == Content(role="model", parts=[Part(text="I don't know.")])


async def test_a_data_file_that_may_not_have_been_looked_at_is_looked_at_again(folder: Path | None) -> None:
    request = asking(Part.from_bytes(data=b"a,b\n1,2\n", mime_type="text/csv"))
    case = Case(lambda: _coder("One row.", optimize_data_file=True), request=request)
    whole, run, _ = await _uncut(case)
    looking, seen, last = whole[-3:]
    async with stores_in(folder) as stores:
        await _store(stores, whole[:-2], _as_it_was(run))
        async with engine_over(stores, case.agent()) as engine:
            await engine.recover()
            assert (await end_of(engine, run.id)).status is RunStatus.SUCCEEDED
        log = await stores.log()
        contents = [event.content for event in log[1:]]
        assert contents == [looking.content, INTERRUPTED_CODE, looking.content, seen.content, last.content]
        assert len((await stores.session()).state["_code_executor_input_files"]) == 1


async def test_a_run_that_was_never_begun_waits_for_the_one_before_it(folder: Path | None) -> None:
    agent = _speaker(model=model_of(lambda message: f"Heard {message}."))
    async with stores_in(folder) as stores:
        first = Run(id="e-1", **WHERE, status=RunStatus.RUNNING, created_at=2.0, attempts=1, request=asking("first"))
        second = Run(id="e-2", **WHERE, status=RunStatus.QUEUED, created_at=1.0, request=asking("second"))
        for run in (second, first):
            await stores.runs.save(run)
        async with engine_over(stores, agent) as engine:
            assert await engine.recover() == 2
            assert [(await end_of(engine, run)).status for run in ("e-1", "e-2")] == [RunStatus.SUCCEEDED] * 2
        said = [event.content.text() for event in await stores.log() if event.content]
        assert said == ["first", "Heard first.", "second", "Heard second."]


async def test_a_run_cut_off_too_often_is_failed_and_its_calls_are_closed(folder: Path | None) -> None:
    agent = _speaker(model=model_of(call("lookup", "c-1"), "Found."), tools=[LOOKUP])
    asked = Event(id="1", invocation_id="e-1", author="user", content=Content(role="user", parts=[Part(text="go")]))
    called = Event(
        id="2",
        invocation_id="e-1",
        author="desk",
        content=Content(role="model", parts=[Part(function_call=call("lookup", "c-1"))]),
    )
    async with stores_in(folder) as stores:
        run = Run(
            id="e-1",
            **WHERE,
            status=RunStatus.RUNNING,
            created_at=1.0,
            attempts=MAX_ATTEMPTS,
            stalled=MAX_ATTEMPTS - 1,
            stalled_alone=MAX_ATTEMPTS_ALONE - 1,
            resumed_alone=True,
            progress=2,
            request=asking("go"),
        )
        await _store(stores, [asked, called], run)
        async with engine_over(stores, agent) as engine:
            await engine.recover()
            ended = await end_of(engine, "e-1")
            assert ended.status is RunStatus.FAILED
            assert ended.error is not None
            assert ended.error.code == "RunGivenUp"
            assert await _stored_record(stores, "e-1") == ended
            log = await stores.log()
            assert [r.id for event in log for r in event.get_function_responses()] == ["c-1"]
            assert log[-1].get_function_responses()[0].response == INTERRUPTED
            assert log[-1].error_code == "RunGivenUp"
            assert (await finish(engine, asking("again"))).status is RunStatus.SUCCEEDED


async def test_a_run_that_goes_round_in_circles_ends_at_the_same_place_after_a_crash() -> None:
    """Its 500 calls of the model are counted over both processes."""

    def agent() -> LlmAgent:
        return _speaker(model=model_of(FunctionCall(name="lookup", args={})), tools=[LOOKUP])

    whole, run, _ = await _uncut(Case(agent))
    assert (run.error.code if run.error else None, len(whole)) == ("LlmCallsLimitExceeded", 1 + 2 * 500 + 1)
    async with stores_in(None) as stores:
        await _store(stores, whole[:701], _as_it_was(run))
        async with engine_over(stores, agent()) as engine:
            await engine.recover()
            assert _code_and_message(await end_of(engine, run.id)) == _code_and_message(run)
        assert len(await stores.log()) == len(whole)


async def test_a_run_of_an_app_that_is_gone_is_failed(folder: Path | None) -> None:
    async with stores_in(folder) as stores:
        where: dict[str, Any] = {**WHERE, "app_name": "gone"}
        await stores.sessions.create_session(**where)
        request = AgentRunRequest(**where, new_message=asking("go").new_message)
        await stores.runs.save(Run(id="e-1", **where, status=RunStatus.RUNNING, created_at=1.0, request=request))
        async with engine_over(stores, _speaker(model=model_of("Never said."))) as engine:
            await engine.recover()
            ended = await end_of(engine, "e-1")
            assert ended.error is not None
            assert (ended.status, ended.error.code) == (RunStatus.FAILED, "AppNotFound")


async def test_state_patched_while_a_run_was_going_on_does_not_hide_where_it_stood(folder: Path | None) -> None:
    case = CASES["an answer of a declared shape"]
    whole, run, _ = await _uncut(case)
    patch = Event(id="patch", invocation_id="p-1", author="user", actions=EventActions(state_delta={"theme": "dark"}))
    for cut in range(len(whole) + 1):
        async with stores_in(folder and folder / str(cut)) as stores:
            await _store(stores, [*whole[:cut], patch], _as_it_was(run))
            async with engine_over(stores, case.agent()) as engine:
                await engine.recover()
                await end_of(engine, run.id)
                log = [event for event in await stores.log() if event.id != "patch"]
                assert _comparable(log) == _comparable(_with_interruption(whole, cut)), f"cut off after {cut} events"


async def test_a_cancelled_run_whose_record_was_not_written_is_still_cancelled(folder: Path | None) -> None:
    agent = _speaker(model=model_of(call("lookup", "c-1"), "Found."), tools=[LOOKUP])
    asked = Event(id="1", invocation_id="e-1", author="user", content=Content(role="user", parts=[Part(text="go")]))
    called = Event(
        id="2",
        invocation_id="e-1",
        author="desk",
        content=Content(role="model", parts=[Part(function_call=call("lookup", "c-1"))]),
    )
    response = FunctionResponse(id="c-1", name="lookup", response=dict(INTERRUPTED))
    aborted = Event(
        id="3",
        invocation_id="e-1",
        author="desk",
        error_code="INVOCATION_ABORTED",
        error_message="asked by a client",
        content=Content(role="user", parts=[Part(function_response=response)]),
    )
    async with stores_in(folder) as stores:
        run = Run(id="e-1", **WHERE, status=RunStatus.RUNNING, created_at=1.0, attempts=1, request=asking("go"))
        await _store(stores, [asked, called, aborted], run)
        async with engine_over(stores, agent) as engine:
            await engine.recover()
            assert (await end_of(engine, "e-1")).status is RunStatus.CANCELLED
            assert len(await stores.log()) == 3


# how a run is cut, and what is to come of it


async def _uncut(case: Case) -> tuple[list[Event], Run, int]:
    """The log of the session, the run's record at its end, and the log's length when it was asked for."""
    async with stores_in(None) as stores, engine_over(stores, case.agent()) as engine:
        for request in case.before:
            await finish(engine, request)
        began_at = len(await stores.log())
        return await _finish_and_read(stores, engine, case.request, began_at)


async def _finish_and_read(stores: Stores, engine: Any, request: AgentRunRequest, began_at: int):
    run = await finish(engine, request)
    run.request = request  # the record holds the message until its event is stored
    return await stores.log(), run, began_at


def _as_it_was(run: Run) -> Run:
    """The record as it was while the run was going on."""
    return msgspec.structs.replace(run, status=RunStatus.RUNNING, ended_at=None, error=None, usage=None, attempts=1)


def _code_and_message(run: Run) -> tuple[str, str] | None:
    return (run.error.code, run.error.message) if run.error is not None else None


async def _store(stores: Stores, events: list[Event], run: Run) -> None:
    session = await stores.session()
    for event in events:
        await stores.sessions.append(session, wire.decoder(Event)(wire.encode(event)))
    await stores.runs.save(run)


async def _stored_record(stores: Stores, run_id: str) -> Run:
    """The record as the next process would find it; it is written a little after the readers see the end."""
    async with asyncio.timeout(10):
        while True:
            run = await stores.runs.get(run_id)
            assert run is not None
            if run.status.is_over:
                return run
            await asyncio.sleep(0.001)


def _with_interruption(whole: list[Event], cut: int) -> list[Event]:
    """The log as it has to be when the run was cut off after `cut` events: the last one's calls, or its code, may be
    interrupted."""
    if 0 < cut < len(whole) and whole[cut].has_trailing_code_execution_result():
        event = wire.decoder(Event)(wire.encode(whole[cut]))
        event.content, event.actions = INTERRUPTED_CODE, EventActions()
        return [*whole[:cut], event, *whole[cut + 1 :]]
    if cut == 0 or not (calls := whole[cut - 1].get_function_calls()):
        return whole
    reported = {c.id: c.name for c in calls if c.name == REPORTED}
    answers_follow = cut < len(whole) and bool(whole[cut].get_function_responses())
    if not reported or not answers_follow or whole[cut].author == "user":
        return whole
    event = wire.decoder(Event)(wire.encode(whole[cut]))
    answered = {r.id: r for r in event.get_function_responses()}
    parts: list[Part] = []
    for made in calls:
        if made.id in reported:
            interrupted = FunctionResponse(id=made.id, name=made.name, response=dict(INTERRUPTED))
            parts.append(Part(function_response=interrupted))
            event.actions.state_delta.pop(made.name or "", None)
        else:
            parts.append(Part(function_response=answered[made.id]))
    event.content = Content(role="user", parts=parts)
    return [*whole[:cut], event, *whole[cut + 1 :]]


def _comparable(log: list[Event]) -> list[JsonValue]:
    return [_without_ids_and_times(event) for event in log]


def _without_ids_and_times(event: Event) -> JsonObject:
    plain: JsonObject = wire.to_plain(event)
    for name in ("id", "timestamp"):
        del plain[name]
    plain["actions"]["stateDelta"] = _untimed(plain["actions"]["stateDelta"])
    return plain


def _untimed(state: JsonObject) -> JsonObject:
    """Without the results of code, which say when they were made."""
    return {key: value for key, value in state.items() if key != RESULTS}


def _folded(log: list[Event]) -> JsonObject:
    state: JsonObject = {}
    for event in log:
        state |= event.actions.state_delta
    return state
