"""Sessions in a PostgreSQL database."""

from __future__ import annotations

import time
from asyncio import Future
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

from greenroom.encryption.codec import Codec
from greenroom.encryption.key_provider import KeyProvider
from greenroom.postgres.database import Database, DatabaseStats, Transaction
from greenroom.postgres.ownership import IS_OWNER_OF_ONE, OwnedShards, check, parameters_of
from greenroom.records.identifiers import new_session_id
from greenroom.records.session import SessionKey
from greenroom.records.state import ScopedDelta
from greenroom.sessions.backend import Stored, is_trusted
from greenroom.sessions.cached_service import CachedSessionService
from greenroom.sessions.cached_session import CachedSession
from greenroom.sessions.places import encode_event
from greenroom.sessions.postgres_append import Append, AppendBatch, save_state
from greenroom.sessions.prepared_event import PreparedEvent
from greenroom.sessions.session_cache import SessionCache
from greenroom.sessions.sql import SqlSessionBackend
from greenroom.sessions.sql_queries import SessionQueries
from greenroom.sessions.stored_event import to_stored
from greenroom.usage.postgres import PostgresUsageStore

T = TypeVar("T")

_MOST_IDS = 4096
"""Ids that are tried for one of an owned shard. A server that owns a single shard finds one nearly always."""

_append_batch = AppendBatch()


class PostgresSessionService(CachedSessionService):
    """Keeps sessions in one database, which any number of processes use at the same time.

    `get_session` sees writes of other processes within a twentieth of a second, `append` at once.
    """

    def __init__(
        self,
        uri: str,
        *,
        pool_size: int | None = None,
        cache_bytes: int = 64 * 1024 * 1024,
        keys: KeyProvider | None = None,
    ) -> None:
        """Connects on the first call, and creates the tables. Raises MissingExtra.

        uri: `postgresql://user:password@host/database`, also with ADK's driver (`postgresql+asyncpg://`). pool_size:
        connections that read, 10 by default; one more writes. cache_bytes: for sessions in use; zero means that nothing
        is cached. The largest value wins if several services use one database. keys: encrypt what all services on the
        database store.
        """
        self._postgres = database = Database.open(uri, pool_size=pool_size)
        if keys is not None:
            database.encrypt(keys)
        cache = database.companion(SessionCache, lambda: _make_cache(database))
        super().__init__(cache.backend, cache=cache, cache_bytes=cache_bytes, close=database.close)

    async def load_keys(self) -> None:
        await self._postgres.fetch("SELECT 1")

    @property
    def is_encrypted(self) -> bool:
        return not self._postgres.codec.is_plain

    @property
    def uri(self) -> str:
        """The URI, with the password."""
        return self._postgres.uri

    def new_key(self, key_of: Callable[[str], SessionKey]) -> SessionKey:
        key = key_of(new_session_id())
        for _ in range(_MOST_IDS):
            if self._postgres.owned_shards.owns(key):
                break
            key = key_of(new_session_id())
        return key

    @property
    def database_stats(self) -> DatabaseStats:
        return self._postgres.stats

    @cached_property
    def usage(self) -> PostgresUsageStore:
        return PostgresUsageStore(self._postgres)


def _make_cache(database: Database) -> SessionCache:
    """A cache that drops the sessions that another server takes over."""
    cache = SessionCache(PostgresSessionBackend(database))
    database.owned_shards.add_listener(lost=lambda shards: cache.release_all(shards.include))
    return cache


class PostgresSessionBackend(SqlSessionBackend):
    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._database = database

    def write(
        self, work: Callable[[SessionQueries], Coroutine[Any, Any, T]], after_commit: Callable[[T], None] | None = None
    ) -> Future[T]:
        shards = self._database.owned_shards
        epochs = shards.epochs
        codec = self._database.codec
        return self._database.transact(
            lambda transaction: work(PostgresSessionQueries(transaction, codec, shards, epochs)), then=after_commit
        )

    async def snapshot(self, work: Callable[[SessionQueries], Coroutine[Any, Any, T]]) -> T:
        return await self._database.snapshot(lambda transaction: work(self._reading(transaction)))

    def _reading(self, transaction: Transaction) -> PostgresSessionQueries:
        return PostgresSessionQueries(transaction, self._database.codec, self._database.owned_shards, None)

    def append_rows(
        self, key: SessionKey, prepared: Sequence[PreparedEvent], after_commit: Callable[[Stored], None]
    ) -> Future[Stored]:
        shards = self._database.owned_shards
        codec = self._database.codec
        jsons = [encode_event(codec, key, one.event.id, to_stored(one.json or b"")[0]) for one in prepared]
        row = Append(key, prepared, jsons, shards.fence(key, shards.epochs), codec)
        return self._database.submit_row(_append_batch, row, then=after_commit)

    async def is_current(self, cached: CachedSession) -> bool:
        started = time.monotonic()
        shards = self._database.owned_shards
        # Clients of the server that runs the session expect to read at once, also here, what it has stored. And a new
        # owner needs all that the former one has stored.
        if is_trusted(cached, started) and shards.owns(cached.key) and cached.checked_at >= shards.taken_at:
            return True

        row = await self._database.read(lambda connection: self._reading(Transaction(connection)).find(cached.key))
        if row is None or (row.number, row.last_seq) != (cached.number, cached.events.end):
            return False
        if (row.app_version or 0, row.user_version or 0) != (cached.app.version, cached.user.version):
            return False
        cached.checked_at = started
        return True


