"""Forwards requests for sessions that another server of the same store runs, so that any server answers any request.

A request is first handled here, as on a server that is alone. If the store's ownership refuses it, and nothing of the
response was sent, it is sent to the owner as it came, with the caller's credentials, and the response is streamed back:

    client → server 1: POST /run_sse                       server 1 doesn't own the session: nothing is stored or sent
             server 1 → server 2: POST /run_sse            with `greenroom-forwarded: id=1&token=…&client=…`
             server 1 ← server 2: 200, id: 3, id: 4        passed on as it arrives
             server 2 is killed; server 3 takes its shards, and resumes the run
             server 1 → server 3: POST /run_sse            with the same idempotency key: attaches to the run
             server 1 ← server 3: id: 3, id: 4, id: 5      of which only 5 is passed on
    client ← server 1: 200, id: 3, id: 4, id: 5

The owner checks the credentials itself; the header only says where the request came from. It is ignored unless its
token is that of a row of the table of replicas. A server never forwards such a request again: if it isn't the owner
either, it answers 503 with the header `greenroom-refused`, and the first server looks the owner up again.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import time
from collections.abc import AsyncGenerator
from http import HTTPStatus
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import parse_qsl, urlencode
from uuid import uuid4

from starlette.types import ASGIApp, Receive, Scope, Send

from greenroom.errors import GreenroomError, MissingExtra, OwnershipLost, Unavailable
from greenroom.records.session import SessionKey
from greenroom.runs.ownership import Replica, Replicas
from greenroom.server.endpoint import send_reply
from greenroom.server.exchange import EXCHANGE, IS_FORWARDED, Exchange
from greenroom.server.log_progress import LogProgress
from greenroom.server.replies import Reply, error_reply
from greenroom.server.request_body import wait_for_disconnect
from greenroom.server.websocket import MAX_FRAME_BYTES
from greenroom.server.websocket_endpoint import TRY_LATER, refuse

if TYPE_CHECKING:
    import httpx
    from websockets.asyncio.client import ClientConnection

_log = logging.getLogger("greenroom.server")

_FORWARDED = b"greenroom-forwarded"
_REFUSED = "greenroom-refused"
_IDEMPOTENCY_KEY = b"idempotency-key"

_OF_CONNECTION = frozenset(
    (b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"expect", b"proxy-connection")
)
"""Headers that concern one connection only. Source: RFC 9110, 7.6.1."""

_OF_HANDSHAKE = (b"sec-websocket-", b"host")

_OWNERS_SECONDS = 1.0
"""Age of the table of owners at which it is read again, for new requests and for those that wait for a response."""

_PAUSE_SECONDS = 0.05
_WORKING_SECONDS = 1.0
"""An owner that ends after this time has worked on the request: the time to find the next one begins again."""

_CONNECT_SECONDS = 2.0
_IDLE_CONNECTION_SECONDS = 30.0
_RESTARTING = 1012
"""Close code of a WebSocket whose server has ended. Source: IANA's registry of RFC 6455."""


class _Call(NamedTuple):
    """A request to forward."""

    scope: Scope
    """As the ASGI server made it, before its path and its client were found."""

    body: bytes
    headers: list[tuple[bytes, bytes]]
    is_repeatable: bool
    """Whether it has one effect, however often it is sent."""

    progress: LogProgress | None
    """For a stream that can be continued, what was passed on of it."""


class _Refused(Exception):
    """The other server doesn't own the session, and has done nothing."""

    def __init__(self, key: SessionKey) -> None:
        self.key = key
        """The session that it doesn't own; another one than it was asked for in requests for many sessions."""


class _Stopping(Exception):
    """The other server can't answer for a moment."""


