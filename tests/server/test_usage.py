"""Usage and cost over HTTP: what runs used, by user, model and day, for callers that may see it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.load_directory import DirectoryAppLoader
from greenroom.client.async_client import AsyncClient
from greenroom.errors import ConfigurationError
from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata
from greenroom.records.content import Content, FunctionCall, Part
from greenroom.records.model_exchange import LlmResponse
from greenroom.server.access.api_key_file import ApiKeyFile
from greenroom.server.settings import AuthSettings
from greenroom.testing.scripted_model import ScriptedModel
from tests.server.conftest import Serve, Store
from tests.server.serving import Serving

PRICES = """
currency = "USD"

[models]
"quick-.*" = { input = 1, output = 10, cached_input = 0.5 }
"""

AGENT = """
from greenroom import App, BudgetLimit, BudgetPlugin, LlmAgent, Price, types
from greenroom.models.model import BaseLlm
from greenroom.records.model_exchange import LlmResponse


class Quick(BaseLlm):
    async def generate_content_async(self, llm_request, stream=False):
        usage = types.GenerateContentResponseUsageMetadata(prompt_token_count=100, candidates_token_count=20)
        yield LlmResponse(
            content=types.Content(role="model", parts=[types.Part(text="ok")]),
            usage_metadata=usage,
            model_version="quick-1",
        )


