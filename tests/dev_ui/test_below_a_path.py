"""The dev UI below a path of nginx: the main flows of its other tests, the reference, signing in, and a WebSocket."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright, expect

from greenroom import LlmAgent
from greenroom.records.content import Content
from greenroom.server.application import create_app
from greenroom.server.settings import ServerSettings
from greenroom.testing import Says, ScriptedLiveModel
from tests.dev_ui import test_chat, test_inspector, test_pages
from tests.dev_ui.apps import all_apps, desk
from tests.dev_ui.conftest import World
from tests.dev_ui.test_live import FLAGS
from tests.requirements import browser_flags, browser_path
from tests.reverse_proxy import PREFIX, PROXIES, reverse_proxy
from tests.server.security.keys import Keys
from tests.server.serving import Serving, serving

pytestmark = pytest.mark.asyncio(loop_scope="session")

# The same flows, with the fixtures of this module, below one kind of proxy.
test_a_first_message = test_chat.test_a_first_message_makes_a_session_and_its_answer_streams
test_an_approval = test_chat.test_an_approval_is_answered_once_in_either_tab_and_remembered
test_artifacts = test_inspector.test_artifacts_are_shown_uploaded_and_downloaded
test_spans = test_inspector.test_a_span_selects_its_event
test_runs = test_pages.test_runs_are_filtered_by_the_address


_BELOW_EACH_PROXY = ("test_pages_are_loaded_at_their_own_address", "test_a_live_conversation")
"""The proxies differ in how they pass on addresses and WebSockets; the flows are the same."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "server" in metafunc.fixturenames:
        proxies = PROXIES[:2] if metafunc.definition.name in _BELOW_EACH_PROXY else PROXIES[:1]
        metafunc.parametrize("server", proxies, indirect=True, scope="module")


@dataclass
class ProxiedServing(Serving):
    """A server whose public address is that of a proxy."""

    public_url: str = ""

    @property
    def url(self) -> str:
        return self.public_url


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        flags = [*FLAGS, *browser_flags()]
        browser = await playwright.chromium.launch(executable_path=browser_path(), args=flags)
        yield browser
        await browser.close()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Serving]:
    live = ScriptedLiveModel(lambda heard: Says("I hear you.") if isinstance(heard, Content) else "…")
    agents = [*all_apps(), LlmAgent(name="phone", model=live)]
    async with serving(create_app(agents=agents)) as started:
        folder = tmp_path_factory.mktemp("proxy")
        async with reverse_proxy(request.param, started.port, folder) as url:
            yield ProxiedServing(
                started.app, started.port, started.client, started.held, tasks=started.tasks, public_url=url
            )


async def test_pages_are_loaded_at_their_own_address(world: World) -> None:
    page = await world.open("")
    await expect(page).to_have_url(re.compile(f"{PREFIX}/dev-ui/"))
    for name, path in {"Runs": "runs", "Agents": "agents", "Settings": "settings"}.items():
        await page.get_by_role("link", name=name, exact=True).first.click()
        await expect(page).to_have_url(re.compile(f"{PREFIX}/dev-ui/{path}"))
        await page.reload()
        await expect(page.get_by_role("heading", level=1).first).to_be_visible()


async def test_a_live_conversation(world: World) -> None:
    page = await world.open("apps/phone")
    await page.get_by_role("button", name="Talk").click()
    live = page.get_by_role("region", name="Live conversation")
    await expect(live.get_by_text("Live: speak")).to_be_visible()
    await page.get_by_role("textbox", name="Message").fill("Hello?")
    await page.get_by_role("button", name="Send", exact=True).click()
    await expect(page.get_by_text("I hear you.").first).to_be_visible()
    await live.get_by_role("button", name="End").click()


async def test_the_reference_sends_requests_below_the_prefix(world: World) -> None:
    page = await world.open("../docs")
    page.set_default_timeout(60_000)  # the page is large
    await page.get_by_placeholder("Filter by tag or path").fill("list-apps")  # only operations in view are rendered
    operation = page.locator(".opblock", has_text="/list-apps").first
    await operation.locator(".opblock-summary").click()
    await operation.get_by_role("button", name="Try it out").click()
    async with page.expect_response(re.compile("/list-apps")) as response:
        await operation.get_by_role("button", name="Execute").click()
    found = await response.value
    assert found.url.startswith(f"{world.server.url}/list-apps")
    assert "desk" in await found.json()


async def test_signing_in_and_back(world: World, tmp_path: Path) -> None:
    keys = Keys(tmp_path / "keys.db")
    app = create_app(agents=[desk()], settings=ServerSettings(auth=keys.auth))
    async with serving(app) as server, reverse_proxy("nginx", server.port, tmp_path) as url:
        page = await world.open(f"{url}/dev-ui/apps/desk")
        await expect(page).to_have_url(re.compile(f"{PREFIX}/dev-ui/sign-in"))
        await page.get_by_label("Key", exact=True).fill(keys("ann", "run", "read"))
        await page.get_by_role("button", name="Sign in").click()
        await expect(page).to_have_url(re.compile(f"{PREFIX}/dev-ui/apps/desk"))
        await expect(page.get_by_text("No sessions yet.")).to_be_visible()
        cookies: Any = await page.context.cookies()
        assert [(one["name"], one["path"]) for one in cookies] == [("greenroom_key", PREFIX)]
        await page.goto("about:blank")
    world.problems[:] = [problem for problem in world.problems if "401" not in problem]
