"""Every endpoint of every gate, asked by callers who may not: none of them reaches what is ann's."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib import import_module
from typing import Any

import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

from greenroom.server.application import GATES
from greenroom.server.endpoint import Endpoint
from greenroom.server.settings import TokenSettings
from tests.server.agents import echo
from tests.server.conftest import Serve
from tests.server.security.conftest import keys
from tests.server.security.keys import Keys, bearer
from tests.server.security.test_matrix import OTHERS

__all__ = ["keys"]

SECRET = "a-word-that-only-ann-knows"
BODIES: dict[str, Any] = {
    "/v1/chat/completions": {
        "model": "echo",
        "user": "ann",
        "metadata": {"session_id": "s"},
        "messages": [{"role": "user", "content": "x"}],
    },
    "/ag-ui/{app_name}": {
        "threadId": "s",
        "runId": "r",
        "forwardedProps": {"userId": "ann"},
        "messages": [{"id": "1", "role": "user", "content": "x"}],
    },
    "/api/reasoning_engine": {"class_method": "get_session", "input": {"user_id": "ann", "session_id": "s"}},
    "/api/stream_reasoning_engine": {
        "class_method": "stream_query",
        "input": {"user_id": "ann", "session_id": "s", "message": "x"},
    },
    "/v1/responses": {"model": "echo", "user": "ann", "conversation": "s", "input": "x"},
}
A2A_MESSAGE: dict[str, Any] = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}]}}
ALL: list[Endpoint] = [endpoint for name in GATES.values() for endpoint in import_module(name).ENDPOINTS]
A2A = [endpoint for endpoint in ALL if endpoint.path.startswith("/a2a/")]
MCP = [endpoint for endpoint in ALL if endpoint.tag == "MCP"]
OF_CALLER = [endpoint for endpoint in ALL if "/trigger/" in endpoint.path]
"""They run in sessions of the caller's own user, as tests/gates/test_triggers.py shows."""
OF_ANN = [endpoint for endpoint in ALL if endpoint.path in BODIES or "response_id" in endpoint.path]


def test_each_endpoint_is_tried() -> None:
    others = [one for one in ALL if one not in (*A2A, *MCP, *OF_CALLER) and one.access != "open"]
    assert {endpoint.path for endpoint in others if endpoint.method == "POST" and endpoint.body} == BODIES.keys()
    assert {endpoint.path for endpoint in others if endpoint not in OF_ANN} == {"/v1/models", "/v1/models/{model}"}


@pytest.mark.parametrize("who", [*OTHERS, "nobody"])
async def test_others_reach_nothing_of_anns(serve: Serve, keys: Keys, who: str) -> None:
    server = await serve(echo(), echo("other"), auth=keys.auth, gates=tuple(GATES), default_app="echo")
    ann = bearer(keys("ann", "run", "read"))
    made = await server.client.post("/v1/responses", json={**BODIES["/v1/responses"], "input": SECRET}, headers=ann)
    assert SECRET in made.text
    subject, scopes, apps = OTHERS.get(who, ("", [], None))
    headers = bearer(keys(subject, *scopes, apps=apps)) if subject else {}
    for endpoint in OF_ANN:
        path = endpoint.path.replace("{response_id}", made.json()["id"]).replace("{app_name}", "echo")
        reply = await server.client.request(endpoint.method, path, json=BODIES.get(endpoint.path), headers=headers)
        assert reply.status_code in ((401,) if who == "nobody" else (403, 404)), (endpoint.path, reply.text)
        assert SECRET not in reply.text
        assert reply.json()["detail"]
    session = await server.client.get("/apps/echo/users/ann/sessions/s", headers=ann)
    assert len(session.json()["events"]) == 2


@pytest.mark.parametrize("who", [*OTHERS, "nobody"])
async def test_others_reach_no_task_of_anns(serve: Serve, keys: Keys, who: str) -> None:
    """A2A has no users: a context is of the caller's user, so the same context id is another session."""
    server = await serve(echo(), echo("other"), auth=keys.auth, gates=("a2a",))
    version = {"a2a-version": "1.0"}
    ann = {**bearer(keys("ann", "run", "read")), **version}
    message = {"message": {**A2A_MESSAGE["message"], "contextId": "s", "parts": [{"text": SECRET}]}}
    made = await server.client.post("/a2a/echo/message:send", json=message, headers=ann)
    task_id = made.json()["task"]["id"]
    subject, scopes, apps = OTHERS.get(who, ("", [], None))
    headers = {**(bearer(keys(subject, *scopes, apps=apps)) if subject else {}), **version}

    for endpoint in A2A:
        path = endpoint.path.replace("{app_name}", "echo").replace("{id}", task_id).replace("{push_id}", "p")
        own = {"message": {**A2A_MESSAGE["message"], "contextId": "s"}} if endpoint.method == "POST" else None
        reply = await server.client.request(endpoint.method, path, headers=headers, json=own)
        assert SECRET not in reply.text, path
        if who == "nobody":
            assert reply.status_code == 401, path
        elif "{id}" in endpoint.path:
            assert reply.status_code >= 400, path

    call = {"jsonrpc": "2.0", "id": 1, "params": {"id": task_id}}
    for method in ("GetTask", "CancelTask", "SubscribeToTask"):
        reply = await server.client.post("/a2a/echo", json={**call, "method": method}, headers=headers)
        assert reply.status_code in (401, 403) or reply.json()["error"]["code"] == -32001, reply.text

    session = await server.client.get("/apps/echo/users/ann/sessions/s", headers=ann)
    assert len(session.json()["events"]) == 2


