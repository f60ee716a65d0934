"""Runs that start later, through the gates. Triggers and OpenAI's responses have theirs in their own files."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from mcp import Client, types

from tests.server.agents import last_text, scripted
from tests.server.conftest import Serve
from tests.server.serving import Json, Serving

LATER = 3600
SOON = 0.4


@pytest.fixture
async def server(serve: Serve) -> Serving:
    return await serve(scripted("echo", last_text), gates=("a2a", "ag_ui", "mcp"))


async def only_run(server: Serving) -> Json:
    [run] = (await server.client.get("/runs")).json()["runs"]
    return run


# AG-UI


def ag_ui_input(run_id: str, *words: str, **props: Any) -> Json:
    messages = [{"id": word, "role": "user", "content": word} for word in words]
    return {"threadId": "t", "runId": run_id, "messages": messages, "forwardedProps": props}


async def ag_ui(server: Serving, body: Json) -> list[Json]:
    reply = await server.client.post("/ag-ui/echo", json=body)
    lines = reply.text.split("\n\n")
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]


async def test_ag_ui_streams_a_run_that_starts_later(server: Serving) -> None:
    at = time.time() + SOON
    body = ag_ui_input("r-1", "go", startAt=at)
    streaming = [asyncio.create_task(ag_ui(server, body))]
    while not (await server.client.get("/runs")).json()["runs"]:
        await asyncio.sleep(0.01)
    run = await only_run(server)
    assert (run["status"], run["startAt"]) == ("queued", at)
    streaming.append(asyncio.create_task(ag_ui(server, body)))
    for events in await asyncio.gather(*streaming):
        assert [one["delta"] for one in events if one["type"] == "TEXT_MESSAGE_CONTENT"] == ["go"]
    assert (await only_run(server))["startedAt"] >= at


async def test_ag_ui_does_not_send_delayed_words_again(server: Serving) -> None:
    await ag_ui(server, ag_ui_input("r-1", "go"))
    said = [{"id": "a", "role": "assistant", "content": "go"}]
    delayed = ag_ui_input("r-2", "later", delaySeconds=LATER)
    streaming = asyncio.create_task(ag_ui(server, {**delayed, "messages": [*said, *delayed["messages"]]}))
    while len((await server.client.get("/runs")).json()["runs"]) < 2:
        await asyncio.sleep(0.01)
    both = ag_ui_input("r-3", "later", "now")
    await ag_ui(server, {**both, "messages": [*said, *both["messages"]]})
    events = (await server.client.get("/apps/echo/users/anonymous/sessions/t")).json()["events"]
    assert [part["text"] for part in events[-2]["content"]["parts"]] == ["now"]
    streaming.cancel()


async def test_ag_ui_refuses_a_time_that_is_none(server: Serving) -> None:
    for given in ("tomorrow", True, [1]):
        reply = await server.client.post("/ag-ui/echo", json=ag_ui_input("r-1", "go", startAt=given))
        assert reply.status_code == 422
        assert reply.json()["errors"][0]["loc"] == ["body", "forwardedProps", "startAt"]
    reply = await server.client.post("/ag-ui/echo", json=ag_ui_input("r-1", "go", startAt=1, delaySeconds=1))
    assert "either startAt or delaySeconds" in reply.json()["detail"]


# A2A


def a2a_call(metadata: Json, **message: Any) -> Json:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "go"}], "metadata": metadata, **message}
    params = {"message": message, "configuration": {"returnImmediately": True}}
    return {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}


async def a2a(server: Serving, call: Json) -> Json:
    reply = await server.client.post("/a2a/echo", json=call, headers={"a2a-version": "1.0"})
    assert reply.status_code == 200, reply.text
    return reply.json()


async def test_an_a2a_task_starts_later(server: Serving) -> None:
    at = time.time() + SOON
    call = a2a_call({"greenroom:startAt": at}, contextId="c")
    task = (await a2a(server, call))["result"]["task"]
    assert task["status"]["state"] == "TASK_STATE_SUBMITTED"
    assert (await a2a(server, call))["result"]["task"]["id"] == task["id"]
    run = await only_run(server)
    assert (run["id"], run["startAt"]) == (task["id"], at)
    get = {"jsonrpc": "2.0", "id": 2, "method": "GetTask", "params": {"id": task["id"]}}
    assert (await a2a(server, get))["result"]["status"]["state"] == "TASK_STATE_SUBMITTED"
    await server.wait_for_status(task["id"], "succeeded")
    done = (await a2a(server, get))["result"]
    assert done["artifacts"][0]["parts"][0]["text"] == "go"


async def test_a_blocking_a2a_message_waits_for_its_time(server: Serving) -> None:
    call = a2a_call({"greenroom:delaySeconds": SOON})
    del call["params"]["configuration"]
    sent_at = time.monotonic()
    task = (await a2a(server, call))["result"]["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    assert time.monotonic() - sent_at >= SOON


async def test_a2a_refuses_a_time_that_is_none(server: Serving) -> None:
    for metadata in ({"greenroom:startAt": "tomorrow"}, {"greenroom:delaySeconds": -1}):
        assert (await a2a(server, a2a_call(metadata)))["error"]["code"] == -32602
    assert (await server.client.get("/runs")).json()["runs"] == []


# MCP


async def test_an_mcp_call_answers_before_its_run_starts(server: Serving) -> None:
    async with Client(f"{server.url}/mcp") as client:
        at = time.time() + SOON
        result = await client.call_tool("echo", {"message": "go", "start_at": at})
        [content] = result.content
        assert isinstance(content, types.TextContent)
        assert content.text.startswith("The agent starts at 20")
        run = await only_run(server)
        assert (run["status"], run["startAt"]) == ("queued", at)
        assert result.structured_content is not None
        assert run["sessionId"] == result.structured_content["session_id"]
        refused = await client.call_tool("echo", {"message": "go", "delay_seconds": "soon"})
        assert refused.is_error
    # The client has left, and the run is not cancelled.
    ended = await server.wait_for_status(run["id"], "succeeded", "cancelled")
    assert ended["status"] == "succeeded"
    assert ended["startedAt"] >= at
