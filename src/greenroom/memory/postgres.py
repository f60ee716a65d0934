"""Memories in PostgreSQL, with vectors where the server has the extension pgvector.

Signatures of vectors are kept in memory, and rows that other processes have committed since the last read are added.
Numbers of entries don't say which: a transaction may commit after one with greater numbers. Numbers of transactions do:

    a search reads in a snapshot with xmin 100: all transactions before 100 have ended, 100 and later may be running
    transaction 102 adds entry 8 and commits, while transaction 101, which adds entry 7, is running
    the next search reads rows `changed` by 100 or later: entry 8; its xmin is 101, so 102's rows will be read again
    transaction 101 commits; the next search reads rows changed by 101 or later: entries 7 and 8, which it has
"""

from __future__ import annotations

import logging
from array import array
from typing import TYPE_CHECKING, Any

from greenroom.errors import KeyRefused, StorageError
from greenroom.memory.signatures import MAX_SCANNED, NONE, Owner, Signatures, check_numpy, signs
from greenroom.memory.sql import OWNER, Search, SqlMemoryService, Statement
from greenroom.postgres.database import Database

if TYPE_CHECKING:
    from greenroom.embeddings.embeddings import BaseEmbeddings
    from greenroom.encryption.key_provider import KeyProvider

_log = logging.getLogger("greenroom.memory")

# Not a numbered migration: those must succeed on servers without the extension, which may get it later.
_TABLES = (
    "CREATE EXTENSION IF NOT EXISTS vector",
    """
    CREATE TABLE IF NOT EXISTS memory_vectors (
        entry bigint PRIMARY KEY REFERENCES memories ON DELETE CASCADE,
        owner bigint NOT NULL,
        model text COLLATE "C" NOT NULL,
        signature bit varying NOT NULL,
        vector vector NOT NULL,
        changed xid8 NOT NULL DEFAULT pg_current_xact_id()
    )
    """,
    # Of earlier releases. Without rewriting the table, and without locking it when there is nothing to do.
    """
    DO $$ BEGIN
        IF NOT EXISTS (
            SELECT 1 FROM pg_attribute WHERE attrelid = 'memory_vectors'::regclass AND attname = 'changed'
        ) THEN
            ALTER TABLE memory_vectors ADD COLUMN IF NOT EXISTS changed xid8 NOT NULL DEFAULT '0';
            ALTER TABLE memory_vectors ALTER COLUMN changed SET DEFAULT pg_current_xact_id();
        END IF;
    END $$
    """,
    """
    CREATE INDEX IF NOT EXISTS memory_vectors_of_owner ON memory_vectors (owner, model, entry) INCLUDE (signature)
    """,
    "CREATE INDEX IF NOT EXISTS memory_vectors_changed ON memory_vectors (owner, model, changed)",
)
_ADD_VECTOR = """
    INSERT INTO memory_vectors (entry, owner, model, signature, vector)
    SELECT number, owner, CAST(? AS text), binary_quantize(vector), vector
    FROM memories, (SELECT CAST(CAST(? AS text) AS vector) AS vector) AS given
    WHERE {}
    ON CONFLICT (entry) DO UPDATE
    SET model = excluded.model, signature = excluded.signature, vector = excluded.vector, changed = excluded.changed
    WHERE memory_vectors.model <> excluded.model
"""
_OF_OWNER = f"FROM memory_vectors WHERE owner = {OWNER.replace('?', '$1', 1).replace('?', '$2')} AND model = $3"
_WHOLE = f"{_OF_OWNER} AND bit_length(signature) = $4 ORDER BY entry DESC LIMIT {MAX_SCANNED}"
# Greater than any of this snapshot are only numbers of transactions of a server from which the rows were restored.
_CHANGED_SINCE = f"""
    {_OF_OWNER} AND bit_length(signature) = $4
        AND changed < pg_snapshot_xmax(pg_current_snapshot()) AND changed >= CAST(CAST({{}} AS text) AS xid8)
    ORDER BY changed DESC LIMIT {MAX_SCANNED}
"""
# A signature is sent with its length in 4 bytes before it.
_SIGNATURES = f"""
    SELECT CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS text) AS bigint),
        ARRAY(SELECT entry {_CHANGED_SINCE.format("pg_snapshot_xmin(pg_current_snapshot())")}),
        array_agg(entry), string_agg(substr(varbit_send(signature) || '\\x00000000000000', 5, $5), '')
    FROM (SELECT entry, signature {{}}) AS newest_first
"""
_ALL_SIGNATURES = _SIGNATURES.format(_WHOLE)
_LATER_SIGNATURES = _SIGNATURES.format(_CHANGED_SINCE.format("$6"))
_BY_COSINE = """
    SELECT entry FROM memory_vectors WHERE entry = ANY(CAST($1 AS bigint[])) AND model = $2
    ORDER BY vector <=> (SELECT CAST(CAST($3 AS text) AS vector))
"""


class PostgresMemoryService(SqlMemoryService):
    _database: Database

    def __init__(self, uri: str, *, embeddings: BaseEmbeddings | None = None, keys: KeyProvider | None = None) -> None:
        """Opens a database on the first call.

        embeddings: for search by meaning, where the server has pgvector and the role may install it; closed with the
        service. keys: encrypt what all services on the database store. With them, memories are found by their words
        only: pgvector can't search encrypted vectors. Raises MissingExtra, also for embeddings without numpy; and
        KeyRefused for embeddings with keys.
        """
        if embeddings is not None and keys is not None:
            raise KeyRefused(
                "PostgreSQL can't search encrypted vectors: unset memory_embeddings, or keep memories in SQLite"
            )
        if embeddings is not None:
            check_numpy()
        super().__init__(Database.open(uri), embeddings, keys)
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

    def _add_vector(
        self, which: str, key: tuple[Any, ...], owner: Owner, model: str, vector: array[float]
    ) -> Statement:
        return _ADD_VECTOR.format(which), (model, _text(vector), *key)

    def _signature(self, vector: array[float]) -> bytes:
        bits = signs(vector)
        size = _size(vector)
        return int(bits.ljust(size * 8, "0"), 2).to_bytes(size)

    def _read_signatures(
        self, owner: Owner, model: str, cached: Signatures, vector: array[float]
    ) -> Search[Signatures]:
        size = _size(vector)
        arguments = (*owner, model, len(vector), size)
        if cached is NONE:
            rows = yield _ALL_SIGNATURES, arguments
        else:
            rows = yield _LATER_SIGNATURES, (*arguments, str(cached.read_to))
        [(read_to, repeated, entries, bits)] = rows
        newest_first = [(entry, bits[at * size : (at + 1) * size]) for at, entry in enumerate(entries or ())]
        return cached.extended(reversed(newest_first), read_to=read_to, repeated=repeated)

    def _by_cosine(self, owner: Owner, entries: list[int], model: str, vector: array[float]) -> Search[list[int]]:
        rows = yield _BY_COSINE, (entries, model, _text(vector))
        return [entry for (entry,) in rows]


def _size(vector: array[float]) -> int:
    """Bytes of a signature, in whole 64-bit words."""
    return -(-len(vector) // 64) * 8


def _text(vector: array[float]) -> str:
    return str(vector.tolist())
