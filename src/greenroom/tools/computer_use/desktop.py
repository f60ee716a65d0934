"""An X server without a monitor, its application, and the programs that control it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import struct
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from greenroom.environments.process import run_process
from greenroom.errors import ToolError
from greenroom.tools.computer_use.keyboard import SpareKeys
from greenroom.tools.computer_use.process_group import ProcessGroup

PROGRAMS = ("Xvfb", "xdotool", "maim", "xkbcomp")
"""Programs that a desktop needs."""

ACTION_SECONDS = 15.0
START_SECONDS = 15.0

_POLL_SECONDS = 0.02
_MILLISECONDS_PER_KEY = 2
_OUTPUT_BYTES = 2000

_ANY_ADDRESS = 0xFFFF
"""The family of an entry of an Xauthority file that is valid for every display."""


class Desktop:
    """An X server with its application."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        self._command = command
        self._folder = Path(tempfile.mkdtemp(prefix="greenroom-desktop-"))
        self._home = self._folder / "home"
        self._runtime = self._folder / "runtime"
        self._cookie_file = self._folder / "Xauthority"
        self._env = {
            "PATH": os.environ.get("PATH", os.defpath),
            "LANG": "C.UTF-8",
            "HOME": str(self._home),
            "XDG_RUNTIME_DIR": str(self._runtime),
            "XAUTHORITY": str(self._cookie_file),
        }
        self._env_of_application = env
        self._spare_keys = SpareKeys()
        self._server: _XServer | None = None
        self._application: _Application | None = None

    @classmethod
    async def start(cls, command: Sequence[str], env: Mapping[str, str], screen_size: tuple[int, int]) -> Desktop:
        """Raises ToolError if the X server or the application can't be started."""
        desktop = cls(command, env)
        try:
            await desktop._start_server(screen_size)
            await desktop.start_application()
        except BaseException:
            await desktop.close()
            raise
        return desktop

    async def _start_server(self, screen_size: tuple[int, int]) -> None:
        self._home.mkdir()
        self._runtime.mkdir(mode=0o700)
        self._cookie_file.touch(mode=0o600)
        self._cookie_file.write_bytes(_authority(secrets.token_bytes(16)))

        self._server = _XServer(screen_size, cookie_file=self._cookie_file, env=self._env)
        self._env["DISPLAY"] = await self._server.display()

    async def start_application(self) -> None:
        """Starts the application, and waits until it shows a window. Raises ToolError."""
        if self._application is not None:
            await self._application.processes.stop()

        program = self._command[0]
        env = {**self._env, **self._env_of_application}
        try:
            self._application = _Application(self._command, env=env, cwd=self._home)
        except OSError as error:
            raise ToolError(f"the application {program!r} could not be started: {error.strerror}") from error

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_SECONDS):
                while not await self._shows_window():
                    exit_code = self._application.processes.exit_code
                    if exit_code not in (None, 0):
                        raise ToolError(
                            f"the application {program!r} ended with exit code {exit_code} before it showed a window: "
                            f"{self._application.last_output()}"
                        )
                    await asyncio.sleep(_POLL_SECONDS)
                return

        raise ToolError(f"the application {program!r} showed no window for {START_SECONDS:.0f} seconds")

    @property
    def is_running(self) -> bool:
        return self._server is not None and self._server.processes.exit_code is None

    async def has_no_application(self) -> bool:
        """True if the application has ended and shows no window: some start another process, and end."""
        if self._application is None:
            return True
        return self._application.processes.exit_code is not None and not await self._shows_window()

    async def _shows_window(self) -> bool:
        windows = await self._run("xdotool", "search", "--onlyvisible", "--name", "")
        return len(windows.split()) > 1  # the first is the background

    async def xdotool(self, *commands: str | int) -> None:
        await self._run("xdotool", *map(str, commands))

    async def type(self, text: str) -> None:
        """Types a text whose characters have keys."""
        file = self._folder / "text"  # not an argument, which other users of the machine could read
        file.touch(mode=0o600)
        # xdotool types a line feed as the key Linefeed, which programs ignore.
        file.write_text(text.replace("\r\n", "\n").replace("\n", "\r"), encoding="utf-8", newline="")
        try:
            await self._run(
                "xdotool", "type", "--delay", str(_MILLISECONDS_PER_KEY), "--file", str(file),
                timeout_seconds=ACTION_SECONDS + len(text) * 0.02,
            )  # fmt: skip
        finally:
            file.unlink()

    async def assign_keys(self, text: str) -> None:
        """Gives keys to the text's characters that the keyboard lacks."""
        keymap = self._spare_keys.assign(text)
        if keymap is not None:
            file = self._folder / "keymap"
            file.write_text(keymap, encoding="ascii")
            try:
                await self._run("xkbcomp", "-w0", str(file), self._env["DISPLAY"])
            except BaseException:
                self._spare_keys = SpareKeys()  # which keys it has assigned is not known
                raise

    async def screenshot(self) -> bytes:
        file = self._folder / "screen.png"
        await self._run("maim", "--format", "png", str(file))
        return await asyncio.to_thread(file.read_bytes)

    async def _run(self, *command: str, timeout_seconds: float = ACTION_SECONDS) -> str:
        """The output of a program that connects to the X server. Raises ToolError when it fails."""
        result = await run_process(*command, cwd=self._folder, env=self._env, timeout_seconds=timeout_seconds)
        if result.timed_out:
            raise ToolError(f"the desktop did not answer within {timeout_seconds:.0f} seconds")
        if not self.is_running:
            raise ToolError("the desktop has crashed; the next action starts a new one")
        if result.exit_code != 0:
            raise ToolError(f"{command[0]} failed: {result.stderr.strip()[-_OUTPUT_BYTES:]}")
        return result.stdout

    async def close(self) -> None:
        """Ends the application and the X server, and deletes the temporary files."""
        if self._application is not None:
            await self._application.processes.stop()

        if self._server is not None:
            await self._server.processes.stop()

        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)


