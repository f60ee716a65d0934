"""The page of an app's published versions in a real browser."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Dialog, Locator, Page, expect

from greenroom.apps.load_directory import DirectoryAppLoader
from greenroom.server.application import create_app
from greenroom.server.settings import ServerSettings
from tests.dev_ui.axe import serious_violations
from tests.dev_ui.conftest import World
from tests.server.serving import Serving, serving

pytestmark = pytest.mark.asyncio(loop_scope="session")

AGENT = '''
from greenroom import LlmAgent
from greenroom.testing import ScriptedModel

def {tool}(city: str) -> dict:
    """Looks up the weather of a city."""
    return {{}}

def answer(request):
    text = request.contents[-1].text()
    if text == "fail":
        raise ValueError("no")
    return "{says}"

root_agent = LlmAgent(
    name="weather",
    description="Knows the weather.",
    instruction="""You know the weather.
{instruction}
Answer in the language of the question.""",
    model=ScriptedModel(answer, model="{model}"),
    tools=[{tool}],
)
'''


def write(folder: Path, says: str, tool: str, instruction: str, model: str) -> None:
    (folder / "weather").mkdir(parents=True, exist_ok=True)
    code = AGENT.format(says=says, tool=tool, instruction=instruction, model=model)
    (folder / "weather" / "agent.py").write_text(code)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path, "one", "look_up", "Look it up first.", "small-1")
    return tmp_path


@pytest_asyncio.fixture(loop_scope="session")
async def weather(folder: Path) -> AsyncIterator[Serving]:
    loader = DirectoryAppLoader(folder, hot_reload=True)
    app = create_app(app_loader=loader, settings=ServerSettings(auto_create_session=True))
    async with serving(app) as server:
        yield server


async def change(server: Serving, folder: Path) -> None:
    """Changes the code, and waits until the server has loaded it."""
    before = (await server.client.get("/apps/weather/versions")).json()["sourceVersion"]
    write(folder, "two", "forecast", "Look it up first.\nBe brief.", "small-2")
    async with asyncio.timeout(20):
        while (await server.client.get("/apps/weather/versions")).json()["sourceVersion"] == before:
            await asyncio.sleep(0.05)


async def used(server: Serving, prefix: str, *, helpful: bool, fails: bool) -> None:
    """Eight sessions with feedback, and with a failed run each."""
    for number in range(8):
        session = f"{prefix}-{number}"
        events = (await server.run("weather", sessionId=session)).json()
        rated = f"/apps/weather/users/ann/sessions/{session}/events/{events[-1]['id']}/feedback"
        score: Any = helpful if number % 4 else not helpful
        await server.client.post(rated, json={"name": "helpful", "score": score})
        if fails:
            await server.run("weather", "fail", sessionId=session)


def row(page: Page, name: str) -> Locator:
    return page.get_by_role("row").filter(has=page.locator(".version-name", has_text=name))


async def test_versions_are_published_shared_compared_and_rolled_back(
    world: World, weather: Serving, folder: Path
) -> None:
    page = await world.open(f"{weather.url}/dev-ui/agents?app=weather")
    await page.get_by_role("link", name="Versions").click()
    await expect(page.get_by_role("heading", name="No versions")).to_be_visible()
    await page.get_by_label("What has changed").fill("The first one")
    await page.get_by_role("button", name="Publish the present code").click()
    await expect(page.get_by_text("The present code is v1.")).to_be_visible()
    await expect(row(page, "v1")).to_contain_text("The first one")

    await change(weather, folder)
    await page.get_by_label("What has changed").fill("Brief answers, by the new model")
    await page.get_by_role("button", name="Publish the present code").click()
    await expect(row(page, "v2")).to_be_visible()
    await expect(row(page, "source")).to_contain_text("100 %")

    traffic = page.get_by_role("form", name="Traffic")
    await traffic.get_by_role("checkbox", name="v1").check()
    await traffic.get_by_label("Share of v1 in percent").fill("100")
    await traffic.get_by_role("checkbox", name="source").uncheck()
    await traffic.get_by_role("button", name="Save the shares").click()
    await expect(row(page, "v1")).to_contain_text("100 %")
    await used(weather, "a", helpful=True, fails=False)

    await traffic.get_by_role("checkbox", name="v2").check()
    await traffic.get_by_role("slider", name="Share of v2").fill("100")
    await expect(traffic.get_by_label("Share of v1 in percent")).to_have_value("0")
    await traffic.get_by_role("button", name="Save the shares").click()
    await expect(row(page, "v2")).to_contain_text("100 %")
    await used(weather, "b", helpful=False, fails=True)
    await page.reload()
    await expect(row(page, "v2")).to_contain_text("50 %")
    await expect(row(page, "v1")).to_contain_text("significantly lower")
    await page.get_by_text("Differences from v2").click()
    await expect(page.get_by_text("more than chance").first).to_be_visible()

    comparison = page.get_by_role("region", name="Compare")
    await expect(comparison.get_by_label("Earlier version")).to_have_value("v1")
    await expect(comparison.get_by_role("region", name="Instruction, differences")).to_contain_text("+Be brief.")
    await expect(comparison).to_contain_text("small-2")
    await expect(comparison).to_contain_text("forecast")
    await comparison.get_by_text("weather/agent.py").click()
    await expect(comparison.get_by_role("region", name="weather/agent.py, differences")).to_be_visible()
    await comparison.get_by_label("Later version").select_option("source")
    await expect(comparison).to_contain_text("small-2")
    await comparison.get_by_label("Earlier version").select_option("v2")
    await expect(comparison).to_contain_text("The versions are equal.")
    await comparison.get_by_label("Earlier version").select_option("v1")
    await comparison.get_by_text("weather/agent.py").click()
    await shoot(page)
    for width in (390, 1280):
        await page.set_viewport_size({"width": width, "height": 800})
        assert await page.evaluate("document.documentElement.scrollWidth") <= width
        assert await serious_violations(page) == []

    async def accept(dialog: Dialog) -> None:
        await dialog.accept()

    page.once("dialog", accept)
    await row(page, "v1").get_by_role("button", name="Roll back to v1").click()
    await expect(row(page, "v1").get_by_role("cell").first).to_contain_text("100 %")
    assert (await weather.client.get("/apps/weather/versions")).json()["shares"] == {"v1": 100}
    await row(page, "v1").get_by_role("link", name="8").click()
    await expect(page.get_by_role("heading", name="Runs")).to_be_visible()
    await expect(page.locator(".runs-rows .run-row")).to_have_count(8)
    await page.goto("about:blank")


async def shoot(page: Page) -> None:
    """Writes screenshots to the folder that GREENROOM_SCREENSHOTS names, to be looked at."""
    folder = os.environ.get("GREENROOM_SCREENSHOTS")
    if not folder:
        return
    for width in (390, 1280):
        for scheme in ("light", "dark"):
            await page.set_viewport_size({"width": width, "height": 1900})
            await page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            await page.locator("main").evaluate("page => page.scrollTo(0, 0)")
            await page.wait_for_timeout(300)
            await page.screenshot(path=f"{folder}/versions-{width}-{scheme}.png")
