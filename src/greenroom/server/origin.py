"""Keeps other sites' pages out while no origins are allowed. Source: ADK's server, which answers the same way."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send


class OriginGuard:
    """A request without `Origin`, or from the server's own pages, passes; any other is refused."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            origin = host = None
            for name, value in scope["headers"]:
                if name == b"origin":
                    origin = value
                elif name == b"host":
                    host = value
            if origin is not None and origin.partition(b"://")[2] != host:
                headers = [(b"content-type", b"text/plain; charset=utf-8")]
                await send({"type": "http.response.start", "status": 403, "headers": headers})
                await send({"type": "http.response.body", "body": b"Forbidden: origin not allowed"})
                return
        await self._app(scope, receive, send)
