"""The waiting runs of an app whose folder changes while a server runs, and the refusal of their answers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from greenroom.apps.load_directory import DirectoryAppLoader
from greenroom.client.async_client import AsyncClient
from greenroom.records.run import RunStatus
from tests.server.conftest import Serve
from tests.server.serving import Json, run_body

_AGENT = '''
from greenroom import App, FunctionTool, LlmAgent
from tests.durability.scripts import call, model_of

def {tool}(amount: str) -> dict:
    """Pays."""
    return {{"paid": amount}}

model = model_of(call("pay", "c-1", amount="7"), "done")
agent = LlmAgent(name="clerk", model=model, tools=[FunctionTool({tool}, require_confirmation=True)])
app = App(name="desk", root_agent=agent, on_version_change="refuse")
'''


def write(folder: Path, tool: str) -> Path:
    (folder / "desk").mkdir(exist_ok=True)
    (folder / "desk" / "agent.py").write_text(_AGENT.format(tool=tool))
    return folder


async def reload(loader: DirectoryAppLoader) -> None:
    async with asyncio.timeout(5):
        while not loader.refresh():
            await asyncio.sleep(0.01)


def approval(events: Json) -> Json:
    [call_id] = [call_id for event in events["events"] for call_id in event.get("longRunningToolIds") or ()]
    answer = {"id": call_id, "name": "adk_request_confirmation", "response": {"confirmed": True}}
    return {"role": "user", "parts": [{"functionResponse": answer}]}


@pytest.fixture
def store() -> str:
    return "sqlite"


async def test_waiting_runs_are_compared_with_the_present_code(serve: Serve, tmp_path: Path) -> None:
    loader = DirectoryAppLoader(write(tmp_path, "pay"))
    server = await serve(services={"app_loader": loader})
    loader.refresh()
    await server.new_session("desk")
    run_id = (await server.run("desk")).headers["x-run-id"]
    async with AsyncClient(server.url) as client:
        [waiting] = (await client.list_waiting_runs("desk")).waiting_runs
        assert (waiting.run.id, waiting.run.status) == (run_id, RunStatus.WAITING)
        assert (waiting.waits_for, waiting.difference) == (["approval of pay"], None)
        assert waiting.run.app_version == waiting.version

        write(tmp_path, "transfer")
        await reload(loader)
        [waiting] = (await client.list_waiting_runs("desk")).waiting_runs
        assert waiting.run.app_version != waiting.version
        assert waiting.on_version_change == "refuse"
        assert waiting.difference is not None
        assert waiting.difference.seq == 2
        assert waiting.difference.text == "agent 'clerk' calls pay(amount); now it has no tool of this name"


async def test_a_refused_answer_names_the_difference_and_can_be_sent_again(serve: Serve, tmp_path: Path) -> None:
    loader = DirectoryAppLoader(write(tmp_path, "pay"))
    server = await serve(services={"app_loader": loader})
    loader.refresh()
    await server.new_session("desk")
    run_id = (await server.run("desk")).headers["x-run-id"]
    answer = approval((await server.client.get(f"/runs/{run_id}/events")).json())

    write(tmp_path, "transfer")
    await reload(loader)
    for path in ("/run", "/run_sse"):
        refused = await server.client.post(path, json=run_body("desk", None, newMessage=answer))
        assert refused.status_code == 409, refused.text
        assert refused.json()["type"] == "urn:greenroom:error:app-version-changed"
        assert "Event 2: agent 'clerk' calls pay(amount); now it has no tool" in refused.json()["detail"]
    assert (await server.client.get(f"/runs/{run_id}")).json()["status"] == "waiting"

    write(tmp_path, "pay")
    await reload(loader)
    accepted = await server.client.post("/run", json=run_body("desk", None, newMessage=answer))
    assert accepted.status_code == 200, accepted.text
    assert (await server.client.get(f"/runs/{run_id}")).json()["status"] == "succeeded"
    assert (await server.client.get("/apps/desk/waiting-runs")).json() == {"waitingRuns": [], "nextPageToken": None}


async def test_pages_of_waiting_runs_follow_each_other(serve: Serve, tmp_path: Path) -> None:
    server = await serve(services={"app_loader": DirectoryAppLoader(write(tmp_path, "pay"))})
    for number in range(3):
        await server.new_session("desk", session=f"s-{number}")
        await server.run("desk", sessionId=f"s-{number}")
    async with AsyncClient(server.url) as client:
        first = await client.list_waiting_runs("desk", limit=2)
        second = await client.list_waiting_runs("desk", limit=2, page_token=first.next_page_token)
    found = [waiting.run.session_id for waiting in (*first.waiting_runs, *second.waiting_runs)]
    assert found == ["s-2", "s-1", "s-0"]
    assert second.next_page_token is None
