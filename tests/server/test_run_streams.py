"""Streams of runs: readers that leave and reconnect, and runs that continue without them or are cancelled."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.records import wire
from greenroom.records.event import Event
from greenroom.sessions.in_memory import InMemorySessionService
from greenroom.sessions.sqlite import SqliteSessionService
from tests.server.agents import Gate, HeldModel, echo, gated, scripted
from tests.server.conftest import Serve, Store
from tests.server.serving import RawConnection, Serving, frames_of, run_body, until

STREAM = {"accept": "text/event-stream"}
MESSAGE = {"newMessage": {"parts": [{"text": "hi"}]}}


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest) -> Store:
    return request.param


def held(text: str = "one two three four ") -> tuple[LlmAgent, HeldModel]:
    model = HeldModel(text)
    return LlmAgent(name="held", model=model), model


async def begun(server: Serving, model: HeldModel, **more: Any) -> tuple[RawConnection, str]:
    """A streaming client that has seen the first word, and the run's id."""
    await server.new_session("held")
    connection = await server.connect()
    await connection.post("/run_sse", run_body("held", streaming=True, **more))
    _, headers = await connection.head()
    model.let_go(1)
    assert b"one " in await connection.chunk()
    return connection, headers["x-run-id"]


async def attached(server: Serving, run_id: str, after: int = 0) -> RawConnection:
    connection = await server.connect()
    await connection.request("GET", f"/runs/{run_id}/events", {**STREAM, "last-event-id": str(after)})
    assert (await connection.head())[0] == 200
    return connection


@pytest.mark.parametrize("settings", [{}, {"on_disconnect": "cancel"}])
async def test_a_run_continues_when_its_client_drops(serve: Serve, settings: dict[str, str]) -> None:
    agent, model = held()
    server = await serve(agent, **settings)
    more = {"onDisconnect": "continue"} if settings else {}
    connection, run_id = await begun(server, model, **more)
    connection.drop()
    model.let_go()
    record = await server.wait_for_status(run_id, "succeeded", "cancelled", "failed")
    assert record["status"] == "succeeded"
    page = (await server.client.get(f"/runs/{run_id}/events")).json()
    assert page["events"][-1]["content"]["parts"] == [{"text": "one two three four "}]


@pytest.mark.parametrize("settings", [{}, {"on_disconnect": "cancel"}])
async def test_a_run_is_stopped_with_its_client_when_that_was_agreed(serve: Serve, settings: dict[str, str]) -> None:
    agent, model = held()
    server = await serve(agent, **settings)
    connection, run_id = await begun(server, model, **({} if settings else {"onDisconnect": "cancel"}))
    connection.drop()
    await server.wait_for_status(run_id, "cancelled")
    assert model.closed == 1
    page = (await server.client.get(f"/runs/{run_id}/events")).json()
    last = page["events"][-1]
    assert (last["author"], last["errorCode"]) == ("held", "INVOCATION_ABORTED")
    assert last["errorMessage"].endswith("the client disconnected")
    assert last["content"]["parts"] == [{"text": "one "}]


@pytest.mark.parametrize("on_disconnect", ["cancel", "continue"])
async def test_a_waiting_client_that_drops(serve: Serve, on_disconnect: str) -> None:
    gate = Gate()
    server = await serve(gated(gate))
    session = await server.new_session("gated")
    connection = await server.connect()
    await connection.post("/run", run_body("gated", onDisconnect=on_disconnect))
    await until(lambda: gate.entered)
    run_id = (await server.client.get(session)).json()["events"][0]["invocationId"]
    connection.drop()
    if on_disconnect == "cancel":
        await server.wait_for_status(run_id, "cancelled")
    else:
        gate.open()
        await server.wait_for_status(run_id, "succeeded")


async def test_two_clients_see_the_same_stream(serve: Serve) -> None:
    agent, model = held()
    server = await serve(agent)
    session = await server.new_session("held")
    run_id = (await server.client.post(f"{session}/runs", json={**MESSAGE, "streaming": True})).json()["id"]
    await until(lambda: model.calls)
    readers = [await attached(server, run_id) for _ in range(3)]
    readers.pop().drop()
    model.let_go()
    first, second = [frames_of(b"".join(await reader.chunks())) for reader in readers]
    assert first == second
    assert [frame.text for frame in first if frame.id is not None] == ["hi", "one two three four "]
    assert "".join(frame.text for frame in first if frame.data.get("partial")) == "one two three four "
    assert first[-1].event == "end"
    for reader in readers:
        reader.drop()


