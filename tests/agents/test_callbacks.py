"""Callbacks of an agent: what they see, what they can answer in place of, and who is asked first."""

from __future__ import annotations

from typing import Any

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.errors import ModelError
from greenroom.invocation.user_context import CallbackContext, ToolContext
from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata
from greenroom.records.base import JsonObject
from greenroom.records.content import Content, Part
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.tool import BaseTool
from tests.agents.talk import STREAMED, Talk, call, lines_of, shown


def says(text: str, **more: Any) -> LlmResponse:
    return LlmResponse(content=Content(role="model", parts=[Part(text=text)]), **more)


def content(text: str) -> Content:
    return Content(parts=[Part(text=text)])


def double(number: int, tool_context: ToolContext) -> int:
    if number < 0:
        raise ValueError("too small")
    tool_context.state["doubled"] = number
    return number * 2


def say_goodbye(callback_context: CallbackContext) -> Content:
    return content("Come again!")


def do_nothing(callback_context: CallbackContext) -> None: ...


# of the agent


async def test_before_agent_answers_in_place_of_the_agent_and_of_after_agent() -> None:
    model = ScriptedModel([])
    asked: list[str] = []

    async def closed(callback_context: CallbackContext) -> Content:
        callback_context.state["closed"] = True
        return content("We are closed.")

    agent = LlmAgent(
        name="shop",
        model=model,
        before_agent_callback=closed,
        after_agent_callback=lambda callback_context: asked.append("after"),  # pyright: ignore[reportUnknownLambdaType]
    )
    talk = Talk(agent)
    (event,) = await talk.say("hi")
    assert lines_of([event]) == ["shop: We are closed.", "shop sets {'closed': True}"]
    assert event.content is not None
    assert event.content.role == "model"
    assert (model.requests, asked) == ([], [])


async def test_state_changed_before_and_after_an_agent_gets_events_of_its_own() -> None:
    def enter(callback_context: CallbackContext) -> None:
        callback_context.state["temp:visits"] = callback_context.state.get("visits", 0) + 1
        callback_context.state["visits"] = callback_context.state["temp:visits"]

    def leave(callback_context: CallbackContext) -> None:
        callback_context.state["left"] = callback_context.agent_name

    agent = LlmAgent(
        name="shop",
        model=ScriptedModel(["hello", "again"]),
        instruction="Visit {visits}.",
        before_agent_callback=enter,
        after_agent_callback=leave,
    )
    talk = Talk(agent)
    assert lines_of(await talk.say("hi")) == ["shop sets {'visits': 1}", "shop: hello", "shop sets {'left': 'shop'}"]
    assert lines_of(await talk.say("hi")) == ["shop sets {'visits': 2}", "shop: again", "shop sets {'left': 'shop'}"]


async def test_after_agent_can_add_a_last_word() -> None:
    agent = LlmAgent(name="shop", model=ScriptedModel(["bye"]), after_agent_callback=say_goodbye)
    assert lines_of(await Talk(agent).say("hi")) == ["shop: bye", "shop: Come again!"]


async def test_callbacks_that_do_nothing_leave_no_event() -> None:
    agent = LlmAgent(
        name="shop",
        model=ScriptedModel(["bye"]),
        before_agent_callback=do_nothing,
        after_agent_callback=[],
    )
    assert lines_of(await Talk(agent).say("hi")) == ["shop: bye"]


async def test_in_a_list_the_first_answer_wins_and_the_rest_is_not_asked() -> None:
    asked: list[str] = []

    def first(callback_context: CallbackContext) -> None:
        asked.append("first")

    async def second(callback_context: CallbackContext) -> Content:
        asked.append("second")
        return content("second")

    def third(callback_context: CallbackContext) -> Content:
        asked.append("third")
        return content("third")

    agent = LlmAgent(name="a", model=ScriptedModel([]), before_agent_callback=[first, second, third])
    assert lines_of(await Talk(agent).say("hi")) == ["a: second"]
    assert asked == ["first", "second"]


