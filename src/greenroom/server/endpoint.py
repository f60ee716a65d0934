"""The description of an endpoint, and the ASGI application that serves it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import cached_property, partial
from http import HTTPStatus
from types import NoneType
from typing import Any, TypeAlias, get_args, get_origin
from urllib.parse import parse_qsl, quote, unquote

import msgspec
from starlette.types import Receive, Scope, Send

from greenroom.errors import (
    Forbidden,
    GreenroomError,
    InvalidRequest,
    OwnershipLost,
    SessionNotFound,
    TooLarge,
    TooManyRequests,
    Unauthenticated,
    Unavailable,
    UnsupportedEncoding,
)
from greenroom.records import wire
from greenroom.records.audit import AuditAction
from greenroom.records.event import Event
from greenroom.server.access.audit import RequestAudit
from greenroom.server.access.identity import EVERYBODY, Access
from greenroom.server.access.revocation import close_when_revoked
from greenroom.server.addresses import address_of
from greenroom.server.exchange import CONTINUATION, EXCHANGE, FINAL_FRAMES, Exchange
from greenroom.server.replies import AnyReply, Reply, StreamReply, error_reply, raw_headers, status_reply
from greenroom.server.request_body import (
    ClientDisconnected,
    check_is_json,
    check_is_plain,
    decode_limited,
    read_body,
    wait_for_disconnect,
)
from greenroom.server.request_context import RequestContext, decode_headers
from greenroom.server.server_state import ServerState

_log = logging.getLogger("greenroom.server")

Handler: TypeAlias = Callable[[RequestContext], Awaitable[AnyReply | None]]
"""One that returns None is answered with `null`."""

MAX_ID_BYTES = 1024


@dataclass(frozen=True)
class Query:
    """A query parameter."""

    name: str
    type: Any
    """Any type that msgspec converts a string to, or a list of such a type for a parameter that may
    be repeated."""
    description: str
    _: KW_ONLY
    default: Any = None

    @cached_property
    def is_repeatable(self) -> bool:
        return get_origin(self.type) is list


@dataclass(frozen=True)
class Header:
    """A request header, for the OpenAPI document."""

    name: str
    description: str
    _: KW_ONLY
    pattern: str | None = None
    """Regular expression of the value."""
    is_required: bool = False


@dataclass(frozen=True)
class Endpoint:
    """An HTTP endpoint."""

    method: str
    path: str
    """`{name}` is one segment, in which slashes are encoded; `{name:path}` may contain slashes."""
    handler: Handler
    tag: str
    access: Access
    summary: str
    _: KW_ONLY
    body: Any = None
    """The body's type, bytes if the handler reads it, or None. With `| None`, an empty body becomes
    None."""
    query: tuple[Query, ...] = ()
    headers: tuple[Header, ...] = ()
    replies: Any = None
    """Type of a successful response, for the OpenAPI document."""
    media_type: str = "application/json"
    """Media type of a successful response, for the OpenAPI document."""
    status: int = 200
    errors: tuple[type[GreenroomError], ...] = ()
    protocol_errors: str | None = None
    """Media type of errors in the form of the endpoint's own protocol. Others are problem documents."""
    aliases: tuple[str, ...] = ()
    """Other paths of the endpoint."""
    is_stream: bool = False
    """Whether the reply is always a stream; `replies` is then the type of one event's data."""
    streams: Any = None
    """Type of the data of events, for endpoints that also answer with a stream."""
    takes_any_method: bool = False
    audit: AuditAction | None = None
    """Recorded in the audit trail when the handler has succeeded, where no service that it uses records what it does.
    Refusals, and reads of other users' data, are recorded for all endpoints."""
    adapt_error: Callable[[Reply, Scope, ServerState], None] | None = None
    """Adds a protocol's own fields to an error's document, or headers, given the request and the
    server."""

    @cached_property
    def all_errors(self) -> tuple[type[GreenroomError], ...]:
        """`errors`, and the errors of authentication and of decoding the request."""
        errors = dict.fromkeys(self.errors)
        if self.access != "open":
            errors |= dict.fromkeys((Unauthenticated, Forbidden, TooManyRequests))
        if "{" in self.path or self.query or self.headers or self.body is not None:
            errors[InvalidRequest] = None
        if self.body is not None:
            errors |= dict.fromkeys((TooLarge, UnsupportedEncoding))
        return tuple(errors)

    @cached_property
    def takes_key(self) -> bool:
        """True if requests with one `Idempotency-Key` have one effect."""
        return any(header.name == "Idempotency-Key" for header in self.headers)

    @cached_property
    def streams_log(self) -> bool:
        """True if its streams have the sequence numbers of events as ids."""
        return self.streams is Event or (self.is_stream and self.replies is Event)

    @cached_property
    def body_is_optional(self) -> bool:
        return NoneType in get_args(self.body)

    @cached_property
    def decode_body(self) -> Callable[[bytes], Any]:
        return wire.client_decoder(self.body)


