"""Memories in a database, by the statements that SQLite and PostgreSQL share.

A table holds which entries contain a word. The databases' own full-text search ranks by all users' entries; here each
user's are counted, and the cost of a search is bounded: words that many entries contain don't find entries, but only
rank those which rarer words found, unless there are none.

Of "the blue bicycle", "the" is in 50,000 entries, "blue" in 300 and "bicycle" in 20: the candidates are the 320 with
"blue" or "bicycle"; each is ranked by all three words.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from abc import abstractmethod
from array import array
from collections.abc import Collection, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from greenroom.encryption.key_provider import KeyProvider
from greenroom.errors import GreenroomError
from greenroom.log.state import kept_events
from greenroom.memory.entries import (
    MANY_ENTRIES,
    MANY_MATCHES,
    changed_entry,
    entries_of_events,
    entries_of_memories,
    fused,
    number_of,
    page_of,
    text_of_entry,
    weight,
    words_of_entry,
)
from greenroom.memory.service import BaseMemoryService
from greenroom.memory.signatures import NONE, Owner, SignatureCache, Signatures
from greenroom.memory.words import words_of_query
from greenroom.records import wire
from greenroom.records.base import JsonObject
from greenroom.records.content import Content
from greenroom.records.event import Event
from greenroom.records.listings import ListMemoriesResponse, MemoryEntry, SearchMemoryResponse
from greenroom.records.session import Session

if TYPE_CHECKING:
    from greenroom.embeddings.embeddings import BaseEmbeddings
    from greenroom.postgres.database import Database as PostgresDatabase
    from greenroom.sqlite.database import Database as SqliteDatabase

_log = logging.getLogger("greenroom.memory")

_read_entry = wire.decoder(MemoryEntry)

_MAX_CANDIDATES = 1000
_CANDIDATES = 200
"""Number of entries that are ranked by their full vectors, unless more are requested."""

_FUSED = 50
"""Number of entries of each ranking that are merged, unless more are requested."""

OWNER = "(SELECT number FROM memory_owners WHERE app_name = ? AND user_id = ?)"
_ADD_OWNER = "INSERT INTO memory_owners (app_name, user_id) VALUES (?, ?) ON CONFLICT DO NOTHING"
_DELETE_OWNER = "DELETE FROM memory_owners WHERE app_name = ? AND user_id = ?"
_ADD = f"""
    INSERT INTO memories (owner, source, id, seconds, data) VALUES ({OWNER}, ?, ?, ?, ?) ON CONFLICT DO NOTHING
"""
_ADD_WORDS = f"""
    INSERT INTO memory_words (owner, word, entry)
    SELECT owner, value, number FROM memories, json_each(CAST(? AS text))
    WHERE owner = {OWNER} AND source = ? AND memories.id = ? ON CONFLICT DO NOTHING
"""
_OF_SOURCE = f"SELECT number FROM memories WHERE owner = {OWNER} AND source = ?"
_WITH_ID = f"SELECT source, seconds, data FROM memories WHERE owner = {OWNER} AND id = ? ORDER BY source LIMIT 1"
_KNOWN = f"""
    SELECT id FROM memories
    WHERE owner = {OWNER} AND source = ? AND id IN (SELECT value FROM json_each(CAST(? AS text)))
"""
_OF_IDS = f"{_OF_SOURCE} AND id IN (SELECT value FROM json_each(CAST(? AS text)))"
_DATA_OF_SOURCE = f"SELECT id, data FROM memories WHERE owner = {OWNER} AND source = ?"
_OF_OWNER = f"SELECT number FROM memories WHERE owner = {OWNER}"
_LIST = f"SELECT number, source, id, data FROM memories WHERE owner = {OWNER} AND number > ? ORDER BY number LIMIT ?"
_COUNTS = f"""
    SELECT value, (
        SELECT count(*) FROM (
            SELECT 1 FROM memory_words WHERE owner = {OWNER} AND word = value LIMIT {MANY_MATCHES}
        ) AS counted
    ) FROM json_each(CAST(? AS text))
    UNION ALL
    SELECT '', count(*) FROM (SELECT 1 FROM memories WHERE owner = {OWNER} LIMIT {MANY_ENTRIES}) AS counted
"""
_OF_WORDS = f"""
    SELECT entry, word FROM memory_words
    WHERE owner = {OWNER} AND word IN (SELECT value FROM json_each(CAST(? AS text)))
