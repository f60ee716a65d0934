"""Time of searches of one user's 100,000 memories, and the share of the best that they find."""

from __future__ import annotations

import asyncio
import itertools
import operator
import random
import statistics
import time
from array import array
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from benchmarks.bench import Bench
from benchmarks.report import Figure, Table, Target
from greenroom.embeddings.embeddings import BaseEmbeddings
from greenroom.memory.from_uri import memory_service_from_uri
from greenroom.memory.in_memory import InMemoryMemoryService
from greenroom.memory.service import BaseMemoryService
from greenroom.records.base import JsonObject
from greenroom.records.content import Content, Part
from greenroom.records.listings import MemoryEntry

OWNER: JsonObject = {"app_name": "bench", "user_id": "ann"}
ENTRIES, AT_ONCE = 100_000, 1000
SEARCHES, COMPARED = 100, 20
VOCABULARY = [f"word{number}" for number in range(20_000)]
FREQUENCIES = list(itertools.accumulate(1 / rank for rank in range(1, 20_001)))


class Clusters(BaseEmbeddings):
    """Vectors around 200 centers, as those of a real model: 384 components, the center's and as much noise."""

    def __init__(self) -> None:
        super().__init__("clusters")
        centers = random.Random(1)
        self._centers = [[centers.gauss(0, 64) for _ in range(384)] for _ in range(200)]

    async def embed_batch(self, texts: Sequence[str], *, is_query: bool) -> Sequence[Sequence[float]]:
        return [self._vector(random.Random(text)) for text in texts]

    def _vector(self, draw: random.Random) -> list[float]:
        return list(map(operator.add, draw.choice(self._centers), memoryview(draw.randbytes(384)).cast("b")))


def _text(draw: random.Random, words: int) -> str:
    return " ".join(draw.choices(VOCABULARY, cum_weights=FREQUENCIES, k=words))


async def _fill(service: BaseMemoryService, texts: Sequence[str]) -> None:
    for first in range(0, len(texts), AT_ONCE):
        batch = enumerate(texts[first : first + AT_ONCE], start=first)
        memories = [MemoryEntry(id=str(at), content=Content(parts=[Part(text=text)])) for at, text in batch]
        await service.add_memories(**OWNER, memories=memories)


async def _best(service: BaseMemoryService, query: str) -> list[str]:
    found = await service.search_memory(**OWNER, query=query, limit=5)
    return [entry.id or "" for entry in found.memories]


async def _figures(
    label: str, service: BaseMemoryService, queries: Sequence[str], best: Sequence[Sequence[str]]
) -> list[Figure]:
    """best: of the first queries, the five that a whole scan finds."""
    taken: list[float] = []
    hits = 0
    for at, query in enumerate(queries):
        started = time.perf_counter()
        found = await _best(service, query)
        taken.append(time.perf_counter() - started)
        hits += len({*found} & {*best[at]}) if at < len(best) else 0
    share = hits / sum(map(len, best))
    return [
        Figure(f"{label}: search, median", "ms", [], [statistics.median(taken) * 1e3], target=Target(at_most=20)),
        Figure(f"{label}: recall@5", "", [], [share], target=Target(at_least=0.9)),
    ]


async def _of_store(uri: str, store: str, texts: Sequence[str], queries: Sequence[str]) -> list[Figure]:
    whole = InMemoryMemoryService()
    await _fill(whole, texts)
    best = [await _best(whole, query) for query in queries]
    service = memory_service_from_uri(uri)
    try:
        await _fill(service, texts)
        return await _figures(f"{store}, words", service, queries, best)
    finally:
        await service.close()


async def _by_meaning(uri: str, store: str) -> list[Figure]:
    embeddings = Clusters()
    texts = [f"entry{number}" for number in range(ENTRIES)]
    queries = [f"question{number}" for number in range(SEARCHES)]
    vectors: list[array[float]] = await embeddings.embed(texts)
    best: list[list[str]] = []
    for query in queries[:COMPARED]:
        [vector] = await embeddings.embed([query], is_query=True)
        scores = [sum(map(operator.mul, vector, other)) for other in vectors]
        best.append([str(at) for at in sorted(range(ENTRIES), key=lambda at: -scores[at])[:5]])
    service = memory_service_from_uri(uri, embeddings=embeddings)
    try:
        await _fill(service, texts)
        await _best(service, "the first search of a process reads the signs of all vectors")
        return await _figures(f"{store}, vectors", service, queries, best)
    finally:
        await service.close()


@asynccontextmanager
async def _stores(bench: Bench) -> AsyncGenerator[dict[str, list[str]]]:
    """Two databases of each kind."""
    from tests.postgres.postgres_server import started_server

    server = await asyncio.to_thread(started_server)
    try:
        sqlite = [f"sqlite:///{bench.scratch}/memory-{number}.db" for number in range(2)]
        yield {"SQLite": sqlite, "PostgreSQL": [server.make_database(f"memory_{number}") for number in range(2)]}
    finally:
        await asyncio.to_thread(server.remove)


async def memory_search(bench: Bench) -> list[Table]:
    draw = random.Random(1)
    texts = [_text(draw, 12) for _ in range(ENTRIES)]
    queries = [_text(draw, 4) for _ in range(SEARCHES)]
    figures: list[Figure] = []
    async with _stores(bench) as stores:
        for store, (words, vectors) in stores.items():
            figures += await _of_store(words, store, texts, queries)
            figures += await _by_meaning(vectors, store)
    notes = [f"{ENTRIES:,} entries of one user, {SEARCHES} searches; recall against a ranking of all entries."]
    return [Table("Memory search", figures, notes)]
