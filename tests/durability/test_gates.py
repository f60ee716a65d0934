"""Clients of gates outlive a kill of the server: each gets its run's result, once."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.durability.gates_server import APP
from tests.durability.server_process import server_in

_ASKED = {"threadId": "t", "runId": "r", "messages": [{"id": "1", "role": "user", "content": "Book"}]}


async def _events(client: httpx.AsyncClient) -> list[dict[str, Any]]:
    """Those of an AG-UI client that sends its request again when the connection is lost."""
    while True:
        try:
            reply = await client.post(f"/ag-ui/{APP}", json=_ASKED)
        except httpx.TransportError:
            await asyncio.sleep(0.05)
            continue
        lines = (line for line in reply.text.split("\n") if line.startswith("data: "))
        return [json.loads(line.removeprefix("data: ")) for line in lines]


@pytest.mark.kill
async def test_a_background_response_and_an_ag_ui_run_end_once_after_a_kill(tmp_path: Path) -> None:
    async with (
        server_in(tmp_path, module="tests.durability.gates_server") as server,
        httpx.AsyncClient(base_url=server.url, timeout=30) as client,
    ):
        await server.start()
        asked = {"model": APP, "input": "Book", "background": True, "conversation": "c"}
        response = (await client.post("/v1/responses", json=asked)).json()
        front_end = asyncio.create_task(_events(client))
        begun = tmp_path / "begun"
        while not begun.exists() or begun.read_text().count("book") < 2:
            await asyncio.sleep(0.02)
        await server.kill()
        (tmp_path / "go").touch()
        await server.start()

        events = await front_end
        said = "".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT")
        assert (said, events[-1]["type"], events[-1]["outcome"]) == (
            "It is booked.",
            "RUN_FINISHED",
            {"type": "success"},
        )
        while response["status"] in ("queued", "in_progress"):
            response = (await client.get(f"/v1/responses/{response['id']}")).json()
            await asyncio.sleep(0.02)
        [message] = response["output"]
        assert (response["status"], message["content"][0]["text"]) == ("completed", "It is booked.")
        for session_id in ("t", "c"):
            session = (await client.get(f"/apps/{APP}/users/anonymous/sessions/{session_id}")).json()
            texts = [part.get("text") for event in session["events"] for part in event["content"]["parts"]]
            assert [text for text in texts if text] == ["Book", "It is booked."]
        assert len((await client.get("/runs")).json()["runs"]) == 2
