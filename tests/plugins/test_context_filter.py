from __future__ import annotations

import logging

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.errors import AgentConfigError
from greenroom.invocation.user_context import CallbackContext
from greenroom.plugins.context_filter import ContextFilterPlugin
from greenroom.records.content import INSTRUCTIONS_PREFIX, Content, FunctionResponse, Part
from greenroom.records.model_exchange import LlmRequest
from greenroom.testing.scripted_model import ScriptedModel
from tests.agents.talk import Talk, call, shown
from tests.plugins.watched import WatchedTalk


def look(where: str) -> str:
    return f"nothing in {where}"


async def test_only_the_newest_invocations_are_sent_and_the_log_keeps_all() -> None:
    model = ScriptedModel(["a1", call("look", where="b"), "b1", "c1"])
    talk = WatchedTalk(LlmAgent(name="a", model=model, tools=[look]), ContextFilterPlugin(num_invocations_to_keep=2))
    for text in ("a", "b", "c"):
        await talk.say(text)
    assert shown(model.requests[2]) == [
        "user: a",
        "model: a1",
        "user: b",
        "model: look(where='b')",
        "user: look -> {'result': 'nothing in b'}",
    ]
    assert shown(model.requests[3])[0] == "user: b"
    assert len(shown(model.requests[3])) == 5
    assert len(await talk.log()) == 8


async def test_nothing_is_cut_before_remove_amount_are_too_many() -> None:
    model = ScriptedModel([str(n) for n in range(5)])
    plugin = ContextFilterPlugin(num_invocations_to_keep=1, remove_amount=3)
    talk = WatchedTalk(LlmAgent(name="a", model=model), plugin)
    for n in range(5):
        await talk.say(f"q{n}")
    assert [len(shown(request)) for request in model.requests] == [1, 3, 5, 1, 1]


async def test_an_instruction_among_the_contents_begins_no_invocation_and_stays_with_the_newest() -> None:
    model = ScriptedModel(["a1", call("look", where="b"), "b1"])
    agent = LlmAgent(name="a", model=model, tools=[look], static_instruction="Wait.", instruction="Be short.")
    talk = WatchedTalk(agent, ContextFilterPlugin(num_invocations_to_keep=1))
    await talk.say("a")
    await talk.say("b")
    short = [f"user: {INSTRUCTIONS_PREFIX}", "user: <instructions>\nBe short.\n</instructions>"]
    looked = ["model: look(where='b')", "user: look -> {'result': 'nothing in b'}"]
    assert shown(model.requests[1]) == [*short, "user: b"]
    assert shown(model.requests[2]) == ["user: b", *looked, *short]


async def filtered(plugin: ContextFilterPlugin, *contents: Content) -> list[str]:
    """The contents that are sent when these are the prompt."""
    scripted = ScriptedModel(["ok"])

    class First(ContextFilterPlugin):
        async def before_model_callback(self, *, callback_context: CallbackContext, llm_request: LlmRequest) -> None:
            llm_request.contents = list(contents)

    await WatchedTalk(LlmAgent(name="a", model=scripted), First(name="first"), plugin).say("hi")
    return shown(scripted.requests[0])


def user(text: str) -> Content:
    return Content(role="user", parts=[Part(text=text)])


def model(text: str) -> Content:
    return Content(role="model", parts=[Part(text=text)])


def calls(*ids: str) -> Content:
    return Content(role="model", parts=[Part(function_call=call(f"f{i}", i)) for i in ids])


def answers(*ids: str) -> Content:
    parts = [Part(function_response=FunctionResponse(id=i, name=f"f{i}", response={})) for i in ids]
    return Content(role="user", parts=parts)


async def test_messages_in_a_row_begin_one_invocation() -> None:
    kept = await filtered(ContextFilterPlugin(1), user("a"), model("1"), user("b"), user("c"), model("2"))
    assert kept == ["user: b", "user: c", "model: 2"]


async def test_what_other_agents_said_begins_none() -> None:
    relayed = Content(role="user", parts=[Part(text="For context:"), Part(text="[critic] said: no")])
    kept = await filtered(ContextFilterPlugin(1), user("a"), model("1"), user("b"), model("2"), relayed)
    assert kept[0] == "user: b"


async def test_the_cut_moves_back_until_every_response_has_its_call() -> None:
    contents = [user("a"), model("1"), user("b"), calls("1", "2"), answers("1"), user("c"), answers("2"), model("ok")]
    kept = await filtered(ContextFilterPlugin(1), *contents)
    assert kept[0] == "model: f1()"


async def test_a_filter_of_ones_own_comes_last() -> None:
    plugin = ContextFilterPlugin(1, custom_filter=lambda contents: [c for c in contents if c.role == "user"])
    assert await filtered(plugin, user("a"), model("1"), user("b"), model("2"), user("c")) == ["user: c"]
    only_own = ContextFilterPlugin(custom_filter=lambda contents: contents[:1])
    assert await filtered(only_own, user("a"), model("1"), user("b")) == ["user: a"]


async def test_after_an_error_everything_is_sent(caplog: pytest.LogCaptureFixture) -> None:
    def broken(contents: list[Content]) -> list[Content]:
        contents.clear()
        raise RuntimeError("no")

    with caplog.at_level(logging.ERROR):
        kept = await filtered(ContextFilterPlugin(1, custom_filter=broken), user("a"), model("1"), user("b"))
    assert kept == ["user: a", "model: 1", "user: b"]
    assert "could not filter" in caplog.text


async def test_without_a_number_nothing_is_cut() -> None:
    scripted = ScriptedModel(["1", "2"])
    talk: Talk = WatchedTalk(LlmAgent(name="a", model=scripted), ContextFilterPlugin())
    await talk.say("a")
    await talk.say("b")
    assert shown(scripted.requests[1]) == ["user: a", "model: 1", "user: b"]


def test_numbers_below_one_are_refused() -> None:
    with pytest.raises(AgentConfigError, match="num_invocations_to_keep"):
        ContextFilterPlugin(0)
    with pytest.raises(AgentConfigError, match="remove_amount"):
        ContextFilterPlugin(1, remove_amount=0)
