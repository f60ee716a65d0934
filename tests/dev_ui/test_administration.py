"""The pages of administrators in a real browser: keys, budgets, memories and settings."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Locator, Page, expect

from greenroom.records.content import Content, Part
from greenroom.records.listings import MemoryEntry
from greenroom.server.access.api_key_file import ApiKeyFile
from greenroom.server.settings import AuthSettings
from tests.dev_ui.apps import desk
from tests.dev_ui.axe import serious_violations
from tests.dev_ui.conftest import World
from tests.server.serving import Serving

pytestmark = pytest.mark.asyncio(loop_scope="session")

PAGES = ("keys", "budgets", "memories", "settings")


class Administered:
    """A server that asks for keys, one of them of an administrator."""

    def __init__(self, world: World, server: Serving, file: ApiKeyFile) -> None:
        self._world = world
        self._file = file
        self.server = server
        self._pages: list[Page] = []

    def key(self, subject: str, *scopes: str) -> str:
        return self._file.create(name="test", subject=subject, scopes=scopes)[1]

    async def open(self, path: str, key: str, *, width: int = 1280) -> Page:
        headers = {"x-api-key": key}
        page = await self._world.open(f"{self.server.url}/dev-ui/{path}", width=width, extra_http_headers=headers)
        page.on("dialog", lambda dialog: dialog.accept())
        self._pages.append(page)
        return page

    async def close(self) -> None:
        """Closes the pages, which would ask a stopped server."""
        for page in self._pages:
            await page.context.close()


@pytest_asyncio.fixture(loop_scope="session")
async def administered(world: World, tmp_path: Path) -> AsyncIterator[Administered]:
    file = ApiKeyFile(tmp_path / "keys.db")
    file.create(name="first", subject="root", scopes=["admin"])
    async with world.serve(desk(), auth=AuthSettings(keys=str(file.path))) as server:
        administered = Administered(world, server, file)
        yield administered
        await administered.close()


def items(page: Page, name: str) -> Locator:
    return page.get_by_role("list", name=name, exact=True).locator("> li")


async def test_keys_accounts_and_roles(administered: Administered) -> None:
    page = await administered.open("", administered.key("root", "admin"))
    await page.get_by_role("link", name="Administration").click()
    await expect(page.get_by_role("heading", name="Keys", exact=True)).to_be_visible()

    await page.get_by_role("button", name="New role").click()
    form = page.get_by_role("form", name="New role")
    await form.get_by_label("Name").fill("support")
    await form.get_by_label("Scopes").fill("read debug")
    await form.get_by_role("button", name="Create").click()
    await expect(items(page, "Roles").filter(has_text="support")).to_contain_text("read, debug")

    await page.get_by_role("button", name="New service account").click()
    form = page.get_by_role("form", name="New service account")
    await form.get_by_label("Name").fill("ci")
    await form.get_by_label("Roles").fill("support")
    await form.get_by_label("Scopes").fill("")
    await form.get_by_role("button", name="Create").click()
    account = items(page, "Accounts").filter(has_text="ci")
    await expect(account).to_contain_text("role support · all apps")

    await page.get_by_role("button", name="New key").click()
    form = page.get_by_role("form", name="New key")
    await form.get_by_label("For").select_option("A service account")
    await form.get_by_label("Service account").fill("ci")
    await form.get_by_role("button", name="Create").click()
    secret = await page.get_by_role("status").locator("code").inner_text()
    key = items(page, "Keys").filter(has_text="service:ci")
    await expect(key).to_contain_text("never used")
    assert await serious_violations(page) == []
    await page.get_by_role("button", name="Done").click()
    await expect(page.get_by_text(secret)).to_have_count(0)

    headers = {"x-api-key": secret}
    assert (await administered.server.client.get("/me", headers=headers)).json()["scopes"] == ["debug", "read"]
    await account.get_by_role("button", name="Disable").click()
    await expect(account).to_contain_text("Disabled")
    assert (await administered.server.client.get("/me", headers=headers)).status_code == 401
    await key.get_by_role("button", name="Revoke").click()
    await expect(key).to_have_count(0)
    await page.get_by_label("Show revoked and expired keys").check()
    await expect(key).to_contain_text("Revoked")


async def test_budgets_are_set_changed_and_deleted(administered: Administered) -> None:
    page = await administered.open("admin/budgets", administered.key("root", "admin"))
    await expect(page.get_by_role("heading", name="No budgets")).to_be_visible()
    await page.get_by_role("button", name="New budget").click()
    form = page.get_by_role("form", name="New budget")
    await form.get_by_label("User").fill("ann")
    await form.get_by_label("Tokens").fill("5000")
    await form.get_by_role("button", name="Save").click()
    budget = items(page, "Budgets")
    await expect(budget).to_contain_text("User ann 5,000 tokens a day (UTC) · warns at 80\u00a0%")
    await expect(budget).to_contain_text("0\u00a0% · 0 tokens")
    assert await serious_violations(page) == []

    await budget.get_by_role("button", name="Change").click()
    await budget.get_by_label("Tokens").fill("6000")
    await budget.get_by_label("Warn at percent").fill("")
    await budget.get_by_role("button", name="Save").click()
    await expect(budget).to_contain_text("6,000 tokens a day (UTC)")
    await expect(budget).not_to_contain_text("warns")
    await budget.get_by_role("button", name="Delete").click()
    await expect(page.get_by_role("heading", name="No budgets")).to_be_visible()


async def test_memories_are_found_changed_and_deleted(administered: Administered) -> None:
    memory = administered.server.app.engine.memory_service  # type: ignore[attr-defined]
    entries = [MemoryEntry(content=Content(parts=[Part(text=text)])) for text in ("likes tea", "has a blue bicycle")]
    await memory.add_memories(app_name="desk", user_id="ann", memories=entries)
    page = await administered.open("admin/memories?app=desk&user=ann", administered.key("root", "admin"))
    await expect(items(page, "Memories")).to_have_count(2)
    await page.get_by_role("textbox", name="Search").fill("bicycle")
    await page.get_by_role("textbox", name="Search").press("Enter")
    await expect(items(page, "Memories")).to_have_count(1)
    await page.get_by_role("button", name="Change").click()
    await page.get_by_label("Text").fill("has a red bicycle")
    assert await serious_violations(page) == []
    await page.get_by_role("button", name="Save").click()
    await expect(items(page, "Memories")).to_contain_text("has a red bicycle")
    await page.get_by_role("button", name="Delete").click()
    await expect(page.get_by_role("heading", name="No memory matches")).to_be_visible()
    await page.get_by_role("button", name="Clear").click()
    await expect(items(page, "Memories")).to_contain_text(["likes tea"])


async def test_settings_are_shown_and_pages_are_hidden_from_others(administered: Administered) -> None:
    page = await administered.open("admin/settings", administered.key("root", "admin"))
    await expect(items(page, "Settings").filter(has_text="auth.keys")).to_contain_text("code")
    await page.get_by_label("Show settings with their default values").check()
    await expect(items(page, "Settings").filter(has_text="keep_alive_seconds")).to_contain_text("default")
    assert await serious_violations(page) == []

    page = await administered.open("settings", administered.key("ann", "run", "read", "manage", "debug"))
    await expect(page.get_by_role("heading", name="Settings")).to_be_visible()
    await expect(page.get_by_role("link", name="Administration")).to_have_count(0)


async def test_pages_fit_a_narrow_screen(administered: Administered) -> None:
    key = administered.key("root", "admin")
    folder = os.environ.get("GREENROOM_SCREENSHOTS")
    await administered.server.client.put(
        "/apps/desk/budgets", json={"per": "user", "tokens": 5000}, headers={"x-api-key": key}
    )
    for name in PAGES:
        page = await administered.open(f"admin/{name}", key, width=390)
        await expect(page.get_by_text("Loading…")).to_have_count(0)
        assert await page.evaluate("document.documentElement.scrollWidth") <= 390, name
        if folder is not None:
            for width in (390, 1280):
                await page.set_viewport_size({"width": width, "height": 800})
                for scheme in ("light", "dark"):
                    await page.emulate_media(color_scheme="light" if scheme == "light" else "dark")
                    await page.screenshot(path=f"{folder}/{name}-{width}-{scheme}.png")
