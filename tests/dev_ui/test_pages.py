"""The pages of the dev UI beside the chat, and the command palette, in a real browser against real servers."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, Route, expect

from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.load_directory import DirectoryAppLoader
from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata
from greenroom.records.content import Content, FunctionCall, Part
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.server.application import create_app
from greenroom.testing.scripted_model import Said, ScriptedModel
from tests.dev_ui.apps import desk
from tests.dev_ui.axe import serious_violations
from tests.dev_ui.conftest import World
from tests.dev_ui.sessions import make_session
from tests.server.security.keys import Keys
from tests.server.serving import serving

pytestmark = pytest.mark.asyncio(loop_scope="session")

SOURCE = "from greenroom import LlmAgent\nfrom greenroom.testing.scripted_model import ScriptedModel\n"


CLERK = '''
from greenroom import App, FunctionTool, LlmAgent
from tests.durability.scripts import call, model_of

def {tool}(amount: str) -> dict:
    """Pays."""
    return {{"paid": amount}}

model = model_of(call("pay", "c-1", amount="7"), "done")
agent = LlmAgent(name="clerk", model=model, tools=[FunctionTool({tool}, require_confirmation=True)])
app = App(name="clerk", root_agent=agent, on_version_change="refuse")
'''


def rows(page: Page) -> Any:
    return page.get_by_role("table", name="Runs").get_by_role("row")


async def test_runs_are_filtered_by_the_address(world: World) -> None:
    await make_session(world.server, "desk", "runs-failed", ["hello", "boom"])
    page = await world.open("runs?app=desk&session=runs-failed")
    await expect(rows(page)).to_have_count(3)
    await page.get_by_role("button", name="Failed").click()
    await expect(page).to_have_url(re.compile("status=failed"))
    await expect(rows(page)).to_have_count(2)
    await expect(rows(page).nth(1)).to_contain_text("The model is overloaded")
    await page.reload()
    await expect(page.get_by_role("button", name="Failed")).to_have_attribute("aria-pressed", "true")
    await expect(rows(page)).to_have_count(2)
    await page.get_by_label("Session").fill("none such")
    await page.get_by_label("Session").press("Enter")
    await expect(page.get_by_text("No run matches these filters")).to_be_visible()
    await page.get_by_role("button", name="Show all runs").click()
    await expect(rows(page).nth(2)).to_be_visible()


async def test_runs_that_ended_in_a_time_with_an_error_are_listed(world: World) -> None:
    await make_session(world.server, "desk", "runs-ended", ["hello", "boom", "boom"])
    runs = (await world.server.client.get("/runs", params={"session_id": "runs-ended"})).json()["runs"]
    last, first = runs[0]["endedAt"], runs[1]["endedAt"]
    path = "runs?app=desk&session=runs-ended"
    page = await world.open(f"{path}&error=ModelError&from={first}&to={last}")
    await expect(rows(page)).to_have_count(2)
    await page.get_by_role("button", name="Ended").click()
    await expect(rows(page)).to_have_count(3)
    await page.get_by_role("button", name="ModelError").click()
    await expect(rows(page)).to_have_count(4)
    await expect(page).to_have_url(re.compile(r"runs\?app=desk&session=runs-ended$"))
    await page.goto(f"{path}&from=1000&to=2000")
    await expect(page.get_by_text("No run matches these filters")).to_be_visible()


async def _waits(request: LlmRequest) -> Said:
    await asyncio.Event().wait()
    return ""


async def test_runs_appear_by_themselves_and_are_cancelled_together(world: World) -> None:
    endless = LlmAgent(name="endless", model=ScriptedModel(_waits))
    async with world.serve(endless) as server:
        page = await world.open(f"{server.url}/dev-ui/runs")
        await expect(page.get_by_text("No runs yet")).to_be_visible()
        for number in (1, 2):
            path = f"/apps/endless/users/user/sessions/s-{number}"
            (await server.client.post(path, json={})).raise_for_status()
            body = {"newMessage": {"role": "user", "parts": [{"text": "hello"}]}}
            (await server.client.post(f"{path}/runs", json=body)).raise_for_status()
        await expect(rows(page)).to_have_count(3)
        await page.get_by_label("Choose all runs").check()
        await page.get_by_role("button", name="Cancel 2").click()
        await expect(rows(page).filter(has_text="Cancelled")).to_have_count(2)
        await page.get_by_label("Choose all runs").check()
        await page.get_by_role("link", name="Compare").click()
        await expect(page.get_by_text("1 of 2 steps differ.")).to_be_visible()
        await page.goto("about:blank")


async def test_waiting_runs_that_differ_in_reloaded_code_are_shown(world: World, tmp_path: Path) -> None:
    (tmp_path / "clerk").mkdir()
    (tmp_path / "clerk" / "agent.py").write_text(CLERK.format(tool="pay"))
    loader = DirectoryAppLoader(str(tmp_path), hot_reload=True)
    async with serving(create_app(app_loader=loader)) as server:
        await make_session(server, "clerk", "s-1", ["pay"])
        page = await world.open(f"{server.url}/dev-ui/runs")
        await expect(rows(page).nth(1)).to_contain_text("Waiting")
        changed = page.get_by_text("1 waiting run would differ")
        await expect(changed).to_have_count(0)

        (tmp_path / "clerk" / "agent.py").write_text(CLERK.format(tool="transfer"))
        async with asyncio.timeout(10):
            while not (await server.client.get("/apps/clerk/waiting-runs")).json()["waitingRuns"][0].get("difference"):
                await asyncio.sleep(0.05)
        await page.reload()
        await changed.click()
        listed = page.get_by_label("Waiting runs that differ")
        await expect(listed).to_contain_text(
            "Event 2: agent 'clerk' calls pay(amount); now it has no tool of this name."
        )
        await expect(listed).to_contain_text("An answer is refused.")
        assert await serious_violations(page) == []
        await listed.get_by_role("link", name="clerk, s-1").click()
        await expect(page.locator(".run-head")).to_contain_text("Waiting")
        await page.goto("about:blank")
    loader.close()


async def test_ten_thousand_runs_are_shown_within_the_budget(world: World) -> None:
    """The budget is 1 s; loosely checked here, `make bench-ui` measures it."""
    now = time.time()
    runs = [
        {"id": f"e-{at}", "appName": "desk", "userId": "user", "sessionId": f"s-{at}", "status": "succeeded"}
        | {"createdAt": now - at, "startedAt": now - at, "endedAt": now - at + 1, "attempts": 1}
        for at in range(10_000)
    ]

    async def answer(route: Any) -> None:
        page = {"runs": [] if "status" in route.request.url else runs, "nextPageToken": None}
        if "event-stream" in route.request.headers["accept"]:
            body = f"retry: 60000\nevent: snapshot\ndata: {json.dumps(page)}\n\n"
            await route.fulfill(body=body, content_type="text/event-stream")
        else:
            await route.fulfill(json=page)

    page = await world.open("settings")
    await page.route("**/runs?*", answer)
    await page.get_by_role("link", name="Runs").click()
    await expect(rows(page).nth(1)).to_contain_text("s-0")
    assert await rows(page).count() < 100
    await page.locator(".runs-rows").evaluate("rows => rows.scrollTo(0, rows.scrollHeight)")
    await expect(page.get_by_role("link", name="s-9999")).to_be_visible()


async def test_two_runs_are_compared_step_by_step(world: World) -> None:
    await make_session(world.server, "desk", "compared", ["note", "note"])
    runs = (await world.server.client.get("/runs", params={"session_id": "compared"})).json()["runs"]
    page = await world.open(f"compare?left={runs[1]['id']}&right={runs[0]['id']}")
    await expect(page.get_by_text("steps differ")).to_be_visible()
    state = page.get_by_role("group", name="Changes the state")
    await expect(state.locator(".compare-changes")).to_contain_text('city before "Oslo" after "Bergen"')
    call = page.get_by_role("group", name="Calls take_note")
    await expect(call).to_be_visible()
    await page.get_by_label("Only differences").check()
    await expect(call).to_be_hidden()
    await expect(state).to_be_visible()


async def test_apps_that_do_not_load_say_why_and_load_when_mended(world: World, tmp_path: Path) -> None:
    for name, source in (
        ("typo", "root_agent = LlmAgent(name='typo', modle='x')"),
        ("wheels", "import a_missing_package"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "agent.py").write_text(f"{SOURCE}{source}\n")
    async with serving(create_app(app_loader=DirectoryAppLoader(str(tmp_path)))) as server:
        page = await world.open(f"{server.url}/dev-ui/agents?app=typo")
        await expect(page.locator(".load-error")).to_contain_text("modle")
        await expect(page.locator(".load-error")).to_contain_text("typo/agent.py:3")
        await page.get_by_role("link", name="wheels").click()
        await expect(page.locator(".load-error")).to_contain_text("pip install a-missing-package")
        await page.get_by_role("link", name="typo").click()
        mended = "root_agent = LlmAgent(name='typo', description='Mended.', model=ScriptedModel('hi'))\n"
        (tmp_path / "typo" / "agent.py").write_text(SOURCE + mended)
        await expect(page.locator(".app-detail")).to_contain_text("Mended.", timeout=20_000)
        await expect(page.get_by_role("img", name=re.compile("typo"))).to_be_visible()
        await page.goto("about:blank")


async def test_a_server_without_apps_shows_a_first_agent(world: World, tmp_path: Path) -> None:
    async with serving(create_app(app_loader=DirectoryAppLoader(str(tmp_path)))) as server:
        page = await world.open(f"{server.url}/dev-ui/agents")
        source = await page.locator(".copy-block pre").inner_text()
        await page.goto("about:blank")
    (tmp_path / "weather").mkdir()
    (tmp_path / "weather" / "agent.py").write_text(source)
    assert DirectoryAppLoader(str(tmp_path)).load("weather").root_agent.name == "weather"


async def test_an_apps_agents_tools_and_graph_are_shown(world: World) -> None:
    page = await world.open("agents?app=desk")
    await expect(page.locator(".agent-tree")).to_contain_text("delete_rows")
    await expect(page.locator(".agent-tree")).to_contain_text("billing")
    await expect(page.get_by_role("img", name=re.compile("billing"))).to_be_visible()
    await page.locator(".app-detail").get_by_role("link", name="Runs").click()
    await expect(page).to_have_url(re.compile("runs.app=desk"))


async def test_a_server_with_keys_asks_for_one_and_returns(world: World, tmp_path: Path) -> None:
    keys = Keys(tmp_path / "keys.db")
    async with world.serve(desk(), auth=keys.auth) as server:
        page = await world.open(f"{server.url}/dev-ui/agents?app=desk")
        await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        await page.get_by_label("Key", exact=True).fill("wrong")
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.get_by_role("alert")).to_be_visible()
        await page.get_by_label("Key", exact=True).fill(keys("ann", "run", "read", "debug"))
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.locator(".agent-tree")).to_contain_text("delete_rows")
        await expect(page).to_have_url(re.compile("/agents.app=desk"))
        await page.goto("about:blank")
    world.problems[:] = [problem for problem in world.problems if "401" not in problem]


async def test_the_command_on_the_sign_in_page_makes_a_key(world: World, tmp_path: Path) -> None:
    page = await world.open("sign-in")
    shown = await page.locator("details pre").text_content()
    assert shown is not None
    command = [sys.executable, "-m", *shlex.split(shown), "--keys", str(tmp_path / "keys.db")]
    made = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    printed, _ = await made.communicate()
    assert printed.startswith(b"gr_")


async def test_who_signs_in_sees_their_own_sessions(world: World, tmp_path: Path) -> None:
    keys = Keys(tmp_path / "keys.db")
    async with world.serve(desk(), auth=keys.auth) as server:
        page = await world.open(f"{server.url}/dev-ui/apps/desk")
        await page.get_by_label("Key", exact=True).fill(keys("ann lee", "run", "read"))
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.get_by_role("button", name="ann lee")).to_be_visible()
        await expect(page.get_by_text("No sessions yet.")).to_be_visible()
        await page.goto(f"{server.url}/dev-ui/")
        await expect(page).to_have_url(re.compile("/apps/desk.user=ann"))
        await expect(page.get_by_text("No sessions yet.")).to_be_visible()
        await page.goto("about:blank")
    world.problems[:] = [problem for problem in world.problems if "401" not in problem]


async def test_the_theme_and_the_user_are_remembered(world: World) -> None:
    page = await world.open("settings", color_scheme="light")
    await page.get_by_label("Dark").check()
    await page.get_by_label("User id").fill("bob")
    await page.get_by_role("button", name="Save").click()
    await page.reload()
    await expect(page.get_by_label("Dark")).to_be_checked()
    assert await page.evaluate("document.documentElement.dataset.theme") == "dark"
    await page.get_by_label("App").select_option("desk")
    await expect(page).to_have_url(re.compile("apps/desk.user=bob"))


async def test_a_session_becomes_a_case_which_is_run_and_shown(world: World) -> None:
    await make_session(world.server, "desk", "to-evaluate", ["hello evaluation"])
    page = await world.open("evaluate?app=desk")
    await expect(page.get_by_role("heading", name="No evaluation sets")).to_be_visible()
    await page.get_by_label("Name of a new set").fill("greetings")
    await page.get_by_role("button", name="Create set").click()
    await expect(page.get_by_role("heading", name="greetings: 0 cases")).to_be_visible()
    await page.get_by_label("Add a session").select_option("to-evaluate")
    await expect(page.get_by_role("heading", name="greetings: 1 case")).to_be_visible()
    await expect(page.get_by_role("region", name="Cases")).to_contain_text("hello evaluation")
    await page.get_by_role("button", name="Run").click()
    result = page.get_by_role("region", name="Result")
    await expect(result).to_contain_text("1 of 1 passed")
    await expect(result).to_contain_text("response_match_score 1.00")
    await result.locator("summary").click()
    await expect(result).to_contain_text("hello evaluation")
    edited = {"evalId": "to_evaluate", "conversation": [TURN]}
    case = "/dev/apps/desk/eval-sets/greetings/eval-cases/to_evaluate"
    assert (await world.server.client.put(case, json=edited)).status_code == 200
    has_run = asyncio.Event()

    async def answer_late(route: Route) -> None:
        response = await route.fetch()
        await has_run.wait()
        await route.fulfill(response=response)

    await page.route("**/eval_results", answer_late, times=1)
    await page.reload()
    await page.get_by_role("button", name="Run").click()
    await expect(page.get_by_label("Progress")).to_be_hidden()
    has_run.set()
    await expect(result).to_contain_text("0 of 1 passed")
    await expect(result.locator("mark").first).to_have_text("goodbye")
    await expect(page.get_by_role("region", name="History").get_by_role("button")).to_have_count(2)
    for width in (390, 1280):
        await page.set_viewport_size({"width": width, "height": 800})
        assert await page.evaluate("document.documentElement.scrollWidth") <= width
    assert await serious_violations(page) == []
    await result.get_by_role("link", name="Open its session").click()
    await expect(page.locator(".item").first).to_be_visible()


TURN = {
    "userContent": {"role": "user", "parts": [{"text": "hello evaluation"}]},
    "finalResponse": {"role": "model", "parts": [{"text": "goodbye"}]},
}


async def test_the_palette_goes_to_sessions_events_and_pages_and_forks(world: World) -> None:
    session = await make_session(world.server, "desk", "palette", ["hello palette"])
    page = await world.open(f"apps/desk/sessions/{session}")
    await expect(page.locator(".item").first).to_be_visible()
    search = page.get_by_role("combobox", name=re.compile("^Search"))

    async def command(text: str, chosen: str) -> None:
        await page.keyboard.press("Control+k")
        await search.fill(text)
        await expect(page.get_by_role("option", selected=True)).to_contain_text(chosen)
        await search.press("Enter")
        await expect(search).to_be_hidden()

    await command("desk: You said", "You said: hello palette")
    await expect(page).to_have_url(re.compile("event="))
    await command("fork", "Fork here")
    await expect(page).not_to_have_url(re.compile("sessions/palette"))
    await command("runs", "Runs")
    await expect(page).to_have_url(re.compile("/runs$"))
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog")).to_contain_text("Next and previous event")
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog")).to_be_hidden()


@pytest.mark.parametrize("width", [1280, 390])
async def test_axe_finds_no_serious_violation(world: World, width: int) -> None:
    session = await make_session(world.server, "desk", f"pages-{width}", ["note", "note", "boom"])
    path = f"/apps/desk/users/user/sessions/{session}"
    events = (await world.server.client.get(f"{path}/events")).json()["events"]
    runs = (await world.server.client.get("/runs", params={"session_id": session})).json()["runs"]
    pages = [
        "runs",
        "agents",
        "agents?app=desk",
        "inbox",
        "schedules?schedule=new",
        f"compare?left={runs[2]['id']}&right={runs[1]['id']}",
    ]
    pages += ["compare", "evaluate", "settings", "sign-in"]
    tabs = ("overview", "request", "reply", "state", "artifacts", "trace", "graph", "json")
    pages += [f"apps/desk/sessions/{session}?event={events[2]['id']}&tab={tab}" for tab in tabs]
    page = await world.open(pages[0], width=width)
    for address in pages:
        await page.goto(address)
        await expect(page.locator("main, .inspector").first).to_be_visible()
        assert await serious_violations(page) == [], address
        assert await page.evaluate("document.documentElement.scrollWidth") <= width, address


async def test_the_reference_lists_each_operation_once_and_searches_them(world: World) -> None:
    elsewhere: list[str] = []
    page = await world.open("settings")
    page.on("request", lambda one: elsewhere.append(one.url) if not one.url.startswith(world.server.url) else None)
    await page.get_by_role("link", name="API reference").click()
    operations = page.locator(".opblock")
    await expect(page.locator(".opblock-summary-path", has_text="/run_sse")).to_have_count(1)
    await expect(page.locator(".opblock-summary-path", has_text="/run-sse")).to_have_count(0)
    await page.get_by_placeholder("Filter by tag or path").fill("usage TOKENS")
    await expect(operations).to_have_count(1)
    await operations.locator(".opblock-summary-control").click()
    await expect(operations).to_contain_text("Only usage of this user.")
    assert [url for url in elsewhere if not url.startswith(("data:", "blob:"))] == []


async def test_what_a_model_lacks_is_shown_with_the_command(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    lacking = LlmAgent(name="lacking", model="openai/gpt-5")
    async with serving(create_app(agents=[lacking])) as server:
        [app] = (await server.client.get("/list-apps?detailed=true")).json()["apps"]
        page = await world.open(f"{server.url}/dev-ui/agents?app=lacking")
        await expect(page.get_by_role("navigation", name="Apps")).to_contain_text("Incomplete")
        await expect(page.locator(".missing")).to_contain_text(app["missing"][0])
        await expect(page.locator(".missing .copy-block")).to_contain_text("OPENAI_API_KEY=")
        await page.goto("about:blank")


async def test_the_header_of_a_run_shows_its_tokens_and_cost(world: World) -> None:
    usage = GenerateContentResponseUsageMetadata(
        prompt_token_count=1000, candidates_token_count=1000, total_token_count=2000
    )
    reply = LlmResponse(content=Content(role="model", parts=[Part(text="hi")]), usage_metadata=usage)
    priced = LlmAgent(name="priced", model=ScriptedModel([reply], model="gpt-5"))
    async with world.serve(priced) as server:
        session = await make_session(server, "priced", "s-1", ["hello"])
        [total] = (await server.client.get("/apps/priced/usage")).json()["usage"]
        page = await world.open(f"{server.url}/dev-ui/apps/priced/sessions/{session}")
        await expect(page.locator(".run-head")).to_contain_text("2,000 tokens")
        await expect(page.locator(".run-head")).to_contain_text(f"${total['cost']:.4f}")
        await page.goto("about:blank")


async def test_the_log_of_an_app_is_followed(world: World) -> None:
    def look() -> str:
        """Looks."""
        logging.getLogger("tools").warning("looking with sk-abcdefgh12345")
        return "seen"

    model = ScriptedModel([FunctionCall(name="look"), "done"] * 2)
    async with serving(create_app(agents=[LlmAgent(name="looks", model=model, tools=[look])])) as server:
        page = await world.open(f"{server.url}/dev-ui/agents?app=looks")
        await page.get_by_text("Log", exact=True).click()
        await expect(page.get_by_text("Nothing has been logged")).to_be_visible()
        await make_session(server, "looks", "s-1", ["a", "b"])
        await expect(page.locator(".log-lines li")).to_have_count(2)
        await expect(page.locator(".log-lines li").first).to_contain_text("looking with ***")
        await page.get_by_role("link", name="s-1").first.click()
        await expect(page).to_have_url(re.compile("apps/looks/sessions/s-1"))
        await page.goto("about:blank")
