"""Messages between a server and its workers, which carry the connections of clients.

The parent process accepts the connections and gives them to the workers in turn, so that each gets its share, on Linux
and on macOS. A connection that a worker has not acknowledged goes to another one when that worker ends:

    parent → worker 2: Start                with the settings
    parent ← worker 2: Ready
    parent → worker 1: Announce             once, when all are ready
    parent → worker 2: Workers              with sockets that lead to the others, again whenever one changes
    parent → worker 2: Connection           with a client's socket
    parent ← worker 2: Received             from now on the connection is the worker's
    worker 1 ← worker 2: HandOff            with the socket, and a request for a session of worker 1
    parent ← worker 2: Stopping             the worker takes no more connections
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import msgspec

from greenroom.server.settings import ServeSettings

_MAX_MESSAGE_BYTES = 64 * 1024
MAX_RECEIVED_BYTES = 48 * 1024
"""Size of a request that moves with its connection."""

_BUFFER_BYTES = 256 * 1024
_MAX_SOCKETS = 200
"""With one message: the other workers. Linux allows 253."""

_RETRY_SECONDS = 0.005
_AT_ONCE = 64
"""Messages that are read before other callbacks have their turn."""

_KIND = socket.SOCK_SEQPACKET if sys.platform == "linux" else socket.SOCK_DGRAM
"""A Unix socket that keeps the boundaries of messages. macOS has no SOCK_SEQPACKET."""

_FULL = (errno.EAGAIN, errno.EWOULDBLOCK, errno.ENOBUFS, errno.ETOOMANYREFS)
"""Errors of a socket whose reader has to catch up first."""


class Start(msgspec.Struct, tag=True, frozen=True, kw_only=True):
    """Tells a new worker what it serves."""

    number: int
    """The worker's number, from 1."""

    agents_dir: str
    settings: ServeSettings
    address: tuple[str, int]
    """The host and the port that all workers share."""

    import_path: list[str]
    """The parent's `sys.path`."""

    origins: dict[str, str]
    """The origins of the settings, by key."""


class Ready(msgspec.Struct, tag=True, frozen=True):
    """The worker can serve connections."""

    address: str
    """The worker's own: its `replica_address`."""


class Failed(msgspec.Struct, tag=True, frozen=True):
    """The worker can't start."""

    detail: str


class Announce(msgspec.Struct, tag=True, frozen=True):
    """Asks a worker to print the welcome text."""


class Workers(msgspec.Struct, tag=True, frozen=True):
    """The other workers that take connections. The parent's ends of their channels are sent with the message."""

    addresses: list[str]
    """In the order of the sockets."""


class Connection(msgspec.Struct, tag=True, frozen=True):
    """A client's connection. Its socket is sent with the message."""


class HandOff(msgspec.Struct, tag=True, frozen=True):
    """A client's connection that another worker gives away. Its socket is sent with the message. Not acknowledged."""

    received: bytes
    """The request that was read from it."""


class Received(msgspec.Struct, tag=True, frozen=True):
    """Acknowledges the oldest `Connection`s that were not acknowledged yet."""

    count: int


class Stopping(msgspec.Struct, tag=True, frozen=True):
    """The worker takes no more connections."""


Message: TypeAlias = Start | Ready | Failed | Announce | Workers | Connection | HandOff | Received | Stopping

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Message).decode


def channel_sockets(kind: int = _KIND) -> tuple[socket.socket, socket.socket]:
    """Returns a new pair of connected sockets, one for each process."""
    pair = socket.socketpair(socket.AF_UNIX, kind)
    for one in pair:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
    return pair


def receive_start(end: socket.socket) -> Start:
    """Waits for the first message of the parent process."""
    message = _decode(end.recv(_BUFFER_BYTES))
    assert isinstance(message, Start)
    return message


def send_failure(end: socket.socket, detail: str) -> None:
    """Sends the last message of a worker that can't start."""
    end.setblocking(True)
    end.send(_encode(Failed(detail[: _MAX_MESSAGE_BYTES // 8])))


def hand_off(end: socket.socket, received: bytes, descriptor: int) -> bool:
    """Sends a client's connection to a worker, by the parent's end of its channel. False if it can't take any."""
    try:
        socket.send_fds(end, [_encode(HandOff(received))], [descriptor])
    except OSError:
        return False
    return True


class Channel:
    """One process's end, used in an event loop. Messages arrive whole and in order."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self.end = end
        self._handle: Callable[[Message, list[socket.socket]], None] | None = None
        self._outgoing: deque[tuple[bytes, Sequence[socket.socket]]] = deque()
        self._retry: asyncio.TimerHandle | None = None
        self._unacknowledged: deque[socket.socket] = deque()

    @property
    def unacknowledged(self) -> int:
        """The number of connections that the other process has not received yet."""
        return len(self._unacknowledged)

    def open(self, handle: Callable[[Message, list[socket.socket]], None]) -> None:
        """Calls `handle` with each message that arrives, and with the sockets that were sent with it."""
        self._handle = handle
        asyncio.get_running_loop().add_reader(self.end, self.read)

    def send(self, message: Message, sockets: Sequence[socket.socket] = ()) -> None:
        self._outgoing.append((_encode(message), sockets))
        if self._retry is None:
            self._flush()

    def send_connection(self, connection: socket.socket) -> None:
        """Sends a connection, and keeps it open until the other process has acknowledged it."""
        self._unacknowledged.append(connection)
        self.send(Connection(), [connection])

    def stop_reading(self) -> None:
        """Leaves connections that arrive from now on to the other process."""
        asyncio.get_running_loop().remove_reader(self.end)

    def take_back(self) -> list[socket.socket]:
        """Returns the connections that the other process has not acknowledged, when it reads no more."""
        returned = list(self._unacknowledged)
        self._unacknowledged.clear()
        return returned

    def close(self) -> None:
        self.stop_reading()
        if self._retry is not None:
            self._retry.cancel()
        self._outgoing.clear()
        self.end.close()

    def read(self) -> None:
        """Handles the messages that have arrived."""
        assert self._handle is not None
        received = 0
        for message, sockets in self._arrived():
            if isinstance(message, Received):
                for _ in range(message.count):
                    self._unacknowledged.popleft().close()
            elif isinstance(message, Connection):
                received += 1
            self._handle(message, sockets)
        if received:
            self.send(Received(received))

    def _arrived(self) -> Iterator[tuple[Message, list[socket.socket]]]:
        for _ in range(_AT_ONCE):
            try:
                data, descriptors, _, _ = socket.recv_fds(self.end, _MAX_MESSAGE_BYTES, _MAX_SOCKETS)
            except BlockingIOError:
                return
            except OSError:  # the other process has ended
                data, descriptors = b"", []
            if not data:
                self.stop_reading()
                return

            for descriptor in descriptors:
                os.set_inheritable(descriptor, False)
            yield _decode(data), [socket.socket(fileno=descriptor) for descriptor in descriptors]

    def _flush(self) -> None:
        self._retry = None
        while self._outgoing:
            data, sockets = self._outgoing[0]
            descriptors = [one.fileno() for one in sockets]
            if -1 in descriptors:  # another worker has ended meanwhile; a newer list of them follows
                self._outgoing.popleft()
                continue
            try:
                socket.send_fds(self.end, [data], descriptors)
            except OSError as error:
                if error.errno in _FULL:
                    self._retry = asyncio.get_running_loop().call_later(_RETRY_SECONDS, self._flush)
                    return
                self._outgoing.clear()  # the other process has ended
                return
            self._outgoing.popleft()
