"""Agents of other frameworks in a folder of apps."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from greenroom.agents.frameworks.langgraph.agent import LangGraphAgent
from greenroom.agents.frameworks.openai_agents.agent import OpenAIAgentsAgent
from greenroom.agents.frameworks.pydantic_ai.agent import PydanticAiAgent
from greenroom.apps.load_directory import DirectoryAppLoader
from greenroom.errors import AppLoadError
from tests.apps.conftest import AgentsDir

GRAPH = """
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph

def say(state):
    return {{"messages": [AIMessage("{text}")]}}

{name} = StateGraph(MessagesState).add_node("say", say).add_edge(START, "say"){compiled}
"""


def source(name: str = "graph", *, text: str = "Hello.", compiled: str = ".compile()") -> str:
    return GRAPH.format(name=name, text=text, compiled=compiled)


def loaded(loader: DirectoryAppLoader, app: str) -> LangGraphAgent:
    agent = loader.load(app).root_agent
    assert isinstance(agent, LangGraphAgent)
    return agent


@pytest.mark.parametrize("name", ["graph", "agent", "app", "root_agent"])
def test_a_graph_in_the_module_of_an_app_is_hosted(agents_dir: AgentsDir, name: str) -> None:
    agents_dir.write("shop/agent.py", source(name))
    loader = DirectoryAppLoader(agents_dir.path)

    assert loader.list_apps() == ["shop"]
    assert loaded(loader, "shop").name == "shop"


def test_a_graph_that_is_not_compiled_is_hosted(agents_dir: AgentsDir) -> None:
    agents_dir.write("2_shops/agent.py", source(compiled=""))

    assert loaded(DirectoryAppLoader(agents_dir.path), "2_shops").name == "_2_shops"


def test_a_package_that_exports_a_graph_is_an_app(agents_dir: AgentsDir) -> None:
    agents_dir.write("shop/__init__.py", source())
    agents_dir.write("library/__init__.py", "graph = agent = None")
    loader = DirectoryAppLoader(agents_dir.path)

    assert loader.list_apps() == ["shop"]
    loaded(loader, "shop")


def test_an_agent_that_hosts_a_graph_is_taken_as_it_is(agents_dir: AgentsDir) -> None:
    text = source() + 'from greenroom import LangGraphAgent\nroot_agent = LangGraphAgent(name="desk", graph=graph)\n'
    agents_dir.write("shop/agent.py", text)

    assert loaded(DirectoryAppLoader(agents_dir.path), "shop").name == "desk"


@pytest.mark.parametrize(
    "entry",
    ['"./src/graph.py:flow"', '{"path": "src/graph.py:flow"}', '"src.graph:flow"', '"./src/graph.py:make"'],
)
def test_the_graph_of_a_langgraph_json_is_hosted(agents_dir: AgentsDir, entry: str) -> None:
    text = source("flow") + "\ndef make(config):\n    return flow\n"
    agents_dir.write("shop/src/graph.py", text)
    agents_dir.write("shop/langgraph.json", f'{{"dependencies": ["."], "graphs": {{"chat": {entry}}}}}')
    loader = DirectoryAppLoader(agents_dir.path)

    assert loader.list_apps() == ["shop"]
    assert loaded(loader, "shop").name == "shop"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "langgraph.json is not valid JSON"),
        ('{"graphs": {}}', "langgraph.json names no graphs"),
        ('{"graphs": {"a": "./a.py:graph", "b": "./b.py:graph"}}', "names the graphs a, b, and an app has one"),
        ('{"graphs": {"a": "./a.py"}}', "expected 'path/to/file.py:variable'"),
        ('{"graphs": {"a": "../a.py:graph"}}', "../a.py is outside of the app's folder"),
        ('{"graphs": {"a": "./a.py:nothing"}}', "names nothing of a, which is no graph of LangGraph"),
    ],
)
def test_a_langgraph_json_without_a_graph_is_reported(agents_dir: AgentsDir, text: str, reason: str) -> None:
    agents_dir.write("shop/langgraph.json", text)
    agents_dir.write("shop/a.py", source())

    with pytest.raises(AppLoadError) as caught:
        DirectoryAppLoader(agents_dir.path).load("shop")
    assert reason in caught.value.reason


def test_of_several_graphs_the_one_with_the_folders_name_is_the_app(agents_dir: AgentsDir) -> None:
    agents_dir.write("shop/langgraph.json", '{"graphs": {"other": "./b.py:graph", "shop": "./a.py:graph"}}')
    agents_dir.write("shop/a.py", source())

    loaded(DirectoryAppLoader(agents_dir.path), "shop")


def test_a_changed_graph_is_loaded_again(agents_dir: AgentsDir) -> None:
    agents_dir.write("shop/langgraph.json", '{"graphs": {"shop": "./a.py:graph"}}')
    agents_dir.write("shop/a.py", source())
    agents_dir.write("shop/b.py", source())
    loader = DirectoryAppLoader(agents_dir.path)
    first = loaded(loader, "shop")

    for change in (
        lambda: agents_dir.write("shop/a.py", source(text="Good morning.")),
        lambda: agents_dir.write("shop/langgraph.json", '{"graphs": {"shop": "./b.py:graph"}}'),
    ):
        change()
        loader.refresh()
        assert loader.refresh()
        again = loaded(loader, "shop")
        assert again is not first
        first = again


def test_no_framework_is_imported_for_apps_that_use_none(agents_dir: AgentsDir) -> None:
    agents_dir.agent("shop")
    agents_dir.write("desk/__init__.py", "from . import agent")
    agents_dir.write(
        "desk/agent.py", "from greenroom import LlmAgent\nroot_agent = LlmAgent(name='d')\ngraph = object()"
    )
    script = (
        "import sys\n"
        "from greenroom.apps.load_directory import DirectoryAppLoader\n"
        f"loader = DirectoryAppLoader({str(agents_dir.path)!r})\n"
        "for name in loader.list_apps(): loader.load(name)\n"
        "print(*sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    packages = {name.partition(".")[0] for name in done.stdout.split()}

    assert "greenroom_apps" in packages
    assert not packages & {"langgraph", "langchain_core", "pydantic_ai", "agents"}


def test_an_app_in_a_folder_of_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "langgraph.json").write_text('{"graphs": {"chat": "./graph.py:graph"}}')
    (folder / "graph.py").write_text(source())

    loader = DirectoryAppLoader(folder)
    assert loader.list_apps() == ["shop"]
    loaded(loader, "shop")


def test_an_agent_of_pydantic_ai_is_hosted(agents_dir: AgentsDir) -> None:
    text = 'from pydantic_ai import Agent\n\nagent = Agent("test", instructions="Be brief.")\n'
    agents_dir.write("shop/agent.py", text)
    loader = DirectoryAppLoader(agents_dir.path)

    assert loader.list_apps() == ["shop"]
    agent = loader.load("shop").root_agent
    assert isinstance(agent, PydanticAiAgent)
    assert agent.name == "shop"


def test_an_agent_of_the_openai_agents_sdk_is_hosted(agents_dir: AgentsDir) -> None:
    agents_dir.write("shop/agent.py", 'from agents import Agent\n\nagent = Agent("Shop", instructions="Be brief.")\n')
    loader = DirectoryAppLoader(agents_dir.path)

    assert loader.list_apps() == ["shop"]
    agent = loader.load("shop").root_agent
    assert isinstance(agent, OpenAIAgentsAgent)
    assert agent.name == "shop"
