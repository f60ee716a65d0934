"""Runs that waited, or were cut off, while the folder of their app changed."""

from __future__ import annotations

import asyncio
import zipfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from greenroom.apps.load_built import BuiltOutputLoader
from greenroom.apps.load_directory import DirectoryAppLoader
from greenroom.apps.loader import AppLoader
from greenroom.errors import AppVersionChanged
from greenroom.records.content import FunctionResponse, Part
from greenroom.records.event import Event
from greenroom.records.human_requests import requests_in
from greenroom.records.run import Run, RunStatus
from greenroom.runs.in_process import InProcessRunEngine
from tests.durability.engines import WHERE, asking, end_of, finish, start, stores_in, wait_for

_AGENT = '''
from greenroom import App, FunctionTool, LlmAgent
from tests.durability.scripts import call, model_of

def {tool}(to: str, amount: str) -> dict:
    """Pays."""
    return {{"paid_by": "{tool}"}}

agent = LlmAgent(
    name="clerk",
    model=model_of(call("pay", "c-1", to="Roof", amount="7"), "done"),
    tools=[FunctionTool({tool}, require_confirmation=True)],
)
app = App(name="desk", root_agent=agent, on_version_change="{policy}")
'''

_SLEEPER = """
from greenroom import App, LlmAgent
from greenroom.tools.builtin.sleep import wait
from tests.durability.scripts import call, model_of

agent = LlmAgent(name="{agent}", model=model_of(call("wait", "c-1", seconds=0.2), "awake"), tools=[wait])
app = App(name="desk", root_agent=agent, on_version_change="refuse")
"""

_SLOW = '''
import asyncio
from greenroom import App, FunctionTool, LlmAgent
from tests.durability.scripts import call, model_of

async def work() -> dict:
    """Works."""
    await asyncio.sleep({seconds})
    return {{"worked": True}}

agent = LlmAgent(
    name="{agent}", model=model_of(call("work", "c-1"), "done"), tools=[FunctionTool(work, on_interrupt="retry")]
)
app = App(name="desk", root_agent=agent, on_version_change="refuse")
'''


def write(folder: Path, text: str) -> Path:
    (folder / "desk").mkdir(parents=True, exist_ok=True)
    (folder / "desk" / "agent.py").write_text(text)
    return folder


@asynccontextmanager
async def engine_in(folder: Path, apps: AppLoader) -> AsyncGenerator[InProcessRunEngine]:
    """An engine over the database of the folder, as a process has it."""
    async with stores_in(folder) as stores:
        engine = InProcessRunEngine(apps=apps, run_store=stores.runs, session_service=stores.sessions)
        try:
            yield engine
        finally:
            async with asyncio.timeout(10):
                await engine.close(grace_seconds=0.0)
            apps.close()


async def log_of(engine: InProcessRunEngine) -> list[Event]:
    return (await engine.session_service.list_events(**WHERE)).events


async def approve(engine: InProcessRunEngine) -> Run:
    [request] = [call for event in await log_of(engine) for call in requests_in(event)]
    answer = FunctionResponse(id=request.id, name=request.name, response={"confirmed": True})
    return await finish(engine, asking(Part(function_response=answer)))


async def responses(engine: InProcessRunEngine) -> list[object]:
    found = [response.response for event in await log_of(engine) for response in event.get_function_responses()]
    return [response["paid_by"] for response in found if response and "paid_by" in response]


@pytest.mark.parametrize("policy", ["continue", "refuse", "pin"])
async def test_an_equal_replay_continues_with_the_new_code(policy: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "apps", _AGENT.format(tool="pay", policy=policy))
    async with engine_in(tmp_path, DirectoryAppLoader(folder)) as engine:
        waiting = await finish(engine, asking("go"))
        assert waiting.status is RunStatus.WAITING
    write(folder, _AGENT.format(tool="pay", policy=policy) + "# a comment\n")
    async with engine_in(tmp_path, DirectoryAppLoader(folder)) as engine:
        run = await approve(engine)
        assert run.status is RunStatus.SUCCEEDED
        assert run.app_version not in (None, waiting.app_version)
        assert await responses(engine) == ["pay"]


@pytest.mark.parametrize("policy", ["refuse", "pin"])
async def test_a_different_replay_refuses_the_answer_and_the_run_waits(policy: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "apps", _AGENT.format(tool="pay", policy=policy))
    async with engine_in(tmp_path, DirectoryAppLoader(folder)) as engine:
        waiting = await finish(engine, asking("go"))
        log = await log_of(engine)

    write(folder, _AGENT.format(tool="transfer", policy=policy))
    async with engine_in(tmp_path, DirectoryAppLoader(folder)) as engine:
        with pytest.raises(AppVersionChanged) as refused:
            await approve(engine)
        assert "Event 2: agent 'clerk' calls pay(amount, to); now it has no tool" in refused.value.detail
        assert (refused.value.was, refused.value.seq) == (waiting.app_version, 2)
        kept = await engine.get(waiting.id)
        assert (kept.status, kept.app_version, kept.asked) == (waiting.status, waiting.app_version, waiting.asked)
        assert await log_of(engine) == log
        assert engine.load() == {}

    write(folder, _AGENT.format(tool="pay", policy=policy))
    async with engine_in(tmp_path, DirectoryAppLoader(folder)) as engine:
        assert (await approve(engine)).status is RunStatus.SUCCEEDED


