"""What makes a folder an app, and what its modules export."""

from __future__ import annotations

import ast
import dataclasses
import logging
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from greenroom.agents.agent import BaseAgent
from greenroom.apps.app import App
from greenroom.errors import AgentConfigError

_log = logging.getLogger("greenroom.apps")

ROOT_FILE = "root_agent.yaml"

_EXPORTS = ("app", "root_agent")


def is_app(folder: Path) -> bool:
    return (folder / ROOT_FILE).is_file() or is_python_app(folder)


def is_python_app(folder: Path) -> bool:
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


def exported(module: ModuleType, app_name: str) -> App | None:
    app: object = getattr(module, "app", None)
    if isinstance(app, App):
        if app.name != app_name:
            if app.name != app_name.rpartition(".")[2]:
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
