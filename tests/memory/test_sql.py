"""Memories in SQLite and PostgreSQL keep the contract, survive the process, and are found as those in memory."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from greenroom.memory.from_uri import memory_service_from_uri
from greenroom.memory.in_memory import InMemoryMemoryService
from greenroom.memory.service import BaseMemoryService
from greenroom.memory.sqlite import SqliteMemoryService
from greenroom.records.base import JsonObject
from greenroom.records.content import Content, Part
from greenroom.records.listings import MemoryEntry
from greenroom.testing.contracts.memory_service import *  # noqa: F403

_WHERE: JsonObject = {"app_name": "concierge", "user_id": "ann"}


@pytest.fixture(params=["sqlite", "postgres"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/memory.db" if request.param == "sqlite" else request.getfixturevalue("postgres_uri")


@pytest.fixture
async def memory_service(uri: str) -> AsyncIterator[BaseMemoryService]:
    service = memory_service_from_uri(uri)
    yield service
    await service.close()


async def test_memories_are_there_after_a_restart(uri: str) -> None:
    service = memory_service_from_uri(uri)
    await service.add_memories(**_WHERE, memories=[_entry("likes tea", "a")])
    await service.close()
    again = memory_service_from_uri(uri)
    assert await _texts(again, "tea") == ["likes tea"]
    await again.add_memories(**_WHERE, memories=[_entry("likes coffee", "a")])
    assert (await _texts(again, "tea"), await _texts(again, "coffee")) == ([], ["likes coffee"])
    await again.delete_user(**_WHERE)
    assert await _texts(again, "coffee") == []
    await again.close()


async def test_the_same_are_found_as_in_memory(memory_service: BaseMemoryService) -> None:
    draw = random.Random(5)
    vocabulary = [f"w{number}" for number in range(60) for _ in range(60 - number)]
    entries = [_entry(" ".join(draw.choices(vocabulary, k=8)), str(number)) for number in range(300)]
    known = InMemoryMemoryService()
    for service in (known, memory_service):
        await service.add_memories(**_WHERE, memories=entries)
    for _ in range(30):
        query = " ".join(draw.choices(vocabulary, k=3))
        assert await _texts(memory_service, query) == await _texts(known, query)


async def test_words_of_many_entries_rank_what_rarer_words_found(memory_service: BaseMemoryService) -> None:
    entries = [_entry(f"the note {number}" + " of tea" * (number % 100 == 7), str(number)) for number in range(3000)]
    await memory_service.add_memories(**_WHERE, memories=entries)
    assert await _texts(memory_service, "the tea", limit=1) == ["the note 2907 of tea"]
    assert await _texts(memory_service, "the 5", limit=2) == ["the note 5", "the note 2999"]
    assert await _texts(memory_service, "the", limit=1) == ["the note 2999"]


async def test_adk_s_constructor_takes_a_path_or_a_uri(tmp_path: Path) -> None:
    for written in (tmp_path / "a.db", f"sqlite:///{tmp_path}/a.db"):
        service = SqliteMemoryService(db_path=written)
        assert await _texts(service, "tea") == []
        await service.close()
    assert (tmp_path / "a.db").exists()


def _entry(text: str, entry_id: str) -> MemoryEntry:
    return MemoryEntry(id=entry_id, content=Content(parts=[Part(text=text)]))


async def _texts(service: BaseMemoryService, query: str, limit: int = 10) -> list[str]:
    found = await service.search_memory(**_WHERE, query=query, limit=limit)
    return [(entry.content.parts or [Part()])[0].text or "" for entry in found.memories]
