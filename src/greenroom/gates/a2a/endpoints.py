"""The table of endpoints. Messages of version 1.0, their tasks and all streams of that version are
read and written here; the SDK's dispatchers decode and encode the rest, and all errors."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache, partial
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import urlencode

import msgspec

from greenroom.a2a.well_known import AGENT_CARD_WELL_KNOWN_PATH
from greenroom.errors import (
    AppLoadError,
    AppNotFound,
    InvalidRequest,
    MissingExtra,
    NotFound,
    TooManyRuns,
    Unavailable,
    UnsupportedMediaType,
)
from greenroom.event_streams.stream import RunEnded
from greenroom.records import wire
from greenroom.records.base import JsonObject, JsonValue, as_object
from greenroom.server.access.identity import Access
from greenroom.server.endpoint import Endpoint, Handler, Query
from greenroom.server.replies import AnyReply, Reply, StreamReply
from greenroom.server.request_body import check_is_plain, decode_limited, other_media_type, read_body
from greenroom.server.request_context import RequestContext
from greenroom.server.server_state import ServerState
from greenroom.server.sse import KEEP_ALIVE

try:
    from a2a.server.context import ServerCallContext
    from a2a.server.request_handlers.response_helpers import agent_card_to_dict, build_error_response
    from a2a.server.routes.common import DefaultServerCallContextBuilder
    from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher
    from a2a.server.routes.rest_routes import create_rest_routes
    from a2a.utils.constants import A2A_JSON_MEDIA_TYPE, PROTOCOL_VERSION_1_0
    from a2a.utils.error_handlers import build_rest_error_payload
    from a2a.utils.errors import A2AError, InternalError, InvalidParamsError
    from sse_starlette.event import ensure_bytes  # pyright: ignore[reportUnknownVariableType]
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route
except ImportError:
    raise MissingExtra("a2a", "a2a-sdk") from None

from greenroom.gates.a2a import push
from greenroom.gates.a2a.card import CARD_SECONDS, card_of
from greenroom.gates.a2a.handler import CALL, A2aCall, RunHandler
from greenroom.gates.a2a.requests import MAX_INT32, SendCall, SendRequest

_APP = "/a2a/{app_name}"
_SEND = "/message:send"
_SEND_STREAM = "/message:stream"
_METHODS = ("SendMessage", "SendStreamingMessage", "SubscribeToTask")
_NUMBERS = ("historyLength", "pageSize")
_NUMBER = re.compile(r"[+-]?[0-9]{1,10}")

SdkEndpoint = Callable[[Request], Awaitable[Response]]
Wrap = Callable[[bytes], bytes]
"""Makes the JSON of a result that of a reply."""


class _HttpContextBuilder(DefaultServerCallContextBuilder):
    def build(self, request: Request) -> ServerCallContext:
        context = super().build(request)
        context.state[CALL] = request.scope[CALL]
        return context


async def _frames(first: bytes | AsyncIterator[Any], call: A2aCall, wrap: Wrap) -> AsyncGenerator[bytes]:
    """The first event, a frame or the SDK's, then the run's, a batch at a time."""
    if isinstance(first, bytes):
        yield first
    else:
        async for event in first:
            yield ensure_bytes(event, "\n")

    events = call.events
    is_over = not call.attachments
    while events is not None and not is_over:
        results: list[bytes] = []
        for item in await call.attachments[-1].next_batch(idle_seconds=call.context.settings.keep_alive_seconds):
            chunk = None if isinstance(item, RunEnded) else events.text_chunk(item.event)
            if chunk is not None:
                results.append(chunk)
                continue
            results += map(wire.encode, call.updates(item, events))
            is_over = is_over or call.is_last(item)
        yield b"".join([_frame(wrap(result)) for result in results]) or KEEP_ALIVE


def _frame(data: bytes) -> bytes:
    return b"data: %b\n\n" % data


@cache
def _json_rpc() -> SdkEndpoint:
    dispatcher = JsonRpcDispatcher(RunHandler(), context_builder=_HttpContextBuilder(), enable_v0_3_compat=True)
    return dispatcher.handle_requests


@cache
def _rest(method: str, path: str) -> SdkEndpoint:
    routes = create_rest_routes(RunHandler(), context_builder=_HttpContextBuilder(), enable_v0_3_compat=True)
    for route in routes:
        if isinstance(route, Route) and route.path == path and method in (route.methods or ()):
            return cast("SdkEndpoint", route.endpoint)
    raise LookupError(f"the SDK has no route {method} {path}")


async def send_json_rpc(context: RequestContext) -> AnyReply:
    return await _dispatch(context, "POST", "/", _json_rpc())


def _wrap_of(path: str, body: JsonValue) -> Wrap | None:
    """Returns how version 1.0 encodes a result that is written here; None for requests that are left to the SDK."""
    if path != "/":
        return None if path.startswith("/v1/") else bytes
    request = as_object(body)
    if request.get("method") not in _METHODS:
        return None
    start = wire.encode({"jsonrpc": "2.0", "id": request.get("id")}).removesuffix(b"}")
    return lambda result: b'%b,"result":%b}' % (start, result)


def _rest_handler(method: str, path: str) -> Handler:
    async def send_rest(context: RequestContext) -> AnyReply:
        return await _dispatch(context, method, path, _rest(method, path))

    send_rest.__name__ = "a2a_" + re.sub(r"\W+", "_", f"{path} {method}".lower()).strip("_")
    return send_rest


async def _dispatch(context: RequestContext, method: str, path: str, endpoint: SdkEndpoint) -> AnyReply:
    """Dispatches a call. Raises the errors that have an HTTP status: refused access, limits, a stopping server."""
    body, decoded = await _body(context) if method == "POST" else (b"", None)
    await context.apps.check_exists(context.path["app_name"])
    try:
        _check_numbers(context.query)
    except InvalidParamsError as error:
        return _rest_error(error)

    wrap = _wrap_of(path, decoded)
    call = A2aCall(context, card_of, is_followed=wrap is None)
    try:
        reply = await _send(call, path, decoded, wrap) if wrap is not None else None
        if reply is not None:
            return reply
        response = await endpoint(_sdk_request(call, method, path, body))
    except BaseException:
        call.close()
        raise

    source = getattr(response, "body_iterator", None)
    if source is None:
        call.close()
        if call.refused is not None:
            raise call.refused
        media_type = response.headers.get("content-type", "application/json")
        return Reply(data=bytes(response.body), status=response.status_code, media_type=media_type)

    if wrap is not None:
        return StreamReply(
            pieces=_frames(source, call, wrap),
            close=call.close,
            when_server_stops=partial(_stopping, path, decoded),
            media_type="text/event-stream",
        )

    try:
        first = await anext(source, None)
    except A2AError as error:  # before anything was sent, so that the reply can have its status
        call.close()
        if call.refused is not None:
            raise call.refused from None
        return _rest_error(error)
    except BaseException:
        call.close()
        raise

    pieces = _pieces(first, source, idle_seconds=context.settings.keep_alive_seconds)
    return StreamReply(
        pieces=pieces,
        close=call.close,
        when_server_stops=partial(_stopping, path, decoded),
        media_type="text/event-stream",
    )


def _stopping(path: str, body: JsonValue) -> bytes:
    """The last frame of a stream whose server stops, as the SDK's servers write errors."""
    error = InternalError(message="The server is stopping; subscribe to the task again")
    payload = build_rest_error_payload(error)
    if path == "/":
        payload = build_error_response(as_object(body).get("id"), error)
    return b"event: error\n" + _frame(wire.encode(payload))


