"""An app's agents and tools as a graph, and the graph as DOT text.

The client lays out the text; ADK's UI relies on nodes being named like their agents and tools, and on one
edge from each agent to each of its sub-agents and tools.
Source of shapes and colours: ADK's agent graph.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from greenroom.agents.agent import BaseAgent
from greenroom.agents.agent_tool import AgentTool
from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.workflows import LoopAgent, ParallelAgent, SequentialAgent
from greenroom.apps.describe import tools_of
from greenroom.records.event import Event
from greenroom.tools.retrieval.tool import BaseRetrievalTool
from greenroom.tools.tool import BaseTool

Kind: TypeAlias = Literal["agent", "tool", "retrieval"]
Pairs: TypeAlias = list[tuple[str, str]]

_ICONS: dict[Kind, str] = {"agent": "🤖", "tool": "🔧", "retrieval": "🔎"}
_SHAPES: dict[Kind, str] = {"agent": "ellipse", "tool": "box", "retrieval": "cylinder"}
_WORKFLOWS: dict[type[BaseAgent], str] = {
    SequentialAgent: "Sequential Agent",
    ParallelAgent: "Parallel Agent",
    LoopAgent: "Loop Agent",
}


class Palette(NamedTuple):
    background: str
    line: str


DARK = Palette("#333537", "#cccccc")
LIGHT = Palette("#ffffff", "#5f6368")
LIT_NODE, LIT_TEXT, LIT_EDGE = "#0F5223", "#cccccc", "#69CB87"


class Node(NamedTuple):
    name: str
    kind: Kind
    caption: str


@dataclass(frozen=True)
class AgentGraph:
    """edges: from an agent to what it may call or transfer to, each once. The first node is the root."""

    nodes: list[Node] = field(default_factory=list[Node])
    edges: Pairs = field(default_factory=Pairs)


class Highlight(NamedTuple):
    """What an event did. A `returned` edge was followed backwards: a tool has answered."""

    nodes: frozenset[str]
    called: frozenset[tuple[str, str]]
    returned: frozenset[tuple[str, str]]


NOTHING = Highlight(frozenset(), frozenset(), frozenset())


async def graph_of(agent: BaseAgent) -> AgentGraph:
    """The agent and all below it. A toolset that doesn't answer is left out."""
    nodes: dict[str, Node] = {}
    edges: dict[tuple[str, str], None] = {}
    for one in agent.walk():
        nodes.setdefault(one.name, Node(one.name, "agent", _caption(one)))
        for child in one.sub_agents:
            edges[one.name, child.name] = None
        for tool in await tools_of(one) if isinstance(one, LlmAgent) else ():
            kind = _kind(tool)
            nodes.setdefault(tool.name, Node(tool.name, kind, f"{_ICONS[kind]} {tool.name}"))
            edges[one.name, tool.name] = None
    return AgentGraph(list(nodes.values()), list(edges))


def workflows_below(root: BaseAgent) -> dict[str, BaseAgent]:
    """The root under the empty path, and agents that are made of others under their path, root left out."""
    found: dict[str, BaseAgent] = {"": root}

    def visit(agent: BaseAgent, path: str) -> None:
        for child in agent.sub_agents:
            here = f"{path}/{child.name}" if path else child.name
            if child.sub_agents and not isinstance(child, LlmAgent):
                found[here] = child
            visit(child, here)

    visit(root, "")
    return found


def highlight_of(event: Event) -> Highlight:
    """The calls of an event, else its answers, else its author."""
    author = event.author
    called = frozenset((author, call.name or "") for call in event.get_function_calls())
    answers = () if called else event.get_function_responses()
    returned = frozenset((author, response.name or "") for response in answers)
    nodes = {name for pair in (*called, *returned) for name in pair}
    return Highlight(frozenset(nodes or {author}), called, returned)


def to_dot(graph: AgentGraph, *, palette: Palette = LIGHT, highlight: Highlight = NOTHING) -> str:
    plain = {"style": "rounded", "color": palette.line, "fontcolor": palette.line}
    lit = {"style": "filled,rounded", "color": LIT_NODE, "fillcolor": LIT_NODE, "fontcolor": LIT_TEXT}
    lines = [f"bgcolor={_quoted(palette.background)}", "rankdir=LR"]
    for node in graph.nodes:
        look = lit if node.name in highlight.nodes else plain
        lines.append(
            f"{_quoted(node.name)} {_attributes({'label': node.caption, 'shape': _SHAPES[node.kind], **look})}"
        )
    for edge in graph.edges:
        lines.append(f"{_quoted(edge[0])} -> {_quoted(edge[1])} {_attributes(_edge_look(edge, palette, highlight))}")
    body = "\n".join(f"  {line};" for line in lines)
    return f"strict digraph {{\n{body}\n}}\n"


def _edge_look(edge: tuple[str, str], palette: Palette, highlight: Highlight) -> dict[str, str]:
    if edge in highlight.called:
        return {"color": LIT_EDGE, "arrowhead": "normal"}
    if edge in highlight.returned:
        return {"color": LIT_EDGE, "arrowhead": "normal", "dir": "back"}
    return {"color": palette.line, "arrowhead": "none"}


def _caption(agent: BaseAgent) -> str:
    kind = next((words for workflow, words in _WORKFLOWS.items() if isinstance(agent, workflow)), None)
    return f"{_ICONS['agent']} {agent.name}" + (f" ({kind})" if kind else "")


def _kind(tool: BaseTool) -> Kind:
    if isinstance(tool, AgentTool):
        return "agent"
    return "retrieval" if isinstance(tool, BaseRetrievalTool) else "tool"


def _attributes(attributes: dict[str, str]) -> str:
    pairs: Iterable[str] = (f"{name}={_quoted(value)}" for name, value in attributes.items())
    return f"[{', '.join(pairs)}]"


def _quoted(text: str) -> str:
    """A DOT string. Backslashes are doubled, so that a label shows them."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
