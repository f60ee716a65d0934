"""Before-model callbacks in a live conversation: agents' see what the user says, plugins' each connection, too."""

from __future__ import annotations

import asyncio
from typing import Any

from greenroom.agents.llm_agent import LlmAgent
from greenroom.invocation.user_context import CallbackContext
from greenroom.plugins.budget import BUDGET_EXCEEDED, BudgetLimit, BudgetPlugin
from greenroom.plugins.context_filter import ContextFilterPlugin
from greenroom.plugins.global_instruction import GlobalInstructionPlugin
from greenroom.plugins.plugin import BasePlugin
from greenroom.records.content import Content, Part
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.testing import Drops, Hears, Listens, Says, ScriptedLiveModel
from tests.agents.live.calls import calling, lines_of


def agent(name: str, *script: Any, **more: Any) -> tuple[LlmAgent, ScriptedLiveModel]:
    model = ScriptedLiveModel(script)
    return LlmAgent(name=name, model=model, **more), model


async def test_callbacks_guard_what_is_typed_and_what_was_heard() -> None:
    asked: list[str] = []

    def guard(llm_request: LlmRequest, **_: Any) -> LlmResponse | None:
        text = llm_request.contents[-1].text()
        asked.append(text)
        return LlmResponse(content=Content(role="model", parts=[Part(text="Not that.")])) if "secret" in text else None

    desk, model = agent("desk", "fine", [Hears("a secret"), Says("well")], before_model_callback=guard)
    async with calling(desk) as call:
        call.say("a secret")
        await call.until(lambda e: e.author == "desk")
        call.say("hello")
        await call.turns(1)
        call.queue.send_activity_end()
        await call.turns(2)
        await call.end()
        log = await call.log()
    assert asked == ["a secret", "hello", "a secret"]
    assert lines_of(log) == [
        "user: a secret", "desk: Not that.", "user: hello", "desk: fine", "turn_complete",
        "user spoke: a secret", "desk: Not that.", "desk spoke: well", "turn_complete",
    ]  # fmt: skip
    assert len(model.connections[0].received) == 2


class Bouncer(BasePlugin):
    """Lets nobody in whose last words hold the word; None for nobody at all."""

    def __init__(self, word: str | None) -> None:
        super().__init__("bouncer")
        self._word = word

    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest
    ) -> LlmResponse | None:
        callback_context.state["asked"] = True
        said = [content.text() for content in llm_request.contents if content.role == "user"]
        if self._word is None or (said and self._word in said[-1]):
            return LlmResponse(content=Content(role="model", parts=[Part(text="Not today.")]))
        return None


async def test_plugins_may_change_what_a_connection_is_opened_with() -> None:
    desk, model = agent("desk", "one", [Drops()], "two", instruction="Be kind.")
    async with calling(desk, plugins=[GlobalInstructionPlugin("Be brief."), ContextFilterPlugin(1)]) as call:
        call.say("a")
        await call.turns(1)
        call.say("b")
        await call.turns(2)
        await call.end()
    assert len(model.connections) == 2
    for connection in model.connections:
        settings = connection.request.live_connect_config
        assert settings is not None
        assert str(settings.system_instruction).startswith("Be brief.\n\nBe kind.")
    assert [content.text() for content in model.connections[1].history or ()] == ["b"]


async def test_a_plugin_that_answers_a_connection_refuses_it() -> None:
    desk, model = agent("desk", "never")
    async with calling(desk, plugins=[Bouncer(None)]) as call:
        await call.ended()
        log = await call.log()
    assert lines_of(log) == ["desk: Not today."]
    assert log[0].actions.state_delta == {"asked": True}
    assert model.connections == []


async def test_a_budget_that_is_used_up_refuses_the_connection() -> None:
    desk, model = agent("desk", "never")
    async with calling(desk, plugins=[BudgetPlugin([BudgetLimit(per="user", tokens=1)])]) as call:
        call.say("hi")
        events = await call.ended()
    assert [event.error_code for event in events if event.author == "desk"] == [BUDGET_EXCEEDED]
    assert model.connections == []


async def test_a_plugin_that_answered_what_was_said_does_not_refuse_later_connections() -> None:
    desk, model = agent("desk", "fine")
    async with calling(desk, plugins=[Bouncer("secret")]) as first:
        first.say("a secret")
        await first.until(lambda e: e.author == "desk" and e.content)
        await first.end()
        async with calling(desk, runner=first.runner) as second:
            second.say("hello")
            await second.turns()
            await second.end()
        log = await first.log()
    assert lines_of(log) == ["user: a secret", "desk: Not today.", "user: hello", "desk: fine", "turn_complete"]
    assert len(model.connections) == 2
    assert len([event for event in log if "asked" in event.actions.state_delta]) == 4


async def test_a_new_connection_does_not_get_what_is_still_being_looked_at() -> None:
    async def guard(llm_request: LlmRequest, **others: Any) -> LlmResponse | None:
        if llm_request.contents[-1].text() != "a secret":
            return None
        for _ in range(100):  # long enough to connect again
            await asyncio.sleep(0)
        return LlmResponse(content=Content(role="model", parts=[Part(text="Not that.")]))

    desk, model = agent("desk", ["one", Listens(1), Drops()], "two", before_model_callback=guard)
    async with calling(desk) as call:
        call.say("hello")
        await call.until(lambda e: e.content is not None and e.content.text() == "one" and not e.partial)
        call.speak()
        call.say("a secret")
        await call.until(lambda e: e.content is not None and e.content.text() == "Not that.")
        call.say("bye")
        await call.turns()
        await call.end()
        log = await call.log()
    assert lines_of(log) == [
        "user: hello", "desk: one", "user: a secret", "desk: Not that.", "user: bye", "desk: two", "turn_complete",
    ]  # fmt: skip
    assert [content.text() for content in model.connections[1].history or ()][-2:] == ["a secret", "Not that."]
