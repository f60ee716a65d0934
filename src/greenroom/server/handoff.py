"""Gives the connection of a request to the worker of this machine that runs the session, instead of forwarding it.

A worker handles each request itself first, see `forwarding`. If it doesn't own the session, and another worker of the
same `greenroom serve` does, the client's connection moves there with the request: the other worker answers as if it had
accepted the connection, without a hop, and so it does later requests of the connection.

    client → worker 1: POST /run_sse        worker 1 doesn't own the session: nothing is stored or sent
    worker 1 → worker 2: the socket, with the bytes of the request
    client ← worker 2: id: 3, id: 4
    client → worker 2: POST /run_sse        the next turn
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from starlette.types import ASGIApp, Receive, Scope, Send

from greenroom.errors import GreenroomError
from greenroom.records.session import SessionKey
from greenroom.runs.ownership import Replicas
from greenroom.server.exchange import EXCHANGE, Exchange

HANDOFF = "greenroom.handoff"
"""The ASGI extension of a worker's HTTP server: a `HandOff`; None for a request that another worker has given away."""

HandOff: TypeAlias = Callable[[str, bytes], bool]
"""Gives the connection of a request to the worker with this `replica_address`, with the request's body. False if that
isn't possible; after True, nothing may be sent."""

MAX_BODY_BYTES = 32 * 1024
"""Requests with a larger body are forwarded."""

_OWNERS_SECONDS = 1.0


class HandoffApp:
    """An ASGI application around that of a server, inside its `Forwarder`."""

    def __init__(self, app: ASGIApp, replicas: Replicas) -> None:
        self._app = app
        self._replicas = replicas

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange: Exchange = scope[EXCHANGE]
        extensions = scope.get("extensions", {})
        hand_off: HandOff | None = extensions.get(HANDOFF)
        if HANDOFF in extensions and hand_off is None:
            exchange.is_counted = True
        await self._app(scope, receive, send)
        if exchange.lost is None or exchange.has_begun or hand_off is None or exchange.is_forwarded:
            return

        body: bytes | None = b""
        if scope["type"] == "http":
            body = await exchange.whole_body() if exchange.keeps_body else None
        if body is None or len(body) > MAX_BODY_BYTES:
            return

        lost = exchange.lost
        key = SessionKey(lost.app_name, lost.user_id, lost.session_id)
        try:
            owner = await self._replicas.owner_of(key, max_age_seconds=_OWNERS_SECONDS)
        except GreenroomError:  # the forwarder asks again
            return
        if owner is not None and hand_off(owner.address, body):
            exchange.lost = None  # answered elsewhere: nothing is left to forward
