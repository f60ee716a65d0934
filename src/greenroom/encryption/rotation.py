"""Encrypts the rows of a database again with the newest data key, while servers read and write them.

Rows are read in the order of their keys, a batch at a time, and a value is replaced only if it is still the one that
was read. How far a pass over a column has come is stored with each batch, so that a killed rotation continues there.
When all columns are done, rows may be left that a server wrote with the former key: passes are repeated until one finds
none.

The same encrypts a database that has plaintext: then plaintext isn't accepted any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec

from greenroom.encryption.codec import PREFIX, EncryptingCodec
from greenroom.encryption.columns import EncryptedColumn
from greenroom.encryption.key_ring import REFRESH_SECONDS
from greenroom.encryption.key_tables import FORBID_PLAINTEXT

T = TypeVar("T")

_BATCH = 200
_KEY_OF_ROTATION = "rotation"
_DONE = "done"

_STATE = "SELECT value FROM encryption_state WHERE name = ?"
_SAVE_STATE = """
    INSERT INTO encryption_state (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value
"""
_FORGET_ROTATION = "DELETE FROM encryption_state WHERE name LIKE 'rotation%'"
_DELETE_WORDS = "DELETE FROM memory_words WHERE entry = ?"
_ADD_WORDS = """
    INSERT INTO memory_words (owner, word, entry)
    SELECT owner, value, number FROM memories, json_each(CAST(? AS text)) WHERE number = ? ON CONFLICT DO NOTHING
"""
_SET_LABEL = "UPDATE feedback SET label = ? WHERE id = ?"
_SET_BLOB = "UPDATE blobs SET sha256 = ?, data = ? WHERE number = ? RETURNING number"
_SAME_BLOB = "SELECT number FROM blobs WHERE sha256 = ? AND number <> ?"
_MOVE_BLOB = "UPDATE event_blobs SET blob = ? WHERE blob = ?"
_DELETE_BLOB = "DELETE FROM blobs WHERE number = ?"


class Transaction(Protocol):
    async def fetch(self, statement: str, *arguments: Any) -> Sequence[Any]: ...


class Database(Protocol):
    """Either database, opened with keys."""

    async def fetch(self, query: str, *arguments: Any) -> Sequence[Any]: ...

    def transact(self, work: Callable[[Transaction], Coroutine[Any, Any, T]]) -> Awaitable[T]: ...

    async def execute(self, statement: str, *arguments: Any) -> None: ...


class Rotation:
    """Encrypts all rows of a database with one data key."""

    def __init__(
        self,
        database: Database,
        codec: EncryptingCodec,
        columns: Sequence[EncryptedColumn],
        *,
        words_of_memory: Callable[[bytes], Iterable[str]],
        settle_seconds: float = REFRESH_SECONDS + 2.0,
    ) -> None:
        """words_of_memory: returns the words of a memory's JSON, by which it is found. settle_seconds: after which all
        servers know a new key.
        """
        self._database = database
        self._codec = codec
        self._columns = columns
        self._words_of_memory = words_of_memory
        self._settle_seconds = settle_seconds
        self.rows = 0
        """Rows that were encrypted again."""

    async def run(self) -> None:
        """Adds a data key, or continues the rotation that was interrupted, and encrypts all rows with the newest key.

        Raises KeyRefused, StorageError, and DecryptionFailed for a row that can't be read.
        """
        await self._codec.ring.load()
        if await self._state(_KEY_OF_ROTATION) is None:
            key_id = await self._codec.ring.add_data_key()
            await self._database.execute(_SAVE_STATE, _KEY_OF_ROTATION, str(key_id))
            await asyncio.sleep(self._settle_seconds)

        while True:
            before = self.rows
            for column in self._columns:
                await self._encrypt(column)
            await self._database.execute(_FORGET_ROTATION)
            if self.rows == before:
                break
        await self._database.execute(FORBID_PLAINTEXT)

    async def _state(self, name: str) -> str | None:
        rows = await self._database.fetch(_STATE, name)
        return rows[0][0] if rows else None

    async def _encrypt(self, column: EncryptedColumn) -> None:
        name = f"{_KEY_OF_ROTATION}:{column.table}.{column.column}"
        known = await self._state(name)
        if known == _DONE:
            return
        after: Sequence[Any] = () if known is None else msgspec.json.decode(known)
        while rows := await self._rows(column, after):
            after = tuple(rows[-1][: len(column.key)])
            self.rows += await self._database.transact(partial(self._write, column, rows, name, after))
        await self._database.execute(_SAVE_STATE, name, _DONE)

    async def _rows(self, column: EncryptedColumn, after: Sequence[Any]) -> Sequence[Any]:
        """The next rows whose values the newest key hasn't encrypted: their keys, places and values."""
        newest = f"{PREFIX}{self._codec.ring.current_id()}:"
        key = ", ".join(f"{column.table}.{name}" for name in column.key)
        selected = ", ".join([key, *column.place, column.column])
        terms = [f"{column.column} IS NOT NULL", f"substr({column.column}, 1, {len(newest)}) <> ?"]
        if after:
            terms.append(f"({key}) > ({', '.join('?' * len(after))})")
        query = f"SELECT {selected} FROM {column.table} WHERE {' AND '.join(terms)} ORDER BY {key} LIMIT {_BATCH}"
        return await self._database.fetch(query, newest.encode() if column.is_binary else newest, *after)

    async def _write(
        self, column: EncryptedColumn, rows: Sequence[Any], name: str, after: Sequence[Any], transaction: Transaction
    ) -> int:
        """Replaces the values that are still the same. Returns their number."""
        is_key = " AND ".join(f"{part} = ?" for part in column.key)
        update = f"UPDATE {column.table} SET {column.column} = ? WHERE {is_key} AND {column.column} = ? RETURNING 1"
        count = 0
        for row in rows:
            key = row[: len(column.key)]
            place = row[len(column.key) : -1]
            if column.is_of_session and place[0] is None:
                continue  # its session is being deleted
            if column.table == "blobs":
                count += await self._write_blob(transaction, key[0], place[0], row[-1])
                continue

            encrypted = self._encrypted(column, row[-1], place)
            if not await transaction.fetch(update, encrypted, *key, row[-1]):
                continue
            count += 1
            if not column.is_binary and not row[-1].startswith(PREFIX):
                await self._hash(transaction, column, key, place, row[-1])
        await transaction.fetch(_SAVE_STATE, name, msgspec.json.encode(list(after)).decode())
        return count

    def _encrypted(self, column: EncryptedColumn, value: Any, place: Sequence[Any]) -> str | bytes:
        whole = (column.place_name, *place)
        if column.is_binary:
            return self._codec.encode_bytes(self._codec.decode_bytes(value, *whole), *whole)
        return self._codec.encode(self._codec.decode(value, *whole), *whole)

    async def _hash(
        self, transaction: Transaction, column: EncryptedColumn, key: Sequence[Any], place: Sequence[Any], text: str
    ) -> None:
        """Replaces what is selected by, beside a value that was plaintext, by keyed hashes."""
        if column.table == "memories":
            app_name, user_id = place[:2]
            words = sorted(set(self._words_of_memory(text.encode())))
            hashes = [self._codec.digest(word, "memory_words", app_name, user_id) for word in words]
            await transaction.fetch(_DELETE_WORDS, *key)
            await transaction.fetch(_ADD_WORDS, msgspec.json.encode(hashes).decode(), *key)
        elif column.table == "feedback":
            label = msgspec.json.decode(text).get("label")
            if label is not None:
                await transaction.fetch(_SET_LABEL, self._codec.digest(label, "feedback.label"), *key)

    async def _write_blob(self, transaction: Transaction, number: int, digest: str, value: bytes) -> int:
        content = self._codec.decode_bytes(value, "blobs", digest)
        if not value.startswith(PREFIX.encode()):
            digest = self._codec.digest(digest, "blobs")
            same = await transaction.fetch(_SAME_BLOB, bytes.fromhex(digest), number)
            if same:  # stored again since
                await transaction.fetch(_MOVE_BLOB, same[0][0], number)
                await transaction.fetch(_DELETE_BLOB, number)
                return 1
        encrypted = self._codec.encode_bytes(content, "blobs", digest)
        return len(await transaction.fetch(_SET_BLOB, bytes.fromhex(digest), encrypted, number))
