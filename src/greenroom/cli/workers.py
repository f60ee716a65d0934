"""Runs the workers of `greenroom serve --workers`: replicas of this machine that share one port.

This process accepts the connections of clients and hands each to a worker, see `worker_channel`. It serves nothing
itself and imports no app. A worker that ends is replaced. All workers end with this process, however that ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import math
import os
import signal
import socket
import sys
import time
from collections import deque
from functools import partial
from pathlib import Path

import msgspec

from greenroom.cli.server_start import allow_many_files, bound, is_loopback_listener, secured_settings
from greenroom.cli.worker_channel import (
    Announce,
    Channel,
    Failed,
    Message,
    Ready,
    Received,
    Start,
    Stopping,
    Workers,
    channel_sockets,
)
from greenroom.errors import CallerError, Unavailable
from greenroom.records.service_uri import is_postgres, without_password
from greenroom.server.settings import ServeSettings

_log = logging.getLogger("greenroom.cli")

_BACKLOG = 8192
_ACCEPTED_AT_ONCE = 64
_MAX_UNACKNOWLEDGED = 64
"""Connections that wait in a worker's channel. Others wait in the queue of the port."""

_BUSIER = 4
"""A worker with so many more connections in its channel than others gets none for a moment."""

_STABLE_SECONDS = 30.0
"""A worker that ends earlier than this again and again is started with increasing delays."""

_FIRST_DELAY = 1.0
_LONGEST_DELAY = 30.0
_STOP_SECONDS = 10.0
"""Time in which a worker ends after the grace period of its runs. Its own limit is shorter."""

_NO_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def worker_count(settings: ServeSettings) -> int:
    """Returns the number of workers. Raises CallerError for settings with which there can be only one."""
    if settings.workers == 1:
        return 1

    flag = f"--workers {settings.workers}"
    if sys.platform == "win32":
        raise CallerError(f"{flag} needs Linux or macOS")
    if not is_postgres(settings.session_service or ""):
        store = without_password(settings.session_service or "the default store, SQLite")
        raise CallerError(
            f"{flag}: one server alone can use {store}. Several workers need sessions in PostgreSQL "
            "(--session-service postgresql://host/database); without it, use --workers 1"
        )
    for option, uri, other in (
        ("--artifact-service", settings.artifact_service, "file:///folder"),
        ("--memory-service", settings.memory_service, settings.session_service),
    ):
        if uri is not None and uri.startswith("memory:"):
            example = without_password(other or "")
            raise CallerError(
                f"{flag}: each worker would have its own {uri}. Use a store that they share: {option} {example}"
            )
    if settings.a2a_grpc is not None:
        raise CallerError(
            f"{flag}: one process alone can listen on {settings.a2a_grpc}. Use --workers 1, or A2A over HTTP without "
            "--a2a-grpc"
        )
    return usable_cpus() if settings.workers == "auto" else settings.workers


def usable_cpus(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Returns the number of CPUs that this process may use, by its affinity and the limit of its container."""
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1

    with contextlib.suppress(OSError, ValueError):  # there is no limit, or it has another form
        quota, period = (cgroup / "cpu.max").read_text().split()
        count = min(count, math.ceil(int(quota) / int(period)))
    return max(count, 1)


def serve_with_workers(agents_dir: Path, settings: ServeSettings, count: int, *, origins: dict[str, str]) -> None:
    """Serves a folder until SIGINT or SIGTERM. Raises the error of a worker that can't start."""
    allow_many_files()
    with bound(settings.host, settings.port) as listener:
        start = Start(
            number=0,
            agents_dir=str(agents_dir),
            settings=secured_settings(agents_dir, settings, is_loopback=is_loopback_listener(listener)),
            address=listener.getsockname()[:2],
            import_path=sys.path,
            origins=origins,
        )
        asyncio.run(_Supervisor(start, listener, count).run())


class _Worker:
    """A process that serves."""

    def __init__(self, number: int, process: asyncio.subprocess.Process, channel: Channel) -> None:
        self.number = number
        self.process = process
        self.channel = channel
        self.address = ""
        self.failure: str | None = None

    def signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)


