"""The program of a worker, which `workers` starts: `python -m greenroom.cli.worker DESCRIPTOR NUMBER`.

DESCRIPTOR is the worker's end of the channel to its parent process. NUMBER only shows in lists of processes.
"""

from __future__ import annotations

import asyncio
import gc
import io
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from greenroom.cli.server_log import set_up_log
from greenroom.cli.server_start import StyledText, bound, with_replica_address
from greenroom.cli.serving import serve
from greenroom.cli.terminal import console, is_debugging, print_pieces
from greenroom.cli.worker_channel import (
    MAX_RECEIVED_BYTES,
    Announce,
    Channel,
    Connection,
    HandOff,
    Message,
    Ready,
    Start,
    Stopping,
    Workers,
    hand_off,
    receive_start,
    send_failure,
)
from greenroom.errors import GreenroomError
from greenroom.server.settings import ServeSettings

_ASK_AGAIN_SECONDS = 1.0
_KEEP_OPEN_SECONDS = 1.0


def main() -> None:
    gc.disable()  # a started server enables it
    _stop_with_parent()
    end = socket.socket(fileno=int(sys.argv[1]))
    end.set_inheritable(False)
    start = receive_start(end)
    sys.path[:] = start.import_path
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")

    set_up_log(start.settings, worker=start.number)
    with end:
        try:
            _serve(start, end)
        except Exception as error:  # the parent process reports any error
            if is_debugging():
                console("notes").print_exception()
            send_failure(end, error.detail if isinstance(error, GreenroomError) else f"{type(error).__name__}: {error}")
            sys.exit(1)


def _serve(start: Start, end: socket.socket) -> None:
    listener, settings = replica_listener(start.settings, start.number)
    source = _ParentsConnections(Channel(end), settings.replica_address or "")
    with listener:
        serve(
            Path(start.agents_dir),
            settings,
            listener,
            address=start.address,
            when_started=source.ready,
            connections=source,
            origins=start.origins,
        )


def replica_listener(settings: ServeSettings, number: int) -> tuple[socket.socket, ServeSettings]:
    """Returns the socket at which other servers reach this worker alone, and settings with its `replica_address`."""
    if settings.replica_address is None:
        listener = bound(settings.host, 0)
        return listener, with_replica_address(settings, *listener.getsockname()[:2])

    url = urlsplit(settings.replica_address)
    host = f"[{url.hostname}]" if ":" in (url.hostname or "") else url.hostname
    port = 0 if url.port is None else url.port + number - 1
    listener = bound(settings.host, port, flag=f"--replica-address {url.scheme}://{host}:{{}}")
    own_url = url._replace(netloc=f"{host}:{listener.getsockname()[1]}")
    return listener, replace(settings, replica_address=own_url.geturl())


class _ParentsConnections:
    """Connections from the parent process and from other workers, and the way to those."""

    def __init__(self, channel: Channel, address: str) -> None:
        self._channel = channel
        self._address = address
        self._welcome: StyledText = []
        self._serve: Callable[[socket.socket, bytes], None] | None = None
        self._others: dict[str, socket.socket] = {}
        """Sockets that lead to the other workers, by the addresses of those."""

    def open(self, serve: Callable[[socket.socket, bytes], None]) -> None:
        self._serve = serve
        self._channel.open(self._handle)

    def send(self, address: str, request: bytes, descriptor: int) -> bool:
        other = self._others.get(address)
        if other is None or len(request) > MAX_RECEIVED_BYTES:
            return False
        if sys.platform == "darwin":
            # A socket on its way must be open at one end on macOS. Source: multiprocessing.reduction, ACKNOWLEDGE.
            asyncio.get_running_loop().call_later(_KEEP_OPEN_SECONDS, os.close, os.dup(descriptor))
        return hand_off(other, request, descriptor)

    def close(self) -> None:
        self._know([], [])
        self._channel.stop_reading()
        self._channel.send(Stopping())

    def ready(self, welcome: StyledText) -> None:
        self._welcome = welcome
        self._channel.send(Ready(self._address))

    def _handle(self, message: Message, sockets: list[socket.socket]) -> None:
        assert self._serve is not None
        match message:
            case Announce():
                print_pieces(self._welcome)
            case Workers(addresses):
                self._know(addresses, sockets)
            case Connection():
                for connection in sockets:
                    self._serve(connection, b"")
            case HandOff(received):
                for connection in sockets:
                    self._serve(connection, received)
            case _:
                pass

    def _know(self, addresses: list[str], sockets: list[socket.socket]) -> None:
        for other in self._others.values():
            other.close()
        self._others = dict(zip(addresses, sockets, strict=False))  # there are fewer when no more files may be open


def _stop_with_parent() -> None:
    """Stops this process as SIGTERM does when its standard input ends, which the parent process holds open."""
    lifeline = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)

    def wait() -> None:
        os.read(lifeline, 1)
        while True:  # a server that is being started may not see the first signal
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(_ASK_AGAIN_SECONDS)

    threading.Thread(target=wait, name="parent", daemon=True).start()


if __name__ == "__main__":
    main()
