"""The chat page in a real browser, against the real server."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import time
from typing import Any

import pytest
from playwright.async_api import Dialog, Page, Route, expect

from greenroom.agents.llm_agent import LlmAgent
from greenroom.records.content import FunctionCall
from greenroom.records.model_exchange import LlmRequest
from greenroom.testing.scripted_model import ScriptedModel
from tests.dev_ui.apps import flaky
from tests.dev_ui.axe import serious_violations
from tests.dev_ui.conftest import World
from tests.dev_ui.sessions import make_session

pytestmark = pytest.mark.asyncio(loop_scope="session")

COUNTED = " ".join(str(number) for number in range(1, 41))
TEXTS = ".agent-text"
PICTURE = b'<svg xmlns="http://www.w3.org/2000/svg" width="400" height="300"/>'


async def send(page: Page, text: str) -> None:
    box = page.get_by_role("textbox", name="Message")
    await box.fill(text)
    await box.press("Enter")


async def new_session(world: World, app: str, name: str) -> str:
    await make_session(world.server, app, name, [])
    return f"apps/{app}/sessions/{name}"


async def test_a_first_message_makes_a_session_and_its_answer_streams(world: World) -> None:
    page = await world.open("apps/slow")
    await expect(page.get_by_text("Streams slowly.")).to_be_visible()
    await send(page, "count")
    await expect(page).to_have_url(re.compile("/dev-ui/apps/slow/sessions/"))
    await expect(page.locator(TEXTS)).to_contain_text("1 2 3")
    assert "40" not in await page.locator(TEXTS).inner_text()
    await expect(page.get_by_role("button", name="Stop")).to_be_visible()
    await expect(page.get_by_label("While the run is active")).to_be_visible()
    await expect(page.locator(TEXTS)).to_have_text(COUNTED)
    await expect(page.get_by_text("Succeeded")).to_be_visible()
    await expect(page.get_by_role("button", name="Stop")).to_be_hidden()
    await expect(page.locator(".topbar .session-title")).to_have_text("count")
    await expect(page.locator(".sessions-list .chosen")).to_contain_text("count")


async def test_a_late_answer_about_the_first_title_does_not_replace_the_later_one(world: World) -> None:
    page = await world.open("apps/slow")

    async def delay(route: Route) -> None:
        await asyncio.sleep(1)
        await route.continue_()

    await page.route(re.compile(r"/sessions/[^/?]+\?.*ntil"), delay)
    await send(page, "count")
    title = page.locator(".topbar .session-title")
    async with page.expect_response(re.compile(r"/sessions/[^/?]+\?.*ntil")):
        await expect(title).to_have_text("count")
    await expect(page.get_by_text("Succeeded")).to_be_visible()
    await expect(title).to_have_text("count")


async def test_a_dropped_connection_and_a_reload_in_mid_run_lose_and_repeat_nothing(world: World) -> None:
    page = await world.open(await new_session(world, "slow", "dropped"))
    await send(page, "count")
    await expect(page.locator(TEXTS)).to_contain_text("1 2 3")
    world.server.cancel_requests()
    await expect(page.get_by_text("Reconnecting")).to_be_visible()
    await expect(page.locator(TEXTS)).to_contain_text("10 11 12")
    await page.reload()
    await expect(page.locator(TEXTS)).to_contain_text("1 2 3 4 5")
    await expect(page.locator(".run-head").get_by_text("Running")).to_be_visible()
    await expect(page.locator(TEXTS)).to_have_text(COUNTED)
    await expect(page.locator(TEXTS)).to_have_count(1)
    await expect(page.locator(".user-bubble")).to_have_count(1)
    # The browser reports the lost stream of the inbox's number, which it opens again.
    world.problems[:] = [problem for problem in world.problems if "ERR_INCOMPLETE_CHUNKED_ENCODING" not in problem]


async def test_messages_of_a_running_session_queue_and_stop_cancels(world: World) -> None:
    page = await world.open(await new_session(world, "slow", "queue"))
    await send(page, "count")
    await expect(page.get_by_role("button", name="Enqueue")).to_be_visible()
    await send(page, "second")
    await expect(page.get_by_text("Queued: it starts")).to_be_visible()
    await page.get_by_role("button", name="Stop").click()
    await expect(page.get_by_text("Cancelled", exact=True)).to_be_visible()


async def test_a_message_interrupts_a_running_session_on_demand(world: World) -> None:
    page = await world.open(await new_session(world, "slow", "interrupted"))
    await send(page, "count")
    await expect(page.locator(TEXTS)).to_contain_text("1 2 3")
    await page.get_by_label("While the run is active").select_option("interrupt")
    await expect(page.get_by_role("button", name="Interrupt", exact=True)).to_be_visible()
    await send(page, "hello instead")
    await expect(page.locator(".run-head").first).to_contain_text("Cancelled")
    await expect(page.get_by_text("You said: hello instead")).to_be_visible()
    await expect(page.locator(".run-head").last).to_contain_text("Succeeded")


async def test_the_active_run_reads_a_message_at_its_next_step(world: World) -> None:
    may_end = asyncio.Event()

    async def look() -> str:
        """Looks."""
        await may_end.wait()
        return "seen"

    def answer(request: LlmRequest) -> Any:
        text = request.contents[-1].text()
        return FunctionCall(name="look") if text == "look" else f"You said: {text}"

    async with world.serve(LlmAgent(name="looks", model=ScriptedModel(answer), tools=[look])) as server:
        await make_session(server, "looks", "steered", [])
        page = await world.open(f"{server.url}/dev-ui/apps/looks/sessions/steered")
        await send(page, "look")
        await expect(page.get_by_label("Call of look, running")).to_be_visible()
        await page.get_by_label("While the run is active").select_option("steer")
        await send(page, "use metric units")
        await expect(page.locator(".run-head").last).to_contain_text("is read before the active run's next model call")
        await expect(page.locator(".user-bubble.waiting")).to_have_text("use metric units")
        await send(page, "never mind")
        await expect(page.locator(".run-head")).to_have_count(3)
        await page.locator(".run-head").last.get_by_role("button", name="Cancel").click()
        await expect(page.locator(".run-head")).to_have_count(2)
        await expect(page.locator(".user-bubble.waiting")).to_have_count(1)
        may_end.set()
        await expect(page.get_by_text("You said: use metric units")).to_be_visible()
        await expect(page.get_by_text("The run read this here:")).to_be_visible()
        for _ in range(2):
            await expect(page.locator(".run-head")).to_have_count(1)
            await expect(page.locator(".user-bubble")).to_have_text(["look", "use metric units"])
            await page.reload()
        await expect(page.get_by_text("The run read this here:")).to_be_visible()
        if folder := os.environ.get("SCREENSHOTS"):
            for scheme in ("light", "dark"):
                await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
                await page.screenshot(path=f"{folder}/steered-{scheme}.png")
        await page.goto("about:blank")


@pytest.mark.parametrize("width", [1280, 390])
async def test_the_buttons_of_a_running_session_stay_in_their_column(world: World, width: int) -> None:
    session = await make_session(world.server, "slow", f"narrow-{width}", ["hello"])
    path = f"apps/slow/sessions/{session}"
    if width == 1280:  # the inspector makes the column narrow
        events = (await world.server.client.get(f"/apps/slow/users/user/sessions/{session}/events")).json()["events"]
        path += f"?event={events[-1]['id']}"
    page = await world.open(path, width=width)
    for _ in range(3):
        await send(page, "count")
    form = await page.get_by_role("form", name="Message").bounding_box()
    assert form is not None
    for name in ("Stop", "Enqueue"):
        button = page.get_by_role("button", name=name)
        await expect(button).to_be_in_viewport(ratio=1)
        box = await button.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= form["x"] + form["width"]


async def test_a_text_runs_in_the_direction_of_its_first_letter(world: World) -> None:
    session = await make_session(world.server, "desk", "hebrew", ["שלום world"])
    page = await world.open(f"apps/desk/sessions/{session}")
    first_and_last = """bubble => {
      const text = document.createTreeWalker(bubble, NodeFilter.SHOW_TEXT).nextNode();
      return [0, text.length - 1].map(at => {
        const range = document.createRange();
        range.setStart(text, at);
        range.setEnd(text, at + 1);
        return range.getBoundingClientRect().x;
      });
    }"""
    first, last = await page.locator(".user-bubble").evaluate(first_and_last)
    assert first > last


async def test_an_approval_is_answered_once_in_either_tab_and_remembered(world: World) -> None:
    session = await make_session(world.server, "desk", "approval", ["delete"])
    path = f"apps/desk/sessions/{session}"
    one, other = await world.open(path), await world.open(path)
    request = one.get_by_role("region", name="Allow delete_rows?")
    await expect(request.get_by_role("button", name="Allow", exact=True)).to_be_visible()
    in_other = other.get_by_role("region", name="Allow delete_rows?")
    await in_other.get_by_role("button", name="Edit arguments").click()
    await in_other.get_by_label("Arguments as JSON").fill('{"table": "orders", "count": 3}')
    await in_other.get_by_role("button", name="Allow with these arguments").click()
    for page in (one, other):
        await expect(page.get_by_role("region", name="Allow delete_rows?")).to_contain_text("Allowed with")
        await expect(page.get_by_role("button", name="Allow", exact=True)).to_have_count(0)
        await expect(page.get_by_label("Result")).to_contain_text("3")
    await one.reload()
    await expect(request).to_contain_text("by user")


async def test_images_in_results_are_shown_and_the_page_stays_at_its_end(world: World) -> None:
    def look(page: int) -> dict[str, Any]:
        """Looks at a page."""
        return {"image": {"mimetype": "image/svg+xml", "data": base64.b64encode(PICTURE).decode()}, "page": page}

    calls = [FunctionCall(name="look", args={"page": number}) for number in range(5)]
    model = ScriptedModel([*calls, "I have seen them."])
    async with world.serve(LlmAgent(name="viewer", model=model, tools=[look])) as server:
        await make_session(server, "viewer", "viewing", ["look"])
        page = await world.open(f"{server.url}/dev-ui/apps/viewer/sessions/viewing")
        image = page.get_by_role("article", name="Call of look, done").get_by_role("img", name="Image")
        await expect(image.last).to_have_js_property("naturalHeight", 300)
        await page.get_by_role("button", name="Hide sessions").click()
        await expect(page.get_by_text("I have seen them.")).to_be_in_viewport()
        await page.goto("about:blank")


async def test_a_refusal_gives_its_reason(world: World) -> None:
    session = await make_session(world.server, "desk", "refusal", ["delete"])
    page = await world.open(f"apps/desk/sessions/{session}")
    await page.get_by_role("button", name="Refuse…").click()
    await page.get_by_label("Reason for refusing").fill("not today")
    await page.get_by_role("button", name="Refuse", exact=True).click()
    await expect(page.get_by_text("Refused (“not today”)")).to_be_visible()


async def test_input_and_answers_of_long_running_tools_are_given_in_place(world: World) -> None:
    session = await make_session(world.server, "flow", "input", ["the harbour"])
    page = await world.open(f"apps/flow/sessions/{session}")
    await page.get_by_label("Your answer").get_by_role("spinbutton").fill("4")
    await page.get_by_role("button", name="Answer").click()
    await expect(page.get_by_text("Answered 4 by")).to_be_visible()
    await expect(page.get_by_text('{"guests":4}')).to_be_visible()

    session = await make_session(world.server, "desk", "long", ["report"])
    page = await world.open(f"apps/desk/sessions/{session}")
    await page.get_by_role("textbox", name="Answer of order_report").fill('{"url": "reports/1"}')
    await page.get_by_role("button", name="Answer").click()
    await expect(page.get_by_label("Result")).to_contain_text("reports/1")


async def test_parallel_branches_are_columns_on_wide_pages_only(world: World) -> None:
    session = await make_session(world.server, "team", "columns", ["look"])
    for width, columns in ((1600, 4), (390, 1)):
        page = await world.open(f"apps/team/sessions/{session}", width=width)
        await expect(page.locator(".column")).to_have_count(4)
        lefts = {round((await one.bounding_box() or {})["x"]) for one in await page.locator(".column").all()}
        assert len(lefts) == columns


async def test_a_message_is_edited_and_sent_in_a_fork_and_a_failure_retried(world: World) -> None:
    session = await make_session(world.server, "desk", "fork", ["hello", "boom"])
    page = await world.open(f"apps/desk/sessions/{session}")
    await expect(page.get_by_text("The model is overloaded")).to_be_visible()
    await page.get_by_role("button", name="Run again in a fork").click()
    await expect(page).not_to_have_url(re.compile("/fork"))
    await expect(page.get_by_text("The model is overloaded")).to_be_visible()
    await page.locator(".user-text").last.hover()
    await page.get_by_role("button", name="Edit and send again").last.click()
    await page.get_by_label("Edit the message").get_by_role("textbox").fill("hello again")
    await page.get_by_role("button", name="Send in a fork").click()
    await expect(page.get_by_text("You said: hello again")).to_be_visible()
    await expect(page.get_by_text("You said: hello", exact=True)).to_be_visible()
    await expect(page.get_by_text("overloaded")).to_have_count(0)


async def test_a_failed_run_is_retried_in_its_session_or_in_a_fork(world: World) -> None:
    async with world.serve(flaky()) as server:
        session = await make_session(server, "flaky", "retried-here", ["hello retry"])
        page = await world.open(f"{server.url}/dev-ui/apps/flaky/sessions/{session}")
        await page.locator(".run-head").get_by_role("button", name="Retry").click()
        await expect(page.get_by_text("You said: hello retry")).to_be_visible()
        await expect(page.get_by_text("Retried from here")).to_be_visible()
        await expect(page.locator(".run-head")).to_contain_text("Succeeded")
        await expect(page.locator(".run-head")).to_contain_text("retried")
        assert await serious_violations(page) == []

        await send(page, "first failure")
        await expect(page.locator(".run-head").last).to_contain_text("Failed")
        await send(page, "second failure")
        await expect(page.locator(".run-head")).to_have_count(3)
        await page.locator(".run-head").nth(1).get_by_role("button", name="Retry in a fork").click()
        await expect(page).not_to_have_url(re.compile("sessions/retried-here$"))
        await expect(page.get_by_text("You said: first failure")).to_be_visible()

        await page.goto(f"{server.url}/dev-ui/runs?session=retried-here")
        await page.get_by_role("row").nth(1).get_by_role("checkbox").check()
        await page.get_by_role("button", name="Retry 1").click()
        await expect(page.get_by_role("row").nth(1)).to_contain_text("Succeeded")
        await page.goto("about:blank")


async def test_a_session_is_rewound_to_before_a_message(world: World) -> None:
    session = await make_session(world.server, "desk", "rewound", ["hello", "note", "weather"])
    page = await world.open(f"apps/desk/sessions/{session}")
    await page.locator(".user-text").nth(1).hover()

    async def accept(dialog: Dialog) -> None:
        await dialog.accept()

    page.once("dialog", accept)
    await page.get_by_role("button", name="Rewind to before this message").nth(1).click()
    await expect(page.get_by_text("Rewound to before run")).to_be_visible()
    for _ in range(2):
        await expect(page.locator(".run-head").filter(has_text="rewound")).to_have_count(2)
        await expect(page.locator(".run-head").filter(has_text="Running")).to_have_count(0)
        assert await serious_violations(page) == []
        await page.reload()
        await expect(page.get_by_text("Rewound to before run")).to_be_visible()
    await send(page, "hello again")
    await expect(page.get_by_text("You said: hello again")).to_be_visible()
    if folder := os.environ.get("SCREENSHOTS"):
        for scheme in ("light", "dark"):
            await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
            await page.screenshot(path=f"{folder}/rewound-{scheme}.png")


async def test_events_are_stepped_through_opened_and_closed_by_keys(world: World) -> None:
    session = await make_session(world.server, "desk", "keys", ["hello", "weather"])
    page = await world.open(f"apps/desk/sessions/{session}")
    await expect(page.get_by_text("You said: hello")).to_be_visible()
    await page.keyboard.press("j")
    await page.keyboard.press("j")
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(re.compile(r"\?event="))
    first = page.url
    await expect(page.locator(".pane")).to_be_visible()
    await page.keyboard.press("j")
    await expect(page).not_to_have_url(first)
    await page.keyboard.press("Escape")
    await expect(page.locator(".pane")).to_be_hidden()
    await page.keyboard.press("/")
    await expect(page.get_by_role("textbox", name="Message")).to_be_focused()


async def test_a_session_of_5000_events_opens_at_its_end_and_draws_what_is_seen(world: World) -> None:
    events: list[dict[str, Any]] = [
        {
            "id": f"e{index}",
            "author": "user" if index % 2 == 0 else "desk",
            "invocationId": f"r{index // 2}",
            "timestamp": 1.7e9 + index,
            "content": {"role": "user" if index % 2 == 0 else "model", "parts": [{"text": f"message {index}"}]},
        }
        for index in range(5000)
    ]
    path = "/apps/desk/users/user/sessions"
    (await world.server.client.post(path, json={"sessionId": "large", "events": events})).raise_for_status()
    page = await world.open("runs")
    started = time.perf_counter()
    await page.goto("apps/desk/sessions/large")
    await expect(page.get_by_text("message 4999")).to_be_visible()
    print(f"5,000 events open in {time.perf_counter() - started:.2f} s")
    assert await page.locator(".timeline-row").count() < 60
    await page.locator(".timeline").evaluate("element => element.scrollTo(0, 0)")
    await expect(page.get_by_text("message 0", exact=True)).to_be_visible()
    body = {"newMessage": {"role": "user", "parts": [{"text": "more"}]}}
    (await world.server.client.post(f"{path}/large/runs", json=body)).raise_for_status()
    await page.get_by_role("button", name="New events").click()
    await expect(page.get_by_text("You said: more")).to_be_visible()


@pytest.mark.parametrize("width", [1280, 390])
async def test_axe_finds_no_serious_violation(world: World, width: int) -> None:
    messages = ["weather", "broken", "note", "think", "delete"]
    session = await make_session(world.server, "desk", f"axe-{width}", messages)
    for path in (f"apps/desk/sessions/{session}", "apps/desk"):
        page = await world.open(path, width=width)
        await expect(page.locator(".request, .suggestions").first).to_be_visible()
        assert await serious_violations(page) == [], path
        assert await page.evaluate("document.documentElement.scrollWidth") <= width
