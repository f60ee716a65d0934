"""`kill -9` while a judge works: its run is not judged again, and later runs are judged."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from tests.durability.server_process import server_in

OWNER = {"appName": "a", "userId": "ann", "sessionId": "s"}
MESSAGE = {"role": "user", "parts": [{"text": "which drink?"}]}


async def run(http: httpx.AsyncClient) -> str:
    reply = await http.post("/run", json={**OWNER, "newMessage": MESSAGE})
    reply.raise_for_status()
    return reply.headers["x-run-id"]


@pytest.mark.kill
async def test_a_run_whose_judge_was_killed_is_judged_at_most_once(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    async with (
        asyncio.timeout(60),
        server_in(tmp_path, module="tests.durability.judging_server") as server,
        httpx.AsyncClient(base_url=server.url, timeout=30) as http,
    ):
        await server.start()
        (await http.post("/apps/a/users/ann/sessions", json={"sessionId": "s"})).raise_for_status()
        killed = await run(http)
        while not asked.exists():
            await asyncio.sleep(0.01)
        await server.kill()

        (tmp_path / "continue").touch()
        await server.start()
        judged = await run(http)
        while not (found := (await http.get("/apps/a/feedback")).json()["feedback"]):
            await asyncio.sleep(0.01)
        assert [one["runId"] for one in found] == [judged] != [killed]
        assert (await http.get(f"/runs/{killed}")).json()["status"] == "succeeded"
    assert asked.read_text().split() == ["once", "once"]
