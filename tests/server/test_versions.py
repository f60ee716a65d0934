"""Published versions over HTTP: which one serves a session, and what they are compared by."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest

from greenroom.apps.load_directory import DirectoryAppLoader
from greenroom.audit.signing import new_key_pair
from greenroom.records.session import SessionKey
from greenroom.runs.in_process import InProcessRunEngine
from greenroom.runs.traffic import choose
from greenroom.server.settings import AuditSettings
from tests.server.conftest import Serve, Store
from tests.server.security.conftest import keys
from tests.server.security.keys import Keys, bearer
from tests.server.serving import Json, Serving, run_body

__all__ = ["keys"]

AGENT = '''
from greenroom import FunctionTool, LlmAgent
from tests.durability.scripts import call, model_of

def {tool}(to: str) -> dict:
    """Pays."""
    return {{"by": "{says}"}}

def turn(message):
    if message == "fail":
        raise ValueError("no")
    return call("pay", "c-1", to="Roof") if message == "pay" else "{says}"

root_agent = LlmAgent(
    name="desk",
    instruction="Say {says}.",
    model=model_of(turn, "paid by {says}"),
    tools=[FunctionTool({tool}, require_confirmation=True)],
)
'''
VERSIONS = "/apps/desk/versions"


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest) -> Store:
    return request.param


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "agents"


def write(folder: Path, says: str, tool: str = "pay") -> None:
    (folder / "desk").mkdir(parents=True, exist_ok=True)
    (folder / "desk" / "agent.py").write_text(AGENT.format(says=says, tool=tool))


@pytest.fixture
async def server(serve: Serve, folder: Path) -> Serving:
    write(folder, "one")
    return await serve(services={"app_loader": DirectoryAppLoader(folder, hot_reload=True)}, auto_create_session=True)


async def publish(server: Serving, message: str = "") -> Json:
    reply = await server.client.post(VERSIONS, json={"message": message})
    assert reply.status_code == 201, reply.text
    return reply.json()


async def set_traffic(server: Serving, **shares: int) -> httpx.Response:
    return await server.client.put("/apps/desk/traffic", json={"shares": shares})


async def says(server: Serving, session: str, text: str = "hi") -> str:
    reply = await server.run("desk", text, sessionId=session)
    assert reply.status_code == 200, reply.text
    return reply.json()[-1]["content"]["parts"][0]["text"]


async def change(server: Serving, folder: Path, word: str, tool: str = "pay") -> None:
    """Changes the code, and waits until the server has loaded it."""
    before = (await server.client.get(VERSIONS)).json()["sourceVersion"]
    write(folder, word, tool)
    async with asyncio.timeout(20):
        while (await server.client.get(VERSIONS)).json()["sourceVersion"] in (before, None):
            await asyncio.sleep(0.05)


async def two_versions(server: Serving, folder: Path) -> tuple[Json, Json]:
    first = await publish(server, "the first")
    await change(server, folder, "two")
    return first, await publish(server)


async def run_of(server: Serving, session: str) -> Json:
    return (await server.client.get("/runs", params={"session_id": session, "limit": 1})).json()["runs"][0]


async def test_a_version_is_published_once_and_stays_as_it_is(server: Serving, folder: Path) -> None:
    first = await publish(server, "the first")
    assert (first["name"], first["message"], "agents" in first, "publishedBy" in first) == (
        "v1",
        "the first",
        False,
        False,
    )
    assert await publish(server, "again") == first
    await change(server, folder, "two")
    second = await publish(server)
    listed = (await server.client.get(VERSIONS)).json()
    assert [one["name"] for one in listed["versions"]] == ["v2", "v1"]
    assert listed["shares"] == {}
    whole = (await server.client.get(f"{VERSIONS}/v1")).json()
    assert [agent["instruction"] for agent in whole["agents"]] == ["Say one."]
    assert [file["path"] for file in whole["files"]] == ["desk/agent.py"]
    assert second["version"] != first["version"]
    assert (await server.client.delete(f"{VERSIONS}/v1")).status_code == 200
    assert (await server.client.get(f"{VERSIONS}/v1")).status_code == 404


async def test_publishing_alone_changes_nothing_that_serves(server: Serving, folder: Path) -> None:
    first, _ = await two_versions(server, folder)
    assert await says(server, "s-1") == "two"
    source = (await server.client.get(VERSIONS)).json()["sourceVersion"]
    assert (await run_of(server, "s-1"))["appVersion"] == source != first["version"]


async def test_sessions_are_shared_out_and_stay_on_their_version(server: Serving, folder: Path) -> None:
    first, second = await two_versions(server, folder)
    await change(server, folder, "three")
    assert (await set_traffic(server, v1=50, v2=30, source=20)).status_code == 200
    sessions = [f"s-{number}" for number in range(24)]
    had = {session: await says(server, session) for session in sessions}
    words = {"v1": "one", "v2": "two", "source": "three"}
    shares = {"v1": 50, "v2": 30, "source": 20}
    assert had == {session: words[choose(SessionKey("desk", "ann", session), shares)] for session in sessions}
    assert set(had.values()) == set(words.values())

    moved = [
        session for session in sessions if choose(SessionKey("desk", "ann", session), {"v1": 10, "v2": 90}) == "v2"
    ]
    assert {had[session] for session in moved} == set(words.values())
    assert (await set_traffic(server, v1=10, v2=90, source=0)).status_code == 200
    assert {session: await says(server, session) for session in sessions} == had
    new = [f"n-{number}" for number in range(8)]
    assert {await says(server, session) for session in new} <= {"one", "two"}

    # Withdrawn versions serve nobody; the others keep their sessions.
    assert (await set_traffic(server, v1=0, v2=100)).status_code == 200
    now = {session: await says(server, session) for session in sessions}
    assert now == {session: "two" if word == "three" else word for session, word in had.items()}
    by_name = (await server.client.get("/runs", params={"app_name": "desk", "app_version": "v2"})).json()["runs"]
    by_hash = (await server.client.get("/runs", params={"app_version": second["version"]})).json()["runs"]
    assert by_name == by_hash
    assert {run["appVersion"] for run in by_name} == {second["version"]}
    assert {run["sessionId"] for run in by_name} >= {session for session, word in now.items() if word == "two"}
    assert (await server.client.get("/runs", params={"app_version": "unknown"})).json()["runs"] == []

    # A roll back.
    assert (await set_traffic(server, v1=100)).status_code == 200
    assert {await says(server, session) for session in sessions} == {"one"}
    assert (await run_of(server, sessions[0]))["appVersion"] == first["version"]
    assert (await set_traffic(server)).status_code == 200
    assert {await says(server, session) for session in sessions} == {"three"}


async def test_a_waiting_run_continues_with_its_version(server: Serving, folder: Path) -> None:
    await publish(server)
    await change(server, folder, "two", tool="settle")
    await publish(server)
    assert (await set_traffic(server, v1=100)).status_code == 200
    asked = (await server.run("desk", "pay")).json()
    [request] = [one for event in asked for one in event.get("longRunningToolIds", ())]
    assert (await set_traffic(server, v2=100)).status_code == 200
    answer = {"id": request, "name": "adk_request_confirmation", "response": {"confirmed": True}}
    body = run_body("desk", None, newMessage={"parts": [{"functionResponse": answer}]})
    ended = (await server.client.post("/run", json=body)).json()
    assert ended[-1]["content"]["parts"][0]["text"] == "paid by one"
    assert await says(server, "s-1") == "two"


async def test_versions_are_compared_with_each_other_and_the_source(server: Serving, folder: Path) -> None:
    await publish(server)
    await change(server, folder, "two", tool="settle")
    await publish(server)
    compared = (await server.client.get(f"{VERSIONS}/v1/compare/v2")).json()
    [agent] = compared["agents"]
    assert [(field["field"], field["before"], field["after"]) for field in agent["fields"]] == [
        ("instruction", "Say one.", "Say two.")
    ]
    assert [(tool["name"], tool["change"]) for tool in agent["tools"]] == [("pay", "removed"), ("settle", "added")]
    [file] = compared["files"]
    assert "+def settle(to: str) -> dict:" in file["diff"]
    same = (await server.client.get(f"{VERSIONS}/v2/compare/source")).json()
    assert (same["agents"], same["files"]) == ([], [])
    assert (await server.client.get(f"{VERSIONS}/v2/compare/v9")).status_code == 404


async def test_faulty_shares_are_refused(server: Serving) -> None:
    await publish(server)
    for shares, status in (({"v1": 99}, 422), ({"v2": 100}, 404), ({"v1": 150, "source": -50}, 422), ({"x": 100}, 404)):
        refused = await server.client.put("/apps/desk/traffic", json={"shares": shares})
        assert refused.status_code == status, refused.text
    assert (await server.client.put("/apps/desk/traffic", json={"v1": 100})).status_code == 422
    assert (await set_traffic(server, v1=100)).status_code == 200
    refused = await server.client.delete(f"{VERSIONS}/v1")
    assert (refused.status_code, refused.json()["code"]) == (409, "VersionInUse")


async def test_code_that_cannot_be_loaded_is_not_published_and_versions_serve_on(server: Serving, folder: Path) -> None:
    await publish(server)
    assert (await set_traffic(server, v1=100)).status_code == 200
    (folder / "desk" / "agent.py").write_text("1 / 0")
    async with asyncio.timeout(20):
        while "error" not in (await server.client.get("/list-apps?detailed=true")).json()["apps"][0]:
            await asyncio.sleep(0.05)
    refused = await server.client.post(VERSIONS)
    assert (refused.status_code, refused.json()["code"]) == (500, "AppLoadError")
    assert len((await server.client.get(VERSIONS)).json()["versions"]) == 1
    assert await says(server, "s-1") == "one"
    shutil.rmtree(folder / "desk")
    async with asyncio.timeout(20):
        while (await server.run("desk", sessionId="s-1")).status_code != 404:
            await asyncio.sleep(0.05)


async def test_the_scores_of_versions_stand_beside_each_other(server: Serving, folder: Path) -> None:
    empty = (await server.client.get(f"{VERSIONS}/scores")).json()
    assert empty == {"baseline": None, "versions": [], "runsFrom": None, "isLimited": False}
    await two_versions(server, folder)
    assert (await set_traffic(server, v1=100)).status_code == 200
    for number in range(8):
        await _rated(server, f"a-{number}", helpful=True)
    assert (await set_traffic(server, v2=100)).status_code == 200
    for number in range(8):
        await _rated(server, f"b-{number}", helpful=False)
        await server.run("desk", "fail", sessionId=f"b-{number}")
    scores = (await server.client.get(f"{VERSIONS}/scores", params={"baseline": "v1"})).json()
    assert (scores["baseline"], scores["isLimited"]) == ("v1", False)
    second, first = scores["versions"]
    assert (first["name"], first["runs"], first["sessions"], first["failed"]) == ("v1", 8, 8, 0)
    assert (first["failures"], first["feedback"]) == (None, {"helpful": {"count": 8, "mean": 1.0, "comparison": None}})
    assert (second["name"], second["runs"], second["sessions"], second["ended"], second["failed"]) == (
        "v2",
        16,
        8,
        16,
        8,
    )
    assert second["failures"]["difference"] == 0.5
    assert second["failures"]["isSignificant"]
    assert second["failures"]["text"] == "+50.0 points (+50.0 points to +50.0 points): more than chance"
    assert second["feedback"]["helpful"]["mean"] == 0.0
    assert second["feedback"]["helpful"]["comparison"]["isSignificant"]
    assert second["medianSeconds"] is not None
    by_share = (await server.client.get(f"{VERSIONS}/scores")).json()
    assert by_share["baseline"] == "v2"


async def _rated(server: Serving, session: str, *, helpful: bool) -> None:
    events = (await server.run("desk", sessionId=session)).json()
    at = f"/apps/desk/users/ann/sessions/{session}/events/{events[-1]['id']}/feedback"
    assert (await server.client.post(at, json={"name": "helpful", "score": helpful})).status_code == 200


async def test_a_turn_of_an_app_without_traffic_asks_nothing(
    server: Serving, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await publish(server)
    asked: list[str] = []
    assert isinstance(server.app.engine, InProcessRunEngine)
    run_store = server.app.engine.run_store

    async def list_runs(*args: Any, **options: Any) -> Any:
        asked.append("runs")
        return await original(*args, **options)

    original = run_store.list_runs
    monkeypatch.setattr(run_store, "list_runs", list_runs)
    for name in ("list", "find", "get", "read_archive", "list_traffic"):
        monkeypatch.setattr(run_store.versions, name, None)
    assert await says(server, "s-1") == "one"
    assert await says(server, "s-1") == "one"
    assert asked == []


async def test_who_published_is_known_and_in_the_audit_trail(serve: Serve, keys: Keys, folder: Path) -> None:
    write(folder, "one")
    server = await serve(
        services={"app_loader": DirectoryAppLoader(folder)},
        auth=keys.auth,
        audit=AuditSettings(key=new_key_pair()[0].decode()),
    )
    carl = bearer(keys("carl", "admin"))
    published = (await server.client.post(VERSIONS, headers=carl)).json()
    assert published["publishedBy"] == "carl"
    await server.client.put("/apps/desk/traffic", json={"shares": {"v1": 100}}, headers=carl)
    await server.client.put("/apps/desk/traffic", json={"shares": {}}, headers=carl)
    await server.client.delete(f"{VERSIONS}/v1", headers=carl)
    bob = bearer(keys("bob", "run", "read"))
    assert (await server.client.post(VERSIONS, headers=bob)).status_code == 403
    listed = (await server.client.get("/audit", headers=bearer(keys("eve", "audit", "admin")))).json()["entries"]
    entries = [(one["action"], one["subject"], one.get("target")) for one in listed if one["action"].startswith("app.")]
    assert entries[::-1] == [
        ("app.version.published", "carl", "v1"),
        ("app.traffic.changed", "carl", '{"v1":100}'),
        ("app.traffic.changed", "carl", "{}"),
        ("app.version.deleted", "carl", "v1"),
    ]