async def test_an_error_in_a_callback_fails_the_run() -> None:
    def broken(callback_context: CallbackContext) -> None:
        raise RuntimeError("broken callback")

    talk = Talk(LlmAgent(name="a", model=ScriptedModel(["hi"]), before_agent_callback=broken))
    with pytest.raises(RuntimeError):
        await talk.say("hi")
    assert lines_of(await talk.log()) == ["user: hi", "a ! RuntimeError"]


# of the model


async def test_before_model_answers_in_place_of_the_model_and_of_after_model() -> None:
    model = ScriptedModel([])
    asked: list[str] = []

    def from_cache(callback_context: CallbackContext, llm_request: LlmRequest) -> LlmResponse:
        callback_context.state["cached"] = True
        return says("from the cache")

    agent = LlmAgent(
        name="a",
        model=model,
        before_model_callback=from_cache,
        after_model_callback=lambda **_: asked.append("after"),  # pyright: ignore[reportUnknownLambdaType]
    )
    assert lines_of(await Talk(agent).say("hi")) == ["a: from the cache", "a sets {'cached': True}"]
    assert (model.requests, asked) == ([], [])


async def test_what_before_model_changes_in_the_request_never_reaches_the_log() -> None:
    model = ScriptedModel(["one", "two"])

    def censor(callback_context: CallbackContext, llm_request: LlmRequest) -> None:
        for item in llm_request.contents:
            if item.parts:
                item.parts[0] = Part(text="XXX")
            item.role = "user"
        llm_request.contents.append(content("be brief"))
        llm_request.contents.insert(0, content("rules"))
        llm_request.config.append_system_text("And be kind.")

    talk = Talk(LlmAgent(name="a", model=model, before_model_callback=censor))
    await talk.say("secret one")
    await talk.say("secret two")
    assert [line.split(": ")[1] for line in shown(model.requests[1])] == ["rules", "XXX", "XXX", "XXX", "be brief"]
    assert model.requests[1].config.system_text().endswith("And be kind.")
    assert lines_of(await talk.log()) == ["user: secret one", "a: one", "user: secret two", "a: two"]


async def test_after_model_sees_every_chunk_and_can_replace_it() -> None:
    def louder(callback_context: CallbackContext, llm_response: LlmResponse) -> LlmResponse | None:
        text = llm_response.content.text() if llm_response.content else ""
        return says(text.upper())

    talk = Talk(LlmAgent(name="a", model=ScriptedModel(["be quiet"]), after_model_callback=louder))
    assert lines_of(await talk.say("hi", run_config=STREAMED)) == ["a…: BE ", "a…: QUIET", "a: BE QUIET"]
    assert lines_of(await talk.log()) == ["user: hi", "a: BE QUIET"]


async def test_after_model_may_answer_every_chunk_with_the_same_object() -> None:
    same = says("no comment")
    talk = Talk(LlmAgent(name="a", model=ScriptedModel(["be quiet"]), after_model_callback=lambda **_: same))  # pyright: ignore[reportUnknownLambdaType]
    assert lines_of(await talk.say("hi", run_config=STREAMED)) == ["a…: no comment", "a…: no comment", "a: no comment"]
    assert same == says("no comment")


async def test_a_replacement_keeps_the_usage_and_the_flags_of_what_it_replaces() -> None:
    usage = GenerateContentResponseUsageMetadata(total_token_count=7)
    model = ScriptedModel([says("long", usage_metadata=usage, turn_complete=True)])
    agent = LlmAgent(name="a", model=model, after_model_callback=lambda **_: says("short"))  # pyright: ignore[reportUnknownLambdaType]
    (event,) = await Talk(agent).say("hi")
    assert lines_of([event]) == ["a: short"]
    assert (event.usage_metadata, event.turn_complete) == (usage, True)


async def test_state_changed_by_model_callbacks_rides_on_the_whole_reply() -> None:
    def count(callback_context: CallbackContext, **_: object) -> None:
        callback_context.state["seen"] = callback_context.state.get("seen", 0) + 1

    agent = LlmAgent(
        name="a", model=ScriptedModel(["one two"]), before_model_callback=count, after_model_callback=count
    )
    talk = Talk(agent)
    events = await talk.say("hi", run_config=STREAMED)
    assert lines_of(events) == ["a…: one ", "a…: two", "a: one two", "a sets {'seen': 4}"]
    assert await talk.state() == {"seen": 4}


