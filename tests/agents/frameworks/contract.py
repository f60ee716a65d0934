"""The tests that every hosted framework passes. A module imports them, and gives a fixture `framework`."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from typing import Any, Protocol, TypeAlias, cast

import pytest

from greenroom.agents.agent_tool import AgentTool
from greenroom.agents.frameworks.hosted import HostedAgent
from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.workflows import ParallelAgent, SequentialAgent
from greenroom.apps.app import App
from greenroom.errors import GuardrailBlocked, LlmCallsLimitExceeded
from greenroom.log.state import log_state_of
from greenroom.plugins.budget import BUDGET_EXCEEDED, BudgetLimit, BudgetPlugin
from greenroom.plugins.guardrails.patterns import PatternCheck
from greenroom.plugins.guardrails.plugin import GuardrailPlugin
from greenroom.records.content import Content, FunctionCall, Part
from greenroom.records.event import Event
from greenroom.records.run import RunConfig
from greenroom.records.session import GetSessionConfig
from greenroom.runner.in_memory import InMemoryRunner
from greenroom.runner.runner import Runner
from greenroom.sessions.in_memory import InMemorySessionService
from greenroom.telemetry.agent_spans import ModelCallSpan
from greenroom.telemetry.span import Trace
from greenroom.testing.scripted_model import ScriptedModel
from tests.agents.talk import STREAMED, Talk, call, lines_of

Step: TypeAlias = "str | FunctionCall | Sequence[FunctionCall] | Exception"
"""A reply of the scripted model: a text, calls, or an error."""

Script: TypeAlias = "Step | Callable[[Sequence[str]], Step]"
"""A reply, or a function that makes all replies out of the texts that the model is given."""

Tool: TypeAlias = Callable[..., Awaitable[str]]


class Framework(Protocol):
    """Makes agents of a framework with a scripted model, whose replies use 10 tokens of input and 5 of output."""

    prompts: list[list[str]]
    """The texts that the model was given with each call."""

    def agent(self, *script: Script, tools: Sequence[Tool] = (), asks: Collection[str] = ()) -> HostedAgent:
        """An agent with the name "desk".

        tools: async functions with typed parameters. asks: the names of those that a person must approve.
        """
        ...

    def answer(self, request: Event, *, approved: bool) -> Content:
        """A person's answer to the request for an approval in that event."""
        ...


async def look_up(order: int) -> str:
    """Looks up an order."""
    return f"order {order} was paid"


def contents(events: Sequence[Event]) -> list[Event]:
    return [event for event in events if event.content is not None and not event.partial]


async def test_a_text_is_streamed_and_stored_once(framework: Framework) -> None:
    talk = Talk(framework.agent("Good morning to you."))

    events = await talk.say("hello", run_config=STREAMED)

    chunks = [event for event in events if event.partial]
    assert "".join(event.content.text() for event in chunks if event.content) == "Good morning to you."
    assert len(chunks) > 1
    [whole] = contents(events)
    assert {event.id for event in chunks} == {whole.id}
    assert lines_of(contents(await talk.log())) == ["user: hello", "desk: Good morning to you."]


async def test_the_model_sees_earlier_turns(framework: Framework) -> None:
    talk = Talk(framework.agent("First.", "Second."))

    await talk.say("one")
    await talk.say("two")

    assert framework.prompts == [["one"], ["one", "First.", "two"]]


async def test_calls_of_tools_and_their_results_are_events(framework: Framework) -> None:
    talk = Talk(framework.agent(call("look_up", "c-1", order=7), "It was paid.", tools=[look_up]))

    events = contents(await talk.say("order 7?"))

    assert [call.name for event in events for call in event.get_function_calls()] == ["look_up"]
    [response] = [response for event in events for response in event.get_function_responses()]
    assert (response.id, response.response) == ("c-1", {"result": "order 7 was paid"})
    assert events[-1].is_final_response()
    assert framework.prompts[1][-1] == "order 7 was paid"


async def test_usage_is_counted_for_each_call_of_the_model(framework: Framework) -> None:
    talk = Talk(framework.agent(call("look_up", "c-1", order=7), "It was paid.", tools=[look_up]))

    events = await talk.say("order 7?")

    used = [event.usage_metadata for event in events if event.usage_metadata is not None and not event.partial]
    assert [(usage.input_tokens, usage.output_tokens) for usage in used] == [(10, 5), (10, 5)]


