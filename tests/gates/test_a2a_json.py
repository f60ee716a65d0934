"""Comparison of the gate's own JSON with protobuf's, in both directions."""

from __future__ import annotations

import json
from typing import Any, cast

import a2a.types as a2a
import msgspec
import pytest
from a2a.utils.proto_utils import to_stream_response
from google.protobuf.json_format import MessageToDict, ParseDict
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from greenroom.gates.a2a.requests import SendRequest, parse
from greenroom.gates.a2a.task_events import TaskEvents, to_message, to_task
from greenroom.records import wire
from greenroom.records.content import Content, FunctionCall, Part
from greenroom.records.event import Event
from greenroom.records.run import Run, RunError, RunStatus
from tests.fuzz.extent import IS_LONG
from tests.records.strategies import records
from tests.server.agents import echo
from tests.server.conftest import Serve
from tests.server.serving import Serving

TIMES = st.none() | st.floats(0, 4e9) | st.sampled_from([1.0, 1.5, 1.001, 1.000001, 1.12])
VARYING = frozenset({"id", "taskId", "artifactId", "timestamp", "adk_event_id", "adk_invocation_id"})


def as_floats(value: Any) -> Any:
    """Protobuf has no integers in metadata and data."""
    if isinstance(value, dict):
        return {key: as_floats(entry) for key, entry in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [as_floats(entry) for entry in cast("list[Any]", value)]
    return float(value) if type(value) is int else value


def written(update: object) -> Any:
    return as_floats(json.loads(wire.encode(update)))


@st.composite
def events(draw: st.DrawFn) -> Event:
    event: Event = draw(records(Event))
    parts: list[Part] = draw(st.lists(records(Part) | st.builds(Part, text=st.text(max_size=5)), max_size=3))
    event.id = f"e{event.id}"
    event.content = Content(role="model", parts=parts)
    waiting = [part.function_call.id for part in parts if part.function_call is not None and part.function_call.id]
    event.long_running_tool_ids = draw(st.sampled_from([None, waiting]))
    return event


@settings(max_examples=200 if IS_LONG else 50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    said=st.lists(events(), max_size=4),
    status=st.sampled_from(RunStatus),
    ended_at=TIMES,
    note=st.none() | st.text(max_size=5),
    history_length=st.sampled_from([msgspec.UNSET, 0, 1, 9]),
)
def test_updates_are_as_protobuf_writes_them(
    said: list[Event], status: RunStatus, ended_at: float | None, note: str | None, history_length: Any
) -> None:
    run = Run(id="r", app_name="a", user_id="u", session_id="s", status=status, created_at=1.25, ended_at=ended_at)
    run.error = RunError(code="X", message="broken")
    task_events = TaskEvents(run, keeps_artifacts=True)
    for update in [one for event in said for one in task_events.read(event)] + [task_events.status(run)]:
        assert written(update) == MessageToDict(to_stream_response(to_message(update)))
    task = task_events.task(run, note=note, history_length=history_length)
    assert written(task) == MessageToDict(to_task(task))


@settings(max_examples=200 if IS_LONG else 50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(said=st.lists(events(), min_size=1, max_size=4))
def test_chunks_of_text_are_as_other_updates(said: list[Event]) -> None:
    run = Run(id="r", app_name="a", user_id="u", session_id="s", status=RunStatus.RUNNING, created_at=1.0)
    fast = TaskEvents(run, keeps_artifacts=False)
    slow = TaskEvents(run, keeps_artifacts=False)
    for event in said:
        event.partial = True
        for _ in range(2):
            chunk = fast.text_chunk(event)
            updates = slow.read(event)
            if chunk is None:
                fast.read(event)
            else:
                assert as_floats(json.loads(chunk)) == written(updates[0])


def test_an_open_call_is_in_the_status() -> None:
    run = Run(id="r", app_name="a", user_id="u", session_id="s", status=RunStatus.WAITING, created_at=1.0)
    task_events = TaskEvents(run, keeps_artifacts=True)
    call = Part(function_call=FunctionCall(id="1", name="adk_request_credential"))
    task_events.read(Event(author="a", content=Content(role="model", parts=[call]), long_running_tool_ids=["1"]))
    status = written(task_events.status(run))["statusUpdate"]["status"]
    assert (status["state"], status["timestamp"]) == ("TASK_STATE_AUTH_REQUIRED", "1970-01-01T00:00:01Z")
    assert [part["data"]["id"] for part in status["message"]["parts"]] == ["1"]


MESSAGE: dict[str, Any] = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}]}
PARTS: list[dict[str, Any]] = [
    {"text": "", "metadata": {"n": 5, "f": [0.5, None, {"a": 1.0}]}},
    {"raw": "AAE=", "mediaType": "image/png", "filename": "a.png"},
    {"url": "https://host/a", "metadata": {}},
    {"data": {"id": "1", "name": "f", "response": {"n": 1}}, "metadata": {"adk_type": "function_response"}},
    {"data": None},
    {"data": [1, "x"]},
    {"filename": "a"},
]


