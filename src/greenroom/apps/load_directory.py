"""Apps from a folder: each sub-folder with an `agent.py`, a `root_agent.yaml` or a `langgraph.json` is one."""

from __future__ import annotations

import dataclasses
import importlib
import logging
import sys
import threading
import time
from collections.abc import Callable, Mapping, Set
from functools import partial
from pathlib import Path
from traceback import walk_tb
from types import ModuleType, TracebackType
from typing import Literal, NamedTuple

from greenroom.agents.frameworks.detect import hosted_agent
from greenroom.apps.app import App
from greenroom.apps.describe import log_model_faults
from greenroom.apps.env_file import load_env_file
from greenroom.apps.find_apps import (
    MAX_LEVELS,
    ROOT_FILE,
    exported,
    find_apps,
    folder_of,
    is_app,
    is_name,
    is_python_app,
)
from greenroom.apps.folder_watch import Changes, Fingerprint, FolderWatch, fingerprint, version_of, visible_files
from greenroom.apps.isolation import PrivatePackage
from greenroom.apps.langgraph_json import LANGGRAPH_FILE, called, find_graph
from greenroom.apps.loader import AppLoader
from greenroom.errors import AgentConfigError, AppLoadError, AppNotFound, GreenroomError
from greenroom.tools.functions.thread_pool import ThreadPool

_log = logging.getLogger("greenroom.apps")

Language = Literal["python", "yaml"]

_CHECK_SECONDS = 1.0
_IMPORTS = ThreadPool()
"""Threads that don't keep the process alive: an import may take for ever."""


class _Loaded(NamedTuple):
    """A loaded app."""

    app: App
    language: Language
    files: frozenset[Path]
    """The files that the app was read from, apart from Python's."""


class _Listing(NamedTuple):
    names: frozenset[str]
    listed_at: float


class _Failure(NamedTuple):
    error: AppLoadError
    culprit: Path | None
    fingerprint: Fingerprint
    checked_at: float


MAX_README_CHARS = 200_000


