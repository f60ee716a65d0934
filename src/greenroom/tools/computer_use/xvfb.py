"""A Linux desktop as a computer: Xvfb, controlled by xdotool."""

from __future__ import annotations

import asyncio
import math
import shutil
from collections import OrderedDict
from collections.abc import Mapping, Sequence

from greenroom.errors import NotOffered, ToolError
from greenroom.invocation.user_context import ToolContext
from greenroom.records.session import SessionKey
from greenroom.tools.computer_use.computer import BaseComputer, ComputerEnvironment, ComputerState, Direction
from greenroom.tools.computer_use.desktop import PROGRAMS, Desktop
from greenroom.tools.computer_use.keyboard import characters_of, is_typable, key_symbols, typed_in_parts

SETTLE_SECONDS = 0.5

_PIXELS_PER_WHEEL_STEP = 50
_MAX_WHEEL_STEPS = 100
_WHEEL_BUTTONS = {"up": 4, "down": 5, "left": 6, "right": 7}
_DRAG_STEPS = 10


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

        self._desktops: OrderedDict[SessionKey, Desktop] = OrderedDict()
        self._desktop: Desktop | None = None

    async def initialize(self) -> None:
        """Raises NotOffered when a program is missing."""
        missing = [program for program in PROGRAMS if shutil.which(program) is None]
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
            desktop = await Desktop.start(self._command, self._env, self._screen_size)
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
    def _current(self) -> Desktop:
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
