"""The contract of stores of API keys, and servers that share keys in PostgreSQL."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from greenroom.errors import CallerError, StorageError, Unauthenticated
from greenroom.records.run import Caller
from greenroom.server.access.api_keys import ApiKeyCache, ApiKeyFile, ApiKeyStore, id_of, new_key
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


async def test_keys_are_stored_as_they_are(store: ApiKeyStore) -> None:
    made, key = new_key(
        name="for ci", subject="a b\tc", scopes=["run", "app:my app"], apps=["my app", "x"], expires_at=5e9
    )
    plain, _ = new_key(name="", subject="ann", scopes=[])
    await store.add(made)
    await store.add(plain)
    found = {one.id: one for one in await store.list()}
    assert found[made.id] == made
    assert found[made.id].fits(key)
    assert found[plain.id] == plain


async def test_a_key_is_revoked_once(store: ApiKeyStore) -> None:
    made, _ = new_key(name="", subject="ann", scopes=["run"])
    await store.add(made)
    before = await store.state()
    revoked = await store.revoke(made.id)
    assert not revoked.is_good(time.time())
    assert await store.revoke(made.id) == revoked
    assert await store.state() in {None} or await store.state() != before
    with pytest.raises(CallerError, match="no key with the id 'nothing'"):
        await store.revoke("nothing")


async def test_the_last_use_never_goes_back(store: ApiKeyStore) -> None:
    made, _ = new_key(name="", subject="ann", scopes=["run"])
    await store.add(made)
    for used_at in (50.0, 20.0):
        await store.mark_used({made.id: used_at, "unknown": 1.0})
    assert [one.last_used_at for one in await store.list() if one.id == made.id] == [50.0]


async def test_caches_see_what_another_process_does(place: str, store: ApiKeyStore) -> None:
    cache = ApiKeyCache(api_keys_from_uri(place))
    _, unknown = new_key(name="", subject="ann", scopes=["run"])
    with pytest.raises(Unauthenticated):
        await cache.identify(unknown)

    made, key = new_key(name="", subject="ann", scopes=["run"])
    await store.add(made)
    assert (await cache.identify(key)).subject == "ann"  # at once
    await store.revoke(made.id)

    async def is_refused() -> bool:
        return not await cache.is_good(made.id)

    await until(is_refused, seconds=2)
    with pytest.raises(Unauthenticated):
        await cache.identify(key)
    await cache.close()


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
        await cache.is_good(id_of(keys[0]))
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
    await store.add(made)
    headers = {"X-API-Key": key}
    for server in servers:
        assert (await server.client.get(SESSIONS)).status_code == 401
        assert (await server.client.get(SESSIONS, headers=headers)).status_code == 200
    await store.revoke(id_of(key))

    async def all_refuse() -> bool:
        answers = [await server.client.get(SESSIONS, headers=headers) for server in servers]
        return all(answer.status_code == 401 for answer in answers)

    await until(all_refuse, seconds=2)
    await store.close()
