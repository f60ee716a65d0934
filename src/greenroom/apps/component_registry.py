"""Components by name, for configuration files: agents, agent classes, tools, toolsets, callbacks, models.

Source of the names of what greenroom ships: ADK's registry in Java and its YAML loader in Python.
"""

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, ClassVar, TypeVar, cast

from greenroom.agents.agent import BaseAgent
from greenroom.tools.tool import BaseTool
from greenroom.tools.toolset import BaseToolset

_log = logging.getLogger("greenroom.apps")

T = TypeVar("T")

ENTRY_POINTS = "greenroom.components"
"""Packages contribute components with an entry point of this group: a function that is called with the registry."""

_PREFIXES = ("greenroom.", "google.adk.tools.", "google.adk.agents.")
_ADK = ("google.adk.", "com.google.adk.")

_SHIPPED = {
    "greenroom.agents.agent": ("BaseAgent",),
    "greenroom.agents.agent_tool": ("AgentTool",),
    "greenroom.agents.llm_agent": ("Agent", "LlmAgent"),
    "greenroom.agents.planning": ("BuiltInPlanner", "PlanReActPlanner"),
    "greenroom.agents.workflows": ("LoopAgent", "ParallelAgent", "SequentialAgent"),
    "greenroom.code_executors.executor": ("BuiltInCodeExecutor",),
    "greenroom.code_executors.unsafe_local": ("UnsafeLocalCodeExecutor",),
    "greenroom.tools.application_integration.toolset": ("ApplicationIntegrationToolset",),
    "greenroom.tools.builtin.examples": ("ExampleTool",),
    "greenroom.tools.builtin.run_control": ("exit_loop", "get_user_choice", "request_input"),
    "greenroom.tools.builtin.load_artifacts": ("LoadArtifactsTool", "load_artifacts"),
    "greenroom.tools.builtin.memory": ("LoadMemoryTool", "PreloadMemoryTool", "load_memory", "preload_memory"),
    "greenroom.tools.builtin.model_side": (
        "CodeExecutionTool", "EnterpriseWebSearchTool", "GoogleMapsGroundingTool", "GoogleSearchTool",
        "UrlContextTool", "VertexAiSearchTool", "code_execution", "enterprise_web_search", "google_maps_grounding",
        "google_search", "url_context",
    ),
    "greenroom.tools.functions.function_tool": ("FunctionTool", "LongRunningFunctionTool"),
    "greenroom.tools.mcp.toolset": ("McpToolset",),
    "greenroom.tools.openapi.toolset": ("OpenAPIToolset",),
    "greenroom.tools.retrieval.files_retrieval": ("FilesRetrieval",),
    "greenroom.tools.retrieval.vertex_ai_rag_retrieval": ("VertexAiRagRetrieval",),
    "greenroom.tools.skills.toolset": ("SkillToolset",),
    "greenroom.tools.tool": ("BaseTool",),
    "greenroom.tools.toolset": ("BaseToolset",),
}  # fmt: skip
_ALIASES = {"MCPToolset": "McpToolset", "mcp.McpToolset": "McpToolset"}


@dataclass(frozen=True)
class _Lazy:
    """A component at `module:attribute`, imported on first use."""

    target: str

    def load(self) -> object:
        module, _, attribute = self.target.partition(":")
        value: object = importlib.import_module(module)
        for name in attribute.split(".") if attribute else ():
            value = getattr(value, name)
        return value