class EndpointApp:
    """The ASGI application of one endpoint: decodes the request, calls the handler, sends the reply or an error."""

    def __init__(self, endpoint: Endpoint, server: ServerState) -> None:
        self._endpoint = endpoint
        self._server = server
        self._query = {query.name: query for query in endpoint.query}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            reply = await self.answer(scope, receive)
        except ClientDisconnected:
            return
        except GreenroomError as error:
            if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR and not isinstance(error, OwnershipLost):
                _log.warning("%s %s: %s: %s", scope["method"], scope["path"], error.code, error.detail)
            reply = error_reply(error)
        except asyncio.CancelledError:  # requests are cancelled only when the server stops
            reply = error_reply(Unavailable("The server is stopping"))
        except Exception:  # a bug, here or in a user's loader or store: the details go to the log only
            _log.exception("%s %s failed", scope["method"], scope["path"])
            reply = status_reply(HTTPStatus.INTERNAL_SERVER_ERROR)

        if isinstance(reply, Reply):
            if reply.status >= HTTPStatus.BAD_REQUEST and self._endpoint.adapt_error is not None:
                self._endpoint.adapt_error(reply, scope, self._server)
            await send_reply(reply, send, with_body=scope["method"] != "HEAD")
        elif not isinstance(reply, StreamReply):
            raise TypeError(f"{scope['path']} replied with a WebSocket to an HTTP request")
        elif scope["method"] == "HEAD":
            reply.close()
            await send_reply(Reply(data=b"", media_type=reply.media_type, headers=reply.headers), send)
        else:
            exchange: Exchange | None = scope.get(EXCHANGE)
            is_continued = False
            if exchange is not None and exchange.is_forwarded:
                is_continued = self._endpoint.streams_log or reply.continuation is not None
                if not self._endpoint.streams_log:
                    _name_end(reply)
            registered = self._server.endless_streams.writing() if reply.is_endless else contextlib.nullcontext()
            await _send_stream(reply, receive, send, registered=registered, is_continued=is_continued)

    async def answer(self, scope: Scope, receive: Receive) -> AnyReply:
        """The reply of the handler, once the audit trail, if there is one, has its entries of the request."""
        if self._server.audit is None:
            return await self._answer(scope, receive)
        return await self._server.audit.watch(scope, self._answer(scope, receive))

    async def _answer(self, scope: Scope, receive: Receive) -> AnyReply:
        endpoint = self._endpoint
        server = self._server
        authenticator = server.authenticator
        if authenticator is None and server.rate is None:
            identity = EVERYBODY
        else:
            identity = await server.admit(scope, endpoint.access)

        headers = decode_headers(scope)
        path = {name: _segment(name, value) for name, value in scope["path_params"].items()}
        if path.get("app_name") == "":  # the path names none
            path["app_name"] = await server.default_app_for(identity)
        if authenticator is not None and "app_name" in path and endpoint.access != "open":
            identity.check_reach(path["app_name"], path.get("user_id", identity.subject))

        body: Any = None
        if endpoint.body not in (None, bytes):
            body = await self._read_body(receive, headers)

        query: Mapping[str, Any] = self._decode_query(scope["query_string"]) if endpoint.query else {}
        exchange: Exchange | None = scope.get(EXCHANGE)
        if exchange is not None:
            exchange.takes_key = endpoint.takes_key
            exchange.streams_log = endpoint.streams_log
            if endpoint.method == "PUT" and endpoint.body is bytes:
                exchange.keeps_body = False  # an upload of any size
        audit = RequestAudit.of_current() if server.audit is not None else None
        if audit is not None:
            audit.note_action(endpoint.audit)
        context = RequestContext(
            server=server,
            identity=identity,
            access=endpoint.access,
            path=path,
            query=query,
            headers=headers,
            body=body,
            receive=receive,
            find_address=partial(address_of, scope),
            exchange=exchange,
            audit=audit,
        )
        reply = await endpoint.handler(context) or Reply()
        if authenticator is None:
            return reply
        return close_when_revoked(reply, authenticator, identity)

    async def _read_body(self, receive: Receive, headers: Mapping[str, str]) -> Any:
        """Reads and decodes a JSON body; None for an empty one that is optional."""
        settings = self._server.settings
        data = await read_body(receive, headers, limit_bytes=settings.max_body_bytes)
        if not data and self._endpoint.body_is_optional:
            return None

        try:
            check_is_json(headers)
            return decode_limited(data, self._endpoint.decode_body, settings.limits)
        except InvalidRequest:
            check_is_plain(headers)
            raise

    def _decode_query(self, query_string: bytes) -> Mapping[str, Any]:
        values: dict[str, list[str]] = {}
        for name, value in parse_qsl(query_string.decode("latin-1"), keep_blank_values=True):
            values.setdefault(name, []).append(value)

        out: dict[str, Any] = {}
        for name, query in self._query.items():
            if name not in values:
                out[name] = query.default
                continue
            try:
                value = values[name] if query.is_repeatable else values[name][-1]
                out[name] = msgspec.convert(value, query.type, strict=False)
            except msgspec.ValidationError as error:
                raise InvalidRequest(f"{name}: {error}", location=("query", name), kind="type_error") from None

        return out


