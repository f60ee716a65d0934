"""The inspector of the dev UI in a real browser, against the real server."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest
from playwright.async_api import Page, expect

from greenroom.evaluation.invocations import invocations_of
from greenroom.evaluation.records import EvalCase
from greenroom.records.event import Event
from greenroom.server.settings import ServerSettings
from tests.dev_ui.apps import desk
from tests.dev_ui.conftest import World
from tests.dev_ui.sessions import make_session
from tests.server.serving import Json

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def inspected(
    world: World, name: str, messages: list[Any], author: str, tab: str, nth: int = 0, **options: Any
) -> tuple[Page, list[Json]]:
    """A page with the nth event of an author in the inspector, and the events of its session."""
    await make_session(world.server, "desk", name, messages)
    events: list[Json] = (await world.server.client.get(f"/apps/desk/users/user/sessions/{name}/events")).json()[
        "events"
    ]
    event = [one for one in events if one["author"] == author][nth]
    page = await world.open(f"apps/desk/sessions/{name}?event={event['id']}&tab={tab}", **options)
    await expect(page.get_by_role("complementary", name="Inspector")).to_be_visible()
    return page, events


def panel(page: Page) -> Any:
    return page.get_by_role("complementary", name="Inspector").get_by_role("tabpanel")


async def test_the_request_and_the_reply_of_a_model_are_shown_as_sent(world: World) -> None:
    page, _ = await inspected(world, "exchange", ["note"], "desk", "request")
    await expect(panel(page)).to_contain_text('You are the agent "desk"')
    await expect(panel(page)).to_contain_text("note")
    await panel(page).locator("summary", has_text="take_note").click()
    await expect(panel(page)).to_contain_text("Writes a note down.")
    await page.get_by_role("tab", name="Reply").click()
    await expect(page).to_have_url(re.compile("tab=reply"))
    await expect(panel(page)).to_contain_text('"Buy milk"')
    await page.reload()
    await expect(page.get_by_role("tab", name="Reply")).to_have_attribute("aria-selected", "true")
    await expect(panel(page)).to_contain_text('"Buy milk"')


async def test_a_tools_event_shows_its_arguments_and_result(world: World) -> None:
    page, _ = await inspected(world, "tool", ["note"], "desk", "request", nth=1)
    await expect(panel(page)).to_contain_text("Arguments of the tool")
    await expect(panel(page)).to_contain_text('"Buy milk"')
    await page.get_by_role("tab", name="Reply").click()
    await expect(panel(page)).to_contain_text("Result of the tool")


async def test_the_request_of_a_failed_model_call_is_shown_at_its_error(world: World) -> None:
    page, events = await inspected(world, "failed", ["hello", "boom"], "desk", "request", nth=1)
    assert events[-1]["errorCode"] == "ModelError"
    await expect(panel(page)).to_contain_text('You are the agent "desk"')
    await expect(panel(page)).to_contain_text("boom")


async def test_where_nothing_is_traced_the_setting_is_named(world: World) -> None:
    async with world.serve(desk(), traced_content="nowhere") as server:
        session = await make_session(server, "desk", "untraced", ["hello"])
        events = (await server.client.get(f"/apps/desk/users/user/sessions/{session}/events")).json()["events"]
        page = await world.open(f"{server.url}/dev-ui/apps/desk/sessions/{session}?event={events[1]['id']}&tab=request")
        shown = await panel(page).get_by_text("the server was started with").text_content()
        await page.goto("about:blank")
    assert shown is not None
    (flag,) = re.findall("--([a-z-]+)", shown)
    assert hasattr(ServerSettings(), flag.replace("-", "_"))


async def test_a_message_leads_to_the_event_with_the_request(world: World) -> None:
    page, events = await inspected(world, "message", ["note"], "user", "request")
    await expect(panel(page)).to_contain_text("A message has no model request")
    await panel(page).get_by_role("button", name="Go to the next event").click()
    await expect(page).to_have_url(re.compile(str(events[1]["id"])))
    await expect(panel(page)).to_contain_text('You are the agent "desk"')


async def test_the_state_travels_through_the_session(world: World) -> None:
    page, events = await inspected(world, "state", ["note", "hello", "note"], "desk", "state", nth=1)
    await expect(panel(page).get_by_role("listitem").filter(has_text="city").first).to_contain_text('after "Oslo"')
    scrubber = panel(page).get_by_role("slider", name="State after")
    assert await scrubber.get_attribute("max") == str(len(events))
    await scrubber.press("Home")
    await expect(panel(page)).to_contain_text("The state is empty here")
    await scrubber.press("End")
    await expect(panel(page).locator(".tree")).to_contain_text('city: "Bergen"')
    await panel(page).get_by_role("checkbox", name="Compare with any event").check()
    other = panel(page).get_by_role("slider", name="Compared with")
    await other.press("Home")
    for _ in range(3):
        await other.press("ArrowRight")
    await expect(panel(page).locator(".changes")).to_contain_text('before "Oslo" after "Bergen"')
    await panel(page).get_by_role("button", name=f"Select event #{len(events)}").click()
    await expect(page).to_have_url(re.compile(str(events[-1]["id"])))


async def test_artifacts_are_shown_uploaded_and_downloaded(world: World, tmp_path: Path) -> None:
    page, _ = await inspected(world, "artifacts", ["note"], "desk", "artifacts", nth=1)
    await expect(panel(page)).to_contain_text("saved by this event")
    await expect(panel(page)).to_contain_text("Buy milk")
    upload = tmp_path / "note.txt"
    upload.write_text("Buy bread")
    await panel(page).locator("input[type=file]").set_input_files(upload)
    versions = panel(page).get_by_label("Version of note.txt")
    await expect(versions.locator("option")).to_have_count(2)
    await versions.select_option("1")
    await expect(panel(page)).to_contain_text("Buy bread")
    async with page.expect_download() as download:
        await panel(page).get_by_role("link", name="Download note.txt").click()
    assert (await (await download.value).path()).read_text() == "Buy bread"


async def test_a_span_selects_its_event(world: World) -> None:
    page, events = await inspected(world, "trace", ["note"], "desk", "trace")
    calls = panel(page).get_by_role("button", name=re.compile("^call_llm"))
    await expect(calls).to_have_count(2)
    await calls.nth(1).click()
    await expect(page).to_have_url(re.compile(str(events[-1]["id"])))
    await expect(panel(page).get_by_role("region", name="Chosen span")).to_contain_text(events[-1]["id"])
    await panel(page).get_by_role("button", name="Spans below invocation").click()
    await expect(calls).to_have_count(0)


async def test_a_waterfall_of_ten_thousand_spans_keeps_few_in_the_page(world: World) -> None:
    page, _ = await inspected(world, "spans", ["hello"], "desk", "overview")
    spans = [
        {"name": f"step {at}", "trace_id": "t", "span_id": str(at), "parent_span_id": "0" if at else None, "logs": []}
        | {"start_time": at * 1_000_000, "end_time": (20_000 if at == 0 else at + 2) * 1_000_000, "attributes": {}}
        for at in range(10_000)
    ]
    await page.route("**/debug/trace/session/*", lambda route: route.fulfill(json=spans))
    await page.reload()
    await page.get_by_role("tab", name="Trace").click()
    await panel(page).get_by_role("checkbox", name="All runs of the session").check()
    await expect(panel(page)).to_contain_text("10000 spans")
    rows = panel(page).locator("li.trace-row")
    assert await rows.count() < 100
    await panel(page).locator(".waterfall-rows").evaluate("rows => rows.scrollTo(0, rows.scrollHeight)")
    await expect(panel(page).get_by_role("button", name=re.compile("^step 9999"))).to_be_visible()
    assert await rows.count() < 100
    before = await panel(page).locator(".trace-axis").inner_text()
    await panel(page).get_by_role("button", name="Zoom in").click()
    assert await panel(page).locator(".trace-axis").inner_text() != before


async def test_the_graph_lights_the_path_of_the_event(world: World) -> None:
    page, _ = await inspected(world, "graph", ["note"], "desk", "graph")
    picture = panel(page).get_by_role("img", name=re.compile("take_note"))
    await expect(picture).to_be_visible()
    lit = picture.locator("g.node", has_text="take_note").locator("path, polygon").first
    other = picture.locator("g.node", has_text="weather").locator("path, polygon").first
    assert await lit.get_attribute("fill") != await other.get_attribute("fill")
    holder = panel(page).locator(".graph-holder")
    before = await holder.get_attribute("style")
    await picture.press("+")
    await expect(holder).not_to_have_attribute("style", before or "")


async def test_what_is_copied_as_curl_sends_the_message_again(world: World) -> None:
    allowed = ["clipboard-read", "clipboard-write"]
    page, events = await inspected(world, "copies", ["it's $HOME"], "desk", "json", permissions=allowed)
    await expect(panel(page)).to_contain_text('invocationId: "')

    async def copied(name: str) -> str:
        await page.get_by_role("button", name="Copy as…").click()
        await page.get_by_role("menuitem", name=name).click()
        await expect(page.get_by_role("complementary", name="Inspector").get_by_role("status")).to_contain_text(
            "copied"
        )
        return await page.evaluate("navigator.clipboard.readText()")

    assert json.loads(await copied("Copy as JSON"))["author"] == "desk"
    program, _, url, _, header, _, body = shlex.split((await copied("Copy as curl")).replace("\\\n", " "))
    assert program == "curl"
    name, _, value = header.partition(": ")
    reply = await world.server.client.post(url, content=body, headers={name: value})
    assert reply.status_code == 200
    assert "You said: it's $HOME" in reply.text
    case = msgspec.json.decode(await copied("Copy as evaluation case"), type=EvalCase)
    expected = invocations_of(msgspec.convert(events, list[Event]))
    assert [(one.user_content, one.text()) for one in case.conversation or ()] == [
        (one.user_content, one.text()) for one in expected
    ]
    assert case.eval_id == "copies_1"
    snippet = await copied("Copy as pytest")
    compile(snippet, "test_copied.py", "exec")
    assert 'assert parts[-1]["text"] == "You said: it\'s $HOME"' in snippet
