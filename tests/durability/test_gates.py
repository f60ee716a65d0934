"""Clients of gates outlive a kill of the server: each gets its run's result, once."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import a2a.types as a2a
import httpx
import pytest
from a2a.client import A2ACardResolver, A2AClientError, Client, ClientConfig, ClientFactory
from a2a.utils.errors import UnsupportedOperationError

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


async def _task(client: Client) -> a2a.Task:
    """That of an A2A client that subscribes to its task when its stream is cut."""
    asked = a2a.Message(message_id="m", context_id="a", role=a2a.Role.ROLE_USER, parts=[a2a.Part(text="Book")])
    task_id, stream = "", client.send_message(a2a.SendMessageRequest(message=asked))
    while True:
        try:
            async for one in stream:
                task_id = one.task.id or task_id
                if one.status_update.status.state == a2a.TaskState.TASK_STATE_COMPLETED:
                    return await client.get_task(a2a.GetTaskRequest(id=task_id))
        except A2AClientError:
            await asyncio.sleep(0.05)
        except UnsupportedOperationError:  # it ended before the subscription
            return await client.get_task(a2a.GetTaskRequest(id=task_id))
        assert task_id
        stream = client.subscribe(a2a.SubscribeToTaskRequest(id=task_id))


async def _response_events(client: httpx.AsyncClient, response_id: str) -> list[dict[str, Any]]:
    """Those of a client that resumes its stream after the last event that it got."""
    events: list[dict[str, Any]] = []
    while not events or events[-1]["type"] != "response.completed":
        query = {"stream": "true", **({"starting_after": events[-1]["sequence_number"]} if events else {})}
        with suppress(httpx.TransportError):
            async with client.stream("GET", f"/v1/responses/{response_id}", params=query) as stream:
                async for line in stream.aiter_lines():
                    if line.startswith("data: "):
                        events.append(json.loads(line.removeprefix("data: ")))
        await asyncio.sleep(0.05)
    return events


@pytest.mark.kill
async def test_clients_of_each_gate_get_their_result_once_after_a_kill(tmp_path: Path) -> None:
    async with (
        server_in(tmp_path, module="tests.durability.gates_server") as server,
        httpx.AsyncClient(base_url=server.url, timeout=30) as client,
    ):
        await server.start()
        asked = {"model": APP, "input": "Book", "background": True, "conversation": "c"}
        response = (await client.post("/v1/responses", json=asked)).json()
        front_end = asyncio.create_task(_events(client))
        card = await A2ACardResolver(client, f"{server.url}/a2a/{APP}").get_agent_card()
        remote = asyncio.create_task(_task(ClientFactory(ClientConfig(httpx_client=client)).create(card)))
        resuming = asyncio.create_task(_response_events(client, response["id"]))
        begun = tmp_path / "begun"
        while not begun.exists() or begun.read_text().count("book") < 3:
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
        task = await remote
        assert [part.text for artifact in task.artifacts for part in artifact.parts if part.text] == ["It is booked."]
        while response["status"] in ("queued", "in_progress"):
            response = (await client.get(f"/v1/responses/{response['id']}")).json()
            await asyncio.sleep(0.02)
        [message] = response["output"]
        assert (response["status"], message["content"][0]["text"]) == ("completed", "It is booked.")
        events = await resuming
        numbers = [event["sequence_number"] for event in events]
        assert numbers == sorted(set(numbers))
        said = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
        assert ("".join(said), events[-1]["response"]["output"]) == ("It is booked.", response["output"])
        for user_id, session_id in (("anonymous", "t"), ("anonymous", "c"), ("A2A_USER_a", "a")):
            session = (await client.get(f"/apps/{APP}/users/{user_id}/sessions/{session_id}")).json()
            texts = [part.get("text") for event in session["events"] for part in event["content"]["parts"]]
            assert [text for text in texts if text] == ["Book", "It is booked."]
        assert len((await client.get("/runs")).json()["runs"]) == 3
