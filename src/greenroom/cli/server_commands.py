"""`greenroom serve`, `config` and `schema`: a server, its settings, and the keys of agents' files."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypedDict

import msgspec
from cyclopts import App, Parameter
from rich.table import Table

from greenroom.cli.serving import read_configuration, serve_folder
from greenroom.cli.terminal import note, output, printable
from greenroom.server.configuration import Setting, all_settings


def flag_for(setting: Setting) -> Any:
    parameter = Parameter(
        name=setting.flag,
        help=f"{setting.help} [default: {setting.default_in_words}]",
        negative=None if setting.plain_type is bool else "",
        consume_multiple=setting.takes_list,
    )
    return Annotated[setting.plain_type, parameter]


_FLAGS = {one.key: flag_for(one) for one in all_settings()}

if TYPE_CHECKING:
    SettingFlags: TypeAlias = Mapping[str, Any]
else:
    # Only the flags that are given are in it, by the settings' keys.
    SettingFlags = Annotated[TypedDict("SettingFlags", _FLAGS, total=False), Parameter(name="*")]

NO_FLAGS: Mapping[str, Any] = {}

ConfigFile: TypeAlias = Annotated[
    Path | None,
    Parameter(
        name="--config",
        env_var="GREENROOM_CONFIG",
        help="The configuration file, instead of `greenroom.toml` in the folder or the current one.",
    ),
]


def serve(
    agents_dir: Annotated[Path, Parameter(name="DIR")],
    /,
    *,
    config: ConfigFile = None,
    a2a: Annotated[bool, Parameter(negative="")] = False,
    flags: SettingFlags = NO_FLAGS,
) -> None:
    """Serve the agents in a folder over HTTP, with ADK's endpoints and a web page.

    Conversations and files are kept in `DIR/.greenroom`, so they are still there after a restart; runs that a stop or a
    crash cut off are resumed at the next start.

    What the flags say can be said by variables and in a file, too: `--port` is `GREENROOM_PORT`, and `port` in
    `greenroom.toml`, in the folder or the current one. `greenroom config show` prints the settings in effect.

        greenroom serve examples

        greenroom serve agents --port 9000 --session-service sqlite:///chats.db --allow-origins https://example.com

    Parameters
    ----------
    agents_dir
        Each folder in it with an `agent.py` or a `root_agent.yaml` is an app, in folders of folders too: `team/desk` is
        the app `team.desk`. A folder that has one itself is the only app.
    a2a
        Also offer A2A, as `--gates a2a` does; ADK's name of it.
    """
    if a2a:
        flags = {**flags, "gates": ("a2a", *read_configuration(agents_dir, config, flags).settings.gates)}
    serve_folder(agents_dir, read_configuration(agents_dir, config, flags))


config_app = App(name="config", help="The server's settings.")


@config_app.command
def show(
    agents_dir: Annotated[Path, Parameter(name="DIR")] = Path(),
    /,
    *,
    config: ConfigFile = None,
    flags: SettingFlags = NO_FLAGS,
) -> None:
    """Print every setting that `greenroom serve` would use here, and where each comes from.

    Secrets, and passwords in addresses, are left out.

        greenroom config show examples

        GREENROOM_PORT=9000 greenroom config show

    Parameters
    ----------
    agents_dir
        The folder to serve, whose `greenroom.toml` is read.
    """
    configuration = read_configuration(agents_dir, config, flags)
    for warning in configuration.warnings:
        note(warning, "yellow")
    table = Table(box=None, pad_edge=False)
    for column in ("setting", "value", "from"):
        table.add_column(column, overflow="fold")
    for one in configuration.values:
        style = "dim" if one.origin == "default" else ""
        table.add_row(one.setting.key, printable(one.shown), printable(one.origin), style=style)
    output.print(table, markup=False)


def schema(file: Path | None = None, /) -> None:
    """Write the JSON Schema of agents' YAML files, so that editors complete and check them.

        greenroom schema agents/agent.schema.json

    In an editor with a YAML language server, the first line of a file then names it:
    `# yaml-language-server: $schema=../agent.schema.json`

    Parameters
    ----------
    file
        Where to write it; without one it goes to the standard output.
    """
    from greenroom.apps.yaml_config.schema import config_schema

    data = msgspec.json.format(msgspec.json.encode(config_schema()), indent=2) + b"\n"
    if file is None:
        sys.stdout.write(data.decode())
    else:
        file.write_bytes(data)
        note(f"The schema is in {file}")
