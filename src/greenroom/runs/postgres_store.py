"""Run records in a PostgreSQL database, the same as the sessions' or another."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from asyncio import Future
from collections.abc import Sequence
from typing import NamedTuple

from greenroom.errors import IdempotencyConflict, OwnershipLost, StorageError, StoreInUse
from greenroom.postgres.connection import Connection
from greenroom.postgres.database import Database, numbered
from greenroom.postgres.ownership import (
    IS_OWNER,
    IS_OWNER_OF_ONE,
    Fence,
    OwnedShards,
    columns_of,
    lost_of,
    parameters_of,
    take,
)
from greenroom.records import wire
from greenroom.records.identifiers import uuid4
from greenroom.records.run import Run, Webhook
from greenroom.records.session import SessionKey
from greenroom.records.shard import SHARDS
from greenroom.runs.sql_store import KEY_HOLDER, SAVE_KEY, SAVE_WEBHOOK, RunRow, SqlRunStore, row_of, webhook_row
from greenroom.version import __version__

_SERVER_LOCK = 0x67726E73
"""Key of the advisory lock that the server on a database holds."""

_TRY_LOCK = "SELECT pg_try_advisory_lock($1)"
_ADD_REPLICA = """
    INSERT INTO replicas (id, version, started, heartbeat)
    SELECT $1, $2, now, now FROM (SELECT extract(epoch FROM clock_timestamp()) AS now) AS clock
    ON CONFLICT (id) DO NOTHING
"""
_RELEASE_SECONDS = 2.0
_log = logging.getLogger("greenroom.runs")

_OVER_EARLIER = """
    ON CONFLICT (id) DO UPDATE
    SET status = excluded.status, data = excluded.data, request = coalesce(excluded.request, runs.request)
"""
_SAVE = f"""
    INSERT INTO runs (id, app_name, user_id, session_id, status, created_at, data, request)
    SELECT * FROM
        unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::float8[], $7::text[], $8::text[])
    WHERE {IS_OWNER.format(shards="$9", epochs="$10")}
    ORDER BY 1
    {_OVER_EARLIER}
"""
_SAVE_ONE = f"""
    INSERT INTO runs (id, app_name, user_id, session_id, status, created_at, data, request)
    SELECT $1, $2, $3, $4, $5, $6::float8, $7, $8
    WHERE {IS_OWNER_OF_ONE.format(shard="$9", epoch="$10")}
    {_OVER_EARLIER}
