"""Agents from YAML files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from greenroom.agents.agent import BaseAgent
from greenroom.apps.component_registry import ComponentRegistry
from greenroom.apps.isolation import PrivatePackage, package_importing
from greenroom.apps.yaml_config.agents import AgentBuilder
from greenroom.apps.yaml_config.app_settings import AppSettings, read_app_settings
from greenroom.apps.yaml_config.document import ConfigFile
from greenroom.apps.yaml_config.references import References

SETTINGS_FILE = "app_settings.yaml"


def load_agent(
    path: str | Path,
    *,
    registry: ComponentRegistry | None = None,
    allow_args: bool = True,
) -> BaseAgent:
    """The agent of a file, with all agents that it refers to. The file's folder counts as the app.
    A module of that app may call it while it is imported.

    registry: in place of that of the process.
    allow_args: False for files that strangers write; then only MCP toolsets take arguments.

    Raises ConfigFileError, and whatever modules of the folder raise on import.
    """
    file = Path(path).expanduser().absolute()
    package = package_importing(file.parent) or PrivatePackage(file.parent.parent)
    agent, _ = load_app_agent(file, package, registry=registry, allow_args=allow_args)
    return agent


def from_config(config_path: str | Path) -> BaseAgent:
    """ADK's name for `load_agent`. Raises FileNotFoundError when there is no such file, else as
    `load_agent`.
    """
    if not Path(config_path).is_file():
        raise FileNotFoundError(f"There is no file {config_path}")
    return load_agent(config_path)


def load_app_agent(
    path: Path,
    package: PrivatePackage,
    *,
    registry: ComponentRegistry | None = None,
    allow_args: bool = True,
    edited: Mapping[Path, bytes] | None = None,
) -> tuple[BaseAgent, set[Path]]:
    """The root agent of an app, and the files that were read.

    package: of a folder above.
    edited: contents in place of those on disk.
    """
    folder = path.parent
    builder = AgentBuilder(
        folder,
        References(package, folder, registry),
        allow_args=allow_args,
        edited=edited,
    )
    agent = builder.build(path)
    return agent, builder.files


def load_app_settings(
    folder: Path, package: PrivatePackage, *, edited: Mapping[Path, bytes] | None = None
) -> tuple[AppSettings, set[Path]]:
    """The settings in an app's `app_settings.yaml`, and the files that were read. Raises ConfigFileError, and any
    exception of the app's own modules.

    package: of a folder above. edited: contents in place of those on disk, which are not trusted.
    """
    path = folder / SETTINGS_FILE
    data = (edited or {}).get(path)
    if data is None and not path.is_file():
        return AppSettings(), set()
    reader = AgentBuilder(folder, References(package, folder), allow_args=data is None)
    return read_app_settings(ConfigFile(path, SETTINGS_FILE, data), reader), {path}
