"""A graph of LangGraph as an agent."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from greenroom.agents.frameworks.hosted import HostedAgent, HostedTurn
from greenroom.errors import MissingExtra

try:
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
except ImportError as error:
    raise MissingExtra("langgraph", "langgraph") from error

from greenroom.agents.frameworks.langgraph.checkpoints import allowed_types
from greenroom.agents.frameworks.langgraph.graph_io import GraphInput, check_graph
from greenroom.agents.frameworks.langgraph.graph_turn import GraphTurn


class LangGraphAgent(HostedAgent):
    """A graph of LangGraph, or an `@entrypoint` of its functional API.

    graph: compiled or not. A checkpointer that it was compiled with isn't used: its checkpoints are kept in the
    session's log, so that the session is the thread, and a run that was cut off continues with the tasks that hadn't
    finished.

    instruction: a system message before the first message of a conversation.

    checkpoint_types: further classes of the app that are values in the graph's state. Those in the annotations of its
    schemas are known. Objects of other classes are read back from a checkpoint as plain data.
    """

    graph: Any = None
    instruction: str = ""
    checkpoint_types: tuple[type, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        self._compiled = check_graph(self.graph, agent=self.name)
        types = allowed_types(self._compiled, self.checkpoint_types)
        self._serde = JsonPlusSerializer(allowed_msgpack_modules=types)

    @cached_property
    def _input(self) -> GraphInput:
        return GraphInput(self._compiled, agent=self.name)

    async def run_framework(self, turn: HostedTurn) -> None:
        graph_turn = GraphTurn(self._compiled, turn, takes=self._input, serde=self._serde)
        await graph_turn.run(instruction=self.instruction)
