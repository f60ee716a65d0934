"""Sandboxes of bubblewrap: the contract, and what is special to them."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from greenroom.environments import guest
from greenroom.environments.bubblewrap import BubblewrapSandbox
from greenroom.environments.files import File
from greenroom.environments.sandbox import SandboxLimits
from greenroom.errors import ToolError
from greenroom.testing.contracts.sandbox import *  # noqa: F403
from tests.processes import children_of, is_running
from tests.requirements import require_bubblewrap
from tests.server.serving import until


@pytest.fixture
async def sandbox() -> AsyncIterator[BubblewrapSandbox]:
    require_bubblewrap()
    sandbox = BubblewrapSandbox()
    yield sandbox
    await sandbox.close()


async def test_a_sandbox_that_does_not_answer_is_ended_after_the_timeout(sandbox: BubblewrapSandbox) -> None:
    await sandbox.initialize()
    (guest,) = children_of(process_of(sandbox))
    os.kill(guest, signal.SIGSTOP)
    ran = await sandbox.run_python("print(1)", timeout=0.1)
    assert (ran.timed_out, ran.exit_code, sandbox.is_running) == (True, 137, False)
    assert "did not answer in time" in ran.stderr
    assert (await sandbox.run_python("print(1)")).stdout == "1\n"


async def test_close_ends_code_that_runs(sandbox: BubblewrapSandbox) -> None:
    started = asyncio.Event()
    code = "print('begun')\nwhile True: pass"
    running = asyncio.create_task(sandbox.run_python(code, on_output=lambda _stream, _text: started.set()))
    async with asyncio.timeout(10):
        await started.wait()
        bwrap = process_of(sandbox)
        (guest,) = children_of(bwrap)
        await sandbox.close()
        ran = await running
    assert "The sandbox was ended" in ran.stderr
    assert not is_running(bwrap)
    await until(lambda: not is_running(guest))


def make_environment(folder: Path) -> Path:
    """A virtual environment with a package; returns its interpreter. Everybody can read it, since root's sandboxes
    belong to another user.
    """
    folder.chmod(0o755)
    python = folder / "venv" / "bin" / "python"
    base = "/usr/bin/python3" if os.geteuid() == 0 else sys.executable  # greenroom's own may be below /root
    subprocess.run([base, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    (packages,) = (folder / "venv").glob("lib/python3*/site-packages")
    (packages / "colours.py").write_text("RED = 'red'")
    return python


async def test_an_interpreter_with_packages_can_be_named() -> None:
    require_bubblewrap()
    with tempfile.TemporaryDirectory() as folder:
        python = await asyncio.to_thread(make_environment, Path(folder))
        sandbox = BubblewrapSandbox(python=python)
        try:
            ran = await sandbox.run_python("import colours, sys\nprint(colours.RED, sys.prefix)")
            assert ran.stdout == f"red {python.parents[1]}\n", ran.stderr
        finally:
            await sandbox.close()


async def test_paths_can_be_shown_read_only(tmp_path: Path) -> None:
    require_bubblewrap()
    for path in (tmp_path, *tmp_path.parents[:3]):
        path.chmod(0o755)
    (tmp_path / "a.txt").write_text("shown")
    sandbox = BubblewrapSandbox(read_only_paths=[tmp_path])
    try:
        assert await sandbox.read_file(tmp_path / "a.txt") == b"shown"
        with pytest.raises(ToolError):
            await sandbox.write_file(tmp_path / "b.txt", "mine")
        assert os.listdir(tmp_path) == ["a.txt"]
    finally:
        await sandbox.close()


async def test_a_network_can_be_allowed() -> None:
    require_bubblewrap()
    sandbox = BubblewrapSandbox(network=True)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(5)
        code = f"import socket\nsocket.create_connection(('127.0.0.1', {listener.getsockname()[1]})).send(b'x')"
        ran = await sandbox.run_python(code)
        assert ran.stderr == ""
        listener.accept()[0].close()
    await sandbox.close()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"python": "/no/such/python"}, "can't be started"),
        ({"python": "/bin/false"}, "is no Python interpreter"),
        ({"read_only_paths": ["/no/such/path"]}, "/no/such/path"),
    ],
)
async def test_wrong_settings_are_explained(settings: dict[str, Any], message: str) -> None:
    require_bubblewrap()
    with pytest.raises(ToolError, match=message):
        await BubblewrapSandbox(**settings).initialize()


async def test_limits_are_those_of_the_settings() -> None:
    require_bubblewrap()
    megabyte = 2**20
    limits = SandboxLimits(memory_bytes=100 * megabyte, processes=5, disk_bytes=2 * megabyte, output_bytes=10)
    sandbox = BubblewrapSandbox(limits=limits)
    code = """
