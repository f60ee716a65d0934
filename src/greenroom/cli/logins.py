"""`greenroom logins`: the logins that users granted to agents' tools."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from greenroom.cli import data_folder
from greenroom.cli.parameters import AgentsDir, SessionStore
from greenroom.cli.sessions import app_names, open_store
from greenroom.cli.terminal import note, print_table
from greenroom.errors import CallerError

if TYPE_CHECKING:
    from greenroom.credentials.service import BaseCredentialService

app = App(name="logins", help="Manage the logins that users granted to agents' tools.")


@app.command(name="list")
def list_logins(
    agents_dir: AgentsDir = Path(), /, *, user: str, app: str | None = None, session_service: SessionStore = None
) -> None:
    """List the logins of a user.

    Their secrets are not shown.

        greenroom logins list examples --user ada

    Parameters
    ----------
    user
        The user's ID.
    app
        Only logins of this app.
    """

    async def find() -> list[tuple[str, str, str]]:
        rows: list[tuple[str, str, str]] = []
        async with _opened(agents_dir, session_service) as store:
            for name in app_names(agents_dir, app):
                credentials = await store.list_credentials(app_name=name, user_id=user)
                rows += [(name, key, credential.auth_type) for key, credential in credentials.items()]
        return rows

    logins = asyncio.run(find())
    if not logins:
        note(f"User {user!r} has no logins.")
        return
    print_table(("app", "key", "type"), logins)


@app.command(name="revoke")
def revoke_login(
    key: Annotated[str, Parameter(name="KEY")],
    agents_dir: AgentsDir = Path(),
    /,
    *,
    user: str,
    app: str | None = None,
    session_service: SessionStore = None,
) -> None:
    """Delete a login of a user. The next tool that needs it asks the user to log in again.

    The server may be running. At the provider, the grant remains until the user withdraws it there.

    Parameters
    ----------
    key
        The key that `greenroom logins list` shows.
    user
        The user's ID.
    app
        Only the login of this app. Default: the logins of all apps.
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
        raise CallerError(f"User {user!r} has no login {key!r}")
    note(f"Revoked login {key!r} of user {user!r} in: {', '.join(revoked)}")


@contextlib.asynccontextmanager
async def _opened(agents_dir: Path, uri: str | None) -> AsyncGenerator[BaseCredentialService]:
    from greenroom.runs.engine import credential_service_beside

    sessions = open_store(agents_dir, uri)
    store = credential_service_beside(sessions)
    async with data_folder.closing(store, sessions):
        yield store
