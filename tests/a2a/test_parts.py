"""Parts of contents and of A2A messages are converted into each other without loss."""

from __future__ import annotations

import json
from typing import Any

import a2a.types as a2a
import pytest
from google.protobuf.json_format import MessageToDict, ParseDict

import greenroom
from greenroom.a2a.metadata import event_metadata
from greenroom.a2a.part_metadata import AggregationMode
from greenroom.a2a.parts import from_a2a_part, to_a2a_part, to_a2a_parts
from greenroom.errors import InvalidRequest
from greenroom.records.content import (
    Blob,
    CodeExecutionResult,
    Content,
    ExecutableCode,
    FileData,
    FunctionCall,
    FunctionResponse,
    Part,
    PartialArg,
    ToolCall,
    ToolResponse,
    VideoMetadata,
)
from greenroom.records.event import Event, EventActions

PARTS = [
    Part(text="Hello"),
    Part(text=""),
    Part(text="Hm", thought=True, thought_signature=b"\x00\xff"),
    Part(text="a", part_metadata={"mine": {"n": 5, "f": 0.5, "big": 1e300}}),
    Part(file_data=FileData(file_uri="https://host/a.png", mime_type="image/png", display_name="a.png")),
    Part(inline_data=Blob(data=b"\x00\x01", mime_type="image/png", display_name="a.png")),
    Part(inline_data=Blob(data=b"", mime_type="video/mp4"), video_metadata=VideoMetadata(start_offset="1s", fps=2.0)),
    Part(
        function_call=FunctionCall(id="1", name="f", args={"n": 5, "x": [1, 2.5, {"y": None}]}), thought_signature=b"s"
    ),
    Part(function_call=FunctionCall(partial_args=[PartialArg(json_path="$.a", number_value=1.0)], will_continue=True)),
    Part(function_response=FunctionResponse(id="1", name="f", response={"result": "ok"})),
    Part(executable_code=ExecutableCode(code="1", language="PYTHON")),
    Part(code_execution_result=CodeExecutionResult(outcome="OUTCOME_OK", output="1")),
    Part(tool_call=ToolCall(id="1", tool_type="SEARCH", args={"q": "x"})),
    Part(tool_response=ToolResponse(id="1", tool_type="SEARCH", response={"r": [1]})),
]


@pytest.mark.parametrize("part", PARTS)
def test_a_part_comes_back_as_it_was(part: Part) -> None:
    sent = to_a2a_part(part)
    assert sent is not None
    received = from_a2a_part(a2a.Part.FromString(sent.SerializeToString()))
    assert received == part


def test_a_call_is_a_data_part_of_its_type() -> None:
    call = FunctionCall(id="1", name="f", args={"a": 1}, will_continue=False)
    (sent,) = to_a2a_parts(Content(parts=[Part(function_call=call)]), long_running=["1"])
    assert MessageToDict(sent) == {
        "data": {"id": "1", "name": "f", "args": {"a": 1.0}, "willContinue": False},
        "metadata": {"adk_type": "function_call", "adk_is_long_running": True},
    }


@pytest.mark.parametrize("data", [{"a": [1, "x", None, True]}, [1], "text", 5, None])
def test_other_data_travels_between_tags(data: Any) -> None:
    sent = ParseDict({"data": data, "metadata": {"adk_type": "unknown"}}, a2a.Part())
    part = from_a2a_part(sent)
    assert part is not None
    assert part.inline_data is not None
    assert part.inline_data.data is not None
    assert part.inline_data.mime_type == "text/plain"
    inner = part.inline_data.data.removeprefix(b"<a2a_datapart_json>").removesuffix(b"</a2a_datapart_json>")
    assert json.loads(inner) == data
    assert to_a2a_part(part) == sent


def test_text_that_only_looks_like_a_data_part_stays_a_file() -> None:
    sent = to_a2a_part(Part(inline_data=Blob(data=b"<a2a_datapart_json>{</a2a_datapart_json>", mime_type="text/plain")))
    assert sent is not None
    assert sent.raw.startswith(b"<a2a_datapart_json>{")


