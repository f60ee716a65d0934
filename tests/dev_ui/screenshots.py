"""Screenshots of the chat page in its states, to be looked at: `make screenshots` writes them to ui/screenshots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect

from tests.dev_ui.conftest import World
from tests.dev_ui.sessions import make_session

pytestmark = pytest.mark.asyncio(loop_scope="session")

FOLDER = Path(__file__).parents[2] / "ui" / "screenshots"

STATES: dict[str, tuple[str, list[Any]]] = {
    "calls": ("desk", ["weather", "broken", "note", "note"]),
    "approval": ("desk", ["hello", "delete"]),
    "answered": ("desk", ["delete", {"approve": True}]),
    "long_running": ("desk", ["report"]),
    "failure": ("desk", ["hello", "boom"]),
    "markdown": ("desk", ["markdown", "think"]),
    "transfer": ("desk", ["billing", "expert"]),
    "parallel": ("team", ["look"]),
    "workflow": ("flow", ["the harbour"]),
}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", STATES)
async def test_screenshot(world: World, name: str, width: int, scheme: Any) -> None:
    app, messages = STATES[name]
    session = await make_session(world.server, app, f"shot-{name}-{width}-{scheme}", messages)
    page = await world.open(f"apps/{app}/sessions/{session}", width=width, height=800, color_scheme=scheme)
    await expect(page.get_by_text("Live", exact=True)).to_be_visible()
    await expect(page.locator(".item").first).to_be_visible()
    await page.wait_for_timeout(300)
    FOLDER.mkdir(exist_ok=True)
    await page.screenshot(path=FOLDER / f"{name}-{width}-{scheme}.png")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize(
    ("name", "path"), [("new", "apps/desk"), ("runs", "runs"), ("agents", "agents"), ("settings", "settings")]
)
async def test_screenshot_of_page(world: World, name: str, path: str, width: int, scheme: Any) -> None:
    page = await world.open(path, width=width, color_scheme=scheme)
    await page.wait_for_timeout(500)
    FOLDER.mkdir(exist_ok=True)
    await page.screenshot(path=FOLDER / f"page-{name}-{width}-{scheme}.png")
