"""Budgets hold before the money is spent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.workflows import LoopAgent
from greenroom.errors import AgentConfigError, LlmCallsLimitExceeded, ModelError, PluginFailed
from greenroom.models.model import BaseLlm
from greenroom.plugins.budget import BudgetLimit, BudgetPlugin
from greenroom.plugins.plugin import BasePlugin
from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata
from greenroom.records.content import Content, Part
from greenroom.records.generation import GenerateContentConfig
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.records.run import RunConfig
from greenroom.sessions.sqlite import SqliteSessionService
from greenroom.testing.scripted_model import Fails, ScriptedModel
from greenroom.usage.prices import Price
from greenroom.usage.store import Account
from tests.agents.talk import STREAMED, call, lines_of
from tests.plugins.watched import WatchedTalk

PROMPT = 100
"""Estimate of every prompt in these tests."""

USER, RUN = Account("user", ("app", "ada"), "2025-01-31"), Account("run", ("e-1",))


class Clock:
    """A minute before midnight (UTC)."""

    def __init__(self) -> None:
        self.now = 1738367940.0

    def __call__(self) -> float:
        return self.now


def reply(text: str = "ok", *, prompt: int = 100, output: int = 20, **more: Any) -> LlmResponse:
    usage = GenerateContentResponseUsageMetadata(prompt_token_count=prompt, candidates_token_count=output, **more)
    return LlmResponse(content=Content(role="model", parts=[Part(text=text)]), usage_metadata=usage)


def agent(*script: Any, max_output_tokens: int | None = 50, **more: Any) -> LlmAgent:
    config = GenerateContentConfig(max_output_tokens=max_output_tokens)
    model = ScriptedModel(list(script), loop=True)
    return LlmAgent(name="a", model=model, generate_content_config=config, **more)


def budget(*limits: BudgetLimit, **more: Any) -> BudgetPlugin:
    options: dict[str, Any] = {"clock": Clock(), **more}
    return BudgetPlugin(limits, estimate=lambda _: PROMPT, **options)


async def spent(talk: WatchedTalk, account: Account) -> int:
    return (await talk.runner.session_service.usage.balance(account, now=Clock().now))[0].tokens


async def held(talk: WatchedTalk, account: Account) -> int:
    return (await talk.runner.session_service.usage.balance(account, now=Clock().now))[1].tokens


async def test_a_call_is_refused_when_it_could_cost_more_than_is_left() -> None:
    plugin = budget(BudgetLimit(per="user", tokens=300))
    talk = WatchedTalk(agent(reply()), plugin)
    assert lines_of(await talk.say("one")) == ["a: ok"]
    assert lines_of(await talk.say("two")) == ["a: ok"]
    (refused,) = await talk.say("three")
    assert (refused.author, refused.error_code, refused.content) == ("a", "BUDGET_EXCEEDED", None)
    assert refused.error_message == (
        "The budget of user 'ada' on 2025-01-31 (UTC) does not allow another model call: "
        "240 of 300 tokens are spent, 0 are held for other calls, and this one may take 150."
    )
    assert refused.custom_metadata == {"budget": {"per": "user", "owner": "ada", "day": "2025-01-31"}}
    assert (await talk.log())[-1] == refused
    assert await spent(talk, USER) == 240


async def test_a_run_ends_between_its_model_calls() -> None:
    plugin = budget(BudgetLimit(per="run", tokens=300))
    looks = reply()
    looks.content = Content(role="model", parts=[Part(function_call=call("look_around"))])
    talk = WatchedTalk(agent(looks, tools=[look_around]), plugin)
    events = await talk.say("go", invocation_id="e-1")
    assert [event.error_code for event in events] == [None, None, None, None, "BUDGET_EXCEEDED"]
    assert await spent(talk, RUN) == 240
    assert (await talk.say("again"))[0].error_code is None


def look_around() -> str:
    """Looks."""
    return "nothing"


class Gate(BaseLlm):
    """Answers when it is let."""

    def __init__(self) -> None:
        super().__init__(model="gate")
        self.opened = asyncio.Event()
        self.begun = asyncio.Semaphore(0)
        self.asked = 0

    async def generate_content_async(self, llm_request: LlmRequest, stream: bool = False) -> AsyncIterator[LlmResponse]:
        self.asked += 1
        self.begun.release()
        await self.opened.wait()
        yield reply(output=50)


def gated(plugin: BudgetPlugin) -> tuple[Gate, WatchedTalk]:
    model = Gate()
    config = GenerateContentConfig(max_output_tokens=50)
    return model, WatchedTalk(LlmAgent(name="a", model=model, generate_content_config=config), plugin)


async def test_runs_side_by_side_can_not_overspend_together() -> None:
    plugin = budget(BudgetLimit(per="user", tokens=500))
    model, talk = gated(plugin)
    sessions = [await talk.runner.session_service.create_session(app_name="app", user_id="ada") for _ in range(8)]
    message = Content(role="user", parts=[Part(text="go")])

    async def run(session_id: str) -> str | None:
        events = talk.runner.run_async(user_id="ada", session_id=session_id, new_message=message)
        return [event.error_code async for event in events][-1]

    tasks = [asyncio.create_task(run(session.id)) for session in sessions]
    async with asyncio.timeout(5):
        for _ in range(3):
            await model.begun.acquire()
        model.opened.set()
        codes = await asyncio.gather(*tasks)
    assert (model.asked, codes.count("BUDGET_EXCEEDED")) == (3, 5)
    assert await spent(talk, USER) == 450


@pytest.mark.parametrize("how", ["closed", "cancelled"])
async def test_a_hold_is_let_go_when_a_run_is_cut_off(how: str) -> None:
    plugin = budget(BudgetLimit(per="user", tokens=150))
    model, talk = gated(plugin)
    if how == "closed":
        slow = agent("one two three four")
        talk = WatchedTalk(slow, plugin)
        async with aclosing(talk.events("go", run_config=STREAMED)) as events:
            async for _ in events:
                assert await held(talk, USER) == 150
                break
    else:
        task = asyncio.create_task(talk.say("go"))
        async with asyncio.timeout(5):
            await model.begun.acquire()
        assert await held(talk, USER) == 150
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert await held(talk, USER) == 0
    assert await spent(talk, USER) == (PROMPT + 6 if how == "closed" else 0)


async def test_an_error_of_the_model_costs_what_was_seen_of_its_reply() -> None:
    plugin = budget(BudgetLimit(per="user", tokens=1000))
    talk = WatchedTalk(agent(ModelError("down", model="m")), plugin)
    with pytest.raises(ModelError):
        await talk.say("one")
    assert (await spent(talk, USER), await held(talk, USER)) == (0, 0)
    broken = Fails(error=ModelError("down", model="m"), after_chunks=2, text="one two three four")
    talk = WatchedTalk(agent(broken), plugin)
    with pytest.raises(ModelError):
        await talk.say("one", run_config=STREAMED)
    assert await held(talk, USER) == 0
    assert await spent(talk, USER) > PROMPT


async def test_who_answers_in_place_of_the_model_costs_nothing() -> None:
    plugin = budget(BudgetLimit(per="user", tokens=150))

    def own(**_: Any) -> LlmResponse:
        return LlmResponse(content=Content(role="model", parts=[Part(text="from the cache")]))

    talk = WatchedTalk(agent(before_model_callback=own), plugin)
    for _ in range(3):
        assert lines_of(await talk.say("go")) == ["a: from the cache"]
    looping = LoopAgent(name="loop", max_iterations=3, sub_agents=[agent(before_model_callback=own)])
    talk = WatchedTalk(looping, plugin, sessions=talk.runner.session_service)
    assert lines_of(await talk.say("go")) == ["a: from the cache"] * 3
    assert (await spent(talk, USER), await held(talk, USER)) == (0, 0)


async def test_scopes_have_accounts_of_their_own() -> None:
    limits = [BudgetLimit(per=per, tokens=10_000) for per in ("run", "user", "app", "key")]  # pyright: ignore[reportArgumentType]
    keys = iter(["k1", None])
    plugin = budget(*limits, key_of=lambda _ctx: next(keys))  # pyright: ignore[reportUnknownLambdaType]
    talk = WatchedTalk(agent(reply()), plugin)
    await talk.say("one", invocation_id="e-1")
    await talk.say("two", invocation_id="e-2")
    assert await spent(talk, RUN) == 120
    assert await spent(talk, USER) == 240
    assert await spent(talk, Account("user", ("app", "bob"), "2025-01-31")) == 0
    assert await spent(talk, Account("app", ("app",), "2025-01-31")) == 240
    assert await spent(talk, Account("key", ("k1",), "2025-01-31")) == 120


async def test_a_new_day_begins_at_midnight_utc() -> None:
    clock = Clock()
    plugin = budget(BudgetLimit(per="user", tokens=250), clock=clock)
    talk = WatchedTalk(agent(reply()), plugin)
    await talk.say("one")
    assert (await talk.say("two"))[0].error_code == "BUDGET_EXCEEDED"
    clock.now += 61
    assert (await talk.say("three"))[0].error_code is None
    assert await spent(talk, Account("user", ("app", "ada"), "2025-02-01")) == 120


async def test_a_limit_for_ever_knows_no_days() -> None:
    clock = Clock()
    plugin = budget(BudgetLimit(per="user", tokens=250, window="ever"), clock=clock)
    talk = WatchedTalk(agent(reply()), plugin)
    await talk.say("one")
    clock.now += 400 * 86_400
    assert (await talk.say("two"))[0].error_code == "BUDGET_EXCEEDED"


PRICES = {r"scripted": Price(2, 10, cached_input=0.5), r"gemini-.*": Price("0.3", "2.5")}


async def test_money_is_counted_by_the_price_of_the_model() -> None:
    plugin = budget(BudgetLimit(per="user", money=0.0021), prices=PRICES)
    used = reply(prompt=100, output=20, cached_content_token_count=40, thoughts_token_count=10)
    talk = WatchedTalk(agent(used), plugin)
    await talk.say("one")
    ((tokens, money), _) = await talk.runner.session_service.usage.balance(USER, now=Clock().now)
    assert (tokens, money) == (130, Decimal("0.000440"))
    codes = [(await talk.say("more"))[0].error_code for _ in range(5)]
    assert codes == [None, None, None, "BUDGET_EXCEEDED", "BUDGET_EXCEEDED"]
    refused = (await talk.log())[-1]
    assert "0.00176 of 0.0021 of money are spent" in (refused.error_message or "")


async def test_a_model_without_a_price_is_not_paid_for() -> None:
    plugin = budget(BudgetLimit(per="user", money=1), prices={"gemini-.*": Price(1, 1)})
    with pytest.raises(PluginFailed, match="'scripted' has no price"):
        await WatchedTalk(agent(reply()), plugin).say("hi")


async def test_a_request_is_bounded_so_that_its_hold_is() -> None:
    model = ScriptedModel([reply()], loop=True)
    plugin = budget(BudgetLimit(per="user", tokens=2_000), default_output_tokens=777)
    await WatchedTalk(LlmAgent(name="a", model=model), plugin).say("hi")
    config = GenerateContentConfig(max_output_tokens=33)
    await WatchedTalk(LlmAgent(name="a", model=model, generate_content_config=config), plugin).say("hi")
    assert [request.config.max_output_tokens for request in model.requests] == [777, 33]


async def test_a_reply_that_was_not_counted_is_estimated() -> None:
    plugin = budget(BudgetLimit(per="user", tokens=1_000))
    talk = WatchedTalk(agent("nine char"), plugin)
    for config in (RunConfig(), STREAMED):
        await talk.say("hi", run_config=config)
    assert await spent(talk, USER) == 2 * (PROMPT + 4 + 3)


async def test_the_estimate_errs_on_the_dear_side() -> None:
    model = ScriptedModel(["ok"])
    plugin = BudgetPlugin([BudgetLimit(per="user", tokens=4_000)], clock=Clock(), default_output_tokens=100)
    talk = WatchedTalk(LlmAgent(name="a", model=model, tools=[look_around]), plugin)
    (refused,) = await talk.say("word " * 3_000)
    assert refused.error_code == "BUDGET_EXCEEDED"
    assert model.requests == []
    assert (await talk.say("hi"))[0].error_code == "BUDGET_EXCEEDED"
    talk.session_id = "s-2"
    assert (await talk.say("hi"))[0].error_code is None


async def test_a_loop_comes_to_an_end() -> None:
    plugin = budget(BudgetLimit(per="run", tokens=1))
    inner = LoopAgent(name="inner", sub_agents=[agent(reply())])
    events = await WatchedTalk(inner, plugin).say("go")
    assert [event.error_code for event in events if event.error_code] == ["BUDGET_EXCEEDED"]
    outer = LoopAgent(name="outer", sub_agents=[LoopAgent(name="inner", sub_agents=[agent(reply())])])
    with pytest.raises(PluginFailed) as caught:
        await WatchedTalk(outer, plugin).say("go", run_config=RunConfig(max_llm_calls=5))
    assert isinstance(caught.value.__cause__, LlmCallsLimitExceeded)


async def test_a_plugin_that_answers_errors_does_not_leave_the_hold_behind() -> None:
    class Sorry(BasePlugin):
        async def on_model_error_callback(self, **_: Any) -> LlmResponse:
            return LlmResponse(content=Content(role="model", parts=[Part(text="sorry")]))

    plugin = budget(BudgetLimit(per="user", tokens=150))
    talk = WatchedTalk(agent(fails), Sorry("sorry"), plugin)
    assert lines_of(await talk.say("one")) == ["a: sorry"]
    assert lines_of(await talk.say("two")) == ["a: sorry"]
    assert await held(talk, USER) == 0


class Counting(ScriptedModel):
    """A model whose provider counts tokens."""

    def __init__(self) -> None:
        super().__init__([reply()])

    async def count_tokens(self, llm_request: LlmRequest) -> int | None:
        return 20


async def test_the_provider_counts_a_prompt_that_is_estimated_too_high() -> None:
    config = GenerateContentConfig(max_output_tokens=50)
    for model, code in ((ScriptedModel([reply()]), "BUDGET_EXCEEDED"), (Counting(), None)):
        plugin = budget(BudgetLimit(per="user", tokens=100))
        events = await WatchedTalk(LlmAgent(name="a", model=model, generate_content_config=config), plugin).say("hi")
        assert events[0].error_code == code


async def test_what_is_spent_outlives_the_plugin_and_the_process(tmp_path: Path) -> None:
    limits = [BudgetLimit(per="user", tokens=300, window="ever"), BudgetLimit(per="app", money="0.0012")]
    prices = {"scripted": Price(2, 10)}
    codes: list[str | None] = []
    for _ in range(3):
        sessions = SqliteSessionService(tmp_path / "x.db")
        talk = WatchedTalk(agent(reply()), budget(*limits, prices=prices), sessions=sessions)
        codes.append((await talk.say("hi"))[0].error_code)
        await sessions.close()
    assert codes == [None, None, "BUDGET_EXCEEDED"]


async def test_without_limits_that_apply_nothing_is_changed() -> None:
    model = ScriptedModel([reply()])
    plugin = budget(BudgetLimit(per="key", tokens=1))
    await WatchedTalk(LlmAgent(name="a", model=model), plugin).say("hi")
    assert model.requests[0].config.max_output_tokens is None


def fails(request: LlmRequest) -> str:
    raise ModelError("down", model="m")


def test_limits_that_make_no_sense_are_refused() -> None:
    with pytest.raises(AgentConfigError, match="limits nothing"):
        BudgetLimit(per="user")


async def test_nothing_is_held_anywhere_when_one_account_is_full() -> None:
    plugin = budget(BudgetLimit(per="app", tokens=10_000), BudgetLimit(per="user", tokens=1))
    talk = WatchedTalk(agent(reply()), plugin)
    await talk.say("hi")
    assert await held(talk, Account("app", ("app",), "2025-01-31")) == 0
