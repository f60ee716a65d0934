"""One runner per app, shared by the app's runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from greenroom.apps.app import App
from greenroom.apps.loader import AppLoader
from greenroom.runner.runner import Runner

_log = logging.getLogger("greenroom.runs")


class RunnerCache:
    """Caches one runner per app. A reloaded app gets a new runner; the old one is closed when its last run ends."""

    def __init__(self, apps: AppLoader, make: Callable[[str, App], Runner]) -> None:
        self._apps = apps
        self._make = make
        self._newest: dict[str, tuple[App, Runner]] = {}
        self._replaced: dict[Runner, str] = {}
        self._in_use: dict[Runner, int] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def acquire(self, app_name: str) -> Runner:
        """The app's runner, kept open until it is released. Raises AppNotFound, AppLoadError."""
        app = await self._apps.load_async(app_name)
        cached = self._newest.get(app_name)
        if cached is not None and cached[0] is app:
            runner = cached[1]
        else:
            runner = self._make(app_name, app)
            self._newest[app_name] = (app, runner)
            if cached is not None:
                self._replace(app_name, cached[1])
        self.retain(runner)
        return runner

    def retain(self, runner: Runner) -> None:
        """Keeps it open; each `acquire` and `retain` needs a `release`."""
        self._in_use[runner] = self._in_use.get(runner, 0) + 1

    def release(self, runner: Runner) -> None:
        left = self._in_use[runner] - 1
        if left:
            self._in_use[runner] = left
            return
        del self._in_use[runner]
        app_name = self._replaced.pop(runner, None)
        if app_name is not None:
            self._close_soon(app_name, runner)

    async def close(self) -> None:
        runners = [(name, runner) for name, (_, runner) in self._newest.items()]
        runners += [(name, runner) for runner, name in self._replaced.items()]
        self._newest.clear()
        self._replaced.clear()
        for app_name, runner in runners:
            await _close(app_name, runner)
        await asyncio.gather(*self._closing)

    def _replace(self, app_name: str, runner: Runner) -> None:
        if runner in self._in_use:
            self._replaced[runner] = app_name
        else:
            self._close_soon(app_name, runner)

    def _close_soon(self, app_name: str, runner: Runner) -> None:
        task = asyncio.ensure_future(_close(app_name, runner))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


async def _close(app_name: str, runner: Runner) -> None:
    try:
        await runner.close()
    except Exception:  # toolsets and plugins may raise anything; the others must be closed all the same
        _log.exception("toolsets or plugins of app %s could not be closed", app_name)
