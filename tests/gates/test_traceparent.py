"""A run joins the trace of the request that starts it, whichever gate it comes through."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gates.test_triggers import message
from tests.server.agents import last_text, scripted
from tests.server.conftest import Serve

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"

REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "a2a": (
        "/a2a/echo",
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "SendMessage",
            "params": {"message": {"role": "ROLE_USER", "messageId": "m", "parts": [{"text": "Hello"}]}},
        },
    ),
    "ag_ui": (
        "/ag-ui/echo",
        {"threadId": "t", "runId": "r", "messages": [{"id": "1", "role": "user", "content": "Hello"}]},
    ),
    "agent_engine": (
        "/api/stream_reasoning_engine",
        {"class_method": "async_stream_query", "input": {"user_id": "ann", "message": "Hello"}},
    ),
    "mcp": (
        "/mcp/echo",
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {
                "name": "echo",
                "arguments": {"message": "Hello"},
                "_meta": {
                    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
                    "io.modelcontextprotocol/clientCapabilities": {},
                },
            },
        },
    ),
    "openai": ("/v1/chat/completions", {"model": "echo", "messages": [{"role": "user", "content": "Hello"}]}),
    "triggers": ("/apps/echo/trigger/pubsub", message()),
}
HEADERS = {
    "a2a-version": "1.0",
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": "tools/call",
    "mcp-name": "echo",
    "accept": "application/json, text/event-stream",
}


@pytest.mark.parametrize("gate", REQUESTS)
async def test_a_run_joins_the_trace_of_its_request(serve: Serve, gate: str) -> None:
    server = await serve(scripted("echo", last_text), gates=(gate,))
    path, body = REQUESTS[gate]
    traceparent = f"00-{TRACE_ID}-b7ad6b7169203331-01"
    reply = await server.client.post(path, json=body, headers={**HEADERS, "traceparent": traceparent})
    assert reply.status_code == 200, reply.text

    (run,) = (await server.client.get("/runs")).json()["runs"]
    spans = await server.client.get(f"/dev/apps/echo/debug/trace/session/{run['sessionId']}")
    assert {span["trace_id"] for span in spans.json()} == {TRACE_ID}
