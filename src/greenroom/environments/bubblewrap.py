"""Sandboxes of bubblewrap, which separates processes by the namespaces of Linux, without a daemon."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from greenroom.environments.guest_connection import LOADER, GuestWriter, guest_source
from greenroom.environments.guest_sandbox import GuestSandbox
from greenroom.environments.process import run_process
from greenroom.environments.sandbox import SandboxLimits
from greenroom.errors import ToolError

WORKING_DIR = Path("/home/workspace")
NOBODY = 65534

SYSTEM_FOLDERS = (
    "/usr/bin",
    "/usr/sbin",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/libexec",
    "/usr/share",
    "/nix/store",
    "/etc/alternatives",
    "/etc/ld.so.cache",
)
"""Not all of /usr: /usr/src and /usr/local are where images of containers keep applications."""

NETWORK_FILES = ("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/ssl", "/etc/pki", "/etc/ca-certificates")
SHORT_CUTS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64")
DEVICES = ("null", "zero", "full", "random", "urandom")

SECONDS_TO_ASK = 20.0
MAX_COMPLAINT_BYTES = 2000

_HELP: dict[str, str] = {}
"""The help of a program, by its path."""


class BubblewrapSandbox(GuestSandbox):
    """Runs code in namespaces of its own (files, processes, network, users), without capabilities and
    with a filter of system calls. Linux only; needs bubblewrap and util-linux.

    Code sees the system's programs and libraries and Python, read-only; nothing else of the host.
    `/home` and `/tmp` are its own and in memory.

    network: the network of the host, all of it: other services on this machine, too.
    python: path of an interpreter, for the packages that are installed for it, for example in a virtual environment.
        None: the one that greenroom runs on, without its virtual environment. If greenroom runs as
        root, it must be readable for everybody; else /usr/bin/python3 takes its place.
    read_only_paths: further files and folders of the host that code can read, under the same paths.
    """

    def __init__(
        self,
        *,
        limits: SandboxLimits | None = None,
        network: bool = False,
        python: str | Path | None = None,
        read_only_paths: Sequence[str | Path] = (),
    ) -> None:
        super().__init__(limits=limits)
        self._network = network
        self._python = python
        self._read_only_paths = tuple(read_only_paths)
        self._process: asyncio.subprocess.Process | None = None

    @property
    def working_dir(self) -> Path:
        return WORKING_DIR

    def new(self) -> Self:
        return type(self)(
            limits=self.limits,
            network=self._network,
            python=self._python,
            read_only_paths=self._read_only_paths,
        )

    async def _start(self) -> tuple[asyncio.StreamReader, GuestWriter]:
        command = await self._command()
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={},
            cwd="/",
            start_new_session=True,
        )
        self._process = process
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdin.write(guest_source())
        return process.stdout, process.stdin

    async def _kill(self) -> str:
        process = self._process
        self._process = None
        if process is None:
            return ""

        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        with contextlib.suppress(ProcessLookupError):
            process.kill()  # bubblewrap asked the kernel to kill its child with it
        process.stdin.close()

        complaint = await process.stderr.read(MAX_COMPLAINT_BYTES)
        await _drain(process.stderr)  # its end is that of the sandbox's program, which holds it open
        with contextlib.suppress(RuntimeError):  # a request that waits for output reads it to its end
            await _drain(process.stdout)
        await process.wait()
        return complaint.decode(errors="replace").strip()

    async def _command(self) -> list[str]:
        program = _program("bwrap", "bubblewrap")
        python, folders = await self._interpreter()
        command = [
            *_without_root(),
            program,
            *(
                "--unshare-all",
                "--unshare-user",
                "--die-with-parent",
                "--new-session",
                "--as-pid-1",
            ),
            *await _further_options(program),
            *("--cap-drop", "ALL", "--uid", str(NOBODY), "--gid", str(NOBODY), "--hostname", "sandbox"),
            *_system_files(),
            *("--proc", "/proc"),
            *_devices(),
            *("--size", str(self.limits.disk_bytes), "--tmpfs", "/home"),
            *("--dir", str(WORKING_DIR), "--dir", "/home/tmp", "--dir", "/home/shm"),
            *("--symlink", "home/tmp", "/tmp", "--symlink", "../home/tmp", "/var/tmp"),
        ]
        if self._network:
            command.append("--share-net")
            for path in NETWORK_FILES:
                command += ["--ro-bind-try", path, path]

        for path in (*folders, *map(str, self._read_only_paths)):  # they may be below /home
            command += ["--ro-bind", path, path]

        command += ["--remount-ro", "/", "--chdir", str(WORKING_DIR), "--clearenv"]
        for name, value in self._variables(python).items():
            command += ["--setenv", name, value]

        return [*command, "--", python, "-I", "-c", LOADER]

    def _variables(self, python: str) -> dict[str, str]:
        threads = str(max(1, round(self.limits.cpus)))
        return {
            "PATH": f"{Path(python).parent}:/usr/local/bin:/usr/bin:/bin",
            "HOME": "/tmp",
            "TMPDIR": "/tmp",
            "USER": "sandbox",
            "LANG": "C.UTF-8",
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": threads,
            "OPENBLAS_NUM_THREADS": threads,
        }

    async def _interpreter(self) -> tuple[str, list[str]]:
        """Returns the interpreter's path, and the folders that it needs besides those of the system."""
        if self._python is not None:
            return await _ask_interpreter(str(self._python))

        prefix = sys.base_prefix
        executable = getattr(sys, "_base_executable", None) or sys.executable
        if os.geteuid() == 0 and not (_is_readable_for_all(Path(executable)) and _is_readable_for_all(Path(prefix))):
            return "/usr/bin/python3", []
        return executable, _folders_of(prefix)