async def test_the_end_of_a_stream_holds_the_record_that_the_run_has(serve: Serve) -> None:
    server = await serve(echo())
    session = await server.new_session("echo")
    body = {**MESSAGE, "customMetadata": {"ticket": 7}}
    headers = {"idempotency-key": "k-1", "traceparent": f"00-{'1' * 32}-{'2' * 16}-01"}
    run_id = (await server.client.post(f"{session}/runs", json=body, headers=headers)).json()["id"]
    await server.wait_for_status(run_id, "succeeded")
    record = (await server.client.get(f"/runs/{run_id}")).json()
    assert record["idempotencyKey"] == "k-1"
    reader = await attached(server, run_id)
    end = frames_of(b"".join(await reader.chunks()))[-1]
    assert (end.event, end.data) == ("end", record)
    follower = await server.connect()
    await follower.request("GET", f"{session}/events", STREAM)
    assert (await follower.head())[0] == 200
    followed = b""
    while b"event: end" not in followed:
        followed += await follower.chunk()
    assert frames_of(followed)[-1].data == record
    for connection in (reader, follower):
        connection.drop()


async def test_a_session_stream_breaks_off_when_the_session_is_deleted(serve: Serve) -> None:
    agent, model = held()
    server = await serve(agent)
    session = await server.new_session("held")
    follower = await server.connect()
    await follower.request("GET", f"{session}/events", STREAM)
    assert (await follower.head())[0] == 200
    await server.client.post(f"{session}/runs", json=MESSAGE)
    await until(lambda: model.calls)
    assert (await server.client.delete(session)).status_code == 200
    await server.client.post(session)  # its events are not those of the stream
    model.let_go()
    streamed = b""
    async with asyncio.timeout(5):
        with pytest.raises(asyncio.IncompleteReadError):
            while True:
                streamed += await follower.chunk()
    *_, end = frames_of(streamed)
    assert (end.event, end.data["status"]) == ("end", "cancelled")


