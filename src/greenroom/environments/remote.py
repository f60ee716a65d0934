"""The base of environments that are sandboxes of a service: one sandbox, created when it is first
used, in which a shell script runs commands.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import time
from abc import abstractmethod
from collections.abc import AsyncGenerator
from pathlib import Path
from shlex import quote
from typing import Generic, TypeVar
from uuid import uuid4

from greenroom.environments.environment import BaseEnvironment
from greenroom.environments.process import MAX_OUTPUT_BYTES, ExecutionResult
from greenroom.errors import AgentConfigError, SandboxLost, ToolError

MAX_FILE_BYTES = 16 * 1024 * 1024

_SECONDS_TO_STOP = 5
_SECONDS_TO_ANSWER = 15.0
_TIMED_OUT = (124, 137)
"""Exit codes of `timeout`: 137 if the command had to be killed."""

_log = logging.getLogger("greenroom.tools")

SandboxT = TypeVar("SandboxT")


class RemoteEnvironment(BaseEnvironment, Generic[SandboxT]):
    """A sandbox of a service, as an environment.

    The sandbox is created by the first command or file, not by `initialize`, so that a conversation that needs none
    costs none. `close` kills it. When it has ended before, whatever finds that out raises SandboxLost, and the next
    command or file creates a new one.

    A command runs in bash or, where there is none, in sh; it reads no input, and what it leaves in the background goes
    on. If it takes too long, or its run is cancelled, it is stopped with all that it started. Of each output stream the
    first 100,000 bytes are kept. The sandbox needs `timeout`, `base64` and the like (GNU coreutils, or BusyBox).

    One sandbox serves all sessions of the agents that have this environment: they see each other's files.

    timeout: the sandbox ends when it was not used for so many seconds; also the limit of a command that has none of
        its own.
    env_vars: variables of the sandbox's processes.
    """

    service: str
    """Its name in messages."""

    def __init__(self, *, working_dir: Path | str, timeout: float, env_vars: dict[str, str] | None) -> None:
        if timeout <= 0:
            raise AgentConfigError(f"{type(self).__name__}: timeout must be more than 0")
        self._working_dir = Path(working_dir)
        self._timeout = timeout
        self._env_vars = env_vars or {}
        self._sandbox: asyncio.Task[SandboxT] | None = None
        self._ends_at = 0.0
        """The end of the sandbox if it isn't used before, on the clock of `time.monotonic`."""

    @property
    def working_dir(self) -> Path:
        return self._working_dir

    async def close(self) -> None:
        """Kills the sandbox. A service that can't be reached is only logged: it ends an unused sandbox by itself."""
        starting = self._sandbox
        self._sandbox = None
        if starting is None:
            return

        try:
            await self._kill(await starting)
        except Exception as error:  # the service's SDK may raise anything
            _log.warning("The sandbox at %s could not be stopped: %s", self.service, error)

    async def execute(self, command: str, *, timeout: float | None = None) -> ExecutionResult:
        """Raises SandboxLost, and the SDK's errors if the service can't be reached."""
        limit = self._timeout if timeout is None else timeout
        folder = f"/tmp/greenroom-{uuid4().hex}"
        script = _RUN.format(
            folder=folder,
            working_dir=quote(str(self._working_dir)),
            command=quote(command),
            seconds=f"{limit:.3f}".removesuffix(".000"),
            seconds_to_stop=_SECONDS_TO_STOP,
            max_bytes=MAX_OUTPUT_BYTES,
        )

        async with self._in_use(limit) as sandbox:
            started_at = time.monotonic()
            try:
                output = await self._run(sandbox, script, limit + _SECONDS_TO_STOP + _SECONDS_TO_ANSWER)
            except asyncio.CancelledError:
                await self._stop(sandbox, folder)
                raise
            return _parse(output, is_late=time.monotonic() - started_at >= limit)

    async def read_file(self, path: str | Path) -> bytes:
        """At most 16 MiB. Raises FileNotFoundError, SandboxLost, ToolError, and the SDK's errors."""
        content = bytearray()
        async with self._in_use() as sandbox, contextlib.aclosing(self._read(sandbox, self._absolute(path))) as chunks:
            async for chunk in chunks:
                content += chunk
                if len(content) > MAX_FILE_BYTES:
                    raise too_large(path)
        return bytes(content)

    async def write_file(self, path: str | Path, content: str | bytes) -> None:
        """Raises SandboxLost, and the SDK's errors."""
        data = content.encode() if isinstance(content, str) else content
        async with self._in_use() as sandbox:
            await self._write(sandbox, self._absolute(path), data)

    @abstractmethod
    async def _create(self) -> SandboxT:
        """Creates a sandbox that ends after `_timeout` seconds without use."""

    @abstractmethod
    async def _kill(self, sandbox: SandboxT) -> None: ...

    async def _extend(self, sandbox: SandboxT, seconds: float) -> None:
        """Called before each use, which takes up to so many seconds: puts off the sandbox's end.

        Asks the service only when a quarter of the time is over, or the use takes longer.
        """
        now = time.monotonic()
        if self._ends_at - now >= max(seconds, self._timeout * 0.75):
            return

        to_live = max(seconds, self._timeout)
        await self._renew(sandbox, to_live)
        self._ends_at = now + to_live

    async def _renew(self, sandbox: SandboxT, seconds: float) -> None:
        """Lets the sandbox end so many seconds from now.

        Does nothing here: at some services, each request counts as use.
        """

    @abstractmethod
    async def _run(self, sandbox: SandboxT, script: str, seconds: float) -> str:
        """Runs a script of the shell, and returns what it prints.

        seconds: after which the service should have answered.
        """

    @abstractmethod
    def _read(self, sandbox: SandboxT, path: str) -> AsyncGenerator[bytes]:
        """Raises FileNotFoundError."""

    @abstractmethod
    async def _write(self, sandbox: SandboxT, path: str, data: bytes) -> None:
        """Creates or replaces a file, and creates its folders."""

    @abstractmethod
    async def _has_ended(self, sandbox: SandboxT, error: Exception) -> bool:
        """Whether this error was raised because the sandbox is gone."""

    async def _release(self, sandbox: SandboxT) -> None:
        """Closes the connections to a sandbox that has ended. Does nothing here: most SDKs keep none for each."""

    @contextlib.asynccontextmanager
    async def _in_use(self, seconds: float = 0) -> AsyncGenerator[SandboxT]:
        """The sandbox, for a use of up to so many seconds. Raises SandboxLost."""
        if self._sandbox is None or _has_failed(self._sandbox):
            self._sandbox = asyncio.create_task(self._create())
            self._ends_at = time.monotonic() + self._timeout
        starting = self._sandbox
        sandbox = await asyncio.shield(starting)  # others may wait for it, too

        try:
            await self._extend(sandbox, seconds + _SECONDS_TO_STOP + _SECONDS_TO_ANSWER)
            yield sandbox
        except FileNotFoundError:
            raise
        except Exception as error:
            if not await self._has_ended(sandbox, error):
                raise
            if self._sandbox is starting:
                self._sandbox = None
                await self._release(sandbox)
            raise SandboxLost(self.service) from error

    async def _stop(self, sandbox: SandboxT, folder: str) -> None:
        try:
            await self._run(sandbox, _STOP.format(folder=folder), _SECONDS_TO_ANSWER)
        except Exception as error:  # the service's SDK may raise anything; the command ends by its own timeout
            _log.warning("A cancelled command at %s could not be stopped: %s", self.service, error)

    def _absolute(self, path: str | Path) -> str:
        return str(self._working_dir / path)


