"""The ASGI application around that of a server that shares its store with others.

A request is first handled here, as on a server that is alone. If the store's ownership refuses it, and nothing of the
response was sent, it is sent to the owner as it came, with the caller's credentials, and the response is streamed back:

    client → server 1: POST /run_sse                       server 1 doesn't own the session: nothing is stored or sent
             server 1 → server 2: POST /run_sse            with `greenroom-forwarded: id=1&token=…&run=e-5`
             server 1 ← server 2: 200, id: 3, id: 4        passed on as it arrives
             server 2 is killed; server 3 takes its shards, and resumes the run
             server 1 → server 3: POST /run_sse            with `…&run=e-5&again=1`: attaches to the run
             server 1 ← server 3: id: 3, id: 4, id: 5      of which only 5 is passed on
    client ← server 1: 200, id: 3, id: 4, id: 5

A server never forwards such a request again: if it isn't the owner either, it answers 503 with the header
`greenroom-refused`, and the first server looks the owner up again.
"""

from __future__ import annotations

from functools import partial

from starlette.types import ASGIApp, Receive, Scope, Send

from greenroom.runs.ownership import Replicas
from greenroom.server.exchange import EXCHANGE, Exchange
from greenroom.server.forwarding.http_requests import HttpForwarder
from greenroom.server.forwarding.owners import refuse_forwarded
from greenroom.server.forwarding.stamp import read_stamp
from greenroom.server.forwarding.web_sockets import WebSocketForwarder


class Forwarder:
    def __init__(self, app: ASGIApp, replicas: Replicas, *, grace_seconds: float) -> None:
        """app: the server's own. grace_seconds: that a server that stops gives its runs."""
        wait_seconds = replicas.takeover_seconds + grace_seconds
        self._app = app
        self._replicas = replicas
        self._http = HttpForwarder(replicas, wait_seconds=wait_seconds)
        self._web_sockets = WebSocketForwarder(replicas, wait_seconds=wait_seconds)

    def close(self) -> None:
        self._http.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        original, forwarded = await read_stamp(scope, self._replicas)
        exchange = Exchange(receive, send, keeps_body=forwarded is None, forwarded=forwarded)
        if forwarded is None:
            exchange.ask_owner = partial(self._http.ask, scope)
        await self._app({**original, EXCHANGE: exchange}, exchange.receive, exchange.send)

        if exchange.has_begun or (exchange.lost is None and exchange.replica_id is None):
            return
        if exchange.lost is not None and forwarded is not None:
            await refuse_forwarded(exchange.lost, scope, send)
        elif scope["type"] == "websocket":
            await self._web_sockets.forward(scope, exchange, send)
        else:
            await self._http.forward(scope, exchange, send)
