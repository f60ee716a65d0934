"""Reads which servers run on a PostgreSQL database, and which of them owns a session."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from greenroom.postgres.connection import LEASE_SECONDS
from greenroom.postgres.database import Database
from greenroom.postgres.notifications import Notifications
from greenroom.records.session import SessionKey
from greenroom.records.shard import shard_of
from greenroom.runs.ownership import Replica

_READ = """
    SELECT id, address, token, ARRAY (SELECT shard FROM shards WHERE owner = id) FROM replicas
    WHERE address IS NOT NULL AND token IS NOT NULL
"""
_UNKNOWN_SECONDS = 1.0
"""Age of what is known at which an unknown id is looked up again: anybody may send one."""


class ReplicaTable:
    """The table of replicas, as it was read last."""

    def __init__(self, database: Database, *, own_id: str, messages: Notifications) -> None:
        self.own_id = own_id
        self.messages = messages
        self.takeover_seconds = LEASE_SECONDS + 1.0
        self._database = database
        self._by_id: Mapping[str, Replica] = {}
        self._by_shard: Mapping[int, Replica] = {}
        self._read_at = float("-inf")
        self._reading: asyncio.Task[None] | None = None

    async def owner_of(self, key: SessionKey, *, max_age_seconds: float) -> Replica | None:
        await self._refresh(max_age_seconds)
        return self._by_shard.get(shard_of(key))

    async def find(self, replica_id: str) -> Replica | None:
        if replica_id not in self._by_id:
            await self._refresh(_UNKNOWN_SECONDS)
        return self._by_id.get(replica_id)

    async def _refresh(self, max_age_seconds: float) -> None:
        """Concurrent calls share one query."""
        if self._reading is None:
            if time.monotonic() - self._read_at <= max_age_seconds:
                return
            self._reading = asyncio.create_task(self._read())
            self._reading.add_done_callback(_retrieve)
        await asyncio.shield(self._reading)

    async def _read(self) -> None:
        started = time.monotonic()
        try:
            rows = await self._database.fetch(_READ)
        finally:
            self._reading = None
        by_id: dict[str, Replica] = {}
        by_shard: dict[int, Replica] = {}
        for replica_id, address, token, shards in rows:
            replica = Replica(replica_id, address, token)
            by_id[replica_id] = replica
            by_shard.update(dict.fromkeys(shards, replica))
        self._by_id = by_id
        self._by_shard = by_shard
        self._read_at = started


def _retrieve(reading: asyncio.Task[None]) -> None:
    """The error reaches those who wait; there may be none left."""
    if not reading.cancelled():
        reading.exception()
