"""Asks an app's plugins, in order; the first answer wins."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from greenroom.errors import AgentConfigError, PluginFailed
from greenroom.plugins.plugin import BasePlugin

_log = logging.getLogger("greenroom.plugins")

CLOSE_SECONDS = 5.0
"""Source: ADK's runner."""


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
        self._listeners: dict[str, tuple[BasePlugin, ...]] = {}

    def __len__(self) -> int:
        return len(self._plugins)

    def __iter__(self):
        return iter(self._plugins)

    def listening_to(self, hook: str) -> tuple[BasePlugin, ...]:
        """The plugins that override a hook."""
        listeners = self._listeners.get(hook)
        if listeners is None:
            listeners = tuple(p for p in self._plugins if getattr(type(p), hook) is not getattr(BasePlugin, hook))
            self._listeners[hook] = listeners
        return listeners

    async def ask(self, hook: str, **arguments: Any) -> Any:
        """The first answer that isn't None. Raises PluginFailed, which names plugin and hook."""
        for plugin in self.listening_to(hook):
            try:
                answer = await getattr(plugin, hook)(**arguments)
            except Exception as error:  # a plugin may raise anything; the run must say whose error it was
                raise PluginFailed(plugin.name, hook, error) from error
            if answer is not None:
                return answer
        return None

    async def tell(self, hook: str, **arguments: Any) -> None:
        """Tell all of something that can't be undone; what goes wrong in there is only logged."""
        for plugin in self.listening_to(hook):
            try:
                await getattr(plugin, hook)(**arguments)
            except Exception:  # the run's outcome is known already, and this one must not hide it
                _log.exception("plugin %s failed in %s", plugin.name, hook)

    async def close(self) -> None:
        """Close all, one after the other, each within its time. Raises their errors together."""
        errors: list[Exception] = []
        for plugin in self.listening_to("close"):
            try:
                async with asyncio.timeout(self._close_seconds):
                    await plugin.close()
            except Exception as error:  # the others must be closed all the same
                errors.append(PluginFailed(plugin.name, "close", error))
        if errors:
            raise ExceptionGroup("Plugins could not be closed", errors)
