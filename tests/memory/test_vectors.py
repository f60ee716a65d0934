"""Memories in SQLite and PostgreSQL are found by their meaning, too, when embeddings are configured."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from greenroom.embeddings.embeddings import BaseEmbeddings
from greenroom.errors import ModelError
from greenroom.memory.from_uri import memory_service_from_uri
from greenroom.memory.service import BaseMemoryService
from greenroom.memory.signatures import NONE
from greenroom.postgres.connection import connect
from greenroom.records.base import JsonObject
from greenroom.records.content import Content, Part
from greenroom.records.event import Event
from greenroom.records.listings import MemoryEntry
from greenroom.records.session import Session
from tests.postgres.postgres_server import PostgresServer

_HERE: JsonObject = {"app_name": "concierge", "user_id": "ann"}
_TOPICS = (("bicycle", "bike", "cycling"), ("tea", "drink", "beverage"), ("dog", "pet", "puppy"))


class _Topics(BaseEmbeddings):
    """A component for each topic, and noise that a text always has."""

    def __init__(self, model: str = "topics") -> None:
        super().__init__(model)
        self.embedded: list[str] = []
        self.fails = False

    async def embed_batch(self, texts: Sequence[str], *, is_query: bool) -> Sequence[Sequence[float]]:
        if self.fails:
            raise ModelError("the provider is down", model=self.model)
        self.embedded += texts
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> list[float]:
        noise = random.Random(text)
        topics = [4.0 * any(word in text.lower() for word in words) for words in _TOPICS]
        return [*(topic - 1 for topic in topics), *(noise.gauss(0, 0.1) for _ in range(61))]


@pytest.fixture(params=["sqlite", "postgres"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/memory.db" if request.param == "sqlite" else request.getfixturevalue("postgres_uri")


@pytest.fixture
def embeddings() -> _Topics:
    return _Topics()


@pytest.fixture
async def memory(uri: str, embeddings: _Topics) -> AsyncIterator[BaseMemoryService]:
    service = memory_service_from_uri(uri, embeddings=embeddings)
    yield service
    await service.close()


async def test_an_entry_without_a_common_word_is_found(memory: BaseMemoryService) -> None:
    await _add(memory, "My bicycle is blue", "I drink tea", "Rex is my dog")
    assert (await _found(memory, "which puppy?"))[0] == "Rex is my dog"
    assert (await _found(memory, "cycling", limit=1)) == ["My bicycle is blue"]


async def test_words_and_meaning_are_ranked_together(memory: BaseMemoryService) -> None:
    """Reciprocal rank fusion: what both rankings have comes before what only one has."""
    await _add(memory, "the bike of Clara", "the bicycle of Tom", "the house of Tom")
    assert (await _found(memory, "cycling with Tom"))[0] == "the bicycle of Tom"


async def test_users_are_apart_and_deleted_vectors_are_gone(memory: BaseMemoryService) -> None:
    await _add(memory, *(f"dog {number}" for number in range(300)))
    bob: JsonObject = {**_HERE, "user_id": "bob"}
    assert (await memory.search_memory(**bob, query="puppy")).memories == []
    assert len(await _found(memory, "puppy")) == 10
    await memory.delete_user(**_HERE)
    assert await _found(memory, "puppy") == []
    await _add(memory, "one more dog")
    assert await _found(memory, "puppy") == ["one more dog"]


async def _until_found(memory: BaseMemoryService, query: str, text: str) -> None:
    async with asyncio.timeout(5):
        while (await _found(memory, query))[:1] != [text]:
            await asyncio.sleep(0.01)


async def test_vectors_survive_a_restart(uri: str, memory: BaseMemoryService) -> None:
    await _add(memory, "Rex is my dog")
    topics = _Topics()
    again = memory_service_from_uri(uri, embeddings=topics)
    assert await _found(again, "puppy") == ["Rex is my dog"]
    await again.close()
    assert topics.embedded == ["puppy"]


async def test_vectors_of_another_model_are_replaced(uri: str, memory: BaseMemoryService) -> None:
    await _add(memory, "Rex is my dog")
    others = _Topics("others")
    again = memory_service_from_uri(uri, embeddings=others)
    await _until_found(again, "puppy", "Rex is my dog")
    await again.close()
    assert others.embedded.count("Rex is my dog") == 1


async def test_entries_without_vectors_get_them_in_the_background(uri: str) -> None:
    plain = memory_service_from_uri(uri)
    await _add(plain, "Rex is my dog", *(f"entry {number}" for number in range(300)), "my bicycle is blue")
    await plain.close()
    down = _Topics()
    down.fails = True
    service = memory_service_from_uri(uri, embeddings=down)
    assert await _found(service, "puppy") == []
    await service.close()
    topics = _Topics()
    service = memory_service_from_uri(uri, embeddings=topics)
    await _until_found(service, "puppy", "Rex is my dog")
    await _until_found(service, "cycling", "my bicycle is blue")
    await service.close()
    assert topics.embedded.count("Rex is my dog") == topics.embedded.count("entry 299") == 1


async def test_only_new_events_are_embedded(memory: BaseMemoryService, embeddings: _Topics) -> None:
    session = Session(**_HERE, id="s-1")
    session.events.extend([_event("a dog"), _event("a bike")])
    await memory.add_session_to_memory(session)
    session.events.append(_event("a tea"))
    await memory.add_session_to_memory(session)
    await memory.add_events_to_memory(**_HERE, session_id="s-1", events=list(session.events))
    assert embeddings.embedded == ["a dog", "a bike", "a tea"]


async def test_a_provider_that_is_down_fails_writes_and_leaves_searches_their_words(
    memory: BaseMemoryService, embeddings: _Topics, caplog: pytest.LogCaptureFixture
) -> None:
    await _add(memory, "Rex is my dog")
    embeddings.fails = True
    with pytest.raises(ModelError):
        await _add(memory, "another dog")
    assert await _found(memory, "rex") == ["Rex is my dog"]
    assert await _found(memory, "puppy") == []
    assert "searched by words only: the provider is down" in caplog.text


class _Clusters(BaseEmbeddings):
    """Texts whose first words end with the same number are near to each other."""

    async def embed_batch(self, texts: Sequence[str], *, is_query: bool) -> Sequence[Sequence[float]]:
        draws = [(random.Random(text.split()[0][1:]), random.Random(text)) for text in texts]
        return [[center.gauss(0, 1) + noise.gauss(0, 0.5) for _ in range(128)] for center, noise in draws]


async def test_nearest_are_those_of_a_whole_scan(uri: str) -> None:
    embeddings = _Clusters("clusters")
    memory = memory_service_from_uri(uri, embeddings=embeddings)
    texts = [f"e{number % 5} entry {number}" for number in range(1200)]
    await _add(memory, *texts)
    vectors = dict(zip(texts, await embeddings.embed(texts), strict=True))
    hits = 0
    for query in [f"q{number % 5} ask" + "!" * number for number in range(10)]:
        [vector] = await embeddings.embed([query], is_query=True)
        exact = sorted(texts, key=lambda text: -sum(map(float.__mul__, vector, vectors[text])))[:5]
        hits += len({*exact} & {*await _found(memory, query, limit=5)})
    await memory.close()
    assert hits >= 0.9 * 50


_COPY_ENTRY = """
    INSERT INTO memories (owner, source, id, seconds, data)
    SELECT owner, 'another', $1, seconds, replace(data, 'first', $1) FROM memories WHERE data LIKE '%first%'
