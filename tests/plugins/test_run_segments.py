"""Callbacks of plugins when a run waits, resumes, is stopped, or fails in a plugin."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.app import App
from greenroom.apps.loader import StaticAppLoader
from greenroom.errors import PluginFailed
from greenroom.invocation.context import InvocationContext
from greenroom.plugins.plugin import BasePlugin
from greenroom.plugins.recording import RecordingsPlugin
from greenroom.plugins.recordings_file import RECORDINGS_CONFIG
from greenroom.plugins.replay import ReplayPlugin
from greenroom.records.content import Content, Part
from greenroom.records.event import Event
from greenroom.records.run import Run, RunStatus
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.functions.function_tool import LongRunningFunctionTool
from tests.agents.talk import answer, call, lines_of
from tests.durability.engines import WHERE, Stores, asking, end_of, ended, engine_over, finish, start, stores_in
from tests.durability.scripts import call as durable_call
from tests.durability.scripts import model_of
from tests.plugins.watched import WatchedTalk
from tests.server.conftest import Serve
from tests.server.serving import Frame


class Recorder(BasePlugin):
    """Records the callbacks at the start and end of each segment. fails: where it raises. answers: before_run's answer."""

    def __init__(self, name: str = "recorder", *, fails: str = "", answers: str = "") -> None:
        super().__init__(name)
        self.seen: list[str] = []
        self._fails = fails
        self._answers = answers

    async def on_user_message_callback(self, *, invocation_context: InvocationContext, user_message: Content) -> None:
        self._note("message")

    async def before_run_callback(self, *, invocation_context: InvocationContext) -> Content | None:
        self._note("goes on" if invocation_context.was_cut_off else "begins")
        return Content(role="model", parts=[Part(text=self._answers)]) if self._answers else None

    async def on_event_callback(self, *, invocation_context: InvocationContext, event: Event) -> None:
        self._note("event", noted=False)

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        self._note("ends")

    async def on_run_error_callback(self, *, invocation_context: InvocationContext, error: Exception) -> None:
        self._note(f"fails with {type(error).__name__}")

    def _note(self, what: str, *, noted: bool = True) -> None:
        if noted:
            self.seen.append(what)
        if what == self._fails:
            raise RuntimeError("broken")


