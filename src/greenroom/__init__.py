"""greenroom hosts AI agents. Every public name is loaded when it is first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from greenroom.version import __version__ as __version__

_HOMES = {
    "greenroom.agents.agent": ("BaseAgent",),
    "greenroom.agents.llm_agent": ("Agent", "LlmAgent"),
    "greenroom.agents.loop": ("LoopAgent",),
    "greenroom.agents.parallel": ("ParallelAgent",),
    "greenroom.agents.sequential": ("SequentialAgent",),
    "greenroom.apps.app": ("App",),
    "greenroom.artifacts.in_memory": ("InMemoryArtifactService",),
    "greenroom.artifacts.object_store": ("ObjectStoreArtifactService",),
    "greenroom.artifacts.service": ("BaseArtifactService",),
    "greenroom.invocation.context": ("InvocationContext",),
    "greenroom.invocation.user_context": ("CallbackContext", "ReadonlyContext", "ToolContext"),
    "greenroom.memory.in_memory": ("InMemoryMemoryService",),
    "greenroom.memory.service": ("BaseMemoryService",),
    "greenroom.models.by_name": ("LLMRegistry",),
    "greenroom.models.live_model": ("BaseLlmConnection",),
    "greenroom.models.model": ("BaseLlm",),
    "greenroom.plugins.plugin": ("BasePlugin",),
    "greenroom.records.event": ("Event", "EventActions", "EventCompaction", "ToolConfirmation"),
    "greenroom.records.memory_entry": ("MemoryEntry",),
    "greenroom.records.model_exchange": ("LiveRequest", "LlmRequest", "LlmResponse"),
    "greenroom.records.run": ("RunConfig", "StreamingMode"),
    "greenroom.records.session": ("GetSessionConfig", "Session"),
    "greenroom.records.state": ("State",),
    "greenroom.runner.in_memory": ("InMemoryRunner",),
    "greenroom.runner.runner": ("Runner",),
    "greenroom.sessions.in_memory": ("InMemorySessionService",),
    "greenroom.sessions.service": ("BaseSessionService",),
    "greenroom.sessions.sqlite": ("SqliteSessionService",),
    "greenroom.tools.function_tool": ("FunctionTool",),
    "greenroom.tools.long_running_tool": ("LongRunningFunctionTool",),
    "greenroom.tools.tool": ("BaseTool",),
    "greenroom.tools.toolset": ("BaseToolset",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [*sorted(_HOME_OF), "errors", "types"]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in ("types", "errors"):
        return import_module(f"greenroom.{name}")
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'greenroom' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if TYPE_CHECKING:
    from greenroom import errors as errors
    from greenroom import types as types
    from greenroom.agents.agent import BaseAgent as BaseAgent
    from greenroom.agents.llm_agent import Agent as Agent
    from greenroom.agents.llm_agent import LlmAgent as LlmAgent
    from greenroom.agents.loop import LoopAgent as LoopAgent
    from greenroom.agents.parallel import ParallelAgent as ParallelAgent
    from greenroom.agents.sequential import SequentialAgent as SequentialAgent
    from greenroom.apps.app import App as App
    from greenroom.artifacts.in_memory import InMemoryArtifactService as InMemoryArtifactService
    from greenroom.artifacts.object_store import ObjectStoreArtifactService as ObjectStoreArtifactService
    from greenroom.artifacts.service import BaseArtifactService as BaseArtifactService
    from greenroom.invocation.context import InvocationContext as InvocationContext
    from greenroom.invocation.user_context import CallbackContext as CallbackContext
    from greenroom.invocation.user_context import ReadonlyContext as ReadonlyContext
    from greenroom.invocation.user_context import ToolContext as ToolContext
    from greenroom.memory.in_memory import InMemoryMemoryService as InMemoryMemoryService
    from greenroom.memory.service import BaseMemoryService as BaseMemoryService
    from greenroom.models.by_name import LLMRegistry as LLMRegistry
    from greenroom.models.live_model import BaseLlmConnection as BaseLlmConnection
    from greenroom.models.model import BaseLlm as BaseLlm
    from greenroom.plugins.plugin import BasePlugin as BasePlugin
    from greenroom.records.event import Event as Event
    from greenroom.records.event import EventActions as EventActions
    from greenroom.records.event import EventCompaction as EventCompaction
    from greenroom.records.event import ToolConfirmation as ToolConfirmation
    from greenroom.records.memory_entry import MemoryEntry as MemoryEntry
    from greenroom.records.model_exchange import LiveRequest as LiveRequest
    from greenroom.records.model_exchange import LlmRequest as LlmRequest
    from greenroom.records.model_exchange import LlmResponse as LlmResponse
    from greenroom.records.run import RunConfig as RunConfig
    from greenroom.records.run import StreamingMode as StreamingMode
    from greenroom.records.session import GetSessionConfig as GetSessionConfig
    from greenroom.records.session import Session as Session
    from greenroom.records.state import State as State
    from greenroom.runner.in_memory import InMemoryRunner as InMemoryRunner
    from greenroom.runner.runner import Runner as Runner
    from greenroom.sessions.in_memory import InMemorySessionService as InMemorySessionService
    from greenroom.sessions.service import BaseSessionService as BaseSessionService
    from greenroom.sessions.sqlite import SqliteSessionService as SqliteSessionService
    from greenroom.tools.function_tool import FunctionTool as FunctionTool
    from greenroom.tools.long_running_tool import LongRunningFunctionTool as LongRunningFunctionTool
    from greenroom.tools.tool import BaseTool as BaseTool
    from greenroom.tools.toolset import BaseToolset as BaseToolset
