"""Agents of the OpenAI Agents SDK as agents."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import agents
import agents.testing
import msgspec
import pytest
from agents import Agent, RunContextWrapper, function_tool, handoff
from agents.mcp import MCPServerStdio
from agents.testing import assistant_message
from openai.types.responses import ResponseFunctionWebSearch
from openai.types.responses.response_function_web_search import ActionSearch
from openai.types.responses.response_output_item import McpApprovalRequest, McpCall
from pydantic import BaseModel

from greenroom.agents.frameworks.openai_agents.agent import GUARDRAIL_TRIPWIRE, OpenAIAgentsAgent
from greenroom.agents.frameworks.openai_agents.model import OpenAIAgentsModel
from greenroom.errors import AgentConfigError, LlmCallsLimitExceeded
from greenroom.invocation.user_context import CallbackContext
from greenroom.records.content import Blob, Content, FunctionCall, Part
from greenroom.records.event import Event
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.records.run import RunConfig
from greenroom.runner.runner import Runner
from greenroom.testing.scripted_model import ScriptedModel
from tests.agents.frameworks.contract import *  # noqa: F403 - the contract's tests
from tests.agents.frameworks.contract import contents
from tests.agents.frameworks.openai_agents_agents import OpenAIAgentsFramework
from tests.agents.talk import STREAMED, Talk, answer, call, lines_of

_BOOKSHOP = Path(__file__).parents[2] / "tools" / "mcp" / "bookshop.py"


@pytest.fixture
def framework() -> OpenAIAgentsFramework:
    return OpenAIAgentsFramework()


class City(BaseModel):
    name: str
    inhabitants: int


@dataclass
class Desk:
    context: CallbackContext
    clerk: str


def desk(agent: Agent[Any], **options: Any) -> Talk:
    return Talk(OpenAIAgentsAgent(name="desk", agent=agent, **options))


def restarted(talk: Talk, agent: Agent[Any]) -> Talk:
    """The conversation with an agent that another process has made."""
    again = desk(agent)
    app = again.runner.app
    again.runner = cast("Any", Runner(app=app, session_service=talk.runner.session_service))
    return again


def asked(events: list[Event]) -> list[FunctionCall]:
    return [one for event in events if event.long_running_tool_ids for one in event.get_function_calls()]


def speakers(events: list[Event]) -> list[str | None]:
    return [(event.custom_metadata or {}).get("agent") for event in events if event.usage_metadata is not None]


# hand-offs


def triage(framework: OpenAIAgentsFramework, *script: Any, **billing: Any) -> Agent[Any]:
    model = framework.model(*script)
    return Agent(name="Desk", model=model, handoffs=[Agent(name="Billing", model=model, **billing)])


async def test_a_hand_off_is_a_call_and_the_next_turn_continues_with_its_agent(
    framework: OpenAIAgentsFramework,
) -> None:
    transfer = call("transfer_to_billing", "c-1")
    talk = desk(triage(framework, transfer, "I see to it."))

    events = contents(await talk.say("my invoice is wrong"))

    assert lines_of(events) == [
        "desk: transfer_to_billing()",
        "desk: transfer_to_billing -> {'assistant': 'Billing'}",
        "desk: I see to it.",
    ]
    assert speakers(events) == [None, "Billing"]

    talk = restarted(talk, triage(framework, "Still here."))
    events = contents(await talk.say("are you there?"))
    assert speakers(events) == ["Billing"]
    assert framework.prompts[-1][0] == "my invoice is wrong"
    assert framework.prompts[-1][-2:] == ["I see to it.", "are you there?"]


async def test_a_run_that_was_cut_off_after_a_hand_off_continues_there(framework: OpenAIAgentsFramework) -> None:
    handed: list[str] = []
    ran: list[str] = []

    @function_tool(failure_error_function=None)
    def look_up() -> str:
        ran.append("look_up")
        if len(ran) == 1:
            raise ConnectionError("away")
        return "found"

    def latest(data: agents.HandoffInputData) -> agents.HandoffInputData:
        return data.clone(input_history=(), pre_handoff_items=(), new_items=data.new_items[-1:])

    def make(*script: Any) -> Agent[Any]:
        model = framework.model(*script)
        billing = Agent(name="Billing", model=model, tools=[look_up])
        transfer = handoff(billing, on_handoff=lambda _: handed.append("billing"), input_filter=latest)
        return Agent(name="Desk", model=model, handoffs=[transfer])

    talk = desk(make(call("transfer_to_billing", "c-1"), call("look_up", "c-2")))
    with pytest.raises(agents.UserError, match="away"):
        await talk.say("my invoice is wrong")
    prompts = list(framework.prompts)

    talk = restarted(talk, make("Here it is."))
    run_id = (await talk.log())[0].invocation_id
    events = contents(await talk.say(None, invocation_id=run_id))

    assert lines_of(events) == ["desk: look_up -> {'result': 'found'}", "desk: Here it is."]
    assert speakers(events) == ["Billing"]
    assert handed == ["billing"]
    assert "my invoice is wrong" not in prompts[1]  # as the filter wants it
    assert "my invoice is wrong" not in framework.prompts[-1]


async def test_a_run_that_takes_another_way_than_before_is_refused(framework: OpenAIAgentsFramework) -> None:
    @function_tool(failure_error_function=None)
    def look_up() -> str:
        raise ConnectionError("away")

    talk = desk(triage(framework, call("transfer_to_billing", "c-1"), call("look_up", "c-2"), tools=[look_up]))
    with pytest.raises(agents.UserError, match="away"):
        await talk.say("my invoice is wrong")

    other = triage(framework, "Hello.")
    other.name = "Reception"
    talk = restarted(talk, other)
    run_id = (await talk.log())[0].invocation_id
    with pytest.raises(AgentConfigError, match="cut off in agent 'Desk', and now reaches 'Reception'"):
        await talk.say(None, invocation_id=run_id)


# tools


async def test_a_call_that_has_returned_is_not_made_again_when_another_one_fails(
    framework: OpenAIAgentsFramework,
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

    with pytest.raises(agents.UserError, match="away"):
        await talk.say("go")
    states = [event.actions.agent_state for event in await talk.log() if event.actions.agent_state]

    assert states[-1] == {"results": {"c-1": "good"}}
    run_id = (await talk.log())[0].invocation_id
    assert lines_of(contents(await talk.say(None, invocation_id=run_id))) == [
        "desk: bad -> {'result': 'bad'}",
        "desk: Both.",
    ]
    assert ran == ["good", "bad", "bad"]
    assert framework.prompts[-1] == ["go", "good", "bad"]


async def test_calls_that_were_never_made_are_closed_by_the_next_message(framework: OpenAIAgentsFramework) -> None:
    async def bad() -> str:
        raise ConnectionError("away")

    talk = Talk(framework.agent(call("bad", "c-1"), "Sorry.", tools=[bad]))
    with pytest.raises(agents.UserError, match="away"):
        await talk.say("go")

    assert lines_of(contents(await talk.say("and now?"))) == ["desk: Sorry."]
    assert framework.prompts[-1] == [
        "go", "This call was never made: the run that it belongs to has ended before.", "and now?"
    ]  # fmt: skip


async def test_an_error_of_a_tool_is_told_to_the_model(framework: OpenAIAgentsFramework) -> None:
    @function_tool
    def look_up(order: int) -> str:
        raise ValueError(f"no order {order}")

    script = [call("look_up", "c-1", order=7), call("look_up", "c-2", order="seven"), "Sorry."]
    events = contents(await desk(Agent(name="Desk", model=framework.model(*script), tools=[look_up])).say("order 7?"))

    first, second = [str(one.response) for event in events for one in event.get_function_responses()]
    assert "An error occurred while running the tool" in first
    assert "An error occurred while running the tool" in second
    assert lines_of(events)[-1] == "desk: Sorry."


async def test_a_response_that_the_sdk_refuses_is_not_stored(framework: OpenAIAgentsFramework) -> None:
    talk = Talk(framework.agent(call("nothing", "c-1"), "Good."))

    with pytest.raises(agents.ModelBehaviorError):
        await talk.say("go")

    assert lines_of(contents(await talk.log())) == ["user: go"]
    run_id = (await talk.log())[0].invocation_id
    assert lines_of(contents(await talk.say(None, invocation_id=run_id))) == ["desk: Good."]


async def test_a_tool_whose_result_is_the_output(framework: OpenAIAgentsFramework) -> None:
    @function_tool
    def city() -> City:
        return City(name="Oslo", inhabitants=717_710)

    agent = Agent(
        name="Desk",
        model=framework.model(call("city", "c-1"), '{"name": "Bergen", "inhabitants": 294029}'),
        tools=[city],
        tool_use_behavior="stop_on_first_tool",
        output_type=City,
    )
    talk = desk(agent)

    events = contents(await talk.say("a city?"))

    assert lines_of(events)[-1] == 'desk: {"name":"Oslo","inhabitants":717710}'
    assert events[-1].is_final_response()
    await talk.say("again")
    assert framework.prompts[-1] == ["a city?", "name='Oslo' inhabitants=717710", "again"]


async def test_a_structured_output_is_the_models_json(framework: OpenAIAgentsFramework) -> None:
    oslo = '{"name": "Oslo", "inhabitants": 717710}'
    talk = desk(Agent(name="Desk", model=framework.model(oslo), output_type=City))

    assert lines_of(contents(await talk.say("a city?"))) == [f"desk: {oslo}"]
    assert "inhabitants" in str(framework.requests[0].config.response_json_schema)


async def test_the_context_is_made_for_each_turn_and_changes_the_state(framework: OpenAIAgentsFramework) -> None:
    @function_tool
    def count(wrapper: RunContextWrapper[Desk]) -> str:
        state = wrapper.context.context.state
        state["count"] = state.get("count", 0) + 1
        return f"{wrapper.context.clerk} counts {state['count']}"

    async def make(context: CallbackContext) -> Desk:
        return Desk(context, clerk="Ada")

    script = [call("count", "c-1"), "One.", call("count", "c-2"), "Two."]
    talk = desk(Agent(name="Desk", model=framework.model(*script), tools=[count]), context=make)
    await talk.say("count")
    assert await talk.state() == {"count": 1}
    await talk.say("count again")

    assert await talk.state() == {"count": 2}
    assert framework.prompts[-1][-1] == "Ada counts 2"


async def test_the_sdks_limit_of_turns_ends_the_run(framework: OpenAIAgentsFramework) -> None:
    async def again() -> str:
        return "again"

    agent = framework.agent(lambda texts: call("again", f"c-{len(texts)}"), tools=[again])
    agent.max_turns = 2

    with pytest.raises(agents.MaxTurnsExceeded):
        await Talk(agent).say("go")

    assert len(framework.prompts) == 2


# approvals


async def test_one_call_is_approved_and_another_one_is_not(framework: OpenAIAgentsFramework) -> None:
    paid: list[int] = []
    looked: list[str] = []

    async def look_up() -> str:
        looked.append("up")
        return "found"

    async def pay(amount: int) -> str:
        paid.append(amount)
        return f"paid {amount}"

    def make(*script: Any) -> OpenAIAgentsAgent:
        return framework.agent(*script, tools=[pay, look_up], asks={"pay"})

    talk = Talk(make([call("pay", "c-1", amount=5), call("look_up", "c-2"), call("pay", "c-3", amount=7)]))
    first, second = asked(await talk.say("pay both"))
    assert await talk.say(answer("adk_request_confirmation", first.id, {"confirmed": True})) == []
    assert paid == []

    talk = restarted(talk, make("Done.").agent)
    events = await talk.say(answer("adk_request_confirmation", second.id, {"confirmed": False}))

    assert paid == [5]
    assert looked == ["up"]
    assert sorted(lines_of(contents(events))[:2]) == [
        "desk: pay -> {'result': 'paid 5'}",
        "desk: pay -> {'result': 'pay has not run: a person rejected the call.'}",
    ]
    assert framework.prompts[-1][0] == "pay both"
    assert sorted(framework.prompts[-1][1:]) == ["found", "paid 5", "pay has not run: a person rejected the call."]


async def test_a_person_changes_the_arguments_of_a_call(framework: OpenAIAgentsFramework) -> None:
    async def pay(amount: int) -> str:
        return f"paid {amount}"

    talk = Talk(framework.agent(call("pay", "c-1", amount=500), "Done.", tools=[pay], asks={"pay"}))
    [request] = asked(await talk.say("pay 500"))
    edited = {"confirmed": True, "payload": {"amount": 5}}
    events = await talk.say(answer("adk_request_confirmation", request.id, edited))

    assert lines_of(contents(events)) == ["desk: pay -> {'result': 'paid 5'}", "desk: Done."]


async def test_a_policy_says_which_calls_need_an_approval(framework: OpenAIAgentsFramework) -> None:
    async def is_much(wrapper: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str) -> bool:
        return arguments["amount"] > 100

    @function_tool(needs_approval=is_much)
    def pay(amount: int) -> str:
        return f"paid {amount}"

    script = [[call("pay", "c-1", amount=5), call("pay", "c-2", amount=500)], "Done."]
    talk = desk(Agent(name="Desk", model=framework.model(*script), tools=[pay]))

    events = await talk.say("pay")
    [request] = asked(events)
    assert "desk: pay -> {'result': 'paid 5'}" in lines_of(events)
    events = await talk.say(answer("adk_request_confirmation", request.id, {"confirmed": True}))

    assert lines_of(contents(events)) == ["desk: pay -> {'result': 'paid 500'}", "desk: Done."]


async def test_an_agent_as_a_tool_needs_the_approval_itself(framework: OpenAIAgentsFramework) -> None:
    @function_tool(needs_approval=True)
    def pay() -> str:
        return "paid"

    cashier = Agent(name="Cashier", model=framework.model(call("pay", "c-9"), "Paid."), tools=[pay])
    tool = cashier.as_tool("cashier", "Pays.")
    talk = desk(Agent(name="Desk", model=framework.model(call("cashier", "c-1", input="pay 5"), "Done."), tools=[tool]))

    with pytest.raises(AgentConfigError, match="'pay' of an agent that is itself a tool needs an approval"):
        await talk.say("pay 5")


async def test_models_of_agents_that_are_tools_are_counted(framework: OpenAIAgentsFramework) -> None:
    class Provider(agents.ModelProvider):
        def get_model(self, model_name: str | None) -> Any:
            assert model_name == "small"
            return framework.model("It was sunny.")

    tool = Agent(name="Weather", model="small").as_tool("weather", "Tells the weather.")
    script = [call("weather", "c-1", input="Oslo?"), "Sunny."]
    agent = Agent(name="Desk", model=framework.model(*script), tools=[tool])
    config = agents.RunConfig(model_provider=Provider())

    events = await desk(agent, run_config=config).say("the weather in Oslo?")

    assert [event.content is None for event in events if event.usage_metadata is not None] == [False, True, False]
    assert lines_of(contents(events))[1:] == ["desk: weather -> {'result': 'It was sunny.'}", "desk: Sunny."]

    framework.prompts.clear()
    agent.model = framework.model(*script)
    with pytest.raises(LlmCallsLimitExceeded):
        await desk(agent, run_config=config).say("again", run_config=RunConfig(max_llm_calls=1))
    assert len(framework.prompts) == 1


async def test_a_run_that_waits_is_not_disturbed_by_another_one(framework: OpenAIAgentsFramework) -> None:
    async def pay(amount: int) -> str:
        return f"paid {amount}"

    talk = Talk(framework.agent(call("pay", "c-1", amount=5), "Hello.", "Done.", tools=[pay], asks={"pay"}))

    [request] = asked(await talk.say("pay 5"))
    assert lines_of(contents(await talk.say("hello"))) == ["desk: Hello."]
    events = await talk.say(answer("adk_request_confirmation", request.id, {"confirmed": True}))

    assert lines_of(contents(events)) == ["desk: pay -> {'result': 'paid 5'}", "desk: Done."]
    assert framework.prompts[-1] == ["pay 5", "paid 5"]


# guardrails


def tripped_by(word: str) -> Any:
    def check(*given: Any) -> agents.GuardrailFunctionOutput:
        return agents.GuardrailFunctionOutput(output_info=None, tripwire_triggered=word in str(given[2]))

    return check


async def test_a_message_that_a_guardrail_refuses_ends_the_run_and_is_forgotten(
    framework: OpenAIAgentsFramework,
) -> None:
    guardrail = agents.InputGuardrail(tripped_by("homework"), name="no homework", run_in_parallel=False)
    talk = desk(Agent(name="Desk", model=framework.model("Hello."), input_guardrails=[guardrail]))

    [refusal] = await talk.say("do my homework")

    assert refusal.error_code == GUARDRAIL_TRIPWIRE
    assert refusal.error_message == "The guardrail 'no homework' has ended the run"
    assert lines_of(contents(await talk.say("hello"))) == ["desk: Hello."]
    assert framework.prompts == [["hello"]]


async def test_a_message_that_is_refused_after_a_tool_has_run_is_forgotten(framework: OpenAIAgentsFramework) -> None:
    looked_up = asyncio.Event()

    @function_tool
    async def look_up() -> str:
        looked_up.set()
        return "found"

    async def check(wrapper: Any, agent: Any, given: Any) -> agents.GuardrailFunctionOutput:
        is_refused = "homework" in str(given)
        if is_refused:
            await looked_up.wait()
            await asyncio.sleep(0.02)
        return agents.GuardrailFunctionOutput(output_info=None, tripwire_triggered=is_refused)

    talk = desk(
        Agent(
            name="Desk",
            model=framework.model(call("look_up", "c-1"), "Hello."),
            tools=[look_up],
            input_guardrails=[agents.InputGuardrail(check)],
        )
    )

    assert (await talk.say("do my homework"))[-1].error_code == GUARDRAIL_TRIPWIRE
    await talk.say("hello")
    assert framework.prompts[-1] == ["hello"]


async def test_an_output_that_a_guardrail_refuses_is_not_stored(framework: OpenAIAgentsFramework) -> None:
    guardrail = agents.OutputGuardrail(tripped_by("secret"), name="output")
    talk = desk(Agent(name="Desk", model=framework.model("The secret.", "Hello."), output_guardrails=[guardrail]))

    [refusal] = await talk.say("tell me")

    assert refusal.error_code == GUARDRAIL_TRIPWIRE
    assert refusal.usage_metadata is not None
    assert refusal.usage_metadata.input_tokens == 10
    assert "secret" not in str(await talk.log())
    assert lines_of(contents(await talk.say("hello"))) == ["desk: Hello."]
    assert framework.prompts[-1] == ["tell me", "hello"]


async def test_a_result_that_a_guardrail_replaces_is_not_an_event(framework: OpenAIAgentsFramework) -> None:
    def hide(data: Any) -> agents.ToolGuardrailFunctionOutput:
        return agents.ToolGuardrailFunctionOutput.reject_content("hidden")

    @function_tool(tool_output_guardrails=[agents.ToolOutputGuardrail(hide)])
    def look_up() -> str:
        return "the secret"

    talk = desk(Agent(name="Desk", model=framework.model(call("look_up", "c-1"), "Hidden."), tools=[look_up]))

    assert lines_of(contents(await talk.say("look it up"))) == [
        "desk: look_up()",
        "desk: look_up -> {'result': 'hidden'}",
        "desk: Hidden.",
    ]


# what the models see and say


async def test_thoughts_are_parts_and_files_are_content() -> None:
    parts = [Part(text="A cat?", thought=True), Part(text="A cat.")]
    requests: list[LlmRequest] = []

    def reply(request: LlmRequest) -> Any:
        requests.append(request)
        return LlmResponse(content=Content(role="model", parts=parts))

    talk = desk(Agent(name="Desk", model=OpenAIAgentsModel(ScriptedModel(reply))))
    image = Part(inline_data=Blob(data=b"png", mime_type="image/png"))

    events = await talk.say(Content(role="user", parts=[Part(text="what is it?"), image]), run_config=STREAMED)

    assert lines_of(contents(events)) == ["desk: (A cat?)", "desk: A cat."]
    assert lines_of(events)[0].startswith("desk…: (")
    [prompt] = requests[0].contents
    assert (prompt.parts or [])[1].inline_data == image.inline_data


async def test_tools_that_the_service_runs() -> None:
    search = ResponseFunctionWebSearch(
        id="ws-1", type="web_search_call", status="completed", action=ActionSearch(type="search", query="Oslo")
    )
    model = agents.testing.ScriptedModel(
        [[search, assistant_message("Found it.")], [assistant_message("Again.", item_id="m-2")]]
    )
    talk = desk(Agent(name="Desk", model=model))

    [event] = contents(await talk.say("search"))
    await talk.say("again")

    parts = (event.content.parts if event.content is not None else None) or []
    assert [part.tool_call.tool_type for part in parts if part.tool_call is not None] == ["web_search"]
    assert model.last_call is not None
    sent = model.last_call.input
    assert [item.get("type", item.get("role")) for item in sent] == ["user", "web_search_call", "message", "user"]


@pytest.mark.parametrize("edited", [False, True])
async def test_a_call_on_a_hosted_mcp_server_needs_an_approval(*, edited: bool) -> None:
    request = McpApprovalRequest(
        id="mcpr-1", type="mcp_approval_request", name="buy", arguments='{"title": "Emma"}', server_label="shop"
    )
    bought = McpCall(
        id="mcp-1", type="mcp_call", name="buy", arguments='{"title": "Emma"}', server_label="shop", output="bought"
    )
    model = agents.testing.ScriptedModel([[request], [bought, assistant_message("I see.")]])
    tool = agents.HostedMCPTool(
        tool_config={"type": "mcp", "server_label": "shop", "server_url": "https://shop.example"}
    )
    talk = desk(Agent(name="Desk", model=model, tools=[tool]))

    [asking] = asked(await talk.say("buy Emma"))
    decision: dict[str, Any] = {"confirmed": True}
    if edited:  # which the service doesn't take
        decision["payload"] = {"title": "Persuasion"}
    events = contents(await talk.say(answer("adk_request_confirmation", asking.id, decision)))

    assert lines_of(events)[0] == f"desk: buy -> {{'approved': {not edited}}}"
    assert lines_of(events)[-1] == "desk: I see."
    assert model.last_call is not None
    sent = model.last_call.input[-1]
    assert sent["approve"] is not edited
    assert ("Persuasion" in str(sent)) is edited


async def test_tools_of_an_mcp_server(framework: OpenAIAgentsFramework) -> None:
    async with MCPServerStdio({"command": sys.executable, "args": [str(_BOOKSHOP)]}) as server:
        script = [call("count_books", "c-1", author="Jane Austen"), "Found."]
        talk = desk(Agent(name="Desk", model=framework.model(*script), mcp_servers=[server]))

        events = contents(await talk.say("how many?"))

    [response] = [one for event in events for one in event.get_function_responses()]
    assert "11" in str(response.response)


async def test_the_sdk_traces_only_on_request(framework: OpenAIAgentsFramework) -> None:
    traced: list[str] = []

    class Collector(agents.TracingProcessor):
        def on_trace_start(self, trace: Any) -> None:
            traced.append(trace.name)

        def on_trace_end(self, trace: Any) -> None: ...
        def on_span_start(self, span: Any) -> None: ...
        def on_span_end(self, span: Any) -> None: ...
        def shutdown(self) -> None: ...
        def force_flush(self) -> None: ...

    agents.set_trace_processors([Collector()])
    try:
        await desk(Agent(name="Desk", model=framework.model("Hello."))).say("hello")
        assert traced == []
        await desk(Agent(name="Desk", model=framework.model("Hello.")), tracing=True).say("hello")
        assert traced == ["Agent workflow"]
    finally:
        agents.set_trace_processors([])


async def test_the_log_grows_with_the_conversation_and_not_with_its_square(framework: OpenAIAgentsFramework) -> None:
    async def look_up() -> str:
        return "y" * 1000

    def reply(texts: Any) -> Any:
        return "x" * 1000 if texts[-1][0] == "y" else call("look_up", f"c-{len(texts)}")

    talk = Talk(framework.agent(reply, tools=[look_up]))

    sizes: list[int] = []
    for turn in range(20):
        await talk.say(f"message {turn}")
        sizes.append(sum(len(msgspec.json.encode(event)) for event in await talk.log()))

    assert sizes[-1] - sizes[-2] < 1.1 * (sizes[2] - sizes[1])


def test_a_tool_whose_results_cannot_be_recorded_is_refused() -> None:
    shell = agents.ShellTool(executor=lambda request: "done")
    other = Agent(name="Shell", tools=[shell])

    with pytest.raises(AgentConfigError, match="agent 'Shell' has a ShellTool, which runs on this machine"):
        desk(Agent(name="Desk", handoffs=[other]))


def test_an_agent_is_needed() -> None:
    with pytest.raises(AgentConfigError, match="must be an agent of the OpenAI Agents SDK, not str"):
        OpenAIAgentsAgent(name="desk", agent="an agent")
