"""Code that tries to get out of each sandbox of this machine, and to use it up: nothing of the host is read, changed or
reached, the result is a clear failure or harmless, and the sandbox works right afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from greenroom.environments.files import MAX_FILES, is_safe_name
from greenroom.environments.process import ExecutionResult, run_process
from greenroom.environments.sandbox import Sandbox
from greenroom.errors import ToolError
from tests.environments.escapes import ATTEMPTS, PRELUDE, Attempt
from tests.environments.local_sandboxes import ALLOWED, SANDBOXES, make_sandbox

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

SERVER_FOLDER = Path(__file__).parents[2]


@dataclass
class Host:
    """Things of the host that code must not reach."""

    folder: Path
    secret: str
    tcp: socket.socket
    udp: socket.socket
    abstract: socket.socket
    path_socket: socket.socket
    victim: subprocess.Popen[bytes]

    def fill_in(self, code: str) -> str:
        values = {
            "MARKER": str(self.folder),
            "SERVER": str(SERVER_FOLDER),
            "TCP_PORT": str(self.tcp.getsockname()[1]),
            "UDP_PORT": str(self.udp.getsockname()[1]),
            "ABSTRACT": self.abstract.getsockname()[1:].decode(),
            "VICTIM": str(self.victim.pid),
        }
        for word, value in values.items():
            code = code.replace(word, value)
        return code

    def check(self) -> None:
        """Fails if something was changed or reached."""
        assert (self.folder / "secret.txt").read_text() == self.secret
        assert sorted(path.name for path in self.folder.iterdir()) == ["app.db", "secret.txt", "socket"]
        assert self.victim.poll() is None
        for one in (self.tcp, self.udp, self.abstract, self.path_socket):
            with pytest.raises(BlockingIOError):
                one.recv(1) if one is self.udp else one.accept()


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    folder = tmp_path_factory.mktemp("host")
    for path in (folder, *folder.parents[:2]):
        path.chmod(0o755)  # so that only the sandbox is in the way

    secret = secrets.token_hex(16)
    (folder / "secret.txt").write_text(secret)
    (folder / "app.db").write_text(secret)
    os.environ["GREENROOM_SECRET"] = secret

    with contextlib.ExitStack() as stack:
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("127.0.0.1", 0))
        abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
        abstract.bind(f"\0greenroom-{secrets.token_hex(4)}")
        abstract.listen()
        path_socket = stack.enter_context(socket.socket(socket.AF_UNIX))
        path_socket.bind(str(folder / "socket"))
        path_socket.listen()
        (folder / "socket").chmod(0o777)
        for one in (tcp, udp, abstract, path_socket):
            one.setblocking(False)
        victim = stack.enter_context(subprocess.Popen(["sleep", "1000"]))
        yield Host(folder, secret, tcp, udp, abstract, path_socket, victim)
        victim.kill()

    del os.environ["GREENROOM_SECRET"]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=SANDBOXES)
async def sandbox(request: pytest.FixtureRequest, host: Host) -> AsyncIterator[Sandbox]:
    sandbox = make_sandbox(request.param, request)
    yield sandbox
    await sandbox.close()


async def run(sandbox: Sandbox, host: Host, attempt: Attempt) -> ExecutionResult:
    if attempt.command:
        if not sandbox.has_shell:
            pytest.skip("it has no shell")
        return await sandbox.execute(host.fill_in(attempt.command), timeout=attempt.seconds)

    code = host.fill_in(PRELUDE + attempt.code)
    return await sandbox.run_python(code, timeout=attempt.seconds, keeps_variables=attempt.keeps_variables)


REMOVE_ALL = """\
import os, shutil
for folder in (os.getcwd(), '/tmp', '/dev/shm'):
    try:
        os.chmod(folder, 0o755)
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path, ignore_errors=True)
            else:
                os.remove(path)
    except OSError:
        pass
"""


async def check_that_it_works(sandbox: Sandbox) -> None:
    """The sandbox that has seen the attempt runs code, as soon as the disk isn't full."""
    removed = await sandbox.run_python(REMOVE_ALL, timeout=30)
    assert (removed.stderr, removed.exit_code) == ("", 0)

    ran = await sandbox.run_python("open('answer', 'w').write('42')\nprint(6 * 7)")
    assert (ran.stdout, ran.stderr, ran.exit_code) == ("42\n", "", 0)
    assert await sandbox.read_file("answer") == b"42"


@pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda attempt: attempt.name)
async def test_an_attempt_is_contained(
    sandbox: Sandbox, host: Host, attempt: Attempt, request: pytest.FixtureRequest
) -> None:
    if attempt.name in ALLOWED.get(request.node.callspec.params["sandbox"], ()):
        pytest.skip("the sandbox allows it")

    try:
        await check(sandbox, host, attempt)
    except BaseException:
        await sandbox.close()
        raise

    if attempt.keeps_variables or attempt.spoils_sandbox:
        await sandbox.close()