class Forwarder:
    """An ASGI application around that of a server that shares its store with others."""

    def __init__(self, app: ASGIApp, replicas: Replicas, *, grace_seconds: float) -> None:
        """app: the server's own. grace_seconds: that a server that stops gives its runs. Raises MissingExtra."""
        if find_spec("httpx") is None:
            raise MissingExtra("postgres", "httpx")

        self._app = app
        self._replicas = replicas
        self._wait_seconds = replicas.takeover_seconds + grace_seconds
        self._transport: httpx.AsyncHTTPTransport | None = None
        self._waiting: dict[asyncio.Timeout, tuple[SessionKey, str]] = {}
        """Of each response that is read, the session and the id of the server that owned it."""

        self._watching: asyncio.Task[None] | None = None

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
        if self._transport is not None:
            await self._transport.aclose()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        original = await self._original(scope)
        is_forwarded = original is not scope
        exchange = Exchange(receive, send, keeps_body=not is_forwarded and scope.get("method") != "PUT")
        handled = {**original, EXCHANGE: exchange}
        if is_forwarded:
            handled[IS_FORWARDED] = True
        await self._app(handled, exchange.receive, exchange.send)

        if exchange.lost is None or exchange.has_begun:
            return
        if is_forwarded:
            await _refuse(exchange.lost, scope, send)
        elif scope["type"] == "websocket":
            await self._forward_socket(scope, exchange, send)
        else:
            await self._forward(scope, exchange, send)

    async def _opened_transport(self) -> httpx.AsyncHTTPTransport:
        if self._transport is not None:
            return self._transport

        await asyncio.to_thread(import_module, "httpx")  # takes as long as some hundred requests
        if self._transport is None:
            import httpx

            # The transport alone: a client would keep cookies of one caller, follow redirects, and decompress.
            limits = httpx.Limits(max_keepalive_connections=100, keepalive_expiry=_IDLE_CONNECTION_SECONDS)
            self._transport = httpx.AsyncHTTPTransport(limits=limits, trust_env=False)
        return self._transport

    async def _original(self, scope: Scope) -> Scope:
        """The scope itself; for a request that another server has forwarded, that of the client's own request."""
        value = next((value for name, value in scope["headers"] if name == _FORWARDED), None)
        if value is None:
            return scope

        given = dict(parse_qsl(value.decode("latin-1"), keep_blank_values=True))
        try:
            sender = await self._replicas.find(given.get("id", ""))
        except GreenroomError:
            sender = None
        if sender is None or not hmac.compare_digest(sender.token.encode(), given.get("token", "").encode()):
            return scope

        headers = [(name, value) for name, value in scope["headers"] if name not in (_FORWARDED, b"host")]
        if "host" in given:
            headers.append((b"host", given["host"].encode("latin-1")))
        client = (given["client"], 0) if "client" in given else None
        return {**scope, "headers": headers, "client": client, "scheme": given.get("scheme", scope["scheme"])}

    async def _stamp(self, scope: Scope) -> tuple[bytes, bytes]:
        """The header that says where a request came from."""
        own = await self._replicas.find(self._replicas.own_id)
        stamp = {"id": self._replicas.own_id, "token": own.token if own is not None else "", "scheme": scope["scheme"]}
        if scope.get("client"):
            stamp["client"] = scope["client"][0]
        host = next((value for name, value in scope["headers"] if name == b"host"), None)
        if host is not None:
            stamp["host"] = host.decode("latin-1")
        return _FORWARDED, urlencode(stamp).encode()

    # HTTP

    async def _forward(self, scope: Scope, exchange: Exchange, send: Send) -> None:
        assert exchange.lost is not None
        if not exchange.keeps_body:
            await send_reply(error_reply(exchange.lost), send)
            return
        body = await exchange.whole_body()
        if body is None:
            return

        call = await self._call_of(scope, exchange, body)
        relay = _Relay(send)
        answering = asyncio.create_task(self._answer(call, key_of(exchange.lost), relay))
        leaving = asyncio.create_task(wait_for_disconnect(exchange.receive))
        try:
            await asyncio.wait((answering, leaving), return_when=asyncio.FIRST_COMPLETED)
            if answering.done():
                await answering
        except GreenroomError as error:
            _log.warning("%s %s: %s: %s", scope["method"], scope["path"], error.code, error.detail)
            if not relay.has_begun:
                await send_reply(error_reply(error), send)
        except asyncio.CancelledError:  # requests are cancelled only when the server stops
            if not relay.has_begun:
                await send_reply(error_reply(Unavailable("The server is stopping")), send)
        finally:
            answering.cancel()
            leaving.cancel()
            await asyncio.wait((answering, leaving))

    async def _call_of(self, scope: Scope, exchange: Exchange, body: bytes) -> _Call:
        headers = [
            (name, value)
            for name, value in scope["headers"]
            if name not in _OF_CONNECTION and name not in (_FORWARDED, b"content-length")
        ]
        if body:
            headers.append((b"content-length", b"%d" % len(body)))
        headers.append(await self._stamp(scope))

        has_key = any(name == _IDEMPOTENCY_KEY and value for name, value in headers)
        if exchange.takes_key and not has_key:
            headers.append((_IDEMPOTENCY_KEY, b"forwarded-%b" % uuid4().hex.encode()))
        is_repeatable = exchange.takes_key or scope["method"] in ("GET", "HEAD", "PUT", "DELETE")
        progress = LogProgress() if exchange.streams_log else None
        return _Call(scope, body, headers, is_repeatable, progress)

    async def _answer(self, call: _Call, key: SessionKey, relay: _Relay) -> None:
        """Asks owners until one has answered. Raises OwnershipLost, Unavailable, StorageError."""
        max_age = _OWNERS_SECONDS
        async for _ in self._attempts(relay):
            owner = await self._replicas.owner_of(key, max_age_seconds=max_age)
            max_age = 0.0
            if owner is None:
                continue
            asked_at = time.monotonic()
            try:
                await self._ask(owner, key, call, relay)
                return
            except _Refused as refused:
                relay.is_progressing = refused.key != key
                key = refused.key
            except _Stopping:
                pass
            except Exception as error:
                if not self._may_ask_again(error, call, relay):
                    raise Unavailable("The server that runs the session ended before it has answered") from error
            if time.monotonic() > asked_at + _WORKING_SECONDS:
                relay.is_progressing = True
        raise OwnershipLost(*key)

    async def _attempts(self, relay: _Relay) -> AsyncGenerator[None]:
        """One after the other, until none has achieved anything for the time in which a session gets an owner."""
        give_up_at = time.monotonic() + self._wait_seconds
        while time.monotonic() < give_up_at:
            yield
            if relay.is_progressing:
                relay.is_progressing = False
                give_up_at = time.monotonic() + self._wait_seconds
            else:
                await asyncio.sleep(_PAUSE_SECONDS)

    def _may_ask_again(self, error: Exception, call: _Call, relay: _Relay) -> bool:
        import httpx

        if isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout)):
            return True
        if not isinstance(error, (httpx.TransportError, TimeoutError)) or not call.is_repeatable:
            return False
        return not relay.has_begun or call.progress is not None

    async def _ask(self, owner: Replica, key: SessionKey, call: _Call, relay: _Relay) -> None:
        """Sends the request to a server, and passes its response on. Raises httpx's errors, TimeoutError when another
        server takes the session over, _Refused and _Stopping."""
        transport = await self._opened_transport()
        async with self._while_owned(key, owner):
            request = _request_to(owner, call)
            response = await transport.handle_async_request(request)
            try:
                if _REFUSED in response.headers:
                    raise _Refused(_decoded_key(response.headers[_REFUSED]))
                if response.status_code == HTTPStatus.SERVICE_UNAVAILABLE and call.is_repeatable:
                    raise _Stopping
                if relay.has_begun and response.status_code != HTTPStatus.OK:
                    raise Unavailable("The stream can't be continued")

                await relay.pass_on(
                    response.status_code, response.headers.raw, cast("httpx.AsyncByteStream", response.stream), call
                )
            finally:
                await response.aclose()

    @contextlib.asynccontextmanager
    async def _while_owned(self, key: SessionKey, owner: Replica) -> AsyncGenerator[None]:
        """Raises TimeoutError when another server has taken the session over: the owner may be paused, or cut off."""
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch())
        async with asyncio.timeout(None) as deadline:
            self._waiting[deadline] = key, owner.id
            try:
                yield
            finally:
                del self._waiting[deadline]

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_OWNERS_SECONDS)
            for deadline, (key, owner_id) in list(self._waiting.items()):
                try:
                    owner = await self._replicas.owner_of(key, max_age_seconds=_OWNERS_SECONDS)
                except GreenroomError:  # the database is away; nobody can take anything over
                    break
                if deadline in self._waiting and owner is not None and owner.id != owner_id:
                    deadline.reschedule(asyncio.get_running_loop().time())

    # WebSockets

    async def _forward_socket(self, scope: Scope, exchange: Exchange, send: Send) -> None:
        assert exchange.lost is not None
        relay = _Relay(send)
        try:
            upstream = await self._open_socket(scope, key_of(exchange.lost), relay)
        except GreenroomError as error:
            _log.warning("%s: %s: %s", scope["path"], error.code, error.detail)
            await send({"type": "websocket.accept", "subprotocol": None, "headers": []})
            await send({"type": "websocket.close", "code": TRY_LATER, "reason": error.detail[:100]})
            return
        if isinstance(upstream, Reply):
            await refuse(upstream, scope, send)
            return

        assert upstream.response is not None
        headers = [
            (name.lower().encode(), value.encode("latin-1"))
            for name, value in upstream.response.headers.raw_items()
            if name.lower().startswith("x-")
        ]
        async with contextlib.aclosing(_Closing(upstream)):
            await send({"type": "websocket.accept", "subprotocol": upstream.subprotocol, "headers": headers})
            sending = asyncio.create_task(_to_owner(exchange.receive, upstream))
            receiving = asyncio.create_task(_to_client(upstream, send))
            try:
                await asyncio.wait((sending, receiving), return_when=asyncio.FIRST_COMPLETED)
            finally:
                sending.cancel()
                receiving.cancel()
                await asyncio.gather(sending, receiving, return_exceptions=True)

    async def _open_socket(self, scope: Scope, key: SessionKey, relay: _Relay) -> ClientConnection | Reply:
        """The connection to the owner, or the response with which it has refused the handshake."""
        from websockets.asyncio.client import connect
        from websockets.exceptions import InvalidStatus, WebSocketException

        stamp = await self._stamp(scope)
        headers = [
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in scope["headers"]
            if name not in _OF_CONNECTION and not name.startswith(_OF_HANDSHAKE) and name != _FORWARDED
        ]
        headers.append((stamp[0].decode(), stamp[1].decode()))
        target = _target(scope).decode("latin-1")
        max_age = _OWNERS_SECONDS
        async for _ in self._attempts(relay):
            owner = await self._replicas.owner_of(key, max_age_seconds=max_age)
            max_age = 0.0
            if owner is None:
                continue
            try:
                return await connect(
                    "ws" + owner.address.removeprefix("http") + target,
                    additional_headers=headers,
                    subprotocols=scope.get("subprotocols") or None,
                    user_agent_header=None,
                    compression=None,
                    proxy=None,
                    open_timeout=self._wait_seconds,
                    ping_interval=None,
                    max_size=MAX_FRAME_BYTES,
                )
            except InvalidStatus as error:
                response = error.response
                if _REFUSED not in response.headers:
                    media_type = response.headers.get("content-type", "text/plain")
                    return Reply(data=bytes(response.body or b""), status=response.status_code, media_type=media_type)
            except (OSError, TimeoutError, WebSocketException):
                pass
        raise OwnershipLost(*key)


