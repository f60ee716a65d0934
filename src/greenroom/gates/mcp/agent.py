"""`to_mcp_server`: one agent as a server of the Model Context Protocol. Source of the name and arguments: ADK 2.13."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from greenroom.agents.agent import BaseAgent
from greenroom.errors import MissingExtra
from greenroom.records.content import UserContent
from greenroom.runner.in_memory import InMemoryRunner
from greenroom.runner.runner import Runner

try:
    from mcp import types
    from mcp.server.mcpserver import Context, MCPServer
except ImportError as error:
    raise MissingExtra("mcp", "mcp") from error

from greenroom.gates.mcp.server import failed_result, media_content

_USER = "mcp"


def to_mcp_server(
    agent: BaseAgent, *, name: str | None = None, instructions: str | None = None, runner: Runner | None = None
) -> MCPServer[Any]:
    """A server whose only tool runs the agent: `run()` serves standard input and output, `run("streamable-http")` HTTP.

    name: of the server and its tool; the agent's by default. instructions: for the client's model.
    Each call begins a conversation, or continues that of the `session_id` in an earlier result.
    Sessions are in memory unless `runner` is given. Nothing is authenticated, and nobody is asked
    for approvals; `greenroom mcp DIR` and the gate `mcp` do both.
    """
    name = name or agent.name
    server = MCPServer[Any](name, instructions=instructions)
    runner = runner or InMemoryRunner(agent, app_name=agent.name)
    sessions = runner.session_service

    async def call_agent(request: str, ctx: Context[Any, Any], session_id: str | None = None) -> types.CallToolResult:
        session_id = session_id or str(uuid4())
        names: dict[str, Any] = {"app_name": runner.app_name, "user_id": _USER, "session_id": session_id}
        if await sessions.get_session(**names) is None:
            await sessions.create_session(**names)
        content: list[Any] = []
        message = UserContent(request)

        progress = 0
        async for event in runner.run_async(user_id=_USER, session_id=session_id, new_message=message):
            if event.error_code is not None and event.content is None:
                return failed_result(event.error_message or event.error_code)
            text = event.content.text() if event.content is not None else ""
            if event.is_final_response():
                parts = (event.content.parts if event.content is not None else None) or ()
                content += [types.TextContent(text=text)] if text else []
                content += [media_content(part) for part in parts if part.inline_data or part.file_data]
            elif text:
                progress += len(text)
                await ctx.report_progress(progress, message=text)

        return types.CallToolResult(content=content, structured_content={"session_id": session_id})

    description = agent.description or f"Runs the agent {name}."
    server.add_tool(call_agent, name=name, description=description, structured_output=False)
    return server
