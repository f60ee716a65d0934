"""Apps in folders of folders, over HTTP: `agents/team/desk/agent.py` is the app `team.desk`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from greenroom.apps.load_directory import DirectoryAppLoader
from greenroom.artifacts.from_uri import artifact_service_from_uri
from greenroom.memory.from_uri import memory_service_from_uri
from greenroom.sessions.sqlite import SqliteSessionService
from tests.server.conftest import Serve
from tests.server.live_client import talking, texts
from tests.server.security.conftest import keys as keys
from tests.server.security.keys import Keys, bearer
from tests.server.serving import Serving

AGENT = """
from greenroom import LlmAgent
from greenroom.testing import ScriptedModel
root_agent = LlmAgent(name="root", description={name!r}, model=ScriptedModel(lambda request: {name!r}))
"""
LIVE_AGENT = """
from greenroom import LlmAgent
from greenroom.testing import ScriptedLiveModel
root_agent = LlmAgent(name="root", model=ScriptedLiveModel(["Hello there."]))
"""


@pytest.fixture
def services(tmp_path: Path) -> dict[str, Any]:
    """The apps `crew.bots`, `crew.deep.er.desk` and `solo`, and what keeps their things on disk."""
    for name in ("crew/bots", "crew/deep/er/desk", "solo"):
        file = tmp_path / "agents" / name / "agent.py"
        file.parent.mkdir(parents=True)
        file.write_text(AGENT.format(name=name.replace("/", ".")))
    (tmp_path / "agents/README.md").write_text("of the folder")
    (tmp_path / "agents/crew/bots/README.md").write_text("of the bots")
    return {
        "app_loader": DirectoryAppLoader(tmp_path / "agents"),
        "session_service": SqliteSessionService(str(tmp_path / "sessions.db")),
        "artifact_service": artifact_service_from_uri((tmp_path / "artifacts").as_uri()),
        "memory_service": memory_service_from_uri("memory://"),
    }


@pytest.fixture
async def server(serve: Serve, services: dict[str, Any]) -> Serving:
    return await serve(services=services)


@pytest.mark.parametrize("app", ["crew.bots", "crew.deep.er.desk"])
async def test_a_nested_app_is_listed_run_and_kept(server: Serving, app: str) -> None:
    get = server.client.get
    post = server.client.post
    assert (await get("/list-apps")).json() == ["crew.bots", "crew.deep.er.desk", "solo"]
    detailed = {one["name"]: one for one in (await get("/list-apps?detailed=true")).json()["apps"]}
    assert (detailed[app]["description"], detailed[app].get("error")) == (app, None)
    info = (await get(f"/apps/{app}/app-info")).json()
    assert (info["name"], info["description"]) == (app, app)

    session = await server.new_session(app, state={"app:seen": 1})
    (event,) = (await server.run(app)).json()
    assert event["content"]["parts"] == [{"text": app}]
    (frame,) = await server.sse(app)
    assert frame.text == app
    stored = (await get(session)).json()
    assert (stored["appName"], len(stored["events"]), stored["state"]) == (app, 4, {"app:seen": 1})
    (listed,) = (await get(f"/apps/{app}/users/ann/sessions")).json()
    assert (listed["appName"], listed["id"]) == (app, "s-1")

    part = {"filename": "dir/a.txt", "artifact": {"text": "kept"}}
    assert (await post(f"{session}/artifacts", json=part)).status_code == 200
    assert (await get(f"{session}/artifacts")).json() == ["dir/a.txt"]
    assert (await get(f"{session}/artifacts/dir/a.txt")).json() == {"text": "kept"}
    assert (await server.client.patch(f"/apps/{app}/users/ann/memory", json={"sessionId": "s-1"})).status_code == 200

    for path in (f"/dev/apps/{app}/build_graph", f"/dev/build_graph/{app}"):
        tree = (await get(path)).json()
        assert (tree["name"], tree.get("readme")) == (app, "of the bots" if app == "crew.bots" else None)
    for path in (f"/dev/apps/{app}/graph", f"/dev{session}/events/{event['id']}/graph"):
        assert "root" in (await get(path)).json()["dotSrc"]
    assert (await get(f"/dev/apps/{app}/debug/trace/{event['id']}")).status_code == 200
    assert f'app="{app}"' in (await get("/metrics")).text


async def test_apps_of_similar_names_share_nothing(server: Serving, services: dict[str, Any]) -> None:
    """Also where a name is the beginning of another."""
    await server.new_session("crew.bots", state={"app:a": 1, "user:b": 1})
    part = {"filename": "user:x", "artifact": {"text": "of crew.bots"}}
    assert (await server.client.post("/apps/crew.bots/users/ann/sessions/s-1/artifacts", json=part)).status_code == 200
    for other in ("crew.deep.er.desk", "crew", "bots", "crew%2Fbots", "crew.bots.x", "crew.bot"):
        at = f"/apps/{other}/users/ann/sessions"
        assert (await server.client.get(at)).json() == [], other
        assert (await server.client.get(f"{at}/s-1")).status_code == 404, other
        assert (await server.client.get(f"{at}/s-1/artifacts")).json() == [], other
    await server.new_session("crew.deep.er.desk")
    session = (await server.client.get("/apps/crew.deep.er.desk/users/ann/sessions/s-1")).json()
    assert session["state"] == {}


NOT_APPS = [
    "crew", "crew..bots", ".crew.bots", "crew.bots.", "crew/bots", "crew%2Fbots", "..", ".", "...", "..%2Fagents",
    "crew.bots%00", "crew.bots%2F..", "crew.bots%2F..%2Fbots", "Crew.bots", "__crew.bots", "crew.bots.agent",
    "crew.deep.er", "%2e%2e", "crew.%2e", "crew%5Cbots", "..agents", "crew%EF%BC%8Ebots",
]  # fmt: skip


@pytest.mark.parametrize("name", NOT_APPS)
async def test_other_names_are_not_found(server: Serving, name: str) -> None:
    """Over bare connections: a client takes dots out of the address itself."""
    for path in (f"/apps/{name}/app-info", f"/dev/apps/{name}/build_graph", f"/dev/apps/{name}/graph"):
        connection = await server.connect()
        await connection.request("GET", path, {"connection": "close"})
        status, body = await connection.answer()
        assert status in (404, 422), (path, body)
        assert b"of the folder" not in body
    reply = await server.run(name.replace("%2F", "/").replace("%00", ""))
    if name != "crew.bots%00":
        assert (reply.status_code, reply.json()["code"]) == (404, "AppNotFound")


async def test_a_key_for_one_app_reaches_no_other(serve: Serve, keys: Keys, services: dict[str, Any]) -> None:
    server = await serve(services=services, auth=keys.auth)
    for apps, reached in (
        ({"crew"}, []),
        ({"bots"}, []),
        ({"crew."}, []),
        ({"crew.*"}, []),
        ({"crew.bots"}, ["crew.bots"]),
        ({"crew.deep", "solo"}, ["solo"]),
    ):
        server.client.headers.update(bearer(keys("ann", "run", "read", "debug", apps=apps)))
        assert (await server.client.get("/list-apps")).json() == reached
        for app in ("crew.bots", "crew.deep.er.desk", "solo"):
            expected = 200 if app in reached else 403
            at = f"/apps/{app}/users/ann/sessions"
            statuses = [
                (await server.client.get(f"/apps/{app}/app-info")).status_code,
                (await server.client.post(at, json={"sessionId": "s-1"})).status_code,
                (await server.run(app)).status_code,
                (await server.client.get(at)).status_code,
                (await server.client.get(f"/dev/apps/{app}/build_graph")).status_code,
                (await server.client.delete(f"{at}/s-1")).status_code,
            ]
            assert set(statuses) == {expected}, (apps, app, statuses)


async def test_who_acts_for_all_of_an_app_does_not_for_those_in_its_folder(
    serve: Serve, keys: Keys, services: dict[str, Any]
) -> None:
    server = await serve(services=services, auth=keys.auth)
    server.client.headers.update(bearer(keys("bob", "run", "read", "app:crew", "app:bots")))
    assert (await server.client.get("/apps/crew.bots/users/ann/sessions")).status_code == 403
    server.client.headers.update(bearer(keys("bob", "run", "read", "app:crew.bots")))
    assert (await server.client.get("/apps/crew.bots/users/ann/sessions")).status_code == 200
    assert (await server.client.get("/apps/crew.deep.er.desk/users/ann/sessions")).status_code == 403


async def test_a_nested_app_talks_live(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "agents/team/desk/agent.py"
    file.parent.mkdir(parents=True)
    file.write_text(LIVE_AGENT)
    server = await serve(services={"app_loader": DirectoryAppLoader(tmp_path / "agents")})
    await server.new_session("team.desk")
    async with talking(server.port, app_name="team.desk") as client:
        await client.say("hi")
        assert texts(await client.turn()) == ["Hello there."]
    async with talking(server.port, app_name="team") as client:
        code, why = await client.closed()
    assert (code, "App not found: 'team'" in why) == (1011, True)
