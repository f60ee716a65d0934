"""Names, trees, and agents of one's own."""

from __future__ import annotations

import copy
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest

from greenroom.agents.agent import BaseAgent
from greenroom.agents.agent_tool import AgentTool
from greenroom.agents.base_llm_agent import IncludeContents
from greenroom.agents.llm_agent import Agent, LlmAgent
from greenroom.agents.workflows import SequentialAgent
from greenroom.errors import AgentConfigError
from greenroom.invocation.context import InvocationContext
from greenroom.invocation.user_context import CallbackContext, ToolContext
from greenroom.records.content import Content, Part
from greenroom.records.event import Event, EventActions
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.functions.function_tool import FunctionTool
from tests.agents.talk import Talk, call, lines_of


@pytest.mark.parametrize("name", ["a", "_a", "weather_agent", "Wetter", "größe2", "two-words", "a.b"])
def test_words_are_good_names(name: str) -> None:
    assert LlmAgent(name=name).name == name


@pytest.mark.parametrize("name", ["", "1a", "a b ", " a", "a/b", "a--b", "user", "a\n"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(AgentConfigError):
        LlmAgent(name=name)


def test_equal_names_in_a_tree_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    twins = [LlmAgent(name="twin"), LlmAgent(name="twin")]
    deep = LlmAgent(name="middle", sub_agents=twins[:1])
    assert not caplog.records
    root = LlmAgent(name="root", sub_agents=[deep, twins[1]])
    assert "agent root: several agents of its tree have the name twin" in caplog.text
    assert root.find_agent("twin") is twins[0]


def test_deep_copies_of_an_agent_share_nothing_that_changes() -> None:
    def count(numbers: list[int]) -> int:
        return len(numbers)

    inner = LlmAgent(name="inner", input_schema={"type": "object"})
    tool = FunctionTool(count, custom_metadata={"cost": 1})
    agent = LlmAgent(name="agent", tools=[count, tool, AgentTool(inner)], sub_agents=[LlmAgent(name="below")])
    copied = copy.deepcopy(agent)
    assert copied.tools[0] is count
    assert isinstance(copied.tools[1], FunctionTool)
    assert (copied.tools[1].func, copied.tools[1].custom_metadata) == (count, {"cost": 1})
    assert isinstance(copied.tools[2], AgentTool)
    assert copied.tools[2].agent is not inner
    assert copied.sub_agents[0].parent_agent is copied
    assert agent.sub_agents[0].parent_agent is agent
    copied.tools[1].description = "another"
    assert tool.description != "another"


def test_an_agent_has_one_parent() -> None:
    child = LlmAgent(name="child")
    LlmAgent(name="first", sub_agents=[child])
    with pytest.raises(AgentConfigError, match="already belongs to 'first'"):
        LlmAgent(name="second", sub_agents=[child])


def test_a_tree_can_be_walked_and_searched() -> None:
    leaf = LlmAgent(name="leaf")
    root = LlmAgent(name="root", sub_agents=[LlmAgent(name="branch", sub_agents=[leaf]), LlmAgent(name="other")])
    assert [agent.name for agent in root.walk()] == ["root", "branch", "leaf", "other"]
    assert leaf.root_agent is root
    assert root.find_agent("leaf") is leaf
    assert root.find_agent("root") is root
    assert root.find_sub_agent("root") is None
    assert root.find_agent("nobody") is None


def test_fields_that_do_not_exist_or_are_missing_are_named() -> None:
    with pytest.raises(TypeError, match="LlmAgent\\(\\) has no field modle"):
        LlmAgent(name="a", modle="x")  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError, match="LlmAgent\\(\\) needs: name"):
        LlmAgent()  # pyright: ignore[reportCallIssue]


@pytest.mark.parametrize(
    ("field", "given", "known"),
    [("include_contents", "some", "'default', 'none'"), ("mode", "Task", "None, 'chat', 'task', 'single_turn'")],
)
def test_a_word_that_is_no_choice_of_a_field_is_refused(field: str, given: Any, known: str) -> None:
    with pytest.raises(AgentConfigError, match=f"{field} is one of {known}, not '{given}'"):
        LlmAgent(name="a", **{field: given})


def test_agent_is_adks_short_name() -> None:
    assert Agent is LlmAgent


class Router(BaseAgent):
    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncIterator[Event]:
        chosen = self.find_agent("night" if ctx.session.state.get("late") else "day")
        assert chosen is not None
        async for event in chosen.run_async(ctx):
            yield event


async def test_an_agent_of_ones_own_chooses_who_answers() -> None:
    day = LlmAgent(name="day", model=ScriptedModel(["good day"]))
    night = LlmAgent(name="night", model=ScriptedModel(["good night"]))
    talk = Talk(Router(name="router", sub_agents=[day, night]))
    assert lines_of(await talk.say("hi")) == ["day: good day"]
    assert lines_of(await talk.say("hi", state_delta={"late": True})) == ["night: good night"]


class Repeater(BaseAgent):
    """Fields are annotations, with defaults or without."""

    word: str
    times: int = 2

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event, None]:
        for number in range(self.times):
            yield Event(
                author=self.name,
                content=Content(role="model", parts=[Part(text=f"{self.word} {number}")]),
                actions=EventActions(state_delta={"said": number}),
            )


