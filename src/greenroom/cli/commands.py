"""The commands of `greenroom`."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Container, Sequence
from typing import Annotated, Any, Literal, cast

from cyclopts import App, CycloptsError, Group, Parameter

from greenroom.cli import (
    audit,
    check,
    comparison,
    database,
    deploy,
    doctor,
    encryption,
    eval_cases,
    evaluation,
    init,
    keys,
    logins,
    mcp,
    migrate,
    models,
    optimize,
    recordings,
    replicas,
    retention,
    run,
    runs,
    sandbox,
    schedules,
    schema,
    server_commands,
    sessions,
    sessions_migrate,
    sessions_transfer,
    users,
    versions,
)
from greenroom.version import __version__

_HELP = """Run and serve AI agents.

An agent is a folder with an `agent.py` that defines `root_agent`, or with a `root_agent.yaml`. Write one, try it, then
serve a folder of them:

    greenroom init agents/helper

    greenroom run agents/helper "Why is the sky blue?"

    greenroom serve agents
"""

_USAGE_ERROR = 2
_BOOLEANS = ("true", "false")
_DEBUG = "--debug"
_COMMON = Group("Common parameters", sort_key=1)
"""The last group of each help page."""

_SERVERS = ("serve", "mcp")
"""Commands that set up logging themselves."""


def _shown_default(default: object) -> str | None:
    """Returns None, which hides the default, for a switch that is off and for nothing given."""
    return None if default in (None, False, "", ()) else str(default)


app = App(
    name="greenroom",
    help=_HELP,
    help_format="markdown",
    version=__version__,
    default_parameter=Parameter(negative="", show_default=cast("Callable[[Any], str]", _shown_default)),
)
app.command(init.init)
app.command(server_commands.serve)
app.command(mcp.mcp)
app.command(run.run)
app.command(check.check)
app.command(doctor.doctor)
app.command(deploy.app)
app.command(migrate.migrate)
app.command(recordings.record)
app.command(recordings.replay)
app.command(evaluation.app)
evaluation.app.command(eval_cases.collect)
evaluation.app.command(eval_cases.scenarios)
evaluation.app.command(eval_cases.versions)
evaluation.app.command(comparison.compare)
app.command(optimize.optimize)
app.command(server_commands.config_app)
app.command(models.app)
app.command(database.app)
app.command(replicas.replicas)
app.command(retention.retention)
app.command(runs.app)
app.command(keys.app)
app.command(audit.app)
app.command(encryption.app)
app.command(logins.app)
app.command(sandbox.app)
app.command(schedules.app)
app.command(schema.schema)
app.command(sessions.app)
app.command(versions.app)
sessions.app.command(sessions_transfer.export_sessions, name="export")
sessions.app.command(sessions_transfer.import_sessions, name="import")
sessions.app.command(sessions_migrate.migrate_sessions, name="migrate")
app.command(users.app)
app.meta.end_of_options_delimiter = ""


@app.command
def completion(shell: Annotated[Literal["bash", "zsh", "fish"], Parameter(name="SHELL")], /) -> None:
    """Write a script that completes commands and their options in a shell.

        source <(greenroom completion bash)

    Parameters
    ----------
    shell
        The shell that runs the script.
    """
    sys.stdout.write(app.generate_completion(prog_name="greenroom", shell=shell))


@app.meta.default
def launch(
    *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    debug: Annotated[bool, Parameter(env_var="GREENROOM_DEBUG", group=_COMMON)] = False,
) -> None:
    """Runs a command.

    Parameters
    ----------
    debug
        Show tracebacks of errors and all log messages.
    """
    if debug:
        os.environ["GREENROOM_DEBUG"] = "1"
    if not tokens or tokens[0] not in _SERVERS:
        if debug:
            logging.basicConfig(level="DEBUG")
        # The output reports failures. Without any handler, Python would print warnings between its lines.
        logging.getLogger("greenroom").addHandler(logging.NullHandler())
    app(tokens, exit_on_error=False, result_action="return_value")


def join_boolean_values(tokens: Sequence[str]) -> list[str]:
    """Rewrites `--flag false` as `--flag=false`, the only form in which cyclopts reads the value of a switch."""
    if not any(token.lower() in _BOOLEANS for token in tokens):
        return list(tokens)
    joined = _joined(tokens, {_DEBUG})
    _, apps, _ = app.parse_commands([token for token in joined if not token.startswith(_DEBUG)])
    command = apps[-1]
    if command.default_command is None:
        return joined
    flags: set[str] = set()
    for argument in command.assemble_argument_collection():
        if argument.hint is bool:
            flags.update(argument.names)
    return _joined(joined, flags)


def _joined(tokens: Sequence[str], flags: Container[str]) -> list[str]:
    joined: list[str] = []
    for token in tokens:
        if token.lower() in _BOOLEANS and joined and joined[-1].replace("_", "-") in flags:
            joined[-1] += f"={token}"
        else:
            joined.append(token)
    return joined


def run_command() -> None:
    """Reads the command line and runs its command. Exits with 2 if the command line is wrong."""
    try:
        app.meta(join_boolean_values(sys.argv[1:]), exit_on_error=False, result_action="return_value")
    except CycloptsError:
        sys.exit(_USAGE_ERROR)
