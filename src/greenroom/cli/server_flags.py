"""Parameters of several commands: the served folder, and the server to ask instead of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

from cyclopts import Parameter

from greenroom.errors import CallerError

if TYPE_CHECKING:
    from greenroom.client.async_client import AsyncClient

AgentsDir: TypeAlias = Annotated[Path, Parameter(name="DIR")]
ServerUrl: TypeAlias = Annotated[
    str | None,
    Parameter(name="--url", env_var="GREENROOM_URL", help="The server to ask, instead of a folder."),
]
ApiKey: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="--api-key",
        env_var="GREENROOM_API_KEY",
        help="The key for the server. Others can read a command line; they can't read the variable.",
    ),
]

PATIENCE_SECONDS = 10.0
"""Timeout for a server that doesn't answer: enough for a restart, and short for a mistyped address."""


def client_for(url: str, api_key: str | None) -> AsyncClient:
    """Raises CallerError, and MissingExtra."""
    from greenroom.client.async_client import AsyncClient

    return AsyncClient(url, api_key=api_key or None, retry_seconds=PATIENCE_SECONDS)


def check_not_with_server(**given: bool) -> None:
    """given: what only a folder has, by its name, and whether it was. Raises CallerError."""
    for name, was_given in given.items():
        if was_given:
            flag = name if name.isupper() else "--" + name.replace("_", "-")
            raise CallerError(f"A server is asked (--url or GREENROOM_URL), so {flag} can't be given")
