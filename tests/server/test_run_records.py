"""A run has a record and a log that can be read at any time."""

from __future__ import annotations

import asyncio

import pytest

from greenroom.records.content import FunctionCall
from greenroom.tools.functions.function_tool import LongRunningFunctionTool
from tests.server.agents import Gate, gated, scripted
from tests.server.conftest import Serve, Store
from tests.server.serving import Serving, frames_of, run_body, until

STREAM = {"accept": "text/event-stream"}
MESSAGE = {"newMessage": {"parts": [{"text": "hi"}]}}


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest) -> Store:
    return request.param


async def test_a_run_leaves_a_record(server: Serving) -> None:
    await server.new_session("echo")
    await server.run("echo", "first")
    run_id = (await server.run("echo", "second")).headers["x-run-id"]
    record = (await server.client.get(f"/runs/{run_id}")).json()
    assert record["id"] == run_id
    assert (record["appName"], record["userId"], record["sessionId"]) == ("echo", "ann", "s-1")
    assert (record["status"], record["attempts"], record["afterSeq"]) == ("succeeded", 1, 2)
    assert record["createdAt"] <= record["startedAt"] <= record["endedAt"]
    assert "request" not in record
    assert "error" not in record


async def test_a_run_in_the_background_is_answered_at_once(serve: Serve) -> None:
    gate = Gate()
    server = await serve(gated(gate))
    session = await server.new_session("gated")
    reply = await server.client.post(f"{session}/runs", json=MESSAGE)
    assert reply.status_code == 202
    record = reply.json()
    assert reply.headers["location"] == f"/runs/{record['id']}"
    assert record["status"] in ("queued", "running")
    await until(lambda: gate.entered)
    assert (await server.client.get(reply.headers["location"])).json()["status"] == "running"
    gate.open()
    ended = await server.wait_for_status(record["id"], "succeeded")
    assert ended["endedAt"] >= ended["startedAt"]
    page = (await server.client.get(f"/runs/{record['id']}/events")).json()
    assert [event["author"] for event in page["events"]] == ["user", "gated", "gated", "gated"]
    assert page["lastSeq"] == 4


async def test_a_background_run_of_nothing_known_is_refused(server: Serving) -> None:
    session = await server.new_session("echo")
    assert (await server.client.post(f"{session}x/runs", json=MESSAGE)).status_code == 404
    nope = "/apps/nope/users/ann/sessions/s-1/runs"
    assert (await server.client.post(nope, json=MESSAGE)).status_code == 404
    assert (await server.client.post(f"{session}/runs", json={"newMessage": 5})).status_code == 422


async def test_pages_of_events_join_without_gap(server: Serving) -> None:
    session = await server.new_session("echo")
    runs = [(await server.run("echo", f"message {n}")).headers["x-run-id"] for n in range(5)]
    whole = (await server.client.get(session)).json()["events"]
    found: list[object] = []
    after = 0
    while True:
        page = (await server.client.get(f"{session}/events", params={"after": after, "limit": 3})).json()
        assert len(page["events"]) <= 3
        found += page["events"]
        if page["lastSeq"] == after:
            break
        after = page["lastSeq"]
    assert found == whole
    for n, run_id in enumerate(runs):
        page = (await server.client.get(f"/runs/{run_id}/events")).json()
        assert page["events"] == whole[2 * n : 2 * n + 2]
    assert (await server.client.get(f"{session}/events?after=10000")).json() == {"events": [], "lastSeq": 10000}


async def test_the_stream_of_a_finished_run_is_its_log_and_its_end(server: Serving) -> None:
    session = await server.new_session("echo")
    run_id = (await server.run("echo")).headers["x-run-id"]
    events = (await server.client.get(session)).json()["events"]
    reply = await server.client.get(f"/runs/{run_id}/events", headers=STREAM)
    assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert reply.headers["x-run-id"] == run_id
    *frames, end = frames_of(reply.content)
    assert [(frame.id, frame.data) for frame in frames] == list(enumerate(events, 1))
    assert (end.event, end.data["status"], end.id) == ("end", "succeeded", None)
    for seen in range(3):
        reply = await server.client.get(f"/runs/{run_id}/events", headers={**STREAM, "last-event-id": str(seen)})
        assert [frame.id for frame in frames_of(reply.content)] == [*range(seen + 1, 3), None]


@pytest.mark.parametrize("query", ["", "?after=0"])
@pytest.mark.parametrize(
    "value", [b"x", b"-1", b"1.5", b"9" * 30, "٣".encode(), b"1 2", "²".encode(), b"\xb2", b"\x85"]
)
async def test_a_last_event_id_is_a_number(server: Serving, value: bytes, query: str) -> None:
    session = await server.new_session("echo")
    headers = [(b"accept", b"text/event-stream"), (b"last-event-id", value)]
    reply = await server.client.get(f"{session}/events{query}", headers=headers)
    assert reply.status_code == 422
    assert reply.json()["errors"][0]["loc"] == ["header", "last-event-id"]


