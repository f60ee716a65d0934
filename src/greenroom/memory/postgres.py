"""Memories in PostgreSQL, with vectors where the server has the extension pgvector.

As in SQLite, the signs of the components find candidates, which are ranked by their whole vectors.
"""

from __future__ import annotations

import logging
from array import array
from typing import TYPE_CHECKING, Any

from greenroom.errors import StorageError
from greenroom.memory.sql import OWNER, Owner, Search, SqlMemoryService, Statement
from greenroom.postgres.database import Database

if TYPE_CHECKING:
    from greenroom.embeddings.embeddings import BaseEmbeddings

_log = logging.getLogger("greenroom.memory")

_MAX_SCANNED = 200_000
"""Of a user with more vectors, the newest are searched."""
_CANDIDATES = 200

# Not a numbered migration: those must succeed on servers without the extension, which may get it later.
_TABLES = (
    "CREATE EXTENSION IF NOT EXISTS vector",
    """
    CREATE TABLE IF NOT EXISTS memory_vectors (
        entry bigint PRIMARY KEY REFERENCES memories ON DELETE CASCADE,
        owner bigint NOT NULL,
        model text COLLATE "C" NOT NULL,
        signature bit varying NOT NULL,
        vector vector NOT NULL
    )
    """,
    """
    CREATE INDEX IF NOT EXISTS memory_vectors_of_owner ON memory_vectors (owner, model, entry) INCLUDE (signature)
    """,
)
_VECTOR = "CAST(CAST(? AS text) AS vector)"
_ADD_VECTOR = """
    INSERT INTO memory_vectors (entry, owner, model, signature, vector)
    SELECT number, owner, CAST(? AS text), binary_quantize(vector), vector
    FROM memories, (SELECT CAST(CAST(? AS text) AS vector) AS vector) AS given
    WHERE {}
    ON CONFLICT (entry) DO UPDATE SET model = excluded.model, signature = excluded.signature, vector = excluded.vector
    WHERE memory_vectors.model <> excluded.model
"""
_NEAREST = f"""
    WITH candidates AS (
        SELECT entry FROM (
            SELECT entry, signature FROM memory_vectors WHERE owner = {OWNER} AND model = ?
            ORDER BY entry DESC LIMIT {_MAX_SCANNED}
        ) AS newest
        ORDER BY CAST(signature AS bit varying) <~> binary_quantize({_VECTOR}) LIMIT {_CANDIDATES}
    )
    SELECT entry FROM memory_vectors JOIN candidates USING (entry) ORDER BY vector <=> {_VECTOR} LIMIT ?
"""


class PostgresMemoryService(SqlMemoryService):
    _database: Database

    def __init__(self, uri: str, *, embeddings: BaseEmbeddings | None = None) -> None:
        """embeddings: finds entries by their meaning, too, where the server has pgvector and the role may install it;
        closed with the service. Raises MissingExtra.
        """
        super().__init__(Database.open(uri), embeddings)
        self._is_prepared = False

    async def _prepare_vectors(self) -> None:
        embeddings = self._embeddings
        if self._is_prepared or embeddings is None:
            return
        try:
            await self._database.execute_all([(statement, ()) for statement in _TABLES])
        except StorageError as error:
            _log.warning("memories in %s are found by their words only: %s", self._database.name, error)
            await embeddings.close()
            self._embeddings = None
        self._is_prepared = True

    def _add_vector(self, which: str, key: tuple[Any, ...], model: str, vector: array[float]) -> Statement:
        return _ADD_VECTOR.format(which), (model, _text(vector), *key)

    def _nearest(self, owner: Owner, model: str, vector: array[float], limit: int) -> Search[list[int]]:
        rows = yield _NEAREST, (*owner, model, _text(vector), _text(vector), limit)
        return [entry for (entry,) in rows]


def _text(vector: array[float]) -> str:
    return str(vector.tolist())
