"""Streams of gates through another server than the owner, which ends while they are read."""

from __future__ import annotations

import asyncio
import json
import signal
from typing import Any
from uuid import uuid4

import pytest

from greenroom.records.session import SessionKey
from greenroom.records.shard import shard_of
from tests.replicas.requests import Json, frames, log_of, path_of, sse, texts
from tests.replicas.servers import Server, Servers

WORDS = 80  # which take four seconds
GATES = ("--gates", "openai", "--gates", "ag_ui", "--gates", "a2a", "--allow-origins", "https://app.example")
OTHER_GATES = ("chat", "ag-ui", "a2a", "a2a rest")


async def two(servers: Servers) -> tuple[Server, Server]:
    owner = await servers.start(*GATES)
    other = await servers.start(*GATES)
    await servers.wait_until_shared(owner, other)
    return owner, other


def whole_text() -> str:
    return "".join(f"word{number} " for number in range(WORDS))


async def until_stored(server: Server, key: SessionKey) -> None:
    """Until the run has ended at the server that has taken the session."""
    async with asyncio.timeout(20):
        while texts(await log_of(server.http, key))[-1] != whole_text():
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
async def test_a_response_continues_after_its_owner_has_ended(servers: Servers, end: signal.Signals) -> None:
    owner, other = await two(servers)
    key = await servers.key_of(owner)
    await owner.http.post(path_of(key))
    body = {"model": "desk", "user": key.user_id, "conversation": key.session_id, "stream": True}
    body["input"] = f"slow {WORDS}"
    events: list[Json] = []
    async with other.http.stream("POST", "/v1/responses", json=body) as response:
        assert not [name for name in response.headers if name.startswith("greenroom-")]
        async for frame in frames(response):
            events.append(frame.data)
            if len(events) == 10:
                owner.signal(end)

    assert events[0]["type"] == "response.created"
    assert events[-1]["type"] == "response.completed", events[-1]
    assert len([event for event in events if event["type"] == "response.created"]) == 1
    assert "".join(event["delta"] for event in events if event["type"].endswith("text.delta")) == whole_text()
    numbers = [event["sequence_number"] for event in events]
    assert numbers == sorted(set(numbers))
    assert events[-1]["response"]["output"][0]["content"][0]["text"] == whole_text()

    again = await sse(other.http, "GET", f"/v1/responses/{events[0]['response']['id']}?stream=true")
    assert [frame.data["type"] for frame in again[-5:]] == [event["type"] for event in events[-5:]]


async def test_the_rest_of_a_response_continues_after_its_owner_has_ended(servers: Servers) -> None:
    """The owner ends before it has sent a frame of the rest."""
    owner, other = await two(servers)
    key = await servers.key_of(owner)
    await owner.http.post(path_of(key))
    body = {"model": "desk", "user": key.user_id, "conversation": key.session_id, "stream": True, "background": True}
    body["input"] = f"slow {WORDS}"
    events: list[Json] = []
    async with other.http.stream("POST", "/v1/responses", json=body) as response:
        async for frame in frames(response):
            events.append(frame.data)
            if len(events) == 10:
                break

    path = f"/v1/responses/{events[0]['response']['id']}?stream=true&starting_after={events[-1]['sequence_number']}"
    async with other.http.stream("GET", path) as response:
        owner.signal(signal.SIGKILL)
        events += [frame.data async for frame in frames(response)]

    assert events[-1]["type"] == "response.completed", events[-1]
    assert "".join(event["delta"] for event in events if event["type"].endswith("text.delta")) == whole_text()
    numbers = [event["sequence_number"] for event in events]
    assert numbers == sorted(set(numbers))