class _Supervisor:
    """Keeps a number of workers running, and gives them the connections of clients."""

    def __init__(self, start: Start, listener: socket.socket, count: int) -> None:
        self._start = start
        self._listener = listener
        self._count = count
        self._workers: dict[int, _Worker] = {}
        self._receiving: deque[_Worker] = deque()
        """The workers that take connections; the one whose turn it is comes first."""

        self._returned: deque[socket.socket] = deque()
        """Connections that a worker which has ended, or stops, never received."""

        self._has_started = False
        self._is_accepting = False
        self._is_stopping = asyncio.Event()

    async def run(self) -> None:
        """Returns after a signal, when all workers have ended."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._is_stopping.set)

        keeping = [asyncio.create_task(self._keep_running(number)) for number in range(1, self._count + 1)]
        stopping = asyncio.create_task(self._is_stopping.wait())
        try:
            ended, _ = await asyncio.wait((*keeping, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._is_stopping.set()
            await self._end_all(keeping)
            self._stop_accepting()
        for task in ended:
            await task

    async def _end_all(self, keeping: list[asyncio.Task[None]]) -> None:
        give_up_at = time.monotonic() + self._start.settings.grace_seconds + _STOP_SECONDS
        running = set(keeping)
        while running and time.monotonic() < give_up_at:
            # Again each second: a process that is being started may not see the first signal.
            for worker in self._workers.values():
                worker.signal(signal.SIGTERM)
            _, running = await asyncio.wait(running, timeout=1)
        for worker in self._workers.values():
            worker.signal(signal.SIGKILL)
        await asyncio.gather(*keeping, return_exceptions=True)

    # Processes

    async def _keep_running(self, number: int) -> None:
        """Starts a worker, and another one each time it has ended. Raises Unavailable if the first can't start."""
        short_lives = 0
        while not self._is_stopping.is_set():
            started_at = time.monotonic()
            worker = await self._start_worker(number)
            status = await worker.process.wait()
            self._remove(worker)
            if self._is_stopping.is_set():
                return
            if not self._has_started:
                raise Unavailable(worker.failure or f"Worker {number} {_reason(status)} before it was ready")

            is_stable = time.monotonic() - started_at >= _STABLE_SECONDS
            short_lives = 0 if is_stable else short_lives + 1
            delay = restart_delay(short_lives)
            reason = f"can't start: {worker.failure}" if worker.failure else _reason(status)
            _log.error("worker %d %s; it is started again%s", number, reason, f" in {delay:g} s" if delay else "")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._is_stopping.wait()

    async def _start_worker(self, number: int) -> _Worker:
        own_end, workers_end = channel_sockets()
        with workers_end:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", "greenroom.cli.worker", str(workers_end.fileno()), str(number),
                stdin=asyncio.subprocess.PIPE,  # ends when this process ends
                pass_fds=(workers_end.fileno(),),
                process_group=0,  # Ctrl-C reaches this process only
            )  # fmt: skip
        worker = self._workers[number] = _Worker(number, process, Channel(own_end))
        worker.channel.open(partial(self._handle, worker))
        worker.channel.send(msgspec.structs.replace(self._start, number=number))
        return worker

    def _remove(self, worker: _Worker) -> None:
        worker.channel.read()  # what it has sent at last
        del self._workers[worker.number]
        self._stop_giving(worker)
        worker.channel.close()

    # Messages

    def _handle(self, worker: _Worker, message: Message, _sockets: list[socket.socket]) -> None:
        match message:
            case Ready(address):
                worker.address = address
                self._ready(worker)
            case Failed(detail):
                worker.failure = detail
            case Received():
                self._give_returned()
            case Stopping():
                self._stop_giving(worker)
            case _:
                pass

    def _ready(self, worker: _Worker) -> None:
        self._receiving.append(worker)
        self._tell_workers()
        if self._has_started:
            self._give_returned()
        elif len(self._receiving) == self._count:
            self._has_started = True
            self._listener.setblocking(False)
            self._listener.listen(_BACKLOG)
            self._accept_again()
            worker.channel.send(Announce())

    def _tell_workers(self) -> None:
        for worker in self._receiving:
            others = [other for other in self._receiving if other is not worker]
            worker.channel.send(Workers([other.address for other in others]), [other.channel.end for other in others])

    # Connections

    def _next_worker(self) -> _Worker | None:
        """The worker that gets the next connection; None while all have to catch up."""
        free = [worker for worker in self._receiving if worker.channel.unacknowledged < _MAX_UNACKNOWLEDGED]
        return min(free, key=lambda one: one.channel.unacknowledged // _BUSIER, default=None)

    def _give(self, worker: _Worker, connection: socket.socket) -> None:
        self._receiving.remove(worker)
        self._receiving.append(worker)
        worker.channel.send_connection(connection)

    def _give_returned(self) -> None:
        while self._returned and (worker := self._next_worker()) is not None:
            self._give(worker, self._returned.popleft())
        self._accept_again()

    def _stop_giving(self, worker: _Worker) -> None:
        if worker in self._receiving:
            self._receiving.remove(worker)
            self._tell_workers()
        self._returned.extend(worker.channel.take_back())
        self._give_returned()
        if self._is_stopping.is_set() and not self._receiving:
            self._stop_accepting()
            for closing in (self._listener, *self._returned):  # so that clients try another server
                closing.close()
            self._returned.clear()

    def _accept_again(self) -> None:
        if self._has_started and not self._is_accepting and self._listener.fileno() != -1:
            self._is_accepting = True
            asyncio.get_running_loop().add_reader(self._listener, self._accept)

    def _stop_accepting(self) -> None:
        if self._is_accepting:
            self._is_accepting = False
            asyncio.get_running_loop().remove_reader(self._listener)

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            worker = self._next_worker()
            if worker is None:
                self._stop_accepting()
                return
            try:
                connection, _address = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _NO_FILES:
                    raise
                _log.error("connections can't be accepted: %s", error.strerror)
                self._stop_accepting()
                asyncio.get_running_loop().call_later(1.0, self._accept_again)
                return
            self._give(worker, connection)


def restart_delay(short_lives: int) -> float:
    """Returns the seconds before the next start of a worker that has ended early so many times in a row."""
    if short_lives <= 1:
        return 0.0
    return min(_FIRST_DELAY * 2.0 ** (short_lives - 2), _LONGEST_DELAY)


def _reason(status: int) -> str:
    if status >= 0:
        return f"ended with exit code {status}"
    with contextlib.suppress(ValueError):
        return f"was ended by {signal.Signals(-status).name}"
    return f"was ended by signal {-status}"