def _check_numbers(query: Mapping[str, JsonValue]) -> None:
    """Raises InvalidParamsError for values that the SDK fails to read as numbers."""
    for name in _NUMBERS:
        value = query.get(name)
        if value is not None and (not _NUMBER.fullmatch(str(value)) or abs(int(str(value))) > MAX_INT32):
            raise InvalidParamsError(message=f"{name} must be a whole number of 32 bits, not {value!r}")


def _rest_error(error: A2AError) -> Reply:
    payload = build_rest_error_payload(error)
    return Reply(value=payload, status=int(payload["error"]["code"]))


async def _send(call: A2aCall, path: str, body: JsonValue, wrap: Wrap) -> AnyReply | None:
    """Sends a message without the SDK. None for other requests, and for errors, which the SDK encodes."""
    if call.context.headers.get("a2a-version") != PROTOCOL_VERSION_1_0:
        return None

    is_json_rpc = path == "/"
    try:
        if is_json_rpc:
            call_body = msgspec.convert(body, SendCall)
            request = call_body.params
            is_stream = call_body.method == "SendStreamingMessage"
        elif path in (_SEND, _SEND_STREAM):
            request = msgspec.convert(body, SendRequest)
            is_stream = path == _SEND_STREAM
        else:
            return None
    except msgspec.ValidationError:
        return None

    try:
        if is_stream:
            sent = {"task": await call.send_stream(request)}
        else:
            sent = await call.send(request)
    except A2AError as error:
        if call.refused is not None:
            raise call.refused from None
        call.failed = error
        return None

    result = wrap(wire.encode(sent))
    if is_stream:
        pieces = _frames(_frame(result), call, wrap)
        return StreamReply(
            pieces=pieces,
            close=call.close,
            when_server_stops=partial(_stopping, path, body),
            media_type="text/event-stream",
        )

    call.close()
    return Reply(data=result, media_type="application/json" if is_json_rpc else A2A_JSON_MEDIA_TYPE)


