"""The contract of stores of API keys, and servers that share keys in PostgreSQL."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from greenroom.errors import AccessConflict, CallerError, InvalidRequest, StorageError, Unauthenticated
from greenroom.records.access import Role, ServiceAccount
from greenroom.records.run import Caller
from greenroom.server.access.api_key_cache import ApiKeyCache
from greenroom.server.access.api_key_file import ApiKeyFile
from greenroom.server.access.api_keys import AccessRecords, ApiKey, ApiKeyStore, id_of, new_key
from greenroom.server.access.api_keys_from_uri import api_keys_from_uri
from greenroom.server.access.authentication import Authenticator
from greenroom.server.access.postgres_api_keys import PostgresApiKeys
from greenroom.server.settings import AuthSettings
from tests.server.conftest import Serve
from tests.server.serving import until

SESSIONS = "/apps/echo/users/ann/sessions"


@pytest.fixture(params=["file", pytest.param("postgres", marks=pytest.mark.slow)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A path or a URI of PostgreSQL."""
    if request.param == "postgres":
        return request.getfixturevalue("postgres_uri")
    ApiKeyFile(tmp_path / "keys.db").create(name="unused", subject="nobody", scopes=[])
    return str(tmp_path / "keys.db")


@pytest.fixture
async def store(place: str) -> AsyncIterator[ApiKeyStore]:
    opened = api_keys_from_uri(place)
    yield opened
    await opened.close()


async def add(store: ApiKeyStore, key: ApiKey) -> None:
    await store.change(lambda records: records.with_key(key))


async def revoke(store: ApiKeyStore, key_id: str) -> ApiKey:
    return (await store.change(lambda records: records.without_key(key_id))).keys[key_id]


async def test_keys_are_stored_as_they_are(store: ApiKeyStore) -> None:
    made, key = new_key(
        name="for ci", subject="a b\tc", scopes=["run", "app:my app"], apps=["my app", "x"], expires_at=5e9
    )
    plain, _ = new_key(name="", subject="ann", scopes=[])
    await add(store, made)
    await add(store, plain)
    found = (await store.read()).keys
    assert found[made.id] == made
    assert found[made.id].fits(key)
    assert found[plain.id] == plain


async def test_a_key_is_revoked_once(store: ApiKeyStore) -> None:
    made, _ = new_key(name="", subject="ann", scopes=["run"])
    await add(store, made)
    before = await store.state()
    revoked = await revoke(store, made.id)
    assert not revoked.is_good(time.time())
    assert await revoke(store, made.id) == revoked
    assert await store.state() in {None} or await store.state() != before
    with pytest.raises(CallerError, match="no key with the id 'nothing'"):
        await revoke(store, "nothing")


async def test_the_last_use_never_goes_back(store: ApiKeyStore) -> None:
    made, _ = new_key(name="", subject="ann", scopes=["run"])
    await add(store, made)
    for used_at in (50.0, 20.0):
        await store.mark_used({made.id: used_at, "unknown": 1.0})
    assert [one.last_used_at for one in (await store.read()).keys.values() if one.id == made.id] == [50.0]


async def test_caches_see_what_another_process_does(place: str, store: ApiKeyStore) -> None:
    cache = ApiKeyCache(api_keys_from_uri(place))
    _, unknown = new_key(name="", subject="ann", scopes=["run"])
    with pytest.raises(Unauthenticated):
        await cache.identify(unknown)

    made, key = new_key(name="", subject="ann", scopes=["run"])
    await add(store, made)
    assert (await cache.identify(key)).subject == "ann"  # at once
    await revoke(store, made.id)

    async def is_refused() -> bool:
        return await cache.identity_of(made.id) is None

    await until(is_refused, seconds=2)
    with pytest.raises(Unauthenticated):
        await cache.identify(key)
    await cache.close()


def _account(name: str, **fields: Any) -> ServiceAccount:
    return ServiceAccount(name=name, created_at=1.0, **fields)


async def test_accounts_and_roles_are_stored_as_they_are(store: ApiKeyStore) -> None:
    role = Role(name="support", description="for the desk", scopes=["read", "app:my app"])
    account = _account("ci", description="builds", scopes=["run"], roles=["support"], apps=["my app"])
    key, _ = new_key(name="", subject=account.subject, service_account="ci", roles=[])
    for change in (
        lambda records: records.with_role(role),
        lambda records: records.with_account(account),
        lambda records: records.with_key(key),
    ):
        await store.change(change)
    records = await store.read()
    assert records.custom_roles == {"support": role}
    assert records.accounts == {"ci": account}
    assert records.keys[key.id] == key
    identity = records.identity_of(key)
    assert identity is not None
    assert (identity.subject, identity.scopes) == ("service:ci", {"run", "read", "app:my app"})
    assert identity.apps == {"my app"}

    before = await store.state()
    await store.change(lambda records: records.with_role(Role(name="support", scopes=["read"])))
    assert await store.state() in {None} or await store.state() != before
    with pytest.raises(AccessConflict, match="in use by service account 'ci'"):
        await store.change(lambda records: records.without_role("support"))
    await store.change(lambda records: records.without_account("ci"))
    await store.change(lambda records: records.without_role("support"))
    records = await store.read()
    assert (records.accounts, records.custom_roles) == ({}, {})
    assert records.keys[key.id].revoked_at is not None


