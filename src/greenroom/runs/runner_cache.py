"""One runner per app, shared by the app's runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator

from greenroom.apps.app import App
from greenroom.apps.loader import AppLoader
from greenroom.apps.published import PublishedApps
from greenroom.errors import AppNotFound
from greenroom.runner.runner import Runner
from greenroom.versions.store import version_not_found

_log = logging.getLogger("greenroom.runs")


MAX_PINNED = 8
"""Maximum number of earlier versions of an app that are kept."""


class RunnerCache:
    """Caches one runner per app. A reloaded app gets a new runner; the old one is closed when its last run ends.

    Earlier versions of an app that pins its runs are kept, the newest of them, and all published versions that were
    used.
    """

    def __init__(self, apps: AppLoader, published: PublishedApps, make: Callable[[str, App], Runner]) -> None:
        self._apps = apps
        self._published_apps = published
        self._make = make
        self._newest: dict[str, tuple[App, Runner]] = {}
        self._replaced: dict[Runner, str] = {}
        self._pinned: dict[str, dict[str, Runner]] = {}
        """Earlier versions by app and version, the oldest first."""
        self._published: dict[tuple[str, str], Runner] = {}
        """By app and version."""
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
            if cached is not None and app.on_version_change == "pin":
                self._pin(app_name, cached[1])
            elif cached is not None:
                self._replace(app_name, cached[1])
        self.retain(runner)
        return runner

    async def acquire_published(self, app_name: str, version: str) -> Runner:
        """The runner of a published version, kept open until it is released. Raises AppNotFound for an app that isn't
        served any more, NotFound, AppLoadError.
        """
        if not await self._apps.has_app(app_name):
            raise AppNotFound(app_name)
        runner = await self.of_published(app_name, version)
        if runner is None:
            raise version_not_found(app_name, version)
        self.retain(runner)
        return runner

    async def of_published(self, app_name: str, version: str) -> Runner | None:
        """The runner of a published version, kept until `close`; None if there is none. Raises AppLoadError."""
        runner = self._published.get((app_name, version))
        if runner is None:
            app = await self._published_apps.load(app_name, version)
            runner = self._published.get((app_name, version))
            if runner is None and app is not None:
                runner = self._published[app_name, version] = self._make(app_name, app)
        return runner

    async def of_version(self, app_name: str, version: str) -> Runner | None:
        """The runner of an earlier version of the app; None if this process has none. It is kept until it is retained,
        or further versions are loaded.
        """
        pinned = self._pinned.get(app_name, {}).get(version)
        if pinned is not None:
            return pinned
        app = await self._apps.load_version(app_name, version)
        if app is None:
            return None
        pinned = self._pinned.get(app_name, {}).get(version)
        if pinned is None:
            pinned = self._make(app_name, app)
            self._pin(app_name, pinned)
        return pinned

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

    def __iter__(self) -> Iterator[Runner]:
        """The runners that may begin runs."""
        yield from [runner for _, runner in self._newest.values()]
        yield from [runner for pinned in self._pinned.values() for runner in pinned.values()]
        yield from [*self._published.values()]

    async def close(self) -> None:
        runners = [(name, runner) for name, (_, runner) in self._newest.items()]
        runners += [(name, runner) for runner, name in self._replaced.items()]
        runners += [(name, runner) for name, pinned in self._pinned.items() for runner in pinned.values()]
        runners += [(name, runner) for (name, _), runner in self._published.items()]
        self._newest.clear()
        self._pinned.clear()
        self._replaced.clear()
        self._published.clear()
        for app_name, runner in runners:
            await _close(app_name, runner)
        await asyncio.gather(*self._closing)
        self._published_apps.close()

    def _pin(self, app_name: str, runner: Runner) -> None:
        pinned = self._pinned.setdefault(app_name, {})
        version = version_of(runner) or ""
        if version in pinned:
            self._replace(app_name, pinned.pop(version))
        pinned[version] = runner
        if len(pinned) > MAX_PINNED:
            self._replace(app_name, pinned.pop(next(iter(pinned))))

    def _replace(self, app_name: str, runner: Runner) -> None:
        if runner in self._in_use:
            self._replaced[runner] = app_name
        else:
            self._close_soon(app_name, runner)

    def _close_soon(self, app_name: str, runner: Runner) -> None:
        task = asyncio.ensure_future(_close(app_name, runner))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def version_of(runner: Runner) -> str | None:
    """The version of the app's code; None when it is unknown."""
    return (runner.app.version or None) if runner.app is not None else None


async def _close(app_name: str, runner: Runner) -> None:
    try:
        await runner.close()
    except Exception:  # toolsets and plugins may raise anything; the others must be closed all the same
        _log.exception("toolsets or plugins of app %s could not be closed", app_name)
