"""The base of sandboxes of a service: each is created when it is first used, and a shell script runs its commands."""

from __future__ import annotations

import asyncio
import base64
import codecs
import contextlib
import logging
import mimetypes
import time
from abc import abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from shlex import quote
from typing import Any, Generic, Literal, TypeVar
from uuid import uuid4

import msgspec

from greenroom.environments import remote_program
from greenroom.environments.files import MAX_BYTES_IN_ALL, MAX_FILE_BYTES, MAX_FILES, File, FileStatus, is_safe_name
from greenroom.environments.process import ExecutionResult
from greenroom.environments.sandbox import OutputListener, Sandbox, SandboxLimits
from greenroom.errors import AgentConfigError, GreenroomError, SandboxLost, ToolError

MAX_READ_BYTES = 16 * 1024 * 1024

_SECONDS_TO_STOP = 5
_SECONDS_TO_ANSWER = 15.0
_SECONDS_FOR_PROGRAM = 30.0
"""For uses of the program that run no code."""

_SECONDS_BETWEEN_PIECES = 0.5
_TIMED_OUT = (124, 137)
"""Exit codes of `timeout`: 137 if the command had to be killed."""

_MAX_LISTING_BYTES = 16 * 1024 * 1024
_REQUESTS_AT_A_TIME = 8
_BINARY = "application/octet-stream"
_PROGRAM = "program.py"

_log = logging.getLogger("greenroom.tools")

SandboxT = TypeVar("SandboxT")
ItemT = TypeVar("ItemT")
T = TypeVar("T")


