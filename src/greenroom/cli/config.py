"""`greenroom config`: what the server is told, and by what."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter
from rich.table import Table

from greenroom.cli.serving import read_configuration
from greenroom.cli.setting_flags import NO_FLAGS, ConfigFile, SettingFlags
from greenroom.cli.terminal import note, output, printable

app = App(name="config", help="The server's settings.")


@app.command
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
        table.add_row(one.setting.dotted, printable(one.shown), printable(one.origin), style=style)
    output.print(table, markup=False)
