"""Apps from a folder: each sub-folder with an `agent.py` is one."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, TracebackType
from typing import NamedTuple

from greenroom.agents.agent import BaseAgent
from greenroom.apps.app import App
from greenroom.apps.env_file import load_env_file
from greenroom.apps.isolation import PrivatePackage
from greenroom.apps.loader import AppLoader
from greenroom.errors import AgentConfigError, AppLoadError, AppNotFound, GreenroomError

_log = logging.getLogger("greenroom.apps")

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_EXPORTS = ("app", "root_agent")
_CHECK_SECONDS = 1.0

_Fingerprint = frozenset[tuple[str, int, int]]


class _Failure(NamedTuple):
    error: AppLoadError
    culprit: Path | None
    fingerprint: _Fingerprint
    checked_at: float


class DirectoryAppLoader(AppLoader):
    """Loads an app when it is first asked for, and keeps it.

    An app is a sub-folder with an `agent.py`, or with an `__init__.py` that has `root_agent` or `app`; a folder that is
    one itself is the only one. The first of these counts: `app` and `root_agent` of the package, then those of its
    module `agent`. How apps import modules is told in `greenroom.apps.isolation`.
    An app that failed is tried again once a file of its folder, or the file that failed, has changed.
    """

    def __init__(self, agents_dir: str | Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Raises AgentConfigError when there is no such folder."""
        folder = Path(agents_dir).expanduser().resolve()
        if not folder.is_dir():
            raise AgentConfigError(f"There is no folder {str(agents_dir)!r} to find apps in")
        self._single = folder.name if _is_app(folder) else None
        if self._single is not None and not _NAME.fullmatch(self._single):
            raise AgentConfigError(
                f"The folder {folder.name!r} can't be an app: rename it to a name of letters, digits and '_', "
                "with no digit first"
            )
        self.agents_dir = folder.parent if self._single is not None else folder
        self._package = PrivatePackage(self.agents_dir)
        self._clock = clock
        self._loading = threading.RLock()
        self._apps: dict[str, App] = {}
        self._failures: dict[str, _Failure] = {}

    def list_apps(self) -> list[str]:
        if self._single is not None:
            return [self._single]
        return sorted(self._app_folders())

    def load(self, app_name: str) -> App:
        """Runs the app's own code the first time, which may take seconds."""
        app = self._apps.get(app_name)
        if app is not None:
            return app
        with self._loading:
            app = self._apps.get(app_name)
            if app is None:
                if app_name not in self.list_apps():
                    raise AppNotFound(app_name, self.list_apps())
                self._refuse_known_failure(app_name)
                app = self._apps[app_name] = self._try(app_name)
                self._failures.pop(app_name, None)
            return app

    def preload(self) -> dict[str, AppLoadError]:
        """Load all apps; returns, and logs, what became of those that can't be."""
        failed: dict[str, AppLoadError] = {}
        for name in self.list_apps():
            try:
                self.load(name)
            except AppLoadError as error:
                failed[name] = error
        return failed

    def _app_folders(self) -> Iterator[str]:
        for folder in self.agents_dir.iterdir():
            if folder.name.startswith((".", "_")) or not folder.is_dir() or not _is_app(folder):
                continue
            if _NAME.fullmatch(folder.name):
                yield folder.name
            else:
                _log.debug("the folder %s is left out: an app's name is a Python name", folder)

    def _refuse_known_failure(self, app_name: str) -> None:
        known = self._failures.get(app_name)
        if known is None:
            return
        now = self._clock()
        if now - known.checked_at < _CHECK_SECONDS:
            raise AppLoadError(app_name, known.error.reason)
        if _fingerprint(self.agents_dir / app_name, known.culprit) == known.fingerprint:
            self._failures[app_name] = known._replace(checked_at=now)
            raise AppLoadError(app_name, known.error.reason)

    def _try(self, app_name: str) -> App:
        before_import = self._clock()
        folder = self.agents_dir / app_name
        files = _fingerprint(folder, None)
        modules = self._package.loaded()
        try:
            load_env_file(folder)
            return self._import(app_name)
        except BaseException as error:  # a user's module may end in any way, `sys.exit()` included
            self._package.forget(self._own_modules(app_name, besides=modules))
            if isinstance(error, KeyboardInterrupt):
                raise
            failure, culprit = self._describe(app_name, error)
            if culprit is not None and not culprit.is_relative_to(folder):
                files = _fingerprint(folder, culprit)
            self._failures[app_name] = _Failure(failure, culprit, files, before_import)
            _log.error("%s", failure.detail, exc_info=error.with_traceback(_own_frames(self.agents_dir, error)))
            # Without a cause: whoever shows this error must not show the user's traceback with it.
            raise failure from None

    def _import(self, app_name: str) -> App:
        package = importlib.import_module(f"{self._package.name}.{app_name}")
        app = _exported(package, app_name)
        if app is None and self._package.has(f"{app_name}.agent"):
            app = _exported(importlib.import_module(f"{package.__name__}.agent"), app_name)
        if app is None:
            raise AgentConfigError(f"neither {app_name}/__init__.py nor {app_name}/agent.py has a root_agent or an app")
        return app

    def _own_modules(self, app_name: str, *, besides: set[str]) -> set[str]:
        """What has to be imported anew on the next try: the app, and modules for all apps that it brought in."""
        own = f"{self._package.name}.{app_name}"
        others = {f"{self._package.name}.{name}" for name in self.list_apps() if name != app_name}
        loaded = self._package.loaded()
        brought = {name for name in loaded - besides if ".".join(name.split(".")[:2]) not in others}
        return brought | {name for name in loaded if name == own or name.startswith(own + ".")}

    def _describe(self, app_name: str, error: BaseException) -> tuple[AppLoadError, Path | None]:
        """The error in one sentence, with the last place of it in the apps' own code, and the file of that place."""
        place = _place_in(self.agents_dir, error)
        if isinstance(error, SyntaxError):
            text = error.msg
            if error.filename is not None:
                place = Path(error.filename), error.lineno or 0
        elif isinstance(error, GreenroomError):
            text = error.detail
        else:
            text = str(error)
        reason = type(error).__name__ + (f": {text}" if text else "").replace(self._package.name + ".", "")
        if place is None:
            return AppLoadError(app_name, reason), None
        path, line = place
        shown = path.relative_to(self.agents_dir) if path.is_relative_to(self.agents_dir) else path
        return AppLoadError(app_name, f"{reason} ({shown}:{line})"), path


