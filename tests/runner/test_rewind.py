"""Rewinding a session: everything that reads its history leaves out what was taken back (rows 3.12 and 12.2 of ADK)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from greenroom.agents.agent import BaseAgent
from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.app import App
from greenroom.artifacts.in_memory import InMemoryArtifactService
from greenroom.errors import InvalidRequest, RunNotFound
from greenroom.invocation.context import InvocationContext
from greenroom.invocation.user_context import ToolContext
from greenroom.log.state import log_state_of
from greenroom.memory.in_memory import InMemoryMemoryService
from greenroom.records.content import Content, FunctionCall, FunctionResponse, Part, UserContent
from greenroom.records.event import Event, EventActions
from greenroom.records.session import Session
from greenroom.records.state import REMOVED
from greenroom.runner.in_memory import InMemoryRunner
from greenroom.runner.runner import Runner
from greenroom.sessions.sqlite import SqliteSessionService
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.functions.function_tool import FunctionTool, LongRunningFunctionTool

WHERE: dict[str, Any] = {"user_id": "ada", "session_id": "s"}


async def runner_of(agent: BaseAgent, state: dict[str, Any] | None = None) -> InMemoryRunner:
    runner = InMemoryRunner(app=App(name="a", root_agent=agent))
    await runner.session_service.create_session(app_name="a", state=state, **WHERE)
    return runner


async def say(runner: Runner, words: str, run: str) -> list[Event]:
    return [e async for e in runner.run_async(**WHERE, new_message=UserContent(words), invocation_id=run)]


async def session_of(runner: Runner) -> Session:
    session = await runner.session_service.get_session(app_name="a", **WHERE)
    assert session is not None
    return session


def texts(contents: Any) -> list[str | None]:
    return [part.text for content in contents for part in content.parts or ()]


async def test_the_model_is_not_shown_what_was_taken_back() -> None:
    model = ScriptedModel(["one", "two", "three", "four"])
    runner = await runner_of(LlmAgent(name="a", model=model))
    for number in "123":
        await say(runner, number, f"e-{number}")
    await runner.rewind_async(**WHERE, rewind_before_invocation_id="e-2")
    await say(runner, "4", "e-4")
    assert texts(model.requests[-1].contents) == ["1", "one", "4"]
    events = (await session_of(runner)).events
    assert len(events) == 9  # nothing was removed
    assert events[6].author == "user"
    assert events[6].actions.rewind_before_invocation_id == "e-2"


async def test_a_rewind_before_the_first_run_leaves_an_empty_history() -> None:
    model = ScriptedModel(["one", "two"])
    runner = await runner_of(LlmAgent(name="a", model=model))
    await say(runner, "1", "e-1")
    await runner.rewind_async(**WHERE, rewind_before_invocation_id="e-1")
    await say(runner, "2", "e-2")
    assert texts(model.requests[-1].contents) == ["2"]


async def test_an_agent_without_history_is_not_shown_its_call_that_was_taken_back() -> None:
    model = ScriptedModel([FunctionCall(id="c-1", name="job"), "waits", "two"])
    job = LongRunningFunctionTool(lambda: None, name="job")
    runner = await runner_of(LlmAgent(name="a", model=model, tools=[job], include_contents="none"))
    await say(runner, "1", "e-1")
    await runner.rewind_async(**WHERE, rewind_before_invocation_id="e-1")
    await say(runner, "2", "e-2")
    assert texts(model.requests[-1].contents) == ["2"]


async def test_the_agent_that_was_transferred_to_loses_the_conversation_again() -> None:
    call = FunctionCall(name="transfer_to_agent", args={"agent_name": "b"})
    root = ScriptedModel(["one", call, "three"])
    below = LlmAgent(name="b", model=ScriptedModel(["two"]))
    runner = await runner_of(LlmAgent(name="a", model=root, sub_agents=[below]))
    for number in "12":
        await say(runner, number, f"e-{number}")
    await runner.rewind_async(**WHERE, rewind_before_invocation_id="e-2")
    assert [event.author for event in await say(runner, "3", "e-3")] == ["a"]


async def test_a_call_that_was_taken_back_can_no_longer_be_answered() -> None:
    model = ScriptedModel([FunctionCall(id="c-1", name="job"), "waits"])
    job = LongRunningFunctionTool(lambda: None, name="job")
    runner = await runner_of(LlmAgent(name="a", model=model, tools=[job]))
    await say(runner, "1", "e-1")
    await runner.rewind_async(**WHERE, rewind_before_invocation_id="e-1")
    answer = Content(role="user", parts=[Part(function_response=FunctionResponse(id="c-1", name="job", response={}))])
    with pytest.raises(InvalidRequest, match="No function call"):
        async for _ in runner.run_async(**WHERE, new_message=answer):
            pass


async def test_an_earlier_run_whose_answer_was_taken_back_waits_again() -> None:
    model = ScriptedModel([FunctionCall(id="c-1", name="pay"), "other", "paid", "paid again"])
    runner = await runner_of(LlmAgent(name="a", model=model, tools=[FunctionTool(pay, require_confirmation=True)]))
    events = await say(runner, "Pay", "e-1")
    call = next(c for e in events for c in e.get_function_calls() if c.name == "adk_request_confirmation")
    response = FunctionResponse(id=call.id, name=call.name, response={"confirmed": True})
    answer = Content(role="user", parts=[Part(function_response=response)])
    await say(runner, "Something else", "e-2")
    for _ in range(2):
        ended = [e async for e in runner.run_async(**WHERE, new_message=answer)]
        assert [r.response for r in ended[0].get_function_responses()] == [{"result": "paid"}]
        await runner.rewind_async(**WHERE, rewind_before_invocation_id="e-2")
    assert texts(model.requests[-1].contents) == ["Pay", None, None]


def pay() -> str:
    return "paid"


class Counting(BaseAgent):
    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event]:
        count = ctx.session.state.get("count", 0) + 1
        delta = {"count": count, f"of_run_{count}": True, "kept": [count], "app:total": count, "user:total": count}
        yield Event(invocation_id=ctx.invocation_id, author=self.name, actions=EventActions(state_delta=delta))


async def test_state_of_the_session_is_as_it_was_and_other_scopes_stay() -> None:
    runner = await runner_of(Counting(name="a"), state={"from_the_start": 1})
    for number in "123":
        await say(runner, number, f"e-{number}")
    await runner.rewind_async(**WHERE, rewind_before_invocation_id="e-2")
    session = await session_of(runner)
    assert session.state == {
        "from_the_start": 1,
        "count": 1,
        "of_run_1": True,
        "kept": [1],
        "app:total": 3,
        "user:total": 3,
    }
    assert session.events[-1].actions.state_delta == {"count": 1, "of_run_2": REMOVED, "of_run_3": REMOVED, "kept": [1]}


async def test_a_second_rewind_goes_further_back() -> None:
    runner = await runner_of(Counting(name="a"))
    for number in "123":
        await say(runner, number, f"e-{number}")
    await runner.rewind_async(**WHERE, rewind_before_invocation_id="e-3")
    await runner.rewind_async(**WHERE, rewind_before_invocation_id="e-2")
    session = await session_of(runner)
    assert session.state["count"] == 1
    assert log_state_of(session.events).rewound == {2, 3, 4, 5, 6, 7}


async def save(name: str, text: str, tool_context: ToolContext) -> int:
    return await tool_context.save_artifact(name, Part.from_text(text=text))


async def test_artifacts_are_saved_again_as_they_were() -> None:
    def saving(name: str, text: str) -> list[Any]:
        return [FunctionCall(name="save", args={"name": name, "text": text}), "saved"]

    steps = [("report", "old"), ("report", "new"), ("notes", "n"), ("user:card", "c")]
    model = ScriptedModel([one for step in steps for one in saving(*step)])
    runner = await runner_of(LlmAgent(name="a", model=model, tools=[save]))
    for number in range(4):
        await say(runner, "save", f"e-{number}")
    await runner.rewind_async(**WHERE, rewind_before_invocation_id="e-1")
    artifacts = runner.artifact_service
    assert isinstance(artifacts, InMemoryArtifactService)
    found = {name: await artifacts.load_artifact(app_name="a", **WHERE, filename=name) for name in dict(steps)}
    assert {name: part and part.text for name, part in found.items()} == {
        "report": "old",
        "notes": None,
        "user:card": "c",
    }
    assert (await session_of(runner)).events[-1].actions.artifact_delta == {"report": 2, "notes": 1}


async def test_an_unknown_run_is_refused_and_nothing_is_stored() -> None:
    runner = await runner_of(LlmAgent(name="a", model=ScriptedModel(["one"])))
    await say(runner, "1", "e-1")
    with pytest.raises(RunNotFound):
        await runner.rewind_async(**WHERE, rewind_before_invocation_id="e-2")
    assert len((await session_of(runner)).events) == 2


async def test_a_log_that_was_brought_along_is_read_without_what_was_taken_back(tmp_path: Any) -> None:
    log = [
        Event(invocation_id="e-1", author="user", content=UserContent("1")),
        Event(invocation_id="e-1", author="a", content=Content(role="model", parts=[Part(text="one")])),
        Event(invocation_id="e-2", author="user", content=UserContent("2")),
        Event(invocation_id="e-3", author="user", actions=EventActions(rewind_before_invocation_id="e-2")),
        Event(invocation_id="e-4", author="user", actions=EventActions(rewind_before_invocation_id="e-none")),
    ]
    model = ScriptedModel(["three"])
    sessions = SqliteSessionService(str(tmp_path / "s.db"))
    await sessions.create_session(app_name="a", **WHERE, events=log)
    await sessions.close()
    sessions = SqliteSessionService(str(tmp_path / "s.db"))
    runner = Runner(agent=LlmAgent(name="a", model=model), app_name="a", session_service=sessions)
    await say(runner, "3", "e-5")
    await sessions.close()
    assert texts(model.requests[-1].contents) == ["1", "one", "3"]


async def test_memory_does_not_take_in_what_was_taken_back() -> None:
    runner = await runner_of(LlmAgent(name="a", model=ScriptedModel(["one", "two"])))
    await say(runner, "apples", "e-1")
    await say(runner, "pears", "e-2")
    await runner.rewind_async(**WHERE, rewind_before_invocation_id="e-2")
    memory = InMemoryMemoryService()
    await memory.add_session_to_memory(await session_of(runner))
    found = await memory.search_memory(app_name="a", user_id="ada", query="apples pears")
    assert [texts([one.content]) for one in found.memories] == [["apples"]]
