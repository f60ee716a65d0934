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


class Plugins:
    """The plugins of an app. Those that don't override a hook cost nothing at that hook."""

    def __init__(self, plugins: Sequence[BasePlugin] = ()) -> None:
        names = [plugin.name for plugin in plugins]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise AgentConfigError(f"Plugin names must be unique; used twice: {', '.join(twice)}")
        self._plugins = tuple(plugins)
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
        """Tell all of an error; what goes wrong in there is only logged."""
        for plugin in self.listening_to(hook):
            try:
                await getattr(plugin, hook)(**arguments)
            except Exception:  # there is an error already, and this one must not hide it
                _log.exception("plugin %s failed in %s", plugin.name, hook)

    async def close(self) -> None:
        """Close all, each within its time. Raises the errors together."""
        errors: list[Exception] = []
        for plugin in self.listening_to("close"):
            try:
                async with asyncio.timeout(CLOSE_SECONDS):
                    await plugin.close()
            except Exception as error:  # the others must be closed all the same
                errors.append(PluginFailed(plugin.name, "close", error))
        if errors:
            raise ExceptionGroup("Plugins could not be closed", errors)
