"""The host's side of a sandbox whose program doesn't keep to the rules, as code that has taken it over would make it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest

from greenroom.environments.files import MAX_BYTES_IN_ALL, MAX_FILE_BYTES, MAX_FILES, File
from greenroom.environments.guest_connection import MAX_LINE_BYTES, GuestWriter
from greenroom.environments.guest_sandbox import GuestSandbox
from greenroom.errors import ToolError

Answer = Callable[[dict[str, Any]], bytes]


def message(payload: bytes = b"", **fields: Any) -> bytes:
    size = {"size": len(payload)} if payload else {}
    return json.dumps({**size, **fields}).encode() + b"\n" + payload


OK = message(type="result", exit_code=0)


class Peer:
    """The other end of the connection: answers each request with bytes."""

    def __init__(self, answer: Answer) -> None:
        self.reader = asyncio.StreamReader()
        self._answer = answer

    def write(self, data: bytes, /) -> None:
        if not data.startswith(b'{"do"'):
            return
        request = json.loads(data)
        self.reader.feed_data(OK if request["do"] == "start" else self._answer(request))

    async def drain(self) -> None: ...


class SandboxOfPeer(GuestSandbox):
    has_ended = False

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self._answer = answer

    @property
    def working_dir(self) -> Path:
        return Path("/nowhere")

    def new(self) -> Self:
        return type(self)(self._answer)

    async def _start(self) -> tuple[asyncio.StreamReader, GuestWriter]:
        peer = Peer(self._answer)
        return peer.reader, peer

    async def _kill(self) -> str:
        self.has_ended = True
        return ""


def says(data: bytes) -> SandboxOfPeer:
    return SandboxOfPeer(lambda _: data)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"hello\n", "no message"),
        (b"[]\n", "no message"),
        (b'{"type": 1}\n', "no message"),
        (b"\xff\xfe\n", "no message"),
        (b'{"type": "stdout", "size": "3"}\nabc', "no message"),
        (b'{"type": "stdout", "size": -1}\n', "more than was asked for"),
        (b'{"type": "stdout", "size": 99999999999999}\n', "more than was asked for"),
        (b'{"type": "stdout", "size": 200001}\n', "more than was asked for"),
        (b"x" * (MAX_LINE_BYTES + 1) + b"\n", "line"),
        (b"x" * 200_000, "no message"),
        (message(b"a" * 100_001, type="stdout"), "more output"),
        (message(b"a", type="file", name="a"), "not asked for"),
        (message(b"a", type="start"), "not asked for"),
        (message(type="stdout") * 1001, "not asked for"),
    ],
)
async def test_a_broken_rule_ends_the_sandbox(data: bytes, reason: str) -> None:
    sandbox = says(data)
    async with asyncio.timeout(5):
        ran = await sandbox.run_python("print(1)")
    assert (ran.exit_code, ran.timed_out, sandbox.is_running, sandbox.has_ended) == (137, False, False, True)
    assert reason in ran.stderr


async def test_what_was_printed_before_is_kept() -> None:
    ran = await says(message(b"first\n", type="stdout") + b"{}\n").run_python("print(1)")
    assert ran.stdout == "first\n"
    assert "The sandbox was ended" in ran.stderr


async def test_exit_codes_and_sizes_that_are_none_are_harmless() -> None:
    ran = await says(message(type="result", exit_code=10**15, stdout_bytes=-5, stopped="\n")).run_python("print(1)")
    assert 0 <= ran.exit_code <= 255
    assert ran.stdout == ""


def files(*named: tuple[str, bytes]) -> bytes:
    return b"".join(message(content, type="file", name=name) for name, content in named)


@pytest.mark.parametrize(
    "data",
    [
        files(*((f"f{number}", b"x") for number in range(MAX_FILES + 1))) + message(b"[]", type="result"),
        files(("a", bytes(MAX_FILE_BYTES + 1))) + message(b"[]", type="result"),
        message(type="file", size=MAX_BYTES_IN_ALL * 3),
        message(b'{"a": 1}', type="result"),
        message(b"[1]", type="result"),
        message(b"[" * 100_000, type="result"),
        message(b"x", type="stdout"),
    ],
    ids=range(7),
)
async def test_changed_files_beyond_the_limits_end_the_sandbox(data: bytes) -> None:
    sandbox = says(data)
    with pytest.raises(ToolError, match="The sandbox was ended"):
        await sandbox.changed_files()
    assert not sandbox.is_running


async def test_files_with_unsafe_names_are_left_out() -> None:
    names = [
        "../a",
        "/etc/passwd",
        "a/../../b",
        "a\nb",
        "nul\0",
        "",
        ".",
        "a//b",
        "x" * 300,
        "C:\\a",
        "back\\slash",
        "\u202ea",
    ]
    data = files(*((name, b"x") for name in names), ("ok/a.txt", b"y")) + message(b'["\\u001b[31m"]', type="result")
    found, left_out = await says(data).changed_files()
    assert found == [File(name="ok/a.txt", content=b"y")]
    assert len(left_out) == len(names) + 1
    assert all(name.isprintable() and len(name) <= 202 for name in left_out)


async def test_listed_names_are_checked() -> None:
    listing = json.dumps([["../a", 1, 2], ["a", 1, 2], ["b\n", 1, 2]]).encode()
    assert [file.name for file in await says(message(listing, type="result")).list_files()] == ["a"]


@pytest.mark.parametrize("listing", [b"", b"{}", b'[["a", "1", 2]]', b'[["a", 1]]'])
async def test_a_list_that_is_none_ends_the_sandbox(listing: bytes) -> None:
    sandbox = says(message(listing, type="result"))
    with pytest.raises(ToolError, match="list"):
        await sandbox.list_files()
    assert not sandbox.is_running


async def test_errors_from_the_sandbox_are_short_and_printable() -> None:
    sandbox = says(message(type="result", error="OSError", message="\x1b[31m" * 1000))
    with pytest.raises(ToolError) as raised:
        await sandbox.read_file("a")
    assert raised.value.detail.isprintable()
    assert len(raised.value.detail) < 2000


async def test_the_end_of_the_connection_is_the_end_of_the_sandbox() -> None:
    def ends(request: dict[str, Any]) -> bytes:
        asyncio.get_running_loop().call_soon(sandbox_peer[-1].reader.feed_eof)
        return b'{"type": "stdout", "size": 100}\nhalf'

    sandbox_peer: list[Peer] = []

    class Noting(SandboxOfPeer):
        async def _start(self) -> tuple[asyncio.StreamReader, GuestWriter]:
            sandbox_peer.append(Peer(self._answer))
            return sandbox_peer[-1].reader, sandbox_peer[-1]

    ran = await Noting(ends).run_python("print(1)")
    assert "it ended unexpectedly" in ran.stderr


async def test_an_error_of_the_listener_is_raised_and_ends_the_sandbox() -> None:
    def listen(stream: str, text: str) -> None:
        raise RuntimeError("the listener fails")

    sandbox = says(message(b"a", type="stdout") + OK)
    with pytest.raises(RuntimeError, match="the listener fails"):
        await sandbox.run_python("print(1)", on_output=listen)
    assert not sandbox.is_running
