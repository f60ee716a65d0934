"""Pictures of the examples in the dev UI, for docs/gallery.md: `make gallery` writes them to docs/gallery."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, expect

from tests.dev_ui.conftest import World
from tests.examples import test_browser_operator as shopping
from tests.examples import test_daily_digest as digesting
from tests.examples import test_data_analyst as analysing
from tests.examples import test_help_desk as refunding
from tests.examples import test_research_team as researching
from tests.examples.gallery import ROOT, converse, served
from tests.server.serving import Serving

pytestmark = pytest.mark.asyncio(loop_scope="session")

FOLDER = ROOT / "docs" / "gallery"
WIDTH, HEIGHT = 1000, 800
MAX_BYTES = 100_000


async def opened(world: World, server: Serving, path: str) -> Page:
    """A session's page without the list of sessions, at its end."""
    page = await world.open(f"{server.url}/dev-ui/{path}", width=WIDTH, height=HEIGHT, color_scheme="light")
    await expect(page.get_by_text("Live", exact=True)).to_be_visible()
    await page.get_by_role("button", name="Hide sessions").click()
    await expect(page.locator(".markdown > p[style]")).to_have_count(0)  # until Markdown can be rendered
    await page.wait_for_timeout(500)
    return page


async def take(page: Page, name: str) -> None:
    """Writes a picture in WebP, which Playwright doesn't know."""
    session = await page.context.new_cdp_session(page)
    taken = await session.send("Page.captureScreenshot", {"format": "webp", "quality": 80})
    data = base64.b64decode(taken["data"])
    assert len(data) < MAX_BYTES, len(data)
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.webp").write_bytes(data)
    await page.goto("about:blank")


async def test_help_desk(world: World, tmp_path: Path) -> None:
    async with served("help_desk", refunding.refunding_model(), tmp_path) as server:
        await converse(server, "help_desk", refunding.QUESTION)
        page = await opened(world, server, "apps/help_desk/sessions/s-1")
        await expect(page.get_by_role("button", name="Allow", exact=True)).to_be_visible()
        await take(page, "help_desk")


async def test_research_team(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with researching.wikipedia() as url:
        monkeypatch.setenv("WIKIPEDIA_URL", url)
        async with served("research_team", researching.research_model(), tmp_path) as server:
            await researching.research(server)
            page = await opened(world, server, "apps/research_team/sessions/s-1")
            await take(page, "research_team")


async def test_data_analyst(world: World, tmp_path: Path) -> None:
    async with served("data_analyst", analysing.charting_model(), tmp_path) as server:
        await converse(server, "data_analyst", analysing.QUESTION)
        page = await opened(world, server, "apps/data_analyst/sessions/s-1")
        await take(page, "data_analyst")


async def test_browser_operator(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shopping.prepare(tmp_path, monkeypatch)
    async with (
        shopping.tea_shop() as (url, _),
        served("browser_operator", shopping.ordering_model(url), tmp_path) as server,
    ):
        await converse(server, "browser_operator", shopping.QUESTION)
        page = await opened(world, server, "apps/browser_operator/sessions/s-1")
        await take(page, "browser_operator")


async def test_daily_digest(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pages: dict[str, Any] = {"/news.rss": digesting.RSS, "/papers.atom": digesting.ATOM}
    async with digesting.feeds(pages) as addresses:
        monkeypatch.setenv("FEEDS", addresses)
        async with served("daily_digest", digesting.digest_model(), tmp_path) as server:
            session = await digesting.run_now(server)
            page = await opened(world, server, f"apps/daily_digest/sessions/{session['id']}")
            await take(page, "daily_digest")
