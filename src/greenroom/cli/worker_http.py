"""HTTP connections of a worker, which it can give to another worker before it has answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Protocol, cast

from greenroom.cli.http_protocol import LimitedHttpProtocol
from greenroom.server.handoff import HANDOFF

_OF_THE_BODY = (b"content-length", b"transfer-encoding", b"expect")


class OtherWorkers(Protocol):
    """Takes connections for other workers."""

    def send(self, address: str, request: bytes, descriptor: int) -> bool:
        """Sends a copy of a connection's socket to the worker with this `replica_address`, with the bytes of a request
        that were read from it. False if there is no such worker."""
        ...


class WorkerHttpProtocol(LimitedHttpProtocol):
    """A connection that was accepted here, or one that another worker has given to this one with a request."""

    __slots__ = ("_other_workers", "_received", "_web_socket")

    def __init__(
        self,
        *args: Any,
        other_workers: OtherWorkers,
        web_socket: Callable[..., asyncio.Protocol],
        received: bytes = b"",
        **more: Any,
    ) -> None:
        """web_socket: makes the protocol of a WebSocket. received: a request that another worker has read."""
        super().__init__(*args, **more)
        self._other_workers = other_workers
        self._web_socket = web_socket
        self._received = received

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        if self._received:
            self.data_received(self._received)
            self._received = b""

    def on_headers_complete(self) -> None:
        # A request moves once, so that it can't go round in circles.
        can_move = not self._received
        cast("dict[str, Any]", self.scope)["extensions"] = {HANDOFF: self._hand_off if can_move else None}
        self.ws_protocol_class = cast("Any", partial(self._web_socket, can_move=can_move))
        super().on_headers_complete()

    def _hand_off(self, address: str, body: bytes) -> bool:
        cycle = self.cycle
        is_alone = not self.pipeline and not self._is_in_head and not cycle.more_body
        if not is_alone or cycle.response_started or cycle.disconnected or self.scope["http_version"] != "1.1":
            return False

        headers = [(name, value) for name, value in self.headers if name not in _OF_THE_BODY]
        if body:
            headers.append((b"content-length", b"%d" % len(body)))
        request = request_bytes(self.scope["method"].encode(), self.url, headers) + body
        if not send_to(self._other_workers, address, request, self.transport):
            return False
        cycle.disconnected = True
        return True


def request_bytes(method: bytes, target: bytes, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    lines = [b"%b %b HTTP/1.1\r\n" % (method, target)]
    lines += [b"%b: %b\r\n" % header for header in headers]
    return b"".join((*lines, b"\r\n"))


def send_to(other_workers: OtherWorkers, address: str, request: bytes, transport: asyncio.Transport) -> bool:
    """Sends a connection to another worker, and closes this process's socket; the connection itself stays open."""
    if transport.is_closing() or transport.get_write_buffer_size():
        return False
    transport.pause_reading()
    if not other_workers.send(address, request, transport.get_extra_info("socket").fileno()):
        transport.resume_reading()
        return False
    transport.abort()
    return True
