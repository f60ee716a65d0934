"""Budgets per API key count by the key that a run's request was made with."""

from __future__ import annotations

import time
from pathlib import Path

from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.app import App
from greenroom.apps.loader import StaticAppLoader
from greenroom.plugins.budget import BudgetLimit, BudgetPlugin
from greenroom.records.generation import GenerateContentConfig
from greenroom.server.access.api_key_file import ApiKeyFile
from greenroom.server.settings import AuthSettings
from greenroom.sessions.in_memory import InMemorySessionService
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.usage.store import Account
from tests.server.conftest import Serve


async def test_two_keys_of_one_user_have_budgets_of_their_own(serve: Serve, tmp_path: Path) -> None:
    limit = BudgetLimit(per="key", tokens=250, window="ever")
    plugin = BudgetPlugin([limit], estimate=lambda _: 100)
    config = GenerateContentConfig(max_output_tokens=100)
    agent = LlmAgent(name="desk", model=ScriptedModel(["ok"], loop=True), generate_content_config=config)
    loader = StaticAppLoader([App(name="desk", root_agent=agent, plugins=[plugin])])
    keys = ApiKeyFile(tmp_path / "keys.db")
    (first, token), (_, other_token) = (
        keys.create(name=name, subject="ann", scopes=["run", "read"]) for name in ("first", "second")
    )
    sessions = InMemorySessionService()
    services = {"app_loader": loader, "session_service": sessions}
    server = await serve(services=services, auth=AuthSettings(keys=str(keys.path)))
    url = "/apps/desk/users/ann/sessions"
    await server.client.post(url, json={"sessionId": "s-1"}, headers={"x-api-key": token})

    async def run(key: str) -> str | None:
        reply = await server.run("desk", headers={"x-api-key": key})
        return reply.json()[-1].get("errorCode")

    assert [await run(token), await run(token)] == [None, "BUDGET_EXCEEDED"]
    assert await run(other_token) is None
    assert (await sessions.usage.balance(Account("key", (first.id,)), now=time.time()))[0].tokens > 100
