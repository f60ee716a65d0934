from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest

from greenroom import BaseTool, BaseToolset, FallbackModel, LlmAgent, RetryingLlm
from greenroom.agents.agent import BaseAgent
from greenroom.agents.agent_tool import AgentTool
from greenroom.apps.app import App
from greenroom.apps.describe import can_be_live, describe
from greenroom.apps.load_directory import DirectoryAppLoader
from greenroom.apps.loader import StaticAppLoader
from greenroom.records import wire
from greenroom.records.tool_declaration import FunctionDeclaration, Schema
from greenroom.testing import ScriptedLiveModel, ScriptedModel


class Team(BaseAgent):
    def _run_async_impl(self, ctx: Any) -> Any:
        raise NotImplementedError


class Declared(BaseTool):
    def __init__(self, name: str, declaration: FunctionDeclaration | None) -> None:
        super().__init__(name=name, description="")
        self._declaration = declaration

    def _get_declaration(self) -> FunctionDeclaration | None:
        return self._declaration

    async def run_async(self, **_: Any) -> None: ...


class Toolset(BaseToolset):
    def __init__(self, tools: list[BaseTool] | Exception) -> None:
        super().__init__(tool_filter=lambda tool, context: tool.name != "hidden")
        self._tools = tools

    async def get_tools(self, readonly_context: object = None) -> list[BaseTool]:
        await asyncio.sleep(0)
        if isinstance(self._tools, Exception):
            raise self._tools
        return self._tools


def get_weather(city: str) -> str:
    """Current weather of a city."""
    return city


def ask_politely(context: object) -> str:
    return "please"


async def described(root: BaseAgent) -> dict[str, Any]:
    return msgspec.json.decode(wire.encode(await describe(App(name="bistro", root_agent=root), language="python")))


async def test_an_agent_with_its_tools_and_sub_agents() -> None:
    search = Declared("search", FunctionDeclaration(name="search", parameters=Schema(type="OBJECT")))
    root = LlmAgent(
        name="waiter",
        description="Serves",
        instruction="Be kind to {user:name?}.",
        tools=[get_weather, Toolset([search, Declared("hidden", None)]), Declared("silent", None)],
        sub_agents=[LlmAgent(name="cook", instruction=ask_politely)],
    )
    info = await described(root)
    schema = info["agents"]["waiter"]["tools"][0]["functionDeclarations"][0].pop("parametersJsonSchema")
    assert schema["properties"]["city"]["type"] == "string"
    assert info == {
        "name": "bistro",
        "rootAgentName": "waiter",
        "description": "Serves",
        "language": "python",
        "isComputerUse": False,
        "agents": {
            "waiter": {
                "name": "waiter",
                "description": "Serves",
                "instruction": "Be kind to {user:name?}.",
                "tools": [
                    {"functionDeclarations": [{"name": "get_weather", "description": "Current weather of a city."}]},
                    {"functionDeclarations": [{"name": "search", "parametersJsonSchema": {"type": "object"}}]},
                ],
                "sub_agents": ["cook"],
            },
            "cook": {
                "name": "cook",
                "description": "",
                "instruction": "(computed for each run by ask_politely)",
                "tools": [],
                "sub_agents": [],
            },
        },
    }


async def test_only_llm_agents_appear() -> None:
    root = Team(name="team", sub_agents=[Team(name="inner", sub_agents=[LlmAgent(name="writer")])])
    info = await described(root)
    assert info["rootAgentName"] == "team"
    assert list(info["agents"]) == ["writer"]


async def test_a_toolset_that_fails_is_left_out() -> None:
    root = LlmAgent(name="waiter", tools=[Toolset(ConnectionError("down")), get_weather])
    info = await described(root)
    assert [tool["functionDeclarations"][0]["name"] for tool in info["agents"]["waiter"]["tools"]] == ["get_weather"]


@pytest.fixture
def without_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@pytest.mark.usefixtures("without_keys")
def test_faults_of_models_are_logged_when_apps_are_loaded(caplog: pytest.LogCaptureFixture) -> None:
    researcher = LlmAgent(name="researcher", model="openai/gpt-5-mini")
    child = LlmAgent(name="child")
    root = LlmAgent(name="root", model="nothing", sub_agents=[child], tools=[AgentTool(researcher)])
    with caplog.at_level(logging.INFO, "greenroom.apps"):
        StaticAppLoader([root]).preload()
    unknown, no_key = (record.getMessage() for record in caplog.records)
    assert unknown.startswith("app 'root' can't answer: the model of root, child: ")
    assert "'nothing'" in unknown
    assert no_key.startswith("app 'root' can't answer: the model of researcher: ")
    assert "OPENAI_API_KEY" in no_key


@pytest.mark.usefixtures("without_keys")
def test_faults_of_models_in_a_fallback_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    models = FallbackModel([ScriptedModel([]), "openai/gpt-5-mini", RetryingLlm("nothing")])
    with caplog.at_level(logging.INFO, "greenroom.apps"):
        StaticAppLoader([LlmAgent(name="root", model=models)]).preload()
    no_key, unknown = (record.getMessage() for record in caplog.records)
    assert no_key.startswith("app 'root': a model that root may call: ")
    assert "OPENAI_API_KEY" in no_key
    assert "'nothing'" in unknown


def test_the_model_of_agents_without_one_is_logged(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "agent.py").write_text("from greenroom import LlmAgent\nroot_agent = LlmAgent(name='shop')")
    LlmAgent.set_default_model(ScriptedModel([], model="mine"))
    try:
        with caplog.at_level(logging.INFO, "greenroom.apps"):
            DirectoryAppLoader(tmp_path).load("shop")
    finally:
        LlmAgent.set_default_model(None)
    assert [record.getMessage() for record in caplog.records] == [
        "app 'shop': no model is set for shop; the default is 'mine'"
    ]


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("gemini-2.5-flash", False),
        ("gemini-live-2.5-flash", True),
        ("gemini-2.5-flash-native-audio-preview-09-2025", True),
        ("openai/gpt-realtime", True),
        (ScriptedModel([]), False),
        (ScriptedLiveModel([]), True),
    ],
)
def test_apps_whose_model_can_talk(model: Any, expected: bool) -> None:
    root = Team(name="team", sub_agents=[LlmAgent(name="phone", model=model)])
    assert can_be_live(App(name="team", root_agent=root)) is expected
