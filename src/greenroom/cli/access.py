"""`greenroom keys` and `greenroom logins`: who may call a server, and what users granted to agents' tools."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from greenroom.cli import data_folder
from greenroom.cli.server_flags import AgentsDir
from greenroom.cli.sessions import app_names, open_store
from greenroom.cli.terminal import note, print_line, print_table
from greenroom.errors import CallerError

if TYPE_CHECKING:
    from greenroom.credentials.service import BaseCredentialService
    from greenroom.server.access.api_keys import ApiKey, ApiKeyFile


keys_app = App(name="keys", help="API keys: who may call a server.")

_MAX_DAYS = 36500
_Words = Annotated[tuple[str, ...], Parameter(consume_multiple=True, negative="", show_default=False)]


@keys_app.command(name="create")
def create_key(
    agents_dir: AgentsDir = Path(),
    /,
    *,
    user: str,
    name: str = "",
    scopes: _Words = ("run", "read"),
    apps: _Words = (),
    days: float | None = None,
    keys: Path | None = None,
) -> None:
    """Make a key. It is printed once, to the standard output, and can't be had again.

    From then on `greenroom serve DIR` asks every caller for a key; a server that runs without keys must be started
    again.

        greenroom keys create examples --user ada

        greenroom keys create examples --user ci --scopes run read app:weather --apps weather --days 30

    Parameters
    ----------
    agents_dir
        The folder that is served.
    user
        The `userId` it acts for, and the only one unless a scope says more.
    name
        What it is for, in your words.
    scopes
        `run`, `read`, `manage`, `debug`; `app:NAME` acts for all users of an app, `admin` may do everything. Else: run
        and read.
    apps
        The only apps it reaches. Else: all.
    days
        How long it is good, up to 36500. Else: until it is revoked.
    keys
        The file of keys. Else: `DIR/.greenroom/keys.db`.
    """
    from greenroom.server.access.identity import SCOPES, is_scope

    for scope in scopes:
        if not is_scope(scope):
            raise CallerError(f"There is no scope {scope!r}. Known: {', '.join(SCOPES)}, app:NAME, admin")
    if not user or any("\n" in text for text in (user, *scopes, *apps)):
        raise CallerError("Users, scopes and apps are names, on one line each")
    if days is not None and not 0 < days <= _MAX_DAYS:  # NaN too is refused
        raise CallerError(f"--days must be more than 0, and at most {_MAX_DAYS}; without it a key has no end")
    if keys is None:
        data_folder.make(agents_dir)
    made, key = _file(agents_dir, keys).create(
        name=name,
        subject=user,
        scopes=scopes,
        apps=apps or None,
        expires_at=None if days is None else time.time() + days * 86400,
    )
    note(f"Key {made.id} for {user}. Keep it safe: it is shown only now.")
    print_line(key)


@keys_app.command(name="list")
def list_keys(agents_dir: AgentsDir = Path(), /, *, keys: Path | None = None) -> None:
    """Show the keys: whose they are, what they may do, and when they were last used.

    Parameters
    ----------
    agents_dir
        The folder that is served.
    keys
        The file of keys. Else: `DIR/.greenroom/keys.db`.
    """
    file = _file(agents_dir, keys)
    found = file.list() if file.path.is_file() else []
    if not found:
        note("There are no keys.")
        return
    rows = [
        (key.id, key.subject, key.name, " ".join(sorted(key.scopes)),
         "all" if key.apps is None else " ".join(sorted(key.apps)),
         _day(key.created_at), _day(key.last_used_at), _state(key))
        for key in found
    ]  # fmt: skip
    print_table(("id", "user", "name", "scopes", "apps", "created", "last used", "state"), rows)


@keys_app.command(name="revoke")
def revoke_key(
    key_id: Annotated[str, Parameter(name="ID")], agents_dir: AgentsDir = Path(), /, *, keys: Path | None = None
) -> None:
    """Take a key back. A running server refuses it within a second, and ends the streams it reads.

    Parameters
    ----------
    key_id
        As `greenroom keys list` shows it; the key itself will do, too.
    agents_dir
        The folder that is served.
    keys
        The file of keys. Else: `DIR/.greenroom/keys.db`.
    """
    from greenroom.server.access.api_keys import id_of

    revoked = _file(agents_dir, keys).revoke(id_of(key_id))
    note(f"Key {revoked.id} of {revoked.subject} is no longer accepted.")


def _file(agents_dir: Path, keys: Path | None) -> ApiKeyFile:
    from greenroom.server.access.api_keys import ApiKeyFile

    return ApiKeyFile(keys or data_folder.keys_path(agents_dir))


def _day(at: float | None) -> str:
    return "never" if at is None else datetime.fromtimestamp(at).strftime("%Y-%m-%d %H:%M")


def _state(key: ApiKey) -> str:
    if key.revoked_at is not None:
        return "revoked"
    if key.expires_at is None:
        return "good"
    return ("good until " if key.is_good(time.time()) else "expired ") + _day(key.expires_at)


logins_app = App(name="logins", help="Logins that users granted to the tools of agents.")


@logins_app.command(name="list")
def list_logins(
    agents_dir: AgentsDir = Path(), /, *, user: str, app: str | None = None, session_service: str | None = None
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
    print_table(("app", "key", "type"), found)


@logins_app.command(name="revoke")
def revoke_login(
    key: Annotated[str, Parameter(name="KEY")],
    agents_dir: AgentsDir = Path(),
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
    from greenroom.runs.engine import credential_service_beside

    sessions = open_store(agents_dir, uri)
    store = credential_service_beside(sessions)
    async with data_folder.closing(store, sessions):
        yield store
