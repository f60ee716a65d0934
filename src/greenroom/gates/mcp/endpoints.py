"""The table of endpoints: `/mcp` has a tool for each app, `/mcp/{app_name}` that of one app.

The SDK's transport is an ASGI application. Each request is authenticated and limited as any other,
and goes to it with the caller's context in its scope; its answer becomes a reply or a stream of
this server. A server that accepts an identity provider's tokens says so as RFC 9728 has it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from typing import Any

from starlette.types import Scope

from greenroom.errors import CallerError, MissingExtra, NotFound, TooLarge, Unavailable
from greenroom.records.base import JsonObject
from greenroom.server.access.identity import EVERYBODY, SCOPES
from greenroom.server.addresses import address_of, public_address
from greenroom.server.endpoint import Endpoint, Handler
from greenroom.server.replies import AnyReply, Reply, StreamReply
from greenroom.server.request_body import ClientDisconnected, check_size, read_body, wait_for_disconnect
from greenroom.server.request_context import RequestContext
from greenroom.server.server_state import ServerState
from greenroom.server.settings import ServerSettings

try:
    from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
    from mcp.server.auth.provider import AccessToken
    from mcp.server.stdio import stdio_server
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    from mcp.server.transport_security import TransportSecuritySettings
except ImportError as error:
    raise MissingExtra("mcp", "mcp") from error

from greenroom.gates.mcp.server import Context, mcp_server

_CONTEXT = "greenroom.context"
_METADATA = "/.well-known/oauth-protected-resource"

_SESSION = "mcp-session-id"

_open: dict[int, tuple[StreamableHTTPSessionManager, ServerState]] = {}
"""Running servers, by the identity of their settings."""


@asynccontextmanager
async def lifespan(server: ServerState) -> AsyncGenerator[None]:
    """Runs the SDK's sessions. Sessions of clients before 2026-07-28 are in memory; later clients have none."""
    manager = StreamableHTTPSessionManager(
        mcp_server(_find),
        security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),  # the server has its own
        max_request_body_size=server.settings.max_body_bytes,
    )
    started = asyncio.Event()
    stopping = asyncio.Event()

    async def run() -> None:
        # In a task of its own, since its scope must be left by the task that entered it.
        async with manager.run():
            started.set()
            await stopping.wait()

    task = asyncio.create_task(run())
    await started.wait()
    _open[id(server.settings)] = manager, server

    try:
        yield
    finally:
        del _open[id(server.settings)]
        stopping.set()
        await task


def _find(ctx: Context) -> tuple[RequestContext, str | None]:
    assert ctx.request is not None
    context: RequestContext = ctx.request.scope[_CONTEXT]
    return context, context.path.get("app_name")


async def serve_stdio(settings: ServerSettings) -> None:
    """Serves the client at standard input and output until it closes them, with everybody's
    permissions. settings: of a server that runs in this process with this gate."""
    _, server = _open[id(settings)]
    context = RequestContext(
        server=server,
        identity=EVERYBODY,
        access="run",
        path={},
        query={},
        headers={},
        body=None,
        receive=_never,
        find_address=partial(public_address, settings.url_prefix),
    )
    mcp = mcp_server(lambda _: (context, None))
    async with stdio_server() as (read, write):
        await mcp.run(read, write, mcp.create_initialization_options())


async def _never() -> Any:
    await asyncio.Event().wait()


async def _answer(method: str, context: RequestContext) -> AnyReply:
    if id(context.settings) not in _open:
        raise Unavailable("The server is stopping")

    manager, _ = _open[id(context.settings)]
    limits = context.settings.limits
    if "app_name" in context.path:
        await context.apps.check_exists(context.path["app_name"])
    body = b""
    if method == "POST":
        body = await read_body(context.receive, context.headers, limit_bytes=context.settings.max_body_bytes)
        check_size(body, max_items=limits.request_items, max_nesting=limits.request_nesting)

    exchange = _HttpExchange(manager, method, context, body, _own_headers(context))
    leaving = asyncio.create_task(wait_for_disconnect(context.receive))
    leaving.add_done_callback(lambda _: leaving.cancelled() or exchange.close())

    try:
        return await _reply(exchange, context.replica_id, is_endless=method == "GET")
    finally:
        leaving.cancel()  # the server watches a stream's connection


def _own_headers(context: RequestContext) -> Mapping[str, str]:
    """The headers of a request with the id of the session as the SDK knows it.

    Where several servers share a store, a session's id ends with that of its server, which gets the session's requests.
    Raises NotFound, whereupon clients begin a new session.
    """
    replica_id = context.replica_id
    session_id = context.headers.get(_SESSION)
    if replica_id is None or session_id is None:
        return context.headers

    own_id, _, holder = session_id.rpartition(".")
    if holder != replica_id:
        context.forward_to(holder)
        raise NotFound("The server of this session has ended")
    context.answer_here()
    return {**context.headers, _SESSION: own_id}


