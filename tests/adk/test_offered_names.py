"""Names of ADK that are more than another name here."""

from __future__ import annotations

from pathlib import Path

import pytest

import greenroom
from greenroom import (
    AGENT_CARD_WELL_KNOWN_PATH,
    BaseTool,
    GoogleSearchAgentTool,
    InMemoryRunner,
    LlmAgent,
    McpToolset,
    ReadonlyContext,
    RemoteA2aAgent,
    StdioConnectionParams,
    StdioServerParameters,
    ToolPredicate,
    adk_to_mcp_tool_type,
    create_google_search_agent,
    from_config,
    gemini_to_json_schema,
    google_search,
    types,
)
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.functions.function_tool import FunctionTool


def test_an_agent_is_loaded_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "desk" / "root_agent.yaml"
    file.parent.mkdir()
    file.write_text("name: desk\nmodel: local/smollm2-135m\ninstruction: Help.\n")

    assert from_config(str(file)).name == "desk"
    with pytest.raises(FileNotFoundError, match=r"other\.yaml"):
        from_config(str(tmp_path / "other.yaml"))


def test_a_remote_agent_is_named_by_its_server_and_the_path_of_cards() -> None:
    assert AGENT_CARD_WELL_KNOWN_PATH == "/.well-known/agent-card.json"
    RemoteA2aAgent(name="remote", agent_card=f"http://localhost:8001{AGENT_CARD_WELL_KNOWN_PATH}")


def weather(city: str, days: int = 1) -> str:
    """Tells the weather."""
    return f"{city} {days}"


def test_a_tool_is_declared_as_mcp_servers_list_it() -> None:
    tool = adk_to_mcp_tool_type(FunctionTool(weather))
    assert (tool.name, tool.description) == ("weather", "Tells the weather.")
    assert tool.input_schema["required"] == ["city"]
    assert tool.input_schema["properties"]["days"]["type"] == "integer"


def test_a_schema_of_gemini_is_written_as_json_schema() -> None:
    schema = types.Schema(
        type=types.Type.OBJECT,
        properties={
            "tags": types.Schema(type=types.Type.ARRAY, items=types.Schema(type=types.Type.STRING), min_items=1)
        },
    )
    assert gemini_to_json_schema(schema) == {
        "type": "object",
        "properties": {"tags": {"type": "array", "items": {"type": "string"}, "minItems": 1}},
    }


def test_an_agent_that_searches_with_google_is_a_tool() -> None:
    searcher = create_google_search_agent("gemini-2.5-flash")
    assert searcher.tools == [google_search]
    tool = GoogleSearchAgentTool(searcher)
    assert tool.name == "google_search_agent"
    assert tool.propagate_grounding_metadata


async def test_too_many_model_calls_are_caught_by_adks_name() -> None:
    agent = LlmAgent(name="a", model=ScriptedModel(["one"]), tools=[])
    runner = InMemoryRunner(agent, app_name="app")
    await runner.session_service.create_session(app_name="app", user_id="u", session_id="s")
    with pytest.raises(greenroom.LlmCallsLimitExceededError):
        raise greenroom.errors.LlmCallsLimitExceeded(3)
    with pytest.raises(greenroom.AlreadyExistsError):
        await runner.session_service.create_session(app_name="app", user_id="u", session_id="s")


class OnlyReads(ToolPredicate):
    def __call__(self, tool: BaseTool, readonly_context: ReadonlyContext | None = None, /) -> bool:
        return tool.name.startswith("read_")


def test_a_filter_of_tools_is_a_class_of_its_own() -> None:
    server = StdioServerParameters(command="server")
    toolset = McpToolset(connection_params=StdioConnectionParams(server_params=server), tool_filter=OnlyReads())
    assert toolset.is_selected(FunctionTool(weather, name="read_weather"), None)
    assert not toolset.is_selected(FunctionTool(weather), None)