async def test_the_limit_of_model_calls_ends_the_run(framework: Framework) -> None:
    talk = Talk(framework.agent(call("look_up", "c-1", order=7), "It was paid.", tools=[look_up]))

    with pytest.raises(LlmCallsLimitExceeded):
        await talk.say("order 7?", run_config=RunConfig(max_llm_calls=1))

    assert len(framework.prompts) == 1


async def test_a_budget_ends_the_run_between_two_calls_of_the_model(framework: Framework) -> None:
    agent = framework.agent(call("look_up", "c-1", order=7), "It was paid.", tools=[look_up])
    budget = BudgetPlugin([BudgetLimit(per="user", tokens=25)], default_output_tokens=5, estimate=lambda _: 10)
    talk = Talk(agent)
    talk.runner = InMemoryRunner(app=App(name="app", root_agent=agent, plugins=[budget]))

    events = await talk.say("order 7?")

    assert events[-1].error_code == BUDGET_EXCEEDED
    assert len(framework.prompts) == 1
    assert [event.author for event in events if event.get_function_responses()] == ["desk"]


def encoded_texts(value: Any) -> Iterator[bytes]:
    """The texts in a state that are encoded as base64."""
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            yield base64.b64decode(value, validate=True)
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from encoded_texts(item)
    elif isinstance(value, dict):
        yield from encoded_texts(list(cast("dict[str, Any]", value).values()))


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (["Write to ada@example.com."], "hello"),
        ([call("find_address", "c-1"), "Found."], "hello"),
        (["Fine."], "I am ada@example.com"),
    ],
)
@pytest.mark.parametrize("streaming", [False, True])
async def test_guardrails_block_what_they_can_not_redact(
    framework: Framework, script: list[Step], message: str, *, streaming: bool
) -> None:
    async def find_address() -> str:
        """Finds it."""
        return "ada@example.com"

    agent = framework.agent(*script, tools=[find_address])
    talk = Talk(agent)
    guardrails = GuardrailPlugin([PatternCheck("email")], on_violation="redact")
    talk.runner = InMemoryRunner(app=App(name="app", root_agent=agent, plugins=[guardrails]))
    events: list[Event] = []

    with contextlib.suppress(GuardrailBlocked):
        async for event in talk.events(message, **({"run_config": STREAMED} if streaming else {})):
            events.append(event)

    log = await talk.log()
    is_redacted = message != "hello"
    assert (log[-1].error_code == "GuardrailBlocked") is not is_redacted
    assert "ada@example" not in repr(events)
    assert "ada@example" not in repr(log)
    assert b"ada@example" not in b"".join(encoded_texts([event.actions.agent_state for event in log]))
    assert "ada@example" not in repr(framework.prompts)


async def test_an_error_of_the_model_ends_the_run(framework: Framework) -> None:
    talk = Talk(framework.agent(ConnectionError("the line is dead"), "Good morning."))

    with pytest.raises(ConnectionError, match="the line is dead"):
        await talk.say("hello")

    assert (await talk.log())[-1].error_code == "ConnectionError"
    assert contents(await talk.say("hello again"))[-1].is_final_response()


@pytest.mark.parametrize("approved", [True, False])
async def test_a_person_approves_a_call(framework: Framework, *, approved: bool) -> None:
    paid: list[int] = []

    async def pay(amount: int) -> str:
        """Pays."""
        paid.append(amount)
        return "paid"

    talk = Talk(framework.agent(call("pay", "c-1", amount=5), "Done.", tools=[pay], asks={"pay"}))

    events = await talk.say("pay 5")
    request = events[-1] if events[-1].long_running_tool_ids else contents(events)[-1]
    session = await talk.runner.session_service.get_session(app_name="app", user_id="ada", session_id="s-1")
    assert session is not None
    assert log_state_of(session.events).is_waiting(request.invocation_id)
    assert not paid

    request = next(event for event in events if event.long_running_tool_ids)
    events = await talk.say(framework.answer(request, approved=approved))

    assert paid == ([5] if approved else [])
    assert contents(events)[-1].content.text() == "Done."  # pyright: ignore[reportOptionalMemberAccess]
    assert {event.invocation_id for event in events} == {request.invocation_id}
    assert len(framework.prompts) == 2


