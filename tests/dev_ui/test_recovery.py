"""Runs that are interrupted, wait, fail and are tried again, as the dev UI shows them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from tests.dev_ui.conftest import TIMEOUT_MS, World
from tests.dev_ui.sessions import make_session
from tests.durability.server_app import APP, LAST_WORD
from tests.durability.server_process import server_in

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def send(page: Page, text: str) -> None:
    box = page.get_by_role("textbox", name="Message")
    await box.fill(text)
    await box.press("Enter")


async def test_a_server_killed_in_mid_run_is_followed_when_it_is_back(browser: Browser, tmp_path: Path) -> None:
    """The run calls a tool, then speaks slowly; the server is killed while it speaks."""
    async with server_in(tmp_path, CHUNK_SECONDS="0.1") as server:
        await server.start()
        context = await browser.new_context(base_url=f"{server.url}/dev-ui/", reduced_motion="reduce")
        context.set_default_timeout(TIMEOUT_MS)
        try:
            page = await context.new_page()
            await page.goto(f"apps/{APP}")
            await send(page, "1")
            said = page.locator(".agent-text")
            await expect(said.last).to_contain_text("This is all")
            await server.kill()
            await expect(page.get_by_text("Reconnecting")).to_be_visible()
            await server.start(wait=False)
            await expect(page.get_by_text("Live", exact=True)).to_be_visible(timeout=30_000)
            await expect(said).to_have_text(["I will see to 1 at once.", LAST_WORD.format(order="1")], timeout=30_000)
            await expect(page.get_by_text("Succeeded")).to_be_visible()
            await expect(page.locator(".run-head")).to_contain_text("resumed")
            await expect(page.locator(".user-bubble")).to_have_count(1)
            await expect(page.get_by_role("article", name="Call of charge, done")).to_have_count(1)
        finally:
            await context.close()


@pytest.mark.parametrize(("allow", "outcome"), [(True, "shipped"), (False, "cancelled")])
async def test_an_approval_of_a_workflow_chooses_its_route(world: World, allow: bool, outcome: str) -> None:
    session = await make_session(world.server, "orders", f"routed-{outcome}", ["a large one"])
    page = await world.open(f"apps/orders/sessions/{session}")
    form = page.get_by_role("form", name="Your answer")
    if allow:
        await form.get_by_role("checkbox").check()
    await form.get_by_role("button", name="Answer").click()
    await expect(page.get_by_text(f"The order is {outcome}.")).to_be_visible()
    await expect(page.get_by_text(f"Answered {str(allow).lower()} by")).to_be_visible()
    await page.reload()
    await expect(page.get_by_text(f"The order is {outcome}.")).to_be_visible()
    await expect(page.get_by_role("button", name="Answer")).to_have_count(0)


async def test_a_failed_run_is_retried_in_a_fork_that_compares_with_it(world: World) -> None:
    session = await make_session(world.server, "flaky", "retried", ["hello"])
    page = await world.open(f"apps/flaky/sessions/{session}")
    await page.get_by_role("button", name="Run again in a fork").click()
    await expect(page).not_to_have_url(re.compile(f"sessions/{session}"))
    await expect(page.get_by_text("You said: hello")).to_be_visible()
    await expect(page.get_by_text("overloaded")).to_have_count(0)
    await expect(page.locator(".user-bubble")).to_have_count(1)

    await page.goto("runs?app=flaky")
    table = page.get_by_role("table", name="Runs")
    await expect(table.get_by_role("row")).to_have_count(3)
    await table.get_by_label("Choose all runs").check()
    await page.get_by_role("group", name="Chosen runs").get_by_text("Compare").click()
    await expect(page).to_have_url(re.compile("/compare"))
    await expect(page.get_by_role("group").filter(has_text="hello").first).to_be_visible()
    await expect(page.get_by_text("The model is overloaded").first).to_be_visible()
    await expect(page.get_by_text("You said: hello").first).to_be_visible()
    await expect(page.get_by_text(re.compile("steps? differ"))).to_be_visible()
