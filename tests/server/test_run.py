"""Runs over HTTP: what is sent, in which order, byte by byte."""

from __future__ import annotations

import json

import pytest

from greenroom.invocation.user_context import ToolContext
from greenroom.records.content import FunctionCall, Part
from greenroom.records.model_exchange import LlmResponse
from greenroom.records.state import REMOVED
from greenroom.testing.scripted_model import Fails
from tests.server.agents import HeldModel, echo, scripted
from tests.server.conftest import Serve, Store
from tests.server.serving import Serving, frames_of, run_body

MAPS = ("stateDelta", "artifactDelta", "requestedAuthConfigs", "requestedToolConfirmations")


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest) -> Store:
    return request.param


@pytest.mark.parametrize("streaming", [False, True])
async def test_run_answers_with_the_agents_whole_events(server: Serving, streaming: bool) -> None:
    path = await server.new_session("echo")
    reply = await server.run("echo", "hello there", streaming=streaming)
    assert reply.headers["content-type"] == "application/json"
    (event,) = reply.json()
    assert event["content"] == {"role": "model", "parts": [{"text": "You said hello there"}]}
    assert event["author"] == "echo"
    assert event["invocationId"] == reply.headers["x-run-id"]
    assert all(event["actions"][name] == {} for name in MAPS)
    assert "partial" not in event
    user, stored = (await server.client.get(path)).json()["events"]
    assert stored == event
    assert (user["author"], user["content"]) == ("user", {"role": "user", "parts": [{"text": "hello there"}]})
    assert user["invocationId"] == event["invocationId"]


async def test_streamed_text_comes_in_pieces_and_then_whole(server: Serving) -> None:
    path = await server.new_session("echo")
    frames = await server.sse("echo", "a b", streaming=True)
    *pieces, whole = frames
    assert [piece.text for piece in pieces] == ["You ", "said ", "a ", "b"]
    assert all(piece.data["partial"] is True and piece.id is None for piece in pieces)
    assert whole.text == "You said a b"
    assert "partial" not in whole.data
    assert whole.id == 2
    assert len({frame.data["id"] for frame in frames}) == 1
    events = (await server.client.get(path)).json()["events"]
    assert events[1] == whole.data
    assert len(events) == 2


async def test_without_streaming_there_are_whole_events_only(server: Serving) -> None:
    await server.new_session("echo")
    (frame,) = await server.sse("echo", "a b")
    assert (frame.text, frame.id) == ("You said a b", 2)


@pytest.mark.parametrize("path", ["/run_sse", "/run-sse"])
async def test_frames_are_lines_of_compact_json_each_in_one_write(serve: Serve, path: str) -> None:
    server = await serve(scripted("talker", ["Hei på deg, " * 50], chunks=3))
    await server.new_session("talker")
    connection = await server.connect()
    await connection.post(path, run_body("talker", streaming=True), {"accept": "text/event-stream"})
    status, headers = await connection.head()
    assert status == 200
    assert headers["content-type"] == "text/event-stream; charset=utf-8"
    assert headers["transfer-encoding"] == "chunked"
    assert headers["cache-control"] == "no-cache"
    writes = await connection.chunks()

    for write in writes:
        assert write.endswith(b"\n\n")
        for frame in write.split(b"\n\n")[:-1]:
            lines = frame.split(b"\n")
            data = lines[-1].removeprefix(b"data: ")
            event = json.loads(data)
            assert data == json.dumps(event, separators=(",", ":"), ensure_ascii=False).encode()
            if event.get("partial"):
                assert lines == [b"data: " + data]
            else:
                assert lines == [b"id: 2", b"data: " + data]

    assert "".join(f.text for f in frames_of(b"".join(writes)) if f.id is None) == "Hei på deg, " * 50
    connection.drop()


async def test_line_separators_never_split_a_frame(serve: Serve) -> None:
    text = "a\u2028b\u2029c\x85d\re\nf\x0bg\x0ch\x1ci"
    server = await serve(scripted("odd", [text], chunks=100))
    session = await server.new_session("odd", state={"k": text})
    reply = await server.client.post("/run_sse", json=run_body("odd", text, streaming=True))
    assert len(reply.text.splitlines()) == reply.content.count(b"\n")
    assert {frame.text for frame in frames_of(reply.content)} == {text}
    stored = await server.client.get(session)
    assert stored.json()["state"] == {"k": text}
    assert not any(mark in stored.text for mark in "\u2028\u2029\x85")