async def test_by_default_a_run_continues_with_other_code(tmp_path: Path) -> None:
    folder = write(tmp_path / "apps", _AGENT.format(tool="pay", policy="continue"))
    async with engine_in(tmp_path, DirectoryAppLoader(folder)) as engine:
        await finish(engine, asking("go"))
    write(folder, _AGENT.format(tool="transfer", policy="continue"))
    async with engine_in(tmp_path, DirectoryAppLoader(folder)) as engine:
        assert (await approve(engine)).status is RunStatus.SUCCEEDED
        assert await responses(engine) == []


async def test_a_pinned_run_continues_with_the_version_that_was_reloaded(tmp_path: Path) -> None:
    folder = write(tmp_path / "apps", _AGENT.format(tool="pay", policy="pin"))
    loader = DirectoryAppLoader(folder)
    async with engine_in(tmp_path, loader) as engine:
        loader.refresh()
        waiting = await finish(engine, asking("go"))
        write(folder, _AGENT.format(tool="transfer", policy="pin"))
        while not loader.refresh():
            await asyncio.sleep(0.01)
        await engine.session_service.create_session(app_name="desk", user_id="ann", session_id="s-2")
        new = asking("go")
        new.session_id = "s-2"
        assert (await finish(engine, new)).app_version != waiting.app_version

        run = await approve(engine)
        assert (run.status, run.app_version) == (RunStatus.SUCCEEDED, waiting.app_version)
        assert await responses(engine) == ["pay"]


async def test_a_pinned_run_continues_with_an_earlier_build_output(tmp_path: Path) -> None:
    dist = tmp_path / "dist"
    build(dist / "desk-1.zip", "pay")
    async with engine_in(tmp_path, BuiltOutputLoader(source_dir=tmp_path)) as engine:
        waiting = await finish(engine, asking("go"))
    build(dist / "desk-2.zip", "transfer")
    async with engine_in(tmp_path, BuiltOutputLoader(source_dir=tmp_path)) as engine:
        run = await approve(engine)
        assert (run.status, run.app_version) == (RunStatus.SUCCEEDED, waiting.app_version)
        assert await responses(engine) == ["pay"]


async def test_a_pinned_run_is_refused_without_its_build_output(tmp_path: Path) -> None:
    dist = tmp_path / "dist"
    build(dist / "desk-1.zip", "pay")
    async with engine_in(tmp_path, BuiltOutputLoader(source_dir=tmp_path)) as engine:
        await finish(engine, asking("go"))
    (dist / "desk-1.zip").unlink()
    build(dist / "desk-2.zip", "transfer")
    async with engine_in(tmp_path, BuiltOutputLoader(source_dir=tmp_path)) as engine:
        with pytest.raises(AppVersionChanged, match="This server does not have the earlier version"):
            await approve(engine)


def build(path: Path, tool: str) -> None:
    path.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("desk/__init__.py", "")
        archive.writestr("desk/agent.py", _AGENT.format(tool=tool, policy="pin"))


@pytest.mark.parametrize(("agent", "status"), [("clerk", RunStatus.SUCCEEDED), ("boss", RunStatus.FAILED)])
async def test_a_run_that_was_cut_off_is_replayed_before_it_continues(
    agent: str, status: RunStatus, tmp_path: Path
) -> None:
    folder = write(tmp_path / "apps", _SLOW.format(seconds=60, agent="clerk"))
    async with engine_in(tmp_path, DirectoryAppLoader(folder)) as engine:
        run, attachment = await start(engine, asking("go"))
        await wait_for(attachment, lambda event: bool(event.get_function_calls()))
    write(folder, _SLOW.format(seconds=0, agent=agent))
    async with engine_in(tmp_path, DirectoryAppLoader(folder)) as engine:
        assert await engine.recover() == 1
        ended = await end_of(engine, run.id)
        assert ended.status is status
        if ended.error is not None:
            assert ended.error.code == "AppVersionChanged"
            assert "now agent 'boss' asks its model" in ended.error.message


async def test_a_sleeping_run_that_differs_is_not_woken(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = write(tmp_path / "apps", _SLEEPER.format(agent="clerk"))
    async with engine_in(tmp_path, DirectoryAppLoader(folder)) as engine:
        waiting = await finish(engine, asking("go"))
        assert waiting.status is RunStatus.WAITING

    write(folder, _SLEEPER.format(agent="boss"))
    async with engine_in(tmp_path, DirectoryAppLoader(folder)) as engine:
        await engine.recover()
        async with asyncio.timeout(10):
            while "can't continue, and is tried again" not in caplog.text:
                await asyncio.sleep(0.02)
        assert "now agent 'boss' asks its model" in caplog.text
        assert (await engine.get(waiting.id)).status is RunStatus.WAITING

    write(folder, _SLEEPER.format(agent="clerk") + "# corrected\n")
    async with engine_in(tmp_path, DirectoryAppLoader(folder)) as engine:
        message = answer_of_timer(await log_of(engine))
        assert (await finish(engine, asking(message))).status is RunStatus.SUCCEEDED


def answer_of_timer(log: list[Event]) -> Part:
    [call] = [call for event in log for call in event.get_function_calls()]
    return Part(function_response=FunctionResponse(id=call.id, name=call.name, response={"waited": True}))
