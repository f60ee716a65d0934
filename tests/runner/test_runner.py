"""A message in, events out: what a runner takes, stores and refuses."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from greenroom.agents.agent_tool import AgentTool
from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.workflow.workflow import Workflow
from greenroom.apps.app import App
from greenroom.errors import AgentConfigError, InvalidRequest, RunNotFound, SessionNotFound
from greenroom.invocation.user_context import ReadonlyContext, ToolContext
from greenroom.plugins.plugin import BasePlugin
from greenroom.records.content import Content, FunctionCall, FunctionResponse, Part, UserContent
from greenroom.records.event import Event
from greenroom.records.run import RunConfig
from greenroom.records.session import GetSessionConfig
from greenroom.runner.in_memory import InMemoryRunner
from greenroom.runner.runner import Runner
from greenroom.sessions.in_memory import InMemorySessionService
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.functions.function_tool import LongRunningFunctionTool
from greenroom.tools.tool import BaseTool
from greenroom.tools.toolset import BaseToolset

WHERE: dict[str, Any] = {"user_id": "ada", "session_id": "s-1"}


def message(text: str) -> Content:
    return Content(parts=[Part(text=text)])


async def events_of(runner: Runner, text: str | None, **options: Any) -> list[Event]:
    new_message = message(text) if text is not None else None
    return [e async for e in runner.run_async(**WHERE, new_message=new_message, **options)]


async def session_of(runner: Runner):
    session = await runner.session_service.get_session(app_name=runner.app_name, **WHERE)
    assert session is not None
    return session


async def runner_of(model: ScriptedModel, **fields: Any) -> Runner:
    runner = InMemoryRunner(LlmAgent(name="a", model=model, **fields), app_name="a")
    await runner.session_service.create_session(app_name="a", **WHERE)
    return runner


def test_a_runner_takes_an_app_or_an_agent() -> None:
    agent = LlmAgent(name="agent_name")
    app = App(name="app-name", root_agent=agent)
    assert InMemoryRunner(agent).app_name == "InMemoryRunner"
    assert InMemoryRunner(agent, app_name="other").app_name == "other"
    assert InMemoryRunner(app=app).app_name == "app-name"
    with pytest.raises(AgentConfigError):
        Runner(session_service=InMemorySessionService())
    assert InMemoryRunner(app=app, app_name="other").app_name == "other"
    with pytest.raises(AgentConfigError):
        InMemoryRunner(agent, app=app)
    with pytest.raises(AgentConfigError):
        InMemoryRunner(app=app, plugins=[])


async def test_a_run_that_is_not_there_can_not_be_continued() -> None:
    model = ScriptedModel(["hi"])
    runner = await runner_of(model)
    (event,) = await events_of(runner, "hello")
    with pytest.raises(RunNotFound, match="Run not found: 'e-other'"):
        await events_of(runner, None, invocation_id="e-other")
    assert await events_of(runner, None, invocation_id=event.invocation_id) == []  # it is complete
    assert len(model.requests) == 1


async def test_a_session_that_is_not_there_is_refused_or_made() -> None:
    runner = InMemoryRunner(LlmAgent(name="a", model=ScriptedModel(["hi"])), app_name="a")
    with pytest.raises(SessionNotFound):
        await events_of(runner, "hi")
    await events_of(runner, "hi", run_config=RunConfig(auto_create_session=True))
    assert len((await session_of(runner)).events) == 2


async def test_the_users_event_is_stored_and_not_yielded() -> None:
    runner = await runner_of(ScriptedModel(["hello"]))
    events = await events_of(runner, "hi", state_delta={"mood": "good", "user:name": "Ada", "temp:x": 1})
    assert [event.author for event in events] == ["a"]
    stored = (await session_of(runner)).events[0]
    assert stored == Event(
        id=stored.id,
        timestamp=stored.timestamp,
        invocation_id=events[0].invocation_id,
        author="user",
        content=Content(role="user", parts=[Part(text="hi")]),
        actions=type(stored.actions)(state_delta={"mood": "good", "user:name": "Ada"}),
    )
    assert (await session_of(runner)).state == {"mood": "good", "user:name": "Ada"}


async def test_without_a_message_the_agent_runs_on_the_stored_history() -> None:
    model = ScriptedModel(["one", "two", "three"])
    runner = await runner_of(model)
    await events_of(runner, "hi")
    await events_of(runner, None)
    assert [event.author for event in (await session_of(runner)).events] == ["user", "a", "a"]
    await events_of(runner, None, state_delta={"x": 1})
    assert (await session_of(runner)).events[3].actions.state_delta == {"x": 1}


async def test_a_run_has_the_id_that_its_caller_gives() -> None:
    runner = await runner_of(ScriptedModel(["one", "two"]))
    (event,) = await events_of(runner, "hi", invocation_id="e-mine")
    assert event.invocation_id == "e-mine"
    (event,) = await events_of(runner, "hi")
    assert event.invocation_id.startswith("e-")


async def test_metadata_of_the_run_is_on_every_event_and_the_events_own_wins() -> None:
    from greenroom.records.model_exchange import LlmResponse

    reply = LlmResponse(content=Content(role="model", parts=[Part(text="hi")]), custom_metadata={"b": 2})
    runner = await runner_of(ScriptedModel([reply]))
    await events_of(runner, "hi", run_config=RunConfig(custom_metadata={"a": 1, "b": 1}))
    assert [event.custom_metadata for event in (await session_of(runner)).events] == [
        {"a": 1, "b": 1},
        {"a": 1, "b": 2},
    ]


async def test_a_filtered_session_is_what_the_agent_sees() -> None:
    model = ScriptedModel(["one", "two"])
    runner = await runner_of(model)
    await events_of(runner, "first")
    config = RunConfig(get_session_config=GetSessionConfig(num_recent_events=0))
    await events_of(runner, "second", run_config=config)
    assert [content.text() for content in model.requests[-1].contents] == ["second"]
    assert len((await session_of(runner)).events) == 4


async def test_a_message_that_is_no_users_turn_is_refused_before_anything_is_stored() -> None:
    runner = await runner_of(ScriptedModel([]))
    call = Part(function_call=FunctionCall(id="c-1", name="look", args={}))
    response = Part(function_response=FunctionResponse(id="c-1", name="look", response={}))
    for parts in ([call], [Part(text="look"), call], [Part(text="here"), response], [response]):
        with pytest.raises(InvalidRequest) as caught:
            await anext(runner.run_async(**WHERE, new_message=Content(parts=parts)))
        assert caught.value.location == ("body", "newMessage", "parts")
    assert len((await session_of(runner)).events) == 0


async def test_an_answer_to_an_open_call_comes_without_anything_else() -> None:
    def ship() -> None:
        """Ships it."""

    model = ScriptedModel([FunctionCall(id="c-1", name="ship", args={}), "shipped"])
    runner = await runner_of(model, tools=[LongRunningFunctionTool(ship)])
    await events_of(runner, "ship it")
    answer = Part(function_response=FunctionResponse(id="c-1", name="ship", response={"sent": True}))
    with pytest.raises(InvalidRequest, match="either function responses or other parts"):
        await anext(runner.run_async(**WHERE, new_message=Content(parts=[Part(text="here"), answer])))
    assert len((await session_of(runner)).events) == 2
    (said,) = [event async for event in runner.run_async(**WHERE, new_message=Content(parts=[answer]))]
    assert said.content is not None
    assert said.content.text() == "shipped"


async def test_a_cancelled_run_ends_with_an_event_that_keeps_what_was_said() -> None:
    reached = asyncio.Event()

    async def hang(tool_context: ToolContext) -> None:
        reached.set()
        await asyncio.Event().wait()

    runner = await runner_of(ScriptedModel([FunctionCall(id="c-1", name="hang", args={})]), tools=[hang])
    running = asyncio.create_task(events_of(runner, "go"))
    async with asyncio.timeout(5):
        await reached.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    last = (await session_of(runner)).events[-1]
    assert last.error_code == "INVOCATION_ABORTED"
    assert [response.id for response in last.get_function_responses()] == ["c-1"]


async def test_a_run_that_is_cancelled_with_no_call_open_ends_with_an_event_of_the_root() -> None:
    asked = asyncio.Event()

    async def think(_: object) -> str:
        asked.set()
        await asyncio.Event().wait()
        return "never"

    call = FunctionCall(name="transfer_to_agent", args={"agent_name": "below"})
    below = LlmAgent(name="below", model=ScriptedModel([think]))
    runner = await runner_of(ScriptedModel([call]), sub_agents=[below])
    running = asyncio.create_task(events_of(runner, "go"))
    async with asyncio.timeout(5):
        await asked.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    last = (await session_of(runner)).events[-1]
    assert (last.author, last.content, last.error_code) == ("a", None, "INVOCATION_ABORTED")


async def test_two_runs_of_one_session_see_what_the_other_stored() -> None:
    model = ScriptedModel(["one", "two"], delay=0.01)
    runner = await runner_of(model)
    await asyncio.gather(events_of(runner, "first"), events_of(runner, "second"))
    session = await session_of(runner)
    assert sorted(event.content.text() for event in session.events if event.content) == [
        "first",
        "one",
        "second",
        "two",
    ]


async def test_events_for_custom_clients_can_be_appended_by_hand() -> None:
    runner = await runner_of(ScriptedModel(["I see"]))
    session = await session_of(runner)
    await runner.session_service.append_event(session, Event(author="user", content=message("by hand")))
    await events_of(runner, None)
    assert [event.author for event in (await session_of(runner)).events] == ["user", "a"]


async def test_debug_run_makes_its_session_and_prints_final_texts(capsys: pytest.CaptureFixture[str]) -> None:
    """Row 3.11."""

    def weather(city: str) -> dict[str, str]:
        return {"sky": f"clear in {city}"}

    model = ScriptedModel([FunctionCall(name="weather", args={"city": "Oslo"}), "Clear.", "Bye.", "More."])
    runner = InMemoryRunner(LlmAgent(name="guide", model=model, tools=[weather]))
    events = await runner.run_debug(["Weather?", UserContent("Bye")], verbose=True)
    assert [event.get_function_calls()[0].name for event in events if event.get_function_calls()] == ["weather"]
    assert capsys.readouterr().out.splitlines() == [
        'guide > weather({"city":"Oslo"})',
        'guide > weather -> {"sky":"clear in Oslo"}',
        "guide > Clear.",
        "guide > Bye.",
    ]
    await runner.run_debug("More", quiet=True)
    assert capsys.readouterr().out == ""


async def test_a_runner_closes_the_toolsets_of_agents_in_workflows_and_in_tools() -> None:
    closed: list[str] = []

    class SmallToolset(BaseToolset):
        async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
            return []

        async def close(self) -> None:
            closed.append(self.tool_name_prefix or "")

    def holder(name: str, *tools: BaseTool) -> LlmAgent:
        return LlmAgent(name=name, model=ScriptedModel([]), tools=[SmallToolset(tool_name_prefix=name), *tools])

    behind = AgentTool(holder("behind"))
    async with InMemoryRunner(Workflow(name="steps", edges=[("START", holder("step", behind))])):
        pass
    assert sorted(closed) == ["behind", "step"]


async def test_a_runner_is_closed_after_its_block() -> None:
    """Row 3.12."""

    class Closed(BasePlugin):
        is_closed = False

        async def close(self) -> None:
            self.is_closed = True

    plugin = Closed("closed")
    async with InMemoryRunner(LlmAgent(name="a", model=ScriptedModel(["Hi."])), plugins=[plugin]) as runner:
        await runner.run_debug("Hello", quiet=True)
        assert not plugin.is_closed
    assert plugin.is_closed


def test_a_runner_takes_an_app_or_an_agent_or_a_node() -> None:
    """Row 3.10."""
    agent, sessions = LlmAgent(name="a"), InMemorySessionService()
    assert Runner(node=agent, session_service=sessions).app_name == "a"
    with pytest.raises(AgentConfigError, match="either an app, or an agent"):
        Runner(app=App(name="shop", root_agent=agent), node=agent, session_service=sessions)
    with pytest.raises(AgentConfigError, match="either an app, or an agent"):
        Runner(session_service=sessions)


async def test_runner_makes_missing_sessions_when_asked_to() -> None:
    """Row 3.10."""
    runner = Runner(
        agent=LlmAgent(name="guide", model=ScriptedModel(["Hi."])),
        session_service=InMemorySessionService(),
        auto_create_session=True,
    )
    await events_of(runner, "Hello")
    assert (await session_of(runner)).events