class _XServer:
    """Xvfb on a free display, for those who have the cookie. The cookie's folder is deleted with it."""

    def __init__(self, screen_size: tuple[int, int], *, cookie_file: Path, env: Mapping[str, str]) -> None:
        width, height = screen_size
        self._display_pipe, write_end = os.pipe()
        try:
            self.processes = ProcessGroup(
                [
                    "Xvfb", "-displayfd", str(write_end), "-screen", "0", f"{width}x{height}x24",
                    "-auth", str(cookie_file), "-nolisten", "tcp", "-noreset",
                ],
                stop_signal="TERM",  # on which it removes its lock
                folder=cookie_file.parent,
                env=env,
                cwd=cookie_file.parent,
                pass_fds=[write_end],
            )  # fmt: skip
        except BaseException:
            os.close(self._display_pipe)
            raise
        finally:
            os.close(write_end)

    async def display(self) -> str:
        """Waits for the display's name, as `:1`. Called once; raises ToolError if the server can't be started."""
        written = b""
        os.set_blocking(self._display_pipe, False)
        try:
            async with asyncio.timeout(START_SECONDS):
                while not written.endswith(b"\n"):
                    try:
                        chunk = os.read(self._display_pipe, 100)
                    except BlockingIOError:
                        await asyncio.sleep(_POLL_SECONDS)
                        continue
                    if not chunk:
                        raise ToolError("the X server Xvfb could not be started")
                    written += chunk
        except TimeoutError as error:
            raise ToolError(f"the X server Xvfb did not start within {START_SECONDS:.0f} seconds") from error
        finally:
            os.close(self._display_pipe)

        return f":{int(written)}"


class _Application:
    """A running application, and the end of what it has written to its standard error."""

    def __init__(self, command: Sequence[str], *, env: Mapping[str, str], cwd: Path) -> None:
        """Raises OSError if the program can't be started."""
        self.processes = ProcessGroup(command, stop_signal="KILL", env=env, cwd=cwd, stderr=subprocess.PIPE)
        self._output = b""
        threading.Thread(target=self._read_output, daemon=True).start()

    def _read_output(self) -> None:
        stderr = self.processes.stderr
        assert stderr is not None
        with stderr:
            while chunk := os.read(stderr.fileno(), 4096):
                self._output = (self._output + chunk)[-_OUTPUT_BYTES:]

    def last_output(self) -> str:
        return self._output.decode(errors="replace").strip() or "it wrote nothing to its standard error"


def _authority(cookie: bytes) -> bytes:
    """An Xauthority file with one entry."""
    fields = (b"", b"", b"MIT-MAGIC-COOKIE-1", cookie)  # address, display, protocol, data
    entry = b"".join(struct.pack(">H", len(field)) + field for field in fields)
    return struct.pack(">H", _ANY_ADDRESS) + entry
