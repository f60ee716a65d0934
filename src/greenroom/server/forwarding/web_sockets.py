"""Forwards WebSockets: opens a socket to the owner of the session, and passes messages on in both directions."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from starlette.types import Receive, Scope, Send

from greenroom.errors import GreenroomError, Unavailable
from greenroom.records.identifiers import new_invocation_id
from greenroom.records.session import SessionKey
from greenroom.runs.engine import ForwardedRequest
from greenroom.runs.ownership import Replica, Replicas
from greenroom.server.exchange import Exchange
from greenroom.server.forwarding.owners import REFUSED, OwnerSearch, end_to_end_headers, key_of, target_of
from greenroom.server.forwarding.stamp import FORWARDED, make_stamp, with_run
from greenroom.server.replies import Reply
from greenroom.server.websocket import MAX_FRAME_BYTES
from greenroom.server.websocket_endpoint import TRY_LATER, refuse

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

_log = logging.getLogger("greenroom.server")

_OF_HANDSHAKE = (b"sec-websocket-", b"host")
_RESTARTING = 1012
"""Close code of a WebSocket whose server has ended. Source: IANA's registry of RFC 6455."""

_NOT_CLOSED = 1006
"""Close code of a connection that has ended without a close frame. Source: RFC 6455, 7.4.1."""


class WebSocketForwarder:
    def __init__(self, replicas: Replicas, *, wait_seconds: float) -> None:
        """wait_seconds: time in which a session gets an owner."""
        self._replicas = replicas
        self._wait_seconds = wait_seconds

    async def forward(self, scope: Scope, exchange: Exchange, send: Send) -> None:
        """scope: as the ASGI server made it, before its path and its client were found."""
        assert exchange.lost is not None
        try:
            upstream = await self._open(scope, key_of(exchange.lost))
        except GreenroomError as error:
            await _refuse_for_now(error, scope, send)
            return
        except asyncio.CancelledError:  # sockets are cancelled only when the server stops
            await _refuse_for_now(Unavailable("The server is stopping"), scope, send)
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
        try:
            await send({"type": "websocket.accept", "subprotocol": upstream.subprotocol, "headers": headers})
            sending = asyncio.create_task(_to_owner(exchange.receive, upstream))
            receiving = asyncio.create_task(_to_client(upstream, send))
            try:
                await asyncio.wait((sending, receiving), return_when=asyncio.FIRST_COMPLETED)
            finally:
                sending.cancel()
                receiving.cancel()
                await asyncio.gather(sending, receiving, return_exceptions=True)
        finally:
            await upstream.close()

    async def _open(self, scope: Scope, key: SessionKey) -> ClientConnection | Reply:
        """The connection to the owner, or the response with which it has refused the handshake. Raises OwnershipLost,
        StorageError."""
        from websockets.exceptions import InvalidStatus, WebSocketException

        stamp = await make_stamp(scope, self._replicas)
        headers = [
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in end_to_end_headers(scope["headers"])
            if not name.startswith(_OF_HANDSHAKE) and name != FORWARDED
        ]
        forwarded = ForwardedRequest(new_invocation_id(), is_repeated=False)
        headers.append((FORWARDED.decode(), with_run(stamp, forwarded).decode()))
        search = OwnerSearch(self._replicas, key, wait_seconds=self._wait_seconds)
        while True:
            owner = await search.next_owner()
            try:
                return await self._connect(owner, scope, headers)
            except InvalidStatus as error:
                response = error.response
                if REFUSED not in response.headers:
                    media_type = response.headers.get("content-type", "text/plain")
                    return Reply(data=bytes(response.body or b""), status=response.status_code, media_type=media_type)
            except (OSError, TimeoutError, WebSocketException):
                pass

    async def _connect(self, owner: Replica, scope: Scope, headers: list[tuple[str, str]]) -> ClientConnection:
        from websockets.asyncio.client import connect

        return await connect(
            "ws" + owner.address.removeprefix("http") + target_of(scope).decode("latin-1"),
            additional_headers=headers,
            subprotocols=scope.get("subprotocols") or None,
            user_agent_header=None,
            compression=None,
            proxy=None,
            open_timeout=self._wait_seconds,
            ping_interval=None,
            max_size=MAX_FRAME_BYTES,
        )


async def _refuse_for_now(error: GreenroomError, scope: Scope, send: Send) -> None:
    _log.warning("%s: %s: %s", scope["path"], error.code, error.detail)
    await send({"type": "websocket.accept", "subprotocol": None, "headers": []})
    await send({"type": "websocket.close", "code": TRY_LATER, "reason": error.detail[:100]})


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

    try:
        async for message in upstream:
            kind = "text" if isinstance(message, str) else "bytes"
            await send({"type": "websocket.send", kind: message})
    except ConnectionClosed:
        pass
    await upstream.wait_closed()
    code = upstream.close_code
    if code is None or code == _NOT_CLOSED:
        code = _RESTARTING
    await send({"type": "websocket.close", "code": code, "reason": upstream.close_reason or ""})
