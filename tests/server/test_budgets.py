"""Budgets that are stored over HTTP, and warnings of budgets that are nearly used up."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.app import App
from greenroom.plugins.budget import BudgetLimit, BudgetPlugin
from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata
from greenroom.records.budget import Budget
from greenroom.records.content import Content, Part
from greenroom.records.generation import GenerateContentConfig
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.server.access.api_key_file import ApiKeyFile
from greenroom.server.settings import AuthSettings
from greenroom.sessions.postgres import PostgresSessionService
from greenroom.sessions.service import BaseSessionService
from greenroom.sessions.sqlite import SqliteSessionService
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.usage.budgets import StoredBudgets
from tests.server.conftest import Serve, Store
from tests.server.serving import Serving

BUDGETS = "/apps/desk/budgets"


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def store(request: pytest.FixtureRequest) -> Store:
    return request.param


def desk(name: str = "desk", *limits: BudgetLimit) -> App:
    """Each call takes 100 tokens, and may take 10 more."""

    def reply(request: LlmRequest) -> LlmResponse:
        used = GenerateContentResponseUsageMetadata(
            prompt_token_count=60, candidates_token_count=40, total_token_count=100
        )
        return LlmResponse(content=Content(role="model", parts=[Part(text="ok")]), usage_metadata=used)

    config = GenerateContentConfig(max_output_tokens=10)
    agent = LlmAgent(name=name, model=ScriptedModel(reply), generate_content_config=config)
    return App(name=name, root_agent=agent, plugins=[BudgetPlugin(limits)] if limits else [])


async def run(server: Serving, app: str = "desk", user: str = "ann", **options: Any) -> dict[str, Any]:
    """The last event of a run."""
    await server.client.post(f"/apps/{app}/users/{user}/sessions", json={"sessionId": f"{user}-1"}, **options)
    body = {
        "appName": app, "userId": user, "sessionId": f"{user}-1", "newMessage": {"parts": [{"text": "hi"}]},
    }  # fmt: skip
    answer = await server.client.post("/run", json=body, **options)
    assert answer.status_code == 200, answer.text
    return answer.json()[-1]


async def put(server: Serving, **budget: Any) -> httpx.Response:
    return await server.client.put(BUDGETS, json=budget)


async def listed(server: Serving, query: str = "") -> list[dict[str, Any]]:
    answer = await server.client.get(BUDGETS + query)
    assert answer.status_code == 200, answer.text
    return answer.json()["budgets"]


async def test_an_app_without_budgets_gets_changes_and_loses_one(serve: Serve) -> None:
    server = await serve(desk())
    assert "errorCode" not in await run(server)
    assert await listed(server) == []

    stored = (await put(server, per="user", tokens=205)).json()
    assert stored == {
        "per": "user",
        "window": "day",
        "tokens": 205,
        "money": None,
        "userId": None,
        "keyId": None,
        "warnAt": 0.8,
    }
    assert "errorCode" not in await run(server)
    assert (await run(server))["errorCode"] == "BUDGET_EXCEEDED"
    assert "errorCode" not in await run(server, user="bob")

    await put(server, per="user", tokens=1000)
    assert "errorCode" not in await run(server)
    await put(server, per="user", tokens=0)
    assert (await run(server))["errorCode"] == "BUDGET_EXCEEDED"
    deleted = await server.client.delete(f"{BUDGETS}?per=user")
    assert deleted.status_code == 200
    assert "errorCode" not in await run(server)
    assert (await server.client.delete(f"{BUDGETS}?per=user")).status_code == 404


async def test_a_users_own_budget_replaces_that_of_each_user_and_of_the_code(serve: Serve) -> None:
    server = await serve(desk("desk", BudgetLimit(per="user", tokens=105), BudgetLimit(per="run", tokens=5000)))
    assert "errorCode" not in await run(server)
    assert (await run(server))["errorCode"] == "BUDGET_EXCEEDED"
    await put(server, per="user", userId="ann", tokens=350, warnAt=None)
    assert "errorCode" not in await run(server)
    assert "errorCode" not in await run(server, user="bob")
    assert (await run(server, user="bob"))["errorCode"] == "BUDGET_EXCEEDED"

    of_run, of_each, of_ann = await _by_per(server)
    assert (of_run["tokens"], of_run["uses"]) == (5000, [])
    assert (of_each["tokens"], of_each["source"]) == (105, "app")
    assert [(use["userId"], use["tokens"]) for use in of_each["uses"]] == [("ann", 200), ("bob", 100)]
    assert (of_ann["userId"], of_ann["source"]) == ("ann", "stored")
    [use] = of_ann["uses"]
    assert (use["tokens"], use["share"]) == (200, round(200 / 350, 4))
    [mine] = [one for one in await listed(server, "?user_id=ann") if one["per"] == "user"]
    assert (mine["tokens"], mine["source"]) == (350, "stored")
    [theirs] = [one for one in await listed(server, "?user_id=bob") if one["per"] == "user"]
    assert (theirs["tokens"], theirs["uses"][0]["tokens"]) == (105, 100)


async def _by_per(server: Serving) -> list[dict[str, Any]]:
    return sorted(await listed(server), key=lambda one: (one["per"], one["source"]))


async def test_a_soft_limit_warns_once_in_its_window(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    server = await serve(desk())
    await put(server, per="user", tokens=500, warnAt=0.4)

    def warnings(event: dict[str, Any]) -> list[dict[str, Any]]:
        return event.get("customMetadata", {}).get("budgetWarnings", [])

    assert warnings(await run(server)) == []
    [warning] = warnings(await run(server))
    assert (warning["per"], warning["owner"], warning["share"]) == ("user", "ann", 0.4)
    assert warning["message"].startswith("40% of the budget of user 'ann' on 2")
    assert warnings(await run(server)) == []
    assert sum("of the budget of user 'ann'" in one.getMessage() for one in caplog.records) == 1
    [budget] = await listed(server)
    [use] = budget["uses"]
    assert use["warnedAt"] is not None

    await put(server, per="user", tokens=600, warnAt=0.5)  # another limit, of which to warn anew
    assert [one["share"] for one in warnings(await run(server))] == [round(400 / 600, 4)]


async def test_concurrent_runs_warn_once(serve: Serve) -> None:
    server = await serve(desk())
    await put(server, per="app", tokens=10_000, warnAt=0.03)
    ends = await asyncio.gather(*(run(server, user=f"u-{number}") for number in range(8)))
    assert sum("budgetWarnings" in end.get("customMetadata", {}) for end in ends) == 1


@pytest.mark.parametrize(
    "body",
    [
        {"per": "user"},
        {"per": "run", "tokens": 1},
        {"per": "app", "tokens": 1, "userId": "ann"},
        {"per": "user", "tokens": 1, "keyId": "k"},
        {"per": "user", "tokens": -1},
        {"per": "user", "tokens": 1, "warnAt": 0},
        {"per": "user", "tokens": 1, "warnAt": 1.5},
        {"per": "user", "tokens": 1, "window": "week"},
    ],
)
async def test_invalid_budgets_are_refused(serve: Serve, body: dict[str, Any]) -> None:
    server = await serve(desk())
    assert (await put(server, **body)).status_code == 422
    assert await listed(server) == []


async def test_only_administrators_of_the_app_change_budgets(serve: Serve, tmp_path: Path) -> None:
    keys = ApiKeyFile(tmp_path / "keys.db")

    def key(subject: str, *scopes: str, apps: list[str] | None = None) -> tuple[str, dict[str, Any]]:
        made, secret = keys.create(name="", subject=subject, scopes=scopes, apps=apps)
        return made.id, {"headers": {"x-api-key": secret}}

    key_id, ann = key("ann", "run", "read", "manage", "debug")
    _, chief = key("chief", "admin", apps=["desk"])
    _, elsewhere = key("chief", "admin", apps=["other"])
    _, owner = key("own", "run", "read", "manage", "app:desk")
    server = await serve(desk(), desk("other"), auth=AuthSettings(keys=str(keys.path)))
    for who, expected in ((ann, 403), (owner, 403), (elsewhere, 403), (chief, 200)):
        put_all = await server.client.put(BUDGETS, json={"per": "user", "tokens": 1000}, **who)
        assert put_all.status_code == expected
    for who in (ann, owner, elsewhere):
        assert (await server.client.delete(f"{BUDGETS}?per=user", **who)).status_code == 403
    await server.client.put(BUDGETS, json={"per": "key", "keyId": key_id, "tokens": 105}, **chief)
    await server.client.put(BUDGETS, json={"per": "app", "tokens": 9000}, **chief)

    assert "errorCode" not in await run(server, **ann)
    assert (await run(server, **ann))["errorCode"] == "BUDGET_EXCEEDED"
    seen = (await server.client.get(BUDGETS, **ann)).json()["budgets"]
    assert {one["per"] for one in seen} == {"user", "key"}
    assert [use["tokens"] for one in seen for use in one["uses"]] == [100, 100]
    assert (await server.client.get(f"{BUDGETS}?user_id=bob", **ann)).status_code == 403
    assert (await server.client.get(f"{BUDGETS}?key_id=x", **ann)).status_code == 403
    assert len((await server.client.get(BUDGETS, **owner)).json()["budgets"]) == 3


async def test_budgets_that_another_process_has_stored_are_read(
    serve: Serve, store: Store, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if store == "memory":
        return
    server = await serve(desk())
    other: BaseSessionService
    if store == "sqlite":
        other = SqliteSessionService(str(tmp_path / "sessions.db"))
    else:
        other = PostgresSessionService(request.getfixturevalue("postgres_uri"))
    await StoredBudgets(other.usage).put("desk", Budget(per="user", tokens=5))
    await other.close()
    assert "errorCode" not in await run(server)
    await server.app.engine.budgets._read()  # as a server does again and again, where several share the database
    assert (await run(server))["errorCode"] == "BUDGET_EXCEEDED"
