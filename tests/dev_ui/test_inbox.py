"""The page with requests to people of all sessions, and its badge, in a real browser."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from playwright.async_api import Locator, Page, expect

from greenroom import App, ApprovalPolicy
from tests.dev_ui.apps import desk, flow
from tests.dev_ui.axe import serious_violations
from tests.dev_ui.conftest import World
from tests.dev_ui.sessions import make_session
from tests.server.security.keys import Keys

pytestmark = pytest.mark.asyncio(loop_scope="session")


def rows(page: Page) -> Locator:
    return page.get_by_role("list", name="Requests").get_by_role("listitem")


def badge(page: Page) -> Locator:
    return page.get_by_role("navigation", name="Pages").locator(".rail-badge")


async def test_requests_appear_by_themselves_and_are_answered_by_keys(world: World) -> None:
    async with world.serve(desk(), flow()) as server:
        page = await world.open(f"{server.url}/dev-ui/inbox")
        await expect(page.get_by_text("Nobody is asked for anything")).to_be_visible()
        await expect(badge(page)).to_have_count(0)
        for session in ("first", "second"):
            await make_session(server, "desk", session, ["delete"])
        await make_session(server, "flow", "third", ["the harbour"])
        await expect(rows(page)).to_have_count(3)
        await expect(badge(page)).to_have_text("3")

        await page.keyboard.press("j")
        await expect(rows(page).first).to_have_attribute("aria-current", "true")
        await expect(rows(page).first).to_contain_text("How many guests at The Harbour?")
        await page.get_by_role("spinbutton", name="Your answer").fill("4")
        await page.get_by_role("button", name="Answer").click()
        await expect(page.get_by_role("status")).to_contain_text("Answered")
        await expect(rows(page)).to_have_count(2)

        await expect(rows(page).first).to_have_attribute("aria-current", "true")
        await expect(rows(page).first).to_contain_text("second")
        await page.keyboard.press("y")
        await expect(page.get_by_role("status")).to_contain_text("Allowed: delete_rows")
        await expect(badge(page)).to_have_text("1")
        await expect(rows(page).first).to_contain_text("first")
        refused = page.url.partition("request=")[2]
        await page.keyboard.press("n")
        await page.keyboard.type("not today")
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("Nobody is asked for anything")).to_be_visible()
        await expect(badge(page)).to_have_count(0)

        await page.get_by_role("link", name="Open the session").click()
        await expect(page).to_have_url(re.compile("apps/desk/sessions/first"))
        await expect(page.get_by_role("region", name="Allow delete_rows?")).to_contain_text("Refused by user")
        request = (await server.client.get(f"/requests/{refused}")).json()
        assert request["answers"][0]["comment"] == "not today"
        for run in (await server.client.get("/runs")).json()["runs"]:
            await server.wait_for_status(run["id"], "succeeded")
        await page.goto("about:blank")


async def test_the_inbox_is_filtered_by_the_address_and_opens_sessions(world: World) -> None:
    async with world.serve(desk(), flow()) as server:
        await make_session(server, "desk", "approval", ["delete"])
        await make_session(server, "flow", "input", ["the harbour"])
        page = await world.open(f"{server.url}/dev-ui/inbox")
        await expect(rows(page)).to_have_count(2)
        await page.get_by_label("Kind").select_option("approval")
        await expect(page).to_have_url(re.compile("kind=approval"))
        await expect(rows(page)).to_have_count(1)
        await page.get_by_label("Tool").fill("other_tool")
        await page.get_by_label("Tool").press("Enter")
        await expect(page.get_by_text("No request matches these filters")).to_be_visible()
        await page.get_by_role("button", name="Show all requests").click()
        await page.get_by_label("Waiting").select_option("1h")
        await expect(page.get_by_text("No request matches these filters")).to_be_visible()
        await page.get_by_role("button", name="Clear").click()
        await page.get_by_label("Approver").fill("user")
        await page.get_by_label("Approver").press("Enter")
        await expect(page).to_have_url(re.compile("approver=user"))
        await expect(rows(page)).to_have_count(2)
        await page.get_by_role("form", name="Filters").get_by_label("App", exact=True).select_option("desk")
        await expect(rows(page)).to_have_count(1)

        await rows(page).get_by_role("button").first.click()
        await expect(page).to_have_url(re.compile("request="))
        await page.reload()
        await expect(page.get_by_role("button", name="Allow", exact=True)).to_be_visible()
        for width in (390, 1280):
            await page.set_viewport_size({"width": width, "height": 800})
            assert await page.evaluate("document.documentElement.scrollWidth") <= width
        assert await serious_violations(page) == []
        await page.locator("h1").evaluate("heading => heading.ownerDocument.activeElement.blur()")
        await page.keyboard.press("Enter")
        await expect(page).to_have_url(re.compile("apps/desk/sessions/approval"))
        await page.goto("about:blank")


async def test_two_of_three_people_allow_a_call(world: World) -> None:
    policy = ApprovalPolicy(users=["bob", "carol", "dave"], required=2, may_delegate=True)
    async with world.serve(App(name="desk", root_agent=desk(), approvals=policy)) as server:
        await make_session(server, "desk", "votes", ["delete"])
        page = await world.open(f"{server.url}/dev-ui/apps/desk/sessions/votes")
        card = page.get_by_role("region", name="Allow delete_rows?")
        await expect(card).to_contain_text("Waits for bob or carol or dave.")
        await expect(card.get_by_role("button", name="Allow", exact=True)).to_have_count(0)
        await card.get_by_role("link", name="Open the inbox").click()

        await rows(page).get_by_role("button").first.click()
        await expect(rows(page)).to_contain_text("2 of bob, carol, dave have to allow it")
        await page.get_by_label("Answer as").select_option("carol")
        await page.get_by_role("button", name="Allow", exact=True).click()
        await expect(page.get_by_role("status")).to_contain_text("others have to answer, too")
        await expect(rows(page)).to_contain_text("Allowed by carol")
        await expect(page.get_by_label("Answer as")).to_have_value("bob")
        await page.get_by_label("Answer as").select_option("dave")
        await page.get_by_text("Let somebody else answer").click()
        await page.get_by_label("User who answers").fill("erin")
        await page.get_by_role("button", name="Delegate").click()
        await expect(rows(page)).to_contain_text("erin answers in place of dave")
        if folder := os.environ.get("SCREENSHOTS"):
            for scheme in ("light", "dark"):
                await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
                await page.screenshot(path=f"{folder}/votes-{scheme}.png")
        assert await serious_violations(page) == []
        await page.get_by_label("Answer as").select_option("erin")
        await page.locator("h1").evaluate("heading => heading.ownerDocument.activeElement.blur()")
        await page.keyboard.press("a")
        await expect(page.get_by_text("No request matches these filters")).to_be_visible()

        await page.get_by_role("link", name="Open the session").click()
        await expect(card).to_contain_text("Allowed by carol, erin")
        await expect(page.get_by_label("Result")).to_contain_text("12")
        await page.goto("about:blank")


async def test_an_approver_answers_without_reading_the_session(world: World, tmp_path: Path) -> None:
    keys = Keys(tmp_path / "keys.db")
    app = App(name="desk", root_agent=desk(), approvals=ApprovalPolicy(users=["bob"]))
    async with world.serve(app, auth=keys.auth) as server:
        server.client.headers["authorization"] = f"Bearer {keys('user', 'run', 'read')}"
        session = await make_session(server, "desk", "private", ["delete"])
        page = await world.open(f"{server.url}/dev-ui/inbox")
        await page.get_by_label("Key", exact=True).fill(keys("bob", "run", "read"))
        await page.get_by_role("button", name="Sign in").click()
        await expect(badge(page)).to_have_text("1")
        await rows(page).get_by_role("button").first.click()
        await expect(page.get_by_label("Answer as")).to_have_count(0)
        await page.get_by_role("button", name="Allow", exact=True).click()
        await expect(page.get_by_role("status")).to_contain_text("Allowed: delete_rows")
        await expect(badge(page)).to_have_count(0)
        [run] = (await server.client.get("/runs", params={"session_id": session})).json()["runs"]
        await server.wait_for_status(run["id"], "succeeded")
        await page.goto("about:blank")
    world.problems[:] = [problem for problem in world.problems if "401" not in problem]