config = types.GenerateContentConfig(max_output_tokens=20)
app = App(
    name="desk",
    root_agent=LlmAgent(name="desk", model=Quick(model="vendor/quick"), generate_content_config=config),
    plugins=[
        BudgetPlugin(
            [BudgetLimit(per="user", money="0.001", window="ever")],
            prices={"vendor/quick": Price(1, 10)},
            estimate=lambda request: 100,
        )
    ],
)
"""


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest) -> Store:
    return request.param


def answer(model: str | None, *, call: str | None = None, **counts: Any) -> LlmResponse:
    usage = GenerateContentResponseUsageMetadata(prompt_token_count=100, candidates_token_count=20, **counts)
    part = Part(text="ok") if call is None else Part(function_call=FunctionCall(name=call, args={}))
    return LlmResponse(content=Content(role="model", parts=[part]), usage_metadata=usage, model_version=model)


def look() -> str:
    """Looks."""
    return "nothing"


def desk() -> LlmAgent:
    script = [answer("quick-1", call="look"), answer(None), answer("quick-2", cached_content_token_count=40)]
    return LlmAgent(name="desk", model=ScriptedModel(script, loop=True), tools=[look])


async def priced(serve: Serve, tmp_path: Path, **settings: Any) -> Serving:
    file = tmp_path / "prices.toml"
    file.write_text(PRICES)
    return await serve(desk(), prices=str(file), **settings)


async def usage(server: Serving, query: str = "", **headers: str) -> list[dict[str, Any]]:
    reply = await server.client.get(f"/apps/desk/usage?{query}", headers=headers)
    assert reply.status_code == 200, reply.text
    return reply.json()["usage"]


async def test_usage_is_summed_over_models_users_and_days(serve: Serve, tmp_path: Path) -> None:
    server = await priced(serve, tmp_path)
    for user in ("ann", "bob"):
        await server.new_session("desk", user)

    assert (await server.run("desk", userId="ann")).status_code == 200
    assert (await server.run("desk", userId="bob")).status_code == 200
    today = datetime.now(UTC).date()
    found = await usage(server, "group_by=model")
    assert [(one["model"], one["calls"], one["cost"], one["unpricedTokenCount"]) for one in found] == [
        ("quick-1", 1, 0.0003, 0), ("quick-2", 1, 0.00028, 0), ("scripted", 1, None, 120),
    ]  # fmt: skip
    assert found[1] == {
        "userId": None, "sessionId": None, "runId": None, "model": "quick-2", "day": None, "calls": 1,
        "promptTokenCount": 100, "cachedContentTokenCount": 40, "toolUsePromptTokenCount": 0,
        "candidatesTokenCount": 20, "thoughtsTokenCount": 0, "totalTokenCount": 120, "estimatedTokenCount": 0,
        "unpricedTokenCount": 0, "cost": 0.00028,
    }  # fmt: skip
    by_user = await usage(server, "group_by=user&group_by=day")
    assert [(one["userId"], one["totalTokenCount"], one["cost"]) for one in by_user] == [
        ("ann", 240, None), ("bob", 120, 0.00028)
    ]  # fmt: skip
    assert {one["day"] for one in by_user} <= {str(today), str(today - timedelta(days=1))}
    assert (await usage(server, "user_id=bob"))[0]["cost"] == 0.00028
    assert (await usage(server, f"first_day={today + timedelta(days=1)}"))[0]["calls"] == 0
    assert (await server.client.get("/apps/desk/usage?first_day=soon")).status_code == 422
    assert (await server.client.get("/apps/desk/usage?group_by=colour")).status_code == 422


async def test_usage_comes_in_pages_and_to_the_client(serve: Serve, tmp_path: Path) -> None:
    server = await priced(serve, tmp_path)
    for user in ("ann", "bob", "eve"):
        await server.new_session("desk", user)
        await server.run("desk", userId=user)
    async with AsyncClient(server.url) as client:
        first = await client.get_usage(app_name="desk", group_by=["user"], limit=2)
        second = await client.get_usage(app_name="desk", group_by=["user"], page_token=first.next_page_token)
    assert [one.user_id for one in first.usage + second.usage] == ["ann", "bob", "eve"]
    assert (first.currency, second.next_page_token) == ("USD", None)


async def test_callers_see_their_own_usage(serve: Serve, tmp_path: Path) -> None:
    keys = ApiKeyFile(tmp_path / "keys.db")

    def key(name: str, *scopes: str, apps: list[str] | None = None) -> dict[str, str]:
        return {"x-api-key": keys.create(name=name, subject=name, scopes=list(scopes), apps=apps)[1]}

    ann = key("ann", "run", "read")
    bob = key("bob", "run", "read")
    app = key("boss", "read", "app:desk")
    other = key("out", "read", apps=["other"])
    runner = key("mute", "run")
    server = await priced(serve, tmp_path, auth=AuthSettings(keys=str(keys.path)))
    for name, headers in (("ann", ann), ("bob", bob)):
        await server.client.post(f"/apps/desk/users/{name}/sessions/s-1", headers=headers)
        await server.run("desk", userId=name, headers=headers)
    assert [one["userId"] for one in await usage(server, "group_by=user", **ann)] == ["ann"]
    assert [one["userId"] for one in await usage(server, "group_by=user", **app)] == ["ann", "bob"]
    for headers in (bob, other, runner):
        reply = await server.client.get("/apps/desk/usage?user_id=ann", headers=headers)
        assert reply.status_code == 403
    assert (await server.client.get("/apps/desk/usage")).status_code == 401


async def test_prices_that_can_not_be_read_are_refused_at_the_start(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "prices.toml"
    for text in ("models = 3", '[models]\n"a(" = {input = 1, output = 1}', "[models]\na = {input = 1}", "=", None):
        if text is None:
            file.unlink()
        else:
            file.write_text(text)
        with pytest.raises(ConfigurationError, match=r"prices\.toml can't be read"):
            await serve(desk(), prices=str(file))


async def test_a_budget_survives_new_code_and_a_restart(serve: Serve, store: Store, tmp_path: Path) -> None:
    agent = tmp_path / "apps" / "desk" / "agent.py"
    agent.parent.mkdir(parents=True)
    agent.write_text(AGENT)

    async def start() -> Serving:
        return await serve(services={"app_loader": DirectoryAppLoader(agent.parent.parent)})

    async def run(server: Serving) -> str | None:
        reply = await server.run("desk")
        return reply.json()[-1].get("errorCode")

    server = await start()
    await server.new_session("desk")
    assert await run(server) is None
    agent.write_text(AGENT + "\n# changed\n")
    assert await run(server) is None
    if store == "sqlite":
        server = await start_again(server, start)
    assert await run(server) is None
    assert await run(server) == "BUDGET_EXCEEDED"
    (total,) = await usage(server, "group_by=model")
    assert (total["model"], total["calls"], total["cost"]) == ("quick-1", 3, 0.0009)


async def start_again(server: Serving, start: Any) -> Serving:
    await server.app.engine.close()
    return await start()
