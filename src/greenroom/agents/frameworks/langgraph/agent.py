"""A graph of LangGraph as an agent."""

from __future__ import annotations

from typing import Any, cast

from greenroom.agents.frameworks.hosted import HostedAgent, HostedTurn
from greenroom.errors import AgentConfigError, MissingExtra

try:
    from langgraph.graph import StateGraph
    from langgraph.pregel import Pregel
except ImportError as error:
    raise MissingExtra("langgraph", "langgraph") from error

from greenroom.agents.frameworks.langgraph.graph_turn import GraphTurn


class LangGraphAgent(HostedAgent):
    """A graph of LangGraph, or an `@entrypoint` of its functional API.

    graph: compiled or not. A checkpointer that it was compiled with isn't used: its checkpoints are kept in the
    session's log, so that the session is the thread, and a run that was cut off continues with the tasks that hadn't
    finished.

    instruction: a system message before the first message of a conversation. recursion_limit: super-steps in one turn.
    """

    graph: Any = None
    instruction: str = ""
    recursion_limit: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        graph = self.graph
        if isinstance(graph, StateGraph):
            graph = cast("Any", graph).compile()
        if not isinstance(graph, Pregel):
            raise AgentConfigError(
                f"Agent {self.name!r}: graph must be a graph of LangGraph, not {type(self.graph).__name__}"
            )
        self._compiled: Pregel[Any, Any, Any, Any] = graph

    async def run_framework(self, turn: HostedTurn) -> None:
        await GraphTurn(self._compiled, turn, instruction=self.instruction, limit=self.recursion_limit).run()
