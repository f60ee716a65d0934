"""Recordings of runs."""

from __future__ import annotations

import asyncio
import copy
import logging
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from greenroom.agents.agent_tool import AgentTool
from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.workflows import ParallelAgent
from greenroom.errors import ReplayConfigError
from greenroom.invocation.user_context import CallbackContext
from greenroom.plugins.recording import RecordingsPlugin
from greenroom.plugins.recordings_file import RECORDINGS_CONFIG
from greenroom.plugins.replay import comparable_events
from greenroom.records.content import Content, FunctionCall, FunctionResponse, Part
from greenroom.records.generation import GenerateContentConfig
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.records.recording import ToolRecording
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.functions.function_tool import LongRunningFunctionTool
from tests.agents.talk import call
from tests.plugins.recorded import outline, record, recorded, replay, settings, silent
from tests.plugins.watched import WatchedTalk


def add(a: int, b: int) -> int:
    return a + b


def fail() -> str:
    raise ValueError("no")


def agent(*script: Any, **more: Any) -> LlmAgent:
    return LlmAgent(name="a", model=ScriptedModel(list(script)), tools=[add, fail], **more)


def test_the_plugin_has_adks_name() -> None:
    assert RecordingsPlugin().name == "adk_recordings"


async def test_requests_and_answers_are_written_in_order(tmp_path: Path) -> None:
    await record(agent(call("add", a=1, b=2), "three", "bye"), tmp_path, "1+2?", "bye")
    recordings = recorded(tmp_path)
    assert outline(recordings) == ["0 a: model x1", "0 a: add", "0 a: model x1", "1 a: model x1"]
    first, tool, second, _ = recordings
    assert first.llm_recording is not None
    assert first.llm_recording.llm_request is not None
    assert [c.text() for c in first.llm_recording.llm_request.contents] == ["1+2?"]
    assert [d.name for d in first.llm_recording.llm_request.function_declarations()] == ["add", "fail"]
    content = first.llm_recording.llm_responses[0].content
    made = (content.parts or [])[0].function_call if content else None
    assert made is not None
    assert tool.tool_recording == ToolRecording(
        tool_call=FunctionCall(id=made.id, name="add", args={"a": 1, "b": 2}),
        tool_response=FunctionResponse(id=made.id, name="add", response={"result": 3}),
    )
    assert second.llm_recording is not None
    assert second.llm_recording.llm_request is not None
    assert len(second.llm_recording.llm_request.contents) == 3


async def test_a_call_has_the_id_that_the_run_went_on_with(tmp_path: Path) -> None:
    (events,) = await record(agent(call("add", a=1, b=2), "three"), tmp_path, "1+2?")
    (made,) = events[0].get_function_calls()
    assert made.id is not None
    tool = recorded(tmp_path)[1].tool_recording
    assert tool is not None
    assert tool.tool_call is not None
    assert tool.tool_call.id == made.id


async def test_streamed_replies_are_written_with_all_chunks_in_a_file_of_their_own(tmp_path: Path) -> None:
    await record(agent("one two three"), tmp_path, "go", mode="sse")
    assert os.listdir(tmp_path) == ["generated-recordings-sse.yaml"]
    (one,) = recorded(tmp_path, "sse")
    assert one.llm_recording is not None
    responses = one.llm_recording.llm_responses
    assert [(r.content.text() if r.content else "", bool(r.partial)) for r in responses] == [
        ("one ", True),
        ("two ", True),
        ("three", True),
        ("one two three", False),
    ]


class Repeating(ScriptedModel):
    """Says its whole reply twice."""

    async def generate_content_async(self, llm_request: LlmRequest, stream: bool = False) -> AsyncIterator[LlmResponse]:
        async for response in super().generate_content_async(llm_request, stream):
            yield response
            if not response.partial:
                yield copy.deepcopy(response)


async def test_a_whole_reply_ends_what_is_recorded_of_a_request(tmp_path: Path) -> None:
    model = Repeating(["hello you"])  # pyright: ignore[reportCallIssue]
    await record(LlmAgent(name="a", model=model), tmp_path, "hi", mode="sse")
    (recording,) = recorded(tmp_path, "sse")
    assert recording.llm_recording is not None
    responses = recording.llm_recording.llm_responses
    assert [response.partial for response in responses] == [True] * (len(responses) - 1) + [None]


async def test_what_is_in_the_file_already_is_kept(tmp_path: Path) -> None:
    await record(agent("one"), tmp_path, "go")
    await record(agent("two"), tmp_path, "go")
    assert outline(recorded(tmp_path)) == ["0 a: model x1", "0 a: model x1"]