class _Relay:
    """Sends responses of other servers to the client."""

    def __init__(self, send: Send) -> None:
        self.has_begun = False
        self.is_progressing = False
        """True if the last attempt has achieved something, so that the next one needs no pause."""

        self._send = send

    async def pass_on(
        self, status: int, headers: list[tuple[bytes, bytes]], stream: httpx.AsyncByteStream, call: _Call
    ) -> None:
        if not self.has_begun:
            self.has_begun = True
            kept = [
                (name.lower(), value)
                for name, value in headers
                if name.lower() not in _OF_CONNECTION and name.lower() != b"date"
            ]
            await self._send({"type": "http.response.start", "status": status, "headers": kept})

        progress = call.progress if status == HTTPStatus.OK else None
        if progress is not None:
            progress.begin()
        async for piece in stream:
            data = piece if progress is None else progress.new_frames(piece)
            if data:
                await self._send({"type": "http.response.body", "body": data, "more_body": True})
        await self._send({"type": "http.response.body", "body": b"" if progress is None else progress.rest()})


def _request_to(owner: Replica, call: _Call) -> httpx.Request:
    import httpx

    headers = call.headers
    target = _target(call.scope)
    if call.progress is not None and call.progress.seq is not None and call.scope["method"] == "GET":
        headers = [header for header in headers if header[0] != b"last-event-id"]
        headers.append((b"last-event-id", b"%d" % call.progress.seq))
        path, _, query = target.partition(b"?")
        rest = [pair for pair in query.split(b"&") if pair and not pair.startswith(b"after=")]
        target = b"?".join((path, b"&".join(rest))) if rest else path

    timeout = {"connect": _CONNECT_SECONDS, "read": None, "write": None, "pool": None}
    extensions: dict[str, Any] = {"target": target, "timeout": timeout}
    return httpx.Request(call.scope["method"], owner.address, headers=headers, content=call.body, extensions=extensions)


