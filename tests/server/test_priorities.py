"""Priorities and shares of runs, where a server executes a limited number at a time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from greenroom.errors import ConfigurationError
from greenroom.records.run import RunStatus
from greenroom.server.settings import LimitSettings
from tests.server.agents import scripted
from tests.server.conftest import Serve
from tests.server.security.conftest import keys
from tests.server.security.keys import Keys, bearer
from tests.server.serving import Serving

__all__ = ["keys"]


async def start(server: Serving, user: str, session: str, **body: Any) -> Any:
    path = await server.new_session("desk", user=user, session=session)
    reply = await server.client.post(f"{path}/runs", json={"newMessage": {"parts": [{"text": "hi"}]}, **body})
    assert reply.status_code == 202, reply.text
    return reply.json()


async def test_runs_start_by_priority_and_weight(serve: Serve) -> None:
    entered = asyncio.Event()
    release = asyncio.Event()

    async def answer(_: object) -> str:
        entered.set()
        await release.wait()
        return "Fine."

    limits = LimitSettings(max_running_runs=1, run_weights=("user:ann=2", "app:other=3.5"))
    server = await serve(scripted("desk", answer), limits=limits)
    await start(server, "eve", "first")
    async with asyncio.timeout(5):
        await entered.wait()
    runs = {name: await start(server, "ann", name) for name in ("a1", "a2", "a3", "a4")}
    runs |= {name: await start(server, "bob", name) for name in ("b1", "b2")}
    runs["last"] = await start(server, "bob", "last", priority=-1)
    runs["u"] = await start(server, "ann", "u", priority=5)
    assert {run["status"] for run in runs.values()} == {"queued"}
    assert (runs["u"]["priority"], runs["last"]["priority"]) == (5, -1)

    release.set()
    started_at: dict[str, float] = {}
    for name, run in runs.items():
        await server.wait_for_status(run["id"], "succeeded")
        started_at[name] = (await server.app.engine.get(run["id"])).started_at or 0.0
    assert sorted(started_at, key=lambda name: started_at[name]) == ["u", "a1", "b1", "a2", "b2", "a3", "a4", "last"]


async def test_priority_above_zero_needs_the_scope_manage(serve: Serve, keys: Keys) -> None:
    server = await serve(scripted("desk", lambda _: "Fine."), auth=keys.auth, auto_create_session=True)
    body = {"appName": "desk", "userId": "ann", "sessionId": "s-1", "newMessage": {"parts": [{"text": "hi"}]}}
    own = bearer(keys("ann", "run", "read"))
    operator = bearer(keys("ann", "run", "read", "manage"))
    for headers, priority, status in (
        (own, 1, 403),
        (own, 0, 200),
        (own, -3, 200),
        (operator, 10, 200),
        (own, 11, 422),
    ):
        reply = await server.client.post("/run", json={**body, "priority": priority}, headers=headers)
        assert reply.status_code == status, reply.text


async def test_app_has_a_priority(serve: Serve) -> None:
    server = await serve(scripted("desk", lambda _: "Fine."))
    (await server.app._server.apps.load_async("desk")).priority = -4
    await server.new_session("desk")
    run_id = (await server.run("desk")).headers["x-run-id"]
    run = await server.app.engine.get(run_id)
    assert (run.status, run.priority) == (RunStatus.SUCCEEDED, -4)


@pytest.mark.parametrize("weight", ["desk=2", "app:desk", "user:ann=0", "user:ann=-1", "user:ann=0.0", "app:=1"])
def test_weights_are_checked(weight: str) -> None:
    with pytest.raises(ConfigurationError, match="app:NAME=WEIGHT"):
        LimitSettings(run_weights=(weight,))


async def test_delayed_run_keeps_its_priority(serve: Serve) -> None:
    server = await serve(scripted("desk", lambda _: "Fine."), limits=LimitSettings(max_running_runs=1))
    run = await start(server, "ann", "s-1", priority=-2, delaySeconds=0.2)
    await server.wait_for_status(run["id"], "succeeded")
    assert (await server.app.engine.get(run["id"])).priority == -2
