"""Memories in a SQLite file.

Vectors are searched in two steps: the signs of their components, one bit each, are compared with the query's for all
entries of the user, and the nearest of those are ranked by their whole vectors. The bits are kept in memory.
"""

from __future__ import annotations

import importlib.util
import os
import threading
from array import array
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from greenroom.errors import MissingExtra
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
        entries by their meaning, too; closed with the service. Raises MissingExtra for embeddings without numpy.
        """
        if embeddings is not None and importlib.util.find_spec("numpy") is None:
            raise MissingExtra("embeddings", "numpy")
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
        import numpy

        query = _signature(vector)
        while True:
            known = self._cache.of(owner, model)
            rows = yield _SIGNATURES, (*owner, model, known.last)
            near = self._cache.extended(owner, model, rows, len(query)).nearest(query, max(_CANDIDATES, limit))
            if not near:
                return []
            found = yield _VECTORS, (as_json(near),)
            if known is _NONE or 2 * len(found) > len(near):
                break
            self._cache.drop(owner, model)  # most of what is nearest was deleted
        whole = vector.tobytes()
        found = [(entry, data) for entry, data in found if len(data) == len(whole)]
        vectors = numpy.frombuffer(b"".join(data for _, data in found), "f4").reshape(-1, len(vector))
        cosines = vectors @ numpy.frombuffer(whole, "f4")
        return [found[at][0] for at in numpy.argsort(-cosines)[:limit]]


def _signature(vector: array[float]) -> bytes:
    """A bit for each component, in whole 64-bit words."""
    bits = "".join("1" if value > 0 else "0" for value in vector)
    return int(bits, 2).to_bytes(-(-len(bits) // 64) * 8)


class _Signatures(NamedTuple):
    """Of one user's vectors of one model, in the order of their entries."""

    entries: list[int]
    bits: bytes

    @property
    def last(self) -> int:
        return self.entries[-1] if self.entries else 0

    def nearest(self, query: bytes, count: int) -> list[int]:
        """The `count` entries whose bits differ least."""
        import numpy

        if len(self.entries) <= count:
            return self.entries
        rows = numpy.frombuffer(self.bits, "u8").reshape(-1, len(query) // 8)
        distances = numpy.bitwise_count(rows ^ numpy.frombuffer(query, "u8")).sum(axis=1, dtype="u4")
        return [self.entries[at] for at in numpy.argpartition(distances, count)[:count]]


_NONE = _Signatures([], b"")


class _SignatureCache:
    """Of the users who searched last. Entries are only added: those that were deleted have no vector any more."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: dict[tuple[Owner, str], _Signatures] = {}

    def of(self, owner: Owner, model: str) -> _Signatures:
        with self._lock:
            return self._of.get((owner, model), _NONE)

    def drop(self, owner: Owner, model: str) -> None:
        with self._lock:
            self._of.pop((owner, model), None)

    def clear(self) -> None:
        with self._lock:
            self._of.clear()

    def extended(self, owner: Owner, model: str, rows: list[tuple[int, bytes]], size: int) -> _Signatures:
        """rows: newest first; other threads may have added some of them. size: of a signature in bytes."""
        with self._lock:
            known = self._of.pop((owner, model), _NONE)
            new = [(entry, bits[-size:].rjust(size, b"\0")) for entry, bits in reversed(rows) if entry > known.last]
            if new:
                # Copied, since other threads may be reading the present ones.
                entries = [*known.entries, *(entry for entry, _ in new)][-_MAX_SCANNED:]
                bits = b"".join((known.bits, *(bits for _, bits in new)))[-size * len(entries) :]
                known = _Signatures(entries, bits)
            self._of[owner, model] = known
            cached = sum(len(each.entries) for each in self._of.values())
            for key in list(self._of)[:-1]:
                if cached <= _MAX_CACHED:
                    break
                cached -= len(self._of.pop(key).entries)
            return known
