"""A session remembered over HTTP."""

from __future__ import annotations

import pytest

from greenroom.memory.in_memory import InMemoryMemoryService
from tests.server.conftest import Serve

MEMORY = "/apps/echo/users/ann/memory"


@pytest.mark.parametrize("spelled", ["sessionId", "session_id"])
async def test_a_session_is_remembered_whole_and_once(serve: Serve, spelled: str) -> None:
    memory = InMemoryMemoryService()
    server = await serve(services={"memory_service": memory})
    await server.new_session("echo")
    await server.run("echo", "my cat is called Misse")
    for _ in range(2):
        reply = await server.client.patch(MEMORY, json={spelled: "s-1"})
        assert (reply.status_code, reply.json()) == (200, None)
    found = await memory.search_memory(app_name="echo", user_id="ann", query="Misse")
    assert sorted(entry.content.text() for entry in found.memories) == [
        "You said my cat is called Misse",
        "my cat is called Misse",
    ]
    other = await memory.search_memory(app_name="echo", user_id="bob", query="Misse")
    assert other.memories == []


async def test_an_unknown_session_or_none_is_refused(serve: Serve) -> None:
    server = await serve()
    unknown = await server.client.patch(MEMORY, json={"sessionId": "nope"})
    assert (unknown.status_code, unknown.json()["code"]) == (404, "SessionNotFound")
    for body in ({}, {"sessionId": None}, {"sessionId": 5}):
        assert (await server.client.patch(MEMORY, json=body)).status_code == 422
    assert (await server.client.patch(MEMORY)).status_code == 422
