"""Apps, limited to the caller's permissions."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from greenroom.apps.app import App
from greenroom.apps.loader import AppLoader
from greenroom.errors import AppLoadError, AppNotFound
from greenroom.server.access.identity import Identity

if TYPE_CHECKING:
    from greenroom.apps.agent_files import AgentFiles


class AuthorizedApps:
    """`AppLoader` for one caller. Apps that the caller may not access are not listed, and are refused before any
    lookup.
    """

    __slots__ = ("_apps", "_identity")

    def __init__(self, apps: AppLoader, identity: Identity) -> None:
        self._apps = apps
        self._identity = identity

    async def list_apps(self, *, max_age_seconds: float = 0.0) -> list[str]:
        """Lists the apps that the caller may access. Names in memory are used if they are at most `max_age_seconds`
        old.
        """
        names = await self._apps.list_apps_async(max_age_seconds=max_age_seconds)
        return [name for name in names if self._identity.reaches(name)]

    async def load(self, app_name: str) -> App:
        self._identity.check_app(app_name)
        try:
            return await self._apps.load_async(app_name)
        except AppNotFound as error:
            raise AppNotFound(app_name, [name for name in error.known if self._identity.reaches(name)]) from None

    async def check_exists(self, app_name: str) -> None:
        """Raises Forbidden, AppNotFound."""
        self._identity.check_app(app_name)
        if not await self._apps.has_app(app_name):
            raise AppNotFound(app_name, await self.list_apps(max_age_seconds=1.0))

    def problems(self) -> Mapping[str, AppLoadError]:
        return {name: error for name, error in self._apps.problems().items() if self._identity.reaches(name)}

    def language(self, app_name: str) -> str:
        self._identity.check_app(app_name)
        return self._apps.language(app_name)

    def folder(self, app_name: str) -> Path | None:
        self._identity.check_app(app_name)
        return self._apps.folder(app_name)

    def files(self, app_name: str) -> AgentFiles:
        """Raises NotOffered where apps have no folders to edit."""
        from greenroom.apps.agent_files import AgentFiles  # imports yaml

        self._identity.check_app(app_name)
        return AgentFiles(self._apps, app_name)

    async def readme(self, app_name: str) -> str | None:
        self._identity.check_app(app_name)
        return await asyncio.to_thread(self._apps.readme, app_name)