"""
_COPY_VECTOR = """
    INSERT INTO memory_vectors (entry, owner, model, signature, vector)
    SELECT number, memories.owner, model, signature, vector FROM memories, memory_vectors WHERE memories.id = $1 LIMIT 1
"""


async def test_what_another_process_commits_late_is_found(postgres_uri: str, embeddings: _Topics) -> None:
    """Entries with lesser numbers than those that were read already."""
    memory = memory_service_from_uri(postgres_uri, embeddings=embeddings)
    await _add(memory, "first")
    assert await _found(memory, "puppy") == ["first"]
    connection = await connect(postgres_uri)
    async with connection.transaction():
        await connection.execute(_COPY_ENTRY, "late")
        await connection.execute(_COPY_VECTOR, "late")
        await _add(memory, "second")
        for _ in range(2):
            assert {*await _found(memory, "puppy")} == {"first", "second"}
    assert {*await _found(memory, "puppy")} == {"first", "second", "late"}
    await connection.execute(_COPY_ENTRY, "without vector")
    await _add(memory, "third")
    assert {*await _found(memory, "puppy")} == {"first", "second", "late", "third"}
    await connection.execute(_COPY_VECTOR, "without vector")
    assert {*await _found(memory, "puppy")} == {"first", "second", "late", "third", "without vector"}
    await connection.close()
    await memory.close()


def test_signatures_that_are_read_again_are_kept_once() -> None:
    known = NONE.extended([(1, b"a" * 8), (3, b"c" * 8)], read_to=100, repeated=[3])
    known = known.extended([(3, b"c" * 8), (2, b"b" * 8)], read_to=101)
    assert (known.entries, known.bits) == ([1, 3, 2], b"a" * 8 + b"c" * 8 + b"b" * 8)


async def test_vectors_of_the_earlier_release_are_found(postgres_uri: str, embeddings: _Topics) -> None:
    """Its table has no numbers of transactions. It may run on beside this one."""
    memory = memory_service_from_uri(postgres_uri, embeddings=embeddings)
    await _add(memory, "a dog", "a bike")
    await memory.close()
    connection = await connect(postgres_uri)
    await connection.execute("ALTER TABLE memory_vectors DROP COLUMN changed")
    services = [memory_service_from_uri(postgres_uri, embeddings=_Topics()) for _ in range(3)]
    for found in await asyncio.gather(*(_found(service, "puppy") for service in services)):
        assert found == ["a dog", "a bike"]
    await connection.execute(_COPY_ENTRY.replace("first", "a dog"), "late")
    await connection.execute(_COPY_VECTOR, "late")
    for service in services:
        assert {*await _found(service, "puppy")} == {"a dog", "a bike", "late"}
        await service.close()
    await connection.close()


async def test_postgresql_without_pgvector_searches_words(
    postgres_server: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    """A role that may not create the extension, as where it is not installed."""
    uri = postgres_server.make_database("no_vectors")
    plain = memory_service_from_uri(uri)
    await plain.add_memories(**_HERE, memories=[MemoryEntry(content=Content(parts=[Part(text="a dog")]))])
    await plain.close()
    for statement in (
        "CREATE ROLE lowly LOGIN",
        "GRANT SELECT, INSERT, DELETE ON ALL TABLES IN SCHEMA public TO lowly",
    ):
        await _execute(uri, statement)
    service = memory_service_from_uri(uri.replace("postgres@", "lowly@"), embeddings=_Topics())
    assert (await _found(service, "dog"), await _found(service, "puppy")) == (["a dog"], [])
    await _add(service, "a cat")
    await service.close()
    assert caplog.text.count("are found by their words only") == 1
    await _execute(uri, "DROP OWNED BY lowly")
    await _execute(uri, "DROP ROLE lowly")
    postgres_server.drop_database("no_vectors")


async def _execute(uri: str, statement: str) -> None:
    from greenroom.postgres.database import Database

    database = Database.open(uri)
    await database.execute(statement)
    await database.close()


def _event(text: str) -> Event:
    return Event(author="ann", content=Content(parts=[Part(text=text)]))


async def _add(memory: BaseMemoryService, *texts: str) -> None:
    memories = [MemoryEntry(content=Content(parts=[Part(text=text)])) for text in texts]
    await memory.add_memories(**_HERE, memories=memories)


async def _found(memory: BaseMemoryService, query: str, limit: int = 10) -> list[str]:
    found = await memory.search_memory(**_HERE, query=query, limit=limit)
    return [entry.content.text() for entry in found.memories]