def _target(scope: Scope) -> bytes:
    """Path and query of a request, as they came."""
    path: bytes = (scope.get("raw_path") or scope["path"].encode()).partition(b"?")[0]
    query: bytes = scope["query_string"]
    return b"%b?%b" % (path, query) if query else path


def key_of(error: OwnershipLost) -> SessionKey:
    return SessionKey(error.app_name, error.user_id, error.session_id)


async def _refuse(error: OwnershipLost, scope: Scope, send: Send) -> None:
    """Answers a request that another server has forwarded."""
    reply = error_reply(error)
    reply.headers[_REFUSED] = urlencode(key_of(error)._asdict())
    if scope["type"] == "websocket":
        await refuse(reply, scope, send)
    else:
        await send_reply(reply, send)


def _decoded_key(value: str) -> SessionKey:
    return SessionKey(**dict(parse_qsl(value, keep_blank_values=True)))


async def _to_owner(receive: Receive, upstream: ClientConnection) -> None:
    """Sends what the client sends, with its back-pressure, until it leaves."""
    while True:
        message = await receive()
        if message["type"] != "websocket.receive":
            return
        text: str | None = message.get("text")
        await upstream.send(text if text is not None else message["bytes"])


async def _to_client(upstream: ClientConnection, send: Send) -> None:
    """Sends what the owner sends, until it closes the socket."""
    from websockets.exceptions import ConnectionClosed

    with contextlib.suppress(ConnectionClosed):
        async for message in upstream:
            kind = "text" if isinstance(message, str) else "bytes"
            await send({"type": "websocket.send", kind: message})
    await upstream.wait_closed()
    code = upstream.close_code
    if code is None or code == 1006:  # not closed by a frame
        code = _RESTARTING
    await send({"type": "websocket.close", "code": code, "reason": upstream.close_reason or ""})


class _Closing:
    def __init__(self, upstream: ClientConnection) -> None:
        self._upstream = upstream

    async def aclose(self) -> None:
        await self._upstream.close()
