"""Keeps other sites' pages out while no origins are allowed. Source: ADK's server, which answers the same way."""

from __future__ import annotations

import re

from starlette.types import ASGIApp, Receive, Scope, Send

from greenroom.server.call import Reply
from greenroom.server.settings import CorsSettings
from greenroom.server.socket_endpoint import refuse

_BODY = b"Forbidden: origin not allowed"
_MEDIA_TYPE = "text/plain; charset=utf-8"


class OriginGuard:
    """A request without `Origin`, or from the server's own pages, passes; any other is refused.

    cors: origins that may open WebSockets, too; their HTTP requests are CORSMiddleware's matter, which ignores sockets.
    """

    def __init__(self, app: ASGIApp, *, cors: CorsSettings | None = None) -> None:
        self._app = app
        self._cors = cors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "websocket" or (kind == "http" and self._cors is None):
            origin = host = None
            for name, value in scope["headers"]:
                if name == b"origin":
                    origin = value
                elif name == b"host":
                    host = value
            is_foreign = origin is not None and origin.partition(b"://")[2] != host
            if is_foreign and not self._admits(origin or b""):
                await _refuse(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _admits(self, origin: bytes) -> bool:
        name = origin.decode("latin-1")
        return self._cors is not None and any(
            allowed in ("*", name)
            or (allowed.startswith("regex:") and re.fullmatch(allowed.removeprefix("regex:"), name) is not None)
            for allowed in self._cors.origins
        )


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await receive()
        await refuse(Reply(data=_BODY, status=403, media_type=_MEDIA_TYPE), scope, send)
        return
    headers = [(b"content-type", _MEDIA_TYPE.encode())]
    await send({"type": "http.response.start", "status": 403, "headers": headers})
    await send({"type": "http.response.body", "body": _BODY})
