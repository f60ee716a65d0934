"""Pyodide, which is Python in WebAssembly, and Deno, which runs it: where they are, and their download.

Deno comes with the extra `wasm`. Pyodide comes from npm's registry: Deno fetches it, with the registry, proxies and
certificates that it is configured for, and compares it with the hash in `pyodide_guest/deno.lock`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from greenroom.errors import CallerError, MissingExtra, ToolError
from greenroom.models.local.files import cache_dir

VERSION = "314.0.7"
"""As in `pyodide_guest/deno.json`."""

GUEST_DIR = Path(__file__).parent / "pyodide_guest"

PULL = "greenroom sandbox pull-pyodide"

_FILES = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "pyodide-lock.json", "python_stdlib.zip")
_SECONDS_TO_FETCH = 600.0
_SECONDS_TO_LOAD = 120.0
_REPORTED_CHARS = 600


def pyodide_dir() -> Path:
    return cache_dir() / "pyodide" / VERSION


def is_installed() -> bool:
    """True if WebAssembly sandboxes can be started. Starts nothing."""
    try:
        find_deno()
    except MissingExtra:
        return False
    return _is_complete()


def find_deno() -> str:
    """Raises MissingExtra."""
    try:
        from deno import find_deno_bin

        return find_deno_bin()
    except (ImportError, FileNotFoundError):
        raise MissingExtra("wasm", "deno") from None


def pull() -> Path:
    """Downloads Pyodide, unless it is there, and prepares its start. Blocks.

    Raises CallerError with Deno's output if it can't be fetched.
    """
    deno = find_deno()
    folder = pyodide_dir()
    if not _is_complete():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".pull-", dir=folder.parent) as scratch:
            _fetch(deno, Path(scratch))

    asyncio.run(find_snapshot())
    return folder


async def find_snapshot() -> Path:
    """Returns the file with the memory of a Python that is loaded; makes it if it is missing.

    Raises ToolError.
    """
    if not _is_complete():
        raise ToolError(f"WebAssemblySandbox needs Pyodide, which isn't on this machine; get it with: {PULL}")

    path = pyodide_dir() / f"snapshot-{_hash_of_guest()}.bin"
    if path.is_file():
        return path

    process = await asyncio.create_subprocess_exec(
        *deno_command("snapshot.mjs", pyodide_dir().as_uri() + "/"),
        env=deno_variables(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_SECONDS_TO_LOAD):
            content, complaint = await process.communicate()
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        raise

    if process.returncode != 0:
        said = complaint.decode(errors="replace").strip()[:_REPORTED_CHARS]
        raise ToolError(f"Pyodide can't be loaded; Deno said: {said}")

    await asyncio.to_thread(_write_whole, path, content)
    return path


def deno_command(script: str, *arguments: str, memory_bytes: int = 2**30) -> list[str]:
    """Returns the command that runs a script of `pyodide_guest`. It may read the scripts and Pyodide, and nothing else.

    memory_bytes: at most for the memory that WebAssembly sees; JavaScript's objects have a quarter of it.
    """
    v8_flags = (
        "--disallow-code-generation-from-strings",
        f"--wasm-max-mem-pages={memory_bytes // 65536}",
        f"--max-old-space-size={memory_bytes // 4 // 2**20}",
    )
    return [
        find_deno(),
        "run",
        "--quiet",
        "--no-prompt",
        "--no-remote",
        "--no-npm",
        "--no-config",
        "--no-lock",
        f"--allow-read={_escaped(GUEST_DIR)},{_escaped(pyodide_dir())}",
        f"--v8-flags={','.join(v8_flags)}",
        str(GUEST_DIR / script),
        *arguments,
    ]


def deno_variables() -> dict[str, str]:
    """Returns all variables that Deno gets: none of the host's, which code could look for in its memory."""
    variables = {
        "DENO_DIR": str(cache_dir() / "deno"),
        "DENO_NO_UPDATE_CHECK": "1",
        "NO_COLOR": "1",
    }
    if "SYSTEMROOT" in os.environ:  # Windows starts no program without it
        variables["SYSTEMROOT"] = os.environ["SYSTEMROOT"]
    return variables


def _is_complete() -> bool:
    return all((pyodide_dir() / name).is_file() for name in _FILES)


def _fetch(deno: str, scratch: Path) -> None:
    for name in ("deno.json", "deno.lock"):
        shutil.copy(GUEST_DIR / name, scratch)

    variables = {**os.environ, "DENO_DIR": str(scratch / "deno"), "DENO_NO_UPDATE_CHECK": "1", "NO_COLOR": "1"}
    try:
        ran = subprocess.run(
            [deno, "install", "--frozen", "--no-prompt"],
            cwd=scratch,
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS_TO_FETCH,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise CallerError(f"Can't get Pyodide {VERSION}: Deno took more than {_SECONDS_TO_FETCH:.0f} s") from None

    package = scratch / "node_modules" / "pyodide"
    if ran.returncode != 0 or not all((package / name).is_file() for name in _FILES):
        said = (ran.stderr + ran.stdout).strip()[-_REPORTED_CHARS:]
        raise CallerError(f"Can't get Pyodide {VERSION} from npm's registry; Deno said: {said}")

    complete = scratch / "complete"
    complete.mkdir()
    for name in _FILES:
        shutil.copyfile(package / name, complete / name)

    try:
        complete.rename(pyodide_dir())
    except OSError:
        if not _is_complete():  # nobody else was faster; the folder is damaged
            shutil.rmtree(pyodide_dir())
            complete.rename(pyodide_dir())


def _hash_of_guest() -> str:
    """Changes with the programs that a snapshot contains, or is made by."""
    hashed = hashlib.sha256()
    for path in sorted(GUEST_DIR.iterdir()):
        if path.is_file():
            hashed.update(path.read_bytes())
    return hashed.hexdigest()[:16]


def _write_whole(path: Path, content: bytes) -> None:
    """The file appears with all its content, or not at all."""
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        try:
            file.write(content)
            file.close()
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise


def _escaped(path: Path) -> str:
    """Deno splits lists of paths at single commas."""
    return str(path).replace(",", ",,")
