"""Memories in a SQLite file."""

from __future__ import annotations

import os
from array import array
from typing import TYPE_CHECKING, Any, TypeVar

from greenroom.memory.signatures import MAX_SCANNED, Owner, Signatures, check_numpy, signs
from greenroom.memory.sql import OWNER, Search, SqlMemoryService, Statement, as_json

if TYPE_CHECKING:
    import sqlite3

    from greenroom.embeddings.embeddings import BaseEmbeddings
    from greenroom.encryption.key_provider import KeyProvider
    from greenroom.sqlite.database import Database

T = TypeVar("T")

_ADD_VECTOR = """
    INSERT INTO memory_vectors (owner, entry, model, signature, vector)
    SELECT owner, number, ?, ?, ? FROM memories WHERE {}
    ON CONFLICT (entry) DO UPDATE SET model = excluded.model, signature = excluded.signature, vector = excluded.vector
    WHERE memory_vectors.model <> excluded.model
"""
_SIGNATURES = f"""
    SELECT entry, signature FROM memory_vectors WHERE owner = {OWNER} AND model = ? AND entry > ?
    ORDER BY entry DESC LIMIT {MAX_SCANNED}
"""
_VECTORS = "SELECT entry, vector FROM memory_vectors WHERE entry IN (SELECT value FROM json_each(?))"


class SqliteMemoryService(SqlMemoryService):
    _database: Database

    def __init__(
        self,
        db_path: str | os.PathLike[str],
        *,
        embeddings: BaseEmbeddings | None = None,
        keys: KeyProvider | None = None,
    ) -> None:
        """Opens a file on the first call: the sessions' or another, given as a path or as `sqlite:///file`.

        embeddings: for search by meaning; closed with the service. keys: encrypt what all services on the file store.
        Raises MissingExtra for embeddings without numpy.
        """
        if embeddings is not None:
            check_numpy()
        from greenroom.sqlite.database import Database

        super().__init__(Database.open(os.fspath(db_path).removeprefix("sqlite:///")), embeddings, keys)

    async def _run(self, search: Search[T]) -> T:
        """Runs all queries in one reading thread, without returning to the event loop after each."""

        def read(cursor: sqlite3.Cursor) -> T:
            try:
                query, arguments = next(search)
                while True:
                    query, arguments = search.send(cursor.execute(query, arguments).fetchall())
            except StopIteration as end:
                return end.value

        return await self._database.read(read)

    def _add_vector(
        self, which: str, key: tuple[Any, ...], owner: Owner, model: str, vector: array[float]
    ) -> Statement:
        encode = self._database.codec.encode_bytes
        place = "memory_vectors", *owner, model
        return _ADD_VECTOR.format(which), (
            model,
            encode(_signature(vector), *place),
            encode(vector.tobytes(), *place),
            *key,
        )

    def _signature(self, vector: array[float]) -> bytes:
        return _signature(vector)

    def _read_signatures(
        self, owner: Owner, model: str, cached: Signatures, vector: array[float]
    ) -> Search[Signatures]:
        size = len(_signature(vector))
        rows = yield _SIGNATURES, (*owner, model, cached.read_to)
        decode = self._database.codec.decode_bytes
        signatures = ((entry, decode(bits, "memory_vectors", *owner, model)) for entry, bits in reversed(rows))
        padded = ((entry, bits[-size:].rjust(size, b"\0")) for entry, bits in signatures)
        return cached.extended(padded, read_to=rows[0][0] if rows else cached.read_to)

    def _by_cosine(self, owner: Owner, entries: list[int], model: str, vector: array[float]) -> Search[list[int]]:
        import numpy

        query = vector.tobytes()
        decode = self._database.codec.decode_bytes
        rows = yield _VECTORS, (as_json(entries),)
        stored = [(entry, decode(data, "memory_vectors", *owner, model)) for entry, data in rows]
        stored = [(entry, data) for entry, data in stored if len(data) == len(query)]
        vectors = numpy.frombuffer(b"".join(data for _, data in stored), "f4").reshape(-1, len(vector))
        cosines = vectors @ numpy.frombuffer(query, "f4")
        return [stored[at][0] for at in numpy.argsort(-cosines)]


def _signature(vector: array[float]) -> bytes:
    """A bit for each component, in whole 64-bit words."""
    bits = signs(vector)
    return int(bits, 2).to_bytes(-(-len(bits) // 64) * 8)