async def _reply(exchange: _HttpExchange, replica_id: str | None, *, is_endless: bool) -> AnyReply:
    start = await exchange.next()
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in start["headers"]}
    if replica_id is not None and _SESSION in headers:
        headers[_SESSION] += f".{replica_id}"
    media_type = headers.pop("content-type", "application/json")
    headers.pop("content-length", None)
    if media_type.startswith("text/event-stream"):
        return StreamReply(
            pieces=exchange.pieces(),
            close=exchange.close,
            is_endless=is_endless,
            when_server_stops=bytes if is_endless else None,
            media_type=media_type,
            headers=headers,
        )
    data = b"".join([piece async for piece in exchange.pieces()])
    return Reply(data=data, status=start["status"], media_type=media_type, headers=headers)


class _HttpExchange:
    """Passes one request to the SDK's application."""

    def __init__(
        self,
        manager: StreamableHTTPSessionManager,
        method: str,
        context: RequestContext,
        body: bytes,
        headers: Mapping[str, str],
    ) -> None:
        self._messages = asyncio.Queue[Any]()
        self._left = asyncio.Event()
        self._body: bytes | None = body
        scope: Any = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": "/mcp",
            "raw_path": b"/mcp",
            "root_path": "",
            "query_string": b"",
            "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()],
            "server": None,
            "client": None,
            "user": _user(context),
            _CONTEXT: context,
        }
        self._task = asyncio.create_task(manager.handle_request(scope, self._receive, self._messages.put))
        self._task.add_done_callback(lambda _: self._messages.put_nowait(None))

    async def next(self) -> Any:
        """The next message of the application. Raises the application's errors."""
        message = await self._messages.get()
        if message is None:
            await self._task
            if self._left.is_set():
                raise ClientDisconnected
            raise Unavailable("MCP's transport gave no answer")
        return message

    async def pieces(self) -> AsyncGenerator[bytes]:
        try:
            while True:
                message = await self.next()
                if message.get("body"):
                    yield message["body"]
                if not message.get("more_body", False):
                    return
        finally:
            self.close()

    def close(self) -> None:
        self._left.set()

    async def _receive(self) -> Any:
        if self._body is not None:
            body = self._body
            self._body = None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}


def _user(context: RequestContext) -> AuthenticatedUser:
    """Sessions of older clients belong to the caller that opened them."""
    subject = context.identity.subject
    return AuthenticatedUser(AccessToken(token="", client_id=subject, scopes=[], subject=subject))


async def describe_resource(context: RequestContext) -> AnyReply:
    issuer = context.settings.auth.tokens.issuer
    if issuer is None:
        raise NotFound("This server accepts no tokens of an identity provider")

    path = "".join(f"/{name}" for name in ("mcp", *context.path.values()))
    metadata: JsonObject = {
        "resource": context.address.url(path),
        "authorization_servers": [issuer],
        "scopes_supported": list(SCOPES),
        "bearer_methods_supported": ["header"],
    }
    return Reply(value=metadata, headers={"cache-control": "public, max-age=3600"})


def _add_challenge(reply: Reply, scope: Scope, server: ServerState) -> None:
    if reply.status == HTTPStatus.UNAUTHORIZED and server.settings.auth.tokens.issuer is not None:
        address = address_of(scope).url(_METADATA + scope["path"])
        reply.headers["www-authenticate"] += f', resource_metadata="{address}"'


_ERRORS = (CallerError, TooLarge, Unavailable)


async def send_message(context: RequestContext) -> AnyReply:
    return await _answer("POST", context)


async def follow_messages(context: RequestContext) -> AnyReply:
    return await _answer("GET", context)


async def end_session(context: RequestContext) -> AnyReply:
    return await _answer("DELETE", context)


_METHODS: tuple[tuple[str, Handler, str, Any], ...] = (
    ("POST", send_message, "Send a message of the Model Context Protocol", bytes),
    ("GET", follow_messages, "Read what is sent outside of calls, as a stream", None),
    ("DELETE", end_session, "End a session of the Model Context Protocol", None),
)

_PATHS = (("/mcp", "all apps"), ("/mcp/{app_name}", "an app"))

ENDPOINTS = (
    *(
        Endpoint(method, path, handler, "MCP", "run", f"{summary}: {of}", body=body,
            replies=JsonObject, errors=_ERRORS, protocol_errors="application/json",
            adapt_error=_add_challenge)
        for path, of in _PATHS
        for method, handler, summary, body in _METHODS
    ),
    *(
        Endpoint("GET", _METADATA + path, describe_resource, "MCP", "open", f"Who issues tokens for {of}",
            replies=JsonObject, errors=(NotFound,))
        for path, of in _PATHS
    ),
)  # fmt: skip
