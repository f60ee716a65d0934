"""uvicorn, as greenroom runs it. Apart from the command, so that its help doesn't wait for the import."""

from __future__ import annotations

import contextlib
import gc
import logging
import signal
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from greenroom.cli.terminal import is_debugging
from greenroom.errors import Unavailable

try:
    import resource
except ImportError:  # Windows has no such limits
    resource = None


def run_server(
    application: ASGIApp, listener: socket.socket, *, when_started: Callable[[], None], grace_seconds: int
) -> None:
    """Serve until SIGINT or SIGTERM. Raises what the application raised instead of starting."""
    failures: list[BaseException] = []

    async def remembering(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await application(scope, receive, send)
        except BaseException as error:
            if scope["type"] == "lifespan":
                failures.append(error)
            raise

    config = uvicorn.Config(
        remembering,
        loop="auto",
        http="httptools",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=8192,
        timeout_graceful_shutdown=grace_seconds,
    )
    server = _Server(config, when_started)
    _make_room_for_many()
    # uvicorn tells of a failed start by a traceback in the log, and of a good one in its own words.
    logging.getLogger("uvicorn.error").setLevel(logging.DEBUG if is_debugging() else logging.CRITICAL)
    # When it has stopped, uvicorn raises the signal again; the process then ends by itself, and with success.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _ignore)
    with contextlib.suppress(SystemExit):  # how uvicorn leaves when it could not start
        server.run(sockets=[listener])
    if not server.started:
        raise failures[0] if failures else Unavailable("The server could not start")


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, when_started: Callable[[], None]) -> None:
        super().__init__(config)
        self._when_started = when_started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            if not is_debugging():
                logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
            self._when_started()


def _make_room_for_many() -> None:
    """Thousands of connections need as many open files. Collecting garbage less often halves the cost of a streamed
    chunk: a server holds many long-lived events, and hardly makes circles."""
    if resource is not None:
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def _ignore(_number: int, _frame: FrameType | None) -> None:
    pass
