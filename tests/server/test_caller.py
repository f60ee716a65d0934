"""Tools and plugins see which key or token a run was started with."""

from __future__ import annotations

from pathlib import Path

from greenroom.invocation.user_context import ToolContext
from greenroom.records.content import FunctionCall
from greenroom.records.model_exchange import LlmRequest
from greenroom.records.run import Caller
from tests.server.agents import scripted
from tests.server.conftest import Serve
from tests.server.security.keys import Keys, bearer


async def test_a_tool_sees_the_key_that_started_its_run(serve: Serve, tmp_path: Path) -> None:
    seen: list[Caller | None] = []

    def look(tool_context: ToolContext) -> str:
        """Look."""
        seen.append(tool_context.caller)
        return "seen"

    def answer(request: LlmRequest) -> str | FunctionCall:
        is_answered = any(part.function_response for part in request.contents[-1].parts or ())
        return "done" if is_answered else FunctionCall(name="look", args={})

    keys = Keys(tmp_path / "keys.db")
    key = keys("ann", "run", "read")
    server = await serve(scripted("looker", answer, tools=[look]), auth=keys.auth)
    server.client.headers.update(bearer(key))
    await server.new_session("looker")
    reply = await server.run("looker")
    assert reply.status_code == 200
    assert seen == [Caller(user_id="ann", key_id=key.split("_")[1], scopes=["read", "run"])]
    assert "caller" not in (await server.client.get(f"/runs/{reply.headers['x-run-id']}")).json()


async def test_without_authentication_there_is_no_caller(serve: Serve) -> None:
    seen: list[Caller | None] = [Caller(user_id="nobody")]

    def look(tool_context: ToolContext) -> str:
        """Look."""
        seen[0] = tool_context.caller
        return "seen"

    calls = iter([FunctionCall(name="look", args={}), "done"])
    server = await serve(scripted("looker", lambda _: next(calls), tools=[look]))
    await server.new_session("looker")
    assert (await server.run("looker")).status_code == 200
    assert seen == [None]
