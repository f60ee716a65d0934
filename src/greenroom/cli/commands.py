"""The commands of `greenroom`."""

from __future__ import annotations

import logging
import os
import sys
from typing import Annotated

from cyclopts import App, CycloptsError, Parameter

from greenroom.cli import (
    access,
    check,
    database,
    evaluation,
    improvement,
    mcp,
    models,
    recordings,
    run,
    server_commands,
    sessions,
    sessions_migrate,
    sessions_transfer,
)
from greenroom.version import __version__

_HELP = """Hosts AI agents.

An agent lives in a folder with an `agent.py` that has a `root_agent`, or with a `root_agent.yaml`. Try one, then serve
a folder of them:

    greenroom run examples/help_desk "My last bill is too high"

    greenroom serve examples
"""

_USAGE_ERROR = 2
_SERVERS = ("serve", "mcp")
"""They write a log of their own."""

app = App(name="greenroom", help=_HELP, help_format="markdown", version=__version__)
app.command(server_commands.serve)
app.command(mcp.mcp)
app.command(run.run)
app.command(check.check)
app.command(recordings.record)
app.command(recordings.replay)
app.command(evaluation.app)
evaluation.app.command(improvement.compare)
evaluation.app.command(improvement.scenarios)
app.command(improvement.optimize)
app.command(server_commands.config_app)
app.command(models.app)
app.command(database.app)
app.command(access.keys_app)
app.command(access.logins_app)
app.command(server_commands.schema)
app.command(sessions.app)
sessions.app.command(sessions_transfer.export_sessions, name="export")
sessions.app.command(sessions_transfer.import_sessions, name="import")
sessions.app.command(sessions_migrate.migrate_sessions, name="migrate")
app.meta.end_of_options_delimiter = ""


@app.meta.default
def launch(
    *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    debug: Annotated[bool, Parameter(negative="", env_var="GREENROOM_DEBUG")] = False,
) -> None:
    """Run a command.

    Parameters
    ----------
    debug
        Show the tracebacks of errors, and all log messages.
    """
    if debug:
        os.environ["GREENROOM_DEBUG"] = "1"
    if not tokens or tokens[0] not in _SERVERS:
        if debug:
            logging.basicConfig(level="DEBUG")
        # The output says what failed; without any handler, Python would print warnings between its lines.
        logging.getLogger("greenroom").addHandler(logging.NullHandler())
    app(tokens, exit_on_error=False, result_action="return_value")


def run_command() -> None:
    """Reads the command line and runs its command. Exits with 2 for one that is wrong."""
    try:
        app.meta(exit_on_error=False, result_action="return_value")
    except CycloptsError:
        sys.exit(_USAGE_ERROR)
