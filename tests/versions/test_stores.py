"""All stores of published versions keep the contract."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from greenroom.errors import InvalidRequest, NotFound, TooManyVersions, VersionInUse
from greenroom.records.app_version import AgentDescription, PublishedVersion, VersionFile
from greenroom.runs.memory_store import InMemoryRunStore
from greenroom.runs.postgres_store import PostgresRunStore
from greenroom.runs.sqlite_store import SqliteRunStore
from greenroom.runs.store import RunStore
from greenroom.versions.store import MAX_VERSIONS, VersionStore


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[VersionStore]:
    if request.param == "memory":
        runs: RunStore = InMemoryRunStore()
    elif request.param == "sqlite":
        runs = SqliteRunStore(tmp_path / "runs.db")
    else:
        runs = PostgresRunStore(request.getfixturevalue("postgres_uri"))
    yield runs.versions
    await runs.close()


def version(number: int = 1, *, app_name: str = "desk", **fields: Any) -> PublishedVersion:
    given: dict[str, Any] = {"message": f"number {number}", "published_at": float(number), **fields}
    return PublishedVersion(app_name=app_name, name="", version=f"{number:016x}", **given)


async def names(store: VersionStore, app_name: str = "desk") -> list[str]:
    return [one.name for one in await store.list(app_name)]


async def test_versions_come_back_as_they_were(store: VersionStore) -> None:
    agents = [AgentDescription(name="a", kind="LlmAgent", instruction="Häl\nlo", settings={"mode": "task"})]
    files = [VersionFile(path="desk/agent.py", size_bytes=3)]
    archive = bytes(range(256))
    stored = await store.publish(version(agents=agents, files=files, published_by="ann"), archive)
    assert (stored.name, stored.published_by, stored.agents, stored.files) == ("v1", "ann", None, None)
    assert await store.list("desk") == [stored]
    assert await store.find("desk", stored.version) == stored
    found = await store.get("desk", "v1")
    assert found is not None
    assert (found.message, found.agents, found.files) == ("number 1", agents, files)
    assert await store.read_archive("desk", stored.version) == archive
    assert await store.get("desk", "v2") is None
    assert await store.find("other", stored.version) is None
    assert await store.read_archive("desk", "0") is None


async def test_equal_files_are_one_version_and_names_are_not_used_again(store: VersionStore) -> None:
    first = await store.publish(version(1), b"1")
    assert (await store.publish(version(2), b"2")).name == "v2"
    assert await store.publish(version(1, message="again"), b"1") == first
    assert await names(store) == ["v2", "v1"]
    await store.delete("desk", "v2")
    assert await store.read_archive("desk", version(2).version) is None
    assert (await store.publish(version(2), b"2")).name == "v3"
    assert (await store.publish(version(2, app_name="other"), b"2")).name == "v1"
    assert await names(store) == ["v3", "v1"]


async def test_versions_published_at_once_have_different_names(store: VersionStore) -> None:
    published = await asyncio.gather(*(store.publish(version(number % 10), b"x") for number in range(20)))
    assert len({(one.name, one.version) for one in published}) == 10
    assert sorted(await names(store)) == sorted(f"v{number}" for number in range(1, 11))


async def test_shares_name_versions_and_are_100_together(store: VersionStore) -> None:
    await store.publish(version(1), b"1")
    await store.publish(version(2), b"2")
    before = (await store.list_traffic())["desk"]
    assert before.shares == {}
    await store.set_traffic("desk", {"v1": 90, "v2": 10, "source": 0})
    after = (await store.list_traffic())["desk"]
    assert after.shares == {"v1": 90, "v2": 10, "source": 0}
    assert after.revision > before.revision
    with pytest.raises(InvalidRequest, match="must be 100"):
        await store.set_traffic("desk", {"v1": 90, "v2": 20})
    with pytest.raises(NotFound, match="no version 'v3'"):
        await store.set_traffic("desk", {"v3": 100})
    with pytest.raises(NotFound, match="no version 'v1'"):
        await store.set_traffic("other", {"v1": 100})
    with pytest.raises(VersionInUse):
        await store.delete("desk", "v2")
    assert (await store.list_traffic())["desk"].shares == after.shares
    await store.set_traffic("desk", {"v1": 100})
    await store.delete("desk", "v2")
    with pytest.raises(NotFound):
        await store.delete("desk", "v2")
    await store.set_traffic("desk", {})
    await store.set_traffic("other", {})
    assert (await store.list_traffic())["desk"].shares == {}


async def test_the_number_of_versions_is_limited(store: VersionStore) -> None:
    for number in range(MAX_VERSIONS):
        await store.publish(version(number), b"x")
    with pytest.raises(TooManyVersions):
        await store.publish(version(MAX_VERSIONS), b"x")
    assert (await store.publish(version(0), b"x")).name == "v1"
    await store.delete("desk", "v1")
    assert (await store.publish(version(MAX_VERSIONS), b"x")).name == f"v{MAX_VERSIONS + 1}"
