"""Edges, as users write them, and the graph that they make, checked as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

from greenroom.agents.base_llm_agent import BaseLlmAgent
from greenroom.agents.node import BaseNode
from greenroom.agents.workflow.errors import GraphValidationError, StateSchemaError, WorkflowConfigurationError
from greenroom.agents.workflow.function_node import FunctionNode
from greenroom.agents.workflow.node_context import state_fields
from greenroom.agents.workflow.nodes import START_NAME, AgentNode, JoinNode, build_node
from greenroom.records.declarative import Declarative

Route: TypeAlias = bool | int | str
EdgeItem: TypeAlias = Any
"""An `Edge`, or a chain: a tuple of nodes, tuples of nodes, and maps from routes to nodes."""

DEFAULT_ROUTE = "__DEFAULT__"
"""The route of edges that are followed when no other routed edge of their node is."""


class _Start(BaseNode):
    """Entry of a workflow. It never runs; its output is the workflow's input."""


START = _Start(name=START_NAME)


class Edge(Declarative):
    """A connection from one node of a workflow to another."""

    from_node: Any
    to_node: Any
    route: Route | Sequence[Route] | None = None
    """None for an edge that is always followed; of several the edge is followed on each."""

    @property
    def routes(self) -> list[Route]:
        if self.route is None:
            return []
        return _several(self.route)