"""
_MATCHES = f"{_OF_WORDS} AND entry IN (SELECT CAST(value AS bigint) FROM json_each(CAST(? AS text)))"
_NEWEST = f"SELECT entry, word FROM memory_words WHERE owner = {OWNER} AND word = ? ORDER BY entry DESC LIMIT ?"
_NUMBERED = "FROM memories WHERE number IN (SELECT CAST(value AS bigint) FROM json_each(CAST(? AS text)))"
_TIMES = f"SELECT number, seconds {_NUMBERED}"
_ENTRIES = f"SELECT number, source, id, data {_NUMBERED}"
_HAS_KEY = f"owner = {OWNER} AND source = ? AND memories.id = ?"
_HAS_NUMBER = "number = ?"
_WITHOUT_VECTOR = """
    SELECT memories.number, app_name, user_id, source, id, CASE
        WHEN EXISTS (SELECT 1 FROM memory_vectors WHERE entry = memories.number AND model = ?) THEN NULL ELSE data END
    FROM memories JOIN memory_owners ON memory_owners.number = owner
    WHERE memories.number > ? ORDER BY memories.number LIMIT 256
"""

Statement = tuple[str, tuple[Any, ...]]
Rows = list[tuple[Any, ...]]
T = TypeVar("T")
Search = Generator[Statement, Rows, T]
"""Yields queries, receives their rows, and returns the result."""


class SqlMemoryService(BaseMemoryService):
    """Ranks as InMemoryMemoryService does. Entries without words are not stored, since no search finds them.

    With embeddings, entries are ranked by their words and by their vectors, and the two ranks are united by reciprocal
    rank fusion: the nearest entries are found even without a common word.
    """

    def __init__(
        self,
        database: SqliteDatabase | PostgresDatabase,
        embeddings: BaseEmbeddings | None,
        keys: KeyProvider | None,
    ) -> None:
        """Takes ownership of `database`, which is closed with the service. keys: encrypt what all services on it
        store."""
        if keys is not None:
            database.encrypt(keys)
        self._database = database
        self._cache = database.companion(SignatureCache, SignatureCache)
        self._embeddings: BaseEmbeddings | None = embeddings
        self._filling: asyncio.Task[None] | None = None
        self._closed = False

    @abstractmethod
    def _add_vector(
        self, which: str, key: tuple[Any, ...], owner: Owner, model: str, vector: array[float]
    ) -> Statement:
        """Stores the vector of an owner's entry, unless it has a vector of this model. which: a condition with the
        values `key`.
        """

    @abstractmethod
    def _signature(self, vector: array[float]) -> bytes:
        """Returns the signs of the components as whole 64-bit words, as `_read_signatures` does for stored vectors."""

    @abstractmethod
    def _read_signatures(
        self, owner: Owner, model: str, cached: Signatures, vector: array[float]
    ) -> Search[Signatures]:
        """Extends the cached signatures of the owner's vectors, of the same dimension, by those stored since."""

    @abstractmethod
    def _by_cosine(self, owner: Owner, entries: list[int], model: str, vector: array[float]) -> Search[list[int]]:
        """Ranks the entries that have a vector of this model, nearest first."""

    def _nearest(self, owner: Owner, model: str, vector: array[float], limit: int) -> Search[list[int]]:
        """Numbers of the owner's entries, by the cosine of their vectors of this model.

        The signs of the components, one bit each, are kept in memory. They are compared with the query's for all
        entries of the user, and the nearest of those are ranked by their whole vectors.
        """
        signature = self._signature(vector)
        while True:
            cached = self._cache.get(owner, model)
            extended = yield from self._read_signatures(owner, model, cached, vector)
            self._cache.put(owner, model, cached, extended)
            near = extended.nearest(signature, max(_CANDIDATES, limit))
            if not near:
                return []
            best = yield from self._by_cosine(owner, near, model, vector)
            if cached is NONE or 2 * len(best) > len(near):
                return best[:limit]
            self._cache.drop(owner, model)  # most of the nearest entries were deleted

    async def _prepare_vectors(self) -> None:
        """Prepares the storage of vectors, or unsets `_embeddings`. Called before vectors are used."""

    async def _use_embeddings(self) -> BaseEmbeddings | None:
        await self._prepare_vectors()
        if self._embeddings is not None and self._filling is None and not self._closed:
            self._filling = asyncio.create_task(self._fill_vectors(self._embeddings))
        return self._embeddings

    async def _fill_vectors(self, embeddings: BaseEmbeddings) -> None:
        """Computes the vectors of entries that were stored without, or with another model. After an interruption, the
        next start continues."""
        last = 0
        added = 0

        try:
            while rows := await self._database.fetch(_WITHOUT_VECTOR, embeddings.model, last):
                last = rows[-1][0]
                texts = {
                    (number, app_name, user_id): text_of_entry(self._entry((app_name, user_id), source, entry_id, data))
                    for number, app_name, user_id, source, entry_id, data in rows
                    if data is not None
                }
                vectors = await embeddings.embed(list(texts.values()))
                if texts:
                    added += len(texts)
                    await self._database.execute_all(
                        [
                            self._add_vector(_HAS_NUMBER, (number,), (app_name, user_id), embeddings.model, vector)
                            for (number, app_name, user_id), vector in zip(texts, vectors, strict=True)
                        ]
                    )
        except GreenroomError as error:
            _log.warning("earlier memories are found by words only: %s", error)

        if added:
            self._cache.clear()  # entries that are older than others got vectors

    async def add_session_to_memory(self, session: Session) -> None:
        owner = (session.app_name, session.user_id)
        rows = await self._database.fetch(_DATA_OF_SOURCE, *owner, session.id)
        stored = {
            entry_id: self._database.codec.decode(data, "memories", *owner, session.id, entry_id)
            for entry_id, data in rows
        }
        entries = list(entries_of_events(kept_events(session.events)))
        changed = [(entry, seconds) for entry, seconds in entries if stored.get(entry.id) != wire.encode(entry)]
        removed = stored.keys() - {entry.id for entry, _ in entries} if not session.events.skipped else set[str]()
        replaced = removed | {entry.id or "" for entry, _ in changed}
        await self._replace(owner, session.id, replaced, changed)

    async def add_events_to_memory(
        self, *, app_name: str, user_id: str, session_id: str, events: Sequence[Event]
    ) -> None:
        await self._replace((app_name, user_id), session_id, (), list(entries_of_events(events)))

    async def add_memories(self, *, app_name: str, user_id: str, memories: Sequence[MemoryEntry]) -> None:
        entries = list(entries_of_memories(memories))
        await self._replace((app_name, user_id), "", [entry.id or "" for entry, _ in entries], entries)

    async def _replace(
        self, owner: Owner, source: str, ids: Collection[str], entries: list[tuple[MemoryEntry, float]]
    ) -> None:
        """Deletes the source's entries with these ids, then adds the missing ones."""
        deleted = _delete(_OF_IDS, *owner, source, as_json(ids)) if ids else []
        added = self._add(owner, source, entries) if entries else []
        embeddings = await self._use_embeddings()
        if embeddings is not None and entries:
            wanted = as_json(entry.id or "" for entry, _ in entries)
            rows = await self._database.fetch(_KNOWN, *owner, source, wanted)
            kept_ids = {entry_id for (entry_id,) in rows} - set(ids)
            texts = {entry.id or "": text_of_entry(entry) for entry, _ in entries if entry.id not in kept_ids}
            texts = {entry_id: text for entry_id, text in texts.items() if text}
            vectors = await embeddings.embed(list(texts.values()))
            for entry_id, vector in zip(texts, vectors, strict=True):
                key = *owner, source, entry_id
                added.append(self._add_vector(_HAS_KEY, key, owner, embeddings.model, vector))
        if deleted or added:
            await self._database.execute_all([*deleted, *added])

    async def change_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        memory_id: str,
        content: Content,
        custom_metadata: JsonObject | None = None,
    ) -> MemoryEntry | None:
        owner = (app_name, user_id)
        rows = await self._database.fetch(_WITH_ID, *owner, memory_id)
        if not rows:
            return None
        source, seconds, data = rows[0]
        entry = changed_entry(self._entry(owner, source, memory_id, data), content, custom_metadata)
        await self._replace(owner, source, [memory_id], [(entry, seconds)])
        return entry

    async def delete_memory(self, *, app_name: str, user_id: str, memory_id: str | None = None) -> None:
        if memory_id is not None:
            await self._database.execute_all(_delete(f"{_OF_OWNER} AND id = ?", app_name, user_id, memory_id))

    async def search_memory(self, *, app_name: str, user_id: str, query: str, limit: int = 10) -> SearchMemoryResponse:
        owner = (app_name, user_id)
        return SearchMemoryResponse(
            memories=await self._run(self._search(owner, query, limit, await self._embed(query)))
        )

    async def _embed(self, query: str) -> array[float] | None:
        embeddings = await self._use_embeddings()
        if embeddings is None or not query.strip():
            return None
        try:
            return (await embeddings.embed([query], is_query=True))[0]
        except GreenroomError as error:
            _log.warning("memories are searched by words only: %s", error)
            return None

    def _search(self, owner: Owner, query: str, limit: int, vector: array[float] | None) -> Search[list[MemoryEntry]]:
        digest = self._database.codec.digest
        words = [digest(word, "memory_words", *owner) for word in words_of_query(query)]
        depth = limit if vector is None else max(limit, _FUSED)
        best = (yield from _by_words(owner, words, depth)) if words else []
        if vector is not None and self._embeddings is not None:
            nearest = yield from self._nearest(owner, self._embeddings.model, vector, depth)
            best = fused(best, nearest)[:limit]
        rows = (yield _ENTRIES, (as_json(best),)) if best else []
        found = {number: self._entry(owner, source, entry_id, data) for number, source, entry_id, data in rows}
        return [found[entry] for entry in best if entry in found]

    def _entry(self, owner: Owner, source: str, entry_id: str, data: str) -> MemoryEntry:
        return _read_entry(self._database.codec.decode(data, "memories", *owner, source, entry_id))

    def _add(self, owner: Owner, source: str, entries: Iterable[tuple[MemoryEntry, float]]) -> list[Statement]:
        codec = self._database.codec
        statements: list[Statement] = [(_ADD_OWNER, owner)]
        for entry, seconds in entries:
            if words := words_of_entry(entry):
                key = (*owner, source, entry.id)
                indexed = sorted(codec.digest(word, "memory_words", *owner) for word in words)
                data = codec.encode(wire.encode(entry), "memories", *key)
                statements.append((_ADD, (*key, seconds, data)))
                statements.append((_ADD_WORDS, (as_json(indexed), *key)))
        return statements

    async def _run(self, search: Search[T]) -> T:
        """Runs each step in a thread, since a step may compare 200,000 signatures."""
        results: list[T] = []

        def step(rows: Rows | None) -> Statement | None:
            try:
                return search.send(rows) if rows is not None else next(search)
            except StopIteration as end:
                results.append(end.value)
                return None

        rows: Rows | None = None
        while statement := await asyncio.to_thread(step, rows):
            query, arguments = statement
            rows = await self._database.fetch(query, *arguments)
        return results[0]

    async def list_memories(
        self, *, app_name: str, user_id: str, limit: int = 100, page_token: str | None = None
    ) -> ListMemoriesResponse:
        rows = await self._database.fetch(_LIST, app_name, user_id, number_of(page_token), limit + 1)
        owner = app_name, user_id
        found = [(number, self._entry(owner, source, entry_id, data)) for number, source, entry_id, data in rows]
        return page_of(found, limit)

    async def delete_user(self, *, app_name: str, user_id: str) -> None:
        owner = (app_name, user_id)
        await self._database.execute_all([*_delete(_OF_OWNER, *owner), (_DELETE_OWNER, owner)])

    async def load_keys(self) -> None:
        await self._database.fetch("SELECT 1")

    @property
    def is_encrypted(self) -> bool:
        return not self._database.codec.is_plain

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            if self._filling is not None:
                self._filling.cancel()
                await asyncio.gather(self._filling, return_exceptions=True)
            await self._database.close()
            if self._embeddings is not None:
                await self._embeddings.close()