class PostgresSessionQueries(SessionQueries):
    find_statement = """
        SELECT number, last_seq, fork_seq, update_time,
            (SELECT version FROM state_versions WHERE scope = 'app' AND app_name = ?1 AND user_id = ''),
            (SELECT version FROM state_versions WHERE scope = 'user' AND app_name = ?1 AND user_id = ?2)
        FROM sessions WHERE app_name = ?1 AND user_id = ?2 AND id = ?3
    """
    find_locked_statement = f"{find_statement} FOR UPDATE"
    # After a lost connection this call may have made the session already, at the same time.
    create_statement = f"""
        INSERT INTO sessions (app_name, user_id, id, create_time, update_time, last_seq, fork_seq)
        SELECT ?1, ?2, ?3, ?4::float8, ?4::float8, ?5::bigint, ?5::bigint
        WHERE {IS_OWNER_OF_ONE.format(shard="?6", epoch="?7")}
        ON CONFLICT (app_name, user_id, id) DO UPDATE SET id = excluded.id
        WHERE sessions.create_time = excluded.create_time RETURNING number
    """
    # For `IN` it expects a hundred values, for which it rather reads a whole table of some thousand rows.
    is_one_of = "= ANY (ARRAY ({}))"
    # The advisory lock of deletions, which must see each other's effects on shared logs: 'grnt'.
    before_deletion = (f"SELECT pg_advisory_xact_lock({0x67726E74})",)

    def __init__(
        self, transaction: Transaction, codec: Codec, shards: OwnedShards, epochs: Mapping[int, int] | None
    ) -> None:
        """Prepares queries in a transaction.

        epochs: of the process's shards at the time when the transaction was requested.
        """
        super().__init__(transaction, codec)
        self._connection = transaction.connection
        self._shards = shards
        self._epochs = epochs

    async def create(self, key: SessionKey, now: float, delta: ScopedDelta, *, fork_seq: int = 0) -> CachedSession:
        created = await super().create(key, now, delta, fork_seq=fork_seq)
        found = await self.require(key)
        created.app.version = found.app_version or 0
        created.user.version = found.user_version or 0
        return created

    async def create_row(self, key: SessionKey, now: float, fork_seq: int) -> list[Any]:
        fence = self._shards.fence(key, self._epochs)
        rows = await self.fetch(self.create_statement, *key, now, fork_seq, *parameters_of(fence))
        if not rows:
            await check(fence, self._connection)
        return rows

    async def _delete(self, key: SessionKey) -> None:
        await check(self._shards.fence(key, self._epochs), self._connection)
        await super()._delete(key)

    async def insert(self, key: SessionKey, prepared: Sequence[PreparedEvent], jsons: Sequence[bytes]) -> Stored:
        if not prepared:
            return []
        encoded = [encode_event(self.codec, key, one.event.id, json) for one, json in zip(prepared, jsons, strict=True)]
        row = Append(key, prepared, encoded, self._shards.fence(key, self._epochs), self.codec)
        (result,) = await _append_batch.write(self._connection, [row])
        if isinstance(result, Exception):
            raise result
        return result

    async def save_state(self, key: SessionKey, number: int, delta: ScopedDelta) -> None:
        await save_state(self._connection, self.codec, number, key, delta)

    async def delete_user(self, app_name: str, user_id: str) -> list[SessionKey]:
        keys = await super().delete_user(app_name, user_id)
        await self.fetch(
            "UPDATE state_versions SET version = version + 1 WHERE scope = 'user' AND app_name = ? AND user_id = ?",
            app_name,
            user_id,
        )
        return keys
