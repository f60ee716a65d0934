"""`to_mcp_server`: an agent of a program as an MCP server, as the SDK's client sees it, in both eras of the protocol."""

from __future__ import annotations

from typing import Any

import pytest
from mcp import Client, types

from greenroom import InMemoryRunner, LlmAgent, to_mcp_server
from greenroom.records.content import Blob, Part
from greenroom.records.model_exchange import LlmRequest
from greenroom.testing import ScriptedModel
from tests.gates.test_mcp import history, text

pytestmark = pytest.mark.parametrize("mode", ["auto", "legacy"])


def parrot(**options: Any) -> LlmAgent:
    def repeat(request: LlmRequest) -> str:
        return history(request)

    return LlmAgent(name="parrot", model=ScriptedModel(repeat), **options)


async def test_an_agent_is_the_only_tool(mode: str) -> None:
    server = to_mcp_server(parrot(description="Repeats."), instructions="Ask it.")
    async with Client(server, mode=mode) as client:  # type: ignore[arg-type]
        (tool,) = (await client.list_tools()).tools
        assert (tool.name, tool.description) == ("parrot", "Repeats.")
        assert tool.input_schema["required"] == ["request"]
        result = await client.call_tool("parrot", {"request": "hi"})
        assert (text(result), result.is_error) == ("hi", False)


async def test_a_conversation_continues(mode: str) -> None:
    agent = parrot()
    runner = InMemoryRunner(agent, app_name="birds")
    server = to_mcp_server(agent, name="bird", runner=runner)
    async with Client(server, mode=mode) as client:  # type: ignore[arg-type]
        first = await client.call_tool("bird", {"request": "one"})
        given: dict[str, Any] = first.structured_content or {}
        assert text(await client.call_tool("bird", {"request": "two"})) == "two"
        assert text(await client.call_tool("bird", {"request": "two", **given})) == "one | one | two"
    where: dict[str, Any] = {"app_name": "birds", "user_id": "mcp", "session_id": given["session_id"]}
    assert await runner.session_service.get_session(**where) is not None


async def test_media_progress_and_failures(mode: str) -> None:
    def add() -> int:
        """Adds."""
        return 1

    picture = Part(inline_data=Blob(data=b"png", mime_type="image/png"))
    call = Part.from_function_call(name="add", args={})
    model = ScriptedModel([[Part(text="I look. "), call], [Part(text="There."), picture], RuntimeError("no model")])
    server = to_mcp_server(LlmAgent(name="painter", model=model, tools=[add]))
    reports: list[tuple[float, str | None]] = []

    async def report(progress: float, total: float | None, message: str | None) -> None:
        reports.append((progress, message))

    async with Client(server, mode=mode) as client:  # type: ignore[arg-type]
        result = await client.call_tool("painter", {"request": "paint"}, progress_callback=report)
        assert result.content == [
            types.TextContent(text="There."),
            types.ImageContent(data="cG5n", mime_type="image/png"),
        ]
        assert reports == [(8, "I look. ")]
        failed = await client.call_tool("painter", {"request": "paint"})
        assert failed.is_error
        assert "no model" in text(failed)