def _by_words(owner: Owner, words: list[str], limit: int) -> Search[list[int]]:
    """Numbers of entries, best first."""
    counted = yield _COUNTS, (*owner, as_json(words), *owner)
    counts: dict[str, int] = {word: count for word, count in counted if count}
    entries = counts.pop("", 0)
    rarest_first = sorted(counts, key=lambda word: counts[word])
    totals = itertools.accumulate(counts[word] for word in rarest_first)
    rare = [word for word, total in zip(rarest_first, totals, strict=True) if total <= _MAX_CANDIDATES]

    matches: set[tuple[int, str]] = set()
    if rare:
        matches.update((yield _OF_WORDS, (*owner, as_json(rare))))
    candidates = {entry for entry, _ in matches}

    common = rarest_first[len(rare) :]
    for word in common:
        if len(candidates) >= limit:
            break
        newest = yield _NEWEST, (*owner, word, max(_MAX_CANDIDATES - len(candidates), limit))
        candidates.update(entry for entry, _ in newest)
    if candidates and common:
        matches.update((yield _MATCHES, (*owner, as_json(common), as_json(candidates))))

    scores = dict.fromkeys(candidates, 0.0)
    for entry, word in sorted(matches):
        scores[entry] += weight(entries, counts[word])

    least = min(heapq.nlargest(limit, scores.values()), default=0.0)
    best = [entry for entry, score in scores.items() if score >= least]
    times: dict[int, float] = dict((yield _TIMES, (as_json(best),))) if best else {}
    return heapq.nlargest(limit, times, key=lambda entry: (scores[entry], times[entry], entry))


def _delete(selection: str, *arguments: Any) -> list[Statement]:
    return [
        (f"DELETE FROM memory_words WHERE entry IN ({selection})", arguments),
        (f"DELETE FROM memories WHERE number IN ({selection})", arguments),
    ]


def as_json(values: Iterable[str] | Iterable[int]) -> str:
    return wire.encode(list(values)).decode()
