"""Run records in a PostgreSQL database, the same as the sessions' or another."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from asyncio import Future
from collections.abc import Sequence

from greenroom.errors import IdempotencyConflict, StorageError, StoreInUse
from greenroom.postgres.connection import Connection
from greenroom.postgres.database import Database, numbered
from greenroom.records import wire
from greenroom.records.run import Run
from greenroom.runs.sql_store import KEY_HOLDER, SAVE_KEY, RunRow, SqlRunStore, row_of

_SERVER_LOCK = 0x67726E73
"""Key of the advisory lock that the server on a database holds."""

_TRY_LOCK = "SELECT pg_try_advisory_lock($1)"
_RELEASE_SECONDS = 2.0
_log = logging.getLogger("greenroom.runs")

_SAVE = """
    INSERT INTO runs (id, app_name, user_id, session_id, status, created_at, data, request)
    SELECT * FROM
        unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::float8[], $7::text[], $8::text[])
    ORDER BY 1
    ON CONFLICT (id) DO UPDATE
    SET status = excluded.status, data = excluded.data, request = coalesce(excluded.request, runs.request)
"""


class _SaveRuns:
    """Writes the latest row of each run, with the latest request that one of its rows has."""

    async def write(self, connection: Connection, rows: Sequence[RunRow]) -> Sequence[None]:
        latest: dict[str, RunRow] = {}
        for row in rows:
            earlier = latest.get(row[0])
            latest[row[0]] = (*row[:-1], earlier[-1]) if earlier is not None and row[-1] is None else row
        await connection.execute(_SAVE, *map(list, zip(*latest.values(), strict=True)))
        return [None] * len(rows)


_save_runs = _SaveRuns()


class PostgresRunStore(SqlRunStore):
    """With the URI of a `PostgresSessionService`, both write in one order and share commits."""

    def __init__(self, uri: str) -> None:
        """Connects on the first call. Raises MissingExtra."""
        self._postgres = Database.open(uri)
        super().__init__(self._postgres)
        self._lock: _ServerLock | None = None

    def save(self, run: Run, *, is_to_remember: bool = False) -> Future[None]:
        row = row_of(run, wire.encode(run.request).decode() if run.request is not None else None, is_to_remember)
        key = run.idempotency_key
        digest = run.request_digest
        if key is None:
            future = self._postgres.submit_row(_save_runs, row)
        else:
            scoped_key = run.app_name, run.user_id, key

            async def apply(connection: Connection) -> None:
                await connection.execute(numbered(SAVE_KEY), *scoped_key, row[0], digest)
                if await connection.fetchval(numbered(KEY_HOLDER), *scoped_key) != row[0]:
                    raise IdempotencyConflict(key)
                await _save_runs.write(connection, [row])

            future = self._postgres.submit(apply)
        return self._queued(future)

    def save_progress(self, run: Run) -> Future[None]:
        return self._queued(self._postgres.submit_row(_save_runs, row_of(run, None)))

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


class _ServerLock:
    """An advisory lock of the connection that writes: it ends with that connection, so a write has the lock or fails.

    Each server that takes the lock gets an epoch. When the connection was lost, the lock is acquired again at once:

        server 1 acquires the lock: epoch 1
        PostgreSQL restarts; server 1 acquires the lock again, and the epoch is still 1: it continues
        PostgreSQL restarts; server 2 starts before server 1 has connected, and acquires the lock: epoch 2
        server 1 connects; as long as server 2 runs, and after that, its writes raise StoreInUse

    All engines of a process share it. It protects writes from the event loop that acquired it.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._epoch: int | None = None
        self._users = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reconnecting: asyncio.Task[None] | None = None
        database.before_writing = self._acquire_again

    async def acquire(self) -> bool:
        """Raises StoreInUse when it was lost to another server."""
        if self._epoch is None:
            self._loop = asyncio.get_running_loop()
            self._epoch = await self._database.submit(self._acquire)
        else:
            await self._database.execute("SELECT 1")
        self._users += self._epoch is not None
        return self._epoch is not None

    async def _acquire(self, connection: Connection) -> int | None:
        if not await connection.fetchval(_TRY_LOCK, _SERVER_LOCK):
            return None
        connection.add_termination_listener(self._connection_lost)
        return await connection.fetchval(
            "UPDATE greenroom_schema SET server_epoch = server_epoch + 1 RETURNING server_epoch"
        )

    async def _acquire_again(self, connection: Connection) -> None:
        if self._epoch is None or asyncio.get_running_loop() is not self._loop:
            return
        is_locked = await connection.fetchval(_TRY_LOCK, _SERVER_LOCK)
        if await connection.fetchval("SELECT server_epoch FROM greenroom_schema") != self._epoch:
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
            if self._reconnecting is not None:
                self._reconnecting.cancel()
            with contextlib.suppress(StorageError, TimeoutError):  # a lost connection has no lock
                async with asyncio.timeout(_RELEASE_SECONDS):
                    await self._database.execute("SELECT pg_advisory_unlock_all()")
