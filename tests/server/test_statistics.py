"""Statistics over HTTP: one server in memory and on SQLite, and four on PostgreSQL."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from greenroom.server.settings import StatisticsSettings
from tests.server.agents import echo
from tests.server.conftest import Serve, Store
from tests.server.security.keys import Keys, bearer
from tests.server.serving import Json, Serving


@pytest.fixture(params=["memory", "sqlite", "replicas"])
def store(request: pytest.FixtureRequest) -> Store:
    return request.param


async def run(server: Serving, user: str = "ann", headers: dict[str, str] | None = None) -> None:
    path = f"/apps/echo/users/{user}/sessions/s-{user}"
    await server.client.post(path, json={}, headers=headers)
    message = {"role": "user", "parts": [{"text": "hi"}]}
    body = {"appName": "echo", "userId": user, "sessionId": f"s-{user}", "newMessage": message}
    reply = await server.client.post("/run", json=body, headers=headers)
    assert reply.status_code == 200, reply.text


async def ask(server: Serving, query: str = "", headers: dict[str, str] | None = None) -> Json:
    reply = await server.client.get(f"/statistics{query}", headers=headers)
    assert reply.status_code == 200, reply.text
    return reply.json()


async def test_runs_are_in_the_statistics_when_they_have_ended(serve: Serve) -> None:
    server = await serve(echo())
    began = time.time()
    await asyncio.gather(run(server), run(server, "bob"))
    await run(server)
    async with asyncio.timeout(5):  # another server may store an end after it has answered
        while (await ask(server))["groups"][0]["total"]["runs"] != {"succeeded": 3}:
            await asyncio.sleep(0.02)
    answer = await ask(server)
    (group,) = answer["groups"]
    assert (answer["step"], answer["currency"], answer["others"], group["key"]) == (300, "USD", None, None)
    assert group["total"]["runs"] == {"succeeded": 3}
    assert group["total"]["duration"]["count"] == 3
    assert 0 < group["total"]["firstText"]["p50"] <= group["total"]["duration"]["p99"] * 1.05
    assert sum(point["runs"]["succeeded"] for point in group["points"]) == 3
    assert all(answer["start"] <= point["time"] < answer["end"] for point in group["points"])

    by_user = await ask(server, "?group_by=user")
    assert [(group["key"], group["total"]["runs"]["succeeded"]) for group in by_user["groups"]] == [
        ("ann", 2),
        ("bob", 1),
    ]
    assert by_user["step"] == 86400
    assert (await ask(server, f"?app_name=echo&end={began - 600}"))["groups"][0]["points"] == []
    assert (await ask(server, "?group_by=app&app_name=echo"))["groups"][0]["key"] == "echo"


async def test_the_load_is_sampled(serve: Serve) -> None:
    server = await serve(echo())
    points: list[Json] = []
    async with asyncio.timeout(10):
        while not points:
            points = (await server.client.get("/statistics/load?step=60")).json()["points"]
            await asyncio.sleep(0.05)
    assert points[0]["running"] == {"average": 0.0, "maximum": 0}
    assert points[0]["replicas"]["maximum"] >= 1


async def test_what_cannot_be_answered_is_refused(serve: Serve) -> None:
    server = await serve(echo())
    for query in ("?step=60&start=0", "?step=7", "?group_by=model&user_id=ann", "?limit=0", "?start=5&end=4"):
        assert (await server.client.get(f"/statistics{query}")).status_code == 422, query
    assert (await server.client.get("/statistics/load?step=60&start=0")).status_code == 422


@pytest.mark.parametrize("store", ["sqlite"])
async def test_a_server_may_keep_no_statistics(serve: Serve, store: Store) -> None:
    server = await serve(echo(), statistics=StatisticsSettings(enabled=False))
    await run(server)
    reply = await server.client.get("/statistics")
    assert (reply.status_code, reply.json()["code"]) == (501, "NotOffered")
    assert "statistics_enabled" in reply.json()["detail"]


async def test_callers_see_what_they_act_for(serve: Serve, tmp_path: Path) -> None:
    keys = Keys(tmp_path / "keys.db")
    server = await serve(echo(), auth=keys.auth)
    admin = bearer(keys("root", "admin"))
    await run(server, "ann", admin)
    await run(server, "bob", admin)
    await run(server, "bob", admin)

    async def seen(headers: dict[str, str], query: str = "") -> Any:
        reply = await server.client.get(f"/statistics{query}", headers=headers)
        if reply.status_code != 200:
            return reply.status_code
        return {group["key"]: group["total"]["runs"].get("succeeded") for group in reply.json()["groups"]}

    bob = bearer(keys("bob", "read"))
    async with asyncio.timeout(5):
        while await seen(admin) != {None: 3}:
            await asyncio.sleep(0.02)
    assert await seen(bob) == {None: 2}
    assert await seen(bob, "?group_by=user") == {"bob": 2}
    assert await seen(bob, "?user_id=ann") == 403
    assert await seen(bob, "?group_by=model") == 422
    assert await seen(bearer(keys("desk", "read", "app:echo"))) == {None: 3}
    assert await seen(bearer(keys("desk", "read", "app:echo")), "?group_by=user") == {"bob": 2, "ann": 1}
    assert await seen(bearer(keys("desk", "read", "app:shop"))) == {None: None}
    assert await seen(bearer(keys("root", "admin", apps=["shop"]))) == {None: None}
    assert await seen(bearer(keys("root", "admin", apps=["shop"])), "?app_name=echo") == 403
    assert await seen(bearer(keys("bob", "run"))) == 403

    limited = bearer(keys("root", "admin", apps=["shop"]))
    for headers, query, status in (
        (admin, "", 200),
        (bob, "", 403),
        (limited, "", 200),
        (limited, "?app_name=echo", 403),
    ):
        assert (await server.client.get(f"/statistics/load{query}", headers=headers)).status_code == status
