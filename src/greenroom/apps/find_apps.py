"""Which folders below a served one are apps, and under which names: `team/bots/agent.py` is the app `team.bots`."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path

from greenroom.apps.app_folder import ROOT_FILE, is_app
from greenroom.errors import AppNotFound

_log = logging.getLogger("greenroom.apps")

MOST_LEVELS = 5
"""Source: ADK's loader of nested folders."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MARKS = frozenset({"agent.py", ROOT_FILE})
_ENVIRONMENT = "pyvenv.cfg"
_NOT_LOOKED_INTO = frozenset({"tmp", "node_modules", "site-packages"})


def is_name(text: str) -> bool:
    """Whether a folder of this name can be an app, or hold some."""
    return _NAME.fullmatch(text) is not None


def folder_of(agents_dir: Path, app_name: str) -> Path:
    """Raises AppNotFound for what is no name; whether there is such an app isn't looked at."""
    parts = app_name.split(".")
    if not all(map(is_name, parts)):
        raise AppNotFound(app_name)
    return agents_dir.joinpath(*parts)


def find_apps(agents_dir: Path, *, levels: int = MOST_LEVELS) -> Iterator[str]:
    """The names of the apps in a folder, in no order. levels: how deep they may lie; 1: right in it.

    What lies in an app's own folder belongs to that app and is none. Below the first level a package that only exports
    an agent is none either: no library has to be parsed to know. Hidden folders, those with names that aren't Python's,
    with `_` in front, virtual environments and `tmp` are not looked into, nor are links.
    """
    for folder in agents_dir.iterdir():
        if folder.name.startswith((".", "_")) or not folder.is_dir():
            continue
        if not is_name(folder.name):
            if is_app(folder):
                _log.debug("the folder %s is left out: an app's name is a Python name", folder)
        elif is_app(folder):
            yield folder.name
        elif not folder.is_symlink():
            yield from _at(str(folder), folder.name, levels - 1)


def _at(folder: str, name: str, levels: int) -> Iterator[str]:
    """The app that a folder is, or else those that are so many levels below it."""
    try:
        with os.scandir(folder) as found:
            entries = list(found)
    except OSError:  # gone in between, or not ours to read
        return
    if any(entry.name in _MARKS and os.path.isfile(entry.path) for entry in entries):
        yield name
        return
    last = name.rpartition(".")[2]
    if levels == 0 or last in _NOT_LOOKED_INTO or any(entry.name == _ENVIRONMENT for entry in entries):
        return
    for entry in entries:
        if entry.name.startswith("_") or not is_name(entry.name):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _at(entry.path, f"{name}.{entry.name}", levels - 1)
        elif entry.is_symlink() and os.path.isdir(entry.path):
            yield from _at(entry.path, f"{name}.{entry.name}", 0)
