"""A real browser as a computer, on pages of a local server."""

from __future__ import annotations

import asyncio
import base64
import functools
import struct
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from greenroom.runner.in_memory import InMemoryRunner
from greenroom.tools.computer_use.playwright import PlaywrightComputer
from tests.requirements import browser_flags, browser_path
from tests.server.serving import Serving, serving
from tests.tools.computer_use.user import User, runner_with
from tests.tools.computer_use.user import virtual as scaled

pytestmark = pytest.mark.slow

SIZE = (400, 300)

SHOP = """<!doctype html><title>shop</title><style>
  * { margin: 0; padding: 0; box-sizing: border-box; position: absolute; width: 100px; height: 50px }
  html, body { width: 400px; height: 2000px } input { left: 0; top: 50px } a { left: 100px; top: 0 }
  #drag { left: 200px; top: 0; background: tan } #wide { left: 390px; width: 500px }
</style><button onclick="say('clicked')" ondblclick="say('twice')" onmouseover="say('over')"
  oncontextmenu="say('right'); return false" onauxclick="say('middle')">Buy</button>
<input value="old" onchange="say('typed ' + value)" onkeydown="if (event.key == 'c' && event.ctrlKey) say('copied')">
<a href="/tea" target="_blank">Tea</a><div id="drag" onmousedown="say('from')" ></div><div id="wide"></div>
<script>
  const said = []
  function say(what) { said.push(what); fetch('/said?' + encodeURIComponent(what)) }
  onmouseup = event => event.clientY > 150 && say('to ' + event.clientX)
  onscroll = () => say(`scrolled ${scrollX} ${scrollY}`)
</script>"""


class Shop:
    """Pages that report what is done with them. cookies: the `visitor` of each request for a page."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.cookies: list[str | None] = []
        routes = [Route("/shop", self._shop), Route("/tea", self._tea), Route("/said", self._said)]
        self.app = Starlette(routes=routes)

    async def _shop(self, request: Request) -> Response:
        self.cookies.append(request.cookies.get("visitor"))
        return HTMLResponse(SHOP, headers={"set-cookie": "visitor=known"})

    async def _tea(self, request: Request) -> Response:
        return HTMLResponse("<title>tea</title>Tea")

    async def _said(self, request: Request) -> Response:
        self.said.append(request.url.query.replace("%20", " "))
        return Response()

    async def hears(self, what: str) -> None:
        async with asyncio.timeout(10):
            while what not in self.said:
                await asyncio.sleep(0.02)


@pytest.fixture
async def shop() -> Shop:
    return Shop()


@pytest.fixture
async def server(shop: Shop) -> AsyncIterator[Serving]:
    async with serving(cast("Any", shop.app)) as running:
        yield running


@pytest.fixture
def computer() -> PlaywrightComputer:
    return PlaywrightComputer(
        screen_size=SIZE,
        executable_path=browser_path(),
        browser_args=browser_flags(),
        settle_seconds=0.05,
        max_sessions=2,
    )


@pytest.fixture
async def runner(computer: PlaywrightComputer) -> AsyncIterator[InMemoryRunner]:
    async with runner_with(computer) as runner:
        yield runner
    assert computer._browser is None


virtual = functools.partial(scaled, SIZE)


async def test_actions_reach_the_page(runner: InMemoryRunner, server: Serving, shop: Shop) -> None:
    user = User(runner, "s")
    opened = await user.does("navigate", url=f"{server.url}/shop")
    assert opened["url"] == f"{server.url}/shop"
    png = base64.b64decode(opened["image"]["data"])
    assert (png[:8], struct.unpack(">II", png[16:24])) == (b"\x89PNG\r\n\x1a\n", SIZE)
    await user.does("hover_at", **virtual(50, 25))
    await shop.hears("over")
    await user.does("click", **virtual(50, 25))
    await shop.hears("clicked")
    await user.does("double_click", **virtual(50, 25))
    await shop.hears("twice")
    await user.does("right_click", **virtual(50, 25))
    await shop.hears("right")
    await user.does("middle_click", **virtual(50, 25))
    await shop.hears("middle")
    await user.does("type_text_at", **virtual(50, 75), text="new")
    await shop.hears("typed new")
    await user.does("triple_click", **virtual(50, 75))
    await user.does("hotkey", keys=["Control", "c"])
    await shop.hears("copied")
    await user.does("type", text="newer", press_enter=True)
    await shop.hears("typed newer")
    target = virtual(300, 200)
    await user.does("drag_and_drop", **virtual(250, 25), destination_x=target["x"], destination_y=target["y"])
    await shop.hears("from")
    await shop.hears("to 300")
    await user.does("scroll_document", direction="down")
    await shop.hears("scrolled 0 150")
    await user.does("scroll_at", **virtual(10, 150), direction="right", magnitude=100)
    await shop.hears("scrolled 100 150")


async def test_pages_that_links_open_and_the_way_back(runner: InMemoryRunner, server: Serving) -> None:
    user = User(runner, "s")
    await user.does("navigate", url=f"{server.url}/shop")
    await user.does("click_at", **virtual(150, 25))
    async with asyncio.timeout(10):
        while (await user.does("take_screenshot"))["url"] != f"{server.url}/tea":
            pass
    assert (await user.does("go_back"))["url"] == f"{server.url}/shop"
    await user.does("navigate", url=f"{server.url}/tea")
    assert (await user.does("go_back"))["url"] == f"{server.url}/shop"
    assert (await user.does("go_forward"))["url"] == f"{server.url}/tea"


async def test_sessions_share_no_pages_and_no_cookies(runner: InMemoryRunner, server: Serving, shop: Shop) -> None:
    first, second, third = (User(runner, name) for name in ("s-1", "s-2", "s-3"))
    for user in (first, second, first):
        await user.does("navigate", url=f"{server.url}/shop")
    assert shop.cookies == [None, None, "known"]
    assert (await third.does("take_screenshot"))["url"] == "about:blank"
    assert (await first.does("take_screenshot"))["url"] == f"{server.url}/shop"
    assert (await second.does("take_screenshot"))["url"] == "about:blank"  # was used longest ago


async def test_failures_are_results_and_a_crashed_browser_is_replaced(
    runner: InMemoryRunner, computer: PlaywrightComputer, server: Serving
) -> None:
    user = User(runner, "s")
    refused = await user.does("navigate", url="http://127.0.0.1:9/")
    assert set(refused) == {"error", "url"}
    assert "Bogus" in (await user.does("press_key", key="Bogus"))["error"]
    assert computer._browser is not None
    await computer._browser.close()
    opened = await user.does("navigate", url=f"{server.url}/tea")
    assert opened["url"] == f"{server.url}/tea"


async def test_a_browser_that_cannot_be_started_leaves_nothing() -> None:
    computer = PlaywrightComputer(executable_path="/nowhere/chromium")
    with pytest.raises(Exception, match="nowhere"):
        await computer.initialize()
    assert computer._playwright is None
