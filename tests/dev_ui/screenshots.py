"""Screenshots of the chat page in its states, to be looked at: `make screenshots` writes them to ui/screenshots."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect

from tests.dev_ui.apps import desk, flow
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
    "sleeping": ("collector", ["wait", "invoice"]),
}


def _request(text: str) -> dict[str, Any]:
    return {"newMessage": {"role": "user", "parts": [{"text": text}]}}


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
    ("name", "path"),
    [
        ("new", "apps/desk"),
        ("runs", "runs"),
        ("statistics", "statistics?range=hour&by=app"),
        ("agents", "agents"),
        ("agent", "agents?app=desk"),
        ("evaluate", "evaluate?app=desk"),
        ("settings", "settings"),
        ("sign-in", "sign-in"),
    ],
)
async def test_screenshot_of_page(world: World, name: str, path: str, width: int, scheme: Any) -> None:
    page = await world.open(path, width=width, color_scheme=scheme)
    await page.wait_for_timeout(500)
    FOLDER.mkdir(exist_ok=True)
    await page.screenshot(path=FOLDER / f"page-{name}-{width}-{scheme}.png")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
async def test_screenshot_of_a_comparison(world: World, width: int, scheme: Any) -> None:
    name = f"shot-compare-{width}-{scheme}"
    await make_session(world.server, "desk", name, ["weather", "broken"])
    runs = (await world.server.client.get("/runs", params={"session_id": name})).json()["runs"]
    page = await world.open(f"compare?left={runs[1]['id']}&right={runs[0]['id']}", width=width, color_scheme=scheme)
    await expect(page.get_by_text(re.compile("steps differ"))).to_be_visible()
    FOLDER.mkdir(exist_ok=True)
    await page.screenshot(path=FOLDER / f"page-compare-{width}-{scheme}.png")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("tab", ["overview", "request", "reply", "state", "trace", "graph", "json"])
async def test_screenshot_of_the_inspector(world: World, tab: str, width: int, scheme: Any) -> None:
    name = await make_session(world.server, "desk", f"shot-{tab}-{width}-{scheme}", ["hello", "note"])
    events = (await world.server.client.get(f"/apps/desk/users/user/sessions/{name}")).json()["events"]
    page = await world.open(
        f"apps/desk/sessions/{name}?event={events[-1]['id']}&tab={tab}", width=width, color_scheme=scheme
    )
    await expect(page.locator(".inspector")).to_be_visible()
    await page.wait_for_timeout(500)
    FOLDER.mkdir(exist_ok=True)
    await page.screenshot(path=FOLDER / f"inspector-{tab}-{width}-{scheme}.png")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
async def test_screenshot_of_feedback(world: World, width: int, scheme: Any) -> None:
    session = await make_session(
        world.server, "desk", f"shot-feedback-{width}-{scheme}", ["hello", "markdown", "think"]
    )
    page = await world.open(f"apps/desk/sessions/{session}", width=width, height=800, color_scheme=scheme)
    await page.get_by_role("button", name="Thumbs down").nth(0).click()
    await page.get_by_role("textbox", name="Comment").fill("It only repeats my words.")
    await page.get_by_role("button", name="Send comment").click()
    await expect(page.get_by_text("user: It only repeats my words.")).to_be_visible()
    await page.get_by_role("button", name="Thumbs up").nth(1).click()
    await page.get_by_role("button", name="Thumbs down").nth(2).click()
    await expect(page.get_by_role("textbox", name="Comment")).to_be_visible()
    FOLDER.mkdir(exist_ok=True)
    await page.screenshot(path=FOLDER / f"feedback-{width}-{scheme}.png")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
async def test_screenshot_of_a_signals_form(world: World, width: int, scheme: Any) -> None:
    name = await make_session(world.server, "collector", f"shot-signal-{width}-{scheme}", ["invoice"])
    page = await world.open(f"apps/collector/sessions/{name}", width=width, color_scheme=scheme)
    await page.get_by_role("button", name="Send the signal…").click()
    await page.get_by_role("form", name="Signal paid").get_by_role("textbox").fill('{"amount": 12.5}')
    FOLDER.mkdir(exist_ok=True)
    await page.screenshot(path=FOLDER / f"inspector-signal-{width}-{scheme}.png")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
async def test_screenshot_of_a_running_session(world: World, width: int, scheme: Any) -> None:
    name = await make_session(world.server, "slow", f"shot-running-{width}-{scheme}", [])
    page = await world.open(f"apps/slow/sessions/{name}", width=width, color_scheme=scheme)
    box = page.get_by_role("textbox", name="Message")
    for text in ("count", "the next message"):
        await box.fill(text)
        await box.press("Enter")
    await expect(page.locator(".agent-text")).to_contain_text("1 2 3")
    await box.fill("the message after it")
    FOLDER.mkdir(exist_ok=True)
    await page.screenshot(path=FOLDER / f"running-{width}-{scheme}.png")


SCHEDULES: list[dict[str, Any]] = [
    {"id": "hourly", "everySeconds": 3600, "sessionId": "shot-schedule", "request": _request("Look for new orders.")},
    {
        "id": "morning",
        "cron": "30 9 * * MON-FRI",
        "timeZone": "Europe/Berlin",
        "request": _request("Write the report."),
    },
    {"id": "once", "at": 1.9e9, "request": _request("Wish a happy new year.")},
]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("chosen", ["hourly", "new"])
async def test_screenshot_of_schedules(world: World, chosen: str, width: int, scheme: Any) -> None:
    await world.server.client.post("/apps/desk/users/user/sessions/shot-schedule", json={})
    for schedule in SCHEDULES:
        await world.server.client.post("/apps/desk/schedules", json={"userId": "user", **schedule})
    (await world.server.client.post("/apps/desk/schedules/hourly/run")).raise_for_status()
    await world.server.client.post("/apps/desk/schedules/once/pause")
    page = await world.open(f"schedules?app=desk&schedule={chosen}", width=width, color_scheme=scheme)
    await expect(page.get_by_role("list", name="Schedules")).to_be_visible()
    await page.wait_for_timeout(300)
    FOLDER.mkdir(exist_ok=True)
    await page.screenshot(path=FOLDER / f"page-schedules-{chosen}-{width}-{scheme}.png")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
async def test_screenshot_of_the_inbox(world: World, width: int, scheme: Any) -> None:
    async with world.serve(desk(), flow()) as server:
        await make_session(server, "desk", "orders", ["delete"])
        await make_session(server, "flow", "dinner", ["the harbour"])
        await make_session(server, "desk", "archive", ["delete"])
        page = await world.open(f"{server.url}/dev-ui/inbox", width=width, color_scheme=scheme)
        await expect(page.get_by_role("list", name="Requests")).to_be_visible()
        await page.keyboard.press("j")
        await expect(page.get_by_role("button", name="Allow", exact=True)).to_be_visible()
        FOLDER.mkdir(exist_ok=True)
        await page.screenshot(path=FOLDER / f"page-inbox-{width}-{scheme}.png")
        await page.goto("about:blank")