def _segment(name: str, raw: str) -> str:
    value = unquote(raw, errors="replace")
    if "\x00" in value or len(value.encode()) > MAX_ID_BYTES:
        raise InvalidRequest(
            f"{name} must be at most {MAX_ID_BYTES} bytes long and contain no NUL", location=("path", name)
        )
    return value


async def send_reply(reply: Reply, send: Send, *, with_body: bool = True, message: str = "http.response") -> None:
    """Sends a reply in one piece.

    message: prefix of the types of the ASGI messages.
    """
    data = reply.data if reply.data is not None else wire.encode(reply.value)
    headers = [
        (b"content-type", reply.media_type.encode()),
        (b"content-length", b"%d" % len(data)),
        *raw_headers(reply.headers),
    ]
    await send({"type": f"{message}.start", "status": reply.status, "headers": headers})
    await send({"type": f"{message}.body", "body": data if with_body else b""})


def _name_end(reply: StreamReply) -> None:
    """Tells the server that has forwarded the request how to continue or to end the stream if this server ends."""
    if reply.continuation is not None:
        reply.headers[CONTINUATION.decode()] = reply.continuation
    if reply.when_server_stops is not None:
        reply.headers[FINAL_FRAMES.decode()] = quote(reply.when_server_stops())


async def _send_stream(
    reply: StreamReply,
    receive: Receive,
    send: Send,
    *,
    registered: contextlib.AbstractContextManager[None],
    is_continued: bool,
) -> None:
    """registered: entered while pieces are written. is_continued: the server that has forwarded the request continues
    the stream when this one stops or has lost the session, so the body stays incomplete."""
    headers = [
        (b"content-type", reply.media_type.encode()),
        (b"cache-control", b"no-cache"),
        (b"x-accel-buffering", b"no"),
        *raw_headers(reply.headers),
    ]
    writer = asyncio.current_task()
    assert writer is not None
    is_disconnected = False

    def on_disconnect(_: object) -> None:
        nonlocal is_disconnected
        is_disconnected = True
        writer.cancel()

    listener = asyncio.get_running_loop().create_task(wait_for_disconnect(receive))
    listener.add_done_callback(on_disconnect)

    try:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async with contextlib.aclosing(reply.pieces) as pieces:
            with registered:
                async for piece in pieces:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    except asyncio.CancelledError:
        writer.uncancel()
        if is_continued and not is_disconnected:
            return
        if not is_disconnected:
            await _send_last(reply, send)
        elif reply.when_client_leaves is not None:
            reply.when_client_leaves()
    except OwnershipLost as error:
        _log.info("a stream was ended: %s", error.detail)
        if not is_continued:
            await _send_last(reply, send)
    except (Unauthenticated, SessionNotFound) as error:
        # The body stays incomplete; a reconnect gets the 401 or 404.
        _log.info("a stream was ended: %s", error.detail)
    except Exception:  # the status was sent already; the client sees an incomplete body
        _log.exception("a stream failed")
    finally:
        listener.remove_done_callback(on_disconnect)
        listener.cancel()
        reply.close()


async def _send_last(reply: StreamReply, send: Send) -> None:
    """Ends a stream before its run. One that has no words for that stays incomplete, as if the connection was lost."""
    if reply.when_server_stops is not None:
        await send({"type": "http.response.body", "body": reply.when_server_stops()})