class RemoteEnvironment(Sandbox, Generic[SandboxT]):
    """A sandbox of a service.

    The sandbox is created by the first command, code or file, not by `initialize`, so that a conversation that needs
    none costs none. `close` kills it. When it has ended before, whatever finds that out raises SandboxLost, and the
    next use creates a new one. A service that fails raises ToolError.

    A command runs in bash or, where there is none, in sh; it reads no input, and what it leaves in the background goes
    on. If it takes too long, or its run is cancelled, it is stopped with all that it started. Commands run side by
    side; code waits for other code. The sandbox needs `timeout`, `base64` and the like (GNU coreutils, or BusyBox), and
    `python3` for code and for lists of files.

    Of the `limits` only `output_bytes` counts: the others are the service's, as is the network.

    timeout: the sandbox ends when it was not used for so many seconds; also the limit of a command that has none of
        its own.
    env_vars: variables of the sandbox's processes.
    """

    service: str
    """Its name in messages."""

    limits = SandboxLimits()
    ends_background_processes = False

    def __init__(self, *, working_dir: Path | str, timeout: float, env_vars: dict[str, str] | None) -> None:
        if timeout <= 0:
            raise AgentConfigError(f"{type(self).__name__}: timeout must be more than 0")
        self._working_dir = Path(working_dir)
        self._timeout = timeout
        self._env_vars = env_vars or {}
        self._sandbox: asyncio.Task[SandboxT] | None = None
        self._ends_at = 0.0
        """The end of the sandbox if it isn't used before, on the clock of `time.monotonic`."""

        self._code_lock = asyncio.Lock()
        self._program_folder = ""
        self._has_program = False
        """The program was copied into the sandbox, and knows its files."""

    @property
    def working_dir(self) -> Path:
        return self._working_dir

    @property
    def is_running(self) -> bool:
        created = self._sandbox
        return created is not None and created.done() and not _has_failed(created) and time.monotonic() < self._ends_at

    async def close(self) -> None:
        """Kills the sandbox. A service that can't be reached is only logged: it ends an unused sandbox by itself."""
        starting = self._sandbox
        self._sandbox = None
        if starting is None:
            return

        try:
            sandbox = await starting
        except Exception as error:  # the service's SDK may raise anything
            _log.info("There is no sandbox at %s to stop: %s", self.service, error)
            return

        try:
            await self._kill(sandbox)
        except Exception as error:
            if await self._has_ended(sandbox, error):
                await self._release(sandbox)
            else:
                _log.warning("The sandbox at %s could not be stopped: %s", self.service, error)

    async def execute(
        self, command: str, *, timeout: float | None = None, on_output: OutputListener | None = None
    ) -> ExecutionResult:
        limit = self._timeout if timeout is None else timeout
        async with self._in_use(limit) as sandbox:
            return (await self._run_command(sandbox, command, limit, on_output)).result()

    async def run_python(
        self,
        code: str,
        *,
        timeout: float | None = None,
        keeps_variables: bool = False,
        on_output: OutputListener | None = None,
    ) -> ExecutionResult:
        limit = self._timeout if timeout is None else timeout
        async with self._code_lock, self._in_use(limit + _SECONDS_FOR_PROGRAM) as sandbox:
            path = f"{self._program_folder}/{remote_program.CODE}"
            await self._write(sandbox, path, code.encode(errors="surrogatepass"))
            if not keeps_variables:
                return (await self._run_command(sandbox, self._program("run"), limit, on_output)).result()

            try:
                ran = (await self._run_command(sandbox, self._program("keep"), limit, on_output)).result()
            except asyncio.CancelledError:
                await self._try_to_run(sandbox, self._program("kill"))
                raise
            if ran.timed_out:
                await self._run_command(sandbox, self._program("stop"), _SECONDS_FOR_PROGRAM)
                line_end = "\n" if ran.stderr and not ran.stderr.endswith("\n") else ""
                ran = replace(ran, stderr=f"{ran.stderr}{line_end}{remote_program.FORGOTTEN}\n")
            return ran

    async def read_file(self, path: str | Path) -> bytes:
        """At most 16 MiB. Raises FileNotFoundError."""
        async with self._in_use() as sandbox:
            return await self._read_whole(sandbox, path, MAX_READ_BYTES)

    async def write_file(self, path: str | Path, content: str | bytes) -> None:
        data = content.encode() if isinstance(content, str) else content
        await self._write_all([(str(path), data)])

    async def write_files(self, files: Sequence[File]) -> None:
        for file in files:
            if not is_safe_name(file.name):
                raise ValueError(f"The name {file.name!r} is no relative path, or leads out of its folder")
        if files:
            await self._write_all([(file.name, file.content) for file in files])

    async def list_files(self) -> list[FileStatus]:
        async with self._code_lock, self._in_use(_SECONDS_FOR_PROGRAM) as sandbox:
            listed = await self._ask_program(sandbox, "list", list[tuple[str, int, int]])
        return [FileStatus(*file) for file in listed if is_safe_name(file[0])]

    async def changed_files(self) -> tuple[list[File], list[str]]:
        """The program's answers are checked, because code may change it."""
        async with self._code_lock, self._in_use(_SECONDS_FOR_PROGRAM) as sandbox:
            changes = await self._ask_program(sandbox, "changed", _Changes)
            names = [name for name in changes.files[:MAX_FILES] if is_safe_name(name)]
            contents = await _gather(lambda name: self._content(sandbox, name), names)

        files: list[File] = []
        left_out = [_printable(name) for name in changes.files if name not in names]
        bytes_left = MAX_BYTES_IN_ALL
        for name, content in zip(names, contents, strict=True):
            if content is None or len(content) > bytes_left:
                left_out.append(name)
                continue
            bytes_left -= len(content)
            files.append(File(name=name, content=content, mime_type=mimetypes.guess_type(name)[0] or _BINARY))

        left_out += map(_printable, changes.left_out[:MAX_FILES])
        if changes.not_named > 0:
            left_out.append(f"{changes.not_named} more")
        return files, left_out

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

    async def _start(self) -> SandboxT:
        await self.initialize()  # checks the settings
        return await self._create()

    @contextlib.asynccontextmanager
    async def _in_use(self, seconds: float = 0) -> AsyncGenerator[SandboxT]:
        """The sandbox, for a use of up to so many seconds. Raises SandboxLost, and ToolError for the SDK's errors."""
        if self._sandbox is None or _has_failed(self._sandbox):
            self._sandbox = asyncio.create_task(self._start())
            self._ends_at = time.monotonic() + self._timeout
            self._program_folder = f"/tmp/greenroom-{uuid4().hex}"
            self._has_program = False
        starting = self._sandbox
        try:
            sandbox = await asyncio.shield(starting)  # others may wait for it, too
        except GreenroomError:
            raise
        except Exception as error:  # the service's SDK may raise anything
            raise ToolError(f"A sandbox of {self.service} could not be created: {error}") from error

        try:
            await self._extend(sandbox, seconds + _SECONDS_TO_STOP + _SECONDS_TO_ANSWER)
            yield sandbox
        except FileNotFoundError:
            raise
        except Exception as error:  # the service's SDK may raise anything
            if await self._has_ended(sandbox, error):
                if self._sandbox is starting:
                    self._sandbox = None
                    await self._release(sandbox)
                raise SandboxLost(self.service) from error
            if isinstance(error, GreenroomError):
                raise
            raise ToolError(f"The sandbox at {self.service} failed: {error}") from error

    async def _run_command(
        self,
        sandbox: SandboxT,
        command: str,
        limit: float,
        on_output: OutputListener | None = None,
        *,
        max_bytes: int | None = None,
    ) -> _Ran:
        folder = f"/tmp/greenroom-{uuid4().hex}"
        script = _RUN.format(
            folder=folder,
            working_dir=quote(str(self._working_dir)),
            preparation=self._preparation(),
            command=quote(command),
            seconds=f"{limit:.3f}".removesuffix(".000"),
            seconds_to_stop=_SECONDS_TO_STOP,
            max_bytes=max_bytes or self.limits.output_bytes,
        )

        listening: asyncio.Task[None] | None = None
        pieces = _Pieces(on_output)
        if on_output is not None:
            listening = asyncio.create_task(self._listen(sandbox, folder, pieces))

        started_at = time.monotonic()
        try:
            output = await self._run(sandbox, script, limit + _SECONDS_TO_STOP + _SECONDS_TO_ANSWER)
        except asyncio.CancelledError:
            await self._try_to_run(sandbox, _STOP.format(folder=folder))
            raise
        finally:
            if listening is not None:
                listening.cancel()
                await asyncio.wait([listening])
        self._has_program = True

        ran = _parse(output, is_late=time.monotonic() - started_at >= limit)
        pieces.add_rest(ran)
        return ran

    async def _listen(self, sandbox: SandboxT, folder: str, pieces: _Pieces) -> None:
        """Fetches what a command has printed, again and again, since the SDKs' own streams have no limit."""
        while True:
            await asyncio.sleep(_SECONDS_BETWEEN_PIECES)
            script = _READ_OUTPUT.format(
                folder=folder,
                stdout=pieces.sizes["stdout"],
                stderr=pieces.sizes["stderr"],
                max_bytes=self.limits.output_bytes,
            )
            try:
                output = await self._run(sandbox, script, _SECONDS_TO_ANSWER)
                stdout, stderr = (_decode(line) for line in output.splitlines()[-2:])
            except Exception as error:  # the SDK may raise anything; all output comes at the end, too
                _log.info("Output of a command at %s could not be read: %s", self.service, error)
                return

            pieces.add("stdout", stdout[: self.limits.output_bytes - pieces.sizes["stdout"]])
            pieces.add("stderr", stderr[: self.limits.output_bytes - pieces.sizes["stderr"]])

    async def _try_to_run(self, sandbox: SandboxT, script: str) -> None:
        """Stops what a cancelled run has started."""
        try:
            await self._run(sandbox, script, _SECONDS_TO_ANSWER)
        except Exception as error:  # the service's SDK may raise anything; the command ends by its own timeout
            _log.warning("A cancelled command at %s could not be stopped: %s", self.service, error)

    def _program(self, command: str) -> str:
        return f"python3 -u {self._program_folder}/{_PROGRAM} {command}"

    def _preparation(self) -> str:
        """The part of a script that lets the program know of files that no command has written."""
        if self._has_program:
            return _NOTE_GIVEN.format(folder=self._program_folder, note=self._program("given"))

        return _BEGIN.format(
            folder=self._program_folder,
            path=f"{self._program_folder}/{_PROGRAM}",
            source=_source(),
            begin=self._program("begin"),
        )

    async def _ask_program(self, sandbox: SandboxT, command: str, kind: type[T]) -> T:
        ran = await self._run_command(
            sandbox, self._program(command), _SECONDS_FOR_PROGRAM, max_bytes=_MAX_LISTING_BYTES
        )
        try:
            return msgspec.json.decode(ran.stdout.data, type=kind)
        except msgspec.MsgspecError as error:
            reason = ran.result().stderr.strip()[-200:] or str(error)
            raise ToolError(f"The files of the sandbox can't be listed: {reason}") from error

    async def _read_whole(self, sandbox: SandboxT, path: str | Path, max_bytes: int) -> bytes:
        content = bytearray()
        async with contextlib.aclosing(self._read(sandbox, self._absolute(path))) as chunks:
            async for chunk in chunks:
                content += chunk
                if len(content) > max_bytes:
                    raise too_large(path)
        return bytes(content)

    async def _content(self, sandbox: SandboxT, name: str) -> bytes | None:
        """None for a file that is gone or too large."""
        try:
            return await self._read_whole(sandbox, name, MAX_FILE_BYTES)
        except (FileNotFoundError, ToolError):
            return None

    async def _write_all(self, files: Sequence[tuple[str, bytes]]) -> None:
        async with self._in_use() as sandbox:
            written = [(self._absolute(name), content) for name, content in files]
            if self._has_program:
                names = msgspec.json.encode([name for name, _ in files])
                written.append((f"{self._program_folder}/given-{uuid4().hex}.json", names))
            await _gather(lambda file: self._write(sandbox, *file), written)

    def _absolute(self, path: str | Path) -> str:
        return str(self._working_dir / path)


