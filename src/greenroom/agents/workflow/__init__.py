"""Workflows: graphs of nodes, which a run walks from START to its end."""

from greenroom.agents.node import BaseNode, RetryConfig
from greenroom.agents.workflow.edges import DEFAULT_ROUTE, START, Edge
from greenroom.agents.workflow.errors import NodeTimeoutError
from greenroom.agents.workflow.function_node import FunctionNode
from greenroom.agents.workflow.nodes import JoinNode, Node, node
from greenroom.agents.workflow.workflow import Workflow

__all__ = [
    "DEFAULT_ROUTE",
    "START",
    "BaseNode",
    "Edge",
    "FunctionNode",
    "JoinNode",
    "Node",
    "NodeTimeoutError",
    "RetryConfig",
    "Workflow",
    "node",
]
