"""The contract of a computer that a model controls.

Source of names and arguments: ADK's BaseComputer and the predefined functions of the Gemini API.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from enum import StrEnum
from typing import Literal, TypeAlias

from greenroom.invocation.user_context import ToolContext
from greenroom.records.base import Record

Direction: TypeAlias = Literal["up", "down", "left", "right"]


class ComputerEnvironment(StrEnum):
    ENVIRONMENT_UNSPECIFIED = "ENVIRONMENT_UNSPECIFIED"
    ENVIRONMENT_BROWSER = "ENVIRONMENT_BROWSER"
    ENVIRONMENT_MOBILE = "ENVIRONMENT_MOBILE"
    ENVIRONMENT_DESKTOP = "ENVIRONMENT_DESKTOP"


class DownloadedFile(Record, kw_only=True):
    """A file that a page has made the browser download."""

    name: str
    """As the page suggests it."""

    data: bytes | None = None
    """None if it was not received."""

    error: str | None = None
    """The reason if it was not received."""


class ComputerState(Record, kw_only=True):
    """The screen after an action."""

    screenshot: bytes | None = None
    """A PNG."""

    url: str | None = None
    """Of the page that a browser shows."""

    downloads: list[DownloadedFile] | None = None
    """Files that have arrived since the last action; the toolset saves them as artifacts."""


class BaseComputer(ABC):
    """Coordinates are pixels of the screen. Each action returns the state after it.

    An action raises ToolError, whose text the model gets, for what the model can try in another way. A computer may
    also have `double_click`, `triple_click`, `middle_click`, `right_click`, `mouse_down` and `mouse_up`, with `x` and
    `y`, and `key_down` and `key_up`, with `key`: Gemini 3 is then offered them.
    """

    _lock: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None

    @property
    def lock(self) -> asyncio.Lock:
        """Held while an action is carried out, so that actions on one computer don't overlap."""
        loop = asyncio.get_running_loop()
        if self._lock is None or self._lock[0] is not loop:
            self._lock = loop, asyncio.Lock()
        return self._lock[1]

    async def initialize(self) -> None:
        """Called before the first action, and again after `close`."""

    async def close(self) -> None:
        """Releases what `initialize` acquired."""

    async def prepare(self, tool_context: ToolContext) -> None:
        """Called before each action, for example to select the state of the call's session."""

    @abstractmethod
    async def screen_size(self) -> tuple[int, int]:
        """Width and height in pixels."""

    @abstractmethod
    async def environment(self) -> ComputerEnvironment: ...

    @abstractmethod
    async def current_state(self) -> ComputerState: ...

    @abstractmethod
    async def open_web_browser(self) -> ComputerState: ...

    @abstractmethod
    async def click_at(self, x: int, y: int) -> ComputerState: ...

    @abstractmethod
    async def hover_at(self, x: int, y: int) -> ComputerState: ...

    @abstractmethod
    async def type_text_at(
        self, x: int, y: int, text: str, press_enter: bool = True, clear_before_typing: bool = True
    ) -> ComputerState: ...

    async def type_text(self, text: str, press_enter: bool = False) -> ComputerState:
        """Types into the focused element. Gemini 3 is offered `type` where a computer overrides this."""
        raise NotImplementedError

    @abstractmethod
    async def scroll_document(self, direction: Direction) -> ComputerState: ...

    @abstractmethod
    async def scroll_at(
        self,
        x: int,
        y: int,
        direction: Direction,
        magnitude: int,
    ) -> ComputerState:
        """Scrolls at a position, by `magnitude` pixels."""

    @abstractmethod
    async def wait(self, seconds: int) -> ComputerState: ...

    @abstractmethod
    async def go_back(self) -> ComputerState: ...

    @abstractmethod
    async def go_forward(self) -> ComputerState: ...

    @abstractmethod
    async def search(self) -> ComputerState:
        """Opens the home page of a search engine."""

    @abstractmethod
    async def navigate(self, url: str) -> ComputerState: ...

    @abstractmethod
    async def key_combination(self, keys: list[str]) -> ComputerState:
        """Presses keys together, as `["control", "c"]`."""

    @abstractmethod
    async def drag_and_drop(
        self,
        x: int,
        y: int,
        destination_x: int,
        destination_y: int,
    ) -> ComputerState: ...