def _sdk_request(call: A2aCall, method: str, path: str, body: bytes) -> Request:
    context = call.context
    query = {name: value for name, value in context.query.items() if value is not None}
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in context.headers.items()],
        "query_string": urlencode(query).encode(),
        "path_params": dict(context.path),
        CALL: call,
    }

    async def receive() -> JsonObject:
        return {"type": "http.request", "body": body, "more_body": False}

    return Request(scope, receive)


async def _body(context: RequestContext) -> tuple[bytes, JsonValue]:
    """The body within the server's limits, also decoded; JSON that is none is left to the SDK,
    which has an error for it."""
    data = await read_body(context.receive, context.headers, limit_bytes=context.settings.max_body_bytes)
    check_is_plain(context.headers)
    other = other_media_type(context.headers)
    if other:
        raise UnsupportedMediaType(f"The body must be application/json or {A2A_JSON_MEDIA_TYPE}, not {other}")
    try:
        return data, decode_limited(data, msgspec.json.decode, context.settings.limits)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return data, None


async def _pieces(first: object, source: AsyncIterator[Any], *, idle_seconds: float | None) -> AsyncGenerator[bytes]:
    """Server-Sent Events, with comments where nothing was sent for a while. first: read from the
    source; None at its end."""
    pending: asyncio.Task[Any] | None = None
    try:
        if first is None:
            return

        yield ensure_bytes(first, "\n")
        while True:
            if pending is None:
                pending = asyncio.ensure_future(cast("Awaitable[Any]", anext(source, None)))
            done, _ = await asyncio.wait([pending], timeout=idle_seconds)
            if not done:
                yield KEEP_ALIVE
                continue
            event = pending.result()
            pending = None
            if event is None:
                return
            yield ensure_bytes(event, "\n")
    finally:
        if pending is not None:
            pending.cancel()
            await asyncio.wait([pending])
        close = getattr(source, "aclose", None)
        if close is not None:
            await close()


