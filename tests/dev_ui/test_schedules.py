"""The page of an app's schedules in a real browser."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Dialog, Locator, Page, expect

from greenroom.apps.app import App
from greenroom.records.schedule import Schedule
from tests.dev_ui.apps import desk
from tests.dev_ui.axe import serious_violations
from tests.dev_ui.conftest import World

pytestmark = pytest.mark.asyncio(loop_scope="session")


def rows(page: Page) -> Locator:
    return page.get_by_role("list", name="Schedules").locator("> li")


async def test_a_schedule_is_made_run_paused_changed_and_deleted(world: World) -> None:
    page = await world.open("schedules?app=desk", timezone_id="America/New_York")
    await expect(page.get_by_role("heading", name="No schedules")).to_be_visible()
    await page.get_by_role("button", name="New schedule").click()
    form = page.get_by_role("form", name="New schedule")
    await form.get_by_role("textbox", name="Cron").fill("61 9 * * MON-FRI")
    await form.get_by_label("Time zone").fill("Europe/Berlin")
    await form.get_by_label("Message").fill("hello every morning")
    await form.get_by_role("button", name="Create").click()
    await expect(form.get_by_role("alert")).to_contain_text("cron")
    await expect(form.get_by_text("No next times: cron")).to_be_visible()
    world.problems[:] = [problem for problem in world.problems if "422" not in problem]
    await form.get_by_role("textbox", name="Cron").fill("30 9 * * MON-FRI")
    times = form.get_by_role("list", name="Next times").get_by_role("listitem")
    await expect(times).to_have_count(5)
    await expect(times.first).to_contain_text(re.compile(r"09:30 AM GMT\+[12]"))
    assert await serious_violations(page) == []
    await form.get_by_role("button", name="Create").click()
    await expect(rows(page)).to_contain_text("hello every morning")
    await expect(rows(page)).to_contain_text("30 9 * * MON-FRI")
    await expect(rows(page)).to_contain_text(re.compile(r"next: .*0\d:30 AM \(.*09:30 AM GMT\+[12]\)"))

    await rows(page).get_by_role("button", name="Run now").click()
    history = rows(page).get_by_role("list", name="History")
    await expect(history).to_contain_text("Started")
    await expect(history).to_contain_text("by hand")
    await rows(page).get_by_role("button", name="Pause").click()
    await expect(rows(page)).to_contain_text("Paused")
    await rows(page).get_by_role("button", name="Resume").click()
    await expect(rows(page)).to_contain_text("Active")

    await rows(page).get_by_role("button", name="Edit").click()
    form = page.get_by_role("form", name="Edit the schedule")
    await form.get_by_label("Interval").check()
    await form.get_by_role("spinbutton", name="Every").fill("2")
    await form.get_by_role("textbox", name="Session").fill("daily")
    await form.get_by_text("More options").click()
    await form.get_by_label("While its last run is unfinished").select_option("enqueue")
    await form.get_by_role("button", name="Save").click()
    await expect(rows(page)).to_contain_text("every 2 hours")
    await expect(rows(page)).to_contain_text("Wait for it, in the same session")
    await expect(rows(page)).to_contain_text("hello every morning")
    for width in (390, 1280):
        await page.set_viewport_size({"width": width, "height": 800})
        assert await page.evaluate("document.documentElement.scrollWidth") <= width
    assert await serious_violations(page) == []

    await history.get_by_role("link", name="Open the session").click()
    await expect(page.get_by_text("You said: hello every morning")).to_be_visible()
    await page.go_back()

    async def accept(dialog: Dialog) -> None:
        await dialog.accept()

    page.once("dialog", accept)
    await rows(page).get_by_role("button", name="Delete").click()
    await expect(page.get_by_role("heading", name="No schedules")).to_be_visible()


async def test_a_schedule_of_the_apps_code_is_paused_but_not_changed(world: World) -> None:
    hourly = Schedule(id="hourly", user_id="user", every_seconds=3600.0)
    app = App(name="desk", root_agent=desk(), schedules=[hourly])
    async with world.serve(app) as server:
        page = await world.open(f"{server.url}/dev-ui/schedules?app=desk&schedule=hourly")
        await expect(rows(page)).to_contain_text("The app's code declares it")
        await expect(rows(page).get_by_role("button", name="Edit")).to_have_count(0)
        await rows(page).get_by_role("button", name="Pause").click()
        await expect(rows(page)).to_contain_text("Paused")
        await page.goto("about:blank")