async def test_an_event_is_encoded_once_for_the_store_and_all_readers(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded = Counter[str]()
    encode = wire.encode

    def count(value: object) -> bytes:
        if isinstance(value, Event) and not value.partial:
            encoded[value.id] += 1
        return encode(value)

    gate = Gate()
    server = await serve(gated(gate))
    session = await server.new_session("gated")
    monkeypatch.setattr(wire, "encode", count)
    follower = await server.connect()
    await follower.request("GET", f"{session}/events", {"accept": "text/event-stream"})
    await follower.head()
    gate.open()
    assert await server.sse("gated")
    assert (await server.run("gated")).status_code == 200
    stored = (await server.client.get(f"{session}/events")).json()["events"]
    assert len(stored) == 8
    assert encoded == {event["id"]: 1 for event in stored}


async def test_a_client_that_comes_late_sees_the_message_being_written_from_its_start(serve: Serve) -> None:
    agent, model = held()
    server = await serve(agent)
    connection, run_id = await begun(server, model)
    model.let_go(1)
    assert b"two " in await connection.chunk()
    late = await attached(server, run_id, after=1)
    model.let_go()
    frames = frames_of(b"".join(await late.chunks()))
    assert "".join(frame.text for frame in frames if frame.data.get("partial")) == "one two three four "
    assert [frame.id for frame in frames if frame.id is not None] == [2]
    connection.drop()
    late.drop()


async def test_a_reader_that_stalls_holds_up_nobody(serve: Serve) -> None:
    text = "x" * 200_000
    server = await serve(scripted("long", [text], chunks=100), echo())
    session = await server.new_session("long")
    connection = await server.connect(receive_buffer=4096)
    await connection.post("/run_sse", run_body("long", streaming=True))
    run_id = (await connection.head())[1]["x-run-id"]
    await server.wait_for_status(run_id, "succeeded")  # it ends though nobody reads
    await server.new_session("echo")
    assert (await server.run("echo")).status_code == 200
    frames = frames_of(b"".join(await connection.chunks()))
    assert (frames[-1].id, frames[-1].text) == (2, text)
    assert (await server.client.get(session)).json()["events"][-1] == frames[-1].data
    connection.drop()


async def test_a_silent_stream_is_kept_alive_by_comments_in_writes_of_their_own(serve: Serve) -> None:
    gate = Gate()
    server = await serve(gated(gate), keep_alive_seconds=0.02)
    await server.new_session("gated")
    connection = await server.connect()
    await connection.post("/run_sse", run_body("gated"))
    await connection.head()
    comment = b": keep-alive\n\n"
    while (chunk := await connection.chunk()) == comment:
        pass
    assert frames_of(chunk)[0].id == 2
    for _ in range(3):
        assert await connection.chunk() == comment
    gate.open()
    rest = b"".join(chunk for chunk in await connection.chunks() if chunk != comment)
    assert [frame.id for frame in frames_of(rest)] == [3, 4]
    connection.drop()


async def test_a_session_can_be_followed_over_all_its_runs(serve: Serve) -> None:
    server = await serve(echo())
    session = await server.new_session("echo")
    await server.run("echo", "before")
    connection = await server.connect()
    await connection.request("GET", f"{session}/events?after=1", STREAM)
    assert (await connection.head())[0] == 200
    (first,) = frames_of(await connection.chunk())
    assert (first.id, first.text) == (2, "You said before")
    for number in range(3):
        await server.run("echo", f"m{number}")
    await server.client.patch(session, json={"stateDelta": {"a": 1}})
    seen: list[int] = []
    ends = 0
    while len(seen) < 7 or ends < 3:
        for frame in frames_of(await connection.chunk()):
            if frame.event == "end":
                ends += 1
            elif frame.id is not None:
                seen.append(frame.id)
    assert seen == [3, 4, 5, 6, 7, 8, 9]
    connection.drop()


async def test_a_follower_sees_changes_made_outside_runs(serve: Serve) -> None:
    server = await serve(echo())
    session = await server.new_session("echo")
    connection = await server.connect()
    await connection.request("GET", f"{session}/events", STREAM)
    await connection.head()
    await server.client.patch(session, json={"stateDelta": {"a": 1}})
    (frame,) = frames_of(await connection.chunk())
    assert (frame.id, frame.data["actions"]["stateDelta"]) == (1, {"a": 1})
    connection.drop()


async def test_head_of_a_stream_has_no_body(server: Serving) -> None:
    session = await server.new_session("echo")
    connection = await server.connect()
    await connection.request("HEAD", f"{session}/events", {**STREAM, "connection": "close"})
    status, headers = await connection.head()
    assert (status, headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    async with asyncio.timeout(5):
        assert await connection.reader.read() == b""
    connection.drop()


async def test_a_follower_is_given_what_nobody_published(serve: Serve, store: Store, tmp_path: Path) -> None:
    sessions = InMemorySessionService() if store == "memory" else SqliteSessionService(tmp_path / "x.db")
    server = await serve(echo(), services={"session_service": sessions})
    path = await server.new_session("echo")
    connection = await server.connect()
    await connection.request("GET", f"{path}/events", STREAM)
    await connection.head()
    session = await sessions.get_session(app_name="echo", user_id="ann", session_id="s-1")
    assert session is not None
    await sessions.append(session, Event(author="echo", id="stored elsewhere"))
    await server.run("echo")
    seen: list[int | None] = []
    while len(seen) < 3:
        seen += [frame.id for frame in frames_of(await connection.chunk()) if frame.event is None]
    assert seen == [1, 2, 3]


async def test_a_session_stream_shows_the_ends_of_runs_that_ended_before_it_was_opened(serve: Serve) -> None:
    server = await serve(echo())
    path = await server.new_session("echo")
    run_ids = [(await server.run("echo", text)).headers["x-run-id"] for text in ("a", "b")]
    await server.client.patch(path, json={"stateDelta": {"k": 1}})
    run_ids.append((await server.run("echo", "c")).headers["x-run-id"])
    seen = [f"{kind} {run_id}" for run_id in run_ids for kind in ("event", "event", "end")]

    for after in range(8):  # each run has two events, the patch is the fifth
        reader = await server.connect()
        await reader.request("GET", f"{path}/events", {**STREAM, "last-event-id": str(after)})
        await reader.head()
        expected = seen[:]
        del expected[: [0, 1, 2, 4, 5, 9, 7, 8][after]]
        if after == 5:  # the patch itself was the last event seen
            expected = seen[6:]

        frames: list[str] = []
        while len(frames) < len(expected):
            for frame in frames_of(await reader.chunk()):
                if frame.data.get("invocationId", "").startswith("p-"):
                    continue
                frames.append(
                    f"end {frame.data['id']}" if frame.event == "end" else f"event {frame.data['invocationId']}"
                )

        assert frames == expected, after
        reader.drop()


async def test_a_forks_stream_shows_no_ends_of_its_origins_runs(serve: Serve) -> None:
    server = await serve(echo())
    path = await server.new_session("echo")
    await server.run("echo", "a")
    forked = (await server.client.post(f"{path}/fork", json={"seq": 1})).json()["id"]
    fork = f"{path.rpartition('/')[0]}/{forked}"
    run_id = (await server.client.post(f"{fork}/runs", json=MESSAGE)).json()["id"]
    reader = await server.connect()
    await reader.request("GET", f"{fork}/events", STREAM)
    await reader.head()
    ends: list[str] = []
    while not ends:
        ends += [frame.data["id"] for frame in frames_of(await reader.chunk()) if frame.event == "end"]
    assert ends == [run_id]


async def test_the_end_of_a_run_comes_once_to_a_session_stream(serve: Serve) -> None:
    agent, model = held()
    server = await serve(agent)
    path = await server.new_session("held")
    run_id = (await server.client.post(f"{path}/runs", json=MESSAGE)).json()["id"]
    reader = await server.connect()
    await reader.request("GET", f"{path}/events", STREAM)
    await reader.head()
    model.let_go()
    found: list[str | None] = []
    while "end" not in found:
        found += [frame.event for frame in frames_of(await reader.chunk())]
    await server.wait_for_status(run_id, "succeeded")
    model.let_go()
    await server.run("held", "again")
    while found.count("end") < 2:
        found += [frame.event for frame in frames_of(await reader.chunk())]
    assert [event for event in found if event == "end"] == ["end", "end"]