class Graph:
    """The checked graph of a workflow.

    nodes: by name, START left out. edges: each once, in the order in which they were written.
    """

    def __init__(self, workflow: BaseNode, items: Sequence[EdgeItem]) -> None:
        self._workflow = workflow
        self._built: dict[int, tuple[Any, BaseNode]] = {}
        self.nodes: dict[str, BaseNode] = {}
        self.edges: list[Edge] = []
        self._faults: list[str] = []
        for item in items:
            self._add(item)

        self.after: dict[str, list[Edge]] = {}
        self.before: dict[str, list[str]] = {}

        for edge in self.edges:
            self.after.setdefault(edge.from_node.name, []).append(edge)
            sources = self.before.setdefault(edge.to_node.name, [])
            if edge.from_node.name not in sources:
                sources.append(edge.from_node.name)

        if self.edges:
            self._check()

        if self._faults:
            raise GraphValidationError(workflow.name, self._faults)

    def is_terminal(self, name: str) -> bool:
        return name not in self.after

    def followed(self, name: str, route: Any) -> list[BaseNode]:
        """The nodes at the end of the edges that are followed from a node that gave this route."""
        edges = self.after.get(name, ())

        if route is not None:
            routes = {_key(one) for one in _several(route)}
        else:
            routes = set[tuple[type[Any], Any]]()

        def is_followed(edge: Edge) -> bool:
            return not edge.routes or any(_key(one) in routes for one in edge.routes)

        targets = [edge.to_node for edge in edges if is_followed(edge)]
        if not any(edge.routes and edge.to_node in targets for edge in edges):
            targets = [edge.to_node for edge in edges if not edge.routes or DEFAULT_ROUTE in edge.routes]

        return targets

    # reading

    def _node(self, item: Any) -> BaseNode:
        if item == "START" or item is START:
            return START

        if id(item) not in self._built:
            self._built[id(item)] = (item, build_node(item))

        node = self._built[id(item)][1]
        existing = self.nodes.setdefault(node.name, node)
        if existing is not node:
            self._faults.append(f"two nodes are named {node.name!r}")

        return node

    def _add(self, item: EdgeItem) -> None:
        if isinstance(item, Edge):
            routed = Edge(
                from_node=self._node(item.from_node),
                to_node=self._node(item.to_node),
                route=item.route,
            )
            if DEFAULT_ROUTE in routed.routes and len(routed.routes) > 1:
                self._faults.append("DEFAULT_ROUTE may not stand in a list of routes")

            self._connect(routed)
            return

        if not isinstance(item, (tuple, list)) or len(cast("Sequence[Any]", item)) < 2:
            raise WorkflowConfigurationError(
                f"Workflow {self._workflow.name!r}: {item!r} is no edge; an edge is an Edge, or a tuple of nodes"
            )

        sources: list[BaseNode] = []
        was_map = False
        for element in cast("Sequence[Any]", item):
            if isinstance(element, Mapping):
                sources = self._fan_out(
                    sources,
                    cast("Mapping[Any, Any]", element),
                    was_map=was_map,
                )
                was_map = True
                continue

            targets = [self._node(one) for one in _several(element)]
            for source in sources:
                for target in targets:
                    self._connect(Edge(from_node=source, to_node=target))

            sources = targets
            was_map = False

    def _fan_out(
        self,
        sources: list[BaseNode],
        routes: Mapping[Any, Any],
        *,
        was_map: bool,
    ) -> list[BaseNode]:
        if was_map or not routes or not sources:
            raise WorkflowConfigurationError(
                f"Workflow {self._workflow.name!r}: a map of routes is not empty, and comes after nodes"
            )

        targets: list[BaseNode] = []
        for route, to in routes.items():
            if not isinstance(route, (bool, int, str)):
                raise WorkflowConfigurationError(
                    f"Workflow {self._workflow.name!r}: a route is a bool, an int or a str, not {route!r}"
                )

            for target in [self._node(one) for one in _several(to)]:
                targets.append(target)
                for source in sources:
                    self._connect(Edge(from_node=source, to_node=target, route=route))

        return list(dict.fromkeys(targets))

    def _connect(self, edge: Edge) -> None:
        self.edges.append(edge)

    # checks

    def _check(self) -> None:
        for name in self.nodes:
            if not name.isidentifier():
                self._faults.append(f"the node name {name!r} is no Python identifier")

        self._check_pairs()
        if START_NAME not in self.after:
            self._faults.append("no edge leads from START")

        if START_NAME in self.before:
            self._faults.append("an edge leads into START")

        if any(edge.routes for edge in self.after.get(START_NAME, ())):
            self._faults.append("an edge from START has a route")

        reached = self._reached_from(START_NAME)
        if unreached := [name for name in self.nodes if name not in reached]:
            self._faults.append(f"START does not reach {', '.join(unreached)}")

        if cycle := self._unrouted_cycle():
            self._faults.append(f"the cycle {' -> '.join(cycle)} has no routed edge that could end it")

        for edge in self.edges:
            output_schema = edge.from_node.output_schema
            taken = edge.to_node.input_schema
            if (
                output_schema is not None
                and taken is not None
                and output_schema != taken
                and not isinstance(edge.to_node, JoinNode)
            ):
                self._faults.append(
                    f"the output schema of {edge.from_node.name} is not the input schema of {edge.to_node.name}"
                )

            if edge.from_node is not START and _mode_of(edge.to_node) == "chat":
                self._faults.append(f"the agent {edge.to_node.name} has mode 'chat', and may only follow START")

        self._check_outputs()
        self._check_state_schema()

    def _check_pairs(self) -> None:
        pairs: dict[tuple[str, str], list[Edge]] = {}
        for edge in self.edges:
            pairs.setdefault((edge.from_node.name, edge.to_node.name), []).append(edge)
        for (source, target), edges in pairs.items():
            routes = [_key(route) for edge in edges for route in edge.routes]
            if len(edges) > 1 and (any(not edge.routes for edge in edges) or len(set(routes)) < len(routes)):
                self._faults.append(f"{source} and {target} are connected twice")

    def _reached_from(self, name: str, *, unrouted: bool = False) -> set[str]:
        reached = {name}
        waiting = [name]
        while waiting:
            for edge in self.after.get(waiting.pop(), ()):
                if edge.to_node.name not in reached and not (unrouted and edge.routes):
                    reached.add(edge.to_node.name)
                    waiting.append(edge.to_node.name)

        return reached

    def _unrouted_cycle(self) -> list[str]:
        """The names on a cycle of edges that are always followed; empty if there is none."""
        done: set[str] = set()
        for first in self.nodes:
            path: dict[str, Iterator[Edge]]
            if first in done:
                path = {}
            else:
                path = {first: iter(self.after.get(first, ()))}

            while path:
                name = next(reversed(path))

                edge = next((one for one in path[name] if not one.routes), None)
                if edge is None:
                    done.add(path.popitem()[0])
                elif (to := edge.to_node.name) in path:
                    names = list(path)
                    return [*names[names.index(to) :], to]
                elif to not in done:
                    path[to] = iter(self.after.get(to, ()))

        return []

    def _check_outputs(self) -> None:
        """Checks outputs: of the nodes that are sure to run, two that end the workflow must not
        both be sure to have an output.
        """
        sure = self._reached_from(START_NAME, unrouted=True)
        ends = [
            name for name in self.nodes if name in sure and self.is_terminal(name) and _gives_output(self.nodes[name])
        ]
        if len(ends) > 1:
            self._faults.append(f"{' and '.join(ends)} both end it with an output; a workflow has one: join them")

    def _check_state_schema(self) -> None:
        schema = self._workflow.state_schema
        if schema is None:
            return

        fields = state_fields(schema)
        for node in self.nodes.values():
            for name in node.state_parameters if isinstance(node, FunctionNode) else ():
                if name not in fields:
                    raise StateSchemaError(
                        f"Workflow {self._workflow.name!r}: the parameter {name!r} of node {node.name!r} is no field "
                        f"of the state schema {schema.__name__}"
                    )


def _several(item: Any) -> list[Any]:
    if isinstance(item, (list, tuple, set)):
        return list(cast("Sequence[Any]", item))
    return [item]


def _key(route: Any) -> tuple[type[Any], Any]:
    """Routes are compared with their type: `True` is not 1."""
    return cast("type[Any]", type(route)), route


def _mode_of(node: BaseNode) -> str | None:
    if isinstance(node, AgentNode) and isinstance(node.agent, BaseLlmAgent):
        return node.agent.mode
    return None


def _gives_output(node: BaseNode) -> bool:
    if isinstance(node, FunctionNode):
        return node.gives_output
    return isinstance(node, JoinNode) or _mode_of(node) == "single_turn"