@pytest.mark.parametrize("name", ["after", "limit"])
async def test_a_place_that_no_store_can_count_to_is_refused(server: Serving, name: str) -> None:
    session = await server.new_session("echo")
    for number, status in ((2**53 - 1, 200), (2**53, 422), (2**64, 422), (10**40, 422)):
        assert (await server.client.get(f"{session}/events", params={name: number})).status_code == status


async def test_a_reader_that_comes_back_misses_nothing(serve: Serve) -> None:
    async def step(n: int) -> int:
        """Take a step."""
        await asyncio.sleep(0)
        return n

    turns = [FunctionCall(name="step", args={"n": n}) for n in range(30)]
    server = await serve(scripted("walker", [*turns, "there"], tools=[step], delay=0.002))
    session = await server.new_session("walker")
    run_id = (await server.client.post(f"{session}/runs", json=MESSAGE)).json()["id"]

    seen: list[int] = []
    is_over = False
    while not is_over:
        connection = await server.connect()
        headers = {**STREAM, **({"last-event-id": str(seen[-1])} if seen else {})}
        await connection.request("GET", f"/runs/{run_id}/events", headers)
        assert (await connection.head())[0] == 200

        for _ in range(2):  # a reader that drops after two writes
            chunk = await connection.chunk()
            frames = frames_of(chunk)
            seen += [frame.id for frame in frames if frame.id is not None]
            is_over = is_over or any(frame.event == "end" for frame in frames)
            if is_over or not chunk:
                break

        connection.drop()

    assert seen == list(range(1, 63))
    assert len((await server.client.get(session)).json()["events"]) == 62


async def test_cancel_stops_a_run_and_says_so_everywhere(serve: Serve) -> None:
    gate = Gate()
    server = await serve(gated(gate))
    session = await server.new_session("gated")
    streaming = asyncio.ensure_future(server.sse("gated"))
    waiting = asyncio.ensure_future(server.run("gated", "next"))
    await until(lambda: gate.entered)
    (run_id,) = {e["invocationId"] for e in (await server.client.get(f"{session}/events")).json()["events"]}
    cancelled = await server.client.post(f"/runs/{run_id}/cancel")
    assert (cancelled.status_code, cancelled.json()["status"]) == (200, "cancelled")
    call, abort, last = await streaming
    assert "functionCall" in call.data["content"]["parts"][0]
    assert abort.data["errorCode"] == "INVOCATION_ABORTED"
    assert (
        abort.data["content"]["parts"][0]["functionResponse"]["id"]
        == call.data["content"]["parts"][0]["functionCall"]["id"]
    )
    assert last.data["error"].startswith("RunCancelled: ")
    again = await server.client.post(f"/runs/{run_id}/cancel")
    assert again.json()["status"] == "cancelled"
    gate.open()
    assert (await waiting).status_code == 200  # the session is free for the one in line


async def test_a_run_in_line_can_be_cancelled_before_it_begins(serve: Serve) -> None:
    gate = Gate()
    server = await serve(gated(gate))
    session = await server.new_session("gated")
    first = (await server.client.post(f"{session}/runs", json=MESSAGE)).json()["id"]
    second = (await server.client.post(f"{session}/runs", json=MESSAGE)).json()
    assert second["status"] == "queued"
    assert (await server.client.post(f"/runs/{second['id']}/cancel")).json()["status"] == "cancelled"
    gate.open()
    await server.wait_for_status(first, "succeeded")
    events = (await server.client.get(session)).json()["events"]
    assert {event["invocationId"] for event in events} == {first}


async def test_a_run_waits_for_a_long_running_answer_and_continues(serve: Serve) -> None:
    async def ask_manager(what: str) -> dict[str, str]:
        """Ask."""
        return {"status": "pending"}

    script = [FunctionCall(name="ask_manager", args={"what": "x"}), "I have asked.", "It was approved."]
    server = await serve(scripted("host", script, tools=[LongRunningFunctionTool(ask_manager)]))
    await server.new_session("host")
    call, *_ = first = (await server.run("host")).json()
    run_id = call["invocationId"]
    assert call["longRunningToolIds"] == [call["content"]["parts"][0]["functionCall"]["id"]]
    assert (await server.client.get(f"/runs/{run_id}")).json()["status"] == "waiting"
    answer = {"id": call["longRunningToolIds"][0], "name": "ask_manager", "response": {"status": "approved"}}
    body = run_body(
        "host",
        None,
        functionCallEventId=call["id"],
        newMessage={"role": "user", "parts": [{"functionResponse": answer}]},
    )
    reply = await server.client.post("/run", json=body)
    assert reply.json()[-1]["content"]["parts"] == [{"text": "It was approved."}], first
    assert {event["invocationId"] for event in reply.json()} == {run_id}
    record = (await server.client.get(f"/runs/{run_id}")).json()
    assert record["status"] == "succeeded"
    assert len((await server.client.get(f"/runs/{run_id}/events")).json()["events"]) == len(first) + 3


async def test_an_answer_to_a_call_that_nobody_made_is_refused(server: Serving) -> None:
    await server.new_session("echo")
    message = {"parts": [{"functionResponse": {"id": "nope", "name": "f", "response": {}}}]}
    reply = await server.client.post("/run", json=run_body("echo", None, newMessage=message))
    assert (reply.status_code, reply.json()["code"]) == (422, "InvalidRequest")
