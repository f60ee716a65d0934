"""The base of local sandboxes, in which the program of `guest` runs code and keeps files."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import mimetypes
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from greenroom.environments.files import (
    MAX_BYTES_IN_ALL,
    MAX_FILE_BYTES,
    MAX_FILES,
    File,
    FileStatus,
    is_safe_name,
)
from greenroom.environments.guest_connection import GuestConnection, GuestFailure, GuestMessage, GuestWriter
from greenroom.environments.process import ExecutionResult
from greenroom.environments.sandbox import OutputListener, Sandbox, SandboxLimits
from greenroom.errors import ToolError
from greenroom.records.base import JsonObject

SECONDS_TO_ANSWER = 30.0
"""For requests that run no code."""

SECONDS_TO_STOP = 5.0
"""After a command's timeout, or after its run was cancelled, the whole sandbox is ended."""

MAX_READ_BYTES = 64 * 1024 * 1024
MAX_LISTED = 10_000
MAX_LISTING_BYTES = 16 * 1024 * 1024

BINARY = "application/octet-stream"
KILLED = 137
"""Exit code of code whose sandbox was killed, as in a shell."""


class GuestSandbox(Sandbox):
    """Implements a sandbox by requests to the program inside it, which subclasses start and kill."""

    seconds_to_start: float = 30.0

    counts_processes: bool = True
    """The program asks the kernel to limit the processes of its user."""

    def __init__(self, *, limits: SandboxLimits | None = None) -> None:
        self.limits = limits or SandboxLimits()
        self._connection: GuestConnection | None = None
        self._lost_variables = False
        """A call that was cancelled has ended the interpreter; no result has said so yet."""

        self._lock = asyncio.Lock()

    @abstractmethod
    async def _start(self) -> tuple[asyncio.StreamReader, GuestWriter]:
        """Starts the program in a new sandbox, and returns its streams. Raises ToolError."""

    @abstractmethod
    async def _kill(self) -> str:
        """Kills everything in the sandbox; returns when it is gone, or if none was started.

        Returns what the sandbox's runtime has complained about, for the error of a failed start.
        """

    @property
    def is_running(self) -> bool:
        return self._connection is not None

    async def initialize(self) -> None:
        async with self._lock:
            await self._connect()

    async def close(self) -> None:
        """Ends what runs in the sandbox, too."""
        self._connection = None
        await self._kill()

    async def execute(
        self, command: str, *, timeout: float | None = None, on_output: OutputListener | None = None
    ) -> ExecutionResult:
        if not self.has_shell:
            raise ToolError(f"{type(self).__name__} has no shell; BubblewrapSandbox, for one, has")
        request: JsonObject = {"do": "run", "argv": ["/bin/sh", "-c", command], "timeout": timeout}
        return await self._run(request, (), timeout, on_output)

    async def run_python(
        self,
        code: str,
        *,
        timeout: float | None = None,
        keeps_variables: bool = False,
        on_output: OutputListener | None = None,
    ) -> ExecutionResult:
        data = code.encode(errors="surrogatepass")
        request: JsonObject = {
            "do": "python",
            "timeout": timeout,
            "keeps_variables": keeps_variables,
            "size": len(data),
        }
        return await self._run(request, [data], timeout, on_output)

    async def read_file(self, path: str | Path) -> bytes:
        """At most 64 MiB."""
        request: JsonObject = {"do": "read", "name": _checked_path(path), "limit": MAX_READ_BYTES}
        _, content = await self._ask(request, max_bytes=MAX_READ_BYTES, subject=str(path))
        return content

    async def write_file(self, path: str | Path, content: str | bytes) -> None:
        data = content.encode() if isinstance(content, str) else content
        await self._write([(_checked_path(path), data)])

    async def write_files(self, files: Sequence[File]) -> None:
        for file in files:
            if not is_safe_name(file.name):
                raise ValueError(f"The name {file.name!r} is no relative path, or leads out of its folder")
        await self._write([(file.name, file.content) for file in files])

    async def list_files(self) -> list[FileStatus]:
        _, data = await self._ask({"do": "list", "limit": MAX_LISTED}, max_bytes=MAX_LISTING_BYTES)
        listed = await self._decoded(data, list[tuple[str, int, int]])
        return [FileStatus(*file) for file in listed if is_safe_name(file[0])]

    async def changed_files(self) -> tuple[list[File], list[str]]:
        files: list[File] = []
        left_out: list[str] = []

        def add(message: GuestMessage, content: bytes) -> None:
            if message.type != "file" or len(content) > MAX_FILE_BYTES or len(files) + len(left_out) >= MAX_FILES:
                raise GuestFailure("it sent a file that was not asked for")
            if is_safe_name(message.name):
                mime_type = mimetypes.guess_type(message.name)[0] or BINARY
                files.append(File(name=message.name, content=content, mime_type=mime_type))
            else:
                left_out.append(_printable(message.name))

        request: JsonObject = {
            "do": "changed",
            "max_files": MAX_FILES,
            "max_file_bytes": MAX_FILE_BYTES,
            "max_bytes": MAX_BYTES_IN_ALL,
        }
        message, data = await self._ask(request, max_bytes=MAX_BYTES_IN_ALL + MAX_LISTING_BYTES, on_message=add)
        left_out += map(_printable, await self._decoded(data, list[str]))
        if message.not_named > 0:
            left_out.append(f"{message.not_named} more")
        return files, left_out

    async def _write(self, files: Sequence[tuple[str, bytes]]) -> None:
        if not files:
            return

        request: JsonObject = {
            "do": "write",
            "files": [{"name": name, "size": len(content)} for name, content in files],
            "size": sum(len(content) for _, content in files),
        }
        await self._ask(request, [content for _, content in files], max_bytes=0)

    async def _run(
        self, request: JsonObject, payload: Iterable[bytes], timeout: float | None, on_output: OutputListener | None
    ) -> ExecutionResult:
        seconds = None if timeout is None else timeout + SECONDS_TO_STOP
        output = _Output(self.limits.output_bytes, on_output)
        try:
            message, _ = await self._request(
                request, payload, seconds, max_bytes=2 * self.limits.output_bytes, on_message=output.add
            )
        except (GuestFailure, TimeoutError) as error:
            return ExecutionResult(
                exit_code=KILLED,
                stdout=output.text("stdout"),
                stderr=_with_notes(output.text("stderr"), [_ended(error)]),
                timed_out=isinstance(error, TimeoutError),
            )

        notes: list[str] = []
        if message.stopped == "memory":
            notes.append(f"Stopped: it used more than {self.limits.memory_bytes / 2**20:g} MiB of memory.")
        if message.stopped == "files":
            notes.append("Stopped: it created too many files.")
        if message.stopped == "open_files":
            notes.append("Stopped: its processes had too many open files.")
        if message.lost_variables or self._lost_variables:
            self._lost_variables = False
            notes.append("The variables of earlier code are gone.")

        return ExecutionResult(
            exit_code=message.exit_code & 0xFF,
            stdout=output.text("stdout", message.stdout_bytes),
            stderr=_with_notes(output.text("stderr", message.stderr_bytes), notes),
            timed_out=message.stopped == "timeout",
        )

    async def _ask(
        self,
        request: JsonObject,
        payload: Iterable[bytes] = (),
        *,
        max_bytes: int,
        subject: str = "",
        on_message: Callable[[GuestMessage, bytes], None] | None = None,
    ) -> tuple[GuestMessage, bytes]:
        """A request that runs no code. subject: the file that it is about."""
        try:
            message, data = await self._request(
                request, payload, SECONDS_TO_ANSWER, max_bytes=max_bytes, on_message=on_message
            )
        except (GuestFailure, TimeoutError) as error:
            raise ToolError(_ended(error)) from error

        if message.error == "FileNotFoundError":
            raise FileNotFoundError(subject)
        if message.error is not None:
            raise ToolError(f"{subject}: {_printable(message.message)}".removeprefix(": "))
        return message, data

    async def _request(
        self,
        request: JsonObject,
        payload: Iterable[bytes],
        seconds: float | None,
        *,
        max_bytes: int,
        on_message: Callable[[GuestMessage, bytes], None] | None,
    ) -> tuple[GuestMessage, bytes]:
        """Ends the sandbox when its answer is wrong or late: raises GuestFailure or TimeoutError.

        Cancellation stops the code or command, and leaves the sandbox as it is.
        """
        async with self._lock:
            connection = await self._connect()
            answering = asyncio.ensure_future(
                asyncio.wait_for(
                    connection.request(request, payload, max_bytes=max_bytes, on_message=on_message), seconds
                )
            )
            try:
                return await asyncio.shield(answering)
            except asyncio.CancelledError:
                connection.stop()
                await asyncio.wait([answering], timeout=SECONDS_TO_STOP)
                if answering.done() and not answering.cancelled() and answering.exception() is None:
                    message, _ = answering.result()
                    self._lost_variables |= message.lost_variables
                raise
            finally:
                if not answering.done() or answering.cancelled() or answering.exception() is not None:
                    answering.cancel()
                    await self._end(connection)

    async def _connect(self) -> GuestConnection:
        if self._connection is not None:
            return self._connection

        limits = self.limits
        request: JsonObject = {
            "do": "start",
            "working_dir": str(self.working_dir),
            "memory_bytes": limits.memory_bytes,
            "processes": limits.processes if self.counts_processes else None,
            "disk_bytes": limits.disk_bytes,
            "cpus": limits.cpus,
            "output_bytes": limits.output_bytes,
        }
        try:
            async with asyncio.timeout(self.seconds_to_start):
                connection = GuestConnection(*await self._start())
                await connection.request(request, max_bytes=0)
        except (GuestFailure, TimeoutError) as error:
            complaint = await self._kill()
            raise ToolError(f"{type(self).__name__} can't be started: {complaint or _reason(error)}") from error
        except BaseException:
            await self._kill()
            raise

        self._connection = connection
        return connection

    async def _end(self, connection: GuestConnection) -> None:
        if self._connection is connection:
            self._connection = None
            await self._kill()

    async def _decoded(self, data: bytes, kind: Any) -> Any:
        try:
            return msgspec.json.decode(data, type=kind)
        except msgspec.MsgspecError as error:
            await self.close()
            raise ToolError(_ended(GuestFailure("it sent a list that is none"))) from error


