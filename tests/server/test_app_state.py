"""State of an app is read by all its users' agents: clients need the scope `manage` to write it; agents don't."""

from __future__ import annotations

from typing import Any

import pytest

from greenroom.invocation.user_context import ToolContext
from greenroom.records.content import FunctionCall
from greenroom.records.model_exchange import LlmRequest
from tests.server.agents import echo, scripted
from tests.server.conftest import Serve
from tests.server.security.conftest import keys as keys
from tests.server.security.keys import Keys, bearer
from tests.server.serving import Serving, run_body

SESSIONS = "/apps/echo/users/ann/sessions"
EVENT = {"author": "user", "actions": {"stateDelta": {"app:x": 1}}}


async def attempts(server: Serving) -> list[int]:
    calls: list[tuple[str, str, Any]] = [
        ("PATCH", f"{SESSIONS}/s-1", {"stateDelta": {"app:x": 1}}),
        ("POST", "/run", run_body("echo", stateDelta={"app:x": 1})),
        ("POST", "/run_sse", run_body("echo", stateDelta={"app:x": 1})),
        ("POST", f"{SESSIONS}/s-1/runs", {"newMessage": {"parts": [{"text": "a"}]}, "stateDelta": {"app:x": 1}}),
        ("POST", SESSIONS, {"state": {"app:x": 1}}),
        ("POST", SESSIONS, {"events": [EVENT]}),
        ("POST", f"{SESSIONS}/s-2", {"app:x": 1}),
    ]
    return [(await server.client.request(method, path, json=body)).status_code for method, path, body in calls]


@pytest.mark.parametrize(("scopes", "allowed"), [(("run", "read"), False), (("run", "read", "manage"), True)])
async def test_clients_write_app_state_with_the_scope_manage_only(
    serve: Serve, keys: Keys, scopes: tuple[str, ...], allowed: bool
) -> None:
    server = await serve(auth=keys.auth)
    server.client.headers.update(bearer(keys("ann", *scopes)))
    await server.new_session("echo")
    statuses = await attempts(server)
    assert {status < 300 for status in statuses} == {allowed}, statuses
    if not allowed:
        assert set(statuses) == {403}
    state = (await server.client.get(f"{SESSIONS}/s-1")).json()["state"]
    assert ("app:x" in state) is allowed


async def test_other_state_needs_no_more_than_before(serve: Serve, keys: Keys) -> None:
    server = await serve(auth=keys.auth)
    server.client.headers.update(bearer(keys("ann", "run", "read")))
    path = await server.new_session("echo", state={"user:a": 1, "b": 2})
    assert (await server.client.patch(path, json={"stateDelta": {"user:a": 2}})).status_code == 200
    assert (await server.run("echo", stateDelta={"b": 3})).status_code == 200


async def test_a_tool_writes_app_state_in_any_callers_run(serve: Serve, keys: Keys) -> None:
    def count(tool_context: ToolContext) -> str:
        """Count."""
        tool_context.state["app:count"] = 1
        return "counted"

    def answer(request: LlmRequest) -> str | FunctionCall:
        is_answered = any(part.function_response for part in request.contents[-1].parts or ())
        return "done" if is_answered else FunctionCall(name="count", args={})

    server = await serve(scripted("counter", answer, tools=[count]), echo(), auth=keys.auth)
    server.client.headers.update(bearer(keys("ann", "run", "read")))
    path = await server.new_session("counter")
    assert (await server.run("counter")).status_code == 200
    assert (await server.client.get(path)).json()["state"] == {"app:count": 1}
