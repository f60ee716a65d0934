"""The servers under test: how each is started, watched and stopped. Nothing here knows what is measured."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from benchmarks import procfs
from benchmarks.connection import HOST, connect, request_bytes

Store = Literal["memory", "sqlite"]
STORES: tuple[Store, ...] = ("memory", "sqlite")

HERE = Path(__file__).parent
APPS = HERE / "apps"
START_SECONDS = 60.0
CORES = frozenset(os.sched_getaffinity(0))
SERVER_CORE = min(CORES)


@dataclass(frozen=True)
class Contender:
    """command: makes the command line from a port, a session service URI and a folder with apps for each server.
    uses_all_cores: not only the servers' core."""

    name: str
    command: Callable[[int, str, Path], list[str]]
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    uses_all_cores: bool = False


def adk(executables: Path) -> Contender:
    """ADK's server as its documentation starts it, made quiet; in-memory artifacts and memory spare it local files."""

    def command(port: int, sessions: str, apps: Path) -> list[str]:
        options = ["--host", HOST, "--port", str(port), "--no-reload", "--log_level", "warning"]
        services = ["--artifact_service_uri", "memory://", "--memory_service_uri", "memory://"]
        program = [str(executables / "adk"), "api_server", str(apps / "adk")]
        return [*program, *options, *services, "--session_service_uri", sessions]

    return Contender("ADK", command)


def tuned_adk(executables: Path) -> Contender:
    """The same in an environment with faster parts, and without tracing."""
    return Contender("ADK tuned", adk(executables).command, {"OTEL_SDK_DISABLED": "true"})


def greenroom() -> Contender:
    def command(port: int, sessions: str, apps: Path) -> list[str]:
        program = [str(Path(sys.executable).with_name("greenroom")), "serve", str(apps / "greenroom")]
        limits = ["--limits-request-items", "1000000"]  # a session of 50,000 events is imported in one request
        return [*program, "--host", HOST, "--port", str(port), "--session-service", sessions, *limits]

    return Contender("greenroom", command)


def greenroom_on(uri: str, name: str = "greenroom") -> Contender:
    """greenroom with its sessions at the URI, whatever store the benchmark asks for."""
    ours = greenroom()
    return Contender(name, lambda port, _, apps: ours.command(port, uri, apps))


def greenroom_workers(uri: str, count: int) -> Contender:
    """So many processes on one port, with their sessions at the URI."""
    ours = greenroom()

    def command(port: int, _sessions: str, apps: Path) -> list[str]:
        return [*ours.command(port, uri, apps), "--workers", str(count)]

    return Contender(f"{count} workers", command, uses_all_cores=True)


def ceiling() -> Contender:
    def command(port: int, sessions: str, apps: Path) -> list[str]:
        program = [sys.executable, "-m", "uvicorn", "benchmarks.ceiling:application", "--host", HOST]
        return [*program, "--port", str(port), "--loop", "uvloop", "--http", "httptools", "--no-access-log"]

    return Contender("raw ASGI", command, {"PYTHONPATH": str(HERE.parent)})


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def session_service_uri(store: Store, directory: Path) -> str:
    """Four slashes: an absolute path, whether or not a server takes the first one for a separator."""
    return "memory://" if store == "memory" else f"sqlite:////{str(directory / 'sessions.db').lstrip('/')}"


class Server:
    """One running server with a directory of its own. Leaving the context kills it without ceremony."""

    def __init__(
        self,
        contender: Contender,
        directory: Path,
        *,
        store: Store = "memory",
        apps: Path = APPS,
        environment: Mapping[str, str] | None = None,
        start_seconds: float = START_SECONDS,
    ) -> None:
        self.name = contender.name
        self.port = free_port()
        directory.mkdir(parents=True, exist_ok=True)
        self._log = directory / "server.log"
        self._command = contender.command(self.port, session_service_uri(store, directory), apps)
        self._cores = CORES if contender.uses_all_cores else {SERVER_CORE}
        self._environment = {**plain_environment(), **contender.environment, **(environment or {})}
        self.directory = directory
        self._start_seconds = start_seconds
        self._process: subprocess.Popen[bytes] | None = None

    def spawn(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self.directory,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=partial(_begin_as_server, self._cores),
            )

    async def accepting(self, poll_seconds: float = 0.002) -> None:
        """Wait until the port takes connections. Raises RuntimeError, with the end of the log, if that can't happen."""
        give_up_at = time.monotonic() + self._start_seconds
        while True:
            try:
                (await connect(self.port)).close()
                return
            except OSError:
                assert self._process is not None
                if self._process.poll() is not None or time.monotonic() > give_up_at:
                    raise RuntimeError(f"{self.name} did not start:\n{self.log_tail()}") from None
            await asyncio.sleep(poll_seconds)

    async def __aenter__(self) -> Self:
        self.spawn()
        try:
            await self.accepting(0.05)
            connection = await connect(self.port)
            reply = await connection.exchange(request_bytes("GET", "/health"))
            connection.close()
            if reply.status != 200:
                raise RuntimeError(f"{self.name} is not healthy: HTTP {reply.status}\n{self.log_tail()}")
        except BaseException:
            self.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def end(self) -> None:
        """Ask the server to stop, and wait until it has, with all that it had to store."""
        assert self._process is not None
        self._process.terminate()
        await asyncio.to_thread(self._process.wait, self._start_seconds)

    def stop(self) -> None:
        if self._process is not None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self._process.wait()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def cpu_seconds(self) -> float:
        return procfs.cpu_seconds(self.pid)

    def process_seconds(self) -> float:
        return procfs.process_seconds(self.pid)

    def memory_bytes(self) -> int:
        return procfs.memory_bytes(self.pid)

    def peak_memory_bytes(self) -> int:
        return procfs.peak_memory_bytes(self.pid)

    def open_files(self) -> int:
        return procfs.open_files(self.pid)

    def log_tail(self) -> str:
        return self._log.read_text(errors="replace")[-2000:]

    def logged(self, phrase: str) -> int:
        """In how many lines of its log the server wrote the phrase."""
        with self._log.open(errors="replace") as lines:
            return sum(phrase in line for line in lines)


def plain_environment() -> dict[str, str]:
    """Ours without Python's own switches: a sandbox that forbids bytecode would make a server compile as it runs."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def pin_generator() -> None:
    """Leave the first core to the servers, if there is another one."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > 1:
        os.sched_setaffinity(0, cores[1:])


_libc = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def _begin_as_server(cores: Collection[int]) -> None:
    """In the new process: keep to its cores, and die with the benchmark however that ends."""
    os.sched_setaffinity(0, cores)
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