async def _drain(stream: asyncio.StreamReader) -> None:
    while await stream.read(MAX_COMPLAINT_BYTES):
        pass


async def _ask_interpreter(python: str) -> tuple[str, list[str]]:
    question = "import sys; print(sys.prefix, sys.base_prefix, sep='\\n')"
    try:
        ran = await run_process(python, "-I", "-c", question, cwd=Path("/"), env={}, timeout_seconds=SECONDS_TO_ASK)
    except OSError as error:
        raise ToolError(f"BubblewrapSandbox: {python} can't be started: {error.strerror}") from error
    prefixes = ran.stdout.splitlines()
    if ran.exit_code != 0 or len(prefixes) != 2:
        raise ToolError(f"BubblewrapSandbox: {python} is no Python interpreter: {ran.stderr.strip()}")

    prefix, base_prefix = prefixes
    folders = _folders_of(base_prefix)
    if prefix != base_prefix:
        folders.append(prefix)
    return python, folders


def _folders_of(prefix: str) -> list[str]:
    if prefix == "/usr":
        return []
    if prefix == "/usr/local":
        return ["/usr/local/bin", "/usr/local/lib"]

    real_prefix = os.path.realpath(prefix)
    folders = [prefix]
    if real_prefix != prefix:
        folders.append(real_prefix)
    return folders


def _is_readable_for_all(path: Path) -> bool:
    """True if any user can reach and read this file or folder."""
    try:
        path = path.resolve(strict=True)
        is_readable = bool(path.stat().st_mode & stat.S_IROTH)
        return is_readable and all(parent.stat().st_mode & stat.S_IXOTH for parent in path.parents)
    except OSError:
        return False


def _without_root() -> list[str]:
    """Root's sandboxes belong to another user: in a user namespace, too, root could write to /proc/sys."""
    if os.geteuid() != 0:
        return []
    return [
        _program("setpriv", "util-linux"),
        *("--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"),
    ]


def _program(name: str, package: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise ToolError(
            f"BubblewrapSandbox needs the program {name!r} of the package {package!r}, which is available for Linux: "
            f"`apt-get install {package}`, `dnf install {package}` or `apk add {package}`"
        )
    return found


async def _further_options(program: str) -> list[str]:
    """Options that releases before 0.8 don't have. User namespaces are also forbidden as system calls."""
    if program not in _HELP:
        ran = await run_process(program, "--help", cwd=Path("/"), env={}, timeout_seconds=SECONDS_TO_ASK)
        _HELP[program] = ran.stdout + ran.stderr
    return [option for option in ("--disable-userns",) if option in _HELP[program]]


def _system_files() -> list[str]:
    arguments: list[str] = []
    for path in SYSTEM_FOLDERS:
        arguments += ["--ro-bind-try", path, path]

    for path in SHORT_CUTS:
        if os.path.islink(path):
            arguments += ["--symlink", os.readlink(path), path]
        else:
            arguments += ["--ro-bind-try", path, path]

    return arguments


def _devices() -> list[str]:
    arguments = ["--tmpfs", "/dev"]
    for name in DEVICES:
        arguments += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]

    for number, name in enumerate(("stdin", "stdout", "stderr")):
        arguments += ["--symlink", f"/proc/self/fd/{number}", f"/dev/{name}"]

    return [
        *arguments,
        "--symlink",
        "/proc/self/fd",
        "/dev/fd",
        "--symlink",
        "/home/shm",
        "/dev/shm",
        "--remount-ro",
        "/dev",
    ]
