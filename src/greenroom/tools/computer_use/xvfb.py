"""A Linux desktop as a computer: Xvfb, controlled by xdotool."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import secrets
import shutil
import signal
import struct
import subprocess
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path

from greenroom.environments.process import run_process
from greenroom.errors import NotOffered, ToolError
from greenroom.invocation.user_context import ToolContext
from greenroom.records.session import SessionKey
from greenroom.tools.computer_use.computer import BaseComputer, ComputerEnvironment, ComputerState, Direction
from greenroom.tools.computer_use.keyboard import SpareKeys, characters_of, is_typable, key_symbols, typed_in_parts

ACTION_SECONDS = 15.0
START_SECONDS = 15.0
SETTLE_SECONDS = 0.5
STOP_SECONDS = 5.0

_PROGRAMS = ("Xvfb", "xdotool", "maim", "xkbcomp")
_POLL_SECONDS = 0.02
_MILLISECONDS_PER_KEY = 2
_PIXELS_PER_WHEEL_STEP = 50
_MAX_WHEEL_STEPS = 100
_WHEEL_BUTTONS = {"up": 4, "down": 5, "left": 6, "right": 7}
_DRAG_STEPS = 10
_OUTPUT_BYTES = 2000

_ANY_ADDRESS = 0xFFFF
"""The family of an entry of an Xauthority file that is valid for every display."""


class XvfbComputer(BaseComputer):
    """An X server without a monitor, with an application, for each session. Linux only.

    It needs Xvfb, xdotool and maim; raises NotOffered without them. Nobody else can connect to the X server, and the
    application can't connect to another one. Server and application end with `close`, and with this process.

    The application runs as this process's user, and can read its files: start it in a sandbox if it must not. Its
    environment has PATH, a locale, and a temporary HOME, which is its working directory and is deleted with the
    desktop. There is no window manager; a shell can start one beside the application.

    command: the application, with its arguments. It is started again when it has ended and shows no window.
    screen_size: in pixels.
    env: more variables of the application's environment.
    max_sessions: beyond that number, the desktop of the session that was used longest ago is closed.
    settle_seconds: between an action and the look at its effect.
    """

    def __init__(
        self,
        *,
        command: Sequence[str],
        screen_size: tuple[int, int] = (1280, 800),
        env: Mapping[str, str] | None = None,
        max_sessions: int = 10,
        settle_seconds: float = SETTLE_SECONDS,
    ) -> None:
        if isinstance(command, str) or not command:
            raise ValueError('XvfbComputer: command is a list of the program and its arguments, as ["xterm"]')
        if min(screen_size) < 1 or max_sessions < 1:
            raise ValueError("XvfbComputer: screen_size and max_sessions are at least 1")

        self._command = list(command)
        self._screen_size = screen_size
        self._env = dict(env or {})
        self._max_sessions = max_sessions
        self._settle_seconds = settle_seconds

        self._desktops: OrderedDict[SessionKey, _Desktop] = OrderedDict()
        self._desktop: _Desktop | None = None

    async def initialize(self) -> None:
        """Raises NotOffered when a program is missing."""
        missing = [program for program in _PROGRAMS if shutil.which(program) is None]
        if missing:
            raise NotOffered(f"XvfbComputer needs {', '.join(missing)}; on Debian: apt-get install xvfb xdotool maim")

    async def close(self) -> None:
        self._desktop = None
        while self._desktops:
            _, desktop = self._desktops.popitem()
            await desktop.close()

    async def prepare(self, tool_context: ToolContext) -> None:
        """Selects the desktop of the call's session, and starts one that is missing or has crashed.

        Raises ToolError if the X server or the application can't be started.
        """
        key = tool_context.session.key
        self._desktop = None

        desktop = self._desktops.get(key)
        if desktop is not None and not desktop.is_running:
            del self._desktops[key]
            await desktop.close()
            desktop = None

        if desktop is None:
            desktop = await _Desktop.start(self._command, self._env, self._screen_size)
            self._desktops[key] = desktop
            await self._settle()
            if len(self._desktops) > self._max_sessions:
                _, oldest = self._desktops.popitem(last=False)
                await oldest.close()
        elif await desktop.has_no_application():
            await desktop.start_application()
            await self._settle()

        self._desktops.move_to_end(key)
        self._desktop = desktop

    @property
    def _current(self) -> _Desktop:
        if self._desktop is None:
            raise RuntimeError("XvfbComputer: call prepare() first")
        return self._desktop

    async def _settle(self) -> None:
        await asyncio.sleep(self._settle_seconds)

    async def _xdotool(self, *commands: str | int) -> ComputerState:
        await self._current.xdotool(*commands)
        return await self._state_after()

    async def _state_after(self) -> ComputerState:
        await self._settle()
        return await self.current_state()

    async def screen_size(self) -> tuple[int, int]:
        return self._screen_size

    async def environment(self) -> ComputerEnvironment:
        return ComputerEnvironment.ENVIRONMENT_UNSPECIFIED

    async def current_state(self) -> ComputerState:
        return ComputerState(screenshot=await self._current.screenshot())

    async def click_at(self, x: int, y: int) -> ComputerState:
        return await self._xdotool("mousemove", x, y, "click", 1)

    async def double_click(self, x: int, y: int) -> ComputerState:
        return await self._xdotool("mousemove", x, y, "click", "--repeat", 2, "--delay", 50, 1)

    async def triple_click(self, x: int, y: int) -> ComputerState:
        return await self._xdotool("mousemove", x, y, "click", "--repeat", 3, "--delay", 50, 1)

    async def middle_click(self, x: int, y: int) -> ComputerState:
        return await self._xdotool("mousemove", x, y, "click", 2)

    async def right_click(self, x: int, y: int) -> ComputerState:
        return await self._xdotool("mousemove", x, y, "click", 3)

    async def mouse_down(self, x: int, y: int) -> ComputerState:
        return await self._xdotool("mousemove", x, y, "mousedown", 1)

    async def mouse_up(self, x: int, y: int) -> ComputerState:
        return await self._xdotool("mousemove", x, y, "mouseup", 1)

    async def hover_at(self, x: int, y: int) -> ComputerState:
        return await self._xdotool("mousemove", x, y)

    async def type_text_at(
        self, x: int, y: int, text: str, press_enter: bool = True, clear_before_typing: bool = True
    ) -> ComputerState:
        _check_text(text)

        await self._current.xdotool("mousemove", x, y, "click", 1)
        if clear_before_typing:
            await self._current.xdotool("key", "Control_L+a", "key", "Delete")

        return await self.type_text(text, press_enter)

    async def type_text(self, text: str, press_enter: bool = False) -> ComputerState:
        _check_text(text)

        for number, part in enumerate(typed_in_parts(text)):
            if number > 0:
                await self._settle()  # until the application has read the keys that now get other characters
            await self._current.assign_keys(part)
            await self._current.type(part)

        if press_enter:
            await self._current.xdotool("key", "Return")

        return await self._state_after()

    async def key_combination(self, keys: list[str]) -> ComputerState:
        return await self._keys("key", keys)

    async def key_down(self, key: str) -> ComputerState:
        return await self._keys("keydown", [key])

    async def key_up(self, key: str) -> ComputerState:
        return await self._keys("keyup", [key])

    async def _keys(self, command: str, keys: list[str]) -> ComputerState:
        symbols = key_symbols(keys)
        await self._current.assign_keys(characters_of(keys))
        return await self._xdotool(command, "+".join(symbols))

    async def scroll_document(self, direction: Direction) -> ComputerState:
        """Scrolls what is at the center, by half a screen."""
        width, height = self._screen_size
        magnitude = (height if direction in ("up", "down") else width) // 2
        return await self.scroll_at(width // 2, height // 2, direction, magnitude)

    async def scroll_at(
        self,
        x: int,
        y: int,
        direction: Direction,
        magnitude: int,
    ) -> ComputerState:
        """Turns the mouse wheel by one step for each 50 pixels, at most by 100 steps."""
        steps = min(max(math.ceil(magnitude / _PIXELS_PER_WHEEL_STEP), 1), _MAX_WHEEL_STEPS)
        button = _WHEEL_BUTTONS[direction]
        return await self._xdotool("mousemove", x, y, "click", "--repeat", steps, "--delay", 10, button)

    async def drag_and_drop(
        self,
        x: int,
        y: int,
        destination_x: int,
        destination_y: int,
    ) -> ComputerState:
        moves: list[str | int] = []
        for step in range(1, _DRAG_STEPS + 1):
            moves += [
                "mousemove",
                x + (destination_x - x) * step // _DRAG_STEPS,
                y + (destination_y - y) * step // _DRAG_STEPS,
                "sleep",
                "0.02",
            ]
        return await self._xdotool("mousemove", x, y, "mousedown", 1, *moves, "mouseup", 1)

    async def wait(self, seconds: int) -> ComputerState:
        await asyncio.sleep(seconds)
        return await self.current_state()

    async def open_web_browser(self) -> ComputerState:
        raise _no_browser()

    async def search(self) -> ComputerState:
        raise _no_browser()

    async def navigate(self, url: str) -> ComputerState:
        raise _no_browser()

    async def go_back(self) -> ComputerState:
        raise _no_browser()

    async def go_forward(self) -> ComputerState:
        raise _no_browser()


def _check_text(text: str) -> None:
    """Raises ToolError."""
    if not is_typable(text):
        raise ToolError("the text has control characters, which can't be typed; press keys for them")


def _no_browser() -> ToolError:
    return ToolError("this desktop has no web browser of its own; use the applications on the screen")


class _Desktop:
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
    async def start(cls, command: Sequence[str], env: Mapping[str, str], screen_size: tuple[int, int]) -> _Desktop:
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
            await self._run("xkbcomp", "-w0", str(file), self._env["DISPLAY"])

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
    """Xvfb on a free display, for those who have the cookie."""

    def __init__(self, screen_size: tuple[int, int], *, cookie_file: Path, env: Mapping[str, str]) -> None:
        width, height = screen_size
        self._display_pipe, write_end = os.pipe()
        try:
            self.processes = _ProcessGroup(
                [
                    "Xvfb", "-displayfd", str(write_end), "-screen", "0", f"{width}x{height}x24",
                    "-auth", str(cookie_file), "-nolisten", "tcp", "-noreset",
                ],
                stop_signal="TERM",  # on which it removes its lock
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
        self.processes = _ProcessGroup(command, stop_signal="KILL", env=env, cwd=cwd, stderr=subprocess.PIPE)
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


class _ProcessGroup:
    """A command with the processes that it starts; `stop` ends those of its group, and so does the end of this process.

    A shell waits for the end of a pipe, which the kernel closes however this process ends, and signals the group.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        stop_signal: str,
        env: Mapping[str, str],
        cwd: Path,
        stderr: int = subprocess.DEVNULL,
        pass_fds: Sequence[int] = (),
    ) -> None:
        """Raises OSError if the program can't be started."""
        self._process = subprocess.Popen(
            command,
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            pass_fds=pass_fds,
            start_new_session=True,
        )
        self.stderr = self._process.stderr
        try:
            self._guard = subprocess.Popen(
                ["sh", "-c", 'read _; kill -s "$1" -- "-$2"', "sh", stop_signal, str(self._process.pid)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except BaseException:
            self._process.kill()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Of the command; None while it runs. It isn't reaped before `stop`, so that the group's id stays its own."""
        if self._process.returncode is not None:
            return self._process.returncode

        ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return None if ended is None else ended.si_status

    async def stop(self) -> None:
        """Signals the group, and waits for the end of the command, which is killed after 5 seconds."""
        if self._process.returncode is not None:
            return

        assert self._guard.stdin is not None
        self._guard.stdin.close()
        await asyncio.to_thread(self._guard.wait)
        try:
            await asyncio.to_thread(self._process.wait, STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self.pid, signal.SIGKILL)
            await asyncio.to_thread(self._process.wait)


def _authority(cookie: bytes) -> bytes:
    """An Xauthority file with one entry."""
    fields = (b"", b"", b"MIT-MAGIC-COOKIE-1", cookie)  # address, display, protocol, data
    entry = b"".join(struct.pack(">H", len(field)) + field for field in fields)
    return struct.pack(">H", _ANY_ADDRESS) + entry