async def test_a_file_that_can_not_be_read_is_not_written_over(tmp_path: Path) -> None:
    file = tmp_path / "generated-recordings.yaml"
    file.write_text("recordings: 7")
    with pytest.raises(ReplayConfigError):
        await record(agent("one"), tmp_path, "go")
    assert file.read_text() == "recordings: 7"


NO_SETTINGS = [None, {}, {"dir": "x"}, {"user_message_index": 0}, {"dir": "", "user_message_index": 0}]


@pytest.mark.parametrize("value", NO_SETTINGS)
async def test_without_folder_and_index_nothing_is_recorded(value: Any, tmp_path: Path) -> None:
    talk = WatchedTalk(agent("hello"), RecordingsPlugin())
    await talk.say("hi", state_delta={RECORDINGS_CONFIG: value} if value is not None else None)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "value",
    [
        {"dir": "x", "user_message_index": "0"},
        {"dir": "x", "user_message_index": True},
        {"dir": "x", "user_message_index": -1},
        {"dir": 7, "user_message_index": 0},
        {"dir": "x", "user_message_index": 0, "streaming_mode": "bidi"},
        "x",
    ],
)
async def test_settings_that_can_not_be_meant_are_refused(value: Any) -> None:
    with pytest.raises(ReplayConfigError):
        await WatchedTalk(agent("hello"), RecordingsPlugin()).say("hi", state_delta={RECORDINGS_CONFIG: value})


async def test_a_run_that_was_not_recorded_from_its_beginning_is_refused(tmp_path: Path) -> None:
    def begin(callback_context: CallbackContext) -> None:
        callback_context.state[RECORDINGS_CONFIG] = settings(tmp_path, 0)

    with pytest.raises(ReplayConfigError, match="not recorded from its beginning"):
        await WatchedTalk(agent("hello", before_agent_callback=begin), RecordingsPlugin()).say("hi")


async def test_requests_without_an_answer_are_dropped_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def answer(llm_request: LlmRequest, **_: Any) -> LlmResponse | None:
        if len(llm_request.contents) > 1:
            return LlmResponse(content=Content(role="model", parts=[Part(text="not asked")]))
        return None

    with caplog.at_level(logging.WARNING):
        await record(agent(call("add", a=1, b=2), before_model_callback=answer), tmp_path, "go")
    assert outline(recorded(tmp_path)) == ["0 a: model x1", "0 a: add"]
    assert "1 requests of a got no answer" in caplog.text


async def test_an_error_of_a_tool_is_not_recorded_but_what_a_callback_makes_of_it_is(tmp_path: Path) -> None:
    def handle(**_: Any) -> dict[str, Any]:
        return {"sorry": True}

    await record(agent(call("fail"), "oh", on_tool_error_callback=handle), tmp_path, "go")
    tool = recorded(tmp_path)[1].tool_recording
    assert tool is not None
    assert tool.tool_response is not None
    assert tool.tool_response.response == {"sorry": True}
    with pytest.raises(Exception, match="no"):
        await record(agent(call("fail")), tmp_path, "go")
    assert len(recorded(tmp_path)) == 3


async def test_what_callbacks_change_in_a_request_is_recorded_and_what_they_change_in_a_reply_is_not(
    tmp_path: Path,
) -> None:
    def sharpen(llm_request: LlmRequest, **_: Any) -> None:
        llm_request.config.append_system_text("Be brief.")

    def shout(llm_response: LlmResponse, **_: Any) -> LlmResponse:
        for part in (llm_response.content.parts if llm_response.content else None) or ():
            part.text = (part.text or "").upper()
        return llm_response

    await record(agent("hello", before_model_callback=sharpen, after_model_callback=shout), tmp_path, "go")
    recorded_reply = recorded(tmp_path)[0].llm_recording
    assert recorded_reply is not None
    assert recorded_reply.llm_request is not None
    assert "Be brief." in recorded_reply.llm_request.config.system_text()
    content = recorded_reply.llm_responses[0].content
    assert content is not None
    assert content.text() == "hello"


async def test_calls_side_by_side_each_find_their_result(tmp_path: Path) -> None:
    both = [call("add", "c1", a=1, b=1), call("add", "c2", a=2, b=2)]
    await record(agent(both, "done"), tmp_path, "go")
    results = [r.tool_recording for r in recorded(tmp_path) if r.tool_recording is not None]
    assert [(r.tool_call.id, r.tool_response.response) for r in results if r.tool_call and r.tool_response] == [
        ("c1", {"result": 2}),
        ("c2", {"result": 4}),
    ]


