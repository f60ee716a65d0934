"""A run that ends its process again and again is given up; the runs beside it are not."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import httpx
import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.app import App
from greenroom.records.model_exchange import LlmRequest
from greenroom.records.run import Run, RunFilter, RunStatus
from greenroom.runner.runner import Runner
from greenroom.runs.sqlite_store import SqliteRunStore
from greenroom.runs.suspects import GROUP_SIZE, SuspectRuns
from greenroom.runs.task import MAX_ATTEMPTS, MAX_ATTEMPTS_ALONE, RunTask
from greenroom.sessions.in_memory import InMemorySessionService
from greenroom.testing.scripted_model import ScriptedModel
from tests.durability.engines import WHERE, asking, end_of, engine_over, finish, start, stores_in
from tests.durability.server_process import server_in


@pytest.mark.kill
async def test_only_the_run_that_ends_the_process_is_given_up(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(270),
        server_in(tmp_path, module="tests.durability.crashing_server") as server,
        httpx.AsyncClient(base_url=server.url, timeout=30) as http,
    ):
        await server.start()
        for session_id in ("first", "second", "crash"):
            await _start_run(http, session_id)

        while not await _all_have_ended(tmp_path):
            if not server.is_running:
                await server.start(wait=False)
            await asyncio.sleep(0.05)
        runs = await _runs(tmp_path)

    assert {session: run.status for session, run in runs.items()} == {
        "first": RunStatus.SUCCEEDED,
        "second": RunStatus.SUCCEEDED,
        "crash": RunStatus.FAILED,
    }
    crashed = runs["crash"]
    assert crashed.error is not None
    assert crashed.error.code == "RunGivenUp"
    assert crashed.stalled >= MAX_ATTEMPTS
    assert crashed.stalled_alone >= MAX_ATTEMPTS_ALONE


async def test_suspects_are_resumed_in_groups_then_alone() -> None:
    began: list[list[str]] = []
    tasks = [_suspect(f"once-{number}", stalled=1) for number in range(GROUP_SIZE + 1)]
    tasks += [_suspect("alone-before", stalled=3, stalled_alone=1), _suspect("never-alone", stalled=3)]
    group: list[str] = []

    def begin(task: RunTask) -> None:
        group.append(task.run.id)
        assert task.has_progressed is not None
        asyncio.get_running_loop().call_soon(end_of_group, task)

    def end_of_group(task: RunTask) -> None:
        if group:
            began.append(group.copy())
            group.clear()
        assert task.has_progressed is not None
        task.has_progressed.set()

    await SuspectRuns(tasks, others=[], begin=begin, save=_save).resume()

    once = [f"once-{number}" for number in range(GROUP_SIZE + 1)]
    assert began == [once[:GROUP_SIZE], once[GROUP_SIZE:], ["never-alone"], ["alone-before"]]
    assert [task.run.id for task in tasks if task.is_alone] == [once[-1], "alone-before", "never-alone"]


async def test_a_suspect_without_progress_is_not_alone_when_the_next_one_starts() -> None:
    slow, next_one = _suspect("slow", stalled=2), _suspect("next", stalled=2, stalled_alone=1)

    def begin(task: RunTask) -> None:
        task.run.resumed_alone = task.is_alone
        if task is next_one:
            assert (slow.run.resumed_alone, next_one.is_alone) == (False, False)

    await SuspectRuns([slow, next_one], others=[], begin=begin, save=_save, trial_seconds=0.01).resume()
    assert slow.is_alone


async def test_a_suspect_that_counts_another_attempt_is_not_started_again() -> None:
    """Started twice, it would be executed twice at the same time."""
    tasks = [_suspect("once", stalled=1), _suspect("also-once", stalled=1), _suspect("twice", stalled=2)]
    began: list[str] = []

    def begin(task: RunTask) -> None:
        began.append(task.run.id)
        task.run.stalled += 1
        assert task.has_progressed is not None
        task.has_progressed.set()

    await SuspectRuns(tasks, others=[], begin=begin, save=_save).resume()
    assert began == ["once", "also-once", "twice"]


async def test_a_clean_stop_is_no_attempt_without_progress(tmp_path: Path) -> None:
    """Updates of the server during one slow call of the model do not fail the run."""
    calls = 0

    async def answer(_: LlmRequest) -> str:
        nonlocal calls
        calls += 1
        called.set()
        await asyncio.Event().wait()
        return "never"

    called = asyncio.Event()
    agent = LlmAgent(name="desk", model=ScriptedModel(answer))
    async with stores_in(tmp_path) as stores:
        async with engine_over(stores, agent) as engine:
            run, attachment = await start(engine, asking("go"))
            await _until(called)
            attachment.close()
        for _ in range(MAX_ATTEMPTS + 1):
            async with engine_over(stores, agent) as engine:
                assert await engine.recover() == 1
                await _until(called)
        stored = await stores.runs.get(run.id)

    assert stored is not None
    assert (stored.status, stored.stalled, calls) == (RunStatus.RUNNING, 0, MAX_ATTEMPTS + 2)


async def test_a_suspect_that_has_not_been_resumed_can_be_cancelled() -> None:
    """It waits for a run that makes no progress."""
    agent = LlmAgent(name="desk", model=ScriptedModel(["done"]))
    async with stores_in(None) as stores:
        suspect = Run(**WHERE, id="e-1", status=RunStatus.RUNNING, created_at=1.0, stalled=1, request=asking("go"))
        await stores.runs.save(suspect)
        async with engine_over(stores, agent) as engine:
            await engine.recover()
            cancelled = await engine.cancel("e-1", reason="a client asked for it")
            assert cancelled.status is RunStatus.CANCELLED
            assert (await finish(engine, asking("again"))).status is RunStatus.SUCCEEDED


async def test_a_suspect_begins_once_though_an_earlier_run_of_its_session_ends() -> None:
    """Both records say `running`: the end of the first one was not stored before the process died."""
    calls = 0

    async def answer(_: LlmRequest) -> str:
        nonlocal calls
        calls += 1
        return "done"

    agent = LlmAgent(name="desk", model=ScriptedModel(answer))
    async with stores_in(None) as stores:
        for run_id, stalled in (("e-1", 0), ("e-2", 1)):
            run = Run(**WHERE, id=run_id, status=RunStatus.RUNNING, created_at=1.0, stalled=stalled)
            run.request = asking(run_id)
            await stores.runs.save(run)
        async with engine_over(stores, agent) as engine:
            await engine.recover()
            ends = [await end_of(engine, run_id) for run_id in ("e-1", "e-2")]
            texts = [event.content.text() for event in await stores.log() if event.content is not None]

    assert [(end.status, end.attempts) for end in ends] == [(RunStatus.SUCCEEDED, 1)] * 2
    assert (calls, texts) == (2, ["e-1", "done", "e-2", "done"])


def _suspect(run_id: str, *, stalled: int, stalled_alone: int = 0) -> RunTask:
    where: dict[str, Any] = {**WHERE, "session_id": run_id}
    run = Run(
        **where, id=run_id, status=RunStatus.RUNNING, created_at=1.0, stalled=stalled, stalled_alone=stalled_alone
    )
    app = App(name="desk", root_agent=LlmAgent(name="desk", model=ScriptedModel(["done"])))
    runner = Runner(app=app, session_service=InMemorySessionService())
    return RunTask(run, runner, is_held=True)


async def _save(_: RunTask) -> None: ...


async def _until(called: asyncio.Event) -> None:
    async with asyncio.timeout(5):
        await called.wait()
    called.clear()


async def _start_run(http: httpx.AsyncClient, session_id: str) -> None:
    """Sends a message that is also the session's id. Returns when the run has begun or the server has ended."""
    where = {"appName": "a", "userId": "ann", "sessionId": session_id}
    (await http.post("/apps/a/users/ann/sessions", json={"sessionId": session_id})).raise_for_status()
    message = {"role": "user", "parts": [{"text": session_id}]}
    with contextlib.suppress(httpx.TransportError):
        async with http.stream("POST", "/run_sse", json={**where, "newMessage": message}) as reply:
            assert reply.status_code == 200


async def _runs(folder: Path) -> dict[str, Run]:
    """By session."""
    store = SqliteRunStore(folder / "greenroom.db")
    try:
        return {run.session_id: run for run in (await store.list_runs(RunFilter())).runs}
    finally:
        await store.close()


async def _all_have_ended(folder: Path) -> bool:
    return all(run.status.is_over for run in (await _runs(folder)).values())
