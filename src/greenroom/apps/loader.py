"""The contract of app loaders, and the loader of apps that are given in code."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from greenroom.agents.agent import BaseAgent
from greenroom.apps.app import App
from greenroom.apps.describe import log_model_faults
from greenroom.errors import AgentConfigError, AppLoadError, AppNotFound, NotOffered


class AppLoader(ABC):
    reloaded: Callable[[str], None] | None = None
    """Called, in any thread, with the name of an app that was loaded anew since its files have changed."""

    @abstractmethod
    def list_apps(self) -> list[str]:
        """Returns the names of all apps, sorted, including apps that can't be loaded."""

    async def list_apps_async(self, *, max_age_seconds: float = 0.0) -> list[str]:
        """Like `list_apps`, without blocking the event loop. Names in memory are used if they are at most
        `max_age_seconds` old.
        """
        return self.list_apps()

    async def has_app(self, app_name: str) -> bool:
        """True if the app exists. Known apps are looked up in memory, in constant time."""
        return app_name in self.list_apps()

    @abstractmethod
    def load(self, app_name: str) -> App:
        """The app, the same object as long as its source is unchanged.

        Raises AppNotFound, or AppLoadError when the app's own code fails.
        """

    async def load_async(self, app_name: str) -> App:
        """Like `load`, without blocking the event loop while the app is imported."""
        return self.load(app_name)

    async def load_version(self, app_name: str, version: str) -> App | None:
        """The app in an earlier version that exists beside the newest one; None if there is none."""
        return None

    def preload(self) -> dict[str, AppLoadError]:
        """Loads all apps before their first use; returns the errors of those that can't be loaded, by name. Called
        outside the event loop.
        """
        failed: dict[str, AppLoadError] = {}
        for name in self.list_apps():
            try:
                self.load(name)
            except AppLoadError as error:
                failed[name] = error
        return failed

    def problems(self) -> Mapping[str, AppLoadError]:
        """Load errors of the newest sources by app, while the last good version serves."""
        return {}

    def language(self, app_name: str) -> str:
        """The language of an app: "python" or "yaml"."""
        return "python"

    def folder(self, app_name: str) -> Path | None:
        """The app's own folder, for files stored beside it; None for apps without one."""
        return None

    def readme(self, app_name: str) -> str | None:
        """The app's README, in Markdown."""
        return None

    def source_files(self, app_name: str) -> Mapping[str, Path]:
        """The files from which a loaded app runs, by their paths in the folder of all apps: those in the app's own
        folder, and the modules beside it that it has imported, with the folders that those are in. Hidden files, such
        as `.env`, are left out.

        Raises NotOffered for apps that aren't in a folder, and AppNotFound.
        """
        raise NotOffered(f"App {app_name!r} can't be published: only apps in a served folder can")

    def close(self) -> None:
        """Stops watching files."""


class StaticAppLoader(AppLoader):
    """Apps, or agents that become apps of the same name. Equal names raise AgentConfigError."""

    def __init__(self, apps: Iterable[App | BaseAgent]) -> None:
        self._apps: dict[str, App] = {}
        for given in apps:
            app = given if isinstance(given, App) else App(name=given.name, root_agent=given)
            if app.name in self._apps:
                raise AgentConfigError(f"Two apps are named {app.name!r}")
            self._apps[app.name] = app
        self._folder: Path | None = None
        self._delete_folder: weakref.finalize[..., Any] | None = None

    def folder(self, app_name: str) -> Path:
        """Returns a folder for the app in a temporary folder, since apps from code have none."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="greenroom-"))
            self._delete_folder = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        return self._folder / app_name

    def close(self) -> None:
        if self._delete_folder is not None:
            self._delete_folder()

    def preload(self) -> dict[str, AppLoadError]:
        for app in self._apps.values():
            log_model_faults(app)
        return {}

    def list_apps(self) -> list[str]:
        return sorted(self._apps)

    async def has_app(self, app_name: str) -> bool:
        return app_name in self._apps

    def load(self, app_name: str) -> App:
        try:
            return self._apps[app_name]
        except KeyError:
            raise AppNotFound(app_name, self.list_apps()) from None