def test_parts_without_content_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    assert to_a2a_parts(Content(parts=[Part(), Part(inline_data=Blob(mime_type="image/png"))])) == []
    assert from_a2a_part(a2a.Part(filename="a")) is None
    assert len(caplog.records) == 3


@pytest.mark.parametrize(
    "part",
    [
        {"data": {"name": 5}, "metadata": {"adk_type": "function_call"}},
        {"data": [1], "metadata": {"adk_type": "function_response"}},
        {"text": "a", "metadata": {"adk_thought_signature": "!"}},
        {"url": "x", "metadata": {"adk_video_metadata": [1]}},
    ],
)
def test_data_that_its_type_does_not_fit_is_refused(part: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        from_a2a_part(ParseDict(part, a2a.Part()))


def test_internal_keys_never_cross() -> None:
    secret = {"__adk_internal_a": 1, "mine": {"__adk_internal_b": 2, "c": 3}}
    sent = to_a2a_part(Part(text="a", part_metadata=secret))
    assert sent is not None
    assert "internal" not in str(sent)
    received = from_a2a_part(ParseDict({"text": "a", "metadata": secret}, a2a.Part()))
    assert received == Part(text="a", part_metadata={"mine": {"c": 3}})


def test_metadata_of_an_event() -> None:
    event = Event(
        id="e",
        author="bot",
        invocation_id="i",
        branch="a.b",
        error_code="SAFETY",
        custom_metadata={"k": 1},
        actions=EventActions(state_delta={"x": 1}, escalate=True),
    )
    assert event_metadata(event, {"adk_session_id": "s"}) == {
        "adk_session_id": "s",
        "adk_event_id": "e",
        "adk_invocation_id": "i",
        "adk_author": "bot",
        "adk_branch": "a.b",
        "adk_custom_metadata": {"k": 1},
        "adk_error_code": "SAFETY",
        "adk_actions": {"stateDelta": {"x": 1}, "escalate": True},
    }


def test_parts_are_sent_as_the_mode_says() -> None:
    call = Part(function_call=FunctionCall(id="1", name="f", args={}))
    response = Part(function_response=FunctionResponse(id="1", name="f", response={"a": 1}))
    parts = [Part(text="Ask"), call, response, Part(text="Hm", thought=True), Part(text="Done")]
    assert [AggregationMode.AS_IS.apply(part) for part in parts] == parts
    handed = [AggregationMode.EXTERNAL_HANDOFF.apply(part) for part in parts]
    assert handed == [parts[0], None, Part(text='f response: {"a":1}'), *parts[3:]]


def test_the_metadata_of_parts_has_the_names_that_are_public() -> None:
    call = to_a2a_part(Part(function_call=FunctionCall(id="1", name="f", args={})), is_long_running=True)
    assert call is not None
    type_key = greenroom.ADK_METADATA_KEY_PREFIX + greenroom.A2A_DATA_PART_METADATA_TYPE_KEY
    assert call.metadata[type_key] == greenroom.A2A_DATA_PART_METADATA_TYPE_FUNCTION_CALL
    waits_key = greenroom.ADK_METADATA_KEY_PREFIX + greenroom.A2A_DATA_PART_METADATA_IS_LONG_RUNNING_KEY
    assert call.metadata[waits_key] is True
    for part, kind in (
        (
            Part(function_response=FunctionResponse(name="f", response={})),
            greenroom.A2A_DATA_PART_METADATA_TYPE_FUNCTION_RESPONSE,
        ),
        (Part(executable_code=ExecutableCode(code="1")), greenroom.A2A_DATA_PART_METADATA_TYPE_EXECUTABLE_CODE),
        (
            Part(code_execution_result=CodeExecutionResult(output="1")),
            greenroom.A2A_DATA_PART_METADATA_TYPE_CODE_EXECUTION_RESULT,
        ),
    ):
        made = to_a2a_part(part)
        assert made is not None
        assert made.metadata[type_key] == kind
