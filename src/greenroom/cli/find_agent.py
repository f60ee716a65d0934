"""Finds the agent that the AGENT argument of a command names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from greenroom.errors import AppNotFound, CallerError

if TYPE_CHECKING:
    from greenroom.apps.app import App
    from greenroom.apps.load_directory import DirectoryAppLoader


def find_app(path: str) -> App:
    """Loads the app that an AGENT argument names.

    Raises CallerError when that isn't clear, AppNotFound, AgentConfigError, AppLoadError.
    """
    loader, name = find_loader(path)
    return loader.load(name)


def find_loader(path_and_name: str) -> tuple[DirectoryAppLoader, str]:
    """Returns the loader and the name of the app that an AGENT argument names. Raises as `find_app`."""
    from greenroom.apps.load_directory import DirectoryAppLoader

    folder, separator, name = path_and_name.rpartition(":")
    if not separator or Path(path_and_name).exists():
        folder = path_and_name
        name = ""

    loader = DirectoryAppLoader(folder)
    apps = loader.list_apps()
    if name:
        if name not in apps:
            raise AppNotFound(name, apps)
        return loader, name

    if not apps:
        raise CallerError(
            f"There is no agent in {folder!r}. An agent is a folder with an agent.py or a root_agent.yaml"
        )
    if len(apps) > 1:
        raise CallerError(
            f"There are several agents in {folder!r}: {', '.join(apps)}. Choose one, for example {folder}:{apps[0]}"
        )
    return loader, apps[0]
