"""An app's agents and tools as a graph, and the graph as DOT text.

The client lays out the text; ADK's UI relies on nodes being named like their agents and tools, and
on one edge from each agent to each of its sub-agents and tools. Source of shapes and colours: ADK's
agent graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from greenroom.agents.agent import BaseAgent
from greenroom.agents.agent_tool import AgentTool
from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.workflows import LoopAgent, ParallelAgent, SequentialAgent
from greenroom.apps.describe import tools_of
from greenroom.records.base import JsonObject
from greenroom.records.event import Event
from greenroom.tools.retrieval.tool import BaseRetrievalTool
from greenroom.tools.tool import BaseTool

if TYPE_CHECKING:
    from greenroom.agents.workflow.workflow import Workflow  # loaded with the apps that have one

_AGENT = ("🤖", "ellipse")
_TOOL = ("🔧", "box")
_RETRIEVAL = ("🔎", "cylinder")
_NODE = ("⚙️", "box")
_NODE_TYPES = {
    "FunctionNode": "function",
    "JoinNode": "join",
    "AgentNode": "agent",
    "Workflow": "workflow",
}
_WORKFLOWS: dict[type[BaseAgent], str] = {
    SequentialAgent: " (Sequential Agent)",
    ParallelAgent: " (Parallel Agent)",
    LoopAgent: " (Loop Agent)",
}
_LIT_NODE = "#0F5223"
_LIT_TEXT = "#cccccc"
_LIT_EDGE = "#69CB87"


def workflows_below(root: BaseAgent) -> dict[str, BaseAgent]:
    """Returns the root under the empty path, and agents with sub-agents under their paths below the root."""
    agents: dict[str, BaseAgent] = {"": root}

    def visit(agent: BaseAgent, path: str) -> None:
        for child in cast("Workflow", agent).agents if agent.is_graph else agent.sub_agents:
            agent_path = f"{path}/{child.name}" if path else child.name
            if child.is_graph or (child.sub_agents and not isinstance(child, LlmAgent)):
                agents[agent_path] = child
            visit(child, agent_path)

    visit(root, "")
    return agents


async def to_dot(root: BaseAgent, *, is_dark: bool, event: Event | None = None) -> str:
    """Draws the agent and all below it, with the agents and tools of an event highlighted. A toolset that doesn't
    answer is left out.
    """
    background, line = ("#333537", "#cccccc") if is_dark else ("#ffffff", "#5f6368")
    lit_edges = _edges_of(event) if event is not None else {}
    lit_nodes = {end for edge in lit_edges for end in edge} or (_nodes_of(event) if event is not None else set())
    nodes: dict[str, str] = {}
    edges: dict[tuple[str, str], str] = {}

    def add_node(name: str, kind: tuple[str, str], addition: str = "") -> None:
        icon, shape = kind

        look = {"style": "rounded", "color": line, "fontcolor": line}
        if name in lit_nodes:
            look = {
                "style": "filled,rounded",
                "color": _LIT_NODE,
                "fillcolor": _LIT_NODE,
                "fontcolor": _LIT_TEXT,
            }

        attributes = _attributes(label=f"{icon} {name}{addition}", shape=shape, **look)
        nodes.setdefault(name, f"{_quoted(name)} {attributes}")

    def add_edge(source: str, target: str, look: dict[str, str] | None = None) -> None:
        look = look or lit_edges.get((source, target), {"color": line, "arrowhead": "none"})
        edges[source, target] = f"{_quoted(source)} -> {_quoted(target)} {_attributes(**look)}"

    def add_graph(workflow: Workflow) -> None:
        """Adds the workflow's nodes, and its edges with their routes. An edge leads from the workflow to the nodes
        after START.
        """
        add_node(workflow.name, _AGENT, " (Workflow)")
        for name, node in workflow.graph.nodes.items():
            add_node(name, _AGENT if type(node).__name__ in ("AgentNode", "Workflow") else _NODE)

        for edge in workflow.graph.edges:
            if edge.from_node.name == "__START__":
                source = workflow.name
            else:
                source = edge.from_node.name

            label = ", ".join(str(route) for route in edge.routes)

            if {source, edge.to_node.name} <= lit_nodes:
                color = _LIT_EDGE
            else:
                color = line

            look = {"color": color, "fontcolor": line, **({"label": label} if label else {})}
            add_edge(source, edge.to_node.name, look)

    for agent in root.walk():
        if agent.is_graph:
            add_graph(cast("Workflow", agent))

        add_node(
            agent.name,
            _AGENT,
            next((words for kind, words in _WORKFLOWS.items() if isinstance(agent, kind)), ""),
        )
        for child in agent.sub_agents:
            add_edge(agent.name, child.name)

        for tool in await tools_of(agent) if isinstance(agent, LlmAgent) else ():
            add_node(tool.name, _kind(tool))
            add_edge(agent.name, tool.name)

    lines = [f"bgcolor={_quoted(background)}", "rankdir=LR", *nodes.values(), *edges.values()]
    body = "\n".join(f"  {line};" for line in lines)

    return f"strict digraph {{\n{body}\n}}\n"


def graph_json(workflow: Workflow) -> JsonObject:
    """Nodes and edges of a workflow, in the shape of ADK's `build_graph`."""
    nodes = [{"name": "__START__", "type": "start"}]
    for name, node in workflow.graph.nodes.items():
        nodes.append({"name": name, "type": _NODE_TYPES.get(type(node).__name__, "node")})

    edges: list[JsonObject] = []
    for edge in workflow.graph.edges:
        route = {"route": edge.route} if edge.route is not None else {}
        edges.append({"from_node": edge.from_node.name, "to_node": edge.to_node.name, **route})

    return {"nodes": nodes, "edges": edges}


def _nodes_of(event: Event) -> set[str]:
    """The author of an event, and in a workflow all nodes on its path."""
    path = event.node_path
    return {event.author, *(step.partition("@")[0] for step in path.split("/") if step)}


def _edges_of(event: Event) -> dict[tuple[str, str], dict[str, str]]:
    """The looks of the calls of an event, else of its answers: a tool that has answered points back."""
    look = {"color": _LIT_EDGE, "arrowhead": "normal"}
    called = {(event.author, call.name or ""): look for call in event.get_function_calls()}
    back = {**look, "dir": "back"}
    return called or {(event.author, answer.name or ""): back for answer in event.get_function_responses()}


def _kind(tool: BaseTool) -> tuple[str, str]:
    if isinstance(tool, AgentTool):
        return _AGENT
    return _RETRIEVAL if isinstance(tool, BaseRetrievalTool) else _TOOL


def _attributes(**attributes: str) -> str:
    return f"[{', '.join(f'{name}={_quoted(value)}' for name, value in attributes.items())}]"


def _quoted(text: str) -> str:
    """A DOT string. Backslashes are doubled, so that a label shows them."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
