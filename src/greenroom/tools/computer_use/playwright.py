"""A browser as a computer: Chromium, by Playwright."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING

from greenroom.errors import MissingExtra, ToolError
from greenroom.invocation.user_context import ToolContext
from greenroom.records.session import SessionKey
from greenroom.tools.computer_use.allowed_hosts import AllowedHosts
from greenroom.tools.computer_use.computer import (
    BaseComputer,
    ComputerEnvironment,
    ComputerState,
    Direction,
    DownloadedFile,
)
from greenroom.tools.computer_use.downloads import Downloads

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, Page, Playwright

ACTION_SECONDS = 15.0
SETTLE_SECONDS = 0.5
DOWNLOAD_SECONDS = 5.0
MAX_DOWNLOAD_BYTES = 10 * 1024 * 1024

_KEYS = {
    name.lower(): name
    for name in (
        "Alt", "ArrowDown", "ArrowLeft", "ArrowRight", "ArrowUp", "Backspace", "Control", "Delete", "End", "Enter",
        "Escape", "Home", "Insert", "Meta", "PageDown", "PageUp", "Shift", "Tab", *(f"F{n}" for n in range(1, 13)),
    )
} | {
    "return": "Enter", "ctrl": "Control", "command": "Meta", "cmd": "Meta", "esc": "Escape", "space": "Space",
    "left": "ArrowLeft", "right": "ArrowRight", "up": "ArrowUp", "down": "ArrowDown",
}  # fmt: skip
"""Playwright's names of keys by those that models write, in lower case."""


