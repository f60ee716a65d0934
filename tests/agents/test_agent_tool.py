"""An agent as the tool of another one: what it is asked, what it sees, and what becomes of what it does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
from pydantic import BaseModel

from greenroom import (
    AgentTool,
    BasePlugin,
    FunctionTool,
    InMemoryRunner,
    LlmAgent,
    LongRunningFunctionTool,
    LoopAgent,
    ParallelAgent,
    RunConfig,
    SequentialAgent,
    ToolContext,
    exit_loop,
)
from greenroom.agents.agent import BaseAgent
from greenroom.errors import LlmCallsLimitExceeded, ModelError
from greenroom.invocation.context import InvocationContext
from greenroom.records.answer_metadata import GroundingMetadata
from greenroom.records.content import Content, Part
from greenroom.records.event import Event
from greenroom.records.model_exchange import LlmResponse
from greenroom.testing import ScriptedModel
from greenroom.tools.tool import BaseTool
from greenroom.types import FunctionCall
from tests.agents.human_input.approvals import Till, decide, request_ids
from tests.agents.talk import STREAMED, Talk, answer, call, lines_of, shown
from tests.tools.one_call import declaration

SCOPE = "writer.researcher@c1"


def researcher(*turns: Any, **fields: Any) -> LlmAgent:
    fields.setdefault("model", ScriptedModel(list(turns)))
    return LlmAgent(name="researcher", description="Finds things out.", **fields)


def writer(*turns: Any, tool: BaseTool, more: tuple[Any, ...] = (), **fields: Any) -> LlmAgent:
    asks = [call("researcher", "c1", request="What is new?"), "All is quiet."]
    return LlmAgent(name="writer", model=ScriptedModel(list(turns) or asks), tools=[tool, *more], **fields)


def outer(events: list[Event]) -> list[Event]:
    return [event for event in events if event.isolation_scope is None]


def inner(events: list[Event]) -> list[Event]:
    return [event for event in events if event.isolation_scope is not None]


async def test_its_answer_is_the_result_and_its_steps_stand_before_it_in_a_scope_of_their_own() -> None:
    agent = writer(tool=AgentTool(researcher("Nothing is new.")))
    events = await Talk(agent).say("hi")
    assert lines_of(events) == [
        "writer: researcher(request='What is new?')",
        "researcher: Nothing is new.",
        "writer: researcher -> {'result': 'Nothing is new.'}",
        "writer: All is quiet.",
    ]
    assert [(event.isolation_scope, event.branch) for event in events] == [
        (None, None), (SCOPE, SCOPE), (None, None), (None, None),
    ]  # fmt: skip
    assert [event.is_final_response() for event in events] == [False, False, False, True]


async def test_each_sees_its_own_conversation_only() -> None:
    child = researcher("Nothing is new.")
    agent = writer(tool=AgentTool(child))
    talk = Talk(agent)
    await talk.say("hi")
    assert shown(child.model.requests[0]) == ["user: What is new?"]  # type: ignore[union-attr]
    assert shown(agent.model.requests[1]) == [  # type: ignore[union-attr]
        "user: hi",
        "model: researcher(request='What is new?')",
        "user: researcher -> {'result': 'Nothing is new.'}",
    ]


async def test_asked_again_it_begins_again() -> None:
    child = researcher("One.", "Two.")
    asks = call("researcher", "c1", request="first"), call("researcher", "c1", request="second")
    events = await Talk(writer(*asks, "Done.", tool=AgentTool(child))).say("hi")
    assert shown(child.model.requests[1]) == ["user: second"]  # type: ignore[union-attr]
    assert lines_of(outer(events))[-2] == "writer: researcher -> {'result': 'Two.'}"


async def test_asked_twice_in_one_reply_both_work_side_by_side() -> None:
    def echo(request: Any) -> str:
        return f"about {request.contents[0].text()}"

    asks = [call("researcher", "c1", request="a"), call("researcher", "c2", request="b")]
    agent = writer(asks, "Done.", tool=AgentTool(researcher(model=ScriptedModel(echo))))
    events = await Talk(agent).say("hi")
    assert {event.isolation_scope for event in inner(events)} == {SCOPE, "writer.researcher@c2"}
    assert lines_of(outer(events))[2:4] == [
        "writer: researcher -> {'result': 'about a'}",
        "writer: researcher -> {'result': 'about b'}",
    ]


async def test_it_uses_its_own_tools_and_thoughts_stay_out_of_the_result() -> None:
    def lookup(word: str) -> str:
        """Looks a word up."""
        return f"{word} is old"

    said = [Part(text="hm", thought=True), Part(text="Old."), Part(text="Very.")]
    child = researcher(call("lookup", word="it"), said, tools=[lookup])
    events = await Talk(writer(tool=AgentTool(child))).say("hi")
    assert lines_of(inner(events))[1] == "researcher: lookup -> {'result': 'it is old'}"
    assert lines_of(outer(events))[1] == "writer: researcher -> {'result': 'Old.\\nVery.'}"


async def test_an_agent_that_says_nothing_has_an_empty_result() -> None:
    class Mute(BaseAgent):
        async def _run_async_impl(self, ctx: Any):
            yield Event(author=self.name)

    events = await Talk(writer(tool=AgentTool(Mute(name="researcher")))).say("hi")
    assert lines_of(outer(events))[1] == "writer: researcher -> {'result': ''}"


async def test_code_and_its_results_are_part_of_the_answer() -> None:
    parts = [
        Part(text="Let me see.", thought=True),
        Part(text="I computed:"),
        Part.from_executable_code(code="print(6 * 7)"),
        Part.from_code_execution_result(outcome="OUTCOME_OK", output="42"),
        Part(text="So it is 42."),
    ]
    child = researcher(LlmResponse(content=Content(role="model", parts=parts)))
    events = await Talk(writer(tool=AgentTool(child))).say("hi")
    (response,) = outer(events)[1].get_function_responses()
    assert response.response == {"result": "I computed:\nprint(6 * 7)\n42\nSo it is 42."}


@pytest.mark.parametrize("propagate", [True, False])
async def test_sources_of_the_answer_are_those_of_the_callers_next_reply_if_that_is_wanted(propagate: bool) -> None:
    sources = GroundingMetadata(web_search_queries=["news"])
    said = LlmResponse(content=Content(role="model", parts=[Part(text="News.")]), grounding_metadata=sources)
    talk = Talk(writer(tool=AgentTool(researcher(said), propagate_grounding_metadata=propagate)))
    events = outer(await talk.say("hi"))
    assert [event.grounding_metadata for event in events] == [None, None, sources if propagate else None]
    assert await talk.state() == {}


async def test_the_declaration_is_the_agents() -> None:
    declared = await declaration(AgentTool(researcher()))
    assert (declared.name, declared.description) == ("researcher", "Finds things out.")
    assert declared.parameters_json_schema == {
        "type": "object",
        "properties": {"request": {"type": "string"}},
        "required": ["request"],
    }


class Question(BaseModel):
    topic: str
    depth: int = 1


class Finding(BaseModel):
    text: str
    sure: bool


async def test_an_input_schema_gives_the_parameters_and_the_request_is_their_json() -> None:
    child = researcher("Found.", input_schema=Question)
    tool = AgentTool(child)
    assert (await declaration(tool)).json_schema()["required"] == ["topic"]
    agent = writer(call("researcher", "c1", topic="bees"), "Done.", tool=tool)
    await Talk(agent).say("hi")
    assert shown(child.model.requests[0]) == ['user: {"topic":"bees","depth":1}']  # type: ignore[union-attr]


async def test_arguments_that_do_not_fit_are_reported_to_the_model() -> None:
    with_schema = writer(call("researcher", "c1"), "Done.", tool=AgentTool(researcher(input_schema=Question)))
    assert "topic" in lines_of(await Talk(with_schema).say("hi"))[1]
    without = writer(call("researcher", "c1"), "Done.", tool=AgentTool(researcher()))
    events = await Talk(without).say("hi")
    assert "researcher was not asked, because of these arguments: request" in lines_of(events)[1]
    assert inner(events) == []


async def test_of_workflow_agents_the_first_takes_and_the_last_answers() -> None:
    first = LlmAgent(name="first", model=ScriptedModel(["one"]), input_schema=Question)
    last = LlmAgent(name="last", model=ScriptedModel(['{"text": "two", "sure": true}']), output_schema=Finding)
    team = SequentialAgent(
        name="researcher", sub_agents=[LoopAgent(name="l", sub_agents=[first], max_iterations=1), last]
    )
    tool = AgentTool(team)
    assert (await declaration(tool)).json_schema()["required"] == ["topic"]
    events = await Talk(writer(call("researcher", "c1", topic="x"), "Done.", tool=tool)).say("hi")
    assert lines_of(outer(events))[1] == "writer: researcher -> {'text': 'two', 'sure': True}"


async def test_an_answer_of_another_form_than_the_output_schema_is_an_error() -> None:
    events = await Talk(writer(tool=AgentTool(researcher("no json", output_schema=Finding)))).say("hi")
    assert "did not answer in the form" in lines_of(outer(events))[1]
    half = '{"text": "two"}'
    events = await Talk(writer(tool=AgentTool(researcher(half, output_schema=Finding)))).say("hi")
    (response,) = outer(events)[1].get_function_responses()
    assert response.response is not None
    assert "did not answer in the form it was to: sure" in response.response["error"]
    assert response.response["answer"] == half


async def test_an_error_event_gives_its_message() -> None:
    child = researcher(LlmResponse(error_code="SAFETY", error_message="refused"))
    events = await Talk(writer(tool=AgentTool(child))).say("hi")
    assert lines_of(outer(events))[1:] == ["writer: researcher -> {'error': 'refused'}", "writer: All is quiet."]


async def test_an_exception_of_the_agent_is_one_of_the_tool() -> None:
    failure = ModelError("no service", model="m")
    agent = writer(tool=AgentTool(researcher(failure)))
    events: list[Event] = []
    with pytest.raises(ModelError):
        async for event in Talk(agent).events("hi"):
            events.append(event)
    assert lines_of(outer(events))[1] == "writer: researcher -> {'error': 'no service'}"
    softened = writer(
        tool=AgentTool(researcher(failure)), on_tool_error_callback=lambda error, **_: {"sorry": str(error)}
    )
    assert lines_of(outer(await Talk(softened).say("hi")))[1] == "writer: researcher -> {'sorry': 'no service'}"


async def test_skip_summarization_ends_the_callers_turn() -> None:
    agent = writer(tool=AgentTool(researcher("Nothing."), skip_summarization=True))
    events = await Talk(agent).say("hi")
    assert lines_of(outer(events)) == [
        "writer: researcher(request='What is new?')",
        "writer: researcher -> {'result': 'Nothing.'}",
        "writer: Nothing.",
    ]
    assert events[-1].is_final_response()


async def test_state_and_artifacts_are_shared() -> None:
    async def note(tool_context: ToolContext) -> str:
        """Notes."""
        tool_context.state["seen"] = [*tool_context.state["given"], "child"]
        tool_context.state["user:name"] = "Ada"
        await tool_context.save_artifact("note.txt", Part(text="noted"))
        return "ok"

    async def check(tool_context: ToolContext) -> str:
        """Checks."""
        part = await tool_context.load_artifact("note.txt")
        assert part is not None
        return f"{tool_context.state['seen']} {tool_context.state['user:name']} {part.text}"

    child = researcher(call("note"), "Noted {given}.", tools=[note], output_key="found", instruction="Given: {given}")
    turns = call("researcher", "c1", request="x"), call("check", "c2"), "Done."
    talk = Talk(writer(*turns, tool=AgentTool(child), more=(check,)), state={"given": ["parent"]})
    events = await talk.say("hi")
    assert lines_of(outer(events))[4] == "writer: check -> {'result': \"['parent', 'child'] Ada noted\"}"
    assert (await talk.state())["found"] == "Noted {given}."
    changes = {"seen": ["parent", "child"], "user:name": "Ada", "found": "Noted {given}."}
    assert outer(events)[1].actions.state_delta == changes
    assert outer(events)[1].actions.artifact_delta == {"note.txt": 0}
    assert [event.actions.artifact_delta for event in inner(events) if event.actions.artifact_delta] == [
        {"note.txt": 0}
    ]
    assert "Given: ['parent']" in (child.model.requests[0].config.system_instruction or "")  # type: ignore[union-attr]


class Watching(BasePlugin):
    def __init__(self) -> None:
        super().__init__("watching")
        self.agents: list[str] = []

    async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> None:
        self.agents.append(callback_context.agent_name)


@pytest.mark.parametrize(
    ("options", "asked"),
    [({}, ["writer", "researcher", "writer"]), ({"include_plugins": False}, ["writer", "writer"])],
)
async def test_plugins_are_asked_inside_unless_left_out(options: dict[str, bool], asked: list[str]) -> None:
    plugin = Watching()
    tool = AgentTool(researcher("Nothing."), **options)
    runner = InMemoryRunner(writer(tool=tool), app_name="app", plugins=[plugin])
    config = RunConfig(auto_create_session=True)
    message = Content(role="user", parts=[Part(text="hi")])
    async for _ in runner.run_async(user_id="u", session_id="s", new_message=message, run_config=config):
        pass
    assert plugin.agents == asked


async def test_its_steps_come_whole_while_the_callers_words_are_streamed() -> None:
    agent = writer(tool=AgentTool(researcher("Nothing is new.")))
    events = await Talk(agent).say("hi", run_config=STREAMED)
    assert [event.partial for event in inner(events)] == [None]
    assert any(event.partial for event in outer(events))


class Dictating(BaseAgent):
    """Streams its answer word by word."""

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncIterator[Event]:
        for text, partial in [("Nothing", True), ("Nothing is new.", None)]:
            content = Content(role="model", parts=[Part(text=text)])
            yield Event(invocation_id=ctx.invocation_id, author=self.name, content=content, partial=partial)


async def test_the_chunks_of_an_agent_that_streams_anyway_stay_inside() -> None:
    agent = writer(tool=AgentTool(Dictating(name="researcher", description="Finds things out.")))
    events = await Talk(agent).say("hi", run_config=STREAMED)
    assert lines_of(inner(events)) == ["researcher: Nothing is new."]
    assert lines_of(outer(events))[1] == "writer: researcher -> {'result': 'Nothing is new.'}"


async def test_its_model_calls_count_in_the_run() -> None:
    agent = writer(tool=AgentTool(researcher("Nothing is new.")))
    with pytest.raises(LlmCallsLimitExceeded):
        await Talk(agent).say("hi", run_config=RunConfig(max_llm_calls=2))


async def test_an_escalation_inside_ends_only_loops_inside() -> None:
    child = LoopAgent(
        name="researcher",
        sub_agents=[LlmAgent(name="once", model=ScriptedModel([call("exit_loop")]), tools=[exit_loop])],
    )
    agent = writer(call("researcher", "c1", request="x"), "one", "two", tool=AgentTool(child))
    events = await Talk(LoopAgent(name="outside", sub_agents=[agent], max_iterations=2)).say("hi")
    assert [line for line in lines_of(outer(events)) if line.startswith("writer: ")][2:] == [
        "writer: one",
        "writer: two",
    ]


async def test_the_last_speaker_inside_does_not_keep_the_conversation() -> None:
    agent = writer(call("researcher", "c1", request="x"), "one", "two", tool=AgentTool(researcher("Nothing.")))
    root = LlmAgent(
        name="root", model=ScriptedModel([call("transfer_to_agent", agent_name="writer")]), sub_agents=[agent]
    )
    talk = Talk(root)
    await talk.say("hi")
    assert lines_of(await talk.say("again")) == ["writer: two"]


async def test_leaving_the_run_stops_the_work_inside() -> None:
    ended: list[str] = []

    class Endless(BaseAgent):
        async def _run_async_impl(self, ctx: Any):
            try:
                while True:
                    yield Event(author=self.name, content=Content(role="model", parts=[Part(text="…")]))
            finally:
                ended.append(self.name)

    talk = Talk(writer(tool=AgentTool(Endless(name="researcher"))))
    async with aclosing(talk.events("hi")) as events:
        async for event in events:
            if event.author == "researcher":
                break
    assert ended == ["researcher"]
    log = await talk.log()
    assert lines_of(log)[-1] == "writer ! INVOCATION_ABORTED"
    assert "researcher -> {'error'" in lines_of(log)[-2]


# waiting inside


async def test_an_approval_is_asked_for_inside_and_the_run_continues_with_the_answer() -> None:
    till = Till()
    child = researcher(call("pay", "p1", amount=3), "Paid.", tools=[FunctionTool(till.pay, require_confirmation=True)])
    talk = Talk(writer(tool=AgentTool(child)))
    asking = await talk.say("hi")
    assert [made.name for event in asking for made in event.get_function_calls()] == [
        "researcher", "pay", "adk_request_confirmation",
    ]  # fmt: skip
    assert lines_of(outer(asking)) == ["writer: researcher(request='What is new?')"]
    (request,) = request_ids(asking)
    assert till.paid == []
    events = await talk.say(decide(request))
    assert till.paid == [3]
    assert lines_of(events) == [
        "researcher: pay -> {'paid': 3}",
        "researcher: Paid.",
        "writer: researcher -> {'result': 'Paid.'}",
        "writer: All is quiet.",
    ]
    assert {event.invocation_id for event in events} == {asking[0].invocation_id}


async def test_a_refusal_inside_holds() -> None:
    till = Till()
    child = researcher(
        call("pay", "p1", amount=3), "Not paid.", tools=[FunctionTool(till.pay, require_confirmation=True)]
    )
    talk = Talk(writer(tool=AgentTool(child)))
    (request,) = request_ids(await talk.say("hi"))
    events = await talk.say(decide(request, confirmed=False))
    assert (till.paid, lines_of(events)[-1]) == ([], "writer: All is quiet.")


def start_export() -> None:
    """Starts an export that answers later."""


async def test_a_long_running_call_inside_waits_and_siblings_of_the_agent_are_not_repeated() -> None:
    counted: list[int] = []

    def count() -> int:
        """Counts."""
        counted.append(1)
        return len(counted)

    child = researcher(call("start_export", "x1"), "Exported.", tools=[LongRunningFunctionTool(start_export)])
    turns = [call("researcher", "c1", request="x"), call("count", "c2")], "Done."
    agent = writer(*turns, tool=AgentTool(child), more=(count,))
    talk = Talk(agent)
    first = await talk.say("hi")
    assert lines_of(outer(first))[-1] == "writer: count -> {'result': 1}"
    events = await talk.say(answer("start_export", "x1", {"file": "f"}))
    assert lines_of(events) == [
        "researcher: Exported.",
        "writer: researcher -> {'result': 'Exported.'}",
        "writer: Done.",
    ]
    assert counted == [1]
    assert shown(agent.model.requests[-1])[-2:] == [  # type: ignore[union-attr]
        "user: researcher -> {'result': 'Exported.'}",
        "user: count -> {'result': 1}",
    ]


async def test_two_that_wait_side_by_side_are_answered_one_after_the_other() -> None:
    till = Till()
    pay = FunctionTool(till.pay, require_confirmation=True)

    def one(name: str, amount: int) -> AgentTool:
        turns = [call("pay", f"{name}-p", amount=amount), f"{name} paid."]
        return AgentTool(LlmAgent(name=name, model=ScriptedModel(turns), tools=[pay]))

    turns = [call("a", "c1", request="x"), call("b", "c2", request="x")], "Done."
    talk = Talk(writer(*turns, tool=one("a", 1), more=(one("b", 2),)))
    requests = request_ids(await talk.say("hi"))
    halfway = await talk.say(decide(requests[0]))
    assert lines_of(outer(halfway)) == ["writer: a -> {'result': 'a paid.'}"]
    rest = await talk.say(decide(requests[1]))
    assert lines_of(outer(rest)) == ["writer: b -> {'result': 'b paid.'}", "writer: Done."]
    assert sorted(till.paid) == [1, 2]


async def test_an_agent_in_an_agent_in_a_parallel_branch_may_wait() -> None:
    till = Till()
    deep = LlmAgent(
        name="deep",
        model=ScriptedModel([call("pay", "p1", amount=1), "Deep paid."]),
        tools=[FunctionTool(till.pay, require_confirmation=True)],
    )
    child = researcher(call("deep", "d1", request="pay"), "It is paid.", tools=[AgentTool(deep)])
    other = LlmAgent(name="other", model=ScriptedModel(["I am done."]))
    talk = Talk(ParallelAgent(name="both", sub_agents=[writer(tool=AgentTool(child)), other]))
    first = await talk.say("hi")
    (request,) = request_ids(first)
    (asking,) = [event for event in first if request in (event.long_running_tool_ids or ())]
    assert asking.isolation_scope == "both.writer.writer.researcher@c1.researcher.deep@d1"
    events = await talk.say(decide(request))
    assert lines_of(events)[-3:] == [
        "researcher: It is paid.",
        "writer: researcher -> {'result': 'It is paid.'}",
        "writer: All is quiet.",
    ]
    assert till.paid == [1]


async def test_a_tool_of_ones_own_may_ask_agents() -> None:
    tool = AgentTool(researcher("One.", "Two."))

    async def ask_twice(tool_context: ToolContext) -> str:
        """Asks twice."""
        first = await tool.run_async(args={"request": "a"}, tool_context=tool_context)
        second = await tool.run_async(args={"request": "b"}, tool_context=tool_context)
        return f"{first} {second}"

    agent = writer(FunctionCall(id="c1", name="ask_twice", args={}), "Done.", tool=FunctionTool(ask_twice))
    events = await Talk(agent).say("hi")
    assert lines_of(outer(events))[1] == "writer: ask_twice -> {'result': 'One. Two.'}"


class Forgiving(BaseAgent):
    """Speaks after its sub-agent, whatever becomes of that."""

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncIterator[Event]:
        try:
            async with aclosing(self.sub_agents[0].run_async(ctx)) as events:
                async for event in events:
                    yield event
        except RuntimeError:
            yield Event(author=self.name, content=Content(role="model", parts=[Part(text="So be it.")]))


async def test_an_error_that_an_agent_inside_handles_leaves_the_response_before_its_next_event() -> None:
    def stumble() -> None:
        raise RuntimeError("hard")

    broken = LlmAgent(name="a", model=ScriptedModel([call("stumble")]), tools=[stumble])
    forgiving = Forgiving(name="researcher", description="Finds things out.", sub_agents=[broken])
    talk = Talk(writer(tool=AgentTool(forgiving)))
    await talk.say("go")
    response, said = inner(await talk.log())[-2:]
    assert [one.name for one in response.get_function_responses()] == ["stumble"]
    assert response.error_code is None
    assert lines_of([said]) == ["researcher: So be it."]