import os, resource
print(os.statvfs('.').f_blocks * os.statvfs('.').f_frsize)
print([resource.getrlimit(one)[1] for one in (resource.RLIMIT_DATA, resource.RLIMIT_NPROC, resource.RLIMIT_FSIZE)])
"""
    try:
        assert (await sandbox.run_python(code)).stdout == "2097152\n[1… (32 bytes in all)"
        shown = await sandbox.run_python("try:\n    bytearray(101 * 2**20)\nexcept MemoryError:\n    print('refused')")
        assert shown.stdout == "refused\n"
    finally:
        await sandbox.close()


def test_limits_must_be_positive() -> None:
    with pytest.raises(ValueError, match="processes"):
        SandboxLimits(processes=0)


@pytest.mark.parametrize(("machine", "column"), [("x86_64", 0), ("aarch64", 1)])
def test_the_filter_of_system_calls_has_the_numbers_of_the_kernel(machine: str, column: int) -> None:
    header = {"x86_64": "/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "aarch64": "/usr/include/asm-generic/unistd.h"}
    path = Path(header[machine])
    if not path.exists():
        pytest.skip("the kernel's headers are not installed")

    numbers = {name: int(number) for name, number in re.findall(r"#define __NR_(\w+)\s+(\d+)", path.read_text())}
    known = {name: pair[column] for name, pair in guest.FORBIDDEN.items() if name in numbers}
    assert known == {name: numbers[name] for name in known}
    assert len(known) > len(guest.FORBIDDEN) - 3
    special = (guest.CLONE, guest.CLONE3, guest.PRLIMIT64, guest.SETPRIORITY, guest.SOCKET)
    names = ("clone", "clone3", "prlimit64", "setpriority", "socket")
    assert [pair[column] for pair in special] == [numbers[name] for name in names]


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_every_path_through_the_filter_ends_with_a_decision(machine: str) -> None:
    program = guest.filter_program(machine)
    for position, (operation, if_true, if_false, _) in enumerate(program):
        if operation != guest.RETURN:
            assert position + 1 + max(if_true, if_false) < len(program)
    assert program[-1] == (guest.RETURN, 0, 0, guest.ALLOW)
    assert len(program) < 4096
    assert max(max(one[1:3]) for one in program) < 256


async def test_a_cancelled_write_leaves_a_sandbox_that_works(sandbox: BubblewrapSandbox) -> None:
    await sandbox.initialize()
    content = b"x" * 50_000_000
    for turns in (1, 2, 3, 5, 10, 50, 200):
        writing = asyncio.create_task(sandbox.write_files([File(name=f"{n}.bin", content=content) for n in range(2)]))
        for _ in range(turns):
            await asyncio.sleep(0)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        ran = await sandbox.run_python("open('kept', 'a').write('x')\nprint(len(open('kept').read()))")
        assert ran.stderr == ""
    assert ran.stdout == "7\n"


def process_of(sandbox: BubblewrapSandbox) -> int:
    assert sandbox._process is not None
    return sandbox._process.pid
