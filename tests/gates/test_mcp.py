"""The apps as an MCP server, as the SDK's client sees them, in both eras of the protocol."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client, MCPError, StdioServerParameters, types
from mcp.client.stdio import stdio_client

from greenroom import App, ApprovalPolicy, FunctionTool, LlmAgent
from greenroom.records.content import Blob, FunctionCall, Part
from greenroom.records.model_exchange import LlmRequest
from greenroom.testing import ScriptedModel
from tests.cli.conftest import PARROT
from tests.processes import END_WITH_PARENT
from tests.server.agents import HeldModel, echo, last_text, scripted
from tests.server.conftest import Serve
from tests.server.serving import Serving

pytestmark = pytest.mark.parametrize("mode", ["auto", "legacy"])


@asynccontextmanager
async def connected(server: Serving, mode: str, app: str = "", **options: Any) -> AsyncGenerator[Client]:
    async with Client(f"{server.url}/mcp{app}", mode=mode, **options) as client:  # type: ignore[arg-type]
        yield client


def text(result: Any) -> str:
    return "".join(part.text for part in result.content if isinstance(part, types.TextContent))


async def test_each_app_is_a_tool(serve: Serve, mode: str) -> None:
    server = await serve(
        echo(), LlmAgent(name="other", description="Another one.", model=ScriptedModel([])), gates=("mcp",)
    )
    async with connected(server, mode) as client:
        tools = (await client.list_tools()).tools
        assert [(tool.name, tool.description) for tool in tools] == [
            ("echo", "The agent echo."),
            ("other", "Another one."),
        ]
    async with connected(server, mode, "/other") as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["other"]
        with pytest.raises(MCPError, match="no tool 'echo'"):
            await client.call_tool("echo", {"message": "hi"})


def history(request: LlmRequest) -> str:
    return " | ".join(content.text() for content in request.contents)


async def test_a_call_is_a_run_and_continues_its_conversation(serve: Serve, mode: str) -> None:
    server = await serve(scripted("echo", history), gates=("mcp",))
    reported: list[tuple[float, str | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        reported.append((progress, message))

    async with connected(server, mode) as client:
        first = await client.call_tool("echo", {"message": "one two"}, progress_callback=on_progress)
        assert (text(first), first.is_error) == ("one two", False)
        assert "".join(message or "" for _, message in reported) == "one two"
        assert reported[-1][0] == len("one two")
        session_id = first.structured_content["session_id"]
        again = await client.call_tool("echo", {"message": "three", "session_id": session_id})
        assert text(again) == "one two | one two | three"
        listed = (await client.list_resources()).resources
        with pytest.raises(MCPError, match="no page"):
            await client.list_resources(cursor="other/")
        assert [str(one.uri) for one in listed] == [f"greenroom://echo/sessions/{session_id}"]
        [content] = (await client.read_resource(str(listed[0].uri))).contents
        assert isinstance(content, types.TextResourceContents)
        assert len(json.loads(content.text)["events"]) == 4
        [template] = (await client.list_resource_templates()).resource_templates
        assert template.uri_template == "greenroom://{app_name}/sessions/{session_id}"


async def test_media_are_content(serve: Serve, mode: str) -> None:
    parts = [Part(inline_data=Blob(data=b"\x89PNG", mime_type="image/png")), Part(text="A picture.")]
    server = await serve(scripted("echo", [parts]), gates=("mcp",))
    async with connected(server, mode) as client:
        result = await client.call_tool("echo", {"message": "draw"})
    assert [one.type for one in result.content] == ["text", "image"]


def till(paid: list[int]) -> LlmAgent:
    def pay(amount: int) -> str:
        paid.append(amount)
        return f"paid {amount}"

    def script(request: LlmRequest) -> Any:
        response = request.contents[-1].parts[-1].function_response if request.contents[-1].parts else None
        return FunctionCall(name="pay", args={"amount": 7}) if response is None else json.dumps(response.response)

    return scripted("till", script, tools=[FunctionTool(pay, require_confirmation=True)])


@pytest.mark.parametrize(
    ("answer", "paid"),
    [
        (types.ElicitResult(action="accept", content={"approve": True}), [7]),
        (types.ElicitResult(action="accept", content={"approve": False}), []),
        (types.ElicitResult(action="decline"), []),
    ],
)
async def test_a_confirmation_is_elicitation(
    serve: Serve, mode: str, answer: types.ElicitResult, paid: list[int]
) -> None:
    done: list[int] = []
    server = await serve(till(done), gates=("mcp",))
    asked: list[Any] = []

    async def elicit(_: Any, params: Any) -> types.ElicitResult:
        asked.append(params)
        return answer

    async with connected(server, mode, elicitation_callback=elicit) as client:
        result = await client.call_tool("till", {"message": "pay"})
    assert not result.is_error, text(result)
    assert done == paid
    [params] = asked
    assert 'pay({"amount":7})' in params.message
    assert ("paid 7" in text(result)) == bool(paid)


async def test_an_approval_by_others_is_no_elicitation(serve: Serve, mode: str) -> None:
    done: list[int] = []
    app = App(name="till", root_agent=till(done), approvals=ApprovalPolicy(users=["bob"]))
    server = await serve(app, gates=("mcp",))

    async def elicit(_: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"approve": True})

    async with connected(server, mode, elicitation_callback=elicit) as client:
        result = await client.call_tool("till", {"message": "pay"})
    assert result.is_error
    assert "waits for a person's answer" in text(result)
    assert done == []


async def test_a_client_without_elicitation_gets_an_error(serve: Serve, mode: str) -> None:
    done: list[int] = []
    server = await serve(till(done), gates=("mcp",))
    async with connected(server, mode) as client:
        result = await client.call_tool("till", {"message": "pay"})
    assert result.is_error
    assert "waits for a person's answer" in text(result)
    assert done == []


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_cancelled_call_cancels_its_run(serve: Serve, mode: str) -> None:
    model = HeldModel("one two three")
    server = await serve(LlmAgent(name="echo", model=model), gates=("mcp",))
    async with connected(server, mode) as client:
        call = asyncio.create_task(client.call_tool("echo", {"message": "go"}))
        await until(lambda: model.calls == 1)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await until(lambda: model.closed == 1)
        [run] = (await server.client.get("/runs")).json()["runs"]
        assert run["status"] == "cancelled"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [({}, "message"), ({"message": 5}, "message"), ({"message": "hi", "session_id": "none"}, "not found")],
)
async def test_wrong_arguments_are_said(serve: Serve, mode: str, arguments: Any, error: str) -> None:
    server = await serve(echo(), gates=("mcp",))
    async with connected(server, mode) as client:
        result = await client.call_tool("echo", arguments)
    assert (result.is_error, error in text(result)) == (True, True)
    assert (await server.client.get("/apps/echo/users/anonymous/sessions")).json() == []


async def test_a_failed_run_is_an_error(serve: Serve, mode: str) -> None:
    def fails(request: LlmRequest) -> str:
        raise RuntimeError(f"broken by {last_text(request)}")

    server = await serve(scripted("echo", fails), gates=("mcp",))
    async with connected(server, mode) as client:
        result = await client.call_tool("echo", {"message": "me"})
    assert (result.is_error, "broken by me" in text(result)) == (True, True)


async def test_other_bodies_and_apps_are_refused(serve: Serve, mode: str) -> None:
    server = await serve(echo(), gates=("mcp",))
    headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
    if mode == "auto":
        headers["mcp-protocol-version"] = "2026-07-28"
    for path, content, statuses in (
        ("/mcp", b"{", (400,)),
        ("/mcp", b"[" * 1000, (400, 422)),
        ("/mcp/nobody", b"{}", (404,)),
    ):
        reply: httpx.Response = await server.client.post(path, content=content, headers=headers)
        assert reply.status_code in statuses, reply.text


async def test_a_folder_over_stdio(tmp_path: Path, mode: str) -> None:
    """`greenroom mcp DIR`, as a client starts it."""
    agent = tmp_path / "agents" / "parrot" / "agent.py"
    agent.parent.mkdir(parents=True)
    agent.write_text(PARROT)
    main = "from greenroom.cli.main import main; main()"
    command, *args = [*END_WITH_PARENT, sys.executable, "-c", main, "mcp", str(agent.parent.parent)]
    async with Client(stdio_client(StdioServerParameters(command=command, args=args)), mode=mode) as client:  # type: ignore[arg-type]
        assert [tool.name for tool in (await client.list_tools()).tools] == ["parrot"]
        result = await client.call_tool("parrot", {"message": "hello"})
        assert text(result).strip() == "hello"
        again = await client.call_tool("parrot", {"message": "bye", **_session(result)})
        assert _session(again) == _session(result)
        assert text(again).strip() == "bye"
    assert (agent.parent.parent / ".greenroom" / "greenroom.db").exists()


def _session(result: Any) -> dict[str, str]:
    return {"session_id": result.structured_content["session_id"]}
