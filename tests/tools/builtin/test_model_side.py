"""Tools that only mark a request."""

from __future__ import annotations

from typing import Any

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.errors import AgentConfigError
from greenroom.records import wire
from greenroom.records.answer_metadata import GroundingMetadata
from greenroom.records.content import Content, Part
from greenroom.records.model_exchange import LlmResponse
from greenroom.records.tool_declaration import Tool
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.builtin.model_side import (
    CodeExecutionTool,
    EnterpriseWebSearchTool,
    GoogleMapsGroundingTool,
    GoogleSearchTool,
    ModelSideTool,
    UrlContextTool,
    VertexAiSearchTool,
    code_execution,
    enterprise_web_search,
    google_maps_grounding,
    google_search,
    url_context,
)
from tests.agents.talk import Talk, call, lines_of

STORE = "projects/p/locations/global/collections/default_collection/dataStores/d"
ENGINE = "projects/p/locations/global/collections/default_collection/engines/e"


async def marks(*tools: Any, model: str = "gemini-2.5-flash") -> list[Tool]:
    asked = ScriptedModel(["ok"], model=model)
    await Talk(LlmAgent(name="a", model=asked, tools=tools)).say("hi")
    return asked.requests[0].config.tools or []


@pytest.mark.parametrize(
    ("tool", "on_the_wire"),
    [
        (google_search, {"googleSearch": {}}),
        (google_maps_grounding, {"googleMaps": {}}),
        (url_context, {"urlContext": {}}),
        (enterprise_web_search, {"enterpriseWebSearch": {}}),
        (code_execution, {"codeExecution": {}}),
        (
            VertexAiSearchTool(data_store_id=STORE, filter="a = 1", max_results=3),
            {"retrieval": {"vertexAiSearch": {"datastore": STORE, "filter": "a = 1", "maxResults": 3}}},
        ),
        (
            VertexAiSearchTool(search_engine_id=ENGINE, data_store_specs=[{"dataStore": STORE}]),
            {"retrieval": {"vertexAiSearch": {"engine": ENGINE, "dataStoreSpecs": [{"dataStore": STORE}]}}},
        ),
    ],
)
async def test_a_request_is_marked_with_the_tools_entry(tool: ModelSideTool, on_the_wire: dict[str, Any]) -> None:
    (entry,) = await marks(tool)
    assert wire.to_plain(entry) == on_the_wire


async def test_entries_stand_beside_functions_and_each_only_once() -> None:
    def add(a: int, b: int) -> int:
        """Adds."""
        return a + b

    declared, search, code = await marks(add, google_search, GoogleSearchTool(), code_execution)
    assert [d.name for d in declared.function_declarations or ()] == ["add"]
    assert (search, code) == (Tool(google_search={}), Tool(code_execution={}))


@pytest.mark.parametrize(
    "model",
    [
        "gemini-3-pro",
        "gemini-flash-latest",
        "models/gemini-2.0-flash",
        "apigee/v1/gemini-2.5-pro",
        "vertex_ai/gemini-2.5-pro",
        "projects/p/locations/us-central1/publishers/google/models/gemini-2.5-pro",
    ],
)
async def test_every_path_to_a_gemini_is_one(model: str) -> None:
    assert await marks(url_context, model=model) == [Tool(url_context={})]


@pytest.mark.parametrize(
    "tool",
    [
        GoogleSearchTool(),
        GoogleMapsGroundingTool(),
        UrlContextTool(),
        EnterpriseWebSearchTool(),
        CodeExecutionTool(),
        VertexAiSearchTool(data_store_id=STORE),
    ],
)
async def test_other_models_are_refused_unless_the_check_is_off(
    tool: ModelSideTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for model in ("claude-9", "my-gemini-2"):
        with pytest.raises(AgentConfigError, match=model):
            await marks(tool, model=model)
    monkeypatch.setenv("ADK_DISABLE_GEMINI_MODEL_ID_CHECK", "true")
    assert await marks(tool, model="claude-9") == [tool.entry]


async def test_url_context_needs_the_second_gemini_and_search_takes_the_first() -> None:
    with pytest.raises(AgentConfigError, match="Gemini 2 or newer"):
        await marks(url_context, model="gemini-1.5-pro")
    assert await marks(google_search, model="gemini-1.5-pro") == [Tool(google_search={})]


async def test_search_can_name_the_model_that_is_asked() -> None:
    asked = ScriptedModel(["ok"], model="claude-9")
    search = GoogleSearchTool(model="gemini-2.5-pro", bypass_multi_tools_limit=True)
    await Talk(LlmAgent(name="a", model=asked, tools=[search])).say("hi")
    assert asked.requests[0].model == "gemini-2.5-pro"
    assert search.bypass_multi_tools_limit


GROUNDED = {"webSearchQueries": ["weather"]}


@pytest.mark.parametrize(
    ("search", "agent", "entry"),
    [
        (GoogleSearchTool(bypass_multi_tools_limit=True), "google_search_agent", Tool(google_search={})),
        (
            VertexAiSearchTool(data_store_id=STORE, bypass_multi_tools_limit=True),
            "vertex_ai_search_agent",
            Tool(retrieval={"vertexAiSearch": {"datastore": STORE}}),
        ),
    ],
)
async def test_beside_other_tools_an_agent_of_its_own_does_the_search(
    search: ModelSideTool, agent: str, entry: Tool
) -> None:
    def note() -> None:
        """Notes."""

    found = LlmResponse(
        content=Content(role="model", parts=[Part(text="Rain.")]),
        grounding_metadata=wire.from_plain(GROUNDED, GroundingMetadata),
    )
    script = {"a": [call(agent, request="weather?"), "Take an umbrella."], agent: [found]}
    asked = ScriptedModel(script, model="gemini-1.5-flash")
    talk = Talk(LlmAgent(name="a", model=asked, tools=[search, note]))
    events = [event for event in await talk.say("hi") if event.isolation_scope is None]
    assert lines_of(events)[1:] == [f"a: {agent} -> {{'result': 'Rain.'}}", "a: Take an umbrella."]
    assert [d.name for d in asked.requests[0].function_declarations()] == [agent, "note"]
    assert asked.requests[1].config.tools == [entry]
    assert events[-1].grounding_metadata == GROUNDED
    assert not any(key.startswith("temp:") for key in await talk.state())


async def test_an_agent_to_hand_over_to_is_another_tool_too() -> None:
    search = GoogleSearchTool(bypass_multi_tools_limit=True)
    below = LlmAgent(name="below", model=ScriptedModel(["ok"]))
    agent = LlmAgent(name="a", model=ScriptedModel(["ok"], model="gemini-1.5"), tools=[search], sub_agents=[below])
    assert [tool.name for tool in await agent.canonical_tools()] == ["google_search_agent"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "either data_store_id or search_engine_id"),
        ({"data_store_id": STORE, "search_engine_id": ENGINE}, "either data_store_id or search_engine_id"),
        ({"data_store_id": STORE, "data_store_specs": []}, "only with search_engine_id"),
    ],
)
def test_vertex_search_is_of_one_data_store_or_one_engine(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(AgentConfigError, match=reason):
        VertexAiSearchTool(**options)


def test_a_search_of_vertex_ai_may_have_another_name() -> None:
    """Row 12.8."""
    tool = VertexAiSearchTool(data_store_id=STORE, name="handbook", description="Searches the handbook.")
    assert (tool.name, tool.description) == ("handbook", "Searches the handbook.")
    assert VertexAiSearchTool(data_store_id=STORE).name == "vertex_ai_search"
