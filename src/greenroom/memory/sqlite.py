"""Memories in a SQLite file.

Vectors are searched in two steps: the signs of their components, one bit each, are compared with the query's for all
entries of the user, and the nearest of those are ranked by their whole vectors. The bits are kept in memory.
"""

from __future__ import annotations

import math
import os
import struct
import threading
from array import array
from collections import Counter
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeVar

from greenroom.memory.sql import OWNER, Owner, Search, SqlMemoryService, Statement, as_json

if TYPE_CHECKING:
    import sqlite3

    from greenroom.embeddings.embeddings import BaseEmbeddings
    from greenroom.sqlite.database import Database

T = TypeVar("T")

_MAX_SCANNED = 200_000
"""Of a user with more vectors, the newest are searched."""
_MAX_CACHED = 400_000
_CANDIDATES = 200

_ADD_VECTOR = """
    INSERT INTO memory_vectors (owner, entry, model, signature, vector)
    SELECT owner, number, ?, ?, ? FROM memories WHERE {}
    ON CONFLICT (entry) DO UPDATE SET model = excluded.model, signature = excluded.signature, vector = excluded.vector
    WHERE memory_vectors.model <> excluded.model
"""
_SIGNATURES = f"""
    SELECT entry, signature FROM memory_vectors WHERE owner = {OWNER} AND model = ? AND entry > ?
    ORDER BY entry DESC LIMIT {_MAX_SCANNED}
"""
_VECTORS = "SELECT entry, vector FROM memory_vectors WHERE entry IN (SELECT value FROM json_each(?))"


class SqliteMemoryService(SqlMemoryService):
    _database: Database

    def __init__(self, db_path: str | os.PathLike[str], *, embeddings: BaseEmbeddings | None = None) -> None:
        """db_path: a file, the sessions' or another, or `sqlite:///file`; opened on the first call. embeddings: finds
        entries by their meaning, too; closed with the service.
        """
        from greenroom.sqlite.database import Database

        super().__init__(Database.open(os.fspath(db_path).removeprefix("sqlite:///")), embeddings)
        self._cache = self._database.companion(_SignatureCache, _SignatureCache)

    async def _run(self, search: Search[T]) -> T:
        """All queries in one reading thread, without a turn of the event loop for each."""

        def read(cursor: sqlite3.Cursor) -> T:
            try:
                query, arguments = next(search)
                while True:
                    query, arguments = search.send(cursor.execute(query, arguments).fetchall())
            except StopIteration as end:
                return end.value

        return await self._database.read(read)

    def _add_vector(self, which: str, key: tuple[Any, ...], model: str, vector: array[float]) -> Statement:
        return _ADD_VECTOR.format(which), (model, _signature(vector), vector.tobytes(), *key)

    def _forget_cached_vectors(self) -> None:
        self._cache.clear()

    def _nearest(self, owner: Owner, model: str, vector: array[float], limit: int) -> Search[list[int]]:
        query = int.from_bytes(_signature(vector))
        while True:
            known = self._cache.of(owner, model)
            is_fresh = not known.entries
            rows = yield _SIGNATURES, (*owner, model, known.entries[-1] if known.entries else 0)
            near = self._cache.extended(known, rows).nearest(query, max(_CANDIDATES, limit))
            if not near:
                return []
            found = yield _VECTORS, (as_json(near),)
            if is_fresh or 2 * len(found) > len(near):
                break
            self._cache.drop(owner, model)  # most of what is nearest was deleted
        # Of vectors of length 1, the nearest have the greatest cosine; `math.dist` runs in C.
        whole = tuple(vector)
        unpack = struct.Struct(f"{len(whole)}f").unpack
        distances = {entry: math.dist(whole, unpack(data)) for entry, data in found if len(data) == 4 * len(whole)}
        return sorted(distances, key=distances.__getitem__)[:limit]


def _signature(vector: array[float]) -> bytes:
    bits = "".join("1" if value > 0 else "0" for value in vector)
    return int(bits, 2).to_bytes((len(bits) + 7) // 8)


class _Signatures:
    """Of one user's vectors of one model, in the order of their entries."""

    def __init__(self) -> None:
        self.entries: list[int] = []
        self.bits: list[int] = []

    def nearest(self, query: int, count: int) -> list[int]:
        """The entries whose bits differ least, at most twice `count`."""
        distances = [(bits ^ query).bit_count() for bits in self.bits]
        if len(distances) <= count:
            return list(self.entries)
        by_distance = sorted(Counter(distances).items())
        totals = accumulate(number for _, number in by_distance)
        most = next(distance for (distance, _), total in zip(by_distance, totals, strict=True) if total >= count)
        pairs = zip(self.entries, distances, strict=True)
        return [entry for entry, distance in pairs if distance <= most][-2 * count :]


class _SignatureCache:
    """Of the users who searched last. Entries are only added: those that were deleted have no vector any more."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: dict[tuple[Owner, str], _Signatures] = {}

    def of(self, owner: Owner, model: str) -> _Signatures:
        with self._lock:
            known = self._of[owner, model] = self._of.pop((owner, model), None) or _Signatures()
            cached = sum(len(each.entries) for each in self._of.values())
            for key in list(self._of)[:-1]:
                if cached <= _MAX_CACHED:
                    break
                cached -= len(self._of.pop(key).entries)
            return known

    def drop(self, owner: Owner, model: str) -> None:
        with self._lock:
            self._of.pop((owner, model), None)

    def clear(self) -> None:
        with self._lock:
            self._of.clear()

    def extended(self, known: _Signatures, rows: list[tuple[int, bytes]]) -> _Signatures:
        """rows: newest first; other threads may have added some of them."""
        with self._lock:
            last = known.entries[-1] if known.entries else 0
            new = [(entry, int.from_bytes(bits)) for entry, bits in reversed(rows) if entry > last]
            if new:
                # New lists, since other threads may be reading the present ones.
                known.entries = [*known.entries, *(entry for entry, _ in new)][-_MAX_SCANNED:]
                known.bits = [*known.bits, *(bits for _, bits in new)][-_MAX_SCANNED:]
            copy = _Signatures()
            copy.entries, copy.bits = known.entries, known.bits
            return copy