async def test_the_conversation_continues_after_an_approval(framework: Framework) -> None:
    async def pay(amount: int) -> str:
        """Pays."""
        return f"paid {amount}"

    talk = Talk(framework.agent(call("pay", "c-1", amount=5), "Done.", "You paid 5.", tools=[pay], asks={"pay"}))
    events = await talk.say("pay 5")
    request = next(event for event in events if event.long_running_tool_ids)
    await talk.say(framework.answer(request, approved=True))

    await talk.say("what did I pay?")

    assert framework.prompts[-1][0] == "pay 5"
    assert framework.prompts[-1][-3:] == ["paid 5", "Done.", "what did I pay?"]


async def test_it_runs_as_a_step_of_a_sequence(framework: Framework) -> None:
    first = framework.agent("First.")
    second = framework.agent("Second.")
    second.name = "other"
    talk = Talk(SequentialAgent(name="both", sub_agents=[first, second]))

    events = contents(await talk.say("hello"))

    assert lines_of(events) == ["desk: First.", "other: Second."]


async def test_model_calls_are_in_the_trace(framework: Framework) -> None:
    traces: list[Trace] = []

    class Listener:
        def trace_ended(self, trace: Trace) -> None:
            traces.append(trace)

    agent = framework.agent(call("look_up", "c-1", order=7), "It was paid.", tools=[look_up])
    sessions = InMemorySessionService()
    runner = Runner(agent=agent, app_name="app", session_service=sessions, trace_listeners=[Listener()])
    await sessions.create_session(app_name="app", user_id="ada", session_id="s-1")

    message = Content(role="user", parts=[Part(text="order 7?")])
    events = [event async for event in runner.run_async(user_id="ada", session_id="s-1", new_message=message)]

    calls = [span for span, _ in traces[0].spans() if isinstance(span, ModelCallSpan)]
    replies = [event.id for event in events if event.usage_metadata is not None]
    assert [call.event_id for call in calls] == replies
    assert all(call.end_time and call.usage is not None for call in calls)
    assert len(calls) == 2


async def test_it_runs_as_a_tool_of_another_agent(framework: Framework) -> None:
    script = [call("desk", "c-1", request="order 7?"), "It was paid.", call("desk", "c-2", request="order 8?"), "Too."]
    talk = Talk(
        LlmAgent(name="front", model=ScriptedModel(script), tools=[AgentTool(framework.agent("Yes.", "Yes, too."))])
    )

    first = contents(await talk.say("was 7 paid?"))
    second = contents(await talk.say("and 8?"))

    responses = [one.response for event in (*first, *second) for one in event.get_function_responses()]
    assert responses == [{"result": "Yes."}, {"result": "Yes, too."}]
    assert framework.prompts == [["order 7?"], ["order 8?"]]


async def test_another_agent_transfers_to_it(framework: Framework) -> None:
    model = ScriptedModel([call("transfer_to_agent", agent_name="desk")] * 2)
    desk = framework.agent("How can I help?", "Gladly.")
    talk = Talk(LlmAgent(name="front", model=model, sub_agents=[desk]))

    first = contents(await talk.say("the desk, please"))
    second = contents(await talk.say("refund me"))

    assert lines_of(first)[-1] == "desk: How can I help?"
    assert lines_of(second)[-1] == "desk: Gladly."
    assert framework.prompts[1] == ["the desk, please", "How can I help?", "refund me"]


async def test_agents_of_a_framework_run_beside_each_other(framework: Framework) -> None:
    first = framework.agent("First.", "Third.")
    second = framework.agent("Second.", "Fourth.")
    second.name = "other"
    talk = Talk(ParallelAgent(name="both", sub_agents=[first, second]))

    await talk.say("hello")
    events = contents(await talk.say("again"))

    assert sorted(lines_of(events)) == ["desk: Third.", "other: Fourth."]


async def test_a_run_that_loads_only_recent_events_knows_the_whole_conversation(framework: Framework) -> None:
    async def pay(amount: int) -> str:
        """Pays."""
        return f"paid {amount}"

    recent = RunConfig(get_session_config=GetSessionConfig(num_recent_events=1))
    talk = Talk(framework.agent("First.", call("pay", "c-1", amount=5), "Done.", tools=[pay], asks={"pay"}))
    await talk.say("one", run_config=recent)
    events = await talk.say("two", run_config=recent)

    request = next(event for event in events if event.long_running_tool_ids)
    await talk.say(framework.answer(request, approved=True))

    assert framework.prompts[1] == ["one", "First.", "two"]
    assert framework.prompts[2][-1] == "paid 5"
