"""Components by name, for configuration files: agents, agent classes, tools, toolsets, callbacks, models.

Source of the names of what greenroom ships: ADK's registry in Java and its YAML loader in Python.
"""

from __future__ import annotations

import logging
import pkgutil
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
"""Packages contribute components with an entry point of this group: a function that is called with
the registry.
"""

_PREFIXES = ("greenroom.", "google.adk.tools.", "google.adk.agents.", "google.adk.workflow.")
_ADK = ("google.adk.", "com.google.adk.")

_SHIPPED = frozenset(
    {
        "BaseAgent", "AgentTool", "Agent", "LlmAgent", "LoopAgent", "ParallelAgent", "RemoteA2aAgent",
        "SequentialAgent", "Workflow",
        "BuiltInPlanner", "PlanReActPlanner", "BuiltInCodeExecutor", "UnsafeLocalCodeExecutor",
        "AgentEngineSandboxCodeExecutor", "CloudRunSandboxCodeExecutor", "ContainerCodeExecutor", "GkeCodeExecutor",
        "SandboxCodeExecutor", "VertexAiCodeExecutor",
        "AgentEngineEnvironment", "DaytonaEnvironment", "E2BEnvironment", "OpenSandboxEnvironment",
        "EnvironmentToolset",
        "BaseTool", "BaseToolset", "FunctionTool", "LongRunningFunctionTool", "McpToolset", "OpenAPIToolset",
        "SkillToolset", "ApplicationIntegrationToolset", "ExampleTool", "FilesRetrieval", "VertexAiRagRetrieval",
        "LoadArtifactsTool", "load_artifacts", "LoadMemoryTool", "PreloadMemoryTool", "load_memory", "preload_memory",
        "CodeExecutionTool", "EnterpriseWebSearchTool", "GoogleMapsGroundingTool", "GoogleSearchTool",
        "UrlContextTool", "VertexAiSearchTool", "code_execution", "enterprise_web_search", "google_maps_grounding",
        "PatternCheck", "AllowedTools", "AllowedHosts", "JudgeCheck", "ModerationCheck",
        "google_search", "url_context", "exit_loop", "get_user_choice", "request_input", "wait", "wait_for",
    }
)  # fmt: skip
"""Public names of greenroom that count without a module path. Under ADK's module paths, all public
names do.
"""

_ALIASES = {"MCPToolset": "McpToolset", "mcp.McpToolset": "McpToolset"}


@dataclass(frozen=True)
class _Lazy:
    """A component at `module:attribute`, imported on first use."""

    target: str


class ComponentRegistry:
    """Resolves names: first those that the program registers, then those of packages, then greenroom's own.

    A name without a dot is also looked up as `greenroom.NAME`, and in ADK's packages tools, agents and workflow. Names
    of ADK and of greenroom are resolved by their last part, whatever their module path.
    """

    _instance: ClassVar[ComponentRegistry | None] = None

    def __init__(self) -> None:
        self._registered: dict[str, object] = {}
        self._contributed: dict[str, object] | None = None
        self._lock = threading.RLock()

    @classmethod
    def get_instance(cls) -> ComponentRegistry:
        if cls._instance is None:
            cls._instance = cls()
        return cls._instance

    @classmethod
    def set_instance(cls, registry: ComponentRegistry | None) -> None:
        """Replaces the registry of the process; None: by a new one."""
        cls._instance = registry

    def register(self, name: str, component: object) -> None:
        """Registers a component; replaces an earlier one of this name. Tool and callback functions
        are stored as is.

        Raises ValueError for an empty name, and for None.
        """
        if not name.strip():
            raise ValueError("A component needs a name")
        if component is None:
            raise ValueError(f"The component {name!r} is None")
        self._registered[name] = component

    def register_lazily(self, name: str, target: str) -> None:
        """Registers a component by its address, without importing it.

        target: `package.module:attribute`, imported on first use.
        """
        if ":" not in target:
            raise ValueError(f"The target of {name!r} is written as 'package.module:attribute'")
        self.register(name, _Lazy(target))

    def get(self, name: str) -> object | None:
        """The component, or None. Raises the import errors of a lazy component."""
        own_name = _ALIASES.get(name, name)
        candidates = [name]
        if "." not in name:
            candidates += [prefix + name for prefix in _PREFIXES]
        elif name.startswith(_ADK):
            own_name = name.rpartition(".")[2]
            candidates.append(own_name)
        elif name.startswith("greenroom."):
            own_name = name.rpartition(".")[2]

        for components in (self._registered, self._contributions()):
            for candidate in candidates:
                if candidate in components:
                    component = components[candidate]
                    if isinstance(component, _Lazy):
                        component = pkgutil.resolve_name(component.target)
                        components[candidate] = component
                    return component

        public = import_module("greenroom")  # its names are imported on first use
        if own_name in (public.__all__ if name.startswith(_ADK) else _SHIPPED):
            return cast("object", getattr(public, own_name))

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
        """Lists the names of all components; for greenroom's own, only the shortest."""
        return sorted({*self._registered, *self._contributions(), *_SHIPPED})

    def _class(self, name: str, base: type[T]) -> type[T] | None:
        found = self.get(name)
        if isinstance(found, type) and issubclass(found, base):
            return found
        return None

    def _instance_of(self, name: str, kind: type[T]) -> T | None:
        found = self.get(name)
        return found if isinstance(found, kind) else None

    def _contributions(self) -> dict[str, object]:
        """Components that entry points register, in a registry of their own."""
        with self._lock:
            if self._contributed is None:
                contributed = ComponentRegistry()
                self._contributed = contributed._registered
                contributed._contributed = contributed._registered
                for entry in entry_points(group=ENTRY_POINTS):
                    try:
                        entry.load()(contributed)
                    except Exception:  # somebody else's package must not take the others' components away
                        _log.exception("the components of %s could not be loaded", entry.value)

            return self._contributed