@pytest.mark.parametrize("who", [*OTHERS, "nobody"])
async def test_others_reach_nothing_of_anns_by_mcp(serve: Serve, keys: Keys, who: str) -> None:
    """MCP has no users: tools and resources are those of the caller's own user."""
    server = await serve(echo(), echo("other"), auth=keys.auth, gates=("mcp",))

    @asynccontextmanager
    async def connected(headers: dict[str, str], mode: Any) -> AsyncGenerator[Client]:
        async with (
            httpx2.AsyncClient(headers=headers) as http,
            Client(streamable_http_client(f"{server.url}/mcp", http_client=http), mode=mode) as client,
        ):
            yield client

    ann = bearer(keys("ann", "run", "read"))

    async with connected(ann, "auto") as client:
        made = await client.call_tool("echo", {"message": SECRET})
        assert made.structured_content is not None
        session_id = made.structured_content["session_id"]

    subject, scopes, apps = OTHERS.get(who, ("", [], None))
    headers = bearer(keys(subject, *scopes, apps=apps)) if subject else {}
    may_run = bool({"run", "admin"} & set(scopes))

    for endpoint in MCP:
        if endpoint.access != "open" and not may_run:
            path = endpoint.path.replace("{app_name}", "echo")
            reply = await server.client.request(endpoint.method, path, headers=headers)
            assert reply.status_code == (401 if who == "nobody" else 403), path

    if not may_run:
        return

    for mode in ("auto", "legacy"):
        async with connected(headers, mode) as client:
            for uri in [one.uri for one in (await client.list_resources()).resources]:
                assert session_id not in str(uri)
            with pytest.raises(MCPError):
                await client.read_resource(f"greenroom://echo/sessions/{session_id}")
            tried = await client.call_tool("echo", {"message": "x", "session_id": session_id})
            assert tried.is_error
            assert SECRET not in str(tried)

    session = await server.client.get(f"/apps/echo/users/ann/sessions/{session_id}", headers=ann)
    assert len(session.json()["events"]) == 2


async def test_a_session_of_an_older_mcp_client_is_its_callers(serve: Serve, keys: Keys) -> None:
    server = await serve(echo(), auth=keys.auth, gates=("mcp",))
    accept = {"accept": "application/json, text/event-stream"}
    ann, bob = ({**bearer(keys(name, "run")), **accept} for name in ("ann", "bob"))
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    opened = await server.client.post(
        "/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}, headers=ann
    )
    session = {"mcp-session-id": opened.headers["mcp-session-id"]}
    ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    for headers, status in ((bob, 404), (ann, 200)):
        assert (await server.client.post("/mcp", json=ping, headers={**headers, **session})).status_code == status


async def test_a_refusal_names_the_issuer_of_tokens(serve: Serve, keys: Keys) -> None:
    """RFC 9728: an MCP client finds out where to log in."""
    tokens = TokenSettings(jwks_url="https://login.example/keys", issuer="https://login.example", audiences=("us",))
    server = await serve(echo(), auth=replace(keys.auth, tokens=tokens), gates=("mcp",))
    for path in ("/mcp", "/mcp/echo"):
        refused = await server.client.post(path, json={})
        assert refused.status_code == 401
        [address] = re.findall('resource_metadata="([^"]+)"', refused.headers["www-authenticate"])
        metadata = (await server.client.get(address)).json()
        assert (metadata["resource"], metadata["authorization_servers"]) == (
            server.url + path,
            ["https://login.example"],
        )
    server = await serve(echo(), auth=keys.auth, gates=("mcp",))
    assert "resource_metadata" not in (await server.client.post("/mcp", json={})).headers["www-authenticate"]
    assert (await server.client.get("/.well-known/oauth-protected-resource/mcp")).status_code == 404


async def test_a_key_needs_the_endpoints_scope(serve: Serve, keys: Keys) -> None:
    server = await serve(echo(), auth=keys.auth, gates=tuple(GATES))
    for endpoint in (one for one in ALL if one.access != "open"):
        headers = bearer(keys("ann", "debug"))
        reply = await server.client.request(endpoint.method, endpoint.path, json={}, headers=headers)
        assert reply.status_code == 403, endpoint.path


async def test_without_the_setting_no_gate_is_there(serve: Serve) -> None:
    server = await serve(echo())
    assert (await server.client.get("/v1/models")).status_code == 404
    assert "/v1/models" not in (await server.client.get("/openapi.json")).json()["paths"]
    server = await serve(echo(), gates=tuple(GATES))
    assert "/v1/models" in (await server.client.get("/openapi.json")).json()["paths"]
