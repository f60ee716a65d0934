"""The page of statistics in a real browser: its figures are those of the HTTP interface."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from playwright.async_api import Locator, Page, expect

from greenroom.agents.llm_agent import LlmAgent
from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata
from greenroom.records.content import Content, Part
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.testing.scripted_model import Said, ScriptedModel
from tests.dev_ui.apps import desk
from tests.dev_ui.axe import serious_violations
from tests.dev_ui.conftest import World
from tests.dev_ui.sessions import make_session
from tests.server.security.keys import Keys
from tests.server.serving import Json, Serving

pytestmark = pytest.mark.asyncio(loop_scope="session")


def priced() -> LlmAgent:
    """Each run uses 4,500 tokens of a model, for one cent."""

    def answer(request: LlmRequest) -> Said:
        usage = GenerateContentResponseUsageMetadata(
            prompt_token_count=4_000, candidates_token_count=500, total_token_count=4_500
        )
        content = Content(role="model", parts=[Part(text="hi")])
        return LlmResponse(content=content, usage_metadata=usage, model_version="gpt-5")

    return LlmAgent(name="priced", description="Costs a cent.", model=ScriptedModel(answer, model="gpt-5"))


async def make_runs(server: Serving) -> None:
    """Five runs, one of which fails, with three calls of a tool."""
    await make_session(server, "priced", "p-1", ["hello", "again"])
    await make_session(server, "desk", "d-1", ["hello", "weather", "boom"])


async def figures(server: Serving, page: Page, **query: str) -> Json:
    """The figures of the period that the plots show, from the server."""
    plot = page.get_by_role("slider").first
    params = {"start": await plot.get_attribute("aria-valuemin"), "end": await plot.get_attribute("aria-valuemax")}
    reply = await server.client.get("/statistics", params=params | query)
    reply.raise_for_status()
    return reply.json()


def total(page: Page, name: str) -> Locator:
    """A figure of the whole range."""
    return page.locator(".totals > div").filter(has=page.get_by_text(name, exact=True)).locator("strong")


async def rows(table: Locator) -> list[list[str]]:
    """The texts of the cells, without the head."""
    await expect(table.get_by_role("row").nth(1)).to_be_visible()
    found: list[list[str]] = []
    for row in (await table.get_by_role("row").all())[1:]:
        found.append(await row.get_by_role("rowheader").or_(row.get_by_role("cell")).all_inner_texts())
    return found


def counts(points: Sequence[Json], statuses: Sequence[str]) -> list[list[str]]:
    """Texts of the runs by status, the newest first."""
    return [[str(point["runs"].get(status, 0)) for status in statuses] for point in reversed(points)]


def seconds(value: float) -> str:
    return f"{round(value * 1000)} ms" if value < 1 else f"{value:.1f} s"


async def test_the_figures_shown_are_those_of_the_server(world: World) -> None:
    async with world.serve(priced(), desk()) as server:
        await make_runs(server)
        page = await world.open(f"{server.url}/dev-ui/statistics?range=hour")
        [group] = (await figures(server, page))["groups"]
        all_runs = group["total"]
        assert all_runs["runs"] == {"succeeded": 4, "failed": 1}
        await expect(total(page, "Runs")).to_have_text("5")
        await expect(total(page, "Failed")).to_have_text("1")
        await expect(total(page, "First text, p95")).to_have_text(seconds(all_runs["firstText"]["p95"]))
        await expect(total(page, "To the end, p95")).to_have_text(seconds(all_runs["duration"]["p95"]))
        await expect(total(page, "Tokens")).to_have_text("9,000")
        await expect(total(page, "Cost")).to_have_text("$0.02")
        assert (all_runs["inputTokens"], all_runs["outputTokens"], round(all_runs["cost"], 9)) == (8_000, 1_000, 0.02)

        await page.get_by_role("button", name="Table of Runs by status").click()
        table = page.get_by_role("group", name="Figures of Runs by status")
        shown = await rows(table)
        assert [row[1:] for row in shown] == counts(group["points"], ["succeeded", "failed", "cancelled"])
        errors = page.get_by_role("region", name="Failed runs by error")
        await expect(errors.locator(".plot-legend")).to_contain_text("ModelError 1")

        await page.get_by_label("Group by").select_option("app")
        await expect(page).to_have_url(re.compile("by=app"))
        await expect(page.get_by_role("heading", name="Failed runs", exact=True)).to_be_visible()
        groups = (await figures(server, page, group_by="app"))["groups"]
        table = page.get_by_role("group", name="Groups")
        shown = await rows(table)
        assert [row[:2] for row in shown] == [
            [group["key"], str(sum(group["total"]["runs"].values()))] for group in groups
        ]
        await table.get_by_role("button", name="Cost").click()
        await expect(page).to_have_url(re.compile("sort=-cost"))
        assert [(row[0], row[-1]) for row in await rows(table)] == [("priced", "$0.02"), ("desk", "$0.00")]
        await table.get_by_role("button", name="Cost").click()
        assert [row[0] for row in await rows(table)] == ["desk", "priced"]

        await page.get_by_label("Group by").select_option("tool")
        await expect(page).to_have_url(re.compile("by=tool"))
        await expect(page.get_by_role("heading", name="Failed calls")).to_be_visible()
        [tool] = (await figures(server, page, group_by="tool"))["groups"]
        assert (tool["key"], tool["total"]["toolCalls"]) == ("weather", 3)
        assert [row[:3] for row in await rows(table)] == [["weather", "3", "0"]]
        await table.get_by_role("link", name="weather").click()
        await expect(page).to_have_url(re.compile("tool=weather"))
        await expect(total(page, "Calls")).to_have_text("3")

        await page.get_by_role("textbox", name="User").fill("user")
        await page.get_by_role("textbox", name="User").press("Enter")
        await expect(page.get_by_role("textbox", name="Tool")).to_have_value("")
        await expect(total(page, "Runs")).to_have_text("5")
        await expect(page.get_by_text("All figures are of whole days (UTC).")).to_be_visible()
        await page.get_by_role("textbox", name="User").fill("nobody")
        await page.get_by_role("textbox", name="User").press("Enter")
        await expect(page.get_by_text("Nothing happened in this time")).to_be_visible()
        await page.get_by_role("button", name="Show all apps and users").click()
        await expect(total(page, "Runs")).to_have_text("5")
        await page.goto("about:blank")


async def position(page: Page, name: str, share: float) -> tuple[float, float, float]:
    """The left, width and lower edge of a plot, as far as it has values; `share` of its width is added to the left."""
    plot = page.get_by_role("slider", name=f"Time in {name}", exact=True).locator(".u-over")
    await plot.scroll_into_view_if_needed()
    box = await plot.bounding_box()
    assert box is not None
    return box["x"] + box["width"] * share, box["width"], box["y"] + box["height"]


async def test_dragging_zooms_and_a_click_opens_the_runs_behind_a_bar(world: World) -> None:
    async with world.serve(priced(), desk()) as server:
        await make_runs(server)
        page = await world.open(f"{server.url}/dev-ui/statistics?range=hour")
        shown = await figures(server, page)
        point = shown["groups"][0]["points"][-1]
        share = (point["time"] + 30 - shown["start"]) / (shown["end"] - shown["start"])
        statuses = page.get_by_role("slider", name="Time in Runs by status")
        await expect(statuses).to_have_attribute("aria-valuetext", re.compile("Succeeded 4, Failed 1"))

        left, _, bottom = await position(page, "Runs by status", share)
        await page.mouse.click(left, bottom - 4)
        listed = page.get_by_role("table", name="Runs").get_by_role("row")
        count = sum(point["runs"].values())
        lowest = "succeeded" if point["runs"].get("succeeded") else "failed"
        await expect(page).to_have_url(re.compile(rf"runs\?status={lowest}.*{int(point['time'])}"))
        await expect(listed).to_have_count(1 + point["runs"][lowest])
        await page.go_back()

        failed = page.get_by_role("slider", name="Time in Failed runs by error")
        await failed.focus()
        for _ in range(60):
            await page.keyboard.press("ArrowLeft")
            if "ModelError 1" in (await failed.get_attribute("aria-valuetext") or ""):
                break
        await page.keyboard.press("Enter")
        await expect(page).to_have_url(re.compile(r"runs\?from="))
        await expect(listed.filter(has_text="The model is overloaded")).to_have_count(1)
        await page.go_back()

        left, width, bottom = await position(page, "Cost", 0.5)
        await page.mouse.move(left, bottom - 40)
        await page.mouse.down()
        await page.mouse.move(left + width * 0.25, bottom - 40, steps=3)
        await page.mouse.move(left + width * 0.5 - 1, bottom - 40, steps=3)
        await page.mouse.up()
        await expect(page).to_have_url(re.compile("start=.*end="))
        await expect(page.get_by_role("slider").first).not_to_have_attribute("aria-valuemin", str(shown["start"]))
        zoomed = await figures(server, page)
        assert shown["start"] < zoomed["start"] < zoomed["end"] <= shown["end"] + 60
        assert 1_740 <= zoomed["end"] - zoomed["start"] <= 1_920
        await expect(total(page, "Runs")).to_have_text("5")
        await page.go_back()
        await expect(page).to_have_url(re.compile(r"statistics\?range=hour$"))

        await page.get_by_label("Group by").select_option("app")
        left, _, bottom = await position(page, "Runs", share)
        await page.mouse.click(left, bottom - 4)
        await expect(page).to_have_url(re.compile(r"runs\?app=(desk|priced)&"))
        await expect(listed.nth(1)).to_be_visible()
        assert await listed.count() <= 1 + count
        await page.goto("about:blank")


async def test_a_touch_shows_figures_and_a_button_opens_their_runs(world: World) -> None:
    async with world.serve(priced(), desk()) as server:
        await make_runs(server)
        page = await world.open(
            f"{server.url}/dev-ui/statistics?range=hour", width=390, height=844, has_touch=True, is_mobile=True
        )
        shown = await figures(server, page)
        point = shown["groups"][0]["points"][-1]
        share = (point["time"] + 30 - shown["start"]) / (shown["end"] - shown["start"])
        panel = page.get_by_role("region", name="Runs by status")
        await expect(panel.get_by_text("Whole range")).to_be_visible()
        left, _, bottom = await position(page, "Runs by status", share)
        await page.touchscreen.tap(left, bottom - 4)
        await expect(panel.get_by_text("Whole range")).to_have_count(0)
        await panel.get_by_role("button", name="Open runs").tap()
        await expect(page).to_have_url(re.compile(r"runs\?from="))
        await page.goto("about:blank")


@pytest.mark.parametrize("width", [1280, 390])
async def test_axe_finds_no_serious_violation(world: World, width: int) -> None:
    async with world.serve(priced(), desk()) as server:
        await make_runs(server)
        page = await world.open(f"{server.url}/dev-ui/statistics?by=app", width=width)
        await expect(page.get_by_role("group", name="Groups")).to_be_visible()
        await expect(page.get_by_role("heading", name="Load of the servers")).to_be_visible()
        assert await serious_violations(page) == []
        await page.get_by_label("Group by").select_option("")
        await page.get_by_role("button", name="Table of Runs by status").click()
        await page.locator(".range-fixed summary").click()
        await expect(page.get_by_label("From", exact=True)).to_be_visible()
        assert await serious_violations(page) == []
        assert await page.evaluate("document.documentElement.scrollWidth") <= width
        await page.goto("about:blank")


async def test_a_user_sees_the_own_figures_without_the_load(world: World, tmp_path: Path) -> None:
    keys = Keys(tmp_path / "keys.db")
    async with world.serve(priced(), desk(), auth=keys.auth) as server:
        server.client.headers["authorization"] = f"Bearer {keys('user', 'run', 'read')}"
        await make_runs(server)
        page = await world.open(f"{server.url}/dev-ui/statistics")
        await page.get_by_label("Key", exact=True).fill(keys("bob", "run", "read"))
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.get_by_text("Nothing happened in this time")).to_be_visible()
        await expect(page.get_by_role("alert")).to_have_count(0)
        await page.goto(f"{server.url}/dev-ui/sign-in?next=/statistics")
        await page.get_by_label("Key", exact=True).fill(keys("user", "run", "read"))
        await page.get_by_role("button", name="Sign in").click()
        await expect(total(page, "Runs")).to_have_text("5")
        await expect(page.get_by_role("heading", name="Load of the servers")).to_have_count(0)
        await page.goto("about:blank")
    refused = re.compile("40[13]")
    world.problems[:] = [problem for problem in world.problems if not refused.search(problem)]