class PlaywrightComputer(BaseComputer):
    """Chromium, with separate cookies and pages for each session. Raises MissingExtra without Playwright.

    screen_size: of the page, in pixels.
    initial_url: of each session's first page.
    search_url: what `search` opens.
    executable_path: of an installed Chromium, Chrome or Edge; None: the one that `playwright
        install chromium` downloaded.
    browser_args: more arguments of its command line.
    max_sessions: beyond that number, the pages of the session that was used longest ago are closed.
    settle_seconds: between an action and the look at its effect.
    allowed_hosts: the only ones that the browser may connect to, as "example.com" or "*.example.com"; also for
        redirects, parts of pages and WebSockets. Proxies of the environment are then not used.
    max_download_bytes: larger files are not downloaded. Others become artifacts of the session.
    """

    def __init__(
        self,
        *,
        screen_size: tuple[int, int] = (1280, 800),
        initial_url: str | None = None,
        search_url: str = "https://www.google.com",
        headless: bool = True,
        executable_path: str | None = None,
        browser_args: Sequence[str] = (),
        max_sessions: int = 10,
        settle_seconds: float = SETTLE_SECONDS,
        allowed_hosts: Collection[str] | None = None,
        max_download_bytes: int = MAX_DOWNLOAD_BYTES,
    ) -> None:
        """Raises ValueError for wrong hosts, and for an initial_url that is not on one of them."""
        self._screen_size = screen_size
        self._initial_url = initial_url
        self._search_url = search_url
        self._headless = headless
        self._executable_path = executable_path
        self._browser_args = list(browser_args)
        self._max_sessions = max_sessions
        self._settle_seconds = settle_seconds
        self._allowed_hosts = AllowedHosts(allowed_hosts) if allowed_hosts is not None else None
        self._max_download_bytes = max_download_bytes
        if initial_url is not None and self._allowed_hosts is not None and not self._allowed_hosts.allows(initial_url):
            raise ValueError(f"initial_url: {initial_url!r} is not on one of the allowed hosts {self._allowed_hosts}")

        self._playwright: Playwright | None = None
        self._browser: Browser | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._contexts: OrderedDict[SessionKey, BrowserContext] = OrderedDict()
        self._context: BrowserContext | None = None
        self._downloads: Downloads | None = None

    async def initialize(self) -> None:
        """Raises MissingExtra, and Playwright's error if the browser can't be started."""
        try:
            from playwright.async_api import async_playwright
        except ImportError as error:
            raise MissingExtra("browser", "playwright") from error

        self._loop = asyncio.get_running_loop()
        self._playwright = await async_playwright().start()
        args = self._browser_args
        if self._allowed_hosts is not None:
            args = [*args, *self._allowed_hosts.browser_args]

        try:
            self._downloads = Downloads(max_bytes=self._max_download_bytes)
            self._browser = await self._playwright.chromium.launch(
                headless=self._headless,
                executable_path=self._executable_path,
                args=args,
                downloads_path=self._downloads.folder,
            )
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        browser = self._browser
        playwright = self._playwright
        downloads = self._downloads
        self._browser = None
        self._playwright = None
        self._downloads = None
        self._contexts.clear()

        if self._loop is asyncio.get_running_loop():  # else the connection to the browser ended with its event loop
            if browser is not None:
                await browser.close()

            if playwright is not None:
                await playwright.stop()

        if downloads is not None:
            await downloads.close()

    async def prepare(self, tool_context: ToolContext) -> None:
        """Selects the pages of the call's session, and starts a browser in place of one that has
        crashed.
        """
        if self._browser is None or not self._browser.is_connected() or self._loop is not asyncio.get_running_loop():
            await self.close()
            await self.initialize()

        assert self._browser is not None
        assert self._downloads is not None

        key = tool_context.session.key
        context = self._contexts.get(key)
        if context is None:
            width, height = self._screen_size
            context = await self._browser.new_context(viewport={"width": width, "height": height})
            context.set_default_timeout(ACTION_SECONDS * 1000)
            self._downloads.follow(context)
            self._contexts[key] = context
            if self._initial_url is not None:
                await (await context.new_page()).goto(self._initial_url)

            if len(self._contexts) > self._max_sessions:
                _, oldest = self._contexts.popitem(last=False)
                self._downloads.forget(oldest)
                await oldest.close()

        self._contexts.move_to_end(key)
        self._context = context

    async def _page(self) -> Page:
        """The newest page: links open others, and scripts close them."""
        if self._context is None:
            raise RuntimeError("PlaywrightComputer: call prepare() first")
        if self._context.pages:
            return self._context.pages[-1]
        return await self._context.new_page()

    async def _act(
        self,
        action: Callable[[Page], Awaitable[object]] | None = None,
    ) -> ComputerState:
        from playwright.async_api import Error

        try:
            if action is not None:
                await action(await self._page())
                await asyncio.sleep(self._settle_seconds)
            page = await self._page()
            with contextlib.suppress(Error):  # pages that load for ever are shown as they are
                await page.wait_for_load_state(timeout=ACTION_SECONDS * 1000)
            await self._check_page(page)
            try:
                screenshot = await page.screenshot()
            except Error:  # while an error page replaces one that could not be opened, there is nothing to capture
                await asyncio.sleep(self._settle_seconds)
                screenshot = await page.screenshot()
            return ComputerState(screenshot=screenshot, url=page.url, downloads=await self._take_downloads())
        except Error as error:
            raise ToolError(self._explained(error.message.partition("\n")[0])) from error

    async def _check_page(self, page: Page) -> None:
        """Leaves a page that must not be shown, and raises ToolError."""
        if self._allowed_hosts is None or self._allowed_hosts.may_show(page.url):
            return

        url = page.url
        await page.goto("about:blank")
        raise ToolError(f"{url!r} can't be shown; the browser is limited to {self._allowed_hosts}")

    def _explained(self, message: str) -> str:
        """The message of an error, with its reason where it is the list of hosts."""
        if self._allowed_hosts is None or "ERR_NAME_NOT_RESOLVED" not in message:
            return message
        return f"{message}; the browser is limited to {self._allowed_hosts}"

    async def _take_downloads(self) -> list[DownloadedFile] | None:
        if self._downloads is None or self._context is None:
            return None
        return await self._downloads.take(self._context, timeout_seconds=DOWNLOAD_SECONDS) or None

    async def screen_size(self) -> tuple[int, int]:
        return self._screen_size

    async def environment(self) -> ComputerEnvironment:
        return ComputerEnvironment.ENVIRONMENT_BROWSER

    async def current_state(self) -> ComputerState:
        return await self._act()

    async def open_web_browser(self) -> ComputerState:
        return await self._act()

    async def click_at(self, x: int, y: int) -> ComputerState:
        return await self._act(lambda page: page.mouse.click(x, y))

    async def double_click(self, x: int, y: int) -> ComputerState:
        return await self._act(lambda page: page.mouse.dblclick(x, y))

    async def triple_click(self, x: int, y: int) -> ComputerState:
        return await self._act(lambda page: page.mouse.click(x, y, click_count=3))

    async def middle_click(self, x: int, y: int) -> ComputerState:
        return await self._act(lambda page: page.mouse.click(x, y, button="middle"))

    async def right_click(self, x: int, y: int) -> ComputerState:
        return await self._act(lambda page: page.mouse.click(x, y, button="right"))

    async def hover_at(self, x: int, y: int) -> ComputerState:
        return await self._act(lambda page: page.mouse.move(x, y))

    async def type_text_at(
        self, x: int, y: int, text: str, press_enter: bool = True, clear_before_typing: bool = True
    ) -> ComputerState:
        async def type_at(page: Page) -> None:
            await page.mouse.click(x, y)
            if clear_before_typing:
                await page.keyboard.press("ControlOrMeta+A")
                await page.keyboard.press("Delete")
            await _type(page, text, press_enter)

        return await self._act(type_at)

    async def type_text(self, text: str, press_enter: bool = False) -> ComputerState:
        return await self._act(lambda page: _type(page, text, press_enter))

    async def scroll_document(self, direction: Direction) -> ComputerState:
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
        sign = -1 if direction in ("up", "left") else 1

        async def scroll(page: Page) -> None:
            await page.mouse.move(x, y)
            is_vertical = direction in ("up", "down")
            await page.mouse.wheel(
                0 if is_vertical else sign * magnitude,
                sign * magnitude if is_vertical else 0,
            )

        return await self._act(scroll)

    async def wait(self, seconds: int) -> ComputerState:
        return await self._act(lambda page: page.wait_for_timeout(seconds * 1000))

    async def go_back(self) -> ComputerState:
        """Closes a page that a link opened, where no page was before it."""

        async def back(page: Page) -> None:
            if await page.go_back() is None and len(page.context.pages) > 1:
                await page.close()

        return await self._act(back)

    async def go_forward(self) -> ComputerState:
        return await self._act(lambda page: page.go_forward())

    async def search(self) -> ComputerState:
        return await self.navigate(self._search_url)

    async def navigate(self, url: str) -> ComputerState:
        """Opens a page, or downloads a file."""
        if self._allowed_hosts is not None and not self._allowed_hosts.allows(url):
            raise ToolError(f"{url!r} can't be opened; the browser is limited to {self._allowed_hosts}")

        return await self._act(lambda page: _open(page, url))

    async def key_combination(self, keys: list[str]) -> ComputerState:
        named = [_KEYS.get(key.strip().lower(), key) for key in keys]

        async def press(page: Page) -> None:
            pressed: list[str] = []
            try:
                for key in named:
                    await page.keyboard.down(key)
                    pressed.append(key)
            finally:
                for key in reversed(pressed):
                    await page.keyboard.up(key)

        return await self._act(press)

    async def drag_and_drop(
        self,
        x: int,
        y: int,
        destination_x: int,
        destination_y: int,
    ) -> ComputerState:
        async def drag(page: Page) -> None:
            await page.mouse.move(x, y)
            await page.mouse.down()
            await page.mouse.move(destination_x, destination_y, steps=10)
            await page.mouse.up()

        return await self._act(drag)


async def _type(page: Page, text: str, press_enter: bool) -> None:
    await page.keyboard.type(text)
    if press_enter:
        await page.keyboard.press("Enter")


async def _open(page: Page, url: str) -> None:
    from playwright.async_api import Error

    try:
        await page.goto(url)
    except Error as error:
        if "Download is starting" not in error.message:
            raise