def too_large(path: str | Path) -> ToolError:
    return ToolError(f"The file {str(path)!r} is larger than {MAX_READ_BYTES // 2**20} MiB")


def _has_failed(task: asyncio.Task[Any]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


async def _gather(function: Callable[[ItemT], Awaitable[T]], items: Sequence[ItemT]) -> list[T]:
    """The function's results for the items, of which it has a few at a time."""
    slots = asyncio.Semaphore(_REQUESTS_AT_A_TIME)

    async def result_for(item: ItemT) -> T:
        async with slots:
            return await function(item)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(result_for(item)) for item in items]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


def _printable(text: str) -> str:
    """Text from a sandbox, for messages: on one line, and short."""
    return text[:200] if text.isprintable() else ascii(text[:200])


@cache
def _source() -> str:
    return base64.b64encode(Path(remote_program.__file__).read_bytes()).decode()


_BEGIN = """\
mkdir -p {folder}
echo {source} | base64 -d >{path}.$$ && mv {path}.$$ {path}
{begin} >/dev/null 2>&1 </dev/null
"""

_NOTE_GIVEN = """\
for given in {folder}/given-*; do
    [ -e "$given" ] && {note} >/dev/null 2>&1 </dev/null
    break
done
"""

_RUN = """\
folder={folder}
mkdir -p $folder {working_dir} && cd {working_dir} || exit 1
{preparation}
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

_READ_OUTPUT = """\
for part in out:{stdout} err:{stderr}; do
    printf :
    tail -c +$((${{part#*:}} + 1)) {folder}/${{part%:*}} 2>/dev/null | head -c {max_bytes} | base64 | tr -d '\\n'
    echo
done
"""
"""Prints what a command that runs has printed after the given numbers of bytes."""

_STOP = """\
folder={folder}
mkdir -p $folder && : >$folder/cancelled
[ -e $folder/pid ] && {{ pid=$(cat $folder/pid); kill -s KILL -- -$pid || kill -s KILL $pid; }}
"""


@dataclass(frozen=True)
class _Output:
    """The beginning of a stream, and the size of all of it."""

    data: bytes
    size: int

    def text(self) -> str:
        cut = f"… ({self.size} bytes in all)" if self.size > len(self.data) else ""
        return self.data.decode(errors="replace") + cut


@dataclass(frozen=True)
class _Ran:
    exit_code: int
    stdout: _Output
    stderr: _Output
    timed_out: bool

    def result(self) -> ExecutionResult:
        return ExecutionResult(self.exit_code, self.stdout.text(), self.stderr.text(), self.timed_out)


class _Pieces:
    """Passes output on as it comes. sizes: of what was passed on."""

    def __init__(self, listener: OutputListener | None) -> None:
        self._listener = listener
        self.sizes: dict[Literal["stdout", "stderr"], int] = {"stdout": 0, "stderr": 0}
        decoder = codecs.getincrementaldecoder("utf-8")
        self._decoders = {"stdout": decoder("replace"), "stderr": decoder("replace")}

    def add(self, name: Literal["stdout", "stderr"], data: bytes, *, is_last: bool = False) -> None:
        self.sizes[name] += len(data)
        text = self._decoders[name].decode(data, is_last)
        if text and self._listener is not None:
            self._listener(name, text)

    def add_rest(self, ran: _Ran) -> None:
        self.add("stdout", ran.stdout.data[self.sizes["stdout"] :], is_last=True)
        self.add("stderr", ran.stderr.data[self.sizes["stderr"] :], is_last=True)


class _Changes(msgspec.Struct):
    """The program's answer to `changed`."""

    files: list[str]
    left_out: list[str]
    not_named: int


def _parse(output: str, *, is_late: bool) -> _Ran:
    """Reads what `_RUN` printed: it may follow what the shell prints when it starts."""
    try:
        code, stdout_size, stdout, stderr_size, stderr = output.splitlines()[-5:]
        return _Ran(
            exit_code=int(code),
            stdout=_Output(_decode(stdout), int(stdout_size)),
            stderr=_Output(_decode(stderr), int(stderr_size)),
            timed_out=is_late and int(code) in _TIMED_OUT,
        )
    except ValueError:
        raise ToolError(
            f"The sandbox could not run the command: {output[-1000:].strip() or 'it printed nothing'}"
        ) from None


def _decode(line: str) -> bytes:
    return base64.b64decode(line.removeprefix(":"), validate=True)
