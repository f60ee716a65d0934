"""The editor of agents' YAML files, in a real browser against a server of a folder."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import expect

from greenroom.apps.load_directory import DirectoryAppLoader
from greenroom.server.application import create_app
from greenroom.server.settings import ServerSettings
from tests.dev_ui.axe import serious_violations
from tests.dev_ui.conftest import World
from tests.server.serving import Serving, serving

pytestmark = pytest.mark.asyncio(loop_scope="session")

ROOT = "name: shop\nmodel: gemini-2.5-flash\ninstruction: Sell.\nsub_agents:\n  - config_path: helper.yaml\n"
HELPER = "name: helper\nmodel: gemini-2.5-flash\ninstruction: Help.\n"


@pytest_asyncio.fixture(loop_scope="session")
async def folder(tmp_path: Path) -> Path:
    shop = tmp_path / "agents" / "shop"
    shop.mkdir(parents=True)
    (shop / "root_agent.yaml").write_text(ROOT)
    (shop / "helper.yaml").write_text(HELPER)
    return shop.parent


@pytest_asyncio.fixture(loop_scope="session", autouse=True)
async def editable(folder: Path) -> AsyncIterator[Serving]:
    """Used by all tests, so that it starts before the pages are opened, and stops when they are closed."""
    app = create_app(app_loader=DirectoryAppLoader(folder), settings=ServerSettings(edit=True))
    async with serving(app) as server:
        yield server


async def test_a_file_is_completed_refused_and_saved(world: World, editable: Serving, folder: Path) -> None:
    page = await world.open(f"{editable.url}/dev-ui/agents?app=shop")
    editor = page.get_by_role("textbox", name="root_agent.yaml")
    await expect(editor).to_contain_text("instruction: Sell.")
    await expect(page.get_by_role("button", name="Save")).to_be_disabled()
    await editor.click()
    await page.keyboard.press("Control+End")
    await page.keyboard.type("desc")
    await page.get_by_role("option", name="description").click()
    await page.keyboard.type("Sells fruit.")
    await page.keyboard.press("Enter")
    await page.keyboard.type("no_such_key: 1")
    await expect(page.get_by_text("Not saved: root_agent.yaml")).to_be_visible()
    world.problems.clear()
    await page.keyboard.press("Control+s")
    await expect(page.get_by_text(re.compile("Line 7: no_such_key"))).to_be_visible()
    await expect(page.locator(".cm-lint-marker-error")).to_have_count(1)
    assert (folder / "shop" / "root_agent.yaml").read_text() == ROOT
    world.problems[:] = [one for one in world.problems if "400" not in one]
    await editor.click()
    await page.keyboard.press("Control+End")
    await page.keyboard.press("Shift+Home")
    await page.keyboard.press("Delete")
    await page.get_by_label("File", exact=True).select_option("helper.yaml")
    helper = page.get_by_role("textbox", name="helper.yaml")
    await helper.click()
    await page.keyboard.press("Control+End")
    await page.keyboard.type("include_contents: non")
    await page.get_by_role("option", name="none").click()
    await page.get_by_role("button", name="Save 2 files").click()
    await expect(page.get_by_text("Saved.")).to_be_visible()
    assert (folder / "shop" / "root_agent.yaml").read_text() == ROOT + "description: Sells fruit.\n"
    assert (folder / "shop" / "helper.yaml").read_text() == HELPER + "include_contents: none"


async def test_changes_are_reverted_and_not_left_by_accident(world: World, editable: Serving, folder: Path) -> None:
    page = await world.open(f"{editable.url}/dev-ui/agents?app=shop")
    editor = page.get_by_role("textbox", name="root_agent.yaml")
    await editor.click()
    await page.keyboard.type("# mine ")
    asked: list[str] = []

    async def stay(dialog: object) -> None:
        asked.append(dialog.message)  # type: ignore[attr-defined]
        await dialog.dismiss()  # type: ignore[attr-defined]

    page.on("dialog", stay)
    await page.get_by_role("link", name="Runs", exact=True).first.click()
    await expect(editor).to_contain_text("# mine")
    assert asked == ["Leave without saving the changes?"]
    await page.get_by_role("button", name="Revert").click()
    await expect(editor).not_to_contain_text("# mine")
    assert (folder / "shop" / "root_agent.yaml").read_text() == ROOT


async def test_an_app_is_made_in_the_page(world: World, editable: Serving, folder: Path) -> None:
    page = await world.open(f"{editable.url}/dev-ui/agents")
    await page.get_by_label("New app").fill("1st")
    await expect(page.get_by_text("no digit first")).to_be_visible()
    await page.get_by_label("New app").fill("bank")
    await page.get_by_role("button", name="Create").click()
    await expect(page).to_have_url(re.compile(r"app=bank"))
    await expect(page.get_by_role("textbox", name="root_agent.yaml")).to_contain_text("name: bank")
    assert (folder / "bank" / "root_agent.yaml").read_text().startswith("name: bank\n")


@pytest.mark.parametrize("width", [1280, 390])
async def test_the_editor_has_no_serious_violation(world: World, editable: Serving, width: int) -> None:
    page = await world.open(f"{editable.url}/dev-ui/agents?app=shop", width=width)
    await expect(page.get_by_role("textbox", name="root_agent.yaml")).to_be_visible()
    assert await serious_violations(page) == []
    assert await page.evaluate("document.documentElement.scrollWidth") <= width
