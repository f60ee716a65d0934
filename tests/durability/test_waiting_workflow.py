"""A workflow that waits for a person outlives its server, and continues once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx

from tests.durability.server_process import server_in
from tests.durability.workflow_server import APP

_WHERE = {"appName": APP, "userId": "ann", "sessionId": "s-1"}
_SESSION = f"/apps/{APP}/users/ann/sessions/s-1"


def _message(**part: Any) -> dict[str, Any]:
    return {**_WHERE, "newMessage": {"role": "user", "parts": [part]}}


def _answer(value: Any) -> dict[str, Any]:
    return _message(functionResponse={"id": "q-1", "name": "adk_request_input", "response": {"result": value}})


async def test_of_two_clients_answering_a_restarted_server_one_continues_the_workflow(tmp_path: Path) -> None:
    """1.17.1: before them comes a wrong answer, which is refused with 422 and not stored."""
    async with (
        server_in(tmp_path, module="tests.durability.workflow_server") as server,
        httpx.AsyncClient(base_url=server.url, timeout=30) as ann,
        httpx.AsyncClient(base_url=server.url, timeout=30) as bob,
    ):
        await server.start()
        await ann.post(_SESSION, json={})
        asked = (await ann.post("/run", json=_message(text="table"))).json()
        assert asked[-1]["longRunningToolIds"] == ["q-1"]
        stored = (await ann.get(_SESSION)).json()
        await server.kill()
        await server.start()

        wrong = await ann.post("/run", json=_answer("many"))
        assert wrong.status_code == 422
        assert (await ann.get(_SESSION)).json() == stored
        (waiting,) = (await ann.get("/runs", params={"session_id": "s-1"})).json()["runs"]
        assert waiting["status"] == "waiting"

        replies = await asyncio.gather(ann.post("/run", json=_answer(3)), bob.post("/run", json=_answer(4)))
        assert sorted(reply.status_code for reply in replies) == [200, 409]
        guests = 3 if replies[0].status_code == 200 else 4
        events = (await bob.get(_SESSION)).json()["events"]
        assert events[: len(stored["events"])] == stored["events"]
        answered, booked = events[len(stored["events"]) :]
        assert answered["content"]["parts"][0]["functionResponse"]["response"] == {"result": guests}
        assert booked["output"] == {"guests": guests}
        assert (tmp_path / "booked").read_text() == f"{guests}\n"
        (run,) = (await bob.get("/runs", params={"session_id": "s-1"})).json()["runs"]
        assert (run["id"], run["status"]) == (waiting["id"], "succeeded")
