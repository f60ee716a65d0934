"""The base class of toolsets."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import greenroom
from greenroom.agents.llm_agent import LlmAgent
from greenroom.errors import AgentConfigError, ToolLoadingError
from greenroom.invocation.user_context import ReadonlyContext, ToolContext
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.model_exchange import LlmRequest
from greenroom.records.run import RunConfig
from greenroom.records.tool_declaration import FunctionDeclaration
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.functions.function_tool import FunctionTool
from greenroom.tools.mcp.connection_params import StdioConnectionParams, StdioServerParameters
from greenroom.tools.mcp.toolset import McpToolset
from greenroom.tools.tool import BaseTool
from greenroom.tools.toolset import BaseToolset
from tests.agents.talk import Talk, lines_of
from tests.tools.one_call import call_once, calls_in_a_run


class Echo(BaseTool):
    """Writes its name into its declaration by hand."""

    def __init__(self) -> None:
        super().__init__(name="echo", description="Repeats a word.")

    def _get_declaration(self) -> FunctionDeclaration:
        return FunctionDeclaration(name="echo", description=self.description)

    async def run_async(self, *, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        return args.get("word")


def shout(word: str) -> str:
    """Repeats a word loudly."""
    return word.upper()


class Words(BaseToolset):
    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        return [Echo(), FunctionTool(shout)]

    async def process_llm_request(self, *, tool_context: ToolContext, llm_request: LlmRequest) -> None:
        llm_request.append_instructions([f"{len(llm_request.function_declarations())} tools before mine."])


class Broken(BaseToolset):
    def __init__(self, error: Exception, **options: Any) -> None:
        super().__init__(**options)
        self.error = error

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        raise self.error


async def test_a_prefix_stands_before_names_and_declarations_and_the_filter_goes_by_the_names_without() -> None:
    toolset = Words(tool_filter=["echo"], tool_name_prefix="my")
    calls = await call_once(toolset, "my_echo", {"word": "x"})
    assert calls.response == {"result": "x"}
    assert [declaration.name for declaration in calls.requests[0].function_declarations()] == ["my_echo"]
    assert [tool.name for tool in await toolset.get_tools()] == ["echo", "shout"]
    assert (await call_once(Words(tool_name_prefix="my"), "my_shout", {"word": "x"})).response == {"result": "X"}


async def test_a_toolset_edits_requests_before_its_tools_do() -> None:
    request = (await calls_in_a_run(Words())).requests[0]
    assert "0 tools before mine." in request.config.system_text()


async def test_a_toolset_of_ones_own_that_raises_fails_the_run_with_a_loading_error() -> None:
    cause = KeyError("token")
    with pytest.raises(ToolLoadingError, match="The tools of Broken can't be loaded: KeyError: 'token'") as caught:
        await calls_in_a_run(Broken(cause))
    assert caught.value.__cause__ is cause
    refused = AgentConfigError("no such table")
    with pytest.raises(AgentConfigError) as raised:
        await calls_in_a_run(Broken(refused))
    assert raised.value is refused


@pytest.mark.parametrize(
    ("toolset_says", "run_says", "fails"),
    [(None, "fail", True), (None, "warn", False), ("warn", "fail", False), ("fail", "warn", True)],
)
async def test_toolset_and_app_choose_whether_a_run_fails_without_the_tools(
    caplog: pytest.LogCaptureFixture, toolset_says: Any, run_says: Any, fails: bool
) -> None:
    broken = Broken(OSError("down"), on_error=toolset_says)
    agent = LlmAgent(name="agent", model=ScriptedModel(["hello"]), tools=[broken, shout])
    talk, config = Talk(agent), RunConfig(on_toolset_error=run_says)
    if fails:
        with pytest.raises(ToolLoadingError):
            await talk.say("hi", run_config=config)
        return
    with caplog.at_level(logging.WARNING, "greenroom.tools"):
        assert lines_of(await talk.say("hi", run_config=config)) == ["agent: hello"]
    assert "Continuing without the tools of Broken" in caplog.text
    assert "OSError: down" in caplog.text


def test_a_server_process_has_a_minute_to_start() -> None:
    server = StdioServerParameters("server")
    assert StdioConnectionParams(server).timeout == 60.0
    assert McpToolset(connection_params=server)._params.timeout == 60.0  # pyright: ignore[reportPrivateUsage]


def test_adks_earlier_names_are_there() -> None:
    assert greenroom.MCPToolset is greenroom.McpToolset
    assert greenroom.MCPTool is greenroom.McpTool
    assert greenroom.StreamableHTTPServerParams is greenroom.StreamableHTTPConnectionParams
    assert greenroom.preload_memory_tool is greenroom.preload_memory_tool.preload_memory_tool
    assert isinstance(greenroom.preload_memory_tool.PreloadMemoryTool(), greenroom.PreloadMemoryTool)
    assert isinstance(greenroom.load_memory_tool.LoadMemoryTool(), greenroom.LoadMemoryTool)
    assert isinstance(greenroom.load_artifacts_tool.LoadArtifactsTool(), greenroom.LoadArtifactsTool)
    assert greenroom.load_web_page is greenroom.load_web_page.load_web_page
    assert greenroom.load_memory_tool is greenroom.load_memory_tool.load_memory_tool is greenroom.load_memory
    assert (
        greenroom.load_artifacts_tool is greenroom.load_artifacts_tool.load_artifacts_tool is greenroom.load_artifacts
    )


@pytest.mark.parametrize(
    ("tools", "message"),
    [
        ([Words(), Words()], "tools[0] (Words) and tools[1] (Words) have a tool of the name 'echo'"),
        ([Echo(), Words()], "tools[0] (Echo) and tools[1] (Words) have a tool of the name 'echo'"),
        ([Words(), shout], "tools[0] (Words) and tools[1] (function) have a tool of the name 'shout'"),
        ([Words(), Words(tool_name_prefix="b")], None),
        ([Words(tool_filter=["echo"]), shout], None),
    ],
)
async def test_equal_names_of_tools_are_reported_once(
    caplog: pytest.LogCaptureFixture, tools: list[Any], message: str | None
) -> None:
    talk = Talk(LlmAgent(name="a", model=ScriptedModel(["ok"], loop=True), tools=tools))
    for _ in range(2):
        await talk.say("go")
    reported = [text for text in caplog.messages if "have a tool of the name" in text]
    if message is None:
        assert reported == []
    else:
        assert len([text for text in reported if message in text]) == 1
        assert all("tool_name_prefix" in text for text in reported)