async def test_a_tool_is_called_and_its_answer_read(serve: Serve) -> None:
    async def weather(city: str, tool_context: ToolContext) -> dict[str, str]:
        """Tell the weather."""
        tool_context.state["asked"] = city
        return {"sky": "grey"}

    script = [FunctionCall(name="weather", args={"city": "Oslo"}), "It is grey."]
    server = await serve(scripted("host", script, tools=[weather], loop=True))
    path = await server.new_session("host")
    call, answer, text = (frame.data for frame in await server.sse("host", streaming=True) if frame.id is not None)
    (called,) = call["content"]["parts"]
    assert called["functionCall"]["name"] == "weather"
    assert called["functionCall"]["args"] == {"city": "Oslo"}
    assert call["content"]["role"] == "model"
    assert answer["content"] == {
        "role": "user",
        "parts": [
            {"functionResponse": {"id": called["functionCall"]["id"], "name": "weather", "response": {"sky": "grey"}}}
        ],
    }
    assert answer["author"] == "host"
    assert answer["actions"]["stateDelta"] == {"asked": "Oslo"}
    assert text["content"]["parts"] == [{"text": "It is grey."}]
    assert (await server.client.get(path)).json()["state"] == {"asked": "Oslo"}
    events = (await server.run("host")).json()
    assert [next(iter(event["content"]["parts"][0])) for event in events] == [
        "functionCall",
        "functionResponse",
        "text",
    ]


async def test_parallel_calls_are_answered_by_one_event(serve: Serve) -> None:
    async def double(n: int) -> int:
        """Double."""
        return 2 * n

    calls = [FunctionCall(name="double", args={"n": n}) for n in (1, 2, 3)]
    server = await serve(scripted("host", [calls, "done"], tools=[double]))
    await server.new_session("host")
    call, answer, _ = (await server.run("host")).json()
    ids = [part["functionCall"]["id"] for part in call["content"]["parts"]]
    responses = [part["functionResponse"] for part in answer["content"]["parts"]]
    assert [response["id"] for response in responses] == ids
    assert [response["response"] for response in responses] == [{"result": 2}, {"result": 4}, {"result": 6}]


async def test_a_state_delta_is_part_of_the_users_event(server: Serving) -> None:
    path = await server.new_session("echo", state={"old": 1, "gone": 1})
    await server.run(
        "echo", "hi", stateDelta={"new": {"n": None}, "user:x": 1, "temp:y": 2, "old": None, "gone": REMOVED}
    )
    session = (await server.client.get(path)).json()
    assert session["state"] == {"new": {"n": None}, "user:x": 1, "old": None}
    delta = session["events"][0]["actions"]["stateDelta"]
    assert delta == {"new": {"n": None}, "user:x": 1, "old": None, "gone": REMOVED}


async def test_a_run_may_come_without_a_message(serve: Serve) -> None:
    server = await serve(scripted("host", ["one", "two", "three"]))
    path = await server.new_session("host")
    assert (await server.run("host", None)).status_code == 200
    assert (await server.run("host", None, stateDelta={"a": 1})).status_code == 200
    assert (await server.run("host", None, newMessage=None)).status_code == 200
    events = (await server.client.get(path)).json()["events"]
    assert [(event["author"], "content" in event) for event in events] == [
        ("host", True), ("user", False), ("host", True), ("host", True),
    ]  # fmt: skip


async def test_custom_metadata_is_on_every_event_of_the_run(server: Serving) -> None:
    await server.new_session("echo")
    frames = await server.sse("echo", streaming=True, customMetadata={"trace": "t-1"})
    assert all(frame.data["customMetadata"] == {"trace": "t-1"} for frame in frames)


async def test_bytes_in_a_message_reach_the_agent_and_the_log(server: Serving) -> None:
    path = await server.new_session("echo")
    blob = {"displayName": "n.md", "data": "-_8", "mimeType": "text/markdown"}
    body = run_body("echo", None, newMessage={"parts": [{"text": "see"}, {"inlineData": blob}]})
    assert (await server.client.post("/run", json=body)).status_code == 200
    user = (await server.client.get(path)).json()["events"][0]
    assert user["content"]["parts"][1] == {"inlineData": {**blob, "data": "+/8="}}