async def check(sandbox: Sandbox, host: Host, attempt: Attempt) -> None:
    started_at = time.monotonic()
    ran = await run(sandbox, host, attempt)
    output = ran.stdout + ran.stderr

    assert time.monotonic() - started_at < attempt.seconds + 10  # it may have to start, and to be killed after 5 s
    assert "ESCAPED" not in output, output[-1000:]
    assert host.secret not in output
    if sandbox.has_shell:
        assert ran.timed_out == attempt.times_out
        assert re.search(attempt.sees, output), output[-1000:]
    host.check()

    if sandbox.is_running:
        await check_files(sandbox, host)
    await check_that_it_works(sandbox)


async def check_files(sandbox: Sandbox, host: Host) -> None:
    """Fails if a file comes out under an unsafe name, or with content of the host."""
    files, left_out = await sandbox.changed_files()
    assert len(files) <= MAX_FILES
    assert all(is_safe_name(file.name) for file in files)
    assert not any(host.secret.encode() in file.content for file in files)
    assert all(name.isprintable() for name in left_out)
    assert len(left_out) <= 200
    assert all(is_safe_name(file.name) for file in await sandbox.list_files())


async def test_the_host_reads_and_writes_nothing_through_links(sandbox: Sandbox, host: Host) -> None:
    if not sandbox.has_shell:
        pytest.skip("it has no links and pipes")
    code = (
        "os.symlink('MARKER/secret.txt', 'secret')\nos.symlink('MARKER', 'folder')\nos.symlink('/proc/1/mem', 'memory')\n"
        "os.mkfifo('pipe')\nsocket.socket(socket.AF_UNIX).bind('socket')\nos.symlink('/dev/zero', 'zero')"
    )
    await sandbox.run_python(host.fill_in(PRELUDE + code))

    async with asyncio.timeout(10):
        for name in ("secret", "folder/secret.txt"):
            with pytest.raises(FileNotFoundError):
                await sandbox.read_file(name)
        for name in ("pipe", "socket", "zero", "memory"):
            with pytest.raises(ToolError):
                await sandbox.read_file(name)
        for name in ("secret", "memory", "pipe", "socket", "zero"):
            await sandbox.write_file(name, "mine")
            assert await sandbox.read_file(name) == b"mine"
        with pytest.raises(ToolError):
            await sandbox.write_file("folder/secret.txt", "mine")

    host.check()
    await check_that_it_works(sandbox)


async def test_a_name_never_leads_out_of_the_sandbox(sandbox: Sandbox, host: Host) -> None:
    path = host.folder / "secret.txt"
    names = (path, f"../../../../../..{path}", f"/proc/1/root{path}")
    for name in names:
        with pytest.raises((FileNotFoundError, ToolError)):
            await sandbox.read_file(name)
    for name in names:
        with contextlib.suppress(ToolError):  # it may be a path inside, too
            await sandbox.write_file(name, "mine")
    host.check()
    await check_that_it_works(sandbox)


async def test_sandboxes_do_not_reach_each_other(sandbox: Sandbox, host: Host) -> None:
    other = sandbox.new()
    try:
        await other.run_python("x = 1", keeps_variables=True)
        await other.write_file("other.txt", host.secret)
        code = (
            "found = [path for path, _, files in os.walk('/') if 'other.txt' in files]\n"
            "print('ESCAPED' if found else 'contained', found)\n"
            "print([pid for pid in os.listdir('/proc') if pid.isdigit()])\n"
            "for pid in range(2, 10_000):\n"
            "    try:\n        os.kill(pid, 0 if pid == os.getpid() else signal.SIGKILL)\n    except OSError:\n        pass"
        )
        ran = await sandbox.run_python(PRELUDE + code, timeout=60)
        assert "contained" in ran.stdout
        assert (await other.run_python("print(x)", keeps_variables=True)).stdout == "1\n"
    finally:
        await other.close()


async def test_nothing_runs_after_the_end_of_code(sandbox: Sandbox) -> None:
    if not sandbox.has_shell:
        pytest.skip("it has no processes")
    code = (
        "import os, time\n"
        "for _ in range(5):\n"
        "    if os.fork() == 0:\n        os.setsid()\n        os.fork()\n        time.sleep(100)\n        os._exit(0)"
    )
    for keeps_variables in (False, True):
        await sandbox.run_python(code, keeps_variables=keeps_variables)
        count = (
            "import os\nprint([open(f'/proc/{p}/stat').read().split()[2] for p in os.listdir('/proc') if p.isdigit()])"
        )
        running = (await sandbox.run_python(count)).stdout
        assert running.count("'R'") == 1
        assert running.count("'S'") == 1  # the sandbox's own program
        assert running.count("'T'") == int(keeps_variables)  # the kept interpreter
    await sandbox.close()


def harmless() -> list[Attempt]:
    return [attempt for attempt in ATTEMPTS if attempt.escapes_from_a_process]


@pytest.mark.parametrize("attempt", harmless(), ids=lambda attempt: attempt.name)
async def test_an_ordinary_process_escapes(host: Host, attempt: Attempt) -> None:
    if attempt.name == "passwords" and os.geteuid() != 0:
        pytest.skip("only root can read them")
    code = host.fill_in(PRELUDE + attempt.code)
    ran = await run_process(sys.executable, "-c", code, cwd=host.folder, env={}, timeout_seconds=20)
    assert "ESCAPED" in ran.stdout
    for one in (host.tcp, host.abstract, host.path_socket):
        with contextlib.suppress(BlockingIOError):
            one.accept()[0].close()