"""
_NOTHING_SAVED = "INSERT 0 0"
_SESSION_OF_RUN = "SELECT app_name, user_id, session_id FROM runs WHERE id = $1"


class FencedRun(NamedTuple):
    row: RunRow
    fence: Fence | None
    """None for a program that owns no shards."""


class SaveRuns:
    """Writes the latest row of each run, with the latest request that one of its rows has. Results are None, or
    OwnershipLost."""

    async def write(self, connection: Connection, rows: Sequence[FencedRun]) -> Sequence[OwnershipLost | None]:
        latest: dict[str, RunRow] = {}
        for row, _ in rows:
            earlier = latest.get(row[0])
            latest[row[0]] = (*row[:-1], earlier[-1]) if earlier is not None and row[-1] is None else row
        fences = [fence for _, fence in rows]
        if len(rows) == 1:
            saved = await connection.execute(_SAVE_ONE, *rows[0].row, *parameters_of(fences[0]))
        else:
            columns = map(list, zip(*latest.values(), strict=True))
            saved = await connection.execute(_SAVE, *columns, *columns_of(fences))
        if saved != _NOTHING_SAVED:
            return [None] * len(rows)

        lost = await lost_of(connection, fences)
        kept = [fenced for fenced in rows if fenced.fence not in lost]
        if kept:
            await self.write(connection, kept)
        return [fence.refuse() if fence in lost and fence is not None else None for fence in fences]


_save_runs = SaveRuns()


class PostgresRunStore(SqlRunStore):
    """With the URI of a `PostgresSessionService`, both write in one order and share commits."""

    def __init__(self, uri: str) -> None:
        """Connects on the first call. Raises MissingExtra."""
        self._postgres = Database.open(uri)
        super().__init__(self._postgres)
        self._lock: _ServerLock | None = None

    @property
    def ownership(self) -> OwnedShards:
        return self._postgres.owned_shards

    def save(self, run: Run, *, is_to_remember: bool = False) -> Future[None]:
        row = row_of(run, wire.encode(run.request).decode() if run.request is not None else None, is_to_remember)
        key = run.idempotency_key
        digest = run.request_digest
        try:
            fenced = self._fenced(run, row)
        except OwnershipLost as error:
            return self._queued(_failed(error))

        if key is None:
            future = self._postgres.submit_row(_save_runs, fenced)
        else:
            scoped_key = run.app_name, run.user_id, key

            async def apply(connection: Connection) -> None:
                await connection.execute(numbered(SAVE_KEY), *scoped_key, row[0], digest)
                if await connection.fetchval(numbered(KEY_HOLDER), *scoped_key) != row[0]:
                    raise IdempotencyConflict(key)
                (refused,) = await _save_runs.write(connection, [fenced])
                if refused is not None:
                    raise refused

            future = self._postgres.submit(apply)
        return self._queued(future)

    def save_progress(self, run: Run) -> Future[None]:
        try:
            fenced = self._fenced(run, row_of(run, None))
        except OwnershipLost as error:
            return self._queued(_failed(error))
        return self._queued(self._postgres.submit_row(_save_runs, fenced))

    def _fenced(self, run: Run, row: RunRow) -> FencedRun:
        """Raises OwnershipLost."""
        return FencedRun(row, self._fence(SessionKey(run.app_name, run.user_id, run.session_id)))

    def _fence(self, key: SessionKey) -> Fence | None:
        """Raises OwnershipLost."""
        return self.ownership.fence(key, self.ownership.epochs)

    async def save_webhook(self, webhook: Webhook) -> None:
        epochs = self.ownership.epochs

        async def apply(connection: Connection) -> None:
            key = await connection.fetchrow(_SESSION_OF_RUN, webhook.run_id)
            fence = self.ownership.fence(SessionKey(*key), epochs) if key is not None else None
            if fence is not None and await fence.is_lost(connection):
                raise fence.refuse()
            await connection.execute(numbered(SAVE_WEBHOOK), *webhook_row(webhook))

        await self._postgres.submit(apply)

    async def lock(self, *, wait_seconds: float) -> None:
        """While another server holds the lock, all writes on this database by this process raise StoreInUse, too."""
        lock = self._postgres.companion(_ServerLock, lambda: _ServerLock(self._postgres))
        until = time.monotonic() + wait_seconds
        while not await lock.acquire():
            if time.monotonic() >= until:
                raise StoreInUse(self._postgres.name, None)
            await asyncio.sleep(0.05)
        self._lock = lock

    async def close(self) -> None:
        if self._lock is not None:
            await self._lock.release()
            self._lock = None
        await super().close()


def _failed(error: OwnershipLost) -> Future[None]:
    future: Future[None] = asyncio.get_running_loop().create_future()
    future.set_exception(error)
    return future


class _ServerLock:
    """An advisory lock of the connection that writes: it ends with that connection, so a write has the lock or fails.

    Each server that takes the lock gets an epoch, and takes all shards. When the connection was lost, the lock is
    acquired again at once:

        server 1 acquires the lock: epoch 1
        PostgreSQL restarts; server 1 acquires the lock again, and the epoch is still 1: it continues
        PostgreSQL restarts; server 2 starts before server 1 has connected, and acquires the lock: epoch 2
        server 1 connects; as long as server 2 runs, and after that, its writes raise StoreInUse, and it owns no shards

    All engines of a process share it. It protects writes from the event loop that acquired it.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._replica_id = uuid4()
        self._epoch: int | None = None
        self._users = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reconnecting: asyncio.Task[None] | None = None
        database.before_writing = self._acquire_again

    async def acquire(self) -> bool:
        """Raises StoreInUse when it was lost to another server."""
        if self._epoch is None:
            self._loop = asyncio.get_running_loop()
            acquired = await self._database.submit(self._acquire)
            if acquired is None:
                return False
            self._epoch, epochs = acquired
            self._database.owned_shards.add(epochs)
        else:
            await self._database.execute("SELECT 1")
        self._users += 1
        return True

    async def _acquire(self, connection: Connection) -> tuple[int, dict[int, int]] | None:
        """The epochs of the server and of the shards; None while another server has the lock."""
        if not await connection.fetchval(_TRY_LOCK, _SERVER_LOCK):
            return None
        connection.add_termination_listener(self._connection_lost)
        await connection.execute(_ADD_REPLICA, self._replica_id, __version__)
        epochs = await take(connection, range(SHARDS), self._replica_id)
        epoch = await connection.fetchval(
            "UPDATE greenroom_schema SET server_epoch = server_epoch + 1 RETURNING server_epoch"
        )
        return epoch, epochs

    async def _acquire_again(self, connection: Connection) -> None:
        if self._epoch is None or asyncio.get_running_loop() is not self._loop:
            return
        is_locked = await connection.fetchval(_TRY_LOCK, _SERVER_LOCK)
        if await connection.fetchval("SELECT server_epoch FROM greenroom_schema") != self._epoch:
            self._database.owned_shards.drop(range(SHARDS))
            raise StoreInUse(self._database.name, None)
        if not is_locked:  # by the lost connection, until the database notices; the operation is repeated
            raise ConnectionError("the lock of the server is not free yet")
        connection.add_termination_listener(self._connection_lost)

    def _connection_lost(self, connection: object) -> None:
        if self._epoch is not None and self._loop is not None and not self._loop.is_closed():
            self._reconnecting = self._loop.create_task(self._reconnect())

    async def _reconnect(self) -> None:
        while self._epoch is not None:
            try:
                await self._database.execute("SELECT 1")
                return
            except StorageError:
                continue  # it was repeated for some seconds
            except StoreInUse as error:
                _log.error("This server may not write any more: %s", error.detail)
                return

    async def release(self) -> None:
        self._users -= 1
        if self._users == 0:
            self._epoch = None
            self._database.owned_shards.close()
            if self._reconnecting is not None:
                self._reconnecting.cancel()
            with contextlib.suppress(StorageError, TimeoutError):  # a lost connection has no lock
                async with asyncio.timeout(_RELEASE_SECONDS):
                    await self._database.submit(self._release)

    async def _release(self, connection: Connection) -> None:
        await connection.execute("DELETE FROM replicas WHERE id = $1", self._replica_id)
        await connection.execute("SELECT pg_advisory_unlock_all()")