def too_large(path: str | Path) -> ToolError:
    return ToolError(f"The file {str(path)!r} is larger than {MAX_FILE_BYTES // 2**20} MiB")


def _has_failed(task: asyncio.Task[SandboxT]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


_RUN = """\
folder={folder}
mkdir -p $folder {working_dir} && cd {working_dir} || exit 1
shell=$(command -v bash || command -v sh)
timeout -k {seconds_to_stop} {seconds} "$shell" -c {command} </dev/null >$folder/out 2>$folder/err &
pid=$!
echo $pid >$folder/pid
[ -e $folder/cancelled ] && kill -s KILL -- -$pid
wait $pid
code=$?
echo
echo $code
for stream in out err; do
    wc -c <$folder/$stream
    printf :
    head -c {max_bytes} $folder/$stream | base64 | tr -d '\\n'
    echo
done
rm -rf $folder
"""
"""Runs a command, and prints five lines: its exit code, and of each output stream the size and, after
a colon in base64, the beginning. `timeout` makes a process group of all that the command starts.
"""

_STOP = """\
folder={folder}
mkdir -p $folder && : >$folder/cancelled
[ -e $folder/pid ] && {{ pid=$(cat $folder/pid); kill -s KILL -- -$pid || kill -s KILL $pid; }}
"""


def _parse(output: str, *, is_late: bool) -> ExecutionResult:
    """Reads what `_RUN` printed: it may follow what the shell prints when it starts."""
    try:
        code, *streams = output.splitlines()[-5:]
        exit_code = int(code)
        stdout = _decode(*streams[:2])
        stderr = _decode(*streams[2:])
    except (ValueError, TypeError):
        raise ToolError(
            f"The sandbox could not run the command: {output[-1000:].strip() or 'it printed nothing'}"
        ) from None

    return ExecutionResult(exit_code, stdout, stderr, timed_out=is_late and exit_code in _TIMED_OUT)


def _decode(size: str, beginning: str) -> str:
    data = base64.b64decode(beginning.removeprefix(":"), validate=True)
    total = int(size)
    cut = f"… ({total} bytes in all)" if total > len(data) else ""
    return data.decode(errors="replace") + cut
