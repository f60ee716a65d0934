"""The page of the audit trail in a real browser."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Locator, Page, expect

from greenroom.audit.signing import HeadSigner, HeadVerifier, new_key_pair
from greenroom.audit.verify import verify_lines
from greenroom.records.audit import new_entry
from greenroom.server.settings import AuditSettings
from tests.dev_ui.apps import desk
from tests.dev_ui.axe import serious_violations
from tests.dev_ui.conftest import World
from tests.dev_ui.sessions import make_session
from tests.server.serving import Serving

pytestmark = pytest.mark.asyncio(loop_scope="session")

PRIVATE, PUBLIC = (key.decode() for key in new_key_pair())


@pytest_asyncio.fixture(loop_scope="session")
async def audited(world: World) -> AsyncIterator[Serving]:
    async with world.serve(desk(), audit=AuditSettings(key=PRIVATE)) as server:
        await make_session(server, "desk", "s-1", ["hello"])
        await server.client.delete("/apps/desk/users/ann")
        yield server


def rows(page: Page) -> Locator:
    return page.get_by_role("list", name="Entries").locator("> li")


async def test_entries_are_listed_filtered_and_exported(world: World, audited: Serving, tmp_path: Path) -> None:
    page = await world.open(f"{audited.url}/dev-ui/")
    await page.get_by_role("link", name="Administration").click()
    await page.get_by_role("link", name="Audit trail").click()
    await expect(page.get_by_role("heading", name="Audit trail")).to_be_visible()
    await expect(page.get_by_text("No server has found a change")).to_be_visible()
    await expect(rows(page).filter(has_text="user.deleted")).to_contain_text("desk / ann")

    started = rows(page).filter(has_text="run.started")
    await started.get_by_role("button").click()
    details = started.locator(".audit-details")
    await expect(details.get_by_role("link", name="s-1")).to_be_visible()
    await expect(details).to_contain_text("Run id")
    await expect(details).to_contain_text("Http request id")
    assert await serious_violations(page) == []
    for width in (390, 1280):
        await page.set_viewport_size({"width": width, "height": 800})
        assert await page.evaluate("document.documentElement.scrollWidth") <= width

    async with page.expect_download() as downloading:
        await page.get_by_role("button", name="Export").click()
    download = await downloading.value
    await download.save_as(tmp_path / "trail.jsonl")
    lines = (tmp_path / "trail.jsonl").read_bytes().splitlines(keepends=True)
    report = verify_lines(lines, keys=HeadVerifier.load([PUBLIC]))
    assert report.faults == []
    assert report.entries >= 6

    await page.get_by_label("Action").select_option("user.deleted")
    await expect(rows(page)).to_have_count(1)
    assert page.url.endswith("/admin/audit?action=user.deleted")
    await page.get_by_role("textbox", name="Who").fill("nobody")
    await page.get_by_role("textbox", name="Who").press("Enter")
    await page.get_by_role("button", name="Show all entries").click()
    await expect(rows(page).filter(has_text="run.started")).to_be_visible()
    await page.context.close()


async def test_older_entries_are_loaded_and_a_change_is_shown(world: World, audited: Serving) -> None:
    trail = audited.apps[0]._server.audit
    assert trail is not None
    await trail.store.append([new_entry("run.started", subject=f"user {number}") for number in range(150)])
    page = await world.open(f"{audited.url}/dev-ui/admin/audit")
    await expect(rows(page)).to_have_count(100)
    await page.get_by_role("button", name="Show older entries").click()
    await expect(rows(page).filter(has_text="user 1").first).to_be_visible()

    broken = new_entry("trail.broken", outcome="refused", target="chain 1, entry 3: was changed")
    await trail.store.append([broken], signer=HeadSigner.load(PRIVATE))
    await page.reload()
    await expect(page.get_by_role("alert")).to_contain_text("chain 1, entry 3: was changed")
    assert await serious_violations(page) == []
    await page.context.close()


async def test_server_without_a_trail_says_how_to_switch_it_on(world: World) -> None:
    page = await world.open("admin/audit")
    await expect(page.get_by_role("heading", name="This server keeps no audit trail")).to_be_visible()
    assert await serious_violations(page) == []
    world.problems[:] = [problem for problem in world.problems if "501" not in problem]


@pytest.mark.skipif("GREENROOM_SCREENSHOTS" not in os.environ, reason="only with GREENROOM_SCREENSHOTS=folder")
async def test_screenshots(world: World, audited: Serving) -> None:
    folder = Path(os.environ["GREENROOM_SCREENSHOTS"])
    for scheme in ("light", "dark"):
        for width in (1280, 390):
            page = await world.open(f"{audited.url}/dev-ui/admin/audit", width=width, color_scheme=scheme)
            await expect(page.get_by_role("link", name="Administration")).to_be_visible()
            await rows(page).filter(has_text="run.started").get_by_role("button").click()
            await page.screenshot(path=folder / f"audit-{width}-{scheme}.png")
            await page.context.close()
