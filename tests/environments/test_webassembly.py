"""Sandboxes of WebAssembly: the contract, and what is special to them."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from greenroom.environments import pyodide
from greenroom.environments.sandbox import SandboxLimits
from greenroom.environments.webassembly import WebAssemblySandbox
from greenroom.errors import MissingExtra, ToolError
from greenroom.testing.contracts.sandbox import *  # noqa: F403
from tests.requirements import require_pyodide

pytestmark = pytest.mark.slow

ATTEMPTS = Path(__file__).parent / "javascript_attempts.mjs"


@pytest.fixture
async def sandbox() -> AsyncIterator[WebAssemblySandbox]:
    require_pyodide()
    sandbox = WebAssemblySandbox()
    yield sandbox
    await sandbox.close()


async def test_even_javascript_can_reach_nothing_of_the_host(tmp_path: Path) -> None:
    """Pyodide is no border: if code gets to JavaScript, Deno's permissions have to hold."""
    require_pyodide()
    secret = tmp_path / "secret.mjs"
    secret.write_text("postMessage('reached');")
    output = tmp_path / "output"
    connections = 0

    async def count(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        writer.close()

    async with await asyncio.start_server(count, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        process = await asyncio.create_subprocess_exec(
            *pyodide.deno_command(str(ATTEMPTS), str(secret), str(output), str(port)),
            env=pyodide.deno_variables(),
            cwd=pyodide.pyodide_dir(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        printed, _ = await process.communicate()

    result = json.loads(printed)
    assert result["succeeded"] == {}
    assert result["attempts"] >= 60
    assert connections == 0
    assert os.listdir(tmp_path) == ["secret.mjs"]


TO_JAVASCRIPT = {
    "js": "import js\njs.eval('1')",
    "run_js": "import pyodide.code\npyodide.code.run_js('1')",
    "pyodide_js": "import pyodide_js\npyodide_js.runPython('1')",
    "file_system": "import pyodide_js\npyodide_js.FS.filesystems",
    "constructor": "from pyodide.ffi import to_js\nto_js([]).constructor.constructor('return 1')()",
    "generator": "from pyodide.ffi import to_js\nto_js([]).entries().constructor.constructor('return 1')()",
    "core": "import _pyodide_core\n_pyodide_core.run_js('1')",
    "emscripten": "import ctypes\nctypes.CDLL(None).emscripten_run_script(b'1')",
    "fetch": "import pyodide.http, asyncio\nasyncio.run(pyodide.http.pyfetch('http://127.0.0.1'))",
    "open_url": "import pyodide.http\npyodide.http.open_url('http://127.0.0.1')",
    "package": "import asyncio, micropip\nasyncio.run(micropip.install('numpy'))",
    "browser": "import webbrowser\nassert webbrowser.open('http://127.0.0.1')",
}

TO_THE_HOST = {
    "fork": "import os\nos.fork()",
    "subprocess": "import subprocess\nsubprocess.run(['true'])",
    "system": "import os\nassert os.system('true') == 0",
    "exec": "import os\nos.execv('/bin/true', ['true'])",
    "spawn": "import os\nos.posix_spawn('/bin/true', ['true'], {})",
    "thread": "import threading\nthreading.Thread(target=print).start()",
    "multiprocessing": "import multiprocessing\nmultiprocessing.Process(target=print).start()",
    "connect": "import socket\nsocket.create_connection(('127.0.0.1', 80), timeout=1)",
    "urllib": "import urllib.request\nurllib.request.urlopen('http://169.254.169.254/', timeout=1)",
    "listen": "import socket\ns = socket.socket()\ns.bind(('0.0.0.0', 8000))\ns.listen()\ns.accept()",
    "passwd": "open('/etc/passwd').read()",
    "parent": "import os\nos.kill(os.getppid(), 9)",
    "environ": "open('/proc/self/environ').read()",
    "memory": "open('/dev/mem', 'rb').read(1)",
    "disk": "open('/dev/sda', 'rb').read(1)",
    "library": "import ctypes\nctypes.CDLL('libc.so.6')",
    "mount": "import ctypes\nassert ctypes.CDLL(None).mount(b'/', b'/tmp', b'none', 4096, None) == 0",
}


async def test_code_reaches_neither_javascript_nor_the_host(sandbox: WebAssemblySandbox) -> None:
    for name, code in {**TO_JAVASCRIPT, **TO_THE_HOST}.items():
        async with asyncio.timeout(20):
            ran = await sandbox.run_python(f"{code}\nprint('reached')", timeout=5)
        assert ran.exit_code != 0, f"{name}: {ran}"
        assert "reached" not in ran.stdout, f"{name}: {ran}"
    assert (await sandbox.run_python("print('well')")).stdout == "well\n"


async def test_too_much_memory_is_an_error_of_the_code(sandbox: WebAssemblySandbox) -> None:
    await sandbox.write_file("a.txt", "kept")
    ran = await sandbox.run_python("blocks = []\nwhile True:\n    blocks.append(bytearray(16 << 20))")
    assert (ran.exit_code, ran.stderr.splitlines()[-1]) == (1, "MemoryError")
    assert await sandbox.read_file("a.txt") == b"kept"


@pytest.mark.parametrize("made", ["to_js(bytes(32 << 20))", "to_js([[]] * 100_000)"])
async def test_too_much_memory_of_javascript_ends_the_sandbox(sandbox: WebAssemblySandbox, made: str) -> None:
    code = f"from pyodide.ffi import to_js\nkept = []\nwhile True:\n    kept.append({made})"
    async with asyncio.timeout(60):
        ran = await sandbox.run_python(code)
    assert ran.exit_code != 0
    assert "starts a new one" in ran.stderr
    assert (await sandbox.run_python("print('new')")).stdout == "new\n"


async def test_the_disk_can_be_full_and_be_freed() -> None:
    require_pyodide()
    sandbox = WebAssemblySandbox(limits=SandboxLimits(disk_bytes=8 << 20))
    full = "OSError: [Errno 51] No space left on device"
    try:
        for code in (
            "open('a', 'wb').write(bytes(9 << 20))",
            "open('b', 'wb').truncate(9 << 20)",
            "import os\nf = os.open('c', os.O_CREAT | os.O_WRONLY)\nos.lseek(f, 1 << 40, 0)\nos.write(f, b'x')",
            "import os\nfor n in range(5000):\n    os.mkdir(f'folder{n}')",
            "import os\nfor n in range(5000):\n    os.symlink('a', f'link{n}')",
            "import os\nfor n in range(9):\n    open('/tmp/d', 'wb').write(bytes(1 << 20))\n"
            "    open(f'/tmp/{n}', 'wb').write(bytes(1 << 20))",
            "import os\nopened = []\nfor n in range(9):\n    opened.append(open('e', 'wb'))\n"
            "    opened[-1].write(bytes(1 << 20))\n    opened[-1].flush()\n    os.remove('e')",
        ):
            ran = await sandbox.run_python(code)
            assert ran.stderr.splitlines()[-1].startswith(full), f"{code}: {ran}"
            cleanup = "import glob, os, shutil\nfor p in glob.glob('*') + glob.glob('/tmp/*'):\n" + (
                "    shutil.rmtree(p) if os.path.isdir(p) and not os.path.islink(p) else os.remove(p)"
            )
            assert (await sandbox.run_python(cleanup)).stderr == ""

        with pytest.raises(ToolError, match="No space left"):
            await sandbox.write_file("f", bytes(9 << 20))
        assert await sandbox.list_files() == []
        await sandbox.write_file("f", bytes(7 << 20))
        for _ in range(5):
            assert (await sandbox.run_python("open('g', 'wb').write(bytes(1 << 19))")).exit_code == 0
    finally:
        await sandbox.close()


@pytest.mark.parametrize(
    "code",
    [
        "import os\nos._exit(3)",
        "import ctypes\nctypes.string_at(0xFFFFFFF0, 99)",
        "import sys\nsys.setrecursionlimit(10**9)\ndef f():\n    f()\nf()",
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    ],
    ids=["exit", "crash", "stack", "uninterruptible"],
)
async def test_code_that_ends_its_sandbox_leaves_a_new_one(sandbox: WebAssemblySandbox, code: str) -> None:
    await sandbox.write_file("a.txt", "1")
    async with asyncio.timeout(60):
        ran = await sandbox.run_python(code, timeout=1)
    assert ran.exit_code != 0
    assert "files and variables are gone" in ran.stderr
    assert await sandbox.list_files() == []
    assert (await sandbox.run_python("print('new')")).stdout == "new\n"


@pytest.mark.parametrize(
    "code",
    [
        "import asyncio\nasyncio.run(asyncio.sleep(60))",
        "import asyncio\nasync def spin():\n    while True: pass\nasyncio.run(spin())",
        "import asyncio\nasync def turn():\n    while True: await asyncio.sleep(0)\nasyncio.run(turn())",
        "10 ** 10 ** 8",
    ],
)
async def test_a_timeout_leaves_the_interpreter(sandbox: WebAssemblySandbox, code: str) -> None:
    await sandbox.run_python("x = 1", keeps_variables=True)
    ran = await sandbox.run_python(code, timeout=0.3)
    assert (ran.timed_out, ran.stderr) == (True, "")
    assert (await sandbox.run_python("print(x)", keeps_variables=True)).stdout == "1\n"


async def test_asyncio_works(sandbox: WebAssemblySandbox) -> None:
    code = (
        "import asyncio\n"
        "async def double(n):\n    await asyncio.sleep(0.01)\n    return 2 * n\n"
        "async def main():\n    print(await asyncio.gather(double(1), double(2)))\n"
        "asyncio.run(main())"
    )
    assert (await sandbox.run_python(code)).stdout == "[2, 4]\n"


async def test_what_code_leaves_to_be_done_later_is_not_done(sandbox: WebAssemblySandbox) -> None:
    code = (
        "import asyncio\n"
        "def spin():\n    open('late', 'w').close()\n    while True: pass\n"
        "asyncio.get_event_loop().call_later(0.05, spin)"
    )
    assert (await sandbox.run_python(code)).stderr == ""
    assert (await sandbox.run_python("import time\ntime.sleep(0.2)", timeout=5)).exit_code == 0
    assert await sandbox.list_files() == []


async def test_an_imported_file_is_read_again_by_the_next_code(sandbox: WebAssemblySandbox) -> None:
    await sandbox.write_file("tables.py", "ROWS = 1")
    first = await sandbox.run_python("import tables, os\nprint(tables.ROWS)\nos.environ['A'] = 'b'")
    await sandbox.write_file("tables.py", "ROWS = 2")
    second = await sandbox.run_python("import tables, os\nprint(tables.ROWS, os.environ.get('A'))")
    assert (first.stdout, second.stdout) == ("1\n", "2 None\n")


async def test_each_sandbox_has_its_own_random_numbers(sandbox: WebAssemblySandbox) -> None:
    code = "import random, uuid, os\nprint(random.random(), uuid.uuid4(), os.urandom(8))"
    other = sandbox.new()
    try:
        one, two = [await each.run_python(code) for each in (sandbox, other)]
    finally:
        await other.close()
    assert not set(one.stdout.split()) & set(two.stdout.split())


async def test_a_file_that_changes_twice_within_a_millisecond_has_changed(sandbox: WebAssemblySandbox) -> None:
    await sandbox.write_file("a", "1")
    await sandbox.run_python(
        "import os\nbefore = os.stat('a')\nopen('a', 'w').write('2')\n"
        "os.utime('a', ns=(before.st_atime_ns, before.st_mtime_ns))"
    )
    files, _ = await sandbox.changed_files()
    assert [(file.name, file.content) for file in files] == [("a", b"2")]


async def test_a_machine_without_pyodide_is_told_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GREENROOM_CACHE_DIR", str(tmp_path))
    assert not pyodide.is_installed()
    with pytest.raises(ToolError, match="greenroom sandbox pull"):
        await WebAssemblySandbox().initialize()


async def test_a_machine_without_deno_is_told_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    require_pyodide()
    monkeypatch.setitem(sys.modules, "deno", None)
    assert not pyodide.is_installed()
    with pytest.raises(MissingExtra, match=r"greenroom\[wasm\]"):
        await WebAssemblySandbox().initialize()


def test_too_little_memory_is_refused() -> None:
    with pytest.raises(ValueError, match="memory"):
        WebAssemblySandbox(limits=SandboxLimits(memory_bytes=1 << 20))
