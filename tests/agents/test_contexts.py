"""Views of a run by callbacks, tools and instruction functions, and their changes of it."""

from __future__ import annotations

from typing import Any

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.workflows import ParallelAgent
from greenroom.errors import AgentConfigError
from greenroom.invocation.user_context import CallbackContext, ReadonlyContext, ToolContext
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import Content, Part
from greenroom.records.listings import MemoryEntry
from greenroom.records.model_exchange import LlmRequest
from greenroom.records.run import RunConfig
from greenroom.runner.runner import Runner
from greenroom.sessions.in_memory import InMemorySessionService
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.tool import BaseTool
from tests.agents.talk import Talk, call, lines_of


async def test_everybody_can_read_where_they_are() -> None:
    """2.2.1."""
    seen: dict[str, dict[str, Any]] = {}

    def note(place: str, context: ReadonlyContext) -> None:
        seen[place] = {
            "user_content": context.user_content.text() if context.user_content else None,
            "invocation_id": context.invocation_id,
            "agent_name": context.agent_name,
            "branch": context.branch,
            "user_id": context.user_id,
            "session_id": context.session.id,
            "first event": context.session.events[0].author,
            "limit": context.run_config.max_llm_calls,
            "state": dict(context.state),
        }

    def instruct(context: ReadonlyContext) -> str:
        note("instruction", context)
        return ""

    def before(callback_context: CallbackContext) -> None:
        note("callback", callback_context)

    def look(tool_context: ToolContext) -> None:
        note("tool", tool_context)

    model = ScriptedModel([call("look"), "seen"])
    agent = LlmAgent(name="a", model=model, tools=[look], instruction=instruct, before_agent_callback=before)
    talk = Talk(ParallelAgent(name="side", sub_agents=[agent]), state={"x": 1})
    events = await talk.say("hi", run_config=RunConfig(max_llm_calls=7))
    everything = {
        "user_content": "hi",
        "invocation_id": events[0].invocation_id,
        "agent_name": "a",
        "branch": "side.a",
        "user_id": "ada",
        "session_id": "s-1",
        "first event": "user",
        "limit": 7,
        "state": {"x": 1},
    }
    assert seen == dict.fromkeys(("instruction", "callback", "tool"), everything)


async def test_callbacks_and_tools_keep_artifacts() -> None:
    """2.2.4, 2.2.10."""
    names: list[list[str]] = []
    texts: list[str | None] = []

    async def before(callback_context: CallbackContext) -> None:
        await callback_context.save_artifact("note", Part(text="first"))

    async def rewrite(tool_context: ToolContext) -> None:
        await tool_context.save_artifact("note", Part(text="second"))
        names.append(await tool_context.list_artifacts())
        for version in (None, 0, 1, 2):
            part = await tool_context.load_artifact("note", version)
            texts.append(part.text if part else None)

    model = ScriptedModel([call("rewrite"), "done"])
    talk = Talk(LlmAgent(name="a", model=model, tools=[rewrite], before_agent_callback=before))
    events = await talk.say("go")
    assert [event.actions.artifact_delta for event in events] == [{"note": 0}, {}, {"note": 1}, {}]
    assert (names, texts) == ([["note"]], ["second", "first", "second", None])


async def test_what_was_said_is_remembered_when_a_callback_says_so() -> None:
    found: list[str] = []

    async def after(callback_context: CallbackContext) -> None:
        await callback_context.add_session_to_memory()

    async def before(callback_context: CallbackContext) -> None:
        memories = (await callback_context.search_memory("harbour")).memories
        found.extend(memory.content.text() for memory in memories)

    model = ScriptedModel(["The harbour is frozen.", "Yes."])
    talk = Talk(LlmAgent(name="a", model=model, before_agent_callback=before, after_agent_callback=after))
    await talk.say("news?")
    assert found == []
    talk.session_id = "s-2"
    await talk.say("still frozen?")
    assert found == ["The harbour is frozen."]


async def test_callbacks_add_entries_and_events_to_memory_and_read_versions_of_artifacts() -> None:
    found: list[str] = []

    async def before(callback_context: CallbackContext) -> None:
        await callback_context.save_artifact("note", Part(text="first"), custom_metadata={"by": "ada"})
        version = await callback_context.get_artifact_version("note")
        assert version is not None
        found.append(f"{version.version} {version.custom_metadata}")
        await callback_context.add_events_to_memory(events=callback_context.session.events)
        await callback_context.add_memory(memories=[MemoryEntry(content=Content(parts=[Part(text="harbour: frozen")]))])
        memories = (await callback_context.search_memory("harbour")).memories
        found.extend(sorted(memory.content.text() for memory in memories))

    await Talk(LlmAgent(name="a", model=ScriptedModel(["Yes."]), before_agent_callback=before)).say(
        "Is the harbour open?"
    )
    assert found == ["0 {'by': 'ada'}", "Is the harbour open?", "harbour: frozen"]


