"""A database of an earlier commit opens, and is read and continued as its own process would have done.

Each `data/written_by_COMMIT.sqlite3` was written by an engine of that commit, whose process was killed: a session with
state and imported changes, a run that waits for an approval, one with an open long-running call, one that was cut off
in a tool, and one in the queue after it. The clock was 60 years ahead, so that the approval does not expire.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from greenroom import FunctionTool, LongRunningFunctionTool
from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.app import App
from greenroom.apps.loader import StaticAppLoader
from greenroom.records.content import Content, FunctionResponse, Part
from greenroom.records.model_exchange import LlmRequest
from greenroom.records.run import AgentRunRequest, Run, RunFilter, RunStatus
from greenroom.records.session import Session
from greenroom.runs.in_process import InProcessRunEngine
from greenroom.runs.sqlite_store import SqliteRunStore
from greenroom.sessions.sqlite import SqliteSessionService
from greenroom.testing.scripted_model import ScriptedModel
from tests.durability.engines import end_of, finish

_DATA = Path(__file__).parent / "data"


@pytest.fixture(params=["441b906", "61cc3c6"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return Path(shutil.copy(_DATA / f"written_by_{request.param}.sqlite3", tmp_path / "greenroom.db"))


@pytest.fixture
async def sessions(path: Path) -> AsyncIterator[SqliteSessionService]:
    service = SqliteSessionService(path)
    yield service
    await service.close()


@pytest.fixture
async def engine(path: Path, sessions: SqliteSessionService) -> AsyncIterator[InProcessRunEngine]:
    def answer(request: LlmRequest) -> str:
        return "done" if any(part.function_response for part in request.contents[-1].parts or ()) else "re"

    async def pay(amount: int) -> dict[str, int]:
        return {"paid": amount}

    def export() -> None:
        """Answers later."""

    async def stall() -> None:
        raise AssertionError("its call was cut off, and is reported")

    tools = [
        FunctionTool(pay, require_confirmation=True),
        LongRunningFunctionTool(export),
        FunctionTool(stall, on_interrupt="report"),
    ]
    agent = LlmAgent(name="desk", model=ScriptedModel(answer), tools=tools)
    engine = InProcessRunEngine(
        apps=StaticAppLoader([App(name="desk", root_agent=agent)]),
        run_store=SqliteRunStore(path),
        session_service=sessions,
    )
    yield engine
    await engine.close(grace_seconds=0)


async def _session(sessions: SqliteSessionService, session_id: str) -> Session:
    session = await sessions.get_session(app_name="desk", user_id="ann", session_id=session_id)
    assert session is not None
    return session


async def _run_of(engine: InProcessRunEngine, session_id: str, status: RunStatus) -> Run:
    (run,) = (await engine.list_runs(RunFilter(session_id=session_id, statuses=[status]))).runs
    return run


def _answering(session_id: str, response: FunctionResponse) -> AgentRunRequest:
    message = Content(role="user", parts=[Part(function_response=response)])
    return AgentRunRequest(app_name="desk", user_id="ann", session_id=session_id, new_message=message)


async def test_sessions_and_runs_are_read(engine: InProcessRunEngine, sessions: SqliteSessionService) -> None:
    listed = (await sessions.list_sessions(app_name="desk")).sessions
    assert sorted(session.id for session in listed) == ["approval", "export", "killed", "talk"]
    talk = await _session(sessions, "talk")
    assert talk.state == {
        "mood": "better",
        "patched": {"x": [1, 2]},
        "user:name": "Ann",
        "user:lang": "da",
        "app:motto": "be kind",
    }
    texts = [event.content.text() if event.content else None for event in talk.events]
    assert texts == ["hello", "re: hello", "smørrebrød \u2028 \U0001f95e", "re: smørrebrød \u2028 \U0001f95e", None]
    first, second = (await engine.list_runs(RunFilter(session_id="talk"))).runs[::-1]
    assert (first.status, first.idempotency_key, second.after_seq) == (RunStatus.SUCCEEDED, "k-1", 2)
    assert {run.status for run in (await engine.list_runs(RunFilter())).runs} == {
        RunStatus.SUCCEEDED,
        RunStatus.WAITING,
        RunStatus.RUNNING,
        RunStatus.QUEUED,
    }


async def test_sessions_are_read_as_they_were_and_forked(sessions: SqliteSessionService) -> None:
    talk = await _session(sessions, "talk")
    shared = {key: value for key, value in talk.state.items() if ":" in key}
    for seq, own in ((2, {}), (4, {"mood": "better"}), (5, {"mood": "better", "patched": {"x": [1, 2]}})):
        fork = await sessions.fork_session(app_name="desk", user_id="ann", session_id="talk", seq=seq)
        assert fork.state == {**own, **shared}
        assert list((await _session(sessions, fork.id)).events) == list(talk.events)[:seq]


async def test_runs_that_were_cut_off_and_queued_are_resumed(
    engine: InProcessRunEngine, sessions: SqliteSessionService
) -> None:
    running = await _run_of(engine, "killed", RunStatus.RUNNING)
    queued = await _run_of(engine, "killed", RunStatus.QUEUED)
    assert await engine.recover() == 2
    ended = [await end_of(engine, run.id) for run in (running, queued)]
    assert [run.status for run in ended] == [RunStatus.SUCCEEDED] * 2
    assert [run.attempts for run in ended] == [2, 1]
    log = (await _session(sessions, "killed")).events
    assert [event.invocation_id for event in log] == [running.id] * 4 + [queued.id] * 2
    assert "interrupted" in str(log[2].get_function_responses()[0].response)


async def test_runs_that_wait_are_answered(engine: InProcessRunEngine, sessions: SqliteSessionService) -> None:
    waiting = await _run_of(engine, "approval", RunStatus.WAITING)
    (request_id,) = waiting.asked
    approved = FunctionResponse(id=request_id, name="adk_request_confirmation", response={"confirmed": True})
    run = await finish(engine, _answering("approval", approved))
    assert (run.id, run.status) == (waiting.id, RunStatus.SUCCEEDED)
    responses = [
        response
        for event in (await _session(sessions, "approval")).events
        for response in event.get_function_responses()
    ]
    assert responses[-1].response == {"paid": 5}

    waiting = await _run_of(engine, "export", RunStatus.WAITING)
    exported = FunctionResponse(id="c-export", name="export", response={"rows": 7})
    run = await finish(engine, _answering("export", exported))
    assert (run.id, run.status) == (waiting.id, RunStatus.SUCCEEDED)


async def test_the_new_commit_adds_to_old_sessions(engine: InProcessRunEngine, sessions: SqliteSessionService) -> None:
    message = Content(role="user", parts=[Part(text="still there?")])
    request = AgentRunRequest(app_name="desk", user_id="ann", session_id="talk", new_message=message)
    assert (await finish(engine, request)).status is RunStatus.SUCCEEDED
    assert len((await _session(sessions, "talk")).events) == 7
