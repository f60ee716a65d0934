"""The contract of a plugin: hooks into every run of an app.

Source: ADK's BasePlugin, names and arguments included. Plugins are called in the order of
registration. The first result that isn't None counts: neither later plugins nor the agent's own
callback are called then. A plugin that only observes returns None.

A run executes in segments: one from the message until it ends or waits for a person, the next from the answer on; and a
run whose process died resumes in another segment. Plugins see each segment on its own, because their memory of an
earlier one may be lost: `before_run_callback` at its start, and at its end either `after_run_callback` or
`on_run_error_callback`. A segment that ends with its process has no end hook.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar, cast

from greenroom.errors import (
    AgentConfigError,
    PluginFailed,
    ReplayConfigError,
    ReplayVerificationError,
    as_exception,
    error_of,
)
from greenroom.invocation.context import InvocationContext, RunningAgent
from greenroom.invocation.user_context import CallbackContext, ToolContext
from greenroom.records.base import JsonObject
from greenroom.records.content import Content
from greenroom.records.event import Event
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.tools.tool import BaseTool

T = TypeVar("T")

_log = logging.getLogger("greenroom.plugins")

CLOSE_SECONDS = 5.0
"""Source: ADK's runner."""


class BasePlugin:
    """Override the hooks that are needed. An error in a hook fails the run, except in error hooks
    of runs and agents.

    name: unique among the plugins of an app.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    async def on_user_message_callback(
        self, *, invocation_context: InvocationContext, user_message: Content
    ) -> Content | None:
        """Replaces the message before it is stored. Called once per message, however often its run
        is resumed.
        """

    async def before_run_callback(self, *, invocation_context: InvocationContext) -> Content | None:
        """Replaces the agents' work: the run ends with this content.

        `invocation_context.was_cut_off` is True when an interrupted run resumes: calls in progress have an unknown
        outcome, and agents that had started resume without their `before_agent_callback`.
        """

    async def on_event_callback(
        self,
        *,
        invocation_context: InvocationContext,
        event: Event,
    ) -> Event | None:
        """Overrides fields of an event before it is stored and sent. Called for partial events too,
        but not for the user's events or the last event of a failed or cancelled run.
        """

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        """Called when the segment ends: the run has completed, waits for a person, or was
        cancelled.

        An error in here fails a completed run: later plugins are skipped, and all get
        `on_run_error_callback`.
        """

    async def on_run_error_callback(
        self,
        *,
        invocation_context: InvocationContext,
        error: Exception,
    ) -> None:
        """Called when the run failed or exceeded its deadline. Errors in here are only logged."""

    async def before_agent_callback(
        self,
        *,
        agent: RunningAgent,
        callback_context: CallbackContext,
    ) -> Content | None:
        """Replaces the agent's work with this content."""

    async def after_agent_callback(
        self,
        *,
        agent: RunningAgent,
        callback_context: CallbackContext,
    ) -> Content | None:
        """Adds an event with this content after the agent's."""

    async def on_agent_error_callback(
        self, *, agent: RunningAgent, callback_context: CallbackContext, error: Exception
    ) -> None:
        """Called when an agent failed. Errors in here are only logged."""

    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest
    ) -> LlmResponse | None:
        """Changes the request in place, or replaces the model's reply."""

    async def after_model_callback(
        self, *, callback_context: CallbackContext, llm_response: LlmResponse
    ) -> LlmResponse | None:
        """Replaces a reply, or a chunk of one."""

    async def on_model_error_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest, error: Exception
    ) -> LlmResponse | None:
        """Turns a model's error into a reply. Not called for errors of plugins and callbacks."""

    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: JsonObject, tool_context: ToolContext
    ) -> JsonObject | None:
        """Changes the arguments in place, or replaces the tool's result."""

    async def after_tool_callback(
        self, *, tool: BaseTool, tool_args: JsonObject, tool_context: ToolContext, result: Any
    ) -> JsonObject | None:
        """Replaces a tool's result."""

    async def on_tool_error_callback(
        self, *, tool: BaseTool, tool_args: JsonObject, tool_context: ToolContext, error: Exception
    ) -> JsonObject | None:
        """Turns a tool's error into a result."""

    async def close(self) -> None:
        """Called when the runner closes. Each plugin has a timeout of its own, five seconds by
        default; the failure or timeout of one doesn't keep the others from closing.
        """


