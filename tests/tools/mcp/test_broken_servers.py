"""MCP servers that die, hang, come back, or were never there."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
from starlette.responses import Response

from greenroom.agents.llm_agent import LlmAgent
from greenroom.errors import AgentConfigError, ToolLoadingError, ToolsetInitializationError
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.mcp import connection
from greenroom.tools.mcp.connection_params import (
    SseConnectionParams,
    StdioConnectionParams,
    StdioServerParameters,
    StreamableHTTPConnectionParams,
)
from greenroom.tools.mcp.toolset import McpToolset
from tests.agents.talk import Talk, call, lines_of
from tests.processes import END_WITH_PARENT
from tests.server.conftest import Serve
from tests.server.conftest import connection_limits as connection_limits
from tests.server.conftest import serve as serve
from tests.server.conftest import store as store
from tests.server.serving import serving
from tests.tools.mcp.bookshop import HERE, make_server
from tests.tools.mcp.conftest import Log, MakeToolset, each_transport
from tests.tools.mcp.test_mcp_toolset import asking, result_of, text_of
from tests.tools.one_call import call_once

pytestmark = pytest.mark.slow

NOBODY = "http://127.0.0.1:9/mcp"


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not is_so():
            await asyncio.sleep(0.01)


def is_running(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("transport", ["stdio"])
async def test_a_server_killed_in_the_midst_of_a_call_is_reported_to_the_model_and_started_again(
    make: MakeToolset, log: Log
) -> None:
    toolset = make()
    await toolset.get_tools()
    turns = call("wait", "c1"), call("buy", "c2", title="Emma")
    running = asyncio.ensure_future(Talk(asking(toolset, *turns)).say("go"))
    await until(lambda: "waits" in log.lines())
    (process_id,) = log.process_ids()
    os.kill(process_id, signal.SIGKILL)
    events = await running
    lines = lines_of(events)
    assert lines[1].startswith("a: wait -> {'error': 'MCP tool execution failed")
    assert "bought Emma" in lines[3]
    assert lines[-1] == "a: done"
    assert len(log.process_ids()) == 2
    assert log.lines().count("waits") == 1


@pytest.mark.parametrize("transport", ["stdio"])
async def test_a_server_that_ends_itself_is_started_again(make: MakeToolset, log: Log) -> None:
    toolset = make()
    assert "error" in await result_of(toolset, "crash")
    assert text_of(await result_of(toolset, "buy", title="Emma")) == "bought Emma"
    assert log.lines().count("crash") == 1


@pytest.mark.parametrize("transport", ["stdio"])
async def test_a_server_killed_between_calls_is_started_again(make: MakeToolset, log: Log) -> None:
    toolset = make()
    await toolset.get_tools()
    os.kill(log.process_ids()[0], signal.SIGKILL)
    assert await toolset.get_tools() != []
    assert len(log.process_ids()) == 2


@pytest.mark.parametrize("transport", ["stdio"])
async def test_no_process_is_left_when_it_is_closed(make: MakeToolset, log: Log) -> None:
    toolset = make()
    await toolset.get_tools()
    (process_id,) = log.process_ids()
    assert is_running(process_id)
    await toolset.close()
    assert not is_running(process_id)


@pytest.mark.parametrize("transport", ["stdio"])
async def test_no_process_is_left_when_the_runner_is_closed_nor_below_agents_that_are_tools(
    make: MakeToolset, log: Log
) -> None:
    from greenroom import AgentTool

    toolset = make()
    inner = LlmAgent(name="inner", model=ScriptedModel(["ok"]), tools=[toolset])
    outer = LlmAgent(name="outer", model=ScriptedModel([call("inner", request="x"), "ok"]), tools=[AgentTool(inner)])
    await toolset.get_tools()
    talk = Talk(outer)
    await talk.say("go")
    await talk.runner.close()
    assert not is_running(log.process_ids()[0])


@each_transport
async def test_a_cancelled_call_is_cancelled_at_the_server_and_the_session_continues(
    make: MakeToolset, log: Log
) -> None:
    toolset = make()
    await toolset.get_tools()
    running = asyncio.ensure_future(Talk(asking(toolset, call("wait", "c1"))).say("go"))
    await until(lambda: "waits" in log.lines())
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await until(lambda: "cancelled" in log.lines())
    assert text_of(await result_of(toolset, "buy", title="Emma")) == "bought Emma"
    assert len(log.process_ids()) <= 1


@contextlib.asynccontextmanager
async def bookshop(kind: str, log: Log, port: int = 0) -> AsyncGenerator[int]:
    """A process of its own that serves over HTTP, killed at the end. Gives its port."""
    starts = len(log.ports())
    environment = {**os.environ, "BOOKSHOP_LOG": str(log.path)}
    command = (*END_WITH_PARENT, sys.executable, str(HERE), kind, str(port))
    process = await asyncio.create_subprocess_exec(*command, env=environment)
    try:
        await until(lambda: len(log.ports()) > starts)
        yield log.ports()[-1]
    finally:
        process.kill()
        await process.wait()


@pytest.mark.parametrize("kind", ["sse", "http"])
async def test_a_server_over_http_that_comes_back_is_found_again(kind: str, log: Log) -> None:
    async with bookshop(kind, log) as port:
        url = f"http://127.0.0.1:{port}/{'sse' if kind == 'sse' else 'mcp'}"
        params = SseConnectionParams(url) if kind == "sse" else StreamableHTTPConnectionParams(url)
        toolset = McpToolset(connection_params=params)
        assert await toolset.get_tools() != []
    with pytest.raises(ToolLoadingError):
        await toolset.get_tools()
    async with bookshop(kind, log, port):
        assert text_of(await result_of(toolset, "buy", title="Emma")) == "bought Emma"
        await toolset.close()


@pytest.mark.parametrize("kind", ["sse", "http"])
async def test_a_call_ends_at_once_when_the_server_over_http_vanishes(kind: str, log: Log) -> None:
    """In the midst of the call, and before it."""
    async with bookshop(kind, log) as port:
        url = f"http://127.0.0.1:{port}/{'sse' if kind == 'sse' else 'mcp'}"
        params = SseConnectionParams(url) if kind == "sse" else StreamableHTTPConnectionParams(url)
        toolset = McpToolset(connection_params=params)
        (tool,) = [tool for tool in await toolset.get_tools() if tool.name == "wait"]
        running = asyncio.ensure_future(call_once(tool, "wait"))
        await until(lambda: "waits" in log.lines())
    async with asyncio.timeout(5):
        response = (await running).response
        assert response["error"].startswith("MCP tool execution failed")
        assert "closed" in response["error"].lower()
        assert "error" in (await call_once(tool, "wait")).response
    await toolset.close()


class Drops:
    """Between the client and a server over SSE: from some moment on, messages are not delivered, and the stream stays
    open."""

    def __init__(self, app: Any, answer: Response | None) -> None:
        self.app, self.answer = app, answer
        self.is_broken = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] == "GET" or not self.is_broken:
            await self.app(scope, receive, send)
        elif self.answer is not None:
            await self.answer(scope, receive, send)


@pytest.mark.parametrize("answer", [Response(status_code=404), Response(status_code=502), None])
async def test_a_message_that_a_server_over_sse_does_not_take_ends_the_call(answer: Response | None) -> None:
    app = Drops(make_server().sse_app(), answer)
    async with serving(app) as server:  # pyright: ignore[reportArgumentType]
        toolset = McpToolset(connection_params=SseConnectionParams(f"{server.url}/sse", timeout=1.0))
        (tool,) = [tool for tool in await toolset.get_tools() if tool.name == "buy"]
        app.is_broken = True
        async with asyncio.timeout(5):
            response = (await call_once(tool, "buy", {"title": "Emma"})).response
        assert response["error"].startswith("MCP tool execution failed")
        app.is_broken = False
        assert text_of((await call_once(tool, "buy", {"title": "Emma"})).response) == "bought Emma"
        await toolset.close()


@pytest.mark.parametrize(
    "params",
    [
        StdioConnectionParams(StdioServerParameters("no-such-program-anywhere")),
        StdioConnectionParams(StdioServerParameters(sys.executable, ["-c", "pass"])),
        StreamableHTTPConnectionParams(NOBODY),
        SseConnectionParams(NOBODY),
    ],
    ids=["no program", "ends at once", "http", "sse"],
)
async def test_a_server_that_is_not_there_is_an_error_that_names_it(params: Any) -> None:
    toolset = McpToolset(connection_params=params)
    with pytest.raises(ToolsetInitializationError) as caught:
        await toolset.get_tools()
    assert caught.value.toolset.startswith("MCP server")
    assert "TaskGroup" not in caught.value.detail
    await toolset.close()


async def test_a_server_that_says_nothing_is_waited_for_no_longer_than_asked(log: Log) -> None:
    script = f"import os, time; open({str(log.path)!r}, 'a').write(f'start {{os.getpid()}}\\n'); time.sleep(60)"
    server = StdioServerParameters(sys.executable, ["-c", script])
    toolset = McpToolset(connection_params=StdioConnectionParams(server, timeout=1.0))
    for starts in (1, 2):
        with pytest.raises(ToolsetInitializationError, match=r"no answer within 1 s"):
            await toolset.get_tools()
        assert len(log.process_ids()) <= starts
    await toolset.close()
    assert not any(is_running(process_id) for process_id in log.process_ids())


async def test_an_error_does_not_wait_for_a_silent_process_to_end(log: Log) -> None:
    """The process ignores that its input is closed, and SIGTERM; the SDK gives it two seconds for each."""
    script = (
        "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        f"open({str(log.path)!r}, 'a').write(f'start {{os.getpid()}}\\n'); time.sleep(60)"
    )
    server = StdioServerParameters(sys.executable, ["-c", script])
    toolset = McpToolset(connection_params=StdioConnectionParams(server, timeout=2.0))
    listing = asyncio.ensure_future(toolset.get_tools())
    await until(lambda: log.process_ids() != [])
    with pytest.raises(ToolsetInitializationError):
        await listing
    assert is_running(log.process_ids()[0])
    await toolset.close()
    assert not is_running(log.process_ids()[0])


async def test_a_server_that_is_waited_for_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connection, "REPORT_SECONDS", 0.1)
    server = StdioServerParameters(sys.executable, ["-c", "import time; time.sleep(60)"])
    toolset = McpToolset(connection_params=StdioConnectionParams(server, timeout=0.5))
    with pytest.raises(ToolsetInitializationError):
        await toolset.get_tools()
    await toolset.close()
    assert "has not answered for 0.1 s and is waited for, up to 0.5 s" in caplog.text


@pytest.mark.parametrize("text", ["0", "-1", "soon", "nan", "inf", ""])
def test_a_start_time_that_is_not_a_number_of_seconds_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("GREENROOM_MCP_START_SECONDS", text)
    with pytest.raises(AgentConfigError, match="GREENROOM_MCP_START_SECONDS"):
        StdioConnectionParams(StdioServerParameters("x"))


def test_a_process_has_a_minute_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GREENROOM_MCP_START_SECONDS", raising=False)
    assert StdioConnectionParams(StdioServerParameters("x")).timeout == 60
    monkeypatch.setenv("GREENROOM_MCP_START_SECONDS", "90.5")
    assert StdioConnectionParams(StdioServerParameters("x")).timeout == 90.5


async def test_errors_name_addresses_without_their_secrets() -> None:
    toolset = McpToolset(connection_params=StreamableHTTPConnectionParams("http://me:pw@127.0.0.1:9/mcp?key=k"))
    with pytest.raises(ToolsetInitializationError) as caught:
        await toolset.get_tools()
    assert caught.value.toolset == "MCP server http://127.0.0.1:9/mcp"


async def test_an_app_whose_server_is_not_there_fails_its_runs_and_nothing_else(serve: Serve) -> None:
    missing = McpToolset(connection_params=StreamableHTTPConnectionParams(NOBODY))
    broken = LlmAgent(name="broken", model=ScriptedModel(["never"]), tools=[missing])
    fine = LlmAgent(name="fine", model=ScriptedModel(["hello"]))
    server = await serve(broken, fine)
    await server.new_session("broken")
    await server.new_session("fine")
    reply = await server.run("broken")
    assert reply.status_code == 503
    assert reply.json()["type"].endswith("toolset-initialization-error")
    assert "Traceback" not in reply.text
    assert (await server.run("fine")).status_code == 200


@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_a_session_that_is_not_used_is_closed_and_the_next_use_opens_another(
    make: MakeToolset, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "IDLE_SECONDS", 0.1)
    toolset = make()
    await toolset.get_tools()
    await until(lambda: not any("MCP server" in task.get_name() for task in asyncio.all_tasks()))
    assert text_of(await result_of(toolset, "buy", title="Emma")) == "bought Emma"
    assert log.sessions() == 2


async def test_a_session_in_use_is_not_idle(make: MakeToolset, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "IDLE_SECONDS", 0.05)
    toolset = make()
    await toolset.get_tools()
    running = asyncio.ensure_future(Talk(asking(toolset, call("wait", "c1"))).say("go"))
    await until(lambda: "waits" in log.lines())
    await asyncio.sleep(0.2)  # longer than a session may be idle
    assert "cancelled" not in log.lines()
    running.cancel()
    await asyncio.wait([running])
