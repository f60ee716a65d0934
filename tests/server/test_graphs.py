"""Graphs of apps: DOT for ADK's UI, which lays it out itself, and pictures."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pydot
import pytest

from greenroom.agents.agent_tool import AgentTool
from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.workflows import LoopAgent, SequentialAgent
from greenroom.apps.app import App
from greenroom.apps.load_directory import DirectoryAppLoader
from greenroom.apps.loader import StaticAppLoader
from greenroom.plugins.plugin import BasePlugin
from greenroom.records.content import FunctionCall
from greenroom.tools.retrieval.files_retrieval import FilesRetrieval
from tests.server.agents import echo, scripted
from tests.server.conftest import Serve
from tests.server.security.keys import Keys, bearer
from tests.server.serving import Json, Serving
from tests.server.test_traces import answers_calls, get_weather

pytestmark = pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning:pydot")  # the parser's own


@pytest.fixture
async def team(serve: Serve, tmp_path: Path) -> Serving:
    """An LLM agent with a tool of each kind above a sequence, in which is a loop."""
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("Oslo is cold.")
    notes = FilesRetrieval(name="notes", description="Notes", input_dir=str(tmp_path / "notes"))
    polish = LoopAgent(name="polish", sub_agents=[echo("critic")], max_iterations=1)
    front = LlmAgent(
        name="front",
        description="Greets",
        model=scripted("x", answers_calls(FunctionCall(name="get_weather", args={"city": "Oslo"}))).model,
        instruction="Be kind",
        tools=[get_weather, notes, AgentTool(agent=echo("expert"))],
        sub_agents=[SequentialAgent(name="work", sub_agents=[scripted("writer", "hi", tools=[get_weather]), polish])],
    )
    return await serve(front)


async def dot_of(server: Serving, path: str, **query: str) -> pydot.Dot:
    reply = await server.client.get(path, params=query)
    assert reply.status_code == 200, reply.text
    return parsed(reply.json()["dotSrc"])


def parsed(dot: str) -> pydot.Dot:
    graphs = pydot.graph_from_dot_data(dot)
    assert graphs is not None
    [graph] = graphs
    return graph


def edges(graph: pydot.Dot) -> set[tuple[str, str]]:
    return {(plain(edge.get_source()), plain(edge.get_destination())) for edge in graph.get_edges()}


def nodes(graph: pydot.Dot) -> dict[str, Json]:
    return {
        plain(node.get_name()): {k: plain(v) for k, v in node.get_attributes().items()} for node in graph.get_nodes()
    }


def plain(text: Any) -> str:
    return str(text).strip('"')


async def test_the_graph_has_each_agent_and_tool_by_name(team: Serving) -> None:
    graph = await dot_of(team, "/dev/apps/front/graph")
    assert edges(graph) == {
        ("front", "get_weather"),
        ("front", "notes"),
        ("front", "expert"),
        ("front", "work"),
        ("work", "writer"),
        ("writer", "get_weather"),
        ("work", "polish"),
        ("polish", "critic"),
    }
    shapes = {name: node["shape"] for name, node in nodes(graph).items()}
    assert shapes == {
        "front": "ellipse",
        "get_weather": "box",
        "notes": "cylinder",
        "expert": "ellipse",
        "work": "ellipse",
        "writer": "ellipse",
        "polish": "ellipse",
        "critic": "ellipse",
    }
    assert nodes(graph)["work"]["label"] == "🤖 work (Sequential Agent)"
    assert plain(graph.get_attributes()["rankdir"]) == "LR"


@pytest.mark.parametrize(("dark", "background"), [("true", "#333537"), ("false", "#ffffff")])
async def test_the_background_is_as_asked(server: Serving, dark: str, background: str) -> None:
    graph = await dot_of(server, "/dev/apps/echo/graph", dark_mode=dark)
    assert plain(graph.get_attributes()["bgcolor"]) == background


@pytest.mark.parametrize("path", ["/dev/apps/front/build_graph", "/dev/build_graph/front"])
async def test_the_tree_has_every_field_of_the_agents(team: Serving, path: str) -> None:
    tree = (await team.client.get(path)).json()
    assert tree["name"] == "front"
    root = tree["root_agent"]
    assert root["instruction"] == "Be kind"
    assert root["model"] == "scripted"
    assert [tool["name"] for tool in root["tools"]] == ["get_weather", "notes", "expert"]
    assert {tool["type"] for tool in root["tools"]} == {"tool"}
    assert root["disallow_transfer_to_parent"] is False
    assert root["include_contents"] == "default"
    assert (root["description"], root["global_instruction"]) == ("Greets", "")
    assert root["disallow_transfer_to_peers"] is False
    assert root["model"] == "scripted"
    [work] = root["sub_agents"]
    assert set(work) == {"name", "description", "sub_agents"}
    assert work["sub_agents"][1]["sub_agents"][0]["name"] == "critic"


async def test_the_tree_names_the_plugins(serve: Serve) -> None:
    class Watches(BasePlugin):
        pass

    app = App(name="watched", root_agent=echo("x"), plugins=[Watches(name="one"), Watches(name="two")])
    server = await serve(services={"app_loader": StaticAppLoader([app])})
    tree = (await server.client.get("/dev/apps/watched/build_graph")).json()
    assert set(tree) == {"name", "root_agent", "plugins"}
    assert tree["plugins"] == [{"name": "one"}, {"name": "two"}]


async def test_the_tree_holds_the_readme_of_an_app_in_a_folder(serve: Serve, tmp_path: Path) -> None:
    app = tmp_path / "apps" / "hello"
    app.mkdir(parents=True)
    (app / "root_agent.yaml").write_text("name: hello\ninstruction: Say hello\n")
    (app / "README.md").write_text("# Hello\n")
    server = await serve(services={"app_loader": DirectoryAppLoader(tmp_path / "apps")})
    assert (await server.client.get("/dev/apps/hello/build_graph")).json()["readme"] == "# Hello\n"
    (app / "README.md").unlink()
    assert "readme" not in (await server.client.get("/dev/apps/hello/build_graph")).json()


@pytest.mark.parametrize("path", ["/dev/apps/front/build_graph_image", "/dev/build_graph_image/front"])
async def test_workflows_have_graphs_of_their_own(team: Serving, path: str) -> None:
    graphs = (await team.client.get(path, params={"dark_mode": "false"})).json()
    assert set(graphs) == {"", "work", "work/polish"}
    assert ("front", "work") in edges(parsed(graphs[""]["dotSrc"]))
    assert edges(parsed(graphs["work/polish"]["dotSrc"])) == {("polish", "critic")}
    for node in ("work/polish", "front/work/polish"):
        alone = (await team.client.get(path, params={"node": node})).json()
        assert list(alone) == [node]
        assert alone[node] == graphs["work/polish"]
    whole = (await team.client.get(path, params={"node": "front"})).json()
    assert whole == {"front": graphs[""]}
    missing = await team.client.get(path, params={"node": "work/critic/none"})
    assert (missing.status_code, missing.json()["code"]) == (404, "AgentNotFound")


@pytest.mark.parametrize(
    ("query", "background"), [({}, "#ffffff"), ({"dark_mode": "false"}, "#ffffff"), ({"dark_mode": "true"}, "#333537")]
)
async def test_each_graph_of_an_app_is_as_light_as_asked(team: Serving, query: Json, background: str) -> None:
    graphs = (await team.client.get("/dev/apps/front/build_graph_image", params=query)).json()
    assert len(graphs) > 1
    for dot in (graph["dotSrc"] for graph in graphs.values()):
        assert re.findall(r'^ *(?:graph \[.*)?\bbgcolor="?(#\w+)', dot, re.MULTILINE)[0] == background, dot


@pytest.mark.parametrize(
    "path",
    [
        "/dev/apps/none/graph",
        "/dev/apps/none/build_graph",
        "/dev/apps/none/build_graph_image",
        "/dev/apps/none/users/ann/sessions/s/events/e/graph",
    ],
)
async def test_an_app_that_is_none_is_not_found(server: Serving, path: str) -> None:
    reply = await server.client.get(path)
    assert (reply.status_code, reply.json()["code"]) == (404, "AppNotFound")


@pytest.mark.parametrize("prefix", ["/dev", ""])
async def test_an_events_path_is_highlighted(team: Serving, prefix: str) -> None:
    session = await team.new_session("front")
    called, answered, last = (await team.run("front")).json()
    asked = (await team.client.get(session)).json()["events"][0]

    async def lit(event: Json) -> tuple[set[str], dict[tuple[str, str], str]]:
        graph = await dot_of(team, f"{prefix}{session}/events/{event['id']}/graph")
        assert plain(graph.get_attributes()["bgcolor"]) == "#333537"
        lit_edges = {
            (plain(edge.get_source()), plain(edge.get_destination())): plain(
                edge.get_attributes().get("dir", "forward")
            )
            for edge in graph.get_edges()
            if plain(edge.get_attributes()["color"]) == "#69CB87"
        }
        lit_nodes = {name for name, node in nodes(graph).items() if node.get("fillcolor") == "#0F5223"}
        assert {node["color"] for name, node in nodes(graph).items() if name not in lit_nodes} == {"#cccccc"}
        return lit_nodes, lit_edges

    assert await lit(called) == ({"front", "get_weather"}, {("front", "get_weather"): "forward"})
    assert await lit(answered) == ({"front", "get_weather"}, {("front", "get_weather"): "back"})
    assert await lit(last) == ({"front"}, {})
    assert await lit(asked) == (set(), {})


async def test_an_unknown_event_has_no_graph_and_an_unknown_session_is_not_found(server: Serving) -> None:
    session = await server.new_session("echo")
    assert (await server.client.get(f"/dev{session}/events/none/graph")).json() == {}
    reply = await server.client.get(f"/dev{session}-none/events/e/graph")
    assert (reply.status_code, reply.json()["code"]) == (404, "SessionNotFound")


async def test_graphs_are_for_those_who_debug_and_reach_the_user(serve: Serve, tmp_path: Path) -> None:
    paths = [
        "/dev/apps/echo/graph",
        "/dev/apps/echo/build_graph",
        "/dev/apps/echo/build_graph_image",
        "/dev/apps/echo/users/ann/sessions/s-1/events/e/graph",
    ]
    key = Keys(tmp_path / "keys.db")
    keys = {
        "reader": key("ann", "read", "run"),
        "elsewhere": key("ann", "debug", apps=["other"]),
        "bob": key("bob", "debug"),
        "ann": key("ann", "debug", "run"),
    }
    server = await serve(auth=key.auth)

    async def statuses(name: str) -> list[int]:
        return [(await server.client.get(path, headers=bearer(keys[name]))).status_code for path in paths]

    opened = await server.client.post(
        "/apps/echo/users/ann/sessions",
        json={"sessionId": "s-1"},
        headers=bearer(keys["ann"]),
    )
    assert opened.status_code == 200
    assert [(await server.client.get(path)).status_code for path in paths] == [401] * 4
    assert await statuses("reader") == [403] * 4
    assert await statuses("elsewhere") == [403] * 4
    assert await statuses("bob") == [200, 200, 200, 403]
    assert await statuses("ann") == [200] * 4


async def test_names_with_special_letters_stay_themselves(serve: Serve) -> None:
    def odd() -> str:
        """Odd."""
        return ""

    odd.__name__ = 'a"b\\<c>&'
    server = await serve(scripted("strange", "hi", tools=[odd]))
    graph = await server.client.get("/dev/apps/strange/graph")
    assert '"a\\"b\\\\<c>&"' in graph.json()["dotSrc"]