class ComponentRegistry:
    """What is registered by the program counts before what packages contribute, and that before what greenroom ships.

    A name without a dot is also looked for as `greenroom.NAME`, `google.adk.tools.NAME` and `google.adk.agents.NAME`;
    names of ADK, with whatever module path, lead to what greenroom has under their last part.
    """

    _instance: ClassVar[ComponentRegistry | None] = None

    def __init__(self) -> None:
        self._registered: dict[str, object] = {}
        self._contributed: dict[str, object] | None = None
        self._shipped: dict[str, object] = _shipped()
        self._lock = threading.RLock()

    @classmethod
    def get_instance(cls) -> ComponentRegistry:
        if cls._instance is None:
            cls._instance = cls()
        return cls._instance

    @classmethod
    def set_instance(cls, registry: ComponentRegistry | None) -> None:
        """Replace the registry of the process; None: with a new one."""
        cls._instance = registry

    def register(self, name: str, component: object) -> None:
        """Registers a component; replaces an earlier one of this name. Tool and callback functions are stored as is.

        Raises ValueError for an empty name, and for None.
        """
        if not name.strip():
            raise ValueError("A component needs a name")
        if component is None:
            raise ValueError(f"The component {name!r} is None")
        self._registered[name] = component

    def register_lazily(self, name: str, target: str) -> None:
        """target: `package.module:attribute`, imported on first use."""
        if ":" not in target:
            raise ValueError(f"The target of {name!r} is written as 'package.module:attribute'")
        self.register(name, _Lazy(target))

    def get(self, name: str) -> object | None:
        """The component, or None. Raises what the import of a lazy one raises."""
        candidates = [name]
        if "." not in name:
            candidates += [prefix + name for prefix in _PREFIXES]
        elif name.startswith(_ADK):
            candidates.append(name.rpartition(".")[2])
        for components in (self._registered, self._contributions(), self._shipped):
            for candidate in candidates:
                if candidate in components:
                    found = components[candidate]
                    if isinstance(found, _Lazy):
                        found = components[candidate] = found.load()
                    return found
        public = import_module("greenroom")  # its names are imported on first use
        if name.startswith(_ADK) and candidates[-1] in public.__all__:
            return cast("object", getattr(public, candidates[-1]))
        return None

    def agent_class(self, name: str) -> type[BaseAgent] | None:
        return self._class(name, BaseAgent)

    def agent(self, name: str) -> BaseAgent | None:
        return self._instance_of(name, BaseAgent)

    def tool_class(self, name: str) -> type[BaseTool] | None:
        return self._class(name, BaseTool)

    def tool(self, name: str) -> BaseTool | None:
        return self._instance_of(name, BaseTool)

    def toolset_class(self, name: str) -> type[BaseToolset] | None:
        return self._class(name, BaseToolset)

    def toolset(self, name: str) -> BaseToolset | None:
        return self._instance_of(name, BaseToolset)

    def callback(self, name: str) -> Callable[..., Any] | None:
        found = self.get(name)
        is_function = callable(found) and not isinstance(found, (type, BaseTool, BaseAgent))
        return cast("Callable[..., Any]", found) if is_function else None

    def names(self) -> list[str]:
        """Names under which something can be found, shortest form only for what greenroom ships."""
        shipped = {name for names in _SHIPPED.values() for name in names}
        return sorted({*self._registered, *self._contributions(), *shipped})

    def _class(self, name: str, base: type[T]) -> type[T] | None:
        found = self.get(name)
        return found if isinstance(found, type) and issubclass(found, base) else None

    def _instance_of(self, name: str, kind: type[T]) -> T | None:
        found = self.get(name)
        return found if isinstance(found, kind) else None

    def _contributions(self) -> dict[str, object]:
        """What entry points register, in a registry of their own."""
        with self._lock:
            if self._contributed is None:
                contributed = ComponentRegistry()
                self._contributed = contributed._contributed = contributed._registered
                for entry in entry_points(group=ENTRY_POINTS):
                    try:
                        entry.load()(contributed)
                    except Exception:  # somebody else's package must not take the others' components away
                        _log.exception("the components of %s could not be loaded", entry.value)
            return self._contributed


def _shipped() -> dict[str, object]:
    """By bare name, by full name, and under ADK's short prefixes."""
    components: dict[str, object] = {}
    for module, names in _SHIPPED.items():
        adk = "google.adk.agents." if module.startswith("greenroom.agents") else "google.adk.tools."
        for name in names:
            lazy = _Lazy(f"{module}:{name}")
            components |= dict.fromkeys((name, f"{module}.{name}", adk + name), lazy)
    return components | {alias: components[name] for alias, name in _ALIASES.items()}
