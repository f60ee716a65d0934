"""Every stored session replays equal to itself, and a changed agent's first departure is shown."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from greenroom import App, LlmAgent
from greenroom.agents.agent import BaseAgent
from greenroom.cli.recordings import _difference
from greenroom.evaluation.recorded_case import RecordedCase, spec_of
from greenroom.evaluation.replay import replay_session, rerun_session
from greenroom.invocation.user_context import ToolContext
from greenroom.plugins.recording import recording_of
from greenroom.plugins.recordings_file import dump_recordings
from greenroom.records.content import Blob, FunctionCall
from greenroom.records.event import Event, EventActions
from greenroom.records.identifiers import new_state_patch_id
from greenroom.records.model_exchange import LlmResponse
from greenroom.records.run import RunConfig
from greenroom.records.session import Session
from greenroom.records.state import REMOVED
from greenroom.runner.in_memory import InMemoryRunner
from greenroom.testing import Hears, Says, ScriptedLiveModel
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.functions.function_tool import FunctionTool
from tests.agents.human_input.approvals import Till, decide, request_ids
from tests.agents.live.calls import calling
from tests.agents.talk import STREAMED, Talk, call

Agents = Callable[[ScriptedModel], BaseAgent]


async def stored(talk: Talk) -> Session:
    session = await talk._session()
    assert session is not None
    return session


async def replays_equal(agent: BaseAgent, session: Session, folder: Path) -> None:
    """From memory with and without its tools, and from files. agent: with a model that must not be asked."""
    app = App(name="app", root_agent=agent)
    assert await replay_session(app, session, run_tools=True) == ""
    assert await replay_session(app, session) == ""
    case = RecordedCase(folder / "talk" / "case", "none")
    case.clear()
    case.recordings_path.write_text(dump_recordings(recording_of(session)))
    case.write(spec_of(session), session)
    assert await _difference(app, case, run_tools=True, verify_requests=True) == ""


def silent() -> ScriptedModel:
    return ScriptedModel([])


async def test_a_session_with_patched_state_and_custom_metadata_replays_equal(tmp_path: Path) -> None:
    talk = Talk(LlmAgent(name="a", model=ScriptedModel(["one", "two"])), state={"unit": "C"})
    await talk.say("1", run_config=RunConfig(custom_metadata={"trace": "t-1"}), state_delta={"mood": "good"})
    for delta in ({"plan": "pro"}, {"plan": REMOVED, "seats": 3}):
        actions = EventActions(state_delta=dict(delta))
        patch = Event(author="user", invocation_id=new_state_patch_id(), actions=actions)
        await talk.runner.session_service.append(await stored(talk), patch)
        if delta["plan"] == "pro":
            await talk.say("2", run_config=RunConfig(custom_metadata={"trace": "t-2"}))
    session = await stored(talk)
    assert session.state == {"unit": "C", "mood": "good", "seats": 3}
    await replays_equal(LlmAgent(name="a", model=silent()), session, tmp_path)


async def test_edited_approval_arguments_replay_equal(tmp_path: Path) -> None:
    till = Till()

    def agent(model: ScriptedModel) -> LlmAgent:
        return LlmAgent(name="a", model=model, tools=[FunctionTool(till.pay, require_confirmation=True)])

    talk = Talk(agent(ScriptedModel([call("pay", amount=5), "Paid."])))
    [request] = request_ids(await talk.say("pay 5"))
    await talk.say(decide(request, payload={"amount": 3}))
    session = await stored(talk)
    assert till.paid == [3]
    await replays_equal(agent(silent()), session, tmp_path)
    assert till.paid == [3] * 3  # once with its tools, once more from files; without its tools not at all


async def cancelled(agent: BaseAgent, after: Callable[[Event], bool], **options: Any) -> Session:
    """A session whose run is cut off after an event."""
    talk = Talk(agent)
    async with aclosing(talk.events("go", **options)) as events:
        async for event in events:
            if after(event):
                break
    session = await stored(talk)
    assert session.events[-1].error_code == "INVOCATION_ABORTED"
    return session


def add(a: int, tool_context: ToolContext) -> int:
    tool_context.state["sum"] = tool_context.state.get("sum", 0) + a
    return tool_context.state["sum"]


async def test_a_run_that_was_cancelled_while_it_spoke_replays_equal(tmp_path: Path) -> None:
    def agent(model: ScriptedModel) -> LlmAgent:
        return LlmAgent(name="a", model=model, tools=[add])

    model = ScriptedModel([call("add", a=1), "This is a long answer"])
    session = await cancelled(agent(model), lambda event: bool(event.partial), run_config=STREAMED)
    assert session.events[-1].content is not None
    assert session.events[-1].content.text() == "This "
    await replays_equal(agent(silent()), session, tmp_path)


async def test_a_run_that_was_cancelled_before_its_tool_or_its_model_answered_replays_equal(tmp_path: Path) -> None:
    def agent(model: ScriptedModel) -> LlmAgent:
        return LlmAgent(name="a", model=model, tools=[add])

    session = await cancelled(agent(ScriptedModel([call("add", a=1)])), lambda event: bool(event.get_function_calls()))
    await replays_equal(agent(silent()), session, tmp_path / "tool")
    session = await cancelled(
        agent(ScriptedModel([call("add", a=1), "never"])), lambda event: bool(event.get_function_responses())
    )
    await replays_equal(agent(silent()), session, tmp_path / "model")


async def test_a_tool_that_raised_replays_equal(tmp_path: Path) -> None:
    def lookup(key: str, tool_context: ToolContext) -> str:
        tool_context.state["asked"] = key
        return {"a": "found"}[key]

    def agent(model: ScriptedModel) -> LlmAgent:
        return LlmAgent(name="a", model=model, tools=[lookup, add])

    both = [call("add", a=1), call("lookup", key="b")]
    talk = Talk(agent(ScriptedModel([call("lookup", key="a"), both, "And now?"])))
    with pytest.raises(KeyError):
        await talk.say("go")
    await talk.say("again")
    session = await stored(talk)
    assert [event.error_code for event in session.events if event.error_code] == ["KeyError"]
    await replays_equal(agent(silent()), session, tmp_path)


async def test_a_live_session_replays_equal(tmp_path: Path) -> None:
    def agent(model: ScriptedModel) -> LlmAgent:
        return LlmAgent(name="desk", model=model, tools=[add])

    script = [
        "Hello there.",
        [Says("One moment."), FunctionCall(name="add", args={"a": 2}), LlmResponse(turn_complete=True)],
        [Says("It is two.")],
        [Hears("And three?"), Says("No.")],
    ]
    runner = InMemoryRunner(agent(ScriptedLiveModel(script)), app_name="app")
    await runner.session_service.create_session(app_name="app", user_id="ada", session_id="s-1")
    async with calling(agent(silent()), runner=runner, config=RunConfig(custom_metadata={"call": 1})) as conversation:
        conversation.say("Hello?")
        await conversation.turns(1)
        conversation.say("Add two.")
        await conversation.turns(3)
        conversation.queue.send_realtime(Blob(data=b"\x00\x01" * 160, mime_type="audio/pcm;rate=16000"))
        conversation.queue.send_activity_end()
        await conversation.turns(4)
        await conversation.end()
    session = await runner.session_service.get_session(app_name="app", user_id="ada", session_id="s-1")
    assert session is not None
    assert any(event.input_transcription for event in session.events)
    assert any(event.get_function_responses() for event in session.events)
    async with asyncio.timeout(20):
        await replays_equal(agent(ScriptedLiveModel([])), session, tmp_path)


async def test_a_changed_agent_departs_at_the_first_event_that_is_another_one() -> None:
    talk = Talk(LlmAgent(name="a", model=ScriptedModel([call("add", a=1), "1", "bye"]), tools=[add]))
    await talk.say("1?")
    await talk.say("bye")
    session = await stored(talk)

    def double(a: int) -> int:
        return 2 * a

    renamed = LlmAgent(name="b", model=silent(), tools=[add])
    assert "asks its model for reply 1; recorded are 0" in await replay_session(
        App(name="app", root_agent=renamed), session
    )
    keeping = LlmAgent(name="a", model=silent(), tools=[add], output_key="said")
    found = await replay_session(App(name="app", root_agent=keeping), session)
    assert found.startswith("Event 4 of 6:\n")
    assert "+      said: '1'" in found
    assert (
        await replay_session(App(name="app", root_agent=LlmAgent(name="a", model=silent(), tools=[add])), session) == ""
    )


async def test_an_agent_with_another_model_is_run_on_the_recorded_results() -> None:
    def charge(amount: int) -> str:
        raise AssertionError("the tool itself must not run")

    def agent(*script: Any, tool: Any = charge) -> App:
        return App(name="app", root_agent=LlmAgent(name="a", model=ScriptedModel(script), tools=[tool]))

    def once(amount: int) -> str:
        return "charged"

    once.__name__ = "charge"
    talk = Talk(agent(call("charge", amount=5), "Charged 5.", tool=once).root_agent)
    await talk.say("charge 5")
    session = await stored(talk)
    assert await rerun_session(agent(call("charge", amount=5), "Charged 5."), session) == ""
    found = await rerun_session(agent(call("charge", amount=6), "Charged 6."), session)
    assert found.splitlines()[1:] == [
        " user: charge 5",
        '-call charge {"amount":5}',
        '-result charge {"result":"charged"}',
        "-agent: Charged 5.",
        '+call charge {"amount":6}',
        '+result charge {"error":"There is no result for this call of charge in the test."}',
        "+agent: Charged 6.",
    ]
    assert "ModelError" in await rerun_session(agent(), session)
