"""Stores the schedules that apps declare: when the server starts or takes shards, and when an app's files changed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from functools import partial

from greenroom.apps.app import App
from greenroom.apps.loader import AppLoader
from greenroom.records.shard import Shards
from greenroom.runs.schedules import Schedules
from greenroom.runs.store import RunStore

_log = logging.getLogger("greenroom.runs")


@dataclass(kw_only=True, eq=False)
class DeclaredSchedules:
    """The declared schedules of one engine's apps."""

    apps: AppLoader
    run_store: RunStore
    schedules: Schedules

    def __post_init__(self) -> None:
        self._declaring: set[asyncio.Task[None]] = set()

    async def declare(self, shards: Shards | None) -> None:
        """Stores the schedules of all apps. shards: of those that this process owns."""
        apps: dict[str, App] = {}
        for name in await self.apps.list_apps_async():
            with contextlib.suppress(Exception):  # an app's loader may raise anything; requests to the app report it
                apps[name] = await self.apps.load_async(name)
        await self.schedules.declare(apps, shards)

    def follow_reloads(self) -> None:
        """Stores the schedules of each app that is reloaded, until `close`."""
        self.apps.reloaded = partial(self._reloaded, asyncio.get_running_loop())

    def _reloaded(self, loop: asyncio.AbstractEventLoop, app_name: str) -> None:
        """Called in any thread."""
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._declare_reloaded, app_name)

    def _declare_reloaded(self, app_name: str) -> None:
        declaring = asyncio.create_task(self._declare_of(app_name))
        self._declaring.add(declaring)
        declaring.add_done_callback(self._declaring.discard)

    async def _declare_of(self, app_name: str) -> None:
        try:
            app = await self.apps.load_async(app_name)
            ownership = self.run_store.ownership
            await self.schedules.declare({app_name: app}, None if ownership is None else ownership.owned())
        except Exception as error:  # an app's loader may raise anything
            _log.error("the schedules of app %s are not stored: %s", app_name, error)

    def close(self) -> None:
        self.apps.reloaded = None
        for declaring in self._declaring:
            declaring.cancel()
