"""Messages into a running turn over HTTP: where each endpoint says that they were read."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from greenroom.client.async_client import AsyncClient
from greenroom.records.content import Content, FunctionCall
from greenroom.records.model_exchange import LlmRequest
from greenroom.testing.scripted_live_model import ScriptedLiveModel
from tests.server.agents import Gate, scripted
from tests.server.conftest import Serve, Store
from tests.server.live_client import talking, texts
from tests.server.serving import Json, Serving, run_body, until
from tests.server.test_live import desk, ready

SESSION = "/apps/gated/users/ann/sessions/s-1"


@pytest.fixture(params=["memory", "sqlite", "replicas"])
def store(request: pytest.FixtureRequest) -> Store:
    return request.param


def _agent(gate: Gate) -> Any:
    """Calls the gate's tool once, and then repeats what it was told."""

    def answer(request: LlmRequest) -> str | FunctionCall:
        if not any(part.function_response for content in request.contents for part in content.parts or ()):
            return FunctionCall(name="wait_at_gate", args={})
        return f"told {request.contents[-1].text()}"

    return scripted("gated", answer, tools=[gate.wait_at_gate])


async def _busy(serve: Serve, gate: Gate) -> tuple[Serving, str]:
    """A server with a run in its tool, and the run's id."""
    server = await serve(_agent(gate))
    await server.new_session("gated")
    started = await server.client.post(f"{SESSION}/runs", json={"newMessage": {"parts": [{"text": "go"}]}})
    await until(lambda: gate.entered)
    return server, started.json()["id"]


def _text(event: Json) -> str:
    return "".join(part.get("text", "") for part in event["content"]["parts"])


async def test_each_endpoint_says_where_the_message_was_read(serve: Serve) -> None:
    gate = Gate()
    server, run = await _busy(serve, gate)
    body = run_body("gated", "first", multitaskStrategy="steer")
    in_background = await server.client.post(
        f"{SESSION}/runs", json={"newMessage": body["newMessage"], "multitaskStrategy": "steer"}
    )
    assert in_background.status_code == 202
    steering = in_background.json()
    assert (steering["status"], steering["steeredInto"]) == ("queued", run)
    assert "readAtSeq" not in steering
    streamed = asyncio.create_task(server.sse("gated", "second", multitaskStrategy="steer"))
    await until(lambda: _unread(server, 2))
    collected = asyncio.create_task(server.run("gated", "third", multitaskStrategy="steer"))
    await until(lambda: _unread(server, 3))
    gate.open()

    frames = await streamed
    assert [(frame.id, frame.data["invocationId"], frame.text) for frame in frames] == [
        (5, run, "second"),
        (7, run, "told third"),
    ]
    reply = await collected
    assert reply.headers["x-run-id"] == run
    assert [_text(event) for event in reply.json()] == ["third", "told third"]
    record = await server.wait_for_status(steering["id"], "succeeded")
    assert (record["steeredInto"], record["readAtSeq"]) == (run, 4)
    page = (await server.client.get(f"/runs/{steering['id']}/events")).json()
    assert [_text(event) for event in page["events"]] == ["first", "second", "third", "told third"]
    log = (await server.client.get(SESSION)).json()["events"]
    assert {event["invocationId"] for event in log} == {run}


async def _unread(server: Serving, count: int) -> bool:
    listed = (await server.client.get("/runs", params={"status": "queued"})).json()["runs"]
    return len(listed) == count


async def test_a_client_that_leaves_withdraws_its_message_if_it_asked_for_that(serve: Serve) -> None:
    gate = Gate()
    server, run = await _busy(serve, gate)
    connection = await server.connect()
    await connection.post("/run_sse", run_body("gated", "never", multitaskStrategy="steer", onDisconnect="cancel"))
    await connection.head()
    await until(lambda: _unread(server, 1))
    await connection.close()
    await until(lambda: _unread(server, 0))
    gate.open()
    await server.wait_for_status(run, "succeeded")
    assert "never" not in map(_text, (await server.client.get(SESSION)).json()["events"])


async def test_the_python_client_steers(serve: Serve) -> None:
    gate = Gate()
    server, run = await _busy(serve, gate)
    place: dict[str, Any] = {"app_name": "gated", "user_id": "ann", "session_id": "s-1"}
    async with AsyncClient(server.url) as client:
        stream = await client.run(**place, message="be brief", multitask_strategy="steer")
        assert stream.run.steered_into == run
        gate.open()
        assert [event.content.text() async for event in stream if event.content] == ["told be brief"]
        assert stream.run.id == run


@pytest.mark.parametrize("store", ["memory"])
async def test_a_live_run_passes_the_message_to_its_model(serve: Serve) -> None:
    agent, _ = desk()
    model = agent.model = ScriptedLiveModel(["ok", "brief"], text_script=["written"])
    server = await ready(serve, agent)
    async with talking(server.port) as client:
        await client.say("hi")
        assert texts(await client.turn())[-1] == "ok"
        streamed = asyncio.create_task(server.sse("desk", "be brief", multitaskStrategy="steer"))
        assert texts(await client.turn())[-1] == "brief"
        await client.send({"close": True})
        frames = await streamed
        assert [frame.text for frame in frames if not frame.data.get("partial")][:2] == ["be brief", "brief"]
        log = (await server.client.get("/apps/desk/users/ann/sessions/s-1")).json()["events"]
        assert len({event["invocationId"] for event in log}) == 1
        heard = model.connections[0].received
        assert [one.text() for one in heard if isinstance(one, Content)] == ["hi", "be brief"]
