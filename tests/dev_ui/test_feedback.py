"""Thumbs up and down at answers, in a real browser."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from tests.dev_ui.axe import serious_violations
from tests.dev_ui.conftest import World
from tests.dev_ui.sessions import make_session
from tests.server.serving import Json, Serving

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def stored(server: Serving, session: str) -> list[Json]:
    return (await server.client.get(f"/apps/desk/users/user/sessions/{session}/feedback")).json()["feedback"]


async def opened(world: World, session: str, **options: int) -> Page:
    page = await world.open(f"apps/desk/sessions/{session}", **options)
    await expect(page.get_by_text("You said: hello")).to_be_visible()
    return page


async def test_an_answer_gets_a_thumb_by_keyboard(world: World) -> None:
    session = await make_session(world.server, "desk", "thumbs-keyboard", ["hello"])
    page = await opened(world, session)
    up = page.get_by_role("button", name="Thumbs up")
    down = page.get_by_role("button", name="Thumbs down")
    await up.focus()
    await expect(page.get_by_role("group", name="Feedback")).to_have_css("opacity", "1")
    await page.keyboard.press("Enter")
    await expect(up).to_have_attribute("aria-pressed", "true")
    await expect(up).to_be_focused()
    assert [one["score"] for one in await stored(world.server, session)] == [True]

    await down.focus()
    await page.keyboard.press("Enter")
    comment = page.get_by_role("textbox", name="Comment")
    await expect(comment).to_be_focused()
    await page.keyboard.type("It repeats me.")
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("user: It repeats me.")).to_be_visible()
    await expect(comment).to_have_count(0)
    await expect(down).to_have_attribute("aria-pressed", "true")
    await expect(up).to_have_attribute("aria-pressed", "false")
    [given] = await stored(world.server, session)
    assert (given["name"], given["score"], given["comment"]) == ("helpful", False, "It repeats me.")

    await page.reload()
    await expect(page.get_by_text("user: It repeats me.")).to_be_visible()
    await expect(down).to_have_attribute("aria-pressed", "true")
    await down.click()
    await expect(down).to_have_attribute("aria-pressed", "false")
    assert await stored(world.server, session) == []


async def test_a_thumb_down_needs_no_comment(world: World) -> None:
    session = await make_session(world.server, "desk", "thumbs-plain", ["hello"])
    page = await opened(world, session)
    await page.get_by_role("button", name="Thumbs down").click()
    await expect(page.get_by_role("textbox", name="Comment")).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("textbox", name="Comment")).to_have_count(0)
    [given] = await stored(world.server, session)
    assert given["score"] is False
    assert "comment" not in given


async def test_a_thumb_down_becomes_a_case(world: World) -> None:
    sets = "/dev/apps/desk/eval-sets"
    await world.server.client.delete(f"{sets}/complaints")
    session = await make_session(world.server, "desk", "thumbs-case", ["hello"])
    page = await opened(world, session, width=390)
    await expect(page.get_by_role("button", name="Make a case")).to_have_count(0)
    await page.get_by_role("button", name="Thumbs down").click()
    await page.get_by_role("textbox", name="Comment").fill("It repeats me.")
    await page.get_by_role("button", name="Send comment").click()

    await page.get_by_role("button", name="Make a case").click()
    await expect(page.get_by_label("Evaluation set")).to_be_focused()
    await page.keyboard.press("Escape")
    await page.get_by_role("button", name="Make a case").click()
    await expect(page.get_by_label("Evaluation set")).to_have_value("complaints")
    assert await serious_violations(page) == []
    assert await page.evaluate("document.documentElement.scrollWidth") <= 390
    await page.get_by_role("button", name="Add the case").click()
    await page.get_by_role("link", name="complaints, version 1").click()
    await expect(page.get_by_role("heading", name="complaints: 1 case, version 1")).to_be_visible()
    await expect(page.get_by_role("link", name="Feedback", exact=True)).to_be_visible()
    [case] = (await world.server.client.get(f"{sets}/complaints")).json()["eval_cases"]
    assert case["source"]["feedback"][0]["comment"] == "It repeats me."
    assert await serious_violations(page) == []
    assert await page.evaluate("document.documentElement.scrollWidth") <= 390
    await world.server.client.delete(f"{sets}/complaints")  # other tests begin without sets


async def test_feedback_fits_a_narrow_page_and_is_accessible(world: World) -> None:
    session = await make_session(world.server, "desk", "thumbs-narrow", ["hello", "markdown"])
    for width in (390, 1280):
        page = await opened(world, session, width=width)
        await page.get_by_role("button", name="Thumbs down").first.click()
        await page.get_by_role("textbox", name="Comment").fill("too long " * 30)
        assert await page.evaluate("document.documentElement.scrollWidth") <= width
        assert await serious_violations(page) == []
        await page.get_by_role("button", name="Send comment").click()
        await expect(page.get_by_role("textbox", name="Comment")).to_have_count(0)
        assert await page.evaluate("document.documentElement.scrollWidth") <= width
        assert await serious_violations(page) == []
        await page.get_by_role("button", name="Thumbs down").first.click()
        await expect(page.get_by_role("button", name="Thumbs down").first).to_have_attribute("aria-pressed", "false")


async def test_runs_are_filtered_by_feedback(world: World) -> None:
    session = await make_session(world.server, "desk", "thumbs-runs", ["hello", "markdown"])
    events = (await world.server.client.get(f"/apps/desk/users/user/sessions/{session}/events")).json()["events"]
    answers = [event for event in events if event["author"] != "user"]
    for score, answer in enumerate((answers[0], answers[-1])):
        path = f"/apps/desk/users/user/sessions/{session}/events/{answer['id']}/feedback"
        await world.server.client.post(path, json={"name": "stars", "score": score})

    page = await world.open("runs", width=390)
    await expect(page.get_by_role("textbox", name="Feedback")).to_have_count(0)
    await page.get_by_role("form", name="Filters").get_by_label("App").select_option("desk")
    await page.get_by_role("textbox", name="Feedback").fill("stars")
    await page.keyboard.press("Enter")
    rows = page.get_by_role("table", name="Runs").get_by_role("row")
    await expect(rows).to_have_count(3)
    await page.get_by_role("textbox", name="Greatest score").fill("0.5")
    await page.keyboard.press("Enter")
    await expect(rows).to_have_count(2)
    await page.reload()
    await expect(page.get_by_role("textbox", name="Greatest score")).to_have_value("0.5")
    await expect(rows).to_have_count(2)
    assert await serious_violations(page) == []
    assert await page.evaluate("document.documentElement.scrollWidth") <= 390
    await page.get_by_role("button", name="Clear").click()
    await expect(page.get_by_role("textbox", name="Feedback")).to_have_count(0)
