"""Lets a model read a page of the public web."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from urllib.parse import urlsplit

from greenroom.errors import ToolError
from greenroom.records.base import JsonObject
from greenroom.tools.functions.function_tool import FunctionTool
from greenroom.tools.web.http_client import HttpClient
from greenroom.tools.web.page_text import visible_text

_SECONDS = 30.0
_FEWEST_WORDS = 4
"""Shorter lines are mostly menus and buttons."""


class LoadWebPageTool(FunctionTool):
    """Private addresses are refused, also after redirects and by name, unless
    allow_private_network_access is set.

    Needs httpx. Pages that can't be read are answered with an error. Can also be called from other
    tools.
    """

    def __init__(self, *, allow_private_network_access: bool = False) -> None:
        self._allows_private = allow_private_network_access
        super().__init__(self._load, name="load_web_page", on_interrupt="retry")

    @property
    def load_web_page(self) -> LoadWebPageTool:
        """The tool itself, for code that expects ADK's module of this name."""
        return self

    async def __call__(self, url: str) -> str | JsonObject:
        return await self._load(url)

    async def _load(self, url: str) -> str | JsonObject:
        """Reads a web page and returns its text.

        Args:
            url: The page's full address, with http:// or https://.
        """
        try:
            if urlsplit(url).scheme not in ("http", "https"):
                raise ToolError("only http and https addresses can be read")
            async with asyncio.timeout(_SECONDS):
                return await self._text_at(url)
        except (ToolError, ValueError, TimeoutError) as error:
            return {"error": f"The page can't be read: {error or 'it took too long'}"}

    async def _text_at(self, url: str) -> str:
        client = HttpClient(
            allow_private_network_access=self._allows_private,
            read_timeout_seconds=_SECONDS,
        )
        async with aclosing(client):
            reply = await client.send(
                "GET",
                url,
                headers=[(b"accept", b"text/html, text/*;q=0.9, */*;q=0.1")],
            )

        if reply.status >= 400:
            raise ToolError(f"the server answered with HTTP status {reply.status}")
        if not reply.media_type.startswith("text/") and "xml" not in reply.media_type and reply.media_type:
            raise ToolError(f"it is no text but {reply.media_type}")

        text = reply.text()
        is_markup = reply.media_type in ("text/html", "") or "xml" in reply.media_type
        if is_markup:
            lines = [block.text for block in visible_text(text)]
        else:
            lines = text.splitlines()

        return "\n".join(line.strip() for line in lines if len(line.split()) >= _FEWEST_WORDS)


load_web_page = LoadWebPageTool()
