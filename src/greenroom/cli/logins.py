"""`greenroom logins`: what users granted to agents' tools."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter
from rich.table import Table

from greenroom.cli.sessions import app_names, open_store
from greenroom.cli.terminal import note, output, printable
from greenroom.errors import CallerError

if TYPE_CHECKING:
    from greenroom.credentials.service import BaseCredentialService

app = App(name="logins", help="Logins that users granted to the tools of agents.")

_Dir = Annotated[Path, Parameter(name="DIR")]


@app.command(name="list")
def list_logins(
    agents_dir: _Dir = Path(), /, *, user: str, app: str | None = None, session_service: str | None = None
) -> None:
    """Show the logins that a user granted, without their secrets.

        greenroom logins list examples --user ada

    Parameters
    ----------
    agents_dir
        The folder that was served.
    user
        Whose logins.
    app
        Only those of this app.
    session_service
        Where conversations are kept: `sqlite:///file.db`. Else: `DIR/.greenroom/greenroom.db`, as the server does.
    """

    async def find() -> list[tuple[str, str, str]]:
        async with _opened(agents_dir, session_service) as store:
            return [
                (name, key, credential.auth_type)
                for name in app_names(agents_dir, app)
                for key, credential in (await store.list_credentials(app_name=name, user_id=user)).items()
            ]

    found = asyncio.run(find())
    if not found:
        note(f"User {user!r} granted no logins.")
        return
    table = Table(box=None, pad_edge=False)
    for column in ("app", "key", "type"):
        table.add_column(column, no_wrap=True)
    for row in found:
        table.add_row(*map(printable, row))
    output.print(table)


@app.command
def revoke(
    key: Annotated[str, Parameter(name="KEY")],
    agents_dir: _Dir = Path(),
    /,
    *,
    user: str,
    app: str | None = None,
    session_service: str | None = None,
) -> None:
    """Delete a login that a user granted; the next tool that needs it asks for it again.

    This works beside a running server. At the provider the grant stays until the user withdraws it there.

    Parameters
    ----------
    key
        As `greenroom logins list` shows it.
    agents_dir
        The folder that was served.
    user
        Whose login.
    app
        Only that of this app. Else: of all apps.
    session_service
        Where conversations are kept: `sqlite:///file.db`. Else: `DIR/.greenroom/greenroom.db`, as the server does.
    """

    async def delete() -> list[str]:
        async with _opened(agents_dir, session_service) as store:
            revoked: list[str] = []
            for name in app_names(agents_dir, app):
                if key in await store.list_credentials(app_name=name, user_id=user):
                    await store.delete_credential(app_name=name, user_id=user, credential_key=key)
                    revoked.append(name)
            return revoked

    revoked = asyncio.run(delete())
    if not revoked:
        raise CallerError(f"User {user!r} granted no login {key!r}")
    note(f"The login {key!r} of user {user!r} is revoked in: {', '.join(revoked)}")


@contextlib.asynccontextmanager
async def _opened(agents_dir: Path, uri: str | None) -> AsyncGenerator[BaseCredentialService]:
    from greenroom.runs.from_session_service import credential_service_beside

    sessions = open_store(agents_dir, uri)
    store = credential_service_beside(sessions)
    try:
        yield store
    finally:
        await store.close()
        await sessions.close()
