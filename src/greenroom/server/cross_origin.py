"""Refuses cross-origin requests, or allows them by CORS. Source of the responses: ADK's server.

Browsers send forms and image requests to other origins without a preflight, so a page that can't
read the response could still start a run. Other origins are therefore refused, not just left
without CORS headers. A page whose host name resolves to this machine (DNS rebinding) has the same
origin and is detected by the name in `Host`.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable

from starlette.types import ASGIApp, Receive, Scope, Send

from greenroom.records.service_uri import is_loopback
from greenroom.server.addresses import public_host
from greenroom.server.endpoint import send_reply
from greenroom.server.replies import Reply
from greenroom.server.settings import CorsSettings
from greenroom.server.websocket_endpoint import refuse

LOOPBACK = "localhost"
"""In the allowed hosts: every name and address of this machine."""

_MEDIA_TYPE = "text/plain; charset=utf-8"
_SEVERAL = b","
"""The value for a repeated header; it matches no host and no origin."""

_REMEMBERED = 100
_HOST = re.compile(r"(\[[^\]]*\]|[^:\[\]]+)(?::\d*)?")

_EXPOSED_HEADERS = (
    "x-run-id",
    "x-next-page-token",
    "location",
    "retry-after",
    "www-authenticate",
    "content-disposition",
    "mcp-session-id",
)
"""Headers of responses that pages of other origins may read, besides those that each page may."""


class OriginGuard:
    """Admits requests with an allowed `Host` and no `Origin`, the server's own or a listed one; adds CORS headers.

    hosts: names without ports; empty allows all.
    """

    def __init__(self, app: ASGIApp, *, cors: CorsSettings, hosts: tuple[str, ...]) -> None:
        self._app = self._mapped = app
        self._hosts = frozenset(host.lower() for host in hosts)
        self._known_hosts: set[bytes | None] = {None}
        self._prefix = re.sub(r"\*+$", "", cors.mapping)
        self._origins = frozenset(origin for origin in cors.origins if not origin.startswith("regex:"))
        self._patterns = [re.compile(origin[6:]) for origin in cors.origins if origin.startswith("regex:")]
        if cors.origins:
            from starlette.middleware.cors import CORSMiddleware

            self._mapped = CORSMiddleware(
                app,
                allow_origins=tuple(self._origins),
                allow_origin_regex="|".join(f"(?:{pattern.pattern})" for pattern in self._patterns) or None,
                allow_methods=cors.methods,
                allow_headers=cors.headers,
                allow_credentials=cors.allow_credentials,
                expose_headers=_EXPOSED_HEADERS,
                max_age=cors.max_age,
            )

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        origin = host = None
        for name, value in scope["headers"]:
            if name == b"origin":
                origin = value if origin is None else _SEVERAL
            elif name == b"host":
                host = value if host is None else _SEVERAL

        if self._hosts and host not in self._known_hosts and not self._is_allowed_host(host or b""):
            return _refuse("host", scope, receive, send)
        if origin is not None and not (_is_own(origin, host, scope) or self._is_listed(origin, scope)):
            return _refuse("origin", scope, receive, send)

        app = self._mapped if scope["path"].startswith(self._prefix) else self._app
        return app(scope, receive, send)

    def _is_listed(self, origin: bytes, scope: Scope) -> bool:
        if not scope["path"].startswith(self._prefix):
            return False
        text = origin.decode("latin-1")
        if "*" in self._origins or text in self._origins:
            return True
        return any(pattern.fullmatch(text) for pattern in self._patterns)

    def _is_allowed_host(self, host: bytes) -> bool:
        name = _without_port(host.decode("latin-1").lower())
        allowed = name in self._hosts or "*" in self._hosts or (LOOPBACK in self._hosts and is_loopback(name))
        if allowed and len(self._known_hosts) < _REMEMBERED:
            self._known_hosts.add(host)
        return allowed


def _is_own(origin: bytes, host: bytes | None, scope: Scope) -> bool:
    """True for pages of the host in `Host`, and of the one that a setting or a trusted proxy names."""
    name = origin.partition(b"://")[2]
    return name == host or name.decode("latin-1") == public_host(scope)


def _without_port(host: str) -> str:
    """The host name; empty if the text is not a host."""
    found = _HOST.fullmatch(host)
    return found[1].removesuffix(".") if found else ""


async def _refuse(what: str, scope: Scope, receive: Receive, send: Send) -> None:
    reply = Reply(data=b"Forbidden: %b not allowed" % what.encode(), status=403, media_type=_MEDIA_TYPE)
    if scope["type"] == "websocket":
        await receive()
        await refuse(reply, scope, send)
    else:
        await send_reply(reply, send)
