"""Voice and camera in the dev UI, with the browser's fake devices and a scripted live model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright, expect

from greenroom import LlmAgent
from greenroom.models.model import RealtimeInput
from greenroom.records.content import Blob, Content
from greenroom.testing.scripted_live_model import INTERRUPTED, Hears, LiveItem, Says, ScriptedLiveModel
from tests.dev_ui.axe import serious_violations
from tests.dev_ui.conftest import TIMEOUT_MS, ServesAgents
from tests.requirements import browser_flags, browser_path
from tests.server.serving import Serving

pytestmark = pytest.mark.asyncio(loop_scope="session")

FLAGS = ["--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream"]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    found = browser_path()
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=found, args=[*FLAGS, *browser_flags()])
        yield browser
        await browser.close()


def answer(heard: Content | RealtimeInput) -> list[LiveItem]:
    if not isinstance(heard, Content):
        return [Hears("Can you hear me?"), Says("Yes, well.")]
    if heard.text() == "Go on":
        return [Says("word " * 1000)]
    return [INTERRUPTED] if heard.text() == "Stop" else [Says("Now I see you.")]


@pytest_asyncio.fixture(loop_scope="session")
async def model() -> ScriptedLiveModel:
    return ScriptedLiveModel(answer)


@pytest_asyncio.fixture(loop_scope="session")
async def server(model: ScriptedLiveModel, serve_agents: ServesAgents) -> AsyncIterator[Serving]:
    async with serve_agents(LlmAgent(name="phone", model=model)) as server:
        yield server


async def opened(browser: Browser, server: Serving, **options: object) -> Page:
    context = await browser.new_context(reduced_motion="reduce", **options)  # type: ignore[arg-type]
    context.set_default_timeout(TIMEOUT_MS)
    page = await context.new_page()
    await page.goto(f"{server.url}/dev-ui/apps/phone")
    return page


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_MS / 1000):
        while not condition():
            await asyncio.sleep(0.02)


def received(model: ScriptedLiveModel, media_type: str) -> list[Blob]:
    return [
        one
        for connection in model.connections
        for one in connection.received
        if isinstance(one, Blob) and (one.mime_type or "").startswith(media_type)
    ]


async def test_a_conversation_by_voice(browser: Browser, server: Serving, model: ScriptedLiveModel) -> None:
    page = await opened(browser, server)
    await page.get_by_role("button", name="Talk").click()
    live = page.get_by_role("region", name="Live conversation")
    await expect(live.get_by_text("Live: speak")).to_be_visible()
    # The fake microphone beeps once a second.
    await until(lambda: any(any(one.data or b"") for one in received(model, "audio/pcm;rate=16000")))
    assert {len(one.data or b"") for one in received(model, "audio/pcm")} == {3200}
    await live.get_by_role("button", name="Mute").click()
    await expect(page.locator(".user-bubble").get_by_text("Can you hear me?")).to_be_visible()
    await expect(page.get_by_text("Yes, well.")).to_be_visible()
    await live.get_by_role("button", name="Camera").click()
    await expect(live.get_by_label("Your camera")).to_be_visible()
    await until(lambda: bool(received(model, "image/jpeg")))
    assert (received(model, "image/jpeg")[0].data or b"")[:3] == b"\xff\xd8\xff"
    await page.get_by_role("textbox", name="Message").fill("What do you see?")
    await page.get_by_role("button", name="Send", exact=True).click()
    await expect(page.get_by_text("Now I see you.")).to_be_visible()
    await live.get_by_role("button", name="End").click()
    await expect(live).to_have_count(0)
    await page.reload()
    await expect(page.get_by_text("Yes, well.")).to_be_visible()
    await expect(live).to_have_count(0)
    await page.context.close()


async def test_speech_ends_at_once_when_the_user_interrupts(browser: Browser, server: Serving) -> None:
    page = await opened(browser, server)
    await page.get_by_role("button", name="Talk").click()
    live = page.get_by_role("region", name="Live conversation")
    await expect(live.get_by_text("Live: speak")).to_be_visible()
    message = page.get_by_role("textbox", name="Message")
    await message.fill("Go on")
    await message.press("Enter")
    await expect(live.get_by_text("Live: the agent speaks")).to_be_visible()
    await message.fill("Stop")
    await message.press("Enter")
    await expect(live.get_by_text("Live: speak")).to_be_visible(timeout=4000)
    await page.context.close()


async def test_a_lost_connection_is_opened_again(browser: Browser, server: Serving, model: ScriptedLiveModel) -> None:
    page = await opened(browser, server)
    await page.get_by_role("button", name="Talk").click()
    live = page.get_by_role("region", name="Live conversation")
    await expect(live.get_by_text("Live: speak")).to_be_visible()
    await live.get_by_role("button", name="Mute").click()
    await expect(page.get_by_text("Yes, well.")).to_be_visible()
    sockets = [held for held in server.held if "WebSocket" in type(held).__name__]
    assert sockets
    for held in sockets:  # of the page, and of a server that forwards
        held.transport.abort()
    await expect(live.get_by_text("Connection lost; reconnecting")).to_be_visible()
    await expect(live.get_by_text("Live: muted")).to_be_visible()
    message = page.get_by_role("textbox", name="Message")
    await message.fill("What do you see?")
    await message.press("Enter")
    await expect(page.get_by_text("Now I see you.")).to_be_visible()
    await expect(page.get_by_text("Yes, well.")).to_have_count(1)
    assert len(model.connections) == 2
    await page.context.close()


async def test_what_the_browser_does_not_allow_is_said(server: Serving) -> None:
    found = browser_path()
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=found, args=browser_flags())
        page = await opened(browser, server)
        await page.get_by_role("button", name="Talk").click()
        await expect(page.get_by_text("microphone")).to_be_visible()
        await browser.close()


@pytest.mark.parametrize("width", [1280, 390])
async def test_it_fits_and_has_no_serious_violation(browser: Browser, server: Serving, width: int) -> None:
    page = await opened(browser, server, viewport={"width": width, "height": 800})
    await page.get_by_role("button", name="Talk").click()
    live = page.get_by_role("region", name="Live conversation")
    await live.get_by_role("button", name="Camera").click()
    await expect(live.get_by_label("Your camera")).to_be_visible()
    assert await serious_violations(page) == []
    assert await page.evaluate("document.documentElement.scrollWidth") <= width
    await page.context.close()