async def test_a_failing_model_can_be_answered_for() -> None:
    seen: list[object] = []

    async def apologise(
        callback_context: CallbackContext, llm_request: LlmRequest, error: Exception
    ) -> LlmResponse | None:
        seen.append(error)
        return says("Sorry, not now.")

    failure = ModelError("down", model="m")
    agent = LlmAgent(name="a", model=ScriptedModel([failure]), on_model_error_callback=[lambda **_: None, apologise])  # pyright: ignore[reportUnknownLambdaType]
    assert lines_of(await Talk(agent).say("hi")) == ["a: Sorry, not now."]
    assert seen == [failure]


async def test_a_failing_model_that_nobody_answers_for_fails_the_run() -> None:
    failure = ModelError("down", model="m")
    agent = LlmAgent(name="a", model=ScriptedModel([failure]), on_model_error_callback=lambda **_: None)  # pyright: ignore[reportUnknownLambdaType]
    with pytest.raises(ModelError):
        await Talk(agent).say("hi")


# of the tools


class Trace:
    """Callbacks around tools that write down what they were asked."""

    def __init__(self, *, before: Any = None, after: Any = None, on_error: Any = None) -> None:
        self.lines: list[str] = []
        self._before, self._after, self._on_error = before, after, on_error

    def before(self, tool: BaseTool, args: JsonObject, tool_context: ToolContext) -> Any:
        self.lines.append(f"before {tool.name} {args}")
        return self._before

    async def after(self, tool: BaseTool, args: JsonObject, tool_context: ToolContext, tool_response: Any) -> Any:
        self.lines.append(f"after {tool.name} {args} {tool_response}")
        return self._after

    def on_error(self, tool: BaseTool, args: JsonObject, tool_context: ToolContext, error: Exception) -> Any:
        self.lines.append(f"error {tool.name} {error}")
        return self._on_error

    async def run(self, number: int) -> list[str]:
        agent = LlmAgent(
            name="a",
            model=ScriptedModel([call("double", number=number), "done"]),
            tools=[double],
            before_tool_callback=self.before,
            after_tool_callback=self.after,
            on_tool_error_callback=self.on_error,
        )
        return lines_of(await Talk(agent).say("hi"))[1:-1]


async def test_callbacks_around_a_tool_see_what_goes_in_and_what_comes_out() -> None:
    trace = Trace()
    assert await trace.run(2) == ["a: double -> {'result': 4}", "a sets {'doubled': 2}"]
    assert trace.lines == ["before double {'number': 2}", "after double {'number': 2} 4"]


async def test_before_tool_answers_in_place_of_the_tool_and_after_tool_still_sees_it() -> None:
    trace = Trace(before={"cached": 4})
    assert await trace.run(2) == ["a: double -> {'cached': 4}"]
    assert trace.lines[1:] == ["after double {'number': 2} {'cached': 4}"]


async def test_an_empty_map_is_an_answer_of_before_tool() -> None:
    assert await Trace(before={}).run(2) == ["a: double -> {}"]


async def test_after_tool_replaces_the_result() -> None:
    assert await Trace(after={"secret": "***"}).run(2) == ["a: double -> {'secret': '***'}", "a sets {'doubled': 2}"]


async def test_an_error_of_a_tool_can_be_answered_for_and_after_tool_sees_that() -> None:
    trace = Trace(on_error={"error": "use a positive number"})
    assert await trace.run(-1) == ["a: double -> {'error': 'use a positive number'}"]
    assert trace.lines[1:] == [
        "error double too small",
        "after double {'number': -1} {'error': 'use a positive number'}",
    ]


async def test_an_error_of_a_tool_that_nobody_answers_for_fails_the_run() -> None:
    with pytest.raises(ValueError, match="too small"):
        await Trace().run(-1)


