"""The Model Context Protocol, each of whose requests may reach another server."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import cycle
from typing import Any

import httpx2
import pytest
from mcp import Client, types
from mcp.client.streamable_http import streamable_http_client

from tests.replicas.conftest import Pair
from tests.replicas.requests import Json

pytestmark = pytest.mark.asyncio(loop_scope="module")

HEADERS = {"accept": "application/json, text/event-stream"}
CLIENT = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


@asynccontextmanager
async def connected(pair: Pair, mode: str, asked: list[str], **options: Any) -> AsyncGenerator[Client]:
    """A client that sends each request to another server than the one before."""
    ports = cycle(int(server.url.rpartition(":")[2]) for server in (pair.owner, pair.other))

    async def choose(request: httpx2.Request) -> None:
        request.url = request.url.copy_with(port=next(ports))
        asked.append(str(request.url))

    async with httpx2.AsyncClient(event_hooks={"request": [choose]}) as http:
        transport = streamable_http_client(f"{pair.owner.url}/mcp", http_client=http)
        async with Client(transport, mode=mode, **options) as client:  # type: ignore[arg-type]
            yield client


def text(result: Any) -> str:
    return "".join(part.text for part in result.content if isinstance(part, types.TextContent))


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_conversation_is_continued_on_any_server(pair: Pair, mode: str) -> None:
    asked: list[str] = []
    reported: list[str | None] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        reported.append(message)

    async with connected(pair, mode, asked) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == {"desk", "talk"}
        for _ in range(2):
            first = await client.call_tool("desk", {"message": "hello"})
            assert text(first) == "You said hello"
            session_id = first.structured_content["session_id"]
            for word in ("one", "two", "three"):
                arguments = {"message": word, "session_id": session_id}
                result = await client.call_tool("desk", arguments, progress_callback=on_progress)
                assert text(result) == f"You said {word}", text(result)
                assert reported.pop() == text(result)
            listed = [str(one.uri) for one in (await client.list_resources()).resources]
            assert f"greenroom://desk/sessions/{session_id}" in listed
    assert len(set(asked)) == 2


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_person_answers_on_any_server(pair: Pair, mode: str) -> None:
    questions: list[str] = []

    async def answer(_: object, question: Any) -> types.ElicitResult:
        questions.append(question.message)
        return types.ElicitResult(action="accept", content={"approve": True})

    async with connected(pair, mode, [], elicitation_callback=answer) as client:
        result = await client.call_tool("desk", {"message": "pay"})
    assert text(result) == "done: {'paid': 7}"
    assert len(questions) == 1


async def test_a_session_belongs_to_the_server_in_its_id(pair: Pair) -> None:
    body: Json = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": CLIENT}
    begun = await pair.other.http.post("/mcp", json=body, headers=HEADERS)
    session_id = begun.headers["mcp-session-id"]
    (row,) = await pair.servers.database.fetch("SELECT id FROM replicas WHERE address = ?", pair.other.url)
    assert session_id.endswith(f".{row[0]}")

    pings = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    for server in (pair.owner, pair.other):
        answer = await server.http.post("/mcp", json=pings, headers=HEADERS | {"mcp-session-id": session_id})
        assert answer.status_code == 200, answer.text
    for wrong in (session_id.partition(".")[0], f"{session_id}x", f"x.{row[0]}", "", "."):
        for server in (pair.owner, pair.other):
            answer = await server.http.post("/mcp", json=pings, headers=HEADERS | {"mcp-session-id": wrong})
            assert answer.status_code in (400, 404), (wrong, answer.text)

    deleted = await pair.owner.http.delete("/mcp", headers=HEADERS | {"mcp-session-id": session_id})
    assert deleted.status_code == 200, deleted.text
    for server in (pair.owner, pair.other):
        answer = await server.http.post("/mcp", json=pings, headers=HEADERS | {"mcp-session-id": session_id})
        assert answer.status_code == 404
