"""The host's side of the messages with the program inside a sandbox, over any pair of byte streams.

A message is a line of JSON and as many bytes as its `size` says. The host sends one request, and reads messages until
the `result`; only then comes the next request. A sandbox with Python starts as `python -I -c LOADER`, and gets the
source of `guest` first. This is a session, with the host's messages marked by `>`:

    > {"do": "start", "working_dir": "/home/workspace", "memory_bytes": 536870912, "processes": 64, …}
      {"type": "result"}
    > {"do": "write", "files": [{"name": "data/a.csv", "size": 4}, {"name": "b.txt", "size": 2}], "size": 6}   a,b⏎hi
      {"type": "result"}
    > {"do": "python", "timeout": 30, "keeps_variables": true, "size": 9}                                      print(42)
      {"type": "stdout", "size": 3}                                                                            42⏎
      {"type": "result", "exit_code": 0, "stopped": null, "stdout_bytes": 3, "stderr_bytes": 0, "lost_variables": false}
    > {"do": "run", "argv": ["/bin/sh", "-c", "yes"], "timeout": 1}
      {"type": "stdout", "size": 65536}                                                                        y⏎y⏎y⏎…
      {"type": "result", "exit_code": 137, "stopped": "timeout", "stdout_bytes": 987654321, …}
    > {"do": "read", "name": "data/a.csv", "limit": 67108864}
      {"type": "result", "size": 4}                                                                            a,b⏎
    > {"do": "read", "name": "nothing", "limit": 67108864}
      {"type": "result", "error": "FileNotFoundError", "message": "No such file or directory"}
    > {"do": "list", "limit": 10000}
      {"type": "result", "size": 54}                                            [["b.txt", 2, 1764000000000000000], …]
    > {"do": "changed", "max_files": 50, "max_file_bytes": 5242880, "max_bytes": 16777216}
      {"type": "file", "name": "chart.png", "size": 20480}                                                    …
      {"type": "result", "not_named": 0, "size": 13}                                                    ["large.bin"]

- `stopped` is `timeout`, `stop` (asked for by the host), `memory`, `files` or `open_files`, or null for code that ended
  by itself.
- `stdout` and `stderr` carry at most `output_bytes` of the start message each; `stdout_bytes` counts all.
- `{"do": "stop"}` is sent while code or a command runs, and has no result of its own.
- `changed` names files that were written by code and commands since the last `changed`, not those that `write` wrote.

Nothing that comes from the sandbox is trusted: sizes, counts and forms are checked, and a message that breaks a rule
ends the sandbox.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import msgspec

from greenroom.records.base import JsonObject

MAX_LINE_BYTES = 16 * 1024
MAX_MESSAGES_WITHOUT_BYTES = 1000


class GuestFailure(Exception):
    """The connection is of no more use: the sandbox has ended, or has broken a rule."""


class GuestWriter(Protocol):
    """The part of `asyncio.StreamWriter` that a connection needs."""

    def write(self, data: bytes, /) -> None: ...

    async def drain(self) -> None: ...


class GuestMessage(msgspec.Struct, kw_only=True):
    """A message from a sandbox. Unknown fields are ignored."""

    type: str
    size: int = 0
    name: str = ""
    exit_code: int = 0
    stopped: str | None = None
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    lost_variables: bool = False
    not_named: int = 0
    error: str | None = None
    message: str = ""


LOADER = """\
import os
size = int(os.read(0, 8))
source = b""
while len(source) < size:
    source += os.read(0, size - len(source)) or os._exit(0)
exec(compile(source, "guest.py", "exec"))
"""
"""A program for `python -I -c`, which reads the guest's source from stdin, after its size in eight digits."""


@cache
def guest_source() -> bytes:
    """The bytes that `LOADER` reads."""
    source = Path(__file__).with_name("guest.py").read_bytes()
    return b"%08d" % len(source) + source


_STOP = b'{"do": "stop"}\n'

_decoder = msgspec.json.Decoder(GuestMessage)


class GuestConnection:
    """Requests to the program in a sandbox, one at a time.

    reader: made with a limit of at least 16 KiB for a line.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: GuestWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._is_sending = False
        self._must_stop = False

    async def request(
        self,
        request: JsonObject,
        payload: Iterable[bytes] = (),
        *,
        max_bytes: int,
        on_message: Callable[[GuestMessage, bytes], Any] | None = None,
    ) -> tuple[GuestMessage, bytes]:
        """Returns the result and its bytes. A request that was cancelled leaves the connection unusable.

        max_bytes: that the sandbox may send in answer, all messages together.
        on_message: called with each message before the result, and its bytes.
        """
        left = max_bytes
        without_bytes = 0
        try:
            await self._send(request, payload)
            while True:
                message = _decoder.decode(await self._read_line())
                if not 0 <= message.size <= left:
                    raise GuestFailure("it sent more than was asked for")

                data = await self._reader.readexactly(message.size)
                if message.type == "result":
                    return message, data

                left -= message.size
                if message.size == 0:
                    without_bytes += 1
                if on_message is None or without_bytes > MAX_MESSAGES_WITHOUT_BYTES:
                    raise GuestFailure("it sent something that was not asked for")

                on_message(message, data)
        except (asyncio.IncompleteReadError, OSError) as error:
            raise GuestFailure("it ended unexpectedly") from error
        except (ValueError, msgspec.MsgspecError, asyncio.LimitOverrunError) as error:
            raise GuestFailure("it sent something that is no message") from error

    def stop(self) -> None:
        """Asks to stop the code or command that runs. Its request's result follows."""
        if self._is_sending:  # between the bytes of a request, this would be part of it
            self._must_stop = True
        else:
            self._writer.write(_STOP)

    async def _send(self, request: JsonObject, payload: Iterable[bytes]) -> None:
        self._is_sending = True
        self._must_stop = False
        self._writer.write(msgspec.json.encode(request) + b"\n")
        for piece in payload:
            self._writer.write(piece)
            await self._writer.drain()

        self._is_sending = False
        if self._must_stop:
            self._writer.write(_STOP)
        await self._writer.drain()

    async def _read_line(self) -> bytes:
        line = await self._reader.readuntil()
        if len(line) > MAX_LINE_BYTES:
            raise GuestFailure("it sent a line that is too long")
        return line