class PerRunPlugin(BasePlugin, Generic[T]):
    """Keeps something for each run, by its id, until the run's segment ends."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._runs: dict[str, T] = {}

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        self._runs.pop(invocation_context.invocation_id, None)

    async def on_run_error_callback(
        self,
        *,
        invocation_context: InvocationContext,
        error: Exception,
    ) -> None:
        self._runs.pop(invocation_context.invocation_id, None)


REFLECT_AND_RETRY_RESPONSE_TYPE = "ERROR_HANDLED_BY_REFLECT_AND_RETRY_PLUGIN"
"""`response_type` of a result that a reflect-and-retry plugin gave in place of an error."""


@dataclass(frozen=True)
class ToolResultClassification:
    status: Literal["OK", "ERROR"]
    error_message: str | None = None


class ToolResultClassifier(Protocol):
    """Whether a tool's result is an error; None leaves it to the rules for MCP tools."""

    def __call__(
        self, *, tool: BaseTool, tool_args: JsonObject, tool_context: ToolContext, result: Any
    ) -> ToolResultClassification | None: ...


class ObservingPlugin(BasePlugin):
    """Passes the arguments of every hook to `observe`, and changes nothing."""

    def __init__(
        self,
        name: str,
        tool_result_classifier: ToolResultClassifier | None = None,
    ) -> None:
        super().__init__(name)
        self._classify = tool_result_classifier

    def observe(self, what: str, ctx: InvocationContext | CallbackContext, **details: Any) -> None:
        """Called from each hook.

        what: the entry types of ADK's DebugLoggingPlugin, as "llm_request".
        """

    async def on_user_message_callback(
        self,
        *,
        invocation_context: InvocationContext,
        user_message: Content,
    ) -> None:
        self.observe("user_message", invocation_context, content=user_message)

    async def before_run_callback(self, *, invocation_context: InvocationContext) -> None:
        if invocation_context.was_cut_off:
            what = "invocation_resume"
        else:
            what = "invocation_start"
        self.observe(what, invocation_context, branch=invocation_context.branch)

    async def on_event_callback(
        self,
        *,
        invocation_context: InvocationContext,
        event: Event,
    ) -> None:
        self.observe("event", invocation_context, event=event)

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        self.observe("invocation_end", invocation_context)

    async def on_run_error_callback(
        self,
        *,
        invocation_context: InvocationContext,
        error: Exception,
    ) -> None:
        self.observe("invocation_error", invocation_context, error=error)

    async def before_agent_callback(
        self,
        *,
        agent: RunningAgent,
        callback_context: CallbackContext,
    ) -> None:
        self.observe("agent_start", callback_context, branch=callback_context.branch)

    async def after_agent_callback(
        self,
        *,
        agent: RunningAgent,
        callback_context: CallbackContext,
    ) -> None:
        self.observe("agent_end", callback_context)

    async def on_agent_error_callback(
        self, *, agent: RunningAgent, callback_context: CallbackContext, error: Exception
    ) -> None:
        self.observe("agent_error", callback_context, error=error)

    async def before_model_callback(
        self,
        *,
        callback_context: CallbackContext,
        llm_request: LlmRequest,
    ) -> None:
        self.observe("llm_request", callback_context, request=llm_request)

    async def after_model_callback(
        self,
        *,
        callback_context: CallbackContext,
        llm_response: LlmResponse,
    ) -> None:
        self.observe("llm_response", callback_context, response=llm_response)

    async def on_model_error_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest, error: Exception
    ) -> None:
        self.observe("llm_error", callback_context, model=llm_request.model, error=error)

    async def before_tool_callback(
        self,
        *,
        tool: BaseTool,
        tool_args: JsonObject,
        tool_context: ToolContext,
    ) -> None:
        self._observe_tool("tool_call", tool, tool_context, args=tool_args)

    async def after_tool_callback(
        self, *, tool: BaseTool, tool_args: JsonObject, tool_context: ToolContext, result: Any
    ) -> None:
        error = self._error_in(tool, tool_args, tool_context, result)
        self._observe_tool("tool_response", tool, tool_context, result=result, error=error)

    async def on_tool_error_callback(
        self, *, tool: BaseTool, tool_args: JsonObject, tool_context: ToolContext, error: Exception
    ) -> None:
        self._observe_tool("tool_error", tool, tool_context, args=tool_args, error=error)

    def _error_in(
        self,
        tool: BaseTool,
        args: JsonObject,
        ctx: ToolContext,
        result: Any,
    ) -> str | None:
        """The error that a result reports."""
        fields: JsonObject
        if isinstance(result, dict):
            fields = cast("JsonObject", result)
        else:
            fields = {}

        if fields.get("response_type") == REFLECT_AND_RETRY_RESPONSE_TYPE:
            return str(fields.get("error_details"))

        if self._classify:
            verdict = self._classify(tool=tool, tool_args=args, tool_context=ctx, result=result)
        else:
            verdict = None

        if verdict is not None:
            if verdict.status == "ERROR":
                return verdict.error_message or "reported by the classifier"
            return None

        if fields.get("isError") is True:
            return "reported by the MCP server"

        return None

    def _observe_tool(self, what: str, tool: BaseTool, ctx: ToolContext, **details: Any) -> None:
        self.observe(what, ctx, tool=tool.name, function_call_id=ctx.function_call_id, **details)


