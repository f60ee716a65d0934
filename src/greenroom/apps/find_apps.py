"""Finds the apps below a served folder, and their names: `team/bots/agent.py` is the app `team.bots`."""

from __future__ import annotations

import ast
import dataclasses
import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from greenroom.agents.agent import BaseAgent
from greenroom.agents.frameworks.detect import FRAMEWORKS, hosted_agent
from greenroom.apps.app import App
from greenroom.apps.langgraph_json import LANGGRAPH_FILE
from greenroom.errors import AgentConfigError, AppNotFound

_log = logging.getLogger("greenroom.apps")

ROOT_FILE = "root_agent.yaml"

_EXPORTS = ("app", "root_agent")
_OF_FRAMEWORKS = ("graph", "agent")
"""The usual names of agents of other frameworks."""


def is_app(folder: Path) -> bool:
    return (folder / ROOT_FILE).is_file() or (folder / LANGGRAPH_FILE).is_file() or is_python_app(folder)


def is_python_app(folder: Path) -> bool:
    if (folder / "agent.py").is_file() or (folder / "agent" / "__init__.py").is_file():
        return True

    package = folder / "__init__.py"
    if not package.is_file():
        return False

    try:
        body = ast.parse(package.read_bytes()).body
    except (SyntaxError, ValueError):  # probably an app; loading it reports the error
        return True

    names = {name for statement in body for name in _names_bound_by(statement)}
    if not names.isdisjoint(_EXPORTS):
        return True
    return not names.isdisjoint(_OF_FRAMEWORKS) and any(map(_imports_framework, body))


def _imports_framework(statement: ast.stmt) -> bool:
    packages = {framework.package for framework in FRAMEWORKS}
    match statement:
        case ast.ImportFrom(module=str(module), level=0):
            return module.partition(".")[0] in packages
        case ast.Import(names=names):
            return any(alias.name.partition(".")[0] in packages for alias in names)
        case _:
            return False


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


def exported(module: ModuleType, app_name: str) -> App | None:
    """The app of a module: `app`, `root_agent`, or an agent of another framework as `graph` or `agent`. Raises
    AgentConfigError, and MissingExtra.
    """
    app: object = getattr(module, "app", None)
    if isinstance(app, App):
        if app.name != app_name:
            if app.name != app_name.rpartition(".")[2]:
                _log.warning(
                    "the app %r in the folder %r goes under the folder's name",
                    app.name,
                    app_name,
                )
            app = dataclasses.replace(app, name=app_name)

        return app

    agent: object = getattr(module, "root_agent", None)
    if isinstance(agent, BaseAgent):
        return App(name=app_name, root_agent=agent)

    for value in (app, agent, *(getattr(module, name, None) for name in _OF_FRAMEWORKS)):
        hosted = hosted_agent(value, name=app_name)
        if hosted is not None:
            return App(name=app_name, root_agent=hosted)

    if agent is not None:
        raise AgentConfigError(
            f"root_agent is of type {type(agent).__name__}, not an agent; an app with more than an agent is exported "
            "as `app = App(…)`"
        )

    return None


MAX_LEVELS = 5
"""Source: ADK's loader of nested folders."""

_NAME = re.compile(r"[A-Za-z0-9_]+")
_APP_FILES = frozenset({"agent.py", ROOT_FILE, LANGGRAPH_FILE})
_ENVIRONMENT = "pyvenv.cfg"
_SKIPPED = frozenset({"tmp", "node_modules", "site-packages"})


def is_name(text: str) -> bool:
    """Whether a folder of this name can be an app, or hold some."""
    return _NAME.fullmatch(text) is not None


def folder_of(agents_dir: Path, app_name: str) -> Path:
    """Raises AppNotFound for an invalid name; doesn't check that the app exists."""
    parts = app_name.split(".")
    if not all(map(is_name, parts)):
        raise AppNotFound(app_name)
    return agents_dir.joinpath(*parts)


def find_apps(agents_dir: Path, *, levels: int = MAX_LEVELS) -> Iterator[str]:
    """The names of the apps in a folder, in no order.

    levels: how deep they may lie; 1: right in it.

    Folders inside an app's own folder belong to that app and are none. Below the first level a
    package that only exports an agent is none either: no library has to be parsed to know. Hidden
    folders, those whose names have other characters than letters, digits and `_`, or `_` in front,
    virtual environments and `tmp` are not looked into, nor are links.
    """
    with os.scandir(agents_dir) as scan:
        folders = [entry for entry in scan if not entry.name.startswith((".", "_")) and entry.is_dir()]

    for folder in folders:
        # The usual case first: of hundreds of apps, `list_apps` asks for nothing else.
        is_found = os.path.isfile(f"{folder.path}/agent.py") or is_app(Path(folder.path))
        if not is_name(folder.name):
            if is_found:
                _log.debug(
                    "the folder %s is left out: an app's name has letters, digits and '_' only",
                    folder.path,
                )
        elif is_found:
            yield folder.name
        elif not folder.is_symlink():
            yield from _at(folder.path, folder.name, levels - 1)


def _at(folder: str, name: str, levels: int) -> Iterator[str]:
    """The app in this folder, or else the apps up to `levels` below it."""
    try:
        with os.scandir(folder) as scan:
            entries = list(scan)
    except OSError:  # deleted meanwhile, or not readable
        return

    if any(entry.name in _APP_FILES and os.path.isfile(entry.path) for entry in entries):
        yield name
        return

    last = name.rpartition(".")[2]
    if levels == 0 or last in _SKIPPED or any(entry.name == _ENVIRONMENT for entry in entries):
        return

    for entry in entries:
        if entry.name.startswith("_") or not is_name(entry.name):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _at(entry.path, f"{name}.{entry.name}", levels - 1)
        elif entry.is_symlink() and os.path.isdir(entry.path):
            yield from _at(entry.path, f"{name}.{entry.name}", 0)
