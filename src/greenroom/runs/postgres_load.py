"""Reads how many unfinished runs all servers on a PostgreSQL database have, and each of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection

from greenroom.postgres.database import Database
from greenroom.postgres.shard_owner import FORGET_SECONDS
from greenroom.records.replica import ReplicaStatus
from greenroom.runs.store import RunLoad

_REPLICAS = """
    SELECT id, address, version, started, now_at - heartbeat, draining,
        (SELECT count(*) FROM shards WHERE owner = id),
        coalesce(running, 0), coalesce(queued, 0), now_at - oldest_at
    FROM (SELECT *, extract(epoch FROM clock_timestamp())::float8 AS now_at FROM replicas) AS replicas
    LEFT JOIN (
        SELECT owner, count(*) FILTER (WHERE status = 'running') AS running,
            count(*) FILTER (WHERE status = 'queued') AS queued, min(created_at) AS oldest_at
        FROM runs JOIN shards ON shard = shard_of(app_name, user_id, session_id)
        WHERE status IN ('queued', 'running') AND (?1::text[] IS NULL OR app_name = ANY (?1::text[]))
        GROUP BY owner
    ) AS unfinished ON owner = id
    WHERE heartbeat > now_at - ?2::float8
    ORDER BY started, id
"""
_LOAD = """
    SELECT app_name, count(*) FILTER (WHERE status = 'running'), count(*) FILTER (WHERE status = 'queued')
    FROM runs WHERE status IN ('queued', 'running') GROUP BY app_name
"""
_DATABASE_BYTES = "SELECT pg_database_size(current_database())"
_CACHE_SECONDS = 1.0
_SIZE_CACHE_SECONDS = 60.0  # it looks at each file of the database


async def list_replicas(database: Database, app_names: Collection[str] | None) -> list[ReplicaStatus]:
    """The servers whose last heartbeat is not long ago. app_names: only runs of these apps count; None: of all."""
    rows = await database.fetch(_REPLICAS, None if app_names is None else list(app_names), FORGET_SECONDS)
    return [_status(*row) for row in rows]


def _status(
    replica_id: str,
    address: str | None,
    version: str,
    started: float,
    heartbeat_age: float,
    is_draining: bool,
    shards: int,
    running: int,
    queued: int,
    oldest_age: float | None,
) -> ReplicaStatus:
    return ReplicaStatus(
        id=replica_id,
        address=address,
        version=version,
        started_at=started,
        heartbeat_age_seconds=heartbeat_age,
        is_draining=is_draining,
        shards=shards,
        running=running,
        queued=queued,
        oldest_run_age_seconds=None if oldest_age is None else max(oldest_age, 0.0),  # clocks of servers differ
    )


class DatabaseLoad:
    """The unfinished runs of all servers by app, read at most once a second, however many ask; and the database's size,
    read at most once a minute.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = asyncio.Lock()
        self._load: dict[str, RunLoad] = {}
        self._read_at = float("-inf")
        self._bytes = 0
        self._bytes_read_at = float("-inf")

    async def read(self) -> dict[str, RunLoad]:
        """Raises StorageError."""
        async with self._lock:
            now = time.monotonic()
            if now - self._read_at >= _CACHE_SECONDS:
                rows = await self._database.fetch(_LOAD)
                self._load = {app_name: RunLoad(running, queued) for app_name, running, queued in rows}
                self._read_at = now
            return self._load

    async def read_bytes(self) -> int:
        """Raises StorageError."""
        async with self._lock:
            now = time.monotonic()
            if now - self._bytes_read_at >= _SIZE_CACHE_SECONDS:
                ((self._bytes,),) = await self._database.fetch(_DATABASE_BYTES)
                self._bytes_read_at = now
            return self._bytes
