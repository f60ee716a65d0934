"""Workflows: graphs of nodes, which a run walks from START to its end.

`edges` checks the graph, `workflow` decides which node runs when, and `execution` runs one node. `position` folds the
log into the state of each node, so that a run resumes. `nodes`, `function_node` and `node_tool` have the kinds of
nodes, and nodes as tools. `requests` asks people.
"""

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
