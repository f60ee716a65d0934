"""Live runs are counted in budgets like others."""

from __future__ import annotations

import time
from decimal import Decimal
from typing import Any

from greenroom.agents.agent_tool import AgentTool
from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.app import App
from greenroom.apps.loader import StaticAppLoader
from greenroom.plugins.budget import BudgetLimit, BudgetPlugin
from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata
from greenroom.records.content import Content, FunctionCall, Part
from greenroom.records.generation import GenerateContentConfig
from greenroom.records.model_exchange import LlmResponse
from greenroom.sessions.in_memory import InMemorySessionService
from greenroom.testing import ScriptedLiveModel, ScriptedModel
from greenroom.usage.prices import Amount, Price
from greenroom.usage.store import Account, UsageStore
from tests.server.conftest import Serve
from tests.server.live_client import talking, texts
from tests.server.serving import Serving

ANN = Account("user", ("desk", "ann"), "")


def used(prompt: int, output: int, **more: Any) -> LlmResponse:
    usage = GenerateContentResponseUsageMetadata(prompt_token_count=prompt, candidates_token_count=output)
    return LlmResponse(usage_metadata=usage, **more)


async def desk(serve: Serve, *script: Any, tokens: int, tools: Any = ()) -> tuple[Serving, UsageStore]:
    prices = {"scripted-live": Price(1_000_000, 2_000_000), "cheap": Price(0, 1_000_000)}
    limit = BudgetLimit(per="user", tokens=tokens, money=1_000_000, window="ever")
    plugin = BudgetPlugin([limit], prices=prices, default_output_tokens=50, estimate=lambda _: 100)
    agent = LlmAgent(name="desk", model=ScriptedLiveModel(script), tools=tools)
    sessions = InMemorySessionService()
    loader = StaticAppLoader([App(name="desk", root_agent=agent, plugins=[plugin])])
    server = await serve(services={"app_loader": loader, "session_service": sessions})
    await server.new_session("desk")
    return server, sessions.usage


async def test_what_a_live_model_reports_is_spent(serve: Serve) -> None:
    server, usage = await desk(serve, ["one", used(30, 5)], ["two", used(40, 10, turn_complete=True)], tokens=1000)
    async with talking(server.port) as client:
        for text in ("first", "second"):
            await client.say(text)
            await client.turn()
        await client.send({"close": True})
        await client.closed()
    spent, held = await usage.balance(ANN, now=time.time())
    assert spent == Amount(85, Decimal(70 * 1 + 15 * 2))
    assert held == Amount()


async def test_a_live_turn_beyond_the_budget_is_refused(serve: Serve) -> None:
    server, _ = await desk(serve, ["one", used(100, 10)], "two", tokens=200)
    async with talking(server.port) as client:
        await client.say("first")
        assert texts(await client.turn()) == ["one"]
        await client.say("second")
        refused = await client.until(lambda frame: frame.get("errorCode"))
    assert refused["errorCode"] == "BUDGET_EXCEEDED"
    assert "two" not in texts(client.frames)


async def test_a_call_within_a_live_tool_is_counted_once(serve: Serve) -> None:
    usage = GenerateContentResponseUsageMetadata(prompt_token_count=7, candidates_token_count=3)
    answer = LlmResponse(content=Content(role="model", parts=[Part(text="42")]), usage_metadata=usage)
    config = GenerateContentConfig(max_output_tokens=10)
    expert = LlmAgent(
        name="expert", description="Knows", model=ScriptedModel([answer], model="cheap"), generate_content_config=config
    )
    asks = FunctionCall(name="expert", args={"request": "what?"})
    server, usage = await desk(serve, asks, ["It is 42.", used(20, 5)], tokens=1000, tools=[AgentTool(agent=expert)])
    async with talking(server.port) as client:
        await client.say("ask")
        assert "It is 42." in texts(await client.turn())
        await client.send({"close": True})
        await client.closed()
    spent, _ = await usage.balance(ANN, now=time.time())
    assert spent == Amount(10 + 25, Decimal(3 + 20 + 10))