async def get_card(context: RequestContext) -> AnyReply:
    """The card, which clients may keep for as long as the server does, and then check by its tag."""
    card = wire.encode(agent_card_to_dict(await card_of(context)))
    tag = f'"{hashlib.sha256(card).hexdigest()[:32]}"'
    audience = "private" if context.settings.auth.is_on else "public"
    headers = {"etag": tag, "cache-control": f"{audience}, max-age={CARD_SECONDS:.0f}"}
    known = [entry.strip().removeprefix("W/") for entry in context.headers.get("if-none-match", "").split(",")]
    if tag in known or "*" in known:
        return Reply(data=b"", status=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Reply(data=card, headers=headers)


_ERRORS = (AppNotFound, AppLoadError, InvalidRequest, UnsupportedMediaType, TooManyRuns, Unavailable)
_HISTORY = Query("historyLength", str, "How many messages of the task's history, the newest; all by default.")


def _route(
    method: str, path: str, access: Access, summary: str, *, query: tuple[Query, ...] = (), is_stream: bool = False,
    v0_3: str | None = None,
) -> list[Endpoint]:  # fmt: skip
    """The endpoint of version 1.0 and, if it has the same meaning there, that of version 0.3."""
    endpoints: list[Endpoint] = []
    for prefix in ("", "/v1") if v0_3 is None else ("",):
        handler = _rest_handler(method, prefix + path)
        endpoints.append(
            Endpoint(method, _APP + prefix + path, handler, "A2A", access, summary, query=query,
                body=bytes if method == "POST" else None, replies=JsonObject, is_stream=is_stream, errors=_ERRORS,
                protocol_errors="application/json")
        )  # fmt: skip
    return endpoints


@asynccontextmanager
async def lifespan(server: ServerState) -> AsyncGenerator[None]:
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(push.sending(server))
        if server.settings.a2a_grpc is not None:
            from greenroom.gates.a2a import grpc

            await stack.enter_async_context(grpc.serving(server, server.settings.a2a_grpc))
        yield


ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint("GET", _APP + AGENT_CARD_WELL_KNOWN_PATH, get_card, "A2A", "read", "The agent card of an app",
        replies=JsonObject, errors=(AppNotFound, AppLoadError), aliases=(_APP + "/.well-known/agent.json",)),
    Endpoint("GET", "/.well-known/jwks.json", push.get_keys, "A2A", "open", "The keys that sign push notifications",
        replies=JsonObject, errors=(NotFound,)),
    Endpoint("POST", _APP, send_json_rpc, "A2A", "run", "A2A's methods by JSON-RPC, versions 1.0 and 0.3", body=bytes,
        replies=JsonObject, errors=_ERRORS, protocol_errors="application/json", aliases=(_APP + "/",)),
    *_route("POST", _SEND, "run", "Send a message, and wait for its task"),
    *_route("POST", _SEND_STREAM, "run", "Send a message, and stream its task", is_stream=True),
    *_route("POST", "/tasks/{id}:cancel", "run", "Cancel a task"),
    *_route("GET", "/tasks/{id}:subscribe", "read", "Stream a task that works", is_stream=True),
    *_route("POST", "/tasks/{id}:subscribe", "run", "Stream a task that works", is_stream=True),
    *_route("GET", "/tasks/{id}", "read", "A task", query=(_HISTORY,)),
    *_route("GET", "/tasks", "read", "Tasks, newest first", v0_3="none", query=(
        _HISTORY,
        Query("contextId", str, "Only tasks of this context."),
        Query("status", str, "Only tasks in this state, such as `TASK_STATE_WORKING`."),
        Query("statusTimestampAfter", str, "Only tasks whose status is as new as this time (RFC 3339)."),
        Query("pageSize", str, "Tasks of a page, 1 to 100; 50 by default."),
        Query("pageToken", str, "`nextPageToken` of the previous page."),
        Query("includeArtifacts", str, "`true`: with artifacts."),
    )),
    *_route("POST", "/tasks/{id}/pushNotificationConfigs", "run", "Send a task's states to a webhook"),
    *_route("GET", "/tasks/{id}/pushNotificationConfigs", "read", "The webhooks of a task"),
    *_route("GET", "/tasks/{id}/pushNotificationConfigs/{push_id}", "read", "A webhook of a task"),
    *_route("DELETE", "/tasks/{id}/pushNotificationConfigs/{push_id}", "run", "Delete a webhook of a task",
        v0_3="none"),
    *_route("GET", "/extendedAgentCard", "read", "The card, with authentication", v0_3="none"),
    Endpoint("GET", _APP + "/v1/card", _rest_handler("GET", "/v1/card"), "A2A", "read",
        "The card, with authentication", replies=JsonObject, errors=_ERRORS, protocol_errors="application/json"),
)  # fmt: skip
