"""`greenroom serve` and `greenroom config`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypedDict

from cyclopts import App, Parameter
from rich.table import Table

from greenroom.cli.serving import read_configuration, serve_folder
from greenroom.cli.terminal import console, note, printable
from greenroom.server.configuration import Setting, all_settings


def flag_for(setting: Setting) -> Any:
    # A switch can be on by a variable or a file, so each has a flag that turns it off.
    is_switch = setting.plain_type is bool
    parameter = Parameter(
        name=setting.flag,
        help=setting.help,
        show_default=setting.default_in_words.replace("`", ""),
        negative="--no-" + setting.flag.removeprefix("--") if is_switch else "",
        consume_multiple=setting.takes_list,
    )
    return Annotated[setting.plain_type, parameter]


_FLAGS = {setting.key: flag_for(setting) for setting in all_settings()}

if TYPE_CHECKING:
    SettingFlags: TypeAlias = Mapping[str, Any]
else:
    # It has the flags that were given, by the settings' keys.
    SettingFlags = Annotated[TypedDict("SettingFlags", _FLAGS, total=False), Parameter(name="*")]

NO_FLAGS: Mapping[str, Any] = {}

ConfigFile: TypeAlias = Annotated[
    Path | None,
    Parameter(
        name="--config",
        env_var="GREENROOM_CONFIG",
        help="The configuration file. Default: `greenroom.toml` in the agents folder or the current folder.",
    ),
]


def serve(
    agents_dir: Annotated[Path, Parameter(name="DIR")],
    /,
    *,
    config: ConfigFile = None,
    a2a: bool = False,
    flags: SettingFlags = NO_FLAGS,
) -> None:
    """Serve the agents in a folder over HTTP, with ADK's endpoints and a web page.

    Sessions and artifacts are stored in `DIR/.greenroom` and survive restarts. Runs that were interrupted by a stop or
    a crash resume at the next start.

    Every flag can also be set by an environment variable or in `greenroom.toml`, in the agents folder or the current
    folder: `--port` is `GREENROOM_PORT` and `port`. `greenroom config show` prints the settings in effect.

        greenroom serve examples

        greenroom serve agents --port 9000 --session-service sqlite:///chats.db --allow-origins https://example.com

    Parameters
    ----------
    agents_dir
        The agents folder. Every folder in it with an `agent.py` or a `root_agent.yaml` is an app; the nested folder
        `team/desk` is the app `team.desk`. If DIR itself has such a file, it is the only app.
    a2a
        Also serve A2A, like `--gates a2a`. This is ADK's name of the flag.
    """
    if a2a:
        flags = {**flags, "gates": ("a2a", *read_configuration(agents_dir, config, flags).settings.gates)}
    serve_folder(agents_dir, read_configuration(agents_dir, config, flags))


config_app = App(name="config", help="Show the settings of a server.")


@config_app.command
def show(
    agents_dir: Annotated[Path, Parameter(name="DIR")] = Path(),
    /,
    *,
    config: ConfigFile = None,
    flags: SettingFlags = NO_FLAGS,
) -> None:
    """Show all settings that `greenroom serve` would use, and where each value comes from.

    Passwords in URLs are hidden.

        greenroom config show examples

        GREENROOM_PORT=9000 greenroom config show

    Parameters
    ----------
    agents_dir
        The agents folder, whose `greenroom.toml` is read.
    """
    configuration = read_configuration(agents_dir, config, flags)
    for warning in configuration.warnings:
        note(warning, "yellow")
    table = Table(box=None, pad_edge=False)
    for column in ("setting", "value", "from"):
        table.add_column(column, overflow="fold")
    for value in configuration.values:
        style = "dim" if value.origin == "default" else ""
        table.add_row(value.setting.key, printable(value.shown), printable(value.origin), style=style)
    console("output").print(table, markup=False)