async def test_what_a_context_adds_to_memory_has_the_metadata_that_it_gives() -> None:
    """2.2.11."""
    found: list[object] = []

    async def remembers(callback_context: CallbackContext) -> None:
        own = MemoryEntry(
            content=Content(parts=[Part(text="harbour: frozen")]), custom_metadata={"by": "entry", "n": 1}
        )
        await callback_context.add_memory(memories=[own], custom_metadata={"by": "call", "kind": "note"})
        events = callback_context.session.events
        await callback_context.add_events_to_memory(events=events, custom_metadata={"kind": "talk"})
        memories = (await callback_context.search_memory("harbour")).memories
        found.extend(sorted((one.custom_metadata for one in memories), key=str))
        assert all(event.custom_metadata is None for event in events)

    await Talk(LlmAgent(name="a", model=ScriptedModel(["Yes."]), before_agent_callback=remembers)).say("the harbour")
    assert found == [{"by": "entry", "n": 1, "kind": "note"}, {"kind": "talk"}]


@pytest.mark.parametrize("use", ["save_artifact", "load_artifact", "list_artifacts", "search_memory", "add_session"])
async def test_a_store_that_the_runner_does_not_have_is_named(use: str) -> None:
    """2.2.10, 2.2.11: a ValueError, as in ADK."""

    async def before(callback_context: CallbackContext) -> None:
        match use:
            case "save_artifact":
                await callback_context.save_artifact("note", Part(text="x"))
            case "load_artifact":
                await callback_context.load_artifact("note")
            case "list_artifacts":
                await callback_context.list_artifacts()
            case "search_memory":
                await callback_context.search_memory("x")
            case _:
                await callback_context.add_session_to_memory()

    agent = LlmAgent(name="a", model=ScriptedModel([]), before_agent_callback=before)
    runner = Runner(agent=agent, session_service=InMemorySessionService())
    message, config = Content(parts=[Part(text="hi")]), RunConfig(auto_create_session=True)
    missing = "artifact service" if "artifact" in use else "memory service"
    with pytest.raises(AgentConfigError, match=missing):
        async for _ in runner.run_async(user_id="ada", session_id="s-1", new_message=message, run_config=config):
            pass


class Early(BaseTool):
    """Asks a person before any model has called it."""

    def __init__(self, asks_for: str) -> None:
        super().__init__(name="early", description="")
        self._asks_for = asks_for

    async def process_llm_request(self, *, tool_context: ToolContext, llm_request: LlmRequest) -> None:
        if self._asks_for == "confirmation":
            tool_context.request_confirmation()
        else:
            tool_context.request_credential({"authScheme": {"type": "http", "scheme": "basic"}})

    async def run_async(self, *, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        return None


@pytest.mark.parametrize("asks_for", ["confirmation", "credential"])
async def test_only_a_tool_that_was_called_can_ask_a_person(asks_for: str) -> None:
    """2.2.12: a ValueError, as in ADK."""
    talk = Talk(LlmAgent(name="a", model=ScriptedModel([]), tools=[Early(asks_for)]))
    with pytest.raises(AgentConfigError, match="that a model called"):
        await talk.say("hi")


async def test_state_that_is_changed_in_place_is_stored_and_seen_at_once() -> None:
    seen: list[Any] = []

    def put(tool_context: ToolContext, item: str) -> None:
        tool_context.state["basket"]["items"].append(item)
        assert tool_context.state.has_delta()

    def before(callback_context: CallbackContext, llm_request: LlmRequest) -> None:
        seen.append(str(callback_context.state.get("basket")))

    model = ScriptedModel([[call("put", item="pear"), call("put", item="fig")], "done"])
    agent = LlmAgent(name="a", model=model, tools=[put], before_model_callback=before)
    talk = Talk(agent, state={"basket": {"items": []}, "other": [1]})
    events = await talk.say("go", run_config=RunConfig(tool_execution_mode="SEQUENTIAL"))
    assert seen == ["{'items': []}", "{'items': ['pear', 'fig']}"]
    assert lines_of(events)[-2:] == ["a sets {'basket': {'items': ['pear', 'fig']}}", "a: done"]
    assert await talk.state() == {"basket": {"items": ["pear", "fig"]}, "other": [1]}


async def test_state_is_removed_by_del_and_by_remove_and_may_be_none() -> None:
    def clear(tool_context: ToolContext) -> str:
        tool_context.state["one"] = None
        del tool_context.state["two"]
        return f"{tool_context.state.remove('three')} {sorted(tool_context.state)}"

    model = ScriptedModel([call("clear"), "done"])
    talk = Talk(LlmAgent(name="a", model=model, tools=[clear]), state={"one": 1, "two": 2, "three": 3, "four": 4})
    events = await talk.say("go")
    assert lines_of(events)[1] == "a: clear -> {'result': \"3 ['four', 'one']\"}"
    assert await talk.state() == {"four": 4, "one": None}
