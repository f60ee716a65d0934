"""Forwards HTTP requests: sends a request to the owner of its session, and streams the response back."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator
from http import HTTPStatus
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from uuid import uuid4

from starlette.types import Scope, Send

from greenroom.errors import GreenroomError, MissingExtra, Unavailable
from greenroom.records.session import SessionKey
from greenroom.runs.engine import OWN_KEY_PREFIX
from greenroom.runs.ownership import Replica, Replicas
from greenroom.server.endpoint import send_reply
from greenroom.server.exchange import Exchange
from greenroom.server.forwarding.log_progress import LogProgress
from greenroom.server.forwarding.owners import (
    HOP_BY_HOP,
    OWNERS_SECONDS,
    REFUSED,
    OwnerSearch,
    key_of,
    refused_key,
    target_of,
)
from greenroom.server.forwarding.stamp import FORWARDED, make_stamp
from greenroom.server.replies import error_reply
from greenroom.server.request_body import wait_for_disconnect

if TYPE_CHECKING:
    import httpx

_log = logging.getLogger("greenroom.server")

_IDEMPOTENCY_KEY = b"idempotency-key"

_WORKING_SECONDS = 1.0
"""An owner that ends after this time has worked on the request: the time to find the next one begins again."""

_CONNECT_SECONDS = 2.0
_IDLE_CONNECTION_SECONDS = 30.0


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


class HttpForwarder:
    def __init__(self, replicas: Replicas, *, wait_seconds: float) -> None:
        """wait_seconds: time in which a session gets an owner. Raises MissingExtra."""
        if find_spec("httpx") is None:
            raise MissingExtra("postgres", "httpx")

        self._replicas = replicas
        self._wait_seconds = wait_seconds
        self._transport: httpx.AsyncHTTPTransport | None = None
        self._waiting: dict[asyncio.Timeout, tuple[SessionKey, str]] = {}
        """Of each response that is read, the session and the id of the server that owned it."""

        self._watching: asyncio.Task[None] | None = None

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
        if self._transport is not None:
            await self._transport.aclose()

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

    async def forward(self, scope: Scope, exchange: Exchange, send: Send) -> None:
        """scope: as the ASGI server made it, before its path and its client were found."""
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
            if name not in HOP_BY_HOP and name not in (FORWARDED, b"content-length")
        ]
        if body:
            headers.append((b"content-length", b"%d" % len(body)))
        headers.append(await make_stamp(scope, self._replicas))

        has_key = any(name == _IDEMPOTENCY_KEY and value for name, value in headers)
        if exchange.takes_key and not has_key:
            headers.append((_IDEMPOTENCY_KEY, f"{OWN_KEY_PREFIX}{uuid4().hex}".encode()))
        is_repeatable = exchange.takes_key or scope["method"] in ("GET", "HEAD", "PUT", "DELETE")
        progress = LogProgress() if exchange.streams_log else None
        return _Call(scope, body, headers, is_repeatable, progress)

    async def _answer(self, call: _Call, key: SessionKey, relay: _Relay) -> None:
        """Asks owners until one has answered. Raises OwnershipLost, Unavailable, StorageError."""
        search = OwnerSearch(self._replicas, key, wait_seconds=self._wait_seconds)
        while True:
            owner = await search.next_owner()
            asked_at = time.monotonic()
            try:
                await self._ask(owner, search.key, call, relay)
                return
            except _Refused as refused:
                search.is_progressing = refused.key != search.key
                search.key = refused.key
            except _Stopping:
                pass
            except Exception as error:
                if not self._may_ask_again(error, call, relay):
                    raise Unavailable("The server that runs the session ended before it has answered") from error
            if time.monotonic() > asked_at + _WORKING_SECONDS:
                search.is_progressing = True

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
                if REFUSED in response.headers:
                    raise _Refused(refused_key(response.headers[REFUSED]))
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
            await asyncio.sleep(OWNERS_SECONDS)
            for deadline, (key, owner_id) in list(self._waiting.items()):
                try:
                    owner = await self._replicas.owner_of(key, max_age_seconds=OWNERS_SECONDS)
                except GreenroomError:  # the database is away; nobody can take anything over
                    break
                if deadline in self._waiting and owner is not None and owner.id != owner_id:
                    deadline.reschedule(asyncio.get_running_loop().time())


class _Relay:
    """Sends responses of other servers to the client."""

    def __init__(self, send: Send) -> None:
        self.has_begun = False
        self._send = send

    async def pass_on(
        self, status: int, headers: list[tuple[bytes, bytes]], stream: httpx.AsyncByteStream, call: _Call
    ) -> None:
        if not self.has_begun:
            self.has_begun = True
            kept = [
                (name.lower(), value)
                for name, value in headers
                if name.lower() not in HOP_BY_HOP and name.lower() != b"date"
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
    target = target_of(call.scope)
    if call.progress is not None and call.progress.seq is not None and call.scope["method"] == "GET":
        headers = [header for header in headers if header[0] != b"last-event-id"]
        headers.append((b"last-event-id", b"%d" % call.progress.seq))
        path, _, query = target.partition(b"?")
        rest = [pair for pair in query.split(b"&") if pair and not pair.startswith(b"after=")]
        target = b"?".join((path, b"&".join(rest))) if rest else path

    timeout = {"connect": _CONNECT_SECONDS, "read": None, "write": None, "pool": None}
    extensions: dict[str, Any] = {"target": target, "timeout": timeout}
    return httpx.Request(call.scope["method"], owner.address, headers=headers, content=call.body, extensions=extensions)
