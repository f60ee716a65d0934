"""An MCP server for tests, with one tool for each thing that can happen.

Run it for the stdio transport, or with `sse PORT` or `http PORT` for the others; port 0 takes a free one.

`BOOKSHOP_LOG` names a file to which it writes a line when it starts, when it hears a call, and when a call is cancelled.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Annotated

import anyio
import mcp_types as types
import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.prompts.base import Message, UserMessage
from mcp.server.mcpserver.resolve import Elicit, Resolve, Sample
from pydantic import BaseModel

HERE = Path(__file__)


def note(line: str) -> None:
    log = os.environ.get("BOOKSHOP_LOG")
    if log:
        with open(log, "a", encoding="utf-8") as file:
            file.write(line + "\n")


class Reader(BaseModel):
    name: str
    copies: int = 1


def who_reserves(title: str) -> Elicit[Reader]:
    note(f"ask who reserves {title}")
    return Elicit(f"Who reserves {title}?", Reader)


def ask_model(title: str) -> Sample:
    said = types.SamplingMessage(role="user", content=types.TextContent(text=f"What is {title} about?"))
    return Sample([said], system_prompt="Be brief.", max_tokens=20)


def make_server() -> MCPServer:
    server = MCPServer("bookshop", log_level="CRITICAL")

    @server.tool(annotations=types.ToolAnnotations(read_only_hint=True))
    def count_books(author: str, minimum: int = 0) -> dict[str, int]:
        """Counts the books of an author."""
        note(f"count {author}")
        return {"count": len(author) + minimum}

    @server.tool()
    def buy(title: str) -> str:
        """Buys a book."""
        note(f"buy {title}")
        return f"bought {title}"

    @server.tool()
    def fail() -> str:
        """Always fails."""
        raise ToolError("sold out")

    @server.tool()
    def cover() -> list[types.ContentBlock]:
        """Shows a cover."""
        resource = types.TextResourceContents(uri="shop://blurb", text="a blurb", mime_type="text/plain")
        return [
            types.TextContent(text="the cover"),
            types.ImageContent(data="aGk=", mime_type="image/png"),
            types.AudioContent(data="aGk=", mime_type="audio/wav"),
            types.EmbeddedResource(resource=resource),
            types.ResourceLink(name="blurb", uri="shop://blurb"),
        ]

    @server.tool()
    async def read_aloud(pages: int, ctx: Context) -> str:
        """Reads, and says how far it is."""
        for page in range(pages):
            await ctx.report_progress(page + 1, pages, f"page {page + 1}")
        return "read"

    @server.tool()
    async def wait() -> str:
        """Waits for ever."""
        note("waits")
        try:
            await anyio.sleep_forever()
        except BaseException:
            note("cancelled")
            raise
        return "never"

    @server.tool()
    def crash() -> str:
        """Takes the whole server down."""
        note("crash")
        os._exit(3)

    @server.tool()
    def who_calls(ctx: Context) -> str:
        """Says with which header it was called."""
        headers = getattr(ctx, "headers", None) or {}
        return f"{headers.get('x-user')} {headers.get('authorization')}"

    @server.tool()
    async def open_cellar(ctx: Context) -> str:
        """Opens the cellar, which has a tool of its own."""
        server.add_tool(lambda: "wine", name="cellar", description="Fetches wine.")
        await ctx.session.send_tool_list_changed()
        return "open"

    @server.tool()
    def trace(ctx: Context) -> str:
        """Says which trace the call is part of."""
        return str((ctx.request_context.meta or {}).get("traceparent"))

    @server.tool(meta={"ui": {"resourceUri": "ui://shop/window"}})
    def window() -> types.CallToolResult:
        """Shows the window, and says where that is from."""
        return types.CallToolResult(
            content=[types.TextContent(text="books")], _meta={"groundingMetadata": {"sources": ["shelf"]}}
        )

    @server.tool()
    def reserve(title: str, name: Annotated[Reader, Resolve(who_reserves)]) -> str:
        """Reserves a book for somebody."""
        note(f"reserve {title}")
        return f"{title} for {name.name}, {name.copies} copies"

    @server.tool()
    def summarize(title: str, text: Annotated[types.CreateMessageResult, Resolve(ask_model)]) -> str:
        """Summarizes a book."""
        return f"{text.model}: {text.content.text}"  # pyright: ignore[reportAttributeAccessIssue]

    @server.tool(name="transfer_to_agent")
    def reserved() -> str:
        """Has a name that is not for servers."""
        return ""

    @server.resource("shop://hours", name="hours", mime_type="text/plain")
    def hours() -> str:
        return "nine to five"

    @server.resource("shop://logo", name="logo", mime_type="image/png")
    def logo() -> bytes:
        return b"png"

    @server.prompt()
    def clerk(shop: str, mood: str = "friendly") -> list[Message]:
        """Rules of behavior."""
        return [UserMessage(f"You work at {shop}. "), UserMessage(f"Be {mood}.")]

    @server.prompt()
    def picture() -> list[Message]:
        """No words."""
        return [UserMessage(types.ImageContent(data="aGk=", mime_type="image/png"))]

    return server


def serve(transport: str, port: int) -> None:
    """Until the process is ended. The port is noted when connections are taken."""
    server = make_server()
    app = server.sse_app() if transport == "sse" else server.streamable_http_app()
    with socket.create_server(("127.0.0.1", port)) as listening:
        note(f"port {listening.getsockname()[1]}")
        uvicorn.Server(uvicorn.Config(app, log_level="critical")).run([listening])


if __name__ == "__main__":
    note(f"start {os.getpid()}")
    if len(sys.argv) > 1:
        serve(sys.argv[1], int(sys.argv[2]))
    else:
        make_server().run("stdio")
