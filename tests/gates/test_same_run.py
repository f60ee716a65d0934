"""One run, seen through its own stream and through each gate: the same texts, calls and end."""

from __future__ import annotations

import json
from typing import Any

from mcp import Client
from mcp.types import TextResourceContents

from greenroom import FunctionTool
from greenroom.records.content import FunctionCall, Part
from tests.server.agents import scripted
from tests.server.conftest import Serve

TOOLS = [{"type": "function", "name": "locate", "description": "Where?", "parameters": {"type": "object"}}]
SCRIPT: list[Any] = [
    [Part(text="Hm", thought=True), Part(text="Let me look."), FunctionCall(name="look", args={"at": "sky"})],
    [Part(text="It is blue. Where are you?"), FunctionCall(name="locate", args={})],
]


def look(at: str) -> str:
    return f"{at}: blue"


def frames(text: str) -> list[dict[str, Any]]:
    lines = (line for line in text.split("\n") if line.startswith("data: {"))
    return [json.loads(line.removeprefix("data: ")) for line in lines]


async def test_each_stream_of_a_run_says_the_same(serve: Serve) -> None:
    server = await serve(scripted("echo", SCRIPT, tools=[FunctionTool(look)]), gates=("a2a", "ag_ui", "mcp", "openai"))
    asked = {
        "threadId": "t",
        "runId": "r",
        "messages": [{"id": "1", "role": "user", "content": "Look"}],
        "tools": [{"name": "locate", "description": "Where?"}],
    }
    first = await server.client.post("/ag-ui/echo", json=asked)
    run_id = first.headers["x-run-id"]
    again = await server.client.post("/ag-ui/echo", json=asked)
    assert again.headers["x-run-id"] == run_id
    sse = await server.client.get(f"/runs/{run_id}/events", headers={"accept": "text/event-stream"})
    responses = await server.client.get(f"/v1/responses/resp_{run_id}_0", params={"stream": "true"})
    stored = (await server.client.get(f"/v1/responses/resp_{run_id}_0")).json()
    task = (await server.client.get(f"/a2a/echo/tasks/{run_id}", headers={"a2a-version": "1.0"})).json()

    events = [one for one in frames(sse.text) if one.get("author") == "echo" and not one.get("partial")]
    parts = [part for event in events for part in event["content"]["parts"]]
    texts = [part["text"] for part in parts if "text" in part and not part.get("thought")]
    calls = {part["functionCall"]["id"]: part["functionCall"]["name"] for part in parts if "functionCall" in part}
    open_calls = {call_id for event in events for call_id in event.get("longRunningToolIds", ())}
    assert (texts, sorted(calls.values())) == (["Let me look.", "It is blue. Where are you?"], ["locate", "look"])
    assert frames(sse.text)[-1]["status"] == "waiting"

    for reply in (first, again):
        made = frames(reply.text)
        said = "".join(one["delta"] for one in made if one["type"] == "TEXT_MESSAGE_CONTENT")
        assert said == "".join(texts)
        assert {one["toolCallId"]: one["toolCallName"] for one in made if one["type"] == "TOOL_CALL_START"} == calls
        assert set(made[-1]["outcome"]["pendingToolCallIds"]) == open_calls
    ended = frames(responses.text)[-1]["response"]
    assert ended == stored
    assert [one["content"][0]["text"] for one in stored["output"] if one["type"] == "message"] == texts
    assert {one["call_id"] for one in stored["output"] if one["type"] == "function_call"} == open_calls
    assert stored["status"] == "completed"

    shown = [part for artifact in task["artifacts"] for part in artifact["parts"]]
    waiting = task["status"]["message"]["parts"]
    assert [part["text"] for part in shown if "text" in part and "adk_thought" not in part.get("metadata", {})] == texts
    called = [part for part in (*shown, *waiting) if part.get("metadata", {}).get("adk_type") == "function_call"]
    assert {part["data"]["id"]: part["data"]["name"] for part in called} == calls
    assert {part["data"]["id"] for part in waiting} == open_calls
    assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"

    async with Client(f"{server.url}/mcp/echo") as client:
        [template] = (await client.list_resource_templates()).resource_templates
        [content] = (await client.read_resource(template.uri_template.replace("{session_id}", "t"))).contents
    assert isinstance(content, TextResourceContents)
    read = [one for one in json.loads(content.text)["events"] if one["author"] == "echo"]
    assert [one["id"] for one in read] == [one["id"] for one in events]