def _is_app(folder: Path) -> bool:
    if (folder / "agent.py").is_file() or (folder / "agent" / "__init__.py").is_file():
        return True
    package = folder / "__init__.py"
    if not package.is_file():
        return False
    try:
        body = ast.parse(package.read_bytes()).body
    except (SyntaxError, ValueError):  # something is meant to be here; loading it tells what is wrong
        return True
    return any(name in _EXPORTS for statement in body for name in _names_bound_by(statement))


def _names_bound_by(statement: ast.stmt) -> Iterator[str]:
    match statement:
        case ast.ImportFrom(names=names):
            yield from (_EXPORTS[0] if alias.name == "*" else alias.asname or alias.name for alias in names)
        case ast.Assign(targets=targets):
            yield from (target.id for target in targets if isinstance(target, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name
        case _:
            return


def _exported(module: ModuleType, app_name: str) -> App | None:
    app: object = getattr(module, "app", None)
    if isinstance(app, App):
        if app.name != app_name:
            _log.warning("the app %r in the folder %r goes under the folder's name", app.name, app_name)
            app = dataclasses.replace(app, name=app_name)
        return app
    agent: object = getattr(module, "root_agent", None)
    if isinstance(agent, BaseAgent):
        return App(name=app_name, root_agent=agent)
    if agent is not None:
        raise AgentConfigError(
            f"root_agent is of type {type(agent).__name__}, not an agent; an app with more than an agent is exported "
            "as `app = App(…)`"
        )
    return None


def _own_frames(folder: Path, error: BaseException) -> TracebackType | None:
    """The traceback from the first frame in the apps' code on, without the import machinery above it."""
    traceback = error.__traceback__
    while traceback is not None and not Path(traceback.tb_frame.f_code.co_filename).is_relative_to(folder):
        traceback = traceback.tb_next
    return traceback


def _place_in(folder: Path, error: BaseException) -> tuple[Path, int] | None:
    traceback: TracebackType | None = error.__traceback__
    place: tuple[Path, int] | None = None
    while traceback is not None:
        path = Path(traceback.tb_frame.f_code.co_filename)
        if path.is_relative_to(folder) and "site-packages" not in path.parts:
            place = path, traceback.tb_lineno
        traceback = traceback.tb_next
    return place


def _fingerprint(folder: Path, culprit: Path | None) -> _Fingerprint:
    """Changes with any file of the folder, apart from hidden ones and what Python caches."""
    found: set[tuple[str, int, int]] = set()
    for path in (*_files(folder), *([culprit] if culprit is not None else [])):
        try:
            status = path.stat()
        except OSError:  # gone in between
            continue
        found.add((str(path), status.st_mtime_ns, status.st_size))
    return frozenset(found)


def _files(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.is_dir():
            if not path.is_symlink() and not path.name.startswith(".") and path.name != "__pycache__":
                yield from _files(path)
        elif not path.name.startswith(".") or path.name == ".env":
            yield path
