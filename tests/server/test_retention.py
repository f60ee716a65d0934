"""Retention: sessions that have not been updated for longer than their app keeps them."""

from __future__ import annotations

import logging
import math
import time
from typing import Any

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.app import App
from greenroom.errors import AgentConfigError
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.functions.function_tool import FunctionTool
from tests.agents.talk import call
from tests.server.agents import echo
from tests.server.conftest import Serve, Store
from tests.server.replicas import Replicas
from tests.server.serving import Serving, until

DAY = 86_400.0


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request: pytest.FixtureRequest) -> Store:
    return request.param


def _pay(amount: int) -> str:
    """Pays."""
    return f"Paid {amount}"


def _shop(**settings: Any) -> App:
    """Its runs wait for an approval."""
    model = ScriptedModel([call("_pay", None, amount=5)], loop=True)
    agent = LlmAgent(name="shop", model=model, tools=[FunctionTool(_pay, require_confirmation=True)])
    return App(name="shop", root_agent=agent, **settings)


async def _new(server: Serving, app: str, session: str, *, days_old: float = 0.0) -> str:
    event = {"author": "user", "timestamp": time.time() - days_old * DAY, "content": {"parts": [{"text": "Hi"}]}}
    path = f"/apps/{app}/users/ann/sessions"
    created = await server.client.post(path, json={"sessionId": session, "events": [event]})
    assert created.status_code == 200, created.text
    return f"{path}/{session}"


async def _expire(server: Serving) -> list[str]:
    return [key.session_id async for key in server.app.engine.delete_expired_sessions()]


async def _left(server: Serving, app: str) -> list[str]:
    return sorted(session["id"] for session in (await server.client.get(f"/apps/{app}/users/ann/sessions")).json())


async def test_the_server_has_a_default(serve: Serve) -> None:
    apps = [
        App(name="short", root_agent=echo("short"), session_ttl_seconds=DAY),
        App(name="usual", root_agent=echo("usual")),
        App(name="for_ever", root_agent=echo("for_ever"), session_ttl_seconds=math.inf),
    ]
    server = await serve(*apps, session_ttl_seconds=3 * DAY)
    for app in apps:
        for days in (0, 2, 4):
            await _new(server, app.name, f"{app.name}-{days}", days_old=days)
    assert sorted(await _expire(server)) == ["short-2", "short-4", "usual-4"]
    assert await _left(server, "for_ever") == ["for_ever-0", "for_ever-2", "for_ever-4"]
    assert await _left(server, "usual") == ["usual-0", "usual-2"]
    assert await _expire(server) == []


async def test_more_sessions_expire_than_a_page_has(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    server = await serve(App(name="echo", root_agent=echo(), session_ttl_seconds=DAY))
    for number in range(130):
        await _new(server, "echo", f"s-{number}", days_old=2 + number / 1000)
    await _new(server, "echo", "new")
    preview = (await server.client.get("/apps/echo/retention")).json()
    assert (preview["sessionTtlSeconds"], preview["expired"], preview["kept"]) == (DAY, 130, 0)
    assert len(preview["sessions"]) == 100
    with caplog.at_level(logging.INFO, "greenroom.runs"):
        assert len(await _expire(server)) == 130
    assert "app 'echo': deleted 130 expired sessions, kept 0 with unfinished runs" in caplog.text
    assert await _left(server, "echo") == ["new"]
    assert (await server.client.get("/apps/echo/retention")).json()["expired"] == 0


@pytest.mark.parametrize("expires_waiting_runs", [False, True])
async def test_sessions_with_waiting_runs_stay_unless_told(serve: Serve, *, expires_waiting_runs: bool) -> None:
    ttl_seconds = 0.2
    server = await serve(_shop(session_ttl_seconds=ttl_seconds, expires_waiting_runs=expires_waiting_runs))
    path = await _new(server, "shop", "waiting")
    started = await server.client.post(f"{path}/runs", json={"newMessage": {"parts": [{"text": "Pay"}]}})
    run = started.json()["id"]
    await server.wait_for_status(run, "waiting")
    delayed = await _new(server, "shop", "delayed")
    late = {"newMessage": {"parts": [{"text": "Pay"}]}, "delaySeconds": 3600}
    assert (await server.client.post(f"{delayed}/runs", json=late)).status_code == 202
    await _new(server, "shop", "old", days_old=1)
    updated_at = time.time()
    await until(lambda: time.time() > updated_at + ttl_seconds)

    preview = (await server.client.get("/apps/shop/retention")).json()
    kept = {session["sessionId"] for session in preview["sessions"] if session["isKept"]}
    assert kept == ({"delayed"} if expires_waiting_runs else {"delayed", "waiting"})
    assert sorted(await _expire(server)) == (["old", "waiting"] if expires_waiting_runs else ["old"])
    found = (await server.client.get(f"/runs/{run}")).status_code
    assert found == (404 if expires_waiting_runs else 200)


@pytest.mark.parametrize("store", ["replicas"], indirect=True)
async def test_each_server_deletes_the_sessions_that_it_owns(serve: Serve) -> None:
    server = await serve(App(name="echo", root_agent=echo(), session_ttl_seconds=DAY))
    assert isinstance(server, Replicas)
    names = {f"s-{number}" for number in range(24)}
    for name in names:
        await _new(server, "echo", name, days_old=2)
    assert (await server.client.get("/apps/echo/retention")).json()["expired"] == len(names)

    expired = [await _expire(one) for one in server.servers]
    assert sum(map(bool, expired)) > 1
    assert sorted(name for names_of_one in expired for name in names_of_one) == sorted(names)
    assert await _left(server, "echo") == []


async def test_an_app_without_a_limit_keeps_its_sessions(serve: Serve) -> None:
    server = await serve(echo())
    await _new(server, "echo", "old", days_old=10_000)
    preview = (await server.client.get("/apps/echo/retention")).json()
    nothing = {"appName": "echo", "sessionTtlSeconds": None, "expired": 0, "kept": 0, "sessions": []}
    assert preview == nothing
    assert await _expire(server) == []
    assert (await server.client.get("/apps/nothing/retention")).status_code == 404


def test_a_limit_is_more_than_zero() -> None:
    for seconds in (0.0, -1.0, math.nan):
        with pytest.raises(AgentConfigError, match="session_ttl_seconds"):
            App(name="a", root_agent=echo(), session_ttl_seconds=seconds)
