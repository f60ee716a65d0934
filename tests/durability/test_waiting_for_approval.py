"""A run that waits for a person waits through any crash, and what was approved is done at most as its tool allows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from greenroom.agents.agent import BaseAgent
from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.workflows import LoopAgent, ParallelAgent, SequentialAgent
from greenroom.errors import ApprovalRefused, RequestClosed
from greenroom.invocation.user_context import ToolContext
from greenroom.log.calls import INTERRUPTED
from greenroom.records import wire
from greenroom.records.base import JsonValue
from greenroom.records.event import Event
from greenroom.records.inbox import Answerer, RequestAnswer, RequestFilter
from greenroom.records.run import AgentRunRequest, Run, RunFilter, RunStatus
from greenroom.tools.functions.function_tool import FunctionTool
from greenroom.tools.tool import OnInterrupt
from tests.agents.human_input.approvals import REFUSED, decide, request_ids
from tests.durability.approval_server import APP
from tests.durability.engines import (
    Stores,
    asking,
    end_of,
    engine_over,
    finish,
    start,
    stores_in,
    wait_for,
)
from tests.durability.invariants import read_lines
from tests.durability.scripts import call, model_of
from tests.durability.server_process import ServerProcess, server_in

RUNS: list[tuple[str, str]] = []
"""Each time a tool really ran: its name and the idempotency key."""


@pytest.fixture(autouse=True)
def _nothing_has_run() -> None:
    RUNS.clear()


def charge(tool_context: ToolContext, amount: str = "1") -> dict[str, str]:
    """Charges a card."""
    RUNS.append(("charge", tool_context.idempotency_key))
    return {"paid": amount}


def look(tool_context: ToolContext) -> dict[str, str]:
    """Looks, which anybody may."""
    return {"seen": "all"}


def payer(on_interrupt: OnInterrupt, name: str = "desk", *, beside: bool = False) -> LlmAgent:
    tool = FunctionTool(charge, require_confirmation=True, on_interrupt=on_interrupt)
    calls = [call("charge", "c-1", amount="7")] + [call("look", "c-2")] * beside
    looking = FunctionTool(look, on_interrupt="retry")
    return LlmAgent(name=name, model=model_of(calls, "Settled."), tools=[tool, looking])


def _speaker(name: str) -> LlmAgent:
    return LlmAgent(name=name, model=model_of(f"I am {name}."))


def alone(on_interrupt: OnInterrupt) -> BaseAgent:
    return payer(on_interrupt)


def beside_a_real_result(on_interrupt: OnInterrupt) -> BaseAgent:
    return payer(on_interrupt, beside=True)


def in_a_sequence(on_interrupt: OnInterrupt) -> BaseAgent:
    return SequentialAgent(name="desk", sub_agents=[_speaker("first"), payer(on_interrupt, "payer"), _speaker("last")])


def in_a_loop(on_interrupt: OnInterrupt) -> BaseAgent:
    below = [_speaker("first"), payer(on_interrupt, "payer", beside=True)]
    return LoopAgent(name="desk", max_iterations=1, sub_agents=below)


def in_a_branch(on_interrupt: OnInterrupt) -> BaseAgent:
    both = ParallelAgent(name="both", sub_agents=[payer(on_interrupt, "payer")])
    return SequentialAgent(name="desk", sub_agents=[both, _speaker("last")])


TREES = [alone, beside_a_real_result, in_a_sequence, in_a_loop, in_a_branch]
Tree = Callable[[OnInterrupt], BaseAgent]


@pytest.fixture(params=["memory", "sqlite"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path if request.param == "sqlite" else None


def answering(log: list[Event], **decision: Any) -> AgentRunRequest:
    request = asking("never sent")
    request.new_message = decide(*request_ids(log), **decision)
    return request


async def uncut(agent: BaseAgent, **decision: Any) -> tuple[list[Event], Run, int, Run]:
    """The whole log; the record at the end of the first segment, where that ends, and the record at the end of all."""
    async with stores_in(None) as stores, engine_over(stores, agent) as engine:
        first = await finish(engine, asking("go"))
        assert first.status is RunStatus.WAITING
        until = len(await stores.log())
        answer = answering(await stores.log(), **decision)
        second = await finish(engine, answer)
        assert (second.status, second.id) == (RunStatus.SUCCEEDED, first.id)
        # The records hold the messages until their events are stored.
        first, second = replace(first, request=asking("go")), replace(second, request=answer)
        return await stores.log(), first, until, second


async def store(stores: Stores, events: list[Event], run: Run) -> None:
    """The stores as a crash leaves them in the middle of a segment."""
    session = await stores.session()
    for event in events:
        await stores.sessions.append(session, wire.decoder(Event)(wire.encode(event)))
    cut = replace(run, status=RunStatus.RUNNING, ended_at=None, error=None, attempts=1, asked={})
    await stores.runs.save(cut)


def comparable(log: list[Event]) -> list[JsonValue]:
    """Without ids of events and requests, and times."""
    names = {request_id: f"request {n}" for n, request_id in enumerate(request_ids(log))}
    plain: list[JsonValue] = []
    for event in log:
        text = wire.encode(event).decode()
        for request_id, name in names.items():
            text = text.replace(request_id, name)
        fields = json.loads(text)
        del fields["id"], fields["timestamp"]
        plain.append(fields)
    return plain


async def test_requests_are_announced_when_they_are_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with stores_in(tmp_path) as stores, engine_over(stores, payer("report")) as engine:
        save = stores.runs.save
        is_saving: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def save_late(run: Run, **options: Any) -> asyncio.Future[None]:
            saving = save(run, **options)
            if options.get("requests") is None:
                return saving
            is_saving.set_result(run.id)
            return stored

        monkeypatch.setattr(stores.runs, "save", save_late)
        watch = await engine.watch_runs(RunFilter())
        waiting = asyncio.create_task(finish(engine, asking("go")))
        async with asyncio.timeout(5):
            getting = asyncio.create_task(engine.get(await is_saving))
            assert await watch.next_batch(idle_seconds=0)  # the begin of the run
            await asyncio.wait([waiting, getting], timeout=0.2)
            assert not waiting.done()
            assert not getting.done()
            assert await watch.next_batch(idle_seconds=0) == []
            stored.set_result(None)
            assert (await waiting).status is RunStatus.WAITING
            assert (await getting).requests
            assert await watch.next_batch(idle_seconds=0)
        watch.close()


async def test_an_answer_is_late_while_the_deciding_one_is_being_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stores_in(tmp_path) as stores, engine_over(stores, payer("report")) as engine:
        await finish(engine, asking("go"))
        [request] = (await engine.list_requests(RequestFilter())).requests
        save = stores.runs.save
        is_saving = asyncio.Event()
        release = asyncio.Event()

        def save_late(run: Run, **options: Any) -> asyncio.Future[None]:
            changes = options.get("requests")
            if changes is None or not changes.answered:
                return save(run, **options)

            async def save_when_released() -> None:
                is_saving.set()
                await release.wait()
                await save(run, **options)

            return asyncio.ensure_future(save_when_released())

        monkeypatch.setattr(stores.runs, "save", save_late)
        answer = partial(engine.answer_request, request.id, answerer=Answerer(user_id=request.user_id))
        first = asyncio.create_task(answer(RequestAnswer(confirmed=True)))
        async with asyncio.timeout(5):
            await is_saving.wait()
            second = asyncio.create_task(answer(RequestAnswer(confirmed=False)))
            await asyncio.wait([second], timeout=0.2)
            release.set()
            with pytest.raises(RequestClosed, match="it was approved"):
                await second
            await first


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("on_interrupt", ["report", "retry"])
async def test_a_run_cut_off_while_it_asks_waits_all_the_same(
    tree: Tree, on_interrupt: OnInterrupt, folder: Path | None
) -> None:
    whole, first, until, _ = await uncut(tree(on_interrupt))
    for cut in range(until + 1):
        RUNS.clear()
        async with stores_in(folder and folder / str(cut)) as stores:
            await store(stores, whole[:cut], first)
            async with engine_over(stores, tree(on_interrupt)) as engine:
                await engine.recover()
                recovered = await end_of(engine, first.id)
                log = await stores.log()
                reported = any(r.response == INTERRUPTED for event in log for r in event.get_function_responses())
                if reported:
                    # Cut off between the call and what became of it: nobody knows that the tool had only asked.
                    assert on_interrupt == "report"
                    assert cut > 0
                    assert whole[cut - 1].get_function_calls()[0].name == "charge"
                    continue
                assert recovered.status is RunStatus.WAITING, f"cut off after {cut} events"
                assert comparable(log) == comparable(whole[:until]), f"cut off after {cut} events"
                assert RUNS == []
                ended = await finish(engine, answering(log))
                assert ended.status is RunStatus.SUCCEEDED
                assert comparable(await stores.log()) == comparable(whole), f"cut off after {cut} events"
                assert len(RUNS) == 1


@pytest.mark.parametrize("tree", TREES)
async def test_an_answer_may_come_before_the_run_is_taken_up_again(tree: Tree, folder: Path | None) -> None:
    """A client can learn that a run waits before its record says so, and answers the next process."""
    whole, first, until, _ = await uncut(tree("report"))
    RUNS.clear()
    async with stores_in(folder) as stores:
        await store(stores, whole[:until], first)
        async with engine_over(stores, tree("report")) as engine:
            await engine.recover()
            run, reader = await start(engine, answering(whole))
            with pytest.raises(ApprovalRefused):
                await start(engine, answering(whole))
            reader.close()
            assert (await end_of(engine, run.id)).status is RunStatus.SUCCEEDED
            assert comparable(await stores.log()) == comparable(whole)
            assert len(RUNS) == 1


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("on_interrupt", ["report", "retry"])
async def test_a_run_cut_off_after_the_answer_does_what_was_approved_as_its_tool_allows(
    tree: Tree, on_interrupt: OnInterrupt, folder: Path | None
) -> None:
    whole, _, until, second = await uncut(tree(on_interrupt))
    (key,) = RUNS
    for cut in range(until, len(whole) + 1):
        RUNS.clear()
        async with stores_in(folder and folder / str(cut)) as stores:
            await store(stores, whole[:cut], second)
            async with engine_over(stores, tree(on_interrupt)) as engine:
                await engine.recover()
                ended = await end_of(engine, second.id)
                assert ended.status is RunStatus.SUCCEEDED, f"cut off after {cut} events"
                log = await stores.log()
                if cut == until + 1 and on_interrupt == "report":
                    (response,) = [r.response for event in log[cut:] for r in event.get_function_responses()]
                    assert (response, RUNS) == (INTERRUPTED, [])
                    assert len(log) == len(whole)
                    continue
                assert comparable(log) == comparable(whole), f"cut off after {cut} events"
                assert [key] * (cut <= until + 1) == RUNS, f"cut off after {cut} events"
                with pytest.raises(ApprovalRefused):
                    await finish(engine, answering(whole))


@pytest.mark.parametrize("tree", TREES)
async def test_a_refusal_holds_through_a_crash(tree: Tree, folder: Path | None) -> None:
    whole, _, until, second = await uncut(tree("retry"), confirmed=False)
    for cut in range(until, len(whole) + 1):
        async with stores_in(folder and folder / str(cut)) as stores:
            await store(stores, whole[:cut], second)
            async with engine_over(stores, tree("retry")) as engine:
                await engine.recover()
                assert (await end_of(engine, second.id)).status is RunStatus.SUCCEEDED
                assert comparable(await stores.log()) == comparable(whole), f"cut off after {cut} events"
    assert RUNS == []


async def test_a_run_costs_nothing_while_it_waits_and_continues_in_another_process(tmp_path: Path) -> None:
    async with stores_in(tmp_path) as stores, engine_over(stores, alone("report")) as engine:
        waiting = await finish(engine, asking("go"))
    async with stores_in(tmp_path) as stores, engine_over(stores, alone("report")) as engine:
        assert await engine.recover() == 0, "a run that waits is not taken up"
        assert (await engine.get(waiting.id)).status is RunStatus.WAITING
        ended = await finish(engine, answering(await stores.log()))
        assert (ended.id, ended.status) == (waiting.id, RunStatus.SUCCEEDED)
        assert len(RUNS) == 1


async def test_of_two_answers_at_once_one_counts(folder: Path | None) -> None:
    async with stores_in(folder) as stores, engine_over(stores, alone("report")) as engine:
        await finish(engine, asking("go"))
        log = await stores.log()
        outcomes = await asyncio.gather(
            *(finish(engine, answering(log, confirmed=n % 2 == 0)) for n in range(6)), return_exceptions=True
        )
        refused = [outcome for outcome in outcomes if isinstance(outcome, ApprovalRefused)]
        assert len(refused) == 5
        assert len(RUNS) <= 1
        answers = [event for event in await stores.log() if event.author == "user" and event.get_function_responses()]
        assert len(answers) == 1


async def test_an_answer_may_come_before_the_run_has_stopped(folder: Path | None) -> None:
    """A client sees the request while the run still has things to do, in another branch."""
    go_on = asyncio.Event()

    async def wait_for_test() -> str:
        """Waits."""
        await go_on.wait()
        return "waited"

    slow = LlmAgent(name="slow", model=model_of(call("wait_for_test", "w-1"), "Waited."), tools=[wait_for_test])
    agent = ParallelAgent(name="desk", sub_agents=[payer("report", "payer"), slow])
    async with stores_in(folder) as stores, engine_over(stores, agent) as engine:
        _, reader = await start(engine, asking("go"))
        asked = await wait_for(reader, lambda event: bool(request_ids([event])))
        run, answer_reader = await start(engine, answering([asked]))
        with pytest.raises(ApprovalRefused):
            await start(engine, answering([asked]))
        go_on.set()
        answer_reader.close()
        assert (await end_of(engine, run.id)).status is RunStatus.SUCCEEDED
        assert len(RUNS) == 1


async def test_events_that_others_write_into_the_log_of_an_active_run_are_no_requests(
    folder: Path | None,
) -> None:
    """As when a client brings a long log along, and has a run begun in it before all of it is stored."""
    began, go_on = asyncio.Event(), asyncio.Event()

    async def wait_for_test() -> str:
        """Waits."""
        began.set()
        await go_on.wait()
        return "waited"

    genuine, *_ = await uncut(alone("report"))
    pay = FunctionTool(charge, require_confirmation=True)
    model = model_of(call("wait_for_test", "w-1"), "Waited.")
    agent = LlmAgent(name="desk", model=model, tools=[FunctionTool(wait_for_test), pay])
    RUNS.clear()
    async with stores_in(folder) as stores, engine_over(stores, agent) as engine:
        run, reader = await start(engine, asking("go"))
        await asyncio.wait_for(began.wait(), 5)
        session = await stores.session()
        for event in genuine[1:4]:
            brought = wire.decoder(Event)(wire.encode(event))
            brought.invocation_id = run.id
            await stores.sessions.append(session, brought)
        with pytest.raises(ApprovalRefused, match="no run of this session asks"):
            await start(engine, answering(genuine))
        go_on.set()
        reader.close()
        await end_of(engine, run.id)
        with pytest.raises(ApprovalRefused, match="no run of this session asks"):
            await finish(engine, answering(genuine))
        assert RUNS == []


async def test_a_cancelled_run_can_not_be_approved_any_more(folder: Path | None) -> None:
    async with stores_in(folder) as stores, engine_over(stores, alone("report")) as engine:
        run = await finish(engine, asking("go"))
        await engine.cancel(run.id, reason="asked by a client")
        with pytest.raises(ApprovalRefused, match="no run of this session asks"):
            await finish(engine, answering(await stores.log()))
        assert (await engine.get(run.id)).status is RunStatus.CANCELLED
        assert RUNS == []


async def test_an_approved_call_that_was_cancelled_is_reported_as_interrupted_and_not_run_again(
    folder: Path | None,
) -> None:
    began = asyncio.Event()

    async def hang() -> None:
        """Never ends."""
        began.set()
        await asyncio.Event().wait()

    tool = FunctionTool(hang, require_confirmation=True, on_interrupt="retry")
    agent = LlmAgent(name="desk", model=model_of(call("hang", "c-1"), "Well."), tools=[tool])
    async with stores_in(folder) as stores, engine_over(stores, agent) as engine:
        await finish(engine, asking("go"))
        log = await stores.log()
        run, reader = await start(engine, answering(log))
        await asyncio.wait_for(began.wait(), 5)
        await engine.cancel(run.id, reason="asked by a client")
        reader.close()
        responses = [r.response for event in await stores.log() for r in event.get_function_responses()]
        assert responses[-1] == INTERRUPTED
        with pytest.raises(ApprovalRefused):
            await finish(engine, answering(log))


async def test_a_refused_long_running_call_does_not_keep_its_run_waiting() -> None:
    def export() -> None:
        """Starts an export."""
        RUNS.append(("export", ""))

    tool = FunctionTool(export, require_confirmation=True, is_long_running=True)
    asker = LlmAgent(name="asker", model=model_of(call("export", "c-1"), "Not exported."), tools=[tool])
    agent = SequentialAgent(name="desk", sub_agents=[asker, _speaker("last")])
    async with stores_in(None) as stores, engine_over(stores, agent) as engine:
        await finish(engine, asking("go"))
        ended = await finish(engine, answering(await stores.log(), confirmed=False))
        assert ended.status is RunStatus.SUCCEEDED
        log = await stores.log()
        assert REFUSED in [r.response for event in log for r in event.get_function_responses()]
        assert any(event.author == "last" for event in log)
    assert RUNS == []


async def test_an_unanswered_request_keeps_the_run_waiting() -> None:
    tool = FunctionTool(charge, require_confirmation=True)
    calls = [call("charge", "c-1", amount="1"), call("charge", "c-2", amount="2")]
    agent = LlmAgent(name="desk", model=model_of(calls, "One.", "Two."), tools=[tool])
    async with stores_in(None) as stores, engine_over(stores, agent) as engine:
        await finish(engine, asking("go"))
        one, two = request_ids(await stores.log())
        for request_id, status in ((two, RunStatus.WAITING), (one, RunStatus.SUCCEEDED)):
            request = asking("never sent")
            request.new_message = decide(request_id)
            assert (await finish(engine, request)).status is status


# a real process, really killed


@pytest.mark.kill
@pytest.mark.parametrize("tool", ["pay", "look"])
async def test_killed_while_it_waits_and_killed_in_the_approved_tool(tool: str, tmp_path: Path) -> None:
    diary = tmp_path / "tools.jsonl"
    async with (
        server_in(tmp_path, module="tests.durability.approval_server") as server,
        httpx.AsyncClient(base_url=server.url, timeout=30) as http,
    ):
        await server.start()
        session = f"/apps/{APP}/users/ann/sessions"
        await http.post(session, json={"sessionId": "s-1"})
        asked = await _run(http, {"text": tool})
        run_id: str = asked[0]["invocationId"]
        request: dict[str, Any] = asked[1]["content"]["parts"][0]["functionCall"]

        await _kill_and_start(server)
        await _until(lambda: _has_status(http, run_id, "waiting"))

        answer = {"id": request["id"], "name": request["name"], "response": {"confirmed": True}}
        body = {"newMessage": {"role": "user", "parts": [{"functionResponse": answer}]}}
        started = await http.post(f"{session}/s-1/runs", json=body)
        assert started.status_code == 202, started.text
        await _until(lambda: len(read_lines(diary)) == 1)
        await server.kill()
        (tmp_path / "go on").touch()
        await server.start()
        await _until(lambda: _has_status(http, run_id, "succeeded"))
        events: list[Any] = (await http.get(f"{session}/s-1")).json()["events"]
        parts = [part for event in events for part in event["content"]["parts"]]
        results = [part["functionResponse"]["response"] for part in parts if "functionResponse" in part]
        lines = read_lines(diary)
        if tool == "pay":
            assert results[-1] == INTERRUPTED
            assert [line["phase"] for line in lines] == ["begin"]
        else:
            assert results[-1] == {"done": "look"}
            assert [line["phase"] for line in lines] == ["begin", "begin", "end"]
            assert len({line["key"] for line in lines}) == 1
            assert len({line["process"] for line in lines}) == 2
        again = await http.post("/run", json={**_WHERE, **body})
        assert again.status_code == 409, again.text
        assert len(read_lines(diary)) == len(lines)


_WHERE = {"appName": APP, "userId": "ann", "sessionId": "s-1"}


async def _run(http: httpx.AsyncClient, part: dict[str, Any]) -> list[dict[str, Any]]:
    reply = await http.post("/run", json={**_WHERE, "newMessage": {"role": "user", "parts": [part]}})
    assert reply.status_code == 200, reply.text
    return reply.json()


async def _has_status(http: httpx.AsyncClient, run_id: str, status: str) -> bool:
    return (await http.get(f"/runs/{run_id}")).json()["status"] == status


async def _kill_and_start(server: ServerProcess) -> None:
    await server.kill()
    await server.start()


async def _until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(30):
        while True:
            found = condition()
            if await found if asyncio.iscoroutine(found) else found:
                return
            await asyncio.sleep(0.01)
