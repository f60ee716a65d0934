"""Asks an app's plugins, in order; the first answer wins."""

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
from greenroom.plugins.plugin import BasePlugin

_log = logging.getLogger("greenroom.plugins")

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

    async def ask(self, hook: str, **arguments: Any) -> Any:
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

    async def tell(self, hook: str, **arguments: Any) -> None:
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
