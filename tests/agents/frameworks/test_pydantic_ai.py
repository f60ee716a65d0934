"""Agents of Pydantic AI as agents."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry, RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred
from pydantic_ai.messages import BinaryContent, ModelMessage, ModelResponse, TextPart, ThinkingPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.tools import DeferredToolRequests, ToolDefinition
from pydantic_ai.toolsets import ExternalToolset

from greenroom.agents.frameworks.pydantic_ai.agent import PydanticAiAgent
from greenroom.agents.frameworks.pydantic_ai.chat_model import GreenroomModel
from greenroom.errors import AgentConfigError, ModelError
from greenroom.invocation.user_context import CallbackContext
from greenroom.records.base import JsonObject
from greenroom.records.content import Blob, Content, FunctionCall, Part
from greenroom.records.event import Event
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.testing.scripted_model import ScriptedModel
from tests.agents.frameworks.contract import *  # noqa: F403 - the contract's tests
from tests.agents.frameworks.contract import contents
from tests.agents.frameworks.pydantic_ai_agents import PydanticAiFramework
from tests.agents.talk import STREAMED, Talk, answer, call, lines_of, shown


@pytest.fixture
def framework() -> PydanticAiFramework:
    return PydanticAiFramework()


class City(BaseModel):
    name: str
    inhabitants: int


@dataclass
class Desk:
    context: CallbackContext
    clerk: str


def desk(agent: Agent[Any, Any], **options: Any) -> Talk:
    return Talk(PydanticAiAgent(name="desk", agent=agent, **options))


def asked(events: list[Event]) -> list[FunctionCall]:
    return [one for event in events if event.long_running_tool_ids for one in event.get_function_calls()]


async def test_a_call_that_has_returned_is_not_made_again_when_another_one_fails(
    framework: PydanticAiFramework,
) -> None:
    ran: list[str] = []

    async def good() -> str:
        ran.append("good")
        return "good"

    async def bad() -> str:
        ran.append("bad")
        await asyncio.sleep(0.02)
        if ran.count("bad") == 1:
            raise ConnectionError("away")
        return "bad"

    talk = Talk(framework.agent([call("good", "c-1"), call("bad", "c-2")], "Both.", tools=[good, bad]))

    with pytest.raises(ConnectionError):
        await talk.say("go")
    states = [event.actions.agent_state for event in await talk.log() if event.actions.agent_state]

    assert states[-1] == {"results": {"c-1": {"returned": "good"}}}
    run_id = (await talk.log())[0].invocation_id
    assert lines_of(contents(await talk.say(None, invocation_id=run_id))) == [
        "desk: bad -> {'result': 'bad'}",
        "desk: Both.",
    ]
    assert ran == ["good", "bad", "bad"]
    assert framework.prompts[-1] == ["go", "good", "bad"]


async def test_calls_that_were_never_made_are_closed_by_the_next_message(framework: PydanticAiFramework) -> None:
    async def bad() -> str:
        raise ConnectionError("away")

    talk = Talk(framework.agent(call("bad", "c-1"), "Sorry.", tools=[bad]))
    with pytest.raises(ConnectionError):
        await talk.say("go")

    assert lines_of(contents(await talk.say("and now?"))) == ["desk: Sorry."]
    assert framework.prompts[-1][0] == "go"
    assert framework.prompts[-1][-1] == "and now?"


async def test_an_output_that_is_no_text_is_written_as_json(framework: PydanticAiFramework) -> None:
    oslo = call("final_result", "c-1", name="Oslo", inhabitants=717_710)
    talk = desk(Agent(framework.model(oslo, "Again."), output_type=City))

    events = contents(await talk.say("a city?"))

    assert lines_of(events) == ['desk: {"name":"Oslo","inhabitants":717710}']
    assert events[0].is_final_response()


async def test_what_the_model_must_do_again_is_told_to_it(framework: PydanticAiFramework) -> None:
    def look_up(order: int) -> str:
        if order < 0:
            raise ModelRetry("Orders have positive numbers")
        return "paid"

    script = [call("look_up", "c-1", order=-7), call("look_up", "c-2", order=7), "It was paid."]
    talk = desk(Agent(framework.model(*script), tools=[look_up]))

    assert lines_of(contents(await talk.say("order 7?"))) == [
        "desk: look_up(order=-7)",
        "desk: look_up -> {'error': 'Orders have positive numbers'}",
        "desk: look_up(order=7)",
        "desk: look_up -> {'result': 'paid'}",
        "desk: It was paid.",
    ]


async def test_a_call_with_wrong_arguments_has_a_response(framework: PydanticAiFramework) -> None:
    async def look_up(order: int) -> str:
        return "paid"

    script = [[call("look_up", "c-1", order="seven"), call("look_up", "c-2", order=8), call("none", "c-3")], "Paid."]
    events = contents(await Talk(framework.agent(*script, tools=[look_up])).say("orders 7 and 8?"))

    responses = {one.id: one.response for event in events for one in event.get_function_responses()}
    assert responses["c-2"] == {"result": "paid"}
    assert "valid integer" in str(responses["c-1"])
    assert "Unknown tool name: 'none'" in str(responses["c-3"])
    assert lines_of(events)[-1] == "desk: Paid."


async def test_dependencies_are_made_for_each_turn_and_change_the_state(framework: PydanticAiFramework) -> None:
    script = [call("count", "c-1"), "One.", call("count", "c-2"), "Two."]
    agent = Agent(framework.model(*script), deps_type=Desk)

    @agent.tool
    def count(ctx: RunContext[Desk]) -> str:
        state = ctx.deps.context.state
        state["count"] = state.get("count", 0) + 1
        return f"{ctx.deps.clerk} counts {state['count']}"

    async def make(context: CallbackContext) -> Desk:
        return Desk(context, clerk="Ada")

    talk = desk(agent, deps=make)
    await talk.say("count")
    assert await talk.state() == {"count": 1}
    await talk.say("count again")

    assert await talk.state() == {"count": 2}
    assert framework.prompts[-1][-1] == "Ada counts 2"


async def test_one_call_is_approved_and_another_one_is_not(framework: PydanticAiFramework) -> None:
    paid: list[int] = []

    async def look_up() -> str:
        return "found"

    async def pay(amount: int) -> str:
        paid.append(amount)
        return f"paid {amount}"

    script = [[call("pay", "c-1", amount=5), call("look_up", "c-2"), call("pay", "c-3", amount=7)], "Done."]
    talk = Talk(framework.agent(*script, tools=[pay, look_up], asks={"pay"}))

    first, second = asked(await talk.say("pay both"))
    assert await talk.say(answer("adk_request_confirmation", first.id, {"confirmed": True})) == []
    assert paid == []
    events = await talk.say(answer("adk_request_confirmation", second.id, {"confirmed": False}))

    assert paid == [5]
    assert lines_of(contents(events)) == [
        "desk: pay -> {'error': 'pay has not run: a person rejected the call.'}",
        "desk: pay -> {'result': 'paid 5'}",
        "desk: Done.",
    ]
    assert framework.prompts[-1] == [
        "pay both", "paid 5", "found", "pay has not run: a person rejected the call."
    ]  # fmt: skip


async def test_a_tool_asks_for_an_approval_out_of_its_code(framework: PydanticAiFramework) -> None:
    def pay(ctx: RunContext[None], amount: int) -> str:
        if amount > 100 and not ctx.tool_call_approved:
            raise ApprovalRequired
        return f"paid {amount}"

    agent: Agent[None, Any] = Agent(
        framework.model([call("pay", "c-1", amount=5), call("pay", "c-2", amount=500)], "Done."),
        output_type=[str, DeferredToolRequests],
        tools=[pay],
    )
    talk = desk(agent)

    [request] = asked(await talk.say("pay"))
    events = await talk.say(answer("adk_request_confirmation", request.id, {"confirmed": True}))

    assert lines_of(contents(events)) == ["desk: pay -> {'result': 'paid 500'}", "desk: Done."]


async def test_a_client_executes_an_external_tool(framework: PydanticAiFramework) -> None:
    schema: JsonObject = {"type": "object", "properties": {"area": {"type": "string"}}}
    external = ExternalToolset([ToolDefinition(name="show_map", parameters_json_schema=schema)])
    talk = desk(Agent(framework.model(call("show_map", "c-1", area="Oslo"), "There it is."), toolsets=[external]))

    [request] = asked(await talk.say("a map"))
    assert (request.name, request.args) == ("show_map", {"area": "Oslo"})
    events = await talk.say(answer("show_map", request.id, {"result": "shown"}))

    assert lines_of(contents(events)) == ["desk: There it is."]
    assert framework.prompts[-1] == ["a map", "shown"]


async def test_a_tool_that_defers_its_call_gets_the_answer_as_its_result(framework: PydanticAiFramework) -> None:
    def ask(question: str) -> str:
        raise CallDeferred(metadata={"urgent": True})

    talk = desk(Agent(framework.model(call("ask", "c-1", question="When?"), "Good."), tools=[ask]))

    [request] = asked(await talk.say("ask me"))
    assert request.name == "adk_request_input"
    assert (request.args or {})["payload"] == {"tool": "ask", "args": {"question": "When?"}, "urgent": True}
    await talk.say(answer("adk_request_input", request.id, {"result": "tomorrow"}))

    assert framework.prompts[-1] == ["ask me", "tomorrow"]


async def test_a_run_that_waits_is_not_disturbed_by_another_one(framework: PydanticAiFramework) -> None:
    async def pay(amount: int) -> str:
        return f"paid {amount}"

    talk = Talk(framework.agent(call("pay", "c-1", amount=5), "Hello.", "Done.", tools=[pay], asks={"pay"}))

    [request] = asked(await talk.say("pay 5"))
    assert lines_of(contents(await talk.say("hello"))) == ["desk: Hello."]
    events = await talk.say(answer("adk_request_confirmation", request.id, {"confirmed": True}))

    assert lines_of(contents(events)) == ["desk: pay -> {'result': 'paid 5'}", "desk: Done."]
    assert framework.prompts[-1] == ["pay 5", "paid 5"]


async def test_thoughts_are_parts_and_files_are_content() -> None:
    seen: list[ModelMessage] = []

    def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.extend(messages)
        return ModelResponse([ThinkingPart("A cat?"), TextPart("A cat.")])

    talk = desk(Agent(FunctionModel(reply)))
    image = Part(inline_data=Blob(data=b"png", mime_type="image/png"))
    events = contents(await talk.say(Content(role="user", parts=[Part(text="what is it?"), image])))

    assert lines_of(events) == ["desk: (A cat?)", "desk: A cat."]
    [prompt] = [part for message in seen for part in message.parts if isinstance(part, UserPromptPart)]
    assert prompt.content == ["what is it?", BinaryContent(b"png", media_type="image/png")]


async def test_the_log_grows_with_the_conversation_and_not_with_its_square() -> None:
    def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse([TextPart("x" * 1000)])

    talk = desk(Agent(FunctionModel(reply), instructions="Be brief.", system_prompt="You are a desk."))

    sizes: list[int] = []
    for turn in range(20):
        await talk.say(f"message {turn}")
        sizes.append(sum(len(msgspec.json.encode(event)) for event in await talk.log()))

    assert sizes[-1] - sizes[-2] < 1.1 * (sizes[2] - sizes[1])


async def test_a_history_that_a_processor_shortened_stays_short(framework: PydanticAiFramework) -> None:
    class KeepLast(AbstractCapability[Any]):
        async def before_model_request(self, ctx: RunContext[Any], request_context: Any) -> Any:
            ctx.messages[:] = ctx.messages[-1:]
            request_context.messages = list(ctx.messages)
            return request_context

    talk = desk(Agent(framework.model("One.", "Two.", "Three."), capabilities=[KeepLast()]))
    for text in ("first", "second", "third"):
        await talk.say(text)

    assert framework.prompts == [["first"], ["second"], ["third"]]
    states = [event.actions.agent_state for event in await talk.log() if event.actions.agent_state]
    assert [(len(state["messages"]), "replaces" in state) for state in states] == [(2, False), (2, True), (2, True)]


@pytest.mark.parametrize("options", [{}, {"run_config": STREAMED}])
async def test_a_model_of_this_package(options: dict[str, Any]) -> None:
    seen: list[list[str]] = []

    def reply(request: LlmRequest) -> Any:
        seen.append(shown(request))
        if len(seen) == 1:
            return [Part(text="Hm.", thought=True), call("look_up", "c-1", order=7)]
        return "It was paid."

    async def look_up(order: int) -> str:
        """Looks up an order."""
        return f"order {order} was paid"

    agent = Agent(GreenroomModel(ScriptedModel(reply)), tools=[look_up], instructions="Be brief.")
    events = await desk(agent).say("order 7?", **options)

    assert lines_of(contents(events)) == [
        "desk: (Hm.)",
        "desk: look_up(order=7)",
        "desk: look_up -> {'result': 'order 7 was paid'}",
        "desk: It was paid.",
    ]
    assert seen[1][-1] == "user: look_up -> {'result': 'order 7 was paid'}"
    if options:
        assert "".join(event.content.text() for event in events if event.partial and event.content) == "It was paid."


async def test_an_error_of_a_model_of_this_package_ends_the_run() -> None:
    def reply(request: LlmRequest) -> LlmResponse:
        return LlmResponse(error_code="SAFETY", error_message="no")

    with pytest.raises(ModelError, match="no"):
        await desk(Agent(GreenroomModel(ScriptedModel(reply)))).say("hello")


def test_an_agent_is_needed() -> None:
    with pytest.raises(AgentConfigError, match="must be an agent of Pydantic AI, not str"):
        PydanticAiAgent(name="desk", agent="an agent")
