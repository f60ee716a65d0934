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
    from greenroom.records.audit import AuditAction
    from greenroom.server.access.api_keys import AccessRecords, ApiKey, ApiKeyStore, Change

app = App(name="keys", help="Manage the API keys of a server.")

_MAX_DAYS = 36500
_Names = Annotated[tuple[str, ...], Parameter(consume_multiple=True, show_default=False)]


@app.command(name="create")
def create_key(
    agents_dir: AgentsDir = Path(),
    /,
    *,
    user: str | None = None,
    account: str | None = None,
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
    account
        The service account that the key belongs to, in place of a user. The key has the account's permissions.
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
    from greenroom.records.access import SERVICE_PREFIX
    from greenroom.server.access.api_keys import check_scopes, new_key

    if (user is None) == (account is None):
        raise CallerError("Give --user or --account")
    if account is not None:
        if scopes is not None or roles or apps:
            raise CallerError(
                "The key of a service account has its permissions: leave out --scopes, --roles and --apps"
            )
        user = SERVICE_PREFIX + account
        scopes = ()
    elif scopes is None:
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
        service_account=account,
    )
    audit.check_key(agents_dir)
    asyncio.run(_change(place, lambda records: records.with_key(api_key)))
    asyncio.run(audit.record(agents_dir, "key.created", user_id=user, target=api_key.id))
    note(f"Key {api_key.id} for {user}. Store it safely: it cannot be shown again.")
    print_line(key)


@app.command(name="list")
def list_keys(agents_dir: AgentsDir = Path(), /, *, keys: KeyStore = None) -> None:
    """List the keys with their users, scopes, apps and last use."""
    api_keys = list(_stored(_place(agents_dir, keys)).keys.values())
    if not api_keys:
        note("There are no keys.")
        return

    columns = ("id", "user", "name", "scopes", "roles", "apps", "created", "last used", "state")
    print_table(columns, [_row(key) for key in api_keys])


@app.command(name="accounts")
def list_accounts(agents_dir: AgentsDir = Path(), /, *, keys: KeyStore = None) -> None:
    """List the service accounts: identities that are no users, with keys of their own."""
    accounts = list(_stored(_place(agents_dir, keys)).accounts.values())
    if not accounts:
        note("There are no service accounts.")
        return
    columns = ("name", "description", "scopes", "roles", "apps", "state")
    rows = [
        (
            one.name,
            one.description,
            " ".join(one.scopes),
            " ".join(one.roles),
            "all" if one.apps is None else " ".join(one.apps),
            "disabled" if one.is_disabled else "enabled",
        )
        for one in accounts
    ]
    print_table(columns, rows)


@app.command(name="set-account")
def set_account(
    name: Annotated[str, Parameter(name="NAME")],
    agents_dir: AgentsDir = Path(),
    /,
    *,
    description: str = "",
    scopes: _Names = (),
    roles: _Names = (),
    apps: _Names = (),
    disabled: Annotated[bool, Parameter(negative="")] = False,
    keys: KeyStore = None,
) -> None:
    """Create or replace a service account. Its keys have its permissions at once.

        greenroom keys set-account ci examples --roles developer --apps weather

        greenroom keys create examples --account ci

    Parameters
    ----------
    name
        The name of the account. Its keys act for the user `service:NAME`.
    description
        A description of the account.
    scopes
        What its keys may do, as for `greenroom keys create`. Default: only what the roles allow.
    roles
        Names of roles, whose scopes its keys have.
    apps
        The apps that its keys may access. Default: all.
    disabled
        Refuse all keys of the account.
    """
    from greenroom.records.access import ServiceAccount, check_name

    given = ServiceAccount(
        name=check_name(name),
        created_at=time.time(),
        description=description,
        scopes=list(scopes),
        roles=list(roles),
        apps=list(apps) or None,
        is_disabled=disabled,
    )

    def change(records: AccessRecords) -> AccessRecords:
        existing = records.accounts.get(name)
        if existing is not None:
            given.created_at = existing.created_at
        return records.with_account(given)

    _change_recorded(agents_dir, keys, change, "service_account.changed", name)
    note(f"Stored the service account {name}.")


@app.command(name="delete-account")
def delete_account(
    name: Annotated[str, Parameter(name="NAME")], agents_dir: AgentsDir = Path(), /, *, keys: KeyStore = None
) -> None:
    """Delete a service account and revoke its keys.

    Parameters
    ----------
    name
        The name of the account.
    """
    _change_recorded(agents_dir, keys, lambda records: records.without_account(name), "service_account.deleted", name)
    note(f"Deleted the service account {name}.")


@app.command(name="roles")
def list_roles(agents_dir: AgentsDir = Path(), /, *, keys: KeyStore = None) -> None:
    """List the roles: named sets of scopes."""
    roles = _stored(_place(agents_dir, keys)).roles.values()
    rows = [(one.name, " ".join(one.scopes), one.description, "yes" if one.is_built_in else "no") for one in roles]
    print_table(("name", "scopes", "description", "built in"), rows)


@app.command(name="set-role")
def set_role(
    name: Annotated[str, Parameter(name="NAME")],
    agents_dir: AgentsDir = Path(),
    /,
    *,
    scopes: _Names,
    description: str = "",
    keys: KeyStore = None,
) -> None:
    """Create or replace a role. Keys and service accounts that have it are changed at once.

        greenroom keys set-role support examples --scopes read debug app:weather

    Parameters
    ----------
    name
        The name of the role.
    scopes
        What the role allows, as for `greenroom keys create`.
    description
        A description of the role.
    """
    from greenroom.records.access import Role, check_name

    role = Role(name=check_name(name), scopes=list(scopes), description=description)
    _change_recorded(agents_dir, keys, lambda records: records.with_role(role), "role.changed", name)
    note(f"Stored the role {name}.")


@app.command(name="delete-role")
def delete_role(
    name: Annotated[str, Parameter(name="NAME")], agents_dir: AgentsDir = Path(), /, *, keys: KeyStore = None
) -> None:
    """Delete a role that no key and no service account has.

    Parameters
    ----------
    name
        The name of the role.
    """
    _change_recorded(agents_dir, keys, lambda records: records.without_role(name), "role.deleted", name)
    note(f"Deleted the role {name}.")


def _stored(place: str) -> AccessRecords:
    from greenroom.server.access.api_keys import AccessRecords

    exists = is_postgres(place) or Path(place).is_file()
    return asyncio.run(_read(place)) if exists else AccessRecords()


def _change_recorded(agents_dir: Path, keys: str | None, change: Change, action: AuditAction, target: str) -> None:
    """Changes the store of keys, and records it in the audit trail, if there is one.

    Raises CallerError where there is no store: an empty one would close the server to all.
    """
    place = _place(agents_dir, keys)
    if not is_postgres(place) and not Path(place).is_file():
        raise CallerError(
            "There are no keys yet. Create the first one: greenroom keys create --user NAME --scopes admin"
        )
    audit.check_key(agents_dir)
    asyncio.run(_change(place, change))
    asyncio.run(audit.record(agents_dir, action, target=target))


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