async def test_calls_side_by_side_find_their_result_whichever_ends_first(tmp_path: Path) -> None:
    is_done = asyncio.Event()

    async def slow() -> str:
        await is_done.wait()
        return "slow"

    async def quick() -> str:
        is_done.set()
        return "quick"

    both = [call("slow", "c1"), call("quick", "c2")]
    await record(LlmAgent(name="a", model=ScriptedModel([both, "done"]), tools=[slow, quick]), tmp_path, "go")
    results = [r.tool_recording for r in recorded(tmp_path) if r.tool_recording is not None]
    assert [(r.tool_call.name, r.tool_response.response) for r in results if r.tool_call and r.tool_response] == [
        ("slow", {"result": "slow"}),
        ("quick", {"result": "quick"}),
    ]


async def test_the_file_is_as_adk_writes_it(tmp_path: Path) -> None:
    config = GenerateContentConfig(temperature=0.2, http_options={"headers": {"authorization": "hush"}})
    model = ScriptedModel([call("add", "c1", a=1, b=2), "three"], model="gemini-2.5-flash")
    talk = WatchedTalk(LlmAgent(name="a", model=model, tools=[add], generate_content_config=config), RecordingsPlugin())
    picture = Part.from_bytes(data=b"\xfb\xff\xfe", mime_type="image/png")
    await talk.say(
        Content(role="user", parts=[picture]),
        state_delta={"_adk_recordings_config": {"dir": str(tmp_path), "user_message_index": 0}},
    )
    first, tool, _ = yaml.safe_load((tmp_path / "generated-recordings.yaml").read_text())["recordings"]
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    }
    made = {"id": "c1", "name": "add", "args": {"a": 1, "b": 2}}
    asked = {"role": "user", "parts": [{"inline_data": {"data": "-__-", "mime_type": "image/png"}}]}
    declared = {"name": "add", "description": "add", "parameters_json_schema": schema}
    assert first == {
        "user_message_index": 0,
        "agent_name": "a",
        "llm_recording": {
            "llm_request": {
                "model": "gemini-2.5-flash",
                "contents": [asked],
                "config": {
                    "temperature": 0.2,
                    "system_instruction": 'You are the agent "a".',
                    "tools": [{"function_declarations": [declared]}],
                },
            },
            "llm_responses": [
                {"content": {"role": "model", "parts": [{"function_call": made}]}, "finish_reason": "STOP"}
            ],
        },
    }
    assert tool == {
        "user_message_index": 0,
        "agent_name": "a",
        "tool_recording": {
            "tool_call": made,
            "tool_response": {"id": "c1", "name": "add", "response": {"result": 3}},
        },
    }


async def test_agents_side_by_side_each_find_their_reply(tmp_path: Path) -> None:
    model = ScriptedModel({"left": ["L"], "right": ["R"]})
    both = [LlmAgent(name=name, model=model) for name in ("left", "right")]
    await record(ParallelAgent(name="both", sub_agents=both), tmp_path, "go")
    said = {
        one.agent_name: one.llm_recording.llm_responses[0].content.text()
        for one in recorded(tmp_path)
        if one.llm_recording and one.llm_recording.llm_responses[0].content
    }
    assert said == {"left": "L", "right": "R"}


async def test_a_long_running_call_without_a_first_word_is_recorded_as_that(tmp_path: Path) -> None:
    def start() -> None:
        """Starts."""

    model = ScriptedModel([call("start")])
    await record(LlmAgent(name="a", model=model, tools=[LongRunningFunctionTool(start)]), tmp_path, "go")
    tool = recorded(tmp_path)[1].tool_recording
    assert tool is not None
    assert tool.tool_response is not None
    assert tool.tool_response.response == {"result": None}


async def test_nothing_is_kept_of_runs_that_are_over(tmp_path: Path) -> None:
    plugin = RecordingsPlugin()
    talk = WatchedTalk(agent("one", RuntimeError("no")), plugin)
    await talk.say("hi", state_delta={RECORDINGS_CONFIG: settings(tmp_path, 0)})
    with pytest.raises(RuntimeError):
        await talk.say("hi", state_delta={RECORDINGS_CONFIG: settings(tmp_path, 1)})
    assert plugin._runs == {}
    assert len(recorded(tmp_path)) == 1


async def test_of_an_agent_that_runs_as_a_tool_the_answer_is_recorded_and_replayed(tmp_path: Path) -> None:
    def asking(model: ScriptedModel, aide: ScriptedModel) -> LlmAgent:
        return LlmAgent(name="a", model=model, tools=[AgentTool(LlmAgent(name="aide", model=aide))])

    script = [call("aide", request="how?"), "so"]
    first = await record(asking(ScriptedModel(script), ScriptedModel(["like this"])), tmp_path, "hi")
    assert outline(recorded(tmp_path)) == ["0 a: model x1", "0 a: aide", "0 a: model x1"]
    again = await replay(asking(silent(), silent()), tmp_path, "hi")
    assert comparable_events(again[0]) == comparable_events(first[0])