def request_of(gate: str, key: SessionKey) -> tuple[str, Json]:
    text = f"slow {WORDS}"
    if gate == "chat":
        names = {"model": "desk", "user": key.user_id, "metadata": {"session_id": key.session_id}}
        return "/v1/chat/completions", {**names, "stream": True, "messages": [{"role": "user", "content": text}]}
    if gate == "ag-ui":
        messages = [{"id": "m", "role": "user", "content": text}]
        props = {"userId": key.user_id}
        fields: Json = {"state": {}, "tools": [], "context": [], "forwardedProps": props, "messages": messages}
        return "/ag-ui/desk", {"threadId": key.session_id, "runId": "r", **fields}

    parts = [{"text": text}]
    message = {"messageId": uuid4().hex, "role": "ROLE_USER", "contextId": key.session_id, "parts": parts}
    params = {"message": message}
    if gate == "a2a rest":
        return "/a2a/desk/message:stream", params
    return "/a2a/desk", {"jsonrpc": "2.0", "id": 7, "method": "SendStreamingMessage", "params": params}


async def key_for(gate: str, servers: Servers, owner: Server) -> SessionKey:
    while True:
        key = await servers.key_of(owner)
        if gate.startswith("a2a"):
            key = key._replace(user_id=f"A2A_USER_{key.session_id}")
        if (await servers.owners())[shard_of(key)] == owner.url:
            return key


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
async def test_streams_of_other_gates_end_with_an_error_of_their_protocol(
    servers: Servers, end: signal.Signals
) -> None:
    """Of all gates at once: two servers take longer to start than a stream takes."""
    owner, other = await two(servers)
    are_read = asyncio.Barrier(len(OTHER_GATES) + 1)
    async with asyncio.timeout(120), asyncio.TaskGroup() as group:
        for gate in OTHER_GATES:
            key = await key_for(gate, servers, owner)
            group.create_task(stream_ends_with_an_error(gate, key, owner, other, are_read))
        await are_read.wait()
        owner.signal(end)


async def stream_ends_with_an_error(
    gate: str, key: SessionKey, owner: Server, other: Server, are_read: asyncio.Barrier
) -> None:
    """are_read: the owner ends when each stream has sent something."""
    if gate == "chat":
        await owner.http.post(path_of(key))
    path, body = request_of(gate, key)
    got: list[Any] = []
    async with other.http.stream("POST", path, json=body, headers={"a2a-version": "1.0"}) as response:
        assert not [name for name in response.headers if name.startswith("greenroom-")]
        async for line in response.aiter_lines():
            if line.startswith("data: "):
                got.append(json.loads(line.removeprefix("data: ")))
                if len(got) == 5:
                    await are_read.wait()

    last = got[-1]
    if gate == "chat":
        assert last["error"]["type"] == "Unavailable", last
    elif gate == "ag-ui":
        assert (last["type"], last["code"]) == ("RUN_ERROR", "Unavailable"), last
    else:
        assert last["error"]["message"].endswith("subscribe to the task again"), last
        assert ("id" in last) == (gate == "a2a")
    await until_stored(other, key)

    if gate == "ag-ui":  # the same request is answered with the whole run
        again = await sse(other.http, "POST", path, body)
        assert again[-1].data["type"] == "RUN_FINISHED"
        assert "".join(frame.data.get("delta", "") for frame in again) == whole_text()


async def test_a_gate_whose_owner_ends_before_it_answers_is_unavailable(servers: Servers) -> None:
    """Also for a page of another origin, which must be able to read the status."""
    owner, other = await two(servers)
    key = await key_for("chat", servers, owner)
    await owner.http.post(path_of(key))
    path, body = request_of("chat", key)
    headers = {"origin": "https://app.example"}
    asking = asyncio.create_task(other.http.post(path, json={**body, "stream": False}, headers=headers))
    async with asyncio.timeout(10):
        while not await log_of(owner.http, key):
            await asyncio.sleep(0.05)
    await owner.kill()
    answer = await asking
    assert answer.status_code == 503
    assert answer.json()["code"] == "Unavailable"
    assert answer.headers["retry-after"] == "1"
    assert answer.headers.get_list("access-control-allow-origin") == ["https://app.example"]
    await until_stored(other, key)
