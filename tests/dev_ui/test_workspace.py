"""Output of a running command, and the chart that code draws, on a session's page in a real browser."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from playwright.async_api import expect

from greenroom import App, LlmAgent, WorkspaceToolset
from greenroom.records.content import FunctionCall
from greenroom.testing.scripted_model import ScriptedModel
from tests.dev_ui.conftest import World
from tests.dev_ui.sessions import make_session
from tests.requirements import skip_or_fail

pytestmark = pytest.mark.asyncio(loop_scope="session")

SLOW = "for month in January February March; do echo reading $month; sleep 0.7; done"

DRAW = """
values = {"Jan": 61, "Feb": 70, "Mar": 73, "Apr": 79, "May": 89, "Jun": 94}
bars = "".join(
    f'<rect x="{10 + 40 * i}" y="{100 - value}" width="30" height="{value}" fill="steelblue"/>'
    f'<text x="{25 + 40 * i}" y="115" font-size="12" text-anchor="middle">{month}</text>'
    for i, (month, value) in enumerate(values.items())
)
with open("revenue.svg", "w") as file:
    file.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="260" height="120">{bars}</svg>')
print(sum(values.values()))
"""


def analyst() -> App:
    calls = [
        FunctionCall(name="run_shell", args={"command": SLOW}),
        FunctionCall(name="run_python", args={"code": DRAW}),
    ]
    model = ScriptedModel([*calls, "The revenue is 466; the chart is in revenue.svg."])
    return App(name="analyst", root_agent=LlmAgent(name="analyst", model=model, tools=[WorkspaceToolset()]))


async def test_a_commands_output_grows_and_a_chart_is_shown(world: World) -> None:
    if shutil.which("bwrap") is None:
        skip_or_fail("bubblewrap is not installed")
    async with world.serve(analyst()) as server:
        await make_session(server, "analyst", "sales", [])
        page = await world.open(f"{server.url}/dev-ui/apps/analyst/sessions/sales")
        await page.get_by_role("textbox", name="Message").fill("Draw the revenue by month.")
        await page.keyboard.press("Enter")

        output = page.get_by_label("Output so far")
        await expect(output).to_contain_text("reading January")
        await expect(output).not_to_contain_text("reading March")
        await expect(output).to_contain_text("reading February")

        await expect(page.get_by_text("The revenue is 466")).to_be_visible()
        await expect(output).to_have_count(0)
        chart = page.get_by_role("img", name="revenue.svg")
        await expect(chart).to_be_visible()
        assert await chart.evaluate("image => image.naturalWidth") == 260
        if folder := os.environ.get("GREENROOM_SCREENSHOTS"):
            await page.screenshot(path=Path(folder, "workspace.png"))
        await page.goto("about:blank")