class DirectoryAppLoader(AppLoader):
    """Loads an app on first use, and keeps it.

    An app is a sub-folder with an `agent.py`, with an `__init__.py` that has `root_agent` or `app`, with a
    `root_agent.yaml`, or with a `langgraph.json`; a folder that is one itself is the only one. The first of these
    counts: `app`, `root_agent`, and `graph` or `agent` of another framework, of the package, then those of its module
    `agent`, then the graph that `langgraph.json` names, then the YAML file. `greenroom.apps.isolation`
    describes how apps import modules, `find_apps` which folders are apps: `team/bots` is the app `team.bots`.
    An app that failed is tried again once a file of its folder, or the file that failed, has changed.
    hot_reload: from the first load on, a thread polls for changes. A changed app is reloaded, and `load` returns the
    new one from then on; when it can't be loaded, the old one stays and `problems` has the reason. New apps are loaded,
    and deleted ones dropped. Call `close` in the end.
    levels: how deep apps may lie; 1: right in the folder.
    """

    def __init__(
        self,
        agents_dir: str | Path,
        *,
        hot_reload: bool = False,
        levels: int = MAX_LEVELS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises AgentConfigError when there is no such folder."""
        folder = Path(agents_dir).expanduser().resolve()
        if not folder.is_dir():
            raise AgentConfigError(f"There is no folder {str(agents_dir)!r} to find apps in")
        self._single = folder.name if is_app(folder) else None
        if self._single is not None and not is_name(self._single):
            raise AgentConfigError(
                f"The folder {folder.name!r} can't be an app: rename it to a name of letters, digits and '_'"
            )
        self.agents_dir = folder.parent if self._single is not None else folder
        self._package = PrivatePackage(self.agents_dir)
        self._levels = levels
        self._clock = clock
        self._hot_reload = hot_reload
        self._watch: FolderWatch | None = None
        self._loading = threading.RLock()
        self._apps: dict[str, _Loaded] = {}
        self._failures: dict[str, _Failure] = {}
        self._changes = Changes(self.agents_dir)
        if self._single is not None:
            self._listing = _Listing(frozenset([self._single]), float("inf"))
        else:
            self._listing = _Listing(frozenset(), float("-inf"))

    def list_apps(self) -> list[str]:
        if self._single is not None:
            return [self._single]
        started = self._clock()
        names = sorted(find_apps(self.agents_dir, levels=self._levels))
        self._listing = _Listing(frozenset(names), started)
        return names

    async def list_apps_async(self, *, max_age_seconds: float = 0.0) -> list[str]:
        """Like `list_apps`, in a thread. hot_reload keeps the names in memory up to date."""
        listing = self._listing
        if self._clock() - listing.listed_at <= max_age_seconds:
            return sorted(listing.names)
        return await _IMPORTS.run(self.list_apps)

    async def has_app(self, app_name: str) -> bool:
        """An app that was deleted is found until the folder is listed again, which hot_reload does."""
        if app_name in self._apps or app_name in self._listing.names:
            return True
        return await _IMPORTS.run(partial(self._names_with, app_name)) is not None

    def _names_with(self, app_name: str) -> list[str] | None:
        """Returns the names of all apps if `app_name` is an app. For an unknown name, at most one folder is read."""
        try:
            if not folder_of(self.agents_dir, app_name).is_dir():
                return None
        except AppNotFound:
            return None
        names = self.list_apps()
        return names if app_name in names else None

    def load(self, app_name: str) -> App:
        """Runs the app's own code the first time, which may take seconds."""
        loaded = self._apps.get(app_name)
        if loaded is not None:
            return loaded.app
        with self._loading:
            loaded = self._apps.get(app_name)
            if loaded is None:
                names = self._names_with(app_name)
                if names is None:
                    raise AppNotFound(app_name, sorted(self._listing.names) or self.list_apps())
                loaded = self._load_first(app_name, names)
            return loaded.app

    async def load_async(self, app_name: str) -> App:
        loaded = self._apps.get(app_name)
        return loaded.app if loaded is not None else await _IMPORTS.run(partial(self.load, app_name))

    def preload(self) -> dict[str, AppLoadError]:
        """Loads all apps; logs and returns the errors of apps that can't be loaded."""
        self._start_watching()
        failed: dict[str, AppLoadError] = {}
        names = self.list_apps()  # once for all: `load` would list them for each
        for name in names:
            try:
                with self._loading:
                    if name not in self._apps:
                        self._load_first(name, names)
            except AppLoadError as error:
                failed[name] = error
        return failed

    def problems(self) -> dict[str, AppLoadError]:
        """Errors of the apps that can't be loaded in their current state, by name; some still serve an older
        version."""
        return {name: failure.error for name, failure in list(self._failures.items())}

    def language(self, app_name: str) -> Language:
        """The language of the source that the app is, or would be, loaded from."""
        loaded = self._apps.get(app_name)
        if loaded is not None:
            return loaded.language
        folder = folder_of(self.agents_dir, app_name)
        return "yaml" if (folder / ROOT_FILE).is_file() and not is_python_app(folder) else "python"

    def folder(self, app_name: str) -> Path:
        """Raises AppNotFound for names that no app here can have."""
        if self._single not in (None, app_name):
            raise AppNotFound(app_name, [self._single or ""])
        return folder_of(self.agents_dir, app_name)

    def readme(self, app_name: str) -> str | None:
        file = folder_of(self.agents_dir, app_name) / "README.md"
        try:
            with file.open(encoding="utf-8", errors="replace") as text:
                return text.read(MAX_README_CHARS)
        except OSError:
            return None

    def source_files(self, app_name: str) -> dict[str, Path]:
        folder = self.folder(app_name)
        loaded = self._apps.get(app_name)
        found = {*visible_files(folder), *(loaded.files if loaded is not None else ())}
        for path in self._shared_files(app_name):
            found.add(path)
            beside = self._folder_beside(folder, path)
            if beside is not None:
                found.update(visible_files(beside))

        packages = (parent / "__init__.py" for parent in folder.parents if self.agents_dir in parent.parents)
        found.update(path for path in packages if path.is_file())
        own = (path for path in found if path.is_relative_to(self.agents_dir))
        return {path.relative_to(self.agents_dir).as_posix(): path for path in sorted(own)}

    def _folder_beside(self, app_folder: Path, path: Path) -> Path | None:
        """The topmost folder around a file that isn't around an app, too: its code may import late from there."""
        if not path.is_relative_to(self.agents_dir):
            return None
        above = [parent for parent in path.parents if self.agents_dir in parent.parents]
        return next((parent for parent in reversed(above) if not app_folder.is_relative_to(parent)), None)

    def check_edit(self, app_name: str, edited: Mapping[Path, bytes]) -> None:
        """Builds the agents of an app from its YAML files, some of them edited.

        Arguments of tools are refused, but for MCP toolsets, as ADK does. Raises AgentConfigError.
        """
        # Imported only for YAML apps.
        from greenroom.apps.load_yaml import load_app_agent, load_app_settings

        root_file = folder_of(self.agents_dir, app_name) / ROOT_FILE
        if root_file in edited or root_file.is_file():
            try:
                with self._loading:
                    load_app_agent(root_file, self._package, allow_args=False, edited=edited)
                    load_app_settings(root_file.parent, self._package, edited=edited)
            except GreenroomError:
                raise
            except Exception as error:  # of the app's own modules
                raise AgentConfigError(f"The app's code fails: {type(error).__name__}: {error}") from error

    def close(self) -> None:
        """Stops polling for changes. Loaded apps stay."""
        if self._watch is not None:
            self._watch.stop()

    def refresh(self) -> bool:
        """Checks for changes once; returns whether anything was loaded.

        Files that changed since the last check may still be being written, and wait for the next one.
        """
        has_loaded = False
        names = self.list_apps() if self._single is None or is_app(self.agents_dir / self._single) else []
        for name in {*self._apps, *self._failures} - {*names}:
            self._drop(name)
        shared = self._changes.changed_modules(self._shared_modules(names))
        if shared:
            with self._loading:
                self._package.forget(shared)
        for name in names:
            with self._loading:
                if self._changes.has_settled(name) or (shared and name in self._apps):
                    self._reload(name, names)
                    has_loaded = True
        return has_loaded

    def _start_watching(self) -> None:
        if self._hot_reload and self._watch is None:
            self._watch = FolderWatch(self.refresh)

    def _drop(self, app_name: str) -> None:
        with self._loading:
            self._apps.pop(app_name, None)
            self._failures.pop(app_name, None)
            self._package.forget(self._modules_of(app_name))
            self._changes.forget(app_name)
        _log.info("app %r was removed", app_name)

    def _reload(self, app_name: str, names: list[str]) -> None:
        old = self._apps.get(app_name)
        modules = {name: sys.modules[name] for name in self._modules_of(app_name) if name in sys.modules}
        self._package.forget(set(modules))
        try:
            self._try(app_name, names)
        except AppLoadError:  # logged, and listed by `problems`
            if old is not None:
                _restore(modules)
                _log.warning("app %r keeps its previous version", app_name)
        else:
            _log.info("app %r was %s", app_name, "reloaded" if old is not None else "added")
            if self.reloaded is not None:
                self.reloaded(app_name)

    def _refuse_known_failure(self, app_name: str) -> None:
        failure = self._failures.get(app_name)
        if failure is None:
            return
        now = self._clock()
        if now - failure.checked_at < _CHECK_SECONDS:
            raise AppLoadError(app_name, failure.error.reason)
        culprit = [failure.culprit] if failure.culprit is not None else []
        if fingerprint(folder_of(self.agents_dir, app_name), culprit) == failure.fingerprint:
            self._failures[app_name] = failure._replace(checked_at=now)
            raise AppLoadError(app_name, failure.error.reason)

    def _load_first(self, app_name: str, names: list[str]) -> _Loaded:
        """Loads an app that is not loaded yet. names: of all apps."""
        self._refuse_known_failure(app_name)
        self._start_watching()
        return self._try(app_name, names)

    def _try(self, app_name: str, names: list[str]) -> _Loaded:
        """Loads the app; undoes its imports if that fails.

        names: all apps of the folder.
        """
        before_import = self._clock()
        folder = folder_of(self.agents_dir, app_name)
        files = fingerprint(folder)
        self._package.apps = frozenset((*names, *self._apps))
        modules = set(sys.modules)
        self._changes.record_loading(app_name)
        try:
            load_env_file(folder)
            loaded = self._import(app_name)
            if not loaded.app.version:
                app = dataclasses.replace(
                    loaded.app, version=version_of(folder, {*loaded.files, *self._shared_files(app_name)})
                )
                loaded = loaded._replace(app=app)
            self._apps[app_name] = loaded
        except BaseException as error:  # a user's module may raise anything, `sys.exit()` included
            # The next try imports again: the app, and the shared modules that only it had imported.
            self._package.forget(self._shared_modules(names, besides=modules) | self._modules_of(app_name))
            if isinstance(error, KeyboardInterrupt):
                raise
            failure, culprit = described(app_name, error, agents_dir=self.agents_dir, package=self._package.name)
            if culprit is not None and not culprit.is_relative_to(folder):
                files = fingerprint(folder, [culprit])
            self._failures[app_name] = _Failure(failure, culprit, files, before_import)
            shown = None if has_own_location(error) else error.with_traceback(own_frames(self.agents_dir, error))
            _log.error("%s", failure.detail, exc_info=shown)
            # Without a cause, so that no client sees the traceback of the app's code.
            raise failure from None
        self._changes.record_files(app_name, loaded.files)
        self._changes.record_modules(self._shared_modules(names, besides=modules))
        self._failures.pop(app_name, None)
        log_model_faults(loaded.app)
        return loaded

    def _import(self, app_name: str) -> _Loaded:
        shadowed_by = self._package.shadowed_by(app_name)
        if shadowed_by is not None:
            module = shadowed_by.relative_to(self.agents_dir)
            raise AgentConfigError(f"the module {module} hides the folder {module.with_suffix('')}")
        package = importlib.import_module(f"{self._package.name}.{app_name}")
        app = exported(package, app_name)
        if app is None and self._package.has(f"{app_name}.agent"):
            app = exported(importlib.import_module(f"{package.__name__}.agent"), app_name)
        if app is not None:
            return _Loaded(app, "python", frozenset())
        folder = folder_of(self.agents_dir, app_name)
        if (folder / LANGGRAPH_FILE).is_file():
            app = self._import_graph(package, folder, app_name)
            return _Loaded(app, "python", frozenset({folder / LANGGRAPH_FILE}))

        root_file = folder / ROOT_FILE
        if root_file.is_file():
            # Imported only for YAML apps.
            from greenroom.apps.load_yaml import load_app_agent, load_app_settings

            agent, files = load_app_agent(root_file, self._package)
            settings, settings_files = load_app_settings(folder, self._package)
            app = App(
                name=app_name,
                root_agent=agent,
                plugins=settings.plugins,
                schedules=settings.schedules,
                on_version_change=settings.on_version_change,
                priority=settings.priority,
                webhooks=settings.webhooks,
                approvals=settings.approvals,
                redaction=settings.redaction,
                session_ttl_seconds=settings.session_ttl_seconds,
                expires_waiting_runs=settings.expires_waiting_runs,
                judges=settings.judges,
            )
            return _Loaded(app, "yaml", frozenset(files | settings_files))
        shown = folder.relative_to(self.agents_dir)
        raise AgentConfigError(f"neither {shown}/__init__.py nor {shown}/agent.py has a root_agent or an app")

    def _import_graph(self, package: ModuleType, folder: Path, app_name: str) -> App:
        """The app of the graph that `langgraph.json` names."""
        location = find_graph(folder)
        module = importlib.import_module(f"{package.__name__}.{location.module}")
        graph = called(getattr(module, location.variable, None))
        agent = hosted_agent(graph, name=app_name)
        if agent is None:
            raise AgentConfigError(
                f"{LANGGRAPH_FILE} names {location.variable} of {location.module}, which is no graph of LangGraph"
            )
        return App(name=app_name, root_agent=agent)

    def _shared_files(self, app_name: str) -> set[Path]:
        files = (getattr(sys.modules[name], "__file__", None) for name in self._package.imported_by(app_name))
        return {Path(file) for file in files if file is not None}

    def _modules_of(self, app_name: str) -> set[str]:
        return {name for name in self._package.loaded() if self._package.app_of(name, {app_name}) is not None}

    def _shared_modules(self, app_names: list[str], *, besides: Set[str] = frozenset()) -> set[str]:
        """Returns the loaded modules that belong to no app, without those in `besides`."""
        apps = {*app_names, *self._apps}
        return {name for name in self._package.loaded(besides) if self._package.app_of(name, apps) is None}


def _restore(modules: dict[str, ModuleType]) -> None:
    sys.modules.update(modules)
    for name, module in modules.items():
        parent, _, own = name.rpartition(".")
        if parent in sys.modules:
            setattr(sys.modules[parent], own, module)


def described(
    app_name: str, error: BaseException, *, agents_dir: Path, package: str
) -> tuple[AppLoadError, Path | None]:
    """The error in one sentence, with its last location in the apps' own code, and the file of that location."""
    location = _location_in(agents_dir, error)
    if isinstance(error, SyntaxError):
        text = error.msg
        if error.filename is not None:
            location = Path(error.filename), error.lineno or 0
    elif isinstance(error, GreenroomError):
        text = error.detail
    else:
        text = str(error)
    reason = type(error).__name__ + (f": {text}" if text else "").replace(package + ".", "")
    if location is None:
        return AppLoadError(app_name, reason), None
    path, line = location
    shown = path.relative_to(agents_dir) if path.is_relative_to(agents_dir) else path
    return AppLoadError(app_name, f"{reason} ({shown}:{line})"), path


def own_frames(folder: Path, error: BaseException) -> TracebackType | None:
    """The traceback from the first frame in the apps' code on, without the import machinery above it."""
    traceback = error.__traceback__
    while traceback is not None and not Path(traceback.tb_frame.f_code.co_filename).is_relative_to(folder):
        traceback = traceback.tb_next
    return traceback


def _location_in(folder: Path, error: BaseException) -> tuple[Path, int] | None:
    locations = [(Path(frame.f_code.co_filename), line) for frame, line in walk_tb(error.__traceback__)]
    own = [at for at in locations if at[0].is_relative_to(folder) and "site-packages" not in at[0].parts]
    return own[-1] if own else None


def has_own_location(error: BaseException) -> bool:
    """True for errors of a configuration file, which name file and line, unless code that it names raised them."""
    return isinstance(error, AgentConfigError) and hasattr(error, "line") and error.__cause__ is None
