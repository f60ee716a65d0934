"""WebSockets of a worker, which it can give to another worker. Imports the WebSocket library."""

from __future__ import annotations

from typing import Any, cast

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request

from greenroom.cli.worker_http import OtherWorkers, request_bytes, send_to
from greenroom.server.handoff import HANDOFF


class WorkerWebSocketProtocol(WebSocketsSansIOProtocol):
    """A WebSocket that can be given to another worker until the handshake is answered."""

    def __init__(self, *args: Any, other_workers: OtherWorkers, can_move: bool, **more: Any) -> None:
        super().__init__(*args, **more)
        self._other_workers = other_workers
        self._can_move = can_move

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if not self.handshake_complete:  # the request is valid
            cast("dict[str, Any]", self.scope)["extensions"][HANDOFF] = self._hand_off if self._can_move else None

    def _hand_off(self, address: str, _body: bytes) -> bool:
        if self.handshake_complete or self.initial_response is not None or not self.queue.empty():
            return False

        headers = [
            (name.encode("latin-1"), value.encode("latin-1", errors="surrogateescape"))
            for name, value in self.request.headers.raw_items()
        ]
        request = request_bytes(b"GET", self.request.path.encode(), headers)
        if not send_to(self._other_workers, address, request, self.transport):
            return False
        self.handshake_complete = True
        self.close_sent = True
        return True