async def test_before_tool_can_change_the_arguments_in_place() -> None:
    def clamp(tool: BaseTool, args: JsonObject, tool_context: ToolContext) -> None:
        args["number"] = max(args["number"], 0)
        tool_context.state["clamped"] = True

    agent = LlmAgent(
        name="a",
        model=ScriptedModel([call("double", number=-5), "done"]),
        tools=[double],
        before_tool_callback=[clamp],
    )
    assert lines_of(await Talk(agent).say("hi")) == [
        "a: double(number=-5)",
        "a: double -> {'result': 0}",
        "a sets {'clamped': True, 'doubled': 0}",
        "a: done",
    ]


async def test_callbacks_may_answer_for_tools_that_do_not_exist() -> None:
    def instead(tool: BaseTool, error: Exception, **_: Any) -> JsonObject | None:
        return {"asked": tool.name, "error": str(error)} if tool.name == "treble" else None

    model = ScriptedModel([[call("treble"), call("quadruple")], "done"])
    trace = Trace()
    agent = LlmAgent(
        name="a",
        model=model,
        tools=[double],
        before_tool_callback=trace.before,
        on_tool_error_callback=instead,
    )
    events = lines_of(await Talk(agent).say("hi"))
    assert events[2:] == [
        "a: treble -> {'asked': 'treble', 'error': \"There is no tool 'treble'. Tools that exist: double.\"}",
        "a: quadruple -> {'error': \"There is no tool 'quadruple'. Tools that exist: double.\"}",
        "a: done",
    ]
    assert len(trace.lines) == 2


async def test_an_error_of_a_callback_is_not_taken_for_the_models() -> None:
    asked: list[str] = []

    def broken(**_: Any) -> None:
        raise KeyError("city")

    def answer_for_model(error: Exception, **_: Any) -> LlmResponse:
        asked.append(str(error))
        return says("never said")

    model = ScriptedModel(["hello"])
    talk = Talk(LlmAgent(name="a", model=model, after_model_callback=broken, on_model_error_callback=answer_for_model))
    with pytest.raises(KeyError):
        await talk.say("hi")
    assert asked == []
    assert [event.error_code for event in await talk.log()] == [None, "KeyError"]


# the request


def redact(callback_context: CallbackContext, llm_request: LlmRequest) -> None:
    """As ADK's agents do it: in place, part by part."""
    for one in llm_request.contents:
        for part in one.parts or ():
            if part.text:
                part.text = part.text.replace("secret", "REDACTED")
            if part.function_call is not None and part.function_call.args:
                part.function_call.args["number"] = 0


async def test_a_callback_that_writes_into_contents_changes_the_request_and_not_the_log() -> None:
    model = ScriptedModel([call("double", "c-1", number=2), "A secret.", "Well."])
    talk = Talk(LlmAgent(name="desk", model=model, tools=[double], before_model_callback=redact))
    await talk.say("My secret")
    await talk.say("and?")
    assert shown(model.requests[-1]) == [
        "user: My REDACTED",
        "model: double(number=0)",
        "user: double -> {'result': 4}",
        "model: A REDACTED.",
        "user: and?",
    ]
    log = await talk.log()
    assert lines_of(log)[:2] == ["user: My secret", "desk: double(number=2)"]
    assert "desk: A secret." in lines_of(log)


async def test_a_tool_that_writes_into_contents_changes_the_request_and_not_the_log() -> None:
    class Redacts(BaseTool):
        async def process_llm_request(self, *, tool_context: ToolContext, llm_request: LlmRequest) -> None:
            redact(tool_context, llm_request)
            llm_request.contents.append(Content(role="user", parts=[Part(text="Be brief.")]))

    model = ScriptedModel(["Well."])
    talk = Talk(LlmAgent(name="desk", model=model, tools=[Redacts(name="redacts", description="")]))
    await talk.say("My secret")
    assert shown(model.requests[-1]) == ["user: My REDACTED", "user: Be brief."]
    assert lines_of(await talk.log()) == ["user: My secret", "desk: Well."]