async def test_an_error_is_an_event_and_then_a_last_frame(serve: Serve) -> None:
    server = await serve(scripted("bad", [ValueError("bad city"), ValueError("bad city")]))
    path = await server.new_session("bad")
    event, last = await server.sse("bad")
    assert (event.data["errorCode"], event.data["errorMessage"]) == ("ValueError", "bad city")
    assert "content" not in event.data
    assert event.id == 2
    assert last.id is None
    assert last.event is None
    assert set(last.data) == {"error", "error_details", "problem"}
    assert last.data["error"] == "ValueError: bad city"
    details = last.data["error_details"]
    assert details.pop("timestamp") >= event.data["timestamp"]
    assert details == {"error_type": "ValueError", "error_message": "bad city"}
    assert (await server.client.get(path)).json()["events"][1] == event.data
    whole = await server.run("bad")
    assert (whole.status_code, whole.headers["content-type"]) == (500, "application/problem+json")
    assert (whole.json()["code"], whole.json()["detail"]) == ("ValueError", "bad city")
    assert last.data["problem"] == whole.json()
    follow = f"/runs/{event.data['invocationId']}/events"
    stream = await server.client.get(follow, headers={"accept": "text/event-stream"})
    assert frames_of(stream.content)[-1].data["problem"] == whole.json()
    record = (await server.client.get(f"/runs/{event.data['invocationId']}")).json()
    assert record["status"] == "failed"
    assert record["error"] == {"code": "ValueError", "message": "bad city", "status": 500}


async def test_what_was_said_before_an_error_is_kept(serve: Serve) -> None:
    server = await serve(scripted("bad", [Fails(error=RuntimeError("gone"), after_chunks=2, text="one two three")]))
    path = await server.new_session("bad")
    *pieces, event, last = await server.sse("bad", streaming=True)
    assert [piece.text for piece in pieces] == ["one ", "two "]
    assert event.data["errorCode"] == "RuntimeError"
    assert (event.text, event.data["id"]) == ("one two ", pieces[0].data["id"])
    assert last.data["error"] == "RuntimeError: gone"
    assert (await server.client.get(path)).json()["events"][1] == event.data


async def test_what_a_model_reports_is_an_event_like_any_other(serve: Serve) -> None:
    blocked = LlmResponse(error_code="SAFETY", error_message="blocked")
    server = await serve(scripted("host", [blocked, blocked]))
    await server.new_session("host")
    (frame,) = await server.sse("host")
    assert (frame.data["errorCode"], frame.data["errorMessage"]) == ("SAFETY", "blocked")
    (event,) = (await server.run("host")).json()
    assert event["errorCode"] == "SAFETY"


async def test_thoughts_are_streamed_as_thoughts(serve: Serve) -> None:
    server = await serve(scripted("host", [[Part(text="hm hm", thought=True), Part(text="yes")]]))
    await server.new_session("host")
    *pieces, whole = await server.sse("host", streaming=True)
    assert [piece.data["content"]["parts"] for piece in pieces] == [
        [{"text": "hm ", "thought": True}], [{"text": "hm", "thought": True}], [{"text": "yes"}],
    ]  # fmt: skip
    assert whole.data["content"]["parts"] == [{"text": "hm hm", "thought": True}, {"text": "yes"}]


async def test_an_event_is_seen_while_the_run_is_active(serve: Serve) -> None:
    agent = echo("held")
    agent.model = model = HeldModel("one two")
    server = await serve(agent)
    await server.new_session("held")
    connection = await server.connect()
    await connection.post("/run_sse", run_body("held", streaming=True))
    assert (await connection.head())[0] == 200
    for word in ("one ", "two "):
        model.let_go(1)
        (frame,) = frames_of(await connection.chunk())
        assert frame.text == word
    model.let_go(1)
    (frame,) = frames_of(await connection.chunk())
    assert (frame.text, frame.id) == ("one two ", 2)
    assert await connection.chunk() == b""
    connection.drop()


async def test_sessions_can_be_made_by_the_first_run(serve: Serve) -> None:
    server = await serve(auto_create_session=True)
    assert (await server.run("echo", sessionId="fresh")).status_code == 200
    assert len((await server.client.get("/apps/echo/users/ann/sessions/fresh")).json()["events"]) == 2
