"""Runs uvicorn. A module of its own, so that the help of commands doesn't wait for its import."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import gc
import logging
import math
import os
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol, cast

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from greenroom.cli.http_protocol import DEFAULT_LIMITS, ConnectionLimits, LimitedHttpProtocol, sweep
from greenroom.cli.server_start import allow_many_files
from greenroom.cli.terminal import is_debugging
from greenroom.errors import Unavailable
from greenroom.server.websocket import MAX_FRAME_BYTES

if TYPE_CHECKING:
    from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

STOP_SECONDS = 5.0
"""Time limit of a stop after the grace time of the runs."""

CANCEL_SECONDS = 1.0
"""Time limit of the tasks that remain when everything is closed."""

_LOOK_SECONDS = 0.1
"""Interval in which a server that stops looks for a second Ctrl-C, as uvicorn does."""

_CLOSE = (b"connection", b"close")


def run_server(
    application: ASGIApp,
    listener: socket.socket,
    *,
    when_started: Callable[[], None],
    grace_seconds: int,
    limits: ConnectionLimits = DEFAULT_LIMITS,
    connections: ConnectionSource | None = None,
    drain: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Serves until SIGINT or SIGTERM. Raises the application's exception if it fails to start.

    connections: where clients' connections come from besides the listener, and where they can go. drain: called at the
    signal; the server answers requests until it returns.
    """
    failures: list[BaseException] = []
    collector = _Collector()

    async def watched(scope: Scope, receive: Receive, send: Send) -> None:
        collector.count(1)
        try:
            await application(scope, receive, send)
        except BaseException as error:
            if scope["type"] == "lifespan":
                failures.append(error)
            raise
        finally:
            collector.count(-1)

    config = server_config(watched, grace_seconds=grace_seconds, limits=limits, connections=connections)
    server = _Server(config, when_started, limits, connections, drain)
    allow_many_files()

    # Suppresses uvicorn's log messages of a start and of a failed start; the caller reports both.
    logger = logging.getLogger("uvicorn.error")
    logger.setLevel(logging.DEBUG if is_debugging() else logging.CRITICAL)
    logger.addFilter(_is_worth_logging)

    # When it has stopped, uvicorn raises the signal again; this process then ends normally, with exit code 0.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: None)
    with contextlib.suppress(SystemExit):  # how uvicorn leaves when it could not start
        server.run(sockets=[listener])
    if not server.started:
        raise failures[0] if failures else Unavailable("The server could not start")


def server_config(
    application: ASGIApp,
    *,
    grace_seconds: int,
    limits: ConnectionLimits = DEFAULT_LIMITS,
    connections: ConnectionSource | None = None,
) -> uvicorn.Config:
    http = partial(LimitedHttpProtocol, limits=limits)
    if connections is not None:
        from greenroom.cli.worker_http import WorkerHttpProtocol

        web_socket = partial(_worker_web_socket_protocol, other_workers=connections)
        http = partial(WorkerHttpProtocol, limits=limits, other_workers=connections, web_socket=web_socket)
    return uvicorn.Config(
        application,
        loop="auto",
        http=cast("type[asyncio.Protocol]", http),
        ws=cast("type[asyncio.Protocol]", _web_socket_protocol),
        ws_max_size=MAX_FRAME_BYTES,
        ws_ping_interval=limits.ping_seconds,
        ws_ping_timeout=limits.ping_seconds,
        ws_per_message_deflate=False,  # costs more time than it saves bytes: most of it is audio
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=8192,
        timeout_graceful_shutdown=grace_seconds,
    )


def _web_socket_protocol(*args: Any, **options: Any) -> asyncio.Protocol:
    """Loaded with the first WebSocket."""
    from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

    return _without_close(WebSocketsSansIOProtocol(*args, **options))


def _worker_web_socket_protocol(*args: Any, **options: Any) -> asyncio.Protocol:
    """Loaded with the first WebSocket of a worker."""
    from greenroom.cli.worker_web_socket import WorkerWebSocketProtocol

    return _without_close(WorkerWebSocketProtocol(*args, **options))


def _without_close(protocol: WebSocketsSansIOProtocol) -> WebSocketsSansIOProtocol:
    """Answers handshakes without the header that a server that stops adds to its responses."""
    protocol.default_headers = [header for header in protocol.default_headers if header != _CLOSE]
    return protocol


_SUPPRESSED_MESSAGES = (
    "ASGI callable returned without completing handshake.",
    "Invalid UTF-8 sequence received from client.",
)


def _is_worth_logging(record: logging.LogRecord) -> bool:
    """False for messages of uvicorn about clients, not about errors.

    It takes a WebSocket that was refused with a response for an error of the application, and logs a traceback for each
    client that sends invalid UTF-8.
    """
    return record.msg not in _SUPPRESSED_MESSAGES


