"""The values of an agent's keys: from nodes to what the agent's class takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from greenroom.agents.agent import BaseAgent
from greenroom.agents.base_llm_agent import static_text
from greenroom.agents.planning import BasePlanner
from greenroom.apps.yaml_config import generation, records
from greenroom.apps.yaml_config.document import Node
from greenroom.apps.yaml_config.fields import Field, fields_of
from greenroom.apps.yaml_config.keys import known_entries, refuse_unknown
from greenroom.apps.yaml_config.making import made
from greenroom.apps.yaml_config.reader import Reader, code_name
from greenroom.apps.yaml_config.references import References
from greenroom.apps.yaml_config.tools import ToolMaker
from greenroom.code_executors.executor import BaseCodeExecutor
from greenroom.errors import AgentConfigError
from greenroom.models.model import BaseLlm
from greenroom.records.content import Content, Part

_MADE_IN_CODE: dict[str, type[Any]] = {
    "model": BaseLlm,
    "planner": BasePlanner,
    "code_executor": BaseCodeExecutor,
}


class AgentValues:
    def __init__(self, references: References, reader: Reader, tools: ToolMaker, *, allow_args: bool) -> None:
        self._references = references
        self._reader = reader
        self._tools = tools
        self._allow_args = allow_args

    def read(self, key: str, entry: Node, declared: Field) -> tuple[str, Any]:
        """The name of the class's field, and its value; for all keys but `sub_agents`."""
        if key.endswith("_callbacks"):
            return key[:-1], [self.callback(item) for item in entry.items]
        if key.endswith("_code") or key in ("planner", "code_executor"):
            field = key.removesuffix("_code")
            return field, self._object(entry, _MADE_IN_CODE[field])
        match key:
            case "tools":
                return key, [tool for tool in map(self._tools.make, entry.items) if tool is not None]
            case "instruction" | "name":
                return key, entry.text
            case "input_schema" | "output_schema":
                return key, self._schema(entry)
            case "static_instruction":
                return key, self._static_text(entry)
            case "state_reducers":
                return key, {name: self._reducer(item) for name, item in entry.entries.items()}
            case "generate_content_config":
                node = generation.with_right_words(entry)
                read = self._reader.read_record(node, records.GenerationSettings, what="of generate_content_config")
                return key, generation.settings(read)
            case _:
                return key, self._reader.read(entry, declared.type)

    def callback(self, node: Node) -> Callable[..., Any]:
        if not isinstance(node.value, dict):
            raise node.error(f"must be a map with the function's name, as in {{name: .guards.check}}, not {node.kind}")
        name = code_name(node)
        found = self._references.find(name)
        if not callable(found) or isinstance(found, (type, BaseAgent)):
            raise name.error(f"{name.text!r} is of type {type(found).__name__}; a callback is a function")
        return found

    def _object(self, node: Node, kind: type[Any]) -> Any:
        """An object by name, or made by a class or function of that name."""
        if isinstance(node.value, str):
            name, args = node, None
        else:
            allowed = fields_of(records.CodeWithArgs)
            known, unknown = known_entries(node, allowed, what="of a reference to code")
            refuse_unknown(unknown, allowed, what="of a reference to code")
            if "name" not in known:
                raise node.error("'name' is missing: the dotted name of what is meant")
            name, args = known["name"], known.get("args")
        if args is not None and not self._allow_args:
            raise args.error("arguments are refused in files that are not trusted")
        found: Any = self._references.find(name)
        if isinstance(found, type) or args is not None:
            if not callable(found):
                raise name.error(f"{name.text!r} is a finished object, which takes no arguments")
            given = args if args is not None else name.with_entries({})
            values = self._reader.read_arguments(given, found, what=f"of {name.text}")
            found = made(name, name.text, lambda: found(**values))
        if not isinstance(found, kind):
            raise name.error(f"{name.text!r} is of type {type(found).__name__}, not a {kind.__name__}")
        return found

    def _schema(self, node: Node) -> object:
        if isinstance(node.value, str) or (isinstance(node.value, dict) and set(node.value) == {"name"}):
            return self._references.find(code_name(node))
        return node.plain_map()

    def _static_text(self, node: Node) -> str:
        if isinstance(node.value, str):
            return node.text
        if isinstance(node.value, list):
            return "\n\n".join(self._static_text(item) for item in node.value)
        read: Content | Part = self._reader.read(node, Content if "parts" in node.entries else Part)
        try:
            return static_text(read)
        except AgentConfigError as error:
            raise node.error(error.detail) from None

    def _reducer(self, node: Node) -> object:
        if node.value in ("append", "merge", "sum"):
            return node.value
        found = self._references.find(code_name(node))
        if not callable(found):
            raise node.error("must be append, merge, sum, or the name of a function")
        return found
