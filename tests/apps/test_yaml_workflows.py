"""Workflows from YAML files (row 1.16.8 of ADK's sheet)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from greenroom.agents.workflow.workflow import Workflow
from greenroom.apps.load_directory import DirectoryAppLoader
from greenroom.apps.yaml_config.document import ConfigFileError
from greenroom.errors import GreenroomError
from tests.apps.conftest import AgentsDir
from tests.apps.yaml_apps import events_of, load

ROOT = "shop/root_agent.yaml"
NODES = """
from greenroom import Event, JoinNode

def check(node_input: str):
    return Event(output=node_input, route="large" if len(node_input) > 3 else "small")

def ask(node_input: str): return f"asked for {node_input}"
def book(node_input): return f"booked {node_input}"
def left(node_input: str): return node_input + "<"
def right(node_input: str): return ">" + node_input
async def both(node_input: dict): return " ".join(node_input[name] for name in sorted(node_input))
join = JoinNode(name="joined")
not_a_node = 5
"""


@pytest.fixture
def desk(agents_dir: AgentsDir) -> AgentsDir:
    agents_dir.write("shop/nodes.py", NODES)
    return agents_dir


async def output_of(folder: Path, text: str) -> Any:
    agent = load(folder)
    events = await events_of(agent, text)
    return next(e.output for e in events if f"{agent.name}@1" in (e.node_info.output_for or () if e.node_info else ()))


async def test_routes_lead_to_nodes_by_dotted_and_bare_names(desk: AgentsDir) -> None:
    desk.write(
        ROOT,
        """
        agent_class: Workflow
        name: desk
        max_concurrency: 2
        edges:
          - [START, .nodes.check, {large: shop.nodes.ask, __DEFAULT__: .nodes.book}]
          - [ask, book]
        """,
    )
    assert await output_of(desk.path, "ten") == "booked ten"
    assert await output_of(desk.path, "hundred") == "booked asked for hundred"
    workflow = load(desk.path)
    assert isinstance(workflow, Workflow)
    assert workflow.max_concurrency == 2


async def test_nodes_fan_out_are_joined_and_written_inline(desk: AgentsDir) -> None:
    desk.write(
        ROOT,
        """
        agentClass: Workflow
        name: desk
        edges:
          - - START
            - [.nodes.left, {agent_class: FunctionNode, name: turned, func_code: .nodes.right, timeout: 5}]
            - {code: .nodes.join}
            - {agentClass: FunctionNode, funcCode: .nodes.both}
        """,
    )
    assert await output_of(desk.path, "a") == "a< >a"


async def test_edges_are_written_one_by_one_and_name_files(desk: AgentsDir) -> None:
    desk.write(
        "shop/inner.yaml", "agent_class: Workflow\nname: inner\nedges:\n  - [START, .nodes.left, .nodes.right]\n"
    )
    desk.write(
        ROOT,
        """
        agent_class: google.adk.workflow.Workflow
        name: desk
        edges:
          - {from_node: START, to_node: .nodes.check}
          - {from_node: check, to_node: inner.yaml, route: [small, other]}
          - {from_node: check, to_node: {config_path: inner2.yaml}, route: large}
          - {from_node: inner, to_node: {agent_class: JoinNode, name: end}}
        """,
    )
    desk.write("shop/inner2.yaml", "agent_class: Workflow\nname: other\nedges:\n  - [START, .nodes.ask]\n")
    assert await output_of(desk.path, "four") == "asked for four"


@pytest.mark.parametrize(
    ("edges", "line", "problem"),
    [
        ("[START, .nodes.chekc]", 4, "has no 'chekc'; did you mean 'check'?"),
        ("[START, .nodes.check, bok]", 4, "no edge before this one has a node 'bok'"),
        ("[START, .nodes.not_a_node]", 4, "can't be a node"),
        ("[START, nothing.yaml]", 4, "there is no file 'nothing.yaml'"),
        ("[START, 5]", 4, "must be a text, not a whole number"),
        ("{from_node: START}", 4, "an edge needs 'to_node'"),
        ("[START, {agent_class: FunctionNode, func_code: .nodes.ask, tmeout: 3}]", 4, "tmeout"),
        ("[.nodes.ask, .nodes.book]", 3, "START"),
    ],
)
def test_mistakes_are_reported_with_their_line(desk: AgentsDir, edges: str, line: int, problem: str) -> None:
    desk.write(ROOT, f"agent_class: Workflow\nname: desk\nedges:\n  - {edges}\n")
    with pytest.raises(ConfigFileError) as refused:
        load(desk.path)
    assert str(refused.value).startswith(f"shop/root_agent.yaml:{line}: edges")
    assert problem in str(refused.value)


def test_a_workflow_without_edges_is_refused(desk: AgentsDir) -> None:
    desk.write(ROOT, "agent_class: Workflow\nname: desk\n")
    with pytest.raises(GreenroomError, match="'edges' is missing"):
        load(desk.path)


def test_a_changed_file_is_loaded_again(desk: AgentsDir) -> None:
    edges = "agent_class: Workflow\nname: desk\nedges:\n  - [START, inner.yaml]\n"
    inner = "agent_class: Workflow\nname: inner\nedges:\n  - [START, .nodes.{}]\n"
    desk.write(ROOT, edges)
    desk.write("shop/inner.yaml", inner.format("left"))
    loader = DirectoryAppLoader(desk.path)
    first = loader.load("shop").root_agent
    desk.write("shop/inner.yaml", inner.format("right"))
    for _ in range(3):  # it is loaded when it changes no more
        loader.refresh()
    second = loader.load("shop").root_agent
    assert second is not first
    assert isinstance(second, Workflow)
    workflow = second.graph.nodes["inner"]
    assert isinstance(workflow, Workflow)
    assert list(workflow.graph.nodes) == ["right"]