class ConnectionSource(Protocol):
    """Exchanges connections of clients with other processes."""

    def open(self, serve: Callable[[socket.socket, bytes], None]) -> None:
        """Calls `serve` with the socket of each connection, and what was read from it, in the running event loop."""
        ...

    def send(self, address: str, request: bytes, descriptor: int) -> bool:
        """As that of `OtherWorkers`."""
        ...

    def close(self) -> None:
        """Stops calling `serve`."""
        ...


class _Server(uvicorn.Server):
    def __init__(
        self,
        config: uvicorn.Config,
        when_started: Callable[[], None],
        limits: ConnectionLimits,
        connections: ConnectionSource | None,
        drain: Callable[[], Awaitable[None]] | None,
    ) -> None:
        super().__init__(config)
        self._drain = drain
        self._when_started = when_started
        self._limits = limits
        self._connections = connections
        self._beginning: set[asyncio.Task[None]] = set()
        self._sweeping: asyncio.Task[None] | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if not self.should_exit:
            # Called even while an app's import, which may never end, blocks the event loop.
            self.lifespan.state["stopping_at"] = time.monotonic()
            _exit_in((self.config.timeout_graceful_shutdown or 0) + STOP_SECONDS)
        super().handle_exit(sig, frame)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        # The loop would track each async generator to close it at its end; their readers close ours.
        sys.set_asyncgen_hooks(firstiter=None)
        if self.started:
            if not is_debugging():
                logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
            self._sweeping = asyncio.create_task(sweep(self.server_state.connections, self._limits))
            if self._connections is not None:
                self._connections.open(self._serve_connection)
            self._when_started()

    def _serve_connection(self, connection: socket.socket, received: bytes) -> None:
        beginning = asyncio.create_task(self._begin(connection, received))
        self._beginning.add(beginning)
        beginning.add_done_callback(self._beginning.discard)

    async def _begin(self, connection: socket.socket, received: bytes) -> None:
        # Like the protocols of the listener's connections, which uvicorn makes.
        protocol = partial(
            cast("Callable[..., asyncio.Protocol]", self.config.http_protocol_class),
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
            received=received,
        )
        connection.setblocking(False)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(protocol, connection)
        except OSError:  # the client has left
            connection.close()

    async def _answer_until(self, drained: asyncio.Future[None]) -> None:
        """Waits for a future, but not after a second Ctrl-C. The grace period of requests begins before."""
        # Clients open their next connection, perhaps to another server, while this one still answers.
        self.server_state.default_headers = [*self.server_state.default_headers, _CLOSE]
        started = time.monotonic()
        while not drained.done() and not self.force_exit:
            await asyncio.wait([drained], timeout=_LOOK_SECONDS)
        drained.cancel()
        used = time.monotonic() - started
        self.config.timeout_graceful_shutdown = max(math.ceil((self.config.timeout_graceful_shutdown or 0) - used), 0)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._drain is not None:
            await self._answer_until(asyncio.ensure_future(self._drain()))
        if self._sweeping is not None:
            self._sweeping.cancel()
        if self._connections is not None:
            self._connections.close()
        await super().shutdown(sockets)
        _exit_in(CANCEL_SECONDS)


def _exit_in(seconds: float) -> None:
    """Ends the process after a deadline, even if a task ignores its cancellation or the event loop is blocked."""
    if hasattr(signal, "setitimer"):  # Windows has none
        signal.signal(signal.SIGALRM, _abandon)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        # When all threads have ended, only the interpreter's own clean-up is left, in which there are no handlers.
        atexit.register(signal.setitimer, signal.ITIMER_REAL, 0)


def _abandon(_number: int, _frame: FrameType | None) -> None:
    logging.getLogger("greenroom.cli").warning(
        "some work did not stop in time and was abandoned; its runs resume at the next start"
    )
    logging.shutdown()
    os._exit(0)


class _Collector:
    """Adapts the garbage collector's threshold to the number of open requests.

    A server makes hardly any reference cycles and holds many long-lived objects: a waiting run alone holds hundreds. So
    a collection starts only when more was allocated than the open requests account for.
    """

    OBJECTS = 50_000
    OBJECTS_PER_REQUEST = 300
    STEP = 256

    def __init__(self) -> None:
        self._open = 0
        gc.freeze()  # without a collection before it, which would free almost no memory
        gc.enable()
        self.count(0)

    def count(self, opened: int) -> None:
        """Counts an open request (1) or a closed one (-1)."""
        self._open += opened
        if self._open % self.STEP == 0:
            gc.set_threshold(self.OBJECTS + self.OBJECTS_PER_REQUEST * self._open, 20, 100)
