"""Streams whose server loses the session: they end without the end of the run, which another server continues."""

from __future__ import annotations

import asyncio
import json
from uuid import uuid4

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from greenroom.records.session import SessionKey
from greenroom.records.shard import shard_of
from tests.replicas.conftest import Pair
from tests.replicas.requests import Json, frames, message, run_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

SLOW = "slow 20"
"""Takes a second, so that the shard is lost before the answer is stored."""


async def lose(pair: Pair, key: SessionKey) -> None:
    """Raises the epoch of the session's shard, as another server does that takes it."""
    await pair.servers.database.fetch(
        "UPDATE shards SET epoch = epoch + 1 WHERE shard = ? RETURNING epoch", shard_of(key)
    )


async def frames_of_lost(pair: Pair, key: SessionKey, path: str, body: Json, **headers: str) -> list[Json]:
    """The data of a stream whose session the server loses after the first frame."""
    found: list[Json] = []
    async with pair.owner.http.stream("POST", path, json=body, headers=headers) as response:
        async for frame in frames(response):
            if not found:
                await lose(pair, key)
            found.append(frame.data)
    return found


async def test_ag_ui_ends_with_an_error(pair: Pair) -> None:
    key = await pair.servers.key_of(pair.owner)
    body = {
        "threadId": key.session_id,
        "runId": uuid4().hex,
        "messages": [{"id": "m", "role": "user", "content": SLOW}],
        "state": {},
        "tools": [],
        "context": [],
        "forwardedProps": {"userId": key.user_id},
    }
    events = await frames_of_lost(pair, key, "/ag-ui/desk", body)
    assert (events[-1]["type"], events[-1]["code"]) == ("RUN_ERROR", "Unavailable")


async def test_a_chat_completion_ends_with_an_error(pair: Pair) -> None:
    key = await pair.servers.key_of(pair.owner)
    chat = {
        "model": "desk",
        "user": key.user_id,
        "metadata": {"session_id": key.session_id},
        "messages": [{"role": "user", "content": SLOW}],
        "stream": True,
    }
    chunks = await frames_of_lost(pair, key, "/v1/chat/completions", chat)
    assert chunks[-1]["error"]["code"] == "503"


async def test_a_response_ends_with_an_error(pair: Pair) -> None:
    key = await pair.servers.key_of(pair.owner)
    body = {"model": "desk", "user": key.user_id, "conversation": key.session_id, "input": SLOW, "stream": True}
    events = await frames_of_lost(pair, key, "/v1/responses", body)
    assert (events[-1]["type"], events[-1]["code"]) == ("error", "Unavailable")


async def test_a_stream_of_a2a_ends_with_an_error(pair: Pair) -> None:
    key = await pair.servers.key_of(pair.owner)
    while (await pair.servers.owners())[shard_of(_of_a2a(key))] != pair.owner.url:
        key = await pair.servers.key_of(pair.owner)
    sent = {"messageId": uuid4().hex, "role": "ROLE_USER", "contextId": key.session_id, "parts": [{"text": SLOW}]}
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": {"message": sent}}
    events = await frames_of_lost(pair, _of_a2a(key), "/a2a/desk", body, **{"a2a-version": "1.0"})
    assert "subscribe to the task again" in events[-1]["error"]["message"]


async def test_a_request_that_waits_is_unavailable(pair: Pair) -> None:
    key = await pair.servers.key_of(pair.owner)
    await pair.owner.http.post(f"/apps/{key.app_name}/users/{key.user_id}/sessions/{key.session_id}")
    stream = pair.owner.http.stream("POST", "/run_sse", json=run_of(key, SLOW, streaming=True))
    async with stream as response:
        waiting = asyncio.create_task(pair.owner.http.post("/run", json=run_of(key, "hello")))
        async with asyncio.timeout(10):
            while len((await pair.owner.http.get(f"/runs?session_id={key.session_id}")).json()["runs"]) < 2:
                await asyncio.sleep(0.02)
        await lose(pair, key)
        async for _ in frames(response):
            pass
        answer = await waiting
    assert (answer.status_code, answer.json()["code"]) == (503, "OwnershipLost")


async def test_a_live_conversation_is_closed_as_by_a_server_that_restarts(pair: Pair) -> None:
    key = await pair.servers.key_of(pair.owner, app="talk")
    await pair.owner.http.post(f"/apps/{key.app_name}/users/{key.user_id}/sessions/{key.session_id}")
    query = f"app_name=talk&user_id={key.user_id}&session_id={key.session_id}&modalities=TEXT"
    async with connect(f"ws{pair.owner.url.removeprefix('http')}/run_live?{query}") as socket:
        await lose(pair, key)
        await socket.send(json.dumps({"content": message("hello")}))
        with pytest.raises(ConnectionClosed):
            while True:
                await socket.recv()
    assert socket.close_code == 1012


def _of_a2a(key: SessionKey) -> SessionKey:
    return SessionKey("desk", f"A2A_USER_{key.session_id}", key.session_id)
