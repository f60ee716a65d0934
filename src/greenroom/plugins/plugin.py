"""The contract of a plugin: hooks into every run of an app.

Source: ADK's BasePlugin, names and arguments included. Plugins are asked in the order in which they are registered; the
first answer that isn't None wins, and neither later plugins nor the agent's own callback are asked then. A plugin that
only watches returns None.

A run goes on in stretches: from a message until it ends or waits for a person, then from the answer on; and one whose
process died goes on in another. A plugin sees each stretch by itself, because what it remembers of an earlier one may
be lost: `before_run_callback` when it begins, and when it ends either `after_run_callback` or `on_run_error_callback`.
A stretch that its process left behind has no end, only the next beginning.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from greenroom.errors import (
    AgentConfigError,
    PluginFailed,
    ReplayConfigError,
    ReplayVerificationError,
    as_exception,
)
from greenroom.invocation.context import InvocationContext, RunningAgent
from greenroom.invocation.user_context import CallbackContext, ToolContext
from greenroom.records.base import JsonObject
from greenroom.records.content import Content
from greenroom.records.event import Event
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.tools.tool import BaseTool


class BasePlugin:
    """Override what is needed. An error in a hook fails the run, except in those that are told of an error.

    name: unique among the plugins of an app.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    async def on_user_message_callback(
        self, *, invocation_context: InvocationContext, user_message: Content
    ) -> Content | None:
        """Replace the message before it is stored. Each message comes by once, however often its run is taken up."""

    async def before_run_callback(self, *, invocation_context: InvocationContext) -> Content | None:
        """Answer in place of the agents: the run ends with this content.

        `invocation_context.was_cut_off` tells that the run is taken up in its midst: what was begun has an unknown
        outcome, and agents that had begun go on without their `before_agent_callback`.
        """

    async def on_event_callback(self, *, invocation_context: InvocationContext, event: Event) -> Event | None:
        """Lay another event's fields over this one, before it is stored and shown. Partial events come by, too; what
        the user says, and the event that ends a failed or cancelled run, don't."""

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        """The stretch ended: by itself, because it waits for a person, or because it was cancelled.

        An error in here fails a run that ended by itself: later plugins are not asked, and all are told of the error.
        """

    async def on_run_error_callback(self, *, invocation_context: InvocationContext, error: Exception) -> None:
        """The run failed, or took longer than it may. Errors in here are only logged."""

    async def before_agent_callback(self, *, agent: RunningAgent, callback_context: CallbackContext) -> Content | None:
        """Answer in place of this agent."""

    async def after_agent_callback(self, *, agent: RunningAgent, callback_context: CallbackContext) -> Content | None:
        """Say something more after this agent."""

    async def on_agent_error_callback(
        self, *, agent: RunningAgent, callback_context: CallbackContext, error: Exception
    ) -> None:
        """An agent failed. Errors in here are only logged."""

    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest
    ) -> LlmResponse | None:
        """Change the request in place, or answer in place of the model."""

    async def after_model_callback(
        self, *, callback_context: CallbackContext, llm_response: LlmResponse
    ) -> LlmResponse | None:
        """Replace a reply, or a chunk of one."""

    async def on_model_error_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest, error: Exception
    ) -> LlmResponse | None:
        """Turn a model's failure into a reply. Errors of plugins and callbacks don't come here."""

    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: JsonObject, tool_context: ToolContext
    ) -> JsonObject | None:
        """Change the arguments in place, or answer in place of the tool."""

    async def after_tool_callback(
        self, *, tool: BaseTool, tool_args: JsonObject, tool_context: ToolContext, result: Any
    ) -> JsonObject | None:
        """Replace a tool's result."""

    async def on_tool_error_callback(
        self, *, tool: BaseTool, tool_args: JsonObject, tool_context: ToolContext, error: Exception
    ) -> JsonObject | None:
        """Turn a tool's failure into a result."""

    async def close(self) -> None:
        """The runner closes. Each plugin has its time, five seconds if the runner was not told otherwise; one that
        fails, or takes longer, keeps no other from closing."""


_log = logging.getLogger("greenroom.plugins")


def agents_of_app(agent: Any) -> list[Any]:
    """All agents of the app that this agent belongs to, those that are tools included."""
    found: dict[int, Any] = {}
    waiting = [agent.root_agent]
    while waiting:
        one = waiting.pop()
        if id(one) not in found:
            found[id(one)] = one
            waiting += one.sub_agents
            behind_tools = [getattr(tool, "agent", None) for tool in getattr(one, "tools", ())]
            waiting += [inner for inner in behind_tools if hasattr(inner, "sub_agents")]
    return list(found.values())


CLOSE_SECONDS = 5.0
"""Source: ADK's runner."""

_HOOKS = [name for name, value in vars(BasePlugin).items() if inspect.iscoroutinefunction(value)]


class Plugins:
    """The plugins of an app. Those that don't override a hook cost nothing at that hook.

    close_seconds: for each plugin.
    """

    def __init__(self, plugins: Sequence[BasePlugin] = (), *, close_seconds: float = CLOSE_SECONDS) -> None:
        names = [plugin.name for plugin in plugins]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise AgentConfigError(f"Plugin names must be unique; used twice: {', '.join(twice)}")
        self._plugins = tuple(plugins)
        self._close_seconds = close_seconds
        self.listeners: Mapping[str, tuple[BasePlugin, ...]] = {
            hook: listeners
            for hook in _HOOKS
            if (listeners := tuple(p for p in plugins if getattr(type(p), hook) is not getattr(BasePlugin, hook)))
        }
        """By hook, the plugins that override it; hooks that none overrides are not in it."""

    def __len__(self) -> int:
        return len(self._plugins)

    def __iter__(self):
        return iter(self._plugins)

    async def first_result(self, hook: str, **arguments: Any) -> Any:
        """The first answer that isn't None. Raises PluginFailed, which names plugin and hook; errors of
        a replay are raised as they are."""
        for plugin in self.listeners.get(hook, ()):
            try:
                answer = await getattr(plugin, hook)(**arguments)
            except (ReplayConfigError, ReplayVerificationError):
                raise  # about the client's recording, not about the plugin
            except BaseException as raised:  # a plugin may raise anything; the run must say whose error it was
                raise PluginFailed(plugin.name, hook, as_exception(raised)) from raised
            if answer is not None:
                return answer
        return None

    async def notify(self, hook: str, **arguments: Any) -> None:
        """Tell all of something that can't be undone; what goes wrong in there is only logged."""
        for plugin in self.listeners.get(hook, ()):
            try:
                await getattr(plugin, hook)(**arguments)
            except BaseException as raised:  # the run's outcome is known already, and this one must not hide it
                _log.error("plugin %s failed in %s", plugin.name, hook, exc_info=as_exception(raised))

    async def close(self) -> None:
        """Close all, one after the other, each within its time. Raises their errors together."""
        errors: list[Exception] = []
        for plugin in self.listeners.get("close", ()):
            try:
                async with asyncio.timeout(self._close_seconds):
                    await plugin.close()
            except Exception as error:  # the others must be closed all the same
                errors.append(PluginFailed(plugin.name, "close", error))
        if errors:
            raise ExceptionGroup("Plugins could not be closed", errors)
