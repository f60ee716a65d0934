"""MCP's reference servers, which others wrote in another language. `make node-servers` installs them."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import shutil
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mcp import types

from greenroom.tools.mcp.connection_params import (
    ConnectionParams,
    SseConnectionParams,
    StdioConnectionParams,
    StdioServerParameters,
    StreamableHTTPConnectionParams,
)
from greenroom.tools.mcp.toolset import McpToolset
from tests.agents.human_input.approvals import decide, request_ids
from tests.agents.talk import Talk, call, shown
from tests.processes import END_WITH_PARENT
from tests.requirements import skip_or_fail
from tests.tools.mcp.conftest import Transport
from tests.tools.mcp.test_mcp_toolset import asking, result_of, text_of

pytestmark = pytest.mark.slow

SERVERS = Path(__file__).parents[2] / "node/node_modules/@modelcontextprotocol"
SERVER = SERVERS / "server-everything/dist/index.js"
FILES = SERVERS / "server-filesystem/dist/index.js"  # speaks stdio only
NODE = shutil.which("node")


@pytest.fixture(autouse=True, scope="module")
def reference_server() -> None:
    if NODE is None or not SERVER.exists() or not FILES.exists():
        skip_or_fail("needs node and MCP's reference server: make node-servers")


TINY_IMAGE = "iVBORw0KGgo"


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


async def _takes_connections(port: int, process: asyncio.subprocess.Process) -> None:
    async with asyncio.timeout(20):
        while True:
            assert process.returncode is None, "the server has ended"
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("localhost", port)
                writer.close()
                await writer.wait_closed()
                return
            await asyncio.sleep(0.02)


@pytest.fixture(params=["stdio", "sse", "http"])
async def params(request: pytest.FixtureRequest) -> AsyncIterator[ConnectionParams]:
    transport: Transport = request.param
    if transport == "stdio":
        yield StdioConnectionParams(StdioServerParameters(str(NODE), [str(SERVER), "stdio"]), timeout=20)
        return
    port = _free_port()
    process = await asyncio.create_subprocess_exec(
        *END_WITH_PARENT,
        str(NODE),
        str(SERVER),
        "sse" if transport == "sse" else "streamableHttp",
        env={**os.environ, "PORT": str(port)},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        await _takes_connections(port, process)
        if transport == "sse":
            yield SseConnectionParams(f"http://localhost:{port}/sse", timeout=20)
        else:
            yield StreamableHTTPConnectionParams(f"http://localhost:{port}/mcp", timeout=20)
    finally:
        process.kill()
        await process.wait()


@contextlib.asynccontextmanager
async def toolset_for(params: ConnectionParams, **options: Any) -> AsyncGenerator[McpToolset]:
    toolset = McpToolset(connection_params=params, **options)
    try:
        yield toolset
    finally:
        await toolset.close()


async def test_a_run_calls_several_of_its_tools_at_once(params: ConnectionParams) -> None:
    async with toolset_for(params) as toolset:
        await toolset.get_tools()
        calls = [
            call("echo", "c1", message="hello"),
            call("get-sum", "c2", a=2, b=40),
            call("get-structured-content", "c3", location="Chicago"),
            call("get-tiny-image", "c4"),
        ]
        events = await Talk(asking(toolset, calls)).say("go")
        responses = events[1].get_function_responses()
        echo, added, weather, _ = (response.response or {} for response in responses)
        assert "hello" in text_of(echo)
        assert "42" in text_of(added)
        assert weather["structuredContent"]["temperature"] == 36
        (picture,) = [part.inline_data for part in responses[3].parts or ()]
        assert picture is not None
        assert base64.b64encode(picture.data or b"").decode().startswith(TINY_IMAGE)


async def test_it_refuses_wrong_arguments_and_continues(params: ConnectionParams) -> None:
    async with toolset_for(params) as toolset:
        assert "number" in str(await result_of(toolset, "get-sum", a="two", b=1))
        assert "hi" in text_of(await result_of(toolset, "echo", message="hi"))


async def test_progress_of_a_long_call_is_reported(params: ConnectionParams) -> None:
    heard: list[tuple[float, float | None]] = []

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total))

    async with toolset_for(params, progress_callback=progress) as toolset:
        await result_of(toolset, "trigger-long-running-operation", duration=0.2, steps=2)
    assert heard == [(1, 2), (2, 2)]


async def test_it_asks_for_a_models_answer_and_for_a_persons(params: ConnectionParams) -> None:
    async def sample(context: Any, request: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        return types.CreateMessageResult(
            role="assistant", content=types.TextContent(type="text", text="It is blue."), model="scripted"
        )

    async def elicit(context: Any, request: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="decline")

    async with toolset_for(params, sampling_callback=sample, elicitation_callback=elicit) as toolset:
        names = [tool.name for tool in await toolset.get_tools()]
        assert {"trigger-sampling-request", "trigger-elicitation-request"} <= set(names)
        sampled = await result_of(toolset, "trigger-sampling-request", prompt="Which colour?")
        assert "It is blue." in str(sampled)
        assert "decline" in str(await result_of(toolset, "trigger-elicitation-request"))


async def test_the_runs_model_and_a_person_answer_it(params: ConnectionParams) -> None:
    async with toolset_for(params) as toolset:
        await toolset.get_tools()
        turns = [call("trigger-sampling-request", "c1", prompt="Which colour?"), "It is blue."]
        events = await Talk(asking(toolset, *turns)).say("go")
        assert "It is blue." in str(events[1].get_function_responses()[0].response)
        talk = Talk(asking(toolset, call("trigger-elicitation-request", "c1")))
        (request,) = request_ids(await talk.say("go"))
        events = await talk.say(decide(request, payload={"name": "Ada"}))
        said = str(events[0].get_function_responses()[0].response)
        assert "Ada" in said
        assert "cancel" not in said


async def test_a_request_that_could_be_of_several_calls_is_refused(params: ConnectionParams) -> None:
    async with toolset_for(params) as toolset:
        await toolset.get_tools()
        calls = [
            call("trigger-long-running-operation", "c1", duration=1, steps=1),
            call("trigger-elicitation-request", "c2"),
        ]
        events = await Talk(asking(toolset, calls)).say("go")
        _, refused = events[1].get_function_responses()
        if isinstance(
            params, StreamableHTTPConnectionParams
        ):  # where a request comes with the call that it is made for
            assert len(request_ids(events)) == 1
            return
        assert "attributed to a single tool call" in str(refused.response)
        assert request_ids(events) == []


async def test_a_model_looks_into_its_resources(params: ConnectionParams) -> None:
    async with toolset_for(params, use_mcp_resources=True, tool_filter=["echo"]) as toolset:
        await toolset.get_tools()
        agent = asking(toolset, call("load_mcp_resource", resource_names=["features.md"]))
        await Talk(agent).say("go")
        last = agent.model.requests[-1]  # type: ignore[union-attr]
        assert any("features.md is:" in line for line in shown(last))


async def test_the_filesystem_server_reads_writes_and_refuses(tmp_path: Path) -> None:
    (tmp_path / "dot.png").write_bytes(b"\x89PNG")
    connection = StdioConnectionParams(StdioServerParameters(str(NODE), [str(FILES), str(tmp_path)]), timeout=20)
    async with toolset_for(connection) as toolset:
        await result_of(toolset, "write_file", path=str(tmp_path / "a.txt"), content="hello")
        assert (tmp_path / "a.txt").read_text() == "hello"
        assert "hello" in text_of(await result_of(toolset, "read_text_file", path=str(tmp_path / "a.txt")))
        assert "denied" in text_of(await result_of(toolset, "read_text_file", path="/etc/passwd"))
        events = await Talk(asking(toolset, call("read_media_file", "c1", path=str(tmp_path / "dot.png")))).say("go")
        (part,) = events[1].get_function_responses()[0].parts or [None]
        assert part is not None
        assert part.inline_data is not None
        assert (part.inline_data.mime_type, part.inline_data.data) == ("image/png", b"\x89PNG")