def agents_of_app(agent: Any) -> list[Any]:
    """Returns all agents of this agent's app, including those in workflows and in tools."""
    agents: dict[int, Any] = {}
    waiting = [agent.root_agent]
    for tree in waiting:
        for node in tree.walk():
            if id(node) not in agents:
                agents[id(node)] = node
                in_tools = [getattr(tool, "agent", None) for tool in getattr(node, "tools", ())]
                waiting += [inner for inner in in_tools if hasattr(inner, "walk")]

    return list(agents.values())


def raised_error(code: str, detail: str) -> Exception:
    """Restores an error that a tool raised; of a class that is not ours, only the name is known."""
    error = error_of(code, detail)
    if error.code == code:
        return error
    return type(code, (Exception,), {})(error.detail)


class UnwrappedError(Exception):
    """A plugin raises it to fail the run, or the tool call, with `error` itself in place of PluginFailed."""

    def __init__(self, error: Exception) -> None:
        self.error = error


_HOOKS = [name for name, value in vars(BasePlugin).items() if inspect.iscoroutinefunction(value)]


class PluginManager:
    """Calls the plugins of an app. Hooks that no plugin overrides cost nothing.

    close_seconds: timeout per plugin.
    """

    def __init__(
        self,
        plugins: Sequence[BasePlugin] | None = None,
        *,
        close_seconds: float = CLOSE_SECONDS,
    ) -> None:
        self.plugins: list[BasePlugin] = []
        self._close_seconds = close_seconds
        self.listeners: dict[str, tuple[BasePlugin, ...]] = {}
        """The plugins that override a hook, by hook; hooks that none overrides are absent."""
        for plugin in plugins or ():
            self.register_plugin(plugin)

    def register_plugin(self, plugin: BasePlugin, *, first: bool = False) -> None:
        """Adds a plugin after the others, or before them. Raises AgentConfigError if its name is taken."""
        if self.get_plugin(plugin.name) is not None:
            raise AgentConfigError(f"Plugin names must be unique; used twice: {plugin.name}")
        self.plugins.insert(0 if first else len(self.plugins), plugin)
        for hook in _HOOKS:
            if getattr(type(plugin), hook) is not getattr(BasePlugin, hook):
                others = self.listeners.get(hook, ())
                self.listeners[hook] = (plugin, *others) if first else (*others, plugin)

    def get_plugin(self, plugin_name: str) -> BasePlugin | None:
        return next((plugin for plugin in self.plugins if plugin.name == plugin_name), None)

    def __len__(self) -> int:
        return len(self.plugins)

    def __iter__(self):
        return iter(self.plugins)

    async def first_result(self, hook: str, **arguments: Any) -> Any:
        """The first result that isn't None. Raises PluginFailed with the names of plugin and hook;
        errors of a replay are raised unchanged.
        """
        for plugin in self.listeners.get(hook, ()):
            try:
                result = await getattr(plugin, hook)(**arguments)
            except (ReplayConfigError, ReplayVerificationError):
                raise  # about the client's recording, not about the plugin
            except UnwrappedError as unwrapped:
                raise unwrapped.error from None
            except BaseException as raised:  # a plugin may raise anything, and the run must name it
                raise PluginFailed(plugin.name, hook, as_exception(raised)) from raised

            if result is not None:
                return result

        return None

    async def notify(self, hook: str, **arguments: Any) -> None:
        """Calls a hook of all plugins, whose results don't count; errors are only logged."""
        for plugin in self.listeners.get(hook, ()):
            try:
                await getattr(plugin, hook)(**arguments)
            except BaseException as raised:  # the run's outcome is known, and this error must not hide it
                _log.error(
                    "plugin %s failed in %s",
                    plugin.name,
                    hook,
                    exc_info=as_exception(raised),
                )

    async def close(self) -> None:
        """Closes all plugins in turn, each within its timeout. Raises their errors as one group."""
        errors: list[Exception] = []
        for plugin in self.listeners.get("close", ()):
            try:
                async with asyncio.timeout(self._close_seconds):
                    await plugin.close()
            except Exception as error:  # the others must be closed all the same
                errors.append(PluginFailed(plugin.name, "close", error))

        if errors:
            raise ExceptionGroup("Plugins could not be closed", errors)
