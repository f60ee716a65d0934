"""Errors of graphs that are refused when they are built (1.4.4, 1.5)."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.workflow.edges import DEFAULT_ROUTE, START, Edge
from greenroom.agents.workflow.errors import GraphValidationError, StateSchemaError, WorkflowConfigurationError
from greenroom.agents.workflow.function_node import FunctionNode
from greenroom.agents.workflow.nodes import JoinNode, Node, node
from greenroom.agents.workflow.workflow import Workflow
from greenroom.agents.workflows import SequentialAgent
from greenroom.errors import AgentConfigError
from greenroom.records.auth import AuthConfig, AuthScheme


def a() -> None:
    pass


def b() -> None:
    pass


def c() -> None:
    pass


class One(BaseModel):
    x: int


class Other(BaseModel):
    y: int


@pytest.mark.parametrize(
    ("edges", "fault"),
    [
        pytest.param([(a, b)], "no edge leads from START", id="1.5.1 no START"),
        pytest.param([("START", a), (a, "START")], "an edge leads into START", id="1.5.1 into START"),
        pytest.param([("START", {"x": a})], "an edge from START has a route", id="1.5.1 route on START"),
        pytest.param([("START", a), (b, c)], "START does not reach b, c", id="1.5.1 not reached"),
        pytest.param(
            [("START", a, FunctionNode(func=b, name="a"))], "two nodes are named 'a'", id="1.5.2 two of one name"
        ),
        pytest.param([("START", a, b), (a, b)], "a and b are connected twice", id="1.5.2 twice unrouted"),
        pytest.param([("START", a, {"x": b}), (a, b)], "a and b are connected twice", id="1.5.2 routed and not"),
        pytest.param(
            [("START", a, {"x": b}), Edge(from_node=a, to_node=b, route=["y", "x"])],
            "a and b are connected twice",
            id="1.5.2 overlapping routes",
        ),
        pytest.param([("START", a, b, a)], "the cycle a -> b -> a has no routed edge", id="1.5.3 cycle"),
        pytest.param(
            [("START", FunctionNode(func=a, output_schema=One), FunctionNode(func=b, input_schema=Other))],
            "the output schema of a is not the input schema of b",
            id="1.5.4 schemas",
        ),
        pytest.param(
            [("START", a, LlmAgent(name="talker", model="local/x", mode="chat"))],
            "the agent talker has mode 'chat'",
            id="1.5.5 chat behind a node",
        ),
        pytest.param(
            [("START", a), Edge(from_node=a, to_node=b, route=["x", DEFAULT_ROUTE])],
            "DEFAULT_ROUTE may not stand in a list",
            id="1.4.6 default in a list",
        ),
        pytest.param([("START", FunctionNode(func=a, name="no name"))], "no Python identifier", id="1.1.1 name"),
    ],
)
def test_a_wrong_graph_is_refused(edges: Any, fault: str) -> None:
    """1.5, 1.15.1."""
    with pytest.raises(GraphValidationError) as refused:
        Workflow(name="wf", edges=edges)
    assert fault in str(refused.value)
    assert isinstance(refused.value, ValueError)


def test_all_faults_are_reported_at_once() -> None:
    with pytest.raises(GraphValidationError) as refused:
        Workflow(name="wf", edges=[(a, b), (b, a), (c, "START")])
    assert len(refused.value.faults) >= 3


@pytest.mark.parametrize(
    "edges",
    [
        pytest.param([("START", a, {"x": b}, {"y": c})], id="1.4.4 two maps"),
        pytest.param([("START", a, {})], id="1.4.4 empty map"),
        pytest.param([("START", a, {1.5: b})], id="1.4.4 other key"),
        pytest.param([("START", 7)], id="1.3.6 no node"),
        pytest.param([("START",)], id="no edge"),
        pytest.param(["START"], id="no tuple"),
    ],
)
def test_wrong_edges_are_refused(edges: Any) -> None:
    """1.4.4, 1.15.1."""
    with pytest.raises(WorkflowConfigurationError):
        Workflow(name="wf", edges=edges)


def test_other_refusals() -> None:
    with pytest.raises(TypeError):
        Edge(from_node=a, to_node=b, rout="x")  # pyright: ignore[reportCallIssue] - 1.2.7
    with pytest.raises(WorkflowConfigurationError):
        FunctionNode(func=a, require_confirmation=True)  # 1.2.2
    with pytest.raises(WorkflowConfigurationError, match="for functions"):
        node(JoinNode(name="j"), require_confirmation=True)  # 1.2.3
    with pytest.raises(WorkflowConfigurationError, match="auth_config"):
        node(a, auth_config=AuthConfig(auth_scheme=AuthScheme(type="apiKey", name="k", in_="header")))  # 1.2.2
    with pytest.raises(WorkflowConfigurationError):
        node(a, max_parallel_workers=2)  # 1.10.2
    with pytest.raises(WorkflowConfigurationError):
        Node(name="n", parallel_worker=True, max_parallel_workers=0)  # 1.10.2
    with pytest.raises(AgentConfigError, match="edges"):
        SequentialAgent(name="s", sub_agents=[Workflow(name="wf", edges=[("START", a)])])  # 1.16.3


def test_parameters_must_be_fields_of_the_state_schema() -> None:
    """1.5.6."""

    def takes(x: int, z: int) -> None:
        pass

    with pytest.raises(StateSchemaError, match="'z'"):
        Workflow(name="wf", edges=[("START", takes)], state_schema=One)


def test_a_node_is_a_copy_with_other_options() -> None:
    """1.2.3, 1.3.1, 1.2.8."""
    plain = FunctionNode(func=a)
    renamed = node(plain, name="other", timeout=3)
    assert (renamed.name, renamed.timeout, plain.name) == ("other", 3, "a")

    @node(rerun_on_resume=True, name="named")
    def decorated() -> None:
        pass

    assert isinstance(decorated, FunctionNode)
    assert (decorated.name, decorated.rerun_on_resume) == ("named", True)
    assert node(a, require_confirmation=True).rerun_on_resume
    asking = node(plain, require_confirmation=True)
    assert (asking.require_confirmation, asking.rerun_on_resume, plain.require_confirmation) == (True, True, False)
    workflow = Workflow(name="wf", edges=[(START, a, b), (a, c)])
    assert list(workflow.graph.nodes) == ["a", "b", "c"]


def test_an_agent_in_a_graph_is_a_clone() -> None:
    """1.3.2, 1.8.1."""
    agent = LlmAgent(name="writer", model="local/x")
    first, second = (Workflow(name=name, edges=[("START", agent)]) for name in ("one", "two"))
    clones = [workflow.find_agent("writer") for workflow in (first, second)]
    assert agent.mode is None
    assert agent.parent_agent is None
    assert all(isinstance(clone, LlmAgent) and clone.mode == "single_turn" for clone in clones)
    assert clones[0] is not clones[1]