class Held:
    """A tool that tells when it is being called, and waits for ever."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()

    async def hold(self) -> str:
        """Waits."""
        self.begun.set()
        await asyncio.Event().wait()
        return "never"


def _desk(model: ScriptedModel, **more: Any) -> LlmAgent:
    return LlmAgent(name="desk", model=model, **more)


def _holding() -> tuple[LlmAgent, Held]:
    held = Held()
    return _desk(model_of(durable_call("hold", "c-1"), "Never said."), tools=[held.hold]), held


async def _as_if_cut_off(stores: Stores) -> None:
    """A run of which the message is stored, and no more."""
    session = await stores.session()
    message = Content(role="user", parts=[Part(text="go")])
    await stores.sessions.append(session, Event(invocation_id="e-1", author="user", content=message))
    run = Run(id="e-1", **WHERE, status=RunStatus.RUNNING, created_at=1.0, attempts=1, request=asking("go"))
    await stores.runs.save(run)


async def test_a_run_that_waits_is_two_segments() -> None:
    def order() -> None:
        """Orders something."""

    plugin = Recorder()
    model = ScriptedModel([call("order", "c-1"), "It came."])
    talk = WatchedTalk(_desk(model, tools=[LongRunningFunctionTool(order)]), plugin)
    await talk.say("go")
    assert plugin.seen == ["message", "begins", "ends"]
    await talk.say(answer("order", "c-1", {"status": "here"}))
    assert plugin.seen == ["message", "begins", "ends"] * 2


async def test_a_run_that_was_cut_off_begins_again_for_plugins_without_its_message() -> None:
    plugin = Recorder()
    async with stores_in(None) as stores:
        await _as_if_cut_off(stores)
        async with engine_over(stores, _desk(model_of("Done.")), plugins=[plugin]) as engine:
            await engine.recover()
            assert (await end_of(engine, "e-1")).status is RunStatus.SUCCEEDED
    assert plugin.seen == ["goes on", "ends"]


async def test_a_plugin_may_answer_for_a_run_that_was_cut_off() -> None:
    model = model_of("Never said.")
    async with stores_in(None) as stores:
        await _as_if_cut_off(stores)
        async with engine_over(stores, _desk(model), plugins=[Recorder(answers="Closed today.")]) as engine:
            await engine.recover()
            assert (await end_of(engine, "e-1")).status is RunStatus.SUCCEEDED
        assert lines_of(await stores.log()) == ["user: go", "model: Closed today."]
    assert model.requests == []


async def test_a_run_that_was_cut_off_is_not_recorded_as_if_it_were_whole(tmp_path: Any) -> None:
    async with stores_in(None) as stores:
        settings = {"dir": str(tmp_path), "user_message_index": 0}
        session = await stores.session()
        event = Event(author="user")
        event.actions.state_delta[RECORDINGS_CONFIG] = settings
        await stores.sessions.append(session, event)
        await _as_if_cut_off(stores)
        async with engine_over(stores, _desk(model_of("Done.")), plugins=[RecordingsPlugin()]) as engine:
            await engine.recover()
            run = await end_of(engine, "e-1")
    assert run.error is not None
    assert "was not recorded from its beginning" in run.error.message
    assert list(tmp_path.iterdir()) == []


async def test_a_cancelled_run_ends_once() -> None:
    plugin = Recorder()
    agent, held = _holding()
    async with stores_in(None) as stores, engine_over(stores, agent, plugins=[plugin]) as engine:
        run, reader = await start(engine, asking("go"))
        await asyncio.wait_for(held.begun.wait(), 5)
        await engine.cancel(run.id, reason="asked by a test")
        assert (await ended(reader)).status is RunStatus.CANCELLED
        assert plugin.seen == ["message", "begins", "ends"]
    assert plugin.seen == ["message", "begins", "ends"]


async def test_a_run_whose_reader_goes_away_ends_once() -> None:
    plugin = Recorder()
    agent, held = _holding()
    talk = WatchedTalk(agent, plugin)
    reading = asyncio.create_task(talk.say("go"))
    await asyncio.wait_for(held.begun.wait(), 5)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert plugin.seen == ["message", "begins", "ends"]


async def test_a_run_past_its_deadline_fails_once() -> None:
    plugin = Recorder()
    agent, _ = _holding()
    async with stores_in(None) as stores, engine_over(stores, agent, plugins=[plugin]) as engine:
        run = await finish(engine, asking("go", deadline_seconds=0.05))
        assert run.status is RunStatus.FAILED
    assert plugin.seen == ["message", "begins", "fails with DeadlineExceeded"]


async def test_a_run_that_its_process_leaves_behind_has_not_ended() -> None:
    plugin = Recorder()
    agent, held = _holding()
    async with stores_in(None) as stores, engine_over(stores, agent, plugins=[plugin]) as engine:
        await start(engine, asking("go"))
        await asyncio.wait_for(held.begun.wait(), 5)
        await engine.close(grace_seconds=0)
        assert plugin.seen == ["message", "begins"]


@pytest.mark.parametrize(
    ("point", "hook", "seen"),
    [
        ("message", "on_user_message_callback", ["message"]),
        ("begins", "before_run_callback", ["message", "begins"]),
        ("event", "on_event_callback", ["message", "begins"]),
        ("ends", "after_run_callback", ["message", "begins", "ends"]),
    ],
)
async def test_an_error_in_a_plugin_ends_the_run_with_an_error_event_and_a_last_frame(
    serve: Serve,
    point: str,
    hook: str,
    seen: list[str],
) -> None:
    plugin = Recorder(fails=point)
    app = App(name="desk", root_agent=_desk(model_of("Good day.")), plugins=[plugin])
    server = await serve(services={"app_loader": StaticAppLoader([app])})
    path = await server.new_session("desk")
    frames: list[Frame] = await server.sse("desk", streaming=True)
    assert plugin.seen == [*seen, "fails with PluginFailed"]
    problem = f"Plugin 'recorder' failed in {hook}: RuntimeError: broken"
    shown = next(frame for frame in frames if frame.data.get("errorCode"))
    assert (shown.data["errorCode"], shown.data["errorMessage"]) == ("PluginFailed", problem)
    assert problem in str(frames[-1].data)
    log = (await server.client.get(path)).json()["events"]
    assert (log[-1]["errorCode"], log[-1]["errorMessage"]) == ("PluginFailed", problem)
    run = (await server.client.get(f"/runs/{log[-1]['invocationId']}")).json()
    assert (run["status"], run["error"]["message"]) == ("failed", problem)


async def test_a_missing_recording_is_an_error_for_the_client(serve: Serve, tmp_path: Path) -> None:
    app = App(name="desk", root_agent=_desk(model_of("Good day.")), plugins=[ReplayPlugin()])
    server = await serve(services={"app_loader": StaticAppLoader([app])})
    path = await server.new_session("desk")
    replay = {"_adk_replay_config": {"dir": str(tmp_path), "user_message_index": 0}}
    reply = await server.run("desk", stateDelta=replay)
    assert (reply.status_code, reply.json()["type"]) == (400, "urn:greenroom:error:replay-config-error")
    log = (await server.client.get(path)).json()["events"]
    assert log[-1]["errorCode"] == "ReplayConfigError"
    assert "generated-recordings.yaml can't be read" in log[-1]["errorMessage"]


async def test_when_one_fails_in_after_run_the_others_see_a_failed_run() -> None:
    first, second = Recorder("first", fails="ends"), Recorder("second")
    with pytest.raises(PluginFailed):
        await WatchedTalk(_desk(model_of("Good day.")), first, second).say("go")
    assert first.seen[2:] == ["ends", "fails with PluginFailed"]
    assert second.seen[2:] == ["fails with PluginFailed"]