class _Output:
    """Collects what code prints, in both streams."""

    def __init__(self, max_bytes: int, listener: OutputListener | None) -> None:
        self._max_bytes = max_bytes
        self._listener = listener
        self._sizes = {"stdout": 0, "stderr": 0}
        self._texts: dict[str, list[str]] = {"stdout": [], "stderr": []}
        decoder = codecs.getincrementaldecoder("utf-8")
        self._decoders = {"stdout": decoder("replace"), "stderr": decoder("replace")}

    def add(self, message: GuestMessage, data: bytes) -> None:
        if message.type not in ("stdout", "stderr"):
            raise GuestFailure("it sent something that was not asked for")
        name: Literal["stdout", "stderr"] = message.type

        self._sizes[name] += len(data)
        if self._sizes[name] > self._max_bytes:
            raise GuestFailure("it sent more output than was asked for")

        text = self._decoders[name].decode(data)
        self._texts[name].append(text)
        if text and self._listener is not None:
            self._listener(name, text)

    def text(self, name: Literal["stdout", "stderr"], size: int = 0) -> str:
        """size: of all that was printed."""
        text = "".join(self._texts[name]) + self._decoders[name].decode(b"", final=True)
        if size > self._sizes[name]:
            text += f"… ({size} bytes in all)"
        return text


def _checked_path(path: str | Path) -> str:
    text = str(path)
    with contextlib.suppress(UnicodeEncodeError):
        text.encode()
        if text and "\0" not in text:
            return text
    raise ValueError(f"{text!r} is no path")


def _printable(text: str) -> str:
    """Text from a sandbox, for messages: on one line, and short."""
    return text[:200] if text.isprintable() else ascii(text[:200])


def _reason(error: GuestFailure | TimeoutError) -> str:
    return "it did not answer in time" if isinstance(error, TimeoutError) else str(error)


def _ended(error: GuestFailure | TimeoutError) -> str:
    return f"The sandbox was ended: {_reason(error)}. Its files and variables are gone; the next use starts a new one."


def _with_notes(text: str, notes: Sequence[str]) -> str:
    """Adds lines of our own to what code has printed."""
    if notes and text and not text.endswith("\n"):
        text += "\n"
    return text + "".join(f"{note}\n" for note in notes)
