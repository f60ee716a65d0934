"""The edges of a workflow: chains of nodes, maps from routes to nodes, and single edges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from greenroom.agents.agent import BaseAgent
from greenroom.agents.node import BaseNode
from greenroom.agents.workflow.edges import START, Edge, EdgeItem
from greenroom.agents.workflow.errors import WorkflowConfigurationError
from greenroom.agents.workflow.function_node import FunctionNode
from greenroom.agents.workflow.nodes import JoinNode, build_node
from greenroom.apps.yaml_config import records
from greenroom.apps.yaml_config.construct import construct
from greenroom.apps.yaml_config.document import ConfigNode, did_you_mean
from greenroom.apps.yaml_config.fields import fields_of
from greenroom.apps.yaml_config.keys import entries_of
from greenroom.apps.yaml_config.reader import ConfigReader

_NODE_KEYS = ("agent_class", "agentClass", "config_path", "configPath", "code")


class EdgeReader:
    """Reads the edges of one workflow. A bare name is a node of an edge before it.

    build: makes an agent of a map, as it stands in a file of its own.
    """

    def __init__(self, reader: ConfigReader, build: Callable[[ConfigNode], BaseAgent]) -> None:
        self._reader = reader
        self._build = build
        self._by_name: dict[str, Any] = {}
        self._by_reference: dict[str, Any] = {}

    def read(self, edges: ConfigNode) -> list[EdgeItem]:
        return [self._edge(item) for item in edges.items]

    def _edge(self, node: ConfigNode) -> EdgeItem:
        if not isinstance(node.value, dict):
            return tuple(self._element(item) for item in node.items)

        entries = entries_of(node, ("from_node", "to_node", "route"), what="of an edge")
        for name in ("from_node", "to_node"):
            if name not in entries:
                raise node.error(f"an edge needs {name!r}")

        route: Any = entries["route"].plain() if "route" in entries else None

        return Edge(
            from_node=self._node(entries["from_node"]),
            to_node=self._node(entries["to_node"]),
            route=route,
        )

    def _element(self, node: ConfigNode) -> EdgeItem:
        """A node, a list of nodes, or a map from routes to these."""
        if isinstance(node.value, list):
            return tuple(self._node(item) for item in node.items)
        if isinstance(node.value, dict) and not any(key in node.value for key in _NODE_KEYS):
            return {route: self._element(entry) for route, entry in node.entries.items()}
        return self._node(node)

    def _node(self, node: ConfigNode) -> Any:
        if not isinstance(node.value, dict):
            return self._named(node)

        if "agent_class" in node.value or "agentClass" in node.value:
            node_or_list = self._inline(node)
        else:
            entries = entries_of(
                node,
                fields_of(records.AgentReference),
                what="of a reference to a node",
            )
            if "code" in entries:
                node_or_list = self._referred(entries["code"])
            else:
                node_or_list = self._reader.agent(node)

        return self._remember(node_or_list, node)

    def _named(self, node: ConfigNode) -> Any:
        text = node.text.strip()
        if text == "START":
            return START

        if "." not in text:
            if text not in self._by_name:
                hint = did_you_mean(
                    text,
                    self._by_name,
                    otherwise="; code of the app is named as in '.nodes.check'",
                )
                raise node.error(f"no edge before this one has a node {text!r}{hint}")

            return self._by_name[text]

        if text not in self._by_reference:
            is_file = text.endswith((".yaml", ".yml", ".json"))
            if is_file:
                self._by_reference[text] = self._reader.agent(node)
            else:
                self._by_reference[text] = self._referred(node)

        return self._remember(self._by_reference[text], node)

    def _referred(self, node: ConfigNode) -> Any:
        value: Any = self._reader.code(node)
        if isinstance(value, BaseAgent):
            return self._reader.agent(node)
        return value

    def _inline(self, node: ConfigNode) -> Any:
        kind = node.entries.get("agent_class") or node.entries["agentClass"]

        cls: type[BaseNode] | None = {"FunctionNode": FunctionNode, "JoinNode": JoinNode}.get(
            kind.text.rpartition(".")[2]
        )
        if cls is None:
            return self._build(node)

        entries = entries_of(
            node,
            ("agent_class", "func_code", *fields_of(cls)),
            what=f"of a {cls.__name__}",
        )
        declared = fields_of(cls)
        values: dict[str, Any] = {}
        for name, entry in entries.items():
            if name == "func_code":
                values["func"] = self._reader.code(entry)
            elif name in ("input_schema", "output_schema", "state_schema"):
                if isinstance(entry.value, str):
                    values[name] = self._reader.code(entry)
                else:
                    values[name] = entry.plain()
            elif name != "agent_class":
                values[name] = self._reader.read(entry, declared[name].type)

        return construct(node, cls.__name__, lambda: cls(**values))

    def _remember(self, item: Any, node: ConfigNode) -> Any:
        """The item, to be found by the name of the node that it becomes."""
        try:
            self._by_name[build_node(item).name] = item
        except WorkflowConfigurationError as error:
            raise node.error(str(error)) from None
        return item
