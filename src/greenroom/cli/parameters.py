"""Parameters that several commands share, and the client of a server that they name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

from cyclopts import Parameter

from greenroom.errors import CallerError

if TYPE_CHECKING:
    from greenroom.client.async_client import AsyncClient

AgentsDir: TypeAlias = Annotated[Path, Parameter(name="DIR", help="The agents folder.")]

AgentPath: TypeAlias = Annotated[
    str,
    Parameter(
        name="AGENT",
        help="An agent's folder, or `FOLDER:NAME` for one agent in a folder of agents. `:NAME` can be left out if "
        "there is only one.",
    ),
]

SessionStore: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="--session-service",
        help="The session store, for example `postgresql://host/database`. Default: that of `greenroom serve DIR`: the "
        "setting `session_service`, or else `DIR/.greenroom/greenroom.db`.",
    ),
]

KeyStore: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="--keys",
        help="A file, or `postgresql://host/database`. Default: the keys of `greenroom serve DIR`: the setting "
        "`auth.keys`, or else `DIR/.greenroom/keys.db`.",
    ),
]

Report: TypeAlias = Annotated[
    tuple[Path, ...],
    Parameter(name="--report", help="A report to write: `.xml` (JUnit), `.md` or `.html`. May be repeated."),
]

ServerUrl: TypeAlias = Annotated[
    str | None,
    Parameter(name="--url", env_var="GREENROOM_URL", help="The URL of a running server to use instead of a folder."),
]

ApiKey: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="--api-key",
        env_var="GREENROOM_API_KEY",
        help="The API key for that server. The environment variable is safer: other users can see command lines.",
    ),
]

RETRY_SECONDS = 10.0
"""Time during which commands retry a server that doesn't answer: enough for a restart, short for a mistyped address."""


def client_for(url: str, api_key: str | None) -> AsyncClient:
    """Raises CallerError, and MissingExtra."""
    from greenroom.client.async_client import AsyncClient

    return AsyncClient(url, api_key=api_key or None, retry_seconds=RETRY_SECONDS)


def check_not_with_server(**given: bool) -> None:
    """Raises CallerError for parameters that only a folder has.

    given: for each of them, by its name, whether the command line has it.
    """
    for name, was_given in given.items():
        if was_given:
            flag = name if name.isupper() else "--" + name.replace("_", "-")
            raise CallerError(f"{flag} can't be combined with a server (--url or GREENROOM_URL)")
