"""Builds agents from the files of an app."""

from __future__ import annotations

import copy
import inspect
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from greenroom.agents.agent import BaseAgent
from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.planning import BasePlanner
from greenroom.agents.workflows import LoopAgent, ParallelAgent, SequentialAgent
from greenroom.apps.yaml_config import records
from greenroom.apps.yaml_config.construct import call_hook, construct
from greenroom.apps.yaml_config.document import ConfigFile, ConfigNode, did_you_mean, read_document
from greenroom.apps.yaml_config.fields import TypedField, check_required, fields_of, parameters_of
from greenroom.apps.yaml_config.keys import code_name, entries_of, known_entries, name_and_args, snake
from greenroom.apps.yaml_config.reader import ConfigReader, UnsupportedType
from greenroom.apps.yaml_config.references import References
from greenroom.apps.yaml_config.tools import ToolBuilder
from greenroom.code_executors.executor import BaseCodeExecutor
from greenroom.models.model import BaseLlm
from greenroom.records.content import Content, Part

T = TypeVar("T")

_CODE_TYPES: dict[str, type[Any]] = {
    "model": BaseLlm,
    "planner": BasePlanner,
    "code_executor": BaseCodeExecutor,
}


_log = logging.getLogger("greenroom.apps")

_KINDS: dict[type[BaseAgent], type[records.AgentConfig]] = {
    LlmAgent: records.LlmAgentConfig,
    SequentialAgent: records.SequentialAgentConfig,
    ParallelAgent: records.ParallelAgentConfig,
    LoopAgent: records.LoopAgentConfig,
    BaseAgent: records.AgentConfig,
}
_FILES = (".yaml", ".yml", ".json")