async def test_an_agent_of_ones_own_declares_fields() -> None:
    repeater = Repeater(name="parrot", description="Repeats.", word="hey", times=3)
    assert (repeater.word, repeater.times, repeater.description) == ("hey", 3, "Repeats.")
    talk = Talk(repeater)
    events = await talk.say("go")
    assert lines_of(events)[-2:] == ["parrot: hey 2", "parrot sets {'said': 2}"]
    assert {event.invocation_id for event in await talk.log()} == {events[0].invocation_id}
    assert await talk.state() == {"said": 2}


def test_a_declared_field_without_a_default_must_be_given() -> None:
    with pytest.raises(TypeError, match="needs: word"):
        Repeater(name="parrot")  # pyright: ignore[reportCallIssue]


class Story(BaseAgent):
    """As in ADK's guide: its own `__init__` passes the declared fields on."""

    writer: LlmAgent
    critic: LlmAgent

    def __init__(self, name: str, writer: LlmAgent, critic: LlmAgent) -> None:
        fields: dict[str, Any] = {"writer": writer, "critic": critic}
        super().__init__(name=name, sub_agents=[writer, critic], **fields)

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event, None]:
        async for event in self.writer.run_async(ctx):
            yield event
        if ctx.session.state.get("draft"):
            async for event in self.critic.run_async(ctx):
                yield event


async def test_an_agent_of_ones_own_writes_its_own_init() -> None:
    writer = LlmAgent(name="writer", model=ScriptedModel(["once"]), output_key="draft")
    critic = LlmAgent(name="critic", model=ScriptedModel(["too short"]), instruction="Judge: {draft}")
    story = Story("story", writer, critic)
    assert (story.writer, writer.parent_agent) == (writer, story)
    assert lines_of(await Talk(story).say("go")) == [
        "writer: once",
        "writer sets {'draft': 'once'}",
        "critic: too short",
    ]


class Counter(BaseAgent):
    """Sets its fields itself, some before the base is made and some after."""

    start: int
    end: int = 0

    def __init__(self, name: str) -> None:
        self.end = 2
        super().__init__(name=name)
        self.start = 1

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncIterator[Event]:
        yield Event(author=self.name, content=Content(role="model", parts=[Part(text=f"{self.start}-{self.end}")]))


async def test_an_init_of_ones_own_may_set_the_fields_itself() -> None:
    assert lines_of(await Talk(Counter("counter")).say("go")) == ["counter: 1-2"]


class Polite(LlmAgent):
    greeting: str = "Hello"

    def __init__(self, *, greeting: str = "Hello", **rest: object) -> None:
        super().__init__(greeting=greeting, instruction=f"Begin with {greeting}.", **rest)  # pyright: ignore[reportCallIssue]


async def test_an_llm_agent_can_be_made_special() -> None:
    model = ScriptedModel(["Hi there"])
    polite = Polite(name="polite", model=model, greeting="Hi")
    assert lines_of(await Talk(polite).say("go")) == ["polite: Hi there"]
    assert model.requests[0].config.system_text().startswith("Begin with Hi.")


async def test_callbacks_of_an_agent_of_ones_own_are_called() -> None:
    repeater = Repeater(
        name="parrot",
        word="hey",
        times=1,
        after_agent_callback=lambda **_: Content(parts=[Part(text="enough")]),  # pyright: ignore[reportUnknownLambdaType]
    )
    assert lines_of(await Talk(repeater).say("go"))[-1] == "parrot: enough"


async def test_ending_the_invocation_stops_the_agent_after_its_step() -> None:
    class Stopping(LlmAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event, None]:
            async for event in super()._run_async_impl(ctx):
                ctx.end_invocation = True
                yield event

    def ping() -> str:
        return "pong"

    model = ScriptedModel([call("ping"), "never"])
    assert lines_of(await Talk(Stopping(name="a", model=model, tools=[ping])).say("go")) == [
        "a: ping()",
        "a: ping -> {'result': 'pong'}",
    ]


async def test_ending_the_invocation_before_an_agent_leaves_it_out_and_continues_with_the_next() -> None:
    def end(callback_context: CallbackContext) -> None:
        callback_context.state["ended"] = True
        callback_context.invocation_context.end_invocation = True

    never = LlmAgent(
        name="never", model=ScriptedModel([]), before_agent_callback=end, after_agent_callback=lambda **_: 1 / 0
    )
    behind = LlmAgent(name="behind", model=ScriptedModel(["my turn"]))
    talk = Talk(SequentialAgent(name="row", sub_agents=[never, behind]))
    assert lines_of(await talk.say("go")) == ["never sets {'ended': True}", "behind: my turn"]


async def test_a_tool_can_end_its_agent_and_not_the_one_above() -> None:
    def stop(tool_context: ToolContext) -> str:
        tool_context.invocation_context.end_invocation = True
        return "enough"

    model = ScriptedModel([call("stop"), "never"])
    hasty = LlmAgent(name="hasty", model=model, tools=[stop], after_agent_callback=lambda **_: 1 / 0)
    behind = LlmAgent(name="behind", model=ScriptedModel(["my turn"]))
    talk = Talk(SequentialAgent(name="row", sub_agents=[hasty, behind]))
    assert lines_of(await talk.say("go")) == ["hasty: stop()", "hasty: stop -> {'result': 'enough'}", "behind: my turn"]


@pytest.mark.parametrize("word", ["none", "NONE", "None", IncludeContents.NONE])
def test_what_a_model_sees_is_spelled_in_any_case(word: Any) -> None:
    assert LlmAgent(name="a", include_contents=word).include_contents is IncludeContents.NONE
    default = LlmAgent(name="a", include_contents="DEFAULT")  # type: ignore[arg-type]
    assert default.include_contents is LlmAgent(name="a").include_contents is IncludeContents.DEFAULT
