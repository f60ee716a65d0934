"""The dev UI with the model that runs on this machine: a question to the first example, as a newcomer asks it."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import expect

from greenroom.apps.load_directory import DirectoryAppLoader
from greenroom.models.local import files as local_files
from greenroom.server.application import create_app
from tests.dev_ui.conftest import World
from tests.server.serving import serving

pytestmark = pytest.mark.asyncio(loop_scope="session")

EXAMPLES = Path(__file__).parents[2] / "examples"
MINUTE_MS = 60_000


@pytest.mark.model
async def test_a_question_to_the_example(world: World) -> None:
    local_files.pull("smollm2-135m")
    async with serving(create_app(app_loader=DirectoryAppLoader(EXAMPLES))) as server:
        page = await world.open(f"{server.url}/dev-ui/apps/weather")
        message = page.get_by_role("textbox", name="Message")
        await message.fill("What is the weather in Oslo?")
        await message.press("Enter")
        card = page.locator(".item").filter(has_text="get_weather").first
        await expect(card).to_contain_text("Oslo", timeout=MINUTE_MS)
        await expect(page.get_by_text("Succeeded")).to_be_visible(timeout=MINUTE_MS)
        await expect(page.locator(".item").last).not_to_be_empty()
        await page.goto("about:blank")