async def test_changes_of_several_processes_are_made_one_after_the_other(place: str, store: ApiKeyStore) -> None:
    others = [api_keys_from_uri(place) for _ in range(3)]

    def counted(records: AccessRecords) -> AccessRecords:
        count = int(records.custom_roles["count"].description) if "count" in records.custom_roles else 0
        return records.with_role(Role(name="count", description=str(count + 1), scopes=[]))

    await asyncio.gather(*(each.change(counted) for each in others for _ in range(8)))
    assert (await store.read()).custom_roles["count"].description == "24"
    for each in others:
        await each.close()


async def test_what_a_change_raises_leaves_the_records_as_they_are(store: ApiKeyStore) -> None:
    before = await store.read()
    with pytest.raises(InvalidRequest, match="no role 'none'"):
        await store.change(lambda records: records.with_account(_account("a", roles=["none"])))
    for subject, scopes in (("service:ci", ["run"]), ("ann", ["everything"])):
        key, _ = new_key(name="", subject=subject, scopes=scopes)
        with pytest.raises(InvalidRequest):
            await add(store, key)
    assert await store.read() == before


def test_a_file_of_an_earlier_version_is_read_and_upgraded(tmp_path: Path) -> None:
    file = ApiKeyFile(tmp_path / "keys.db")
    made, _ = file.create(name="", subject="ann", scopes=["run"])
    with contextlib.closing(sqlite3.connect(file.path)) as connection, connection:
        for statement in (
            "ALTER TABLE api_keys DROP COLUMN roles",
            "ALTER TABLE api_keys DROP COLUMN service_account",
            "DROP TABLE service_accounts",
            "DROP TABLE roles",
        ):
            connection.execute(statement)
    assert file.read().keys == {made.id: made}
    file.change(lambda records: records.with_role(Role(name="support", scopes=["read"])))
    assert (file.read().keys, list(file.read().custom_roles)) == ({made.id: made}, ["support"])


def test_a_change_that_fails_creates_no_file(tmp_path: Path) -> None:
    file = ApiKeyFile(tmp_path / "keys.db")
    with pytest.raises(CallerError, match="no key"):
        file.revoke("nothing")
    assert not file.path.exists()


class _HeldStore(PostgresApiKeys):
    """Counts its checks, each of which waits for `proceed`, and then fails."""

    def __init__(self) -> None:
        self.checks = 0
        self.proceed = asyncio.Event()

    async def state(self) -> None:
        self.checks += 1
        await self.proceed.wait()
        raise StorageError("Reading", "the database is away")

    async def close(self) -> None:
        pass


async def test_requests_share_a_check_that_fails() -> None:
    store = _HeldStore()
    cache = ApiKeyCache(store)
    keys = [new_key(name="", subject="ann", scopes=["run"])[1] for _ in range(20)]
    waiting = [asyncio.create_task(cache.identify(key)) for key in keys]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert store.checks == 1
    waiting[0].cancel()
    store.proceed.set()
    ends = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(ends[0], asyncio.CancelledError)
    assert all(isinstance(end, StorageError) for end in ends[1:])
    assert store.checks == 1
    with pytest.raises(StorageError):  # the key isn't known to be revoked
        await cache.identity_of(id_of(keys[0]))
    await cache.close()


async def test_keys_that_cannot_be_read_end_streams_and_delay_schedules(tmp_path: Path) -> None:
    file = ApiKeyFile(tmp_path / "keys.db")
    made, key = file.create(name="", subject="ann", scopes=["run"])
    authenticator = Authenticator(AuthSettings(keys=str(file.path)))
    identity = await authenticator.identify_by(key)
    caller = Caller(user_id="ann", key_id=made.id)
    assert await authenticator.is_still_good(identity)
    assert await authenticator.is_valid(caller)

    file.path.unlink()
    async with asyncio.timeout(5):
        while await authenticator.is_still_good(identity):
            await asyncio.sleep(0.05)
    with pytest.raises(StorageError):
        await authenticator.is_valid(caller)
    await authenticator.close()


async def test_servers_share_keys_in_postgresql(serve: Serve, postgres_uri: str) -> None:
    servers = [await serve(auth=AuthSettings(keys=postgres_uri)) for _ in range(2)]
    store = api_keys_from_uri(postgres_uri)
    made, key = new_key(name="", subject="ann", scopes=["run", "read"])
    await add(store, made)
    headers = {"X-API-Key": key}
    for server in servers:
        assert (await server.client.get(SESSIONS)).status_code == 401
        assert (await server.client.get(SESSIONS, headers=headers)).status_code == 200
    await revoke(store, id_of(key))

    async def all_refuse() -> bool:
        answers = [await server.client.get(SESSIONS, headers=headers) for server in servers]
        return all(answer.status_code == 401 for answer in answers)

    await until(all_refuse, seconds=2)
    await store.close()