@pytest.mark.parametrize(
    "request_json",
    [
        {"message": MESSAGE},
        {"message": {**MESSAGE, "parts": PARTS, "metadata": {}}, "metadata": {"k": 1.0}, "tenant": "t"},
        {"message": {**MESSAGE, "contextId": "c", "taskId": "t", "metadata": {"k": 1, "__adk_internal_x": 2}}},
        {"message": {**MESSAGE, "extensions": ["https://e"], "referenceTaskIds": ["t"], "contextId": ""}},
        {"message": MESSAGE, "configuration": {"historyLength": 0, "returnImmediately": True}},
        {"message": MESSAGE, "configuration": {"acceptedOutputModes": ["text"], "taskPushNotificationConfig": {"url": "u"}}},
    ],
)  # fmt: skip
def test_requests_are_as_protobuf_reads_them(request_json: dict[str, Any]) -> None:
    assert msgspec.convert(request_json, SendRequest) == parse(ParseDict(request_json, a2a.SendMessageRequest()))


@pytest.mark.parametrize(
    "request_json",
    [
        {},
        {"message": {**MESSAGE, "messageId": ""}},
        {"message": {**MESSAGE, "role": "ROLE_UNSPECIFIED"}},
        {"message": {**MESSAGE, "role": 1}},
        {"message": {**MESSAGE, "message_id": "m"}},
        {"message": {**MESSAGE, "parts": [{"text": "x", "url": "y"}]}},
        {"message": {**MESSAGE, "parts": [{"raw": "_-"}]}},
        {"message": MESSAGE, "configuration": {"historyLength": "1"}},
        {"message": MESSAGE, "configuration": {"historyLength": -1}},
        {"message": MESSAGE, "metadata": None},
    ],
)
def test_other_spellings_are_left_to_the_sdk(request_json: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(request_json, SendRequest)


def without_varying(value: Any) -> Any:
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {key: "…" if key in VARYING else without_varying(entry) for key, entry in fields.items()}
    return [without_varying(entry) for entry in cast("list[Any]", value)] if isinstance(value, list) else value


async def replied(server: Serving, is_json_rpc: bool, is_stream: bool, sent: dict[str, Any]) -> Any:
    if is_json_rpc:
        path = "/a2a/echo"
        method = "SendStreamingMessage" if is_stream else "SendMessage"
        sent = {"jsonrpc": "2.0", "id": "7", "method": method, "params": sent}
    else:
        path = "/a2a/echo/message:" + ("stream" if is_stream else "send")
    reply = await server.client.post(path, json=sent, headers={"a2a-version": "1.0"})
    kind = reply.headers["content-type"]
    frames = [line.removeprefix("data: ") for line in reply.text.splitlines() if line.startswith("data: ")]
    found = [json.loads(text) for text in (frames if "event-stream" in kind else [reply.text])]
    return reply.status_code, kind, as_floats(without_varying(found))


@pytest.mark.parametrize("is_json_rpc", [True, False])
@pytest.mark.parametrize("is_stream", [True, False])
@pytest.mark.parametrize("is_refused", [True, False])
async def test_replies_are_those_of_the_sdk(serve: Serve, is_json_rpc: bool, is_stream: bool, is_refused: bool) -> None:
    """The SDK reads messages with a field that the record does not have."""
    server = await serve(echo(), gates=("a2a",))
    given = {**MESSAGE, "parts": [{"text": "one two"}], "metadata": {"k": 1}}
    given |= {"taskId": "none"} if is_refused else {}
    direct, by_sdk = [
        await replied(server, is_json_rpc, is_stream, {"message": {**given, "contextId": "c", **more}, "metadata": {}})
        for more in ({}, {"messageId": "m2", "unknown": 1})
    ]
    text = json.dumps(by_sdk).replace('"m2"', '"m"')
    assert direct == tuple(json.loads(text))
