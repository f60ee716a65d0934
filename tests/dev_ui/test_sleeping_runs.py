"""Runs that sleep, in the timeline, the inspector, the list of sessions and the page Runs."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import expect

from tests.dev_ui.axe import serious_violations
from tests.dev_ui.conftest import World
from tests.dev_ui.sessions import make_session

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_signal_with_a_value_continues_the_run(world: World) -> None:
    session = await make_session(world.server, "collector", "signalled", ["invoice"])
    page = await world.open(f"apps/collector/sessions/{session}")
    awaited = re.compile(r"Waits for the signal paid until \w+")
    await expect(page.locator(".run-head")).to_contain_text(awaited)
    await expect(page.locator(".sessions-list .chosen")).to_contain_text(awaited)
    await expect(page.get_by_label("Call of wait_for, waiting")).to_contain_text(awaited)
    await page.get_by_role("button", name="Send the signal…").click()

    form = page.get_by_role("form", name="Signal paid")
    await form.get_by_role("textbox").fill('{"amount": ')
    await expect(form.get_by_role("button", name="Send the signal")).to_be_disabled()
    await form.get_by_role("textbox").fill('{"amount": 12.5}')
    assert await serious_violations(page) == []
    await form.get_by_role("button", name="Send the signal").click()

    await expect(page.get_by_text("Awake: {'value': {'amount': 12.5}}")).to_be_visible()
    await expect(form).to_be_hidden()
    await expect(page.locator(".run-head").last).to_contain_text("Succeeded")


async def test_a_sleeping_run_says_until_when_and_is_cancelled(world: World) -> None:
    session = await make_session(world.server, "collector", "asleep", ["wait"])
    page = await world.open("runs?app=collector&session=asleep")
    await expect(page.get_by_role("table", name="Runs")).to_contain_text("Sleeps until")
    await page.goto(f"apps/collector/sessions/{session}")
    await expect(page.get_by_label("Call of wait, waiting")).to_contain_text("Sleeps until")
    await page.locator(".run-head").get_by_role("button", name="Cancel").click()
    await expect(page.locator(".run-head")).to_contain_text("Cancelled")
    await expect(page.get_by_text("Sleeps until")).to_have_count(0)


async def test_a_run_that_starts_later_says_when_and_is_cancelled(world: World) -> None:
    session = await make_session(world.server, "desk", "delayed", ["hello"])
    body = {"newMessage": {"role": "user", "parts": [{"text": "later"}]}, "delaySeconds": 3 * 86_400}
    (await world.server.client.post(f"/apps/desk/users/user/sessions/{session}/runs", json=body)).raise_for_status()
    page = await world.open("runs?app=desk&session=delayed")
    await expect(page.get_by_role("table", name="Runs")).to_contain_text("Starts at")
    await page.goto(f"apps/desk/sessions/{session}")
    await expect(page.locator(".run-head").last).to_contain_text(re.compile(r"Queued.*starts at \w+"))
    await expect(page.locator(".sessions-list .chosen")).to_contain_text("Starts at")
    await expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    await page.locator(".run-head").last.get_by_role("button", name="Cancel").click()
    await expect(page.locator(".run-head")).to_have_count(1)
    await expect(page.get_by_text("Starts at")).to_have_count(0)
