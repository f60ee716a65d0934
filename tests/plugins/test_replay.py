"""A recorded run does the same again, and says so when it doesn't."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from greenroom.agents.agent import BaseAgent
from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.workflows import LoopAgent, ParallelAgent, SequentialAgent
from greenroom.errors import ReplayConfigError, ReplayVerificationError
from greenroom.invocation.user_context import CallbackContext, ToolContext
from greenroom.plugins.recording import RecordingsPlugin
from greenroom.plugins.recordings_file import REPLAY_CONFIG, dump_recordings
from greenroom.plugins.replay import ReplayPlugin, comparable_events
from greenroom.records.content import Blob, Content, Part
from greenroom.records.event import Event
from greenroom.records.generation import GenerateContentConfig
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.records.recording import Recordings
from greenroom.runner.in_memory import InMemoryRunner
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.builtin.run_control import exit_loop
from greenroom.tools.functions.function_tool import FunctionTool, LongRunningFunctionTool
from tests.agents.talk import answer, call, lines_of
from tests.plugins.recorded import outline, record, recorded, replay, settings, silent
from tests.plugins.watched import WatchedTalk


def add(a: int, b: int, tool_context: ToolContext) -> int:
    tool_context.state["added"] = tool_context.state.get("added", 0) + 1
    return a + b


def plus(a: int, b: int) -> int:
    return a + b


def agent(model: ScriptedModel, **more: Any) -> LlmAgent:
    options: dict[str, Any] = {"tools": [add], **more}
    return LlmAgent(name="a", model=model, **options)


def same(recorded: list[list[Event]], replayed: list[list[Event]]) -> bool:
    return [comparable_events(turn) for turn in recorded] == [comparable_events(turn) for turn in replayed]


def test_the_plugin_has_adks_name() -> None:
    assert ReplayPlugin().name == "adk_replay"


@pytest.mark.parametrize("mode", ["none", "sse"])
async def test_a_conversation_is_replayed_chunks_tools_and_state_included(mode: str, tmp_path: Path) -> None:
    script = [[Part(text="Let me see."), call("add", a=1, b=2)], "It is three.", "Good bye to you."]
    then = await record(agent(ScriptedModel(script)), tmp_path, "1+2?", "bye", mode=mode)
    now = await replay(agent(silent()), tmp_path, "1+2?", "bye", mode=mode)
    assert same(then, now)
    assert any(event.partial for turn in now for event in turn) == (mode == "sse")


async def test_chunks_are_not_sent_to_clients_that_did_not_ask_for_them(tmp_path: Path) -> None:
    await record(agent(ScriptedModel(["one two"])), tmp_path, "go", mode="sse")
    talk = WatchedTalk(agent(silent()), ReplayPlugin())
    events = await talk.say("go", state_delta={REPLAY_CONFIG: settings(tmp_path, 0, "sse")})
    assert lines_of(events) == ["a: one two"]


async def test_callbacks_do_their_work_again(tmp_path: Path) -> None:
    def shout(llm_response: LlmResponse, **_: Any) -> LlmResponse:
        text = llm_response.content.text() if llm_response.content else ""
        return LlmResponse(content=Content(role="model", parts=[Part(text=text + "!")]))

    def cache(llm_request: LlmRequest, **_: Any) -> LlmResponse | None:
        if llm_request.contents[-1].text() == "cached":
            return LlmResponse(content=Content(role="model", parts=[Part(text="from the cache")]))
        return None

    callbacks: dict[str, Any] = {"after_model_callback": shout, "before_model_callback": cache}
    then = await record(agent(ScriptedModel(["hello", "bye"]), **callbacks), tmp_path, "hi", "cached", "bye")
    now = await replay(agent(silent(), **callbacks), tmp_path, "hi", "cached", "bye")
    assert [lines_of(turn) for turn in now] == [["a: hello!"], ["a: from the cache"], ["a: bye!"]]
    assert same(then, now)


def team(model: ScriptedModel) -> BaseAgent:
    left, right = (LlmAgent(name=name, model=model, tools=[plus]) for name in ("left", "right"))
    writer = LlmAgent(name="writer", model=model)
    critic = LlmAgent(name="critic", model=model, tools=[exit_loop])
    polish = LoopAgent(name="polish", sub_agents=[writer, critic], max_iterations=3)
    return SequentialAgent(name="team", sub_agents=[ParallelAgent(name="both", sub_agents=[left, right]), polish])


async def test_agents_side_by_side_in_a_row_and_in_a_loop_each_get_their_own(tmp_path: Path) -> None:
    scripts: dict[str, list[Any]] = {
        "left": [[call("plus", a=1, b=1), call("plus", a=2, b=2)], "L"],
        "right": [call("plus", a=3, b=3), "R"],
        "writer": ["draft", "better"],
        "critic": ["worse", call("exit_loop"), "never said"],
    }
    (then,) = await record(team(ScriptedModel(scripts)), tmp_path, "go")
    (now,) = await replay(team(silent()), tmp_path, "go")
    assert comparable_events(then) == comparable_events(now)


async def test_handing_over_is_replayed(tmp_path: Path) -> None:
    def staff(model: ScriptedModel) -> LlmAgent:
        return LlmAgent(name="boss", model=model, sub_agents=[LlmAgent(name="clerk", tools=[add])])

    script: dict[str, list[Any]] = {
        "boss": [call("transfer_to_agent", agent_name="clerk")],
        "clerk": [call("add", a=1, b=1), "two", "bye"],
    }
    then = await record(staff(ScriptedModel(script)), tmp_path, "go", "bye")
    assert same(then, await replay(staff(silent()), tmp_path, "go", "bye"))


async def test_a_long_running_call_stays_open_and_its_answer_continues(tmp_path: Path) -> None:
    def start() -> None:
        """Starts."""

    tools = {"tools": [LongRunningFunctionTool(start)]}
    messages = ("go", answer("start", "c-1", {"status": "done"}))
    then = await record(agent(ScriptedModel([call("start", "c-1"), "done"]), **tools), tmp_path, *messages)
    now = await replay(agent(silent(), **tools), tmp_path, *messages)
    assert same(then, now)
    assert lines_of(now[0]) == ["a: start()"]


async def test_an_agent_inside_a_tool_is_in_the_tools_result_only(tmp_path: Path) -> None:
    asked: list[str] = []

    async def expert(question: str) -> str:
        asked.append(question)
        inner = InMemoryRunner(
            LlmAgent(name="inner", model=ScriptedModel(["42"])), app_name="inner", plugins=[recorder, replayer]
        )
        await inner.session_service.create_session(app_name="inner", user_id="u", session_id="s")
        message = Content(role="user", parts=[Part(text=question)])
        events = [e async for e in inner.run_async(user_id="u", session_id="s", new_message=message)]
        return events[-1].content.text() if events[-1].content else ""

    class AsTool(FunctionTool):
        agent = "inner"

    recorder, replayer = RecordingsPlugin(), ReplayPlugin()
    model = ScriptedModel([call("expert", question="q"), "so"])
    then = await record(agent(model, tools=[AsTool(expert)]), tmp_path, "go")
    assert outline(recorded(tmp_path)) == ["0 a: model x1", "0 a: expert", "0 a: model x1"]
    now = await replay(agent(silent(), tools=[AsTool(expert)]), tmp_path, "go", plugin=replayer)
    assert same(then, now)
    assert asked == ["q"]


async def test_a_real_tool_is_run_for_its_side_effects_and_its_result_and_errors_are_ignored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (then,) = await record(agent(ScriptedModel([call("add", a=1, b=2), "three"])), tmp_path, "go")

    def wrong(a: int, b: int, tool_context: ToolContext) -> int:
        tool_context.state["added"] = 1
        raise ValueError("broken since")

    with caplog.at_level(logging.WARNING):
        (now,) = await replay(agent(silent(), tools=[as_add(wrong)]), tmp_path, "go")
    assert same([then], [now])
    assert now[1].actions.state_delta == {"added": 1}
    assert "broken since" in caplog.text


def as_add(function: Any) -> FunctionTool:
    function.__name__ = "add"
    return FunctionTool(function)


async def test_tools_can_be_left_alone_except_those_that_steer_the_run(tmp_path: Path) -> None:
    script: dict[str, list[Any]] = {
        "boss": [call("add", a=1, b=1), call("transfer_to_agent", agent_name="clerk")],
        "clerk": ["hello"],
    }

    def staff(model: ScriptedModel, tool: Any) -> LlmAgent:
        return LlmAgent(name="boss", model=model, tools=[tool], sub_agents=[LlmAgent(name="clerk")])

    await record(staff(ScriptedModel(script), add), tmp_path, "go")
    ran: list[int] = []

    def touched(a: int, b: int, tool_context: ToolContext) -> int:
        ran.append(a)
        return 0

    recordings = recorded(tmp_path)
    for one in recordings:
        if one.llm_recording is not None:
            one.llm_recording.llm_request = None
    (tmp_path / "generated-recordings.yaml").write_text(dump_recordings(Recordings(recordings=recordings)))
    plugin = ReplayPlugin(run_tools=False)
    (now,) = await replay(staff(silent(), as_add(touched)), tmp_path, "go", plugin=plugin)
    assert lines_of(now)[-1] == "clerk: hello"
    assert ran == []


# configuration


async def config_error(value: Any) -> ReplayConfigError:
    talk = WatchedTalk(agent(silent()), ReplayPlugin())
    with pytest.raises(ReplayConfigError) as caught:
        await talk.say("hi", state_delta={REPLAY_CONFIG: value})
    return caught.value


async def test_a_file_that_is_missing_or_unreadable_is_a_config_error(tmp_path: Path) -> None:
    error = await config_error(settings(tmp_path, 0))
    assert "generated-recordings.yaml can't be read" in error.detail
    (tmp_path / "generated-recordings.yaml").write_text("recordings: 7")
    assert "recordings" in (await config_error(settings(tmp_path, 0))).detail
    assert "streaming_mode" in (await config_error(settings(tmp_path, 0, "fast"))).detail


async def test_without_folder_and_index_the_model_is_asked(tmp_path: Path) -> None:
    for value in ({}, {"dir": str(tmp_path)}, {"user_message_index": 0}):
        talk = WatchedTalk(agent(ScriptedModel(["live"])), ReplayPlugin())
        assert lines_of(await talk.say("hi", state_delta={REPLAY_CONFIG: value}))[-1] == "a: live"


async def test_a_run_that_was_not_replayed_from_its_beginning_is_refused(tmp_path: Path) -> None:
    def begin(callback_context: CallbackContext) -> None:
        callback_context.state[REPLAY_CONFIG] = settings(tmp_path, 0)

    talk = WatchedTalk(agent(ScriptedModel(["hello"]), before_agent_callback=begin), ReplayPlugin())
    with pytest.raises(ReplayConfigError):
        await talk.say("hi")


async def test_other_sessions_of_the_same_agent_reach_its_model(tmp_path: Path) -> None:
    await record(agent(ScriptedModel(["recorded"])), tmp_path, "hi")
    model = ScriptedModel(["live"])
    talk = WatchedTalk(agent(model), ReplayPlugin())
    assert lines_of(await talk.say("hi", state_delta={REPLAY_CONFIG: settings(tmp_path, 0)}))[-1] == "a: recorded"
    talk.session_id = "s-2"
    assert lines_of(await talk.say("hi")) == ["a: live"]
    assert len(model.requests) == 1


async def test_a_model_that_is_not_installed_here_can_be_replayed(tmp_path: Path) -> None:
    await record(LlmAgent(name="a", model=ScriptedModel(["hello"], model="far/away")), tmp_path, "hi")
    (now,) = await replay(LlmAgent(name="a", model="far/away"), tmp_path, "hi")
    assert lines_of(now) == ["a: hello"]


# verification


async def differing(
    tmp_path: Path, *messages: Any, plugin: ReplayPlugin | None = None, **more: Any
) -> ReplayVerificationError:
    """Returns the error that ends the replay of a run of one tool call; `more` changes the agent."""
    with pytest.raises(ReplayVerificationError) as caught:
        await replay(agent(silent(), **more), tmp_path, *(messages or ("1+2?",)), plugin=plugin)
    return caught.value


@pytest.fixture
async def one_call(tmp_path: Path) -> Path:
    await record(agent(ScriptedModel([call("add", a=1, b=2), "three"])), tmp_path, "1+2?")
    return tmp_path


def rewrite(folder: Path, recordings: list[Any]) -> None:
    (folder / "generated-recordings.yaml").write_text(dump_recordings(Recordings(recordings=recordings)))


async def test_a_request_that_differs_is_shown_beside_the_recorded_one(one_call: Path) -> None:
    error = await differing(one_call, instruction="Think.")
    assert error.agent == "a"
    assert "model request 1 is not the one that was recorded" in error.detail
    assert "--- recorded\n+++ replayed\n" in error.difference
    assert "\n+    Think.\n" in error.difference
    assert "1+2?" in str(await differing(one_call, "2+2?"))


async def test_a_request_that_differs_can_be_let_pass(one_call: Path, caplog: pytest.LogCaptureFixture) -> None:
    plugin = ReplayPlugin(verify_requests=False)
    with caplog.at_level(logging.WARNING):
        (now,) = await replay(agent(silent(), instruction="Think."), one_call, "1+2?", plugin=plugin)
    assert lines_of(now)[-1] == "a: three"
    assert "Think." in caplog.text


async def test_more_requests_than_were_recorded(one_call: Path) -> None:
    rewrite(one_call, recorded(one_call)[:2])
    assert "asks its model for reply 2; recorded are 1" in str(await differing(one_call))


async def test_more_calls_than_were_recorded(one_call: Path) -> None:
    model, _, last = recorded(one_call)
    rewrite(one_call, [model, last])
    assert "makes tool call 1, 'add'; recorded are 0" in str(await differing(one_call))


async def test_fewer_requests_than_were_recorded(one_call: Path) -> None:
    recordings = recorded(one_call)
    rewrite(one_call, [*recordings, recordings[-1]])
    assert "did not ask its model for 1 of the recorded replies" in str(await differing(one_call))


async def test_a_tool_or_arguments_that_differ(one_call: Path) -> None:
    for field, value in (("name", "subtract"), ("args", {"a": 1, "b": 3})):
        recordings = recorded(one_call)
        tool = recordings[1].tool_recording
        assert tool is not None
        setattr(tool.tool_call, field, value)
        rewrite(one_call, recordings)
        error = await differing(one_call)
        assert "tool call 1 is not the one that was recorded" in str(error)
        rewrite(one_call, [*recordings[:1], *recorded(one_call)[1:]])
        await record_again(one_call)


async def record_again(folder: Path) -> None:
    (folder / "generated-recordings.yaml").unlink()
    await record(agent(ScriptedModel([call("add", a=1, b=2), "three"])), folder, "1+2?")


async def test_only_the_turns_own_recordings_are_given(tmp_path: Path) -> None:
    await record(agent(ScriptedModel(["one", "two"])), tmp_path, "1", "2")
    talk = WatchedTalk(agent(silent()), ReplayPlugin(verify_requests=False))
    events = await talk.say("2", state_delta={REPLAY_CONFIG: settings(tmp_path, 1)})
    assert lines_of(events)[-1] == "a: two"


async def test_a_difference_that_a_callback_makes_a_reply_of_still_fails_the_run(one_call: Path) -> None:
    def soothe(**_: Any) -> LlmResponse:
        return LlmResponse(content=Content(role="model", parts=[Part(text="all is well")]))

    error = await differing(one_call, instruction="Think.", on_model_error_callback=soothe)
    assert "model request 1" in str(error)


async def test_transport_and_labels_may_differ(one_call: Path) -> None:
    config = GenerateContentConfig(labels={"team": "b"}, http_options={"timeout": 5})
    (now,) = await replay(agent(silent(), generate_content_config=config), one_call, "1+2?")
    assert lines_of(now)[-1] == "a: three"
    await differing(one_call, generate_content_config=GenerateContentConfig(temperature=0.5))


async def test_calls_side_by_side_are_matched_by_id_and_else_in_order(tmp_path: Path) -> None:
    both = [call("add", "c1", a=1, b=1), call("add", "c2", a=2, b=2)]
    (then,) = await record(agent(ScriptedModel([both, "done"])), tmp_path, "go")
    model, first, second, last = recorded(tmp_path)
    rewrite(tmp_path, [model, second, first, last])
    assert same([then], await replay(agent(silent()), tmp_path, "go"))
    for one in (first, second):
        assert one.tool_recording is not None
        assert one.tool_recording.tool_call is not None
        one.tool_recording.tool_call.id = None
    rewrite(tmp_path, [model, first, second, last])
    assert same([then], await replay(agent(silent()), tmp_path, "go"))


async def test_nothing_is_kept_of_runs_that_are_over(one_call: Path) -> None:
    plugin = ReplayPlugin()
    await replay(agent(silent()), one_call, "1+2?", plugin=plugin)
    await differing(one_call, "other", plugin=plugin)
    assert plugin._runs == {}


async def test_pictures_that_a_tool_returned_are_there_again(tmp_path: Path) -> None:
    def look() -> dict[str, Any]:
        return {"title": "May", "plot": Part(inline_data=Blob(data=b"png", mime_type="image/png"))}

    seeing = agent(ScriptedModel([call("look"), "It rises."]), tools=[look])
    then = await record(seeing, tmp_path, "look")
    again = await replay(agent(silent(), tools=[look]), tmp_path, "look")
    assert same(then, again)
    (response,) = again[0][1].get_function_responses()
    assert response.response == {"title": "May"}
    assert [part.inline_data and part.inline_data.data for part in response.parts or ()] == [b"png"]