class AgentBuilder(ConfigReader):
    """Builds the agents of one app from its files.

    folder: the app's folder; no file outside it is read.
    edited: contents that replace those on disk.
    files: the files that were read, for hot reload.
    """

    def __init__(
        self,
        folder: Path,
        references: References,
        *,
        allow_args: bool = True,
        edited: Mapping[Path, bytes] | None = None,
    ) -> None:
        self._folder = folder
        self._edited = edited or {}
        self._references = references
        self._allow_args = allow_args
        self._tools = ToolBuilder(references, self, allow_args=allow_args)
        self._open: list[Path] = []
        self.files: set[Path] = set()

    def build(self, path: Path) -> BaseAgent:
        """Raises ConfigFileError, and any exception of the app's own modules."""
        self._open.append(path)
        self.files.add(path)
        try:
            return self._build(read_document(ConfigFile(path, self._shown(path), self._edited.get(path))))
        finally:
            self._open.pop()

    # callbacks of the reader

    def code(self, node: ConfigNode) -> object:
        return self._references.find(node)

    def tool(self, node: ConfigNode) -> object:
        if isinstance(node.value, dict):
            return self._tools.build(node)
        return self._tools.named(node)

    def instance(self, node: ConfigNode, kind: type[T], *, trusts_args: bool = False) -> T:
        name, args = name_and_args(node)
        if args is not None and not self._allow_args and not trusts_args:
            raise args.error("arguments are refused in files that are not trusted")

        value: Any = self._references.find(name)
        if isinstance(value, type) or args is not None:
            if not callable(value):
                raise name.error(f"{name.text!r} is a finished object, which takes no arguments")
            arguments = args if args is not None else name.with_entries({})
            values = self.read_arguments(arguments, value, what=f"of {name.text}")
            value = construct(name, name.text, lambda: value(**values))

        if not isinstance(value, kind):
            raise name.error(f"{name.text!r} is of type {type(value).__name__}, not a {kind.__name__}")

        return value

    def agent(self, node: ConfigNode) -> BaseAgent:
        """Builds an agent from `{config_path: …}`, `{code: …}`, or, for classes of one's own, the
        text of either.
        """
        if isinstance(node.value, str):
            if node.text.endswith(_FILES):
                return self._from_file(node)
            return self._from_code(node)

        entries = entries_of(
            node,
            fields_of(records.AgentReference),
            what="of a reference to an agent",
        )

        keys = [name for name, entry in entries.items() if entry.value is not None]
        if len(keys) != 1:
            count = "both" if keys else "neither"
            raise node.error(f"a reference to an agent has either config_path or code; here are {count}")

        entry = entries[keys[0]]

        if keys == ["config_path"]:
            return self._from_file(entry)

        return self._from_code(entry)

    def _from_file(self, node: ConfigNode) -> BaseAgent:
        file_path = Path(node.text)
        if file_path.is_absolute() or file_path.drive:
            raise node.error(f"{node.text!r} must be a path from this file on")

        path = Path(os.path.normpath(node.file.path.parent / file_path))
        if not path.resolve().is_relative_to(self._folder.resolve()):
            raise node.error(f"{node.text!r} leads out of the app's folder")

        if path not in self._edited and not path.is_file():
            beside = node.file.path.parent
            there = [str(other.relative_to(beside)) for other in beside.rglob("*") if other.suffix in _FILES]
            raise node.error(f"there is no file {node.text!r}{did_you_mean(node.text, there)}")

        if path in self._open:
            circle = " → ".join(self._shown(one) for one in [*self._open[self._open.index(path) :], path])
            raise node.error(f"the files refer to each other in a circle: {circle}")

        return self.build(path)

    def _from_code(self, node: ConfigNode) -> BaseAgent:
        agent = self._references.find(node)
        if not isinstance(agent, BaseAgent):
            if isinstance(agent, type):
                kind = "a class"
            else:
                kind = f"of type {type(agent).__name__}"
            raise node.error(f"{node.text!r} is {kind}, not an agent")

        # An agent has one parent; another app, or this one before a reload, may use it already.
        return _copy_of(agent) if agent.parent_agent is not None else agent

    # agents

    def _build(self, node: ConfigNode) -> BaseAgent:
        cls = self._class_of(node)
        if cls.__name__[:1].lower() in "aeiou" or cls.__name__.startswith("Llm"):
            article = "an"
        else:
            article = "a"

        what = f"of {article} {cls.__name__}"

        hook: Any = getattr(cls, "from_config", None)
        if hook is not None:
            agent = construct(
                node,
                cls.__name__,
                lambda: call_hook(hook, node.plain_map(), node.file.path),
            )
            if not isinstance(agent, BaseAgent):
                raise node.error(f"{cls.__name__}.from_config made {type(agent).__name__}, which is no agent")

            return agent

        config = next(_KINDS[base] for base in cls.__mro__ if base in _KINDS)
        config = records.WorkflowConfig if cls.is_graph else config
        declared = fields_of(config)
        is_ours = cls in _KINDS or (cls.is_graph and cls.__module__.startswith("greenroom."))
        if is_ours:
            entries_of(node, declared, what=what)

        entries, unknown = known_entries(node, declared, what=what)
        filled = {name: entry for name, entry in entries.items() if entry.value is not None}
        required = declared if is_ours else {"name": declared["name"]}
        check_required(node, required, filled, what=what)
        values = self._values(cls, declared, filled) | self._own_values(cls, unknown, what)

        return construct(entries.get("edges") or entries["name"], cls.__name__, lambda: cls(**values))

    def _class_of(self, node: ConfigNode) -> type[BaseAgent]:
        entries, _ = known_entries(node, ["agent_class"], what="of an agent")

        entry = entries.get("agent_class")
        if entry is None or entry.value is None:
            return LlmAgent

        registered = self._references.registered(entry, entry.text)
        if registered is None and "." not in entry.text:
            classes = [*(cls.__name__ for cls in _KINDS if cls is not BaseAgent), "Workflow"]
            own = [name for name in self._references.registry.names() if name[:1].isupper() and name.endswith("Agent")]
            raise entry.error(f"there is no agent class {entry.text!r}{did_you_mean(entry.text, [*classes, *own])}")

        named: object
        if registered is not None:
            named = registered
        else:
            named = self._references.find(entry)

        if not isinstance(named, type) or not issubclass(named, BaseAgent):
            raise entry.error(f"{entry.text!r} is no class of agents")
        if inspect.isabstract(named):
            raise entry.error(f"{entry.text!r} is an abstract class; it has no _run_async_impl")

        return named

    def _values(
        self,
        cls: type[BaseAgent],
        declared: Mapping[str, TypedField],
        entries: Mapping[str, ConfigNode],
    ) -> dict[str, Any]:
        if "model" in entries and "model_code" in entries:
            raise entries["model_code"].error("give either model or model_code")

        values: dict[str, Any] = {}
        taken = _fields(cls)
        for key, entry in entries.items():
            if key == "agent_class":
                continue

            if key == "sub_agents":
                name = key
                value = [self._sub_agent(item, may_be_text=cls not in _KINDS) for item in entry.items]
            else:
                name, value = self._read_key(key, entry, declared[key])

            if name not in taken:
                raise entry.error("is not available in this version of greenroom")
            if name in values:
                raise entry.error(f"gives the {name} a second time")

            values[name] = value

        return values

    def _own_values(
        self,
        cls: type[BaseAgent],
        extra: Mapping[str, ConfigNode],
        what: str,
    ) -> dict[str, Any]:
        """Reads the keys that are specific to this class. Unknown keys are ignored, as in ADK."""
        fields = _fields(cls)
        values: dict[str, Any] = {}
        for key, entry in extra.items():
            name = key if key in fields else snake(key)
            if name in fields:
                try:
                    values[name] = self.read(entry, fields[name].type)
                except UnsupportedType:
                    raise entry.error(f"can't be written here; name it in code, with {name}_code") from None
            elif name.endswith("_code") and name.removesuffix("_code") in fields:
                values[name.removesuffix("_code")] = self._references.find(code_name(entry))
            elif name.endswith("_callbacks") and name[:-1] in fields:
                values[name[:-1]] = [self._callback(item) for item in entry.items]
            else:
                _log.warning(
                    "%s",
                    entry.error(f"left out: no such key {what}{did_you_mean(key, fields)}").detail,
                )

        return values

    def _read_key(self, key: str, entry: ConfigNode, declared: TypedField) -> tuple[str, Any]:
        """The name of the class's field, and its value; for all keys but `sub_agents`."""
        if key.endswith("_callbacks"):
            return key[:-1], [self._callback(item) for item in entry.items]

        if key.endswith("_code") or key in ("planner", "code_executor"):
            field = key.removesuffix("_code")
            return field, self.instance(entry, _CODE_TYPES[field])

        match key:
            case "edges":
                from greenroom.apps.yaml_config.workflows import EdgeReader  # workflows, which most files don't need

                return key, EdgeReader(self, self._build).read(entry)
            case "tools":
                return key, [tool for tool in map(self._tools.build, entry.items) if tool is not None]
            case "instruction" | "name":
                return key, entry.text
            case "input_schema" | "output_schema":
                return key, self._schema(entry)
            case "static_instruction":
                return key, self._static_instruction(entry)
            case "state_reducers":
                return key, {name: self._reducer(item) for name, item in entry.entries.items()}
            case "generate_content_config":
                records.check_generation_keys(entry)
                read = self.read_record(
                    entry,
                    records.GenerationSettings,
                    what="of generate_content_config",
                )
                return key, records.generation_config(read)
            case _:
                return key, self.read(entry, declared.type)

    def _callback(self, node: ConfigNode) -> Callable[..., Any]:
        if not isinstance(node.value, dict):
            raise node.error(f"must be a map with the function's name, as in {{name: .guards.check}}, not {node.kind}")
        name = code_name(node)
        function = self._references.find(name)
        if not callable(function) or isinstance(function, (type, BaseAgent)):
            raise name.error(f"{name.text!r} is of type {type(function).__name__}; a callback is a function")
        return function

    def _schema(self, node: ConfigNode) -> object:
        if isinstance(node.value, str) or (isinstance(node.value, dict) and set(node.value) == {"name"}):
            return self._references.find(code_name(node))
        return node.plain_map()

    def _static_instruction(self, node: ConfigNode) -> str | Part | Content | list[str | Part | Content]:
        if isinstance(node.value, str):
            return node.text
        if isinstance(node.value, list):
            items = [self._static_instruction(item) for item in node.value]
            return [one for item in items for one in (item if isinstance(item, list) else [item])]
        return self.read(node, Content if "parts" in node.entries else Part)

    def _reducer(self, node: ConfigNode) -> object:
        if node.value in ("append", "merge", "sum"):
            return node.value
        function = self._references.find(code_name(node))
        if not callable(function):
            raise node.error("must be append, merge, sum, or the name of a function")
        return function

    def _sub_agent(self, node: ConfigNode, *, may_be_text: bool) -> BaseAgent:
        if isinstance(node.value, str) and not may_be_text:
            key = "config_path" if node.value.endswith(_FILES) else "code"
            raise node.error(f"must be a map: {{{key}: {node.value}}}")
        if isinstance(node.value, str):
            return self._from_file(node)
        return self.agent(node)

    def _shown(self, path: Path) -> str:
        return str(path.relative_to(self._references.root))


def _fields(cls: type[BaseAgent]) -> dict[str, TypedField]:
    """The arguments of an agent class."""
    fields = dict(fields_of(cls))
    if cls.__init__ is not BaseAgent.__init__:
        fields |= parameters_of(cls)
    fields.pop("**", None)
    return fields


def _copy_of(agent: BaseAgent) -> BaseAgent:
    twin = copy.copy(agent)
    twin.parent_agent = None
    twin.sub_agents = [_copy_of(child) for child in agent.sub_agents]
    for child in twin.sub_agents:
        child.parent_agent = twin
    return twin
