"""Forwards HTTP requests: sends a request to the owner of its session, and streams the response back."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator
from http import HTTPStatus
from typing import NamedTuple
from uuid import uuid4

from starlette.types import Scope, Send

from greenroom.errors import GreenroomError, Unavailable
from greenroom.records.session import SessionKey
from greenroom.runs.engine import OWN_KEY_PREFIX
from greenroom.runs.ownership import Replica, Replicas
from greenroom.server.endpoint import send_reply
from greenroom.server.exchange import Exchange
from greenroom.server.forwarding.http_client import ConnectError, HttpClient, Request, Response, ResponseError
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

_log = logging.getLogger("greenroom.server")

_IDEMPOTENCY_KEY = b"idempotency-key"

_WORKING_SECONDS = 1.0
"""An owner that ends after this time has worked on the request: the time to find the next one begins again."""


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
        """wait_seconds: time in which a session gets an owner."""
        self._replicas = replicas
        self._wait_seconds = wait_seconds
        self._client = HttpClient()
        self._waiting: dict[asyncio.Timeout, tuple[SessionKey, str]] = {}
        """Of each response that is read, the session and the id of the server that owned it."""

        self._watching: asyncio.Task[None] | None = None

    def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
        self._client.close()

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
            if name not in HOP_BY_HOP and name not in (FORWARDED, b"host", b"content-length")
        ]
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
            except (ConnectError, ResponseError, TimeoutError) as error:
                if not self._may_ask_again(error, call, relay):
                    raise Unavailable("The server that runs the session ended before it has answered") from error
            if time.monotonic() > asked_at + _WORKING_SECONDS:
                search.is_progressing = True

    def _may_ask_again(self, error: Exception, call: _Call, relay: _Relay) -> bool:
        if isinstance(error, ConnectError):
            return True
        return call.is_repeatable and (not relay.has_begun or call.progress is not None)

    async def _ask(self, owner: Replica, key: SessionKey, call: _Call, relay: _Relay) -> None:
        """Sends the request to a server, and passes its response on.

        Raises the client's errors, TimeoutError when another server takes the session over, _Refused and _Stopping.
        """
        async with self._while_owned(key, owner):
            response = await self._client.send(owner.address, _request_of(call))
            try:
                refused = response.header(REFUSED.encode())
                if refused is not None:
                    raise _Refused(refused_key(refused.decode()))
                if response.status == HTTPStatus.SERVICE_UNAVAILABLE and call.is_repeatable:
                    raise _Stopping
                if relay.has_begun and response.status != HTTPStatus.OK:
                    raise Unavailable("The stream can't be continued")
                await relay.pass_on(response, call)
            finally:
                response.close()

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

    async def pass_on(self, response: Response, call: _Call) -> None:
        if not self.has_begun:
            self.has_begun = True
            headers = [header for header in response.headers if header[0] not in HOP_BY_HOP and header[0] != b"date"]
            await self._send({"type": "http.response.start", "status": response.status, "headers": headers})

        progress = call.progress if response.status == HTTPStatus.OK else None
        if progress is not None:
            progress.begin()
        while piece := await response.read():
            data = piece if progress is None else progress.new_frames(piece)
            if data:
                await self._send({"type": "http.response.body", "body": data, "more_body": True})
        await self._send({"type": "http.response.body", "body": b"" if progress is None else progress.rest()})


def _request_of(call: _Call) -> Request:
    headers = call.headers
    target = target_of(call.scope)
    if call.progress is not None and call.progress.seq is not None and call.scope["method"] == "GET":
        headers = [header for header in headers if header[0] != b"last-event-id"]
        headers.append((b"last-event-id", b"%d" % call.progress.seq))
        path, _, query = target.partition(b"?")
        rest = [pair for pair in query.split(b"&") if pair and not pair.startswith(b"after=")]
        target = b"?".join((path, b"&".join(rest))) if rest else path
    return Request(call.scope["method"].encode(), target, headers, call.body)
