"""`greenroom keys`: the API keys of a server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from greenroom.cli import audit, data_folder
from greenroom.cli.parameters import AgentsDir, KeyStore
from greenroom.cli.terminal import note, print_line, print_table
from greenroom.errors import CallerError
from greenroom.records.service_uri import is_postgres

if TYPE_CHECKING:
    from greenroom.server.access.api_keys import AccessRecords, ApiKey, ApiKeyStore, Change

app = App(name="keys", help="Manage the API keys of a server.")

_MAX_DAYS = 36500
_Names = Annotated[tuple[str, ...], Parameter(consume_multiple=True, show_default=False)]


@app.command(name="create")
def create_key(
    agents_dir: AgentsDir = Path(),
    /,
    *,
    user: str,
    name: str = "",
    scopes: _Names | None = None,
    roles: _Names = (),
    apps: _Names = (),
    days: float | None = None,
    keys: KeyStore = None,
) -> None:
    """Create an API key. It is printed once and cannot be shown again.

    The key goes to standard output. From then on, `greenroom serve DIR` requires a key from every caller. A server that
    was started before the first key was created must be restarted.

        greenroom keys create examples --user ada

        greenroom keys create examples --user ci --scopes run read app:weather --apps weather --days 30

    Parameters
    ----------
    user
        The `userId` that the key acts for. Only the scopes `app:NAME` and `admin` give access to other users.
    name
        A description of the key.
    scopes
        What the key may do: `run`, `read`, `manage`, `debug`, `audit`, `app:NAME` (all users of an app), `approve:NAME`
        or `admin` (everything). Default: `run read`, or none with `--roles`.
    roles
        Names of roles, whose scopes the key has, too: `viewer`, `operator`, `developer`, `admin`, or one of your own.
    apps
        The apps that the key may access. Default: all.
    days
        Days until the key expires, at most 36500. Default: never.
    """
    from greenroom.server.access.api_keys import check_scopes, new_key

    if scopes is None:
        scopes = () if roles else ("run", "read")
    check_scopes(scopes)
    if not user or any("\n" in text for text in (user, *scopes, *roles, *apps)):
        raise CallerError("Names of users, scopes and apps must not be empty or contain line breaks")
    if days is not None and not 0 < days <= _MAX_DAYS:  # NaN too is refused
        raise CallerError(f"--days must be more than 0 and at most {_MAX_DAYS}; without it, the key never expires")
    place = _place(agents_dir, keys)
    if place == _default_file(agents_dir):
        data_folder.make(agents_dir)

    api_key, key = new_key(
        name=name,
        subject=user,
        scopes=scopes,
        roles=roles,
        apps=apps or None,
        expires_at=None if days is None else time.time() + days * 86400,
    )
    audit.check_key(agents_dir)
    asyncio.run(_change(place, lambda records: records.with_key(api_key)))
    asyncio.run(audit.record(agents_dir, "key.created", user_id=user, target=api_key.id))
    note(f"Key {api_key.id} for {user}. Store it safely: it cannot be shown again.")
    print_line(key)


@app.command(name="list")
def list_keys(agents_dir: AgentsDir = Path(), /, *, keys: KeyStore = None) -> None:
    """List the keys with their users, scopes, apps and last use."""
    place = _place(agents_dir, keys)
    exists = is_postgres(place) or Path(place).is_file()
    api_keys = list(asyncio.run(_read(place)).keys.values()) if exists else []
    if not api_keys:
        note("There are no keys.")
        return

    columns = ("id", "user", "name", "scopes", "roles", "apps", "created", "last used", "state")
    print_table(columns, [_row(key) for key in api_keys])


def _row(key: ApiKey) -> tuple[str, ...]:
    scopes = " ".join(sorted(key.scopes))
    apps = "all" if key.apps is None else " ".join(sorted(key.apps))
    created = _time(key.created_at)
    last_used = "never" if key.last_used_at is None else _time(key.last_used_at)
    return key.id, key.subject, key.name, scopes, " ".join(sorted(key.roles)), apps, created, last_used, _state(key)


@app.command(name="revoke")
def revoke_key(
    key_id: Annotated[str, Parameter(name="ID")], agents_dir: AgentsDir = Path(), /, *, keys: KeyStore = None
) -> None:
    """Revoke a key. A running server refuses it within a second and closes its streams.

    Parameters
    ----------
    key_id
        The ID that `greenroom keys list` shows, or the key itself.
    """
    from greenroom.server.access.api_keys import id_of

    audit.check_key(agents_dir)
    id_in_store = id_of(key_id)
    records = asyncio.run(_change(_place(agents_dir, keys), lambda records: records.without_key(id_in_store)))
    revoked = records.keys[id_in_store]
    asyncio.run(audit.record(agents_dir, "key.revoked", user_id=revoked.subject, target=revoked.id))
    note(f"Revoked key {revoked.id} of {revoked.subject}.")


def _place(agents_dir: Path, keys: str | None) -> str:
    """Returns where the keys of `greenroom serve` are: a path, or a URI of PostgreSQL."""
    from greenroom.cli.serving import read_configuration

    return keys or read_configuration(agents_dir, None, {}).settings.auth.keys or _default_file(agents_dir)


def _default_file(agents_dir: Path) -> str:
    return str(data_folder.keys_path(agents_dir))


@asynccontextmanager
async def _opened(place: str) -> AsyncGenerator[ApiKeyStore]:
    from greenroom.server.access.api_keys_from_uri import api_keys_from_uri

    store = api_keys_from_uri(place)
    async with data_folder.closing(store):
        yield store


async def _read(place: str) -> AccessRecords:
    async with _opened(place) as store:
        return await store.read()


async def _change(place: str, change: Change) -> AccessRecords:
    async with _opened(place) as store:
        return await store.change(change)


def _time(timestamp: float) -> str:
    return datetime.fromtimestamp(timestamp).strftime("%Y-%m-%d %H:%M")


def _state(key: ApiKey) -> str:
    if key.revoked_at is not None:
        return "revoked"
    if key.expires_at is None:
        return "valid"
    prefix = "valid until" if key.is_good(time.time()) else "expired"
    return f"{prefix} {_time(key.expires_at)}"
