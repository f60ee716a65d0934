"""Takes and gives back shards: each is owned by an advisory lock of a connection that is kept for this alone.

PostgreSQL decides who owns what. A shard's lock ends with its connection, and PostgreSQL ends the connection of a
server that has been silent for the lease, since it is paused, cut off or dead (`idle_session_timeout`). Each server
asks for something every second, and takes its share of the shards that nobody has locked:

    server 1 starts: it is the only one, takes the 256 shards, and raises their epochs to 1
    server 2 starts: a share is 128 shards now; server 1 gives 128 back, and server 2 takes them, in epoch 2
    server 2 is killed: its connection ends; server 1 takes the 128 shards within a second, in epoch 3
    server 2 is stopped: it gives back the shards without runs at once, each other one when its last run has ended
    server 1 loses its connection: it connects, and locks its shards again; their epochs are its own, so it continues
    server 1 is paused for longer than the lease: others take its shards and raise the epochs; when it continues, its
    writes are refused, see `ownership`, and it drops its state
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
import secrets
import time
from collections.abc import Collection, Sequence
from typing import NamedTuple

from greenroom.errors import StorageError, StoreInUse
from greenroom.postgres.connection import LEASE_SECONDS, Connection, connect
from greenroom.postgres.database import Database, connection_failures, is_retried
from greenroom.postgres.notifications import RUN_LISTENER_LOCKS, SHARDS_CHANNEL, RunListeners
from greenroom.postgres.ownership import take
from greenroom.records.identifiers import uuid4
from greenroom.records.shard import SHARDS
from greenroom.version import __version__

_log = logging.getLogger("greenroom.postgres")

BEAT_SECONDS = 1.0
"""Interval in which a server shows that it is alive, and looks for shards to take."""

_RETRY_SECONDS = 0.05
_DRAIN_SECONDS = 0.05
"""Interval in which a server that stops looks for shards whose last run has ended."""

_PATIENCE_SECONDS = 30.0
"""Time for which a server keeps shards that are above its share while they have work, which giving back interrupts."""

_SURPLUS_SECONDS = 0.2
"""Interval in which it looks for those whose last run has ended."""

FORGET_SECONDS = 60.0
"""Rows of replicas that have been silent for this long are deleted by the next server that starts."""

_DEADLOCK = "40P01"
"""SQLSTATE of a statement that PostgreSQL ends, since another transaction and this one wait for each other."""

_RELEASE_SECONDS = 2.0
_SERVER_LOCK = 0x67726E73
"""Key of the advisory lock of a server that shares its database with no other. Those that share it lock it in shared
mode."""

_REPLICA_LOCKS = 0x67726E6F
_SHARD_LOCKS = 0x67726E68
"""First keys of the advisory locks of replicas, one each, and of shards; the second key is the replica or the shard."""

_TRY_SERVER_LOCK = "SELECT pg_try_advisory_lock($1)"
_TRY_SERVER_LOCK_SHARED = "SELECT pg_try_advisory_lock_shared($1)"
_RAISE_SERVER_EPOCH = "UPDATE greenroom_schema SET server_epoch = server_epoch + 1 RETURNING server_epoch"
_SERVER_EPOCH = "SELECT server_epoch FROM greenroom_schema"
_SET_LEASE = "SELECT set_config(name, $1, false) FROM pg_settings WHERE name = 'idle_session_timeout'"
_NOW = "extract(epoch FROM clock_timestamp())"
_FORGET_REPLICAS = f"DELETE FROM replicas WHERE heartbeat < {_NOW} - $1"
_BEAT = f"""
    INSERT INTO replicas (id, version, address, token, draining, started, heartbeat)
    VALUES ($1, $2, $3, $4, $5, {_NOW}, {_NOW})
    ON CONFLICT (id) DO UPDATE SET heartbeat = excluded.heartbeat, draining = excluded.draining
"""
_REMOVE_REPLICA = "DELETE FROM replicas WHERE id = $1"
_SURVEY = f"""
    SELECT count(*) FILTER (WHERE classid = {_REPLICA_LOCKS}),
        coalesce(array_agg(objid::int) FILTER (WHERE classid = {_SHARD_LOCKS}), '{{}}'),
        coalesce(array_agg(objid::int) FILTER (WHERE classid = {RUN_LISTENER_LOCKS}), '{{}}'),
        ARRAY (SELECT DISTINCT version FROM replicas WHERE heartbeat > {_NOW} - {FORGET_SECONDS} ORDER BY version)
    FROM pg_locks
    WHERE locktype = 'advisory' AND objsubid = 2 AND granted
        AND classid IN ({_REPLICA_LOCKS}, {_SHARD_LOCKS}, {RUN_LISTENER_LOCKS})
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
_LOCK_REPLICA = f"SELECT pg_advisory_lock({_REPLICA_LOCKS}, $1)"
_UNLOCK_REPLICA = f"SELECT pg_advisory_unlock({_REPLICA_LOCKS}, $1)"
_LOCK_SHARDS = f"SELECT shard FROM unnest($1::int[]) AS shard WHERE pg_try_advisory_lock({_SHARD_LOCKS}, shard)"
_UNLOCK_SHARDS = f"SELECT pg_advisory_unlock({_SHARD_LOCKS}, shard) FROM unnest($1::int[]) AS shard"
_EPOCHS = "SELECT shard, epoch FROM shards WHERE shard = ANY ($1::smallint[])"


class Survey(NamedTuple):
    """The locks of the servers on a database."""

    replicas: int
    """Servers that take shards: those that stop have released their lock."""

    locked: Sequence[int]
    """Shards that somebody has locked."""

    run_listeners: Sequence[int]
    """The numbers of those that listen to changes of runs."""

    versions: Sequence[str]
    """Of greenroom, of the servers that run."""

    @property
    def share(self) -> int:
        """Shards that each replica owns at most."""
        return math.ceil(SHARDS / max(self.replicas, 1))


class ShardOwner:
    """Owns shards for all engines of a process on a database. Notes them in `Database.owned_shards`."""

    def __init__(
        self,
        database: Database,
        *,
        is_exclusive: bool,
        address: str | None = None,
        lease_seconds: float = LEASE_SECONDS,
        beat_seconds: float = BEAT_SECONDS,
        patience_seconds: float = _PATIENCE_SECONDS,
    ) -> None:
        """Prepares the owner of a server's shards.

        is_exclusive: it owns all shards, or none. address: where other servers reach this one.
        lease_seconds: at least two beats. patience_seconds: for which shards above its share are kept while they have
        work.
        """
        self.replica_id = uuid4()
        self._address = address
        self._token = secrets.token_urlsafe()
        self._database = database
        self._shards = database.owned_shards
        self._is_exclusive = is_exclusive
        self._lease_seconds = lease_seconds
        self._beat_seconds = beat_seconds
        self._patience_seconds = patience_seconds
        self._starting = asyncio.Lock()
        self._seen_versions = {__version__}
        self._has_locked = asyncio.Event()
        """Cleared while a new connection has yet to lock this process's shards."""

        self._replica_lock: int | None = None
        """The second key of this process's lock; None while it has none."""

        self._drained = asyncio.Event()
        """Set when draining has ended: no shard is left, or no other server runs."""

        self._users = 0
        self._server_epoch: int | None = None
        self._is_lost = False
        self._is_draining = False
        self._is_stopping = False
        self._surplus_since: float | None = None
        """Monotonic time since which this process owns more than its share; None while it doesn't."""

        self._locked: set[int] = set()
        """The shards that the present connection has locked."""

        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def acquire(self) -> bool:
        """Starts to own shards; False when another server has the database. Each success needs a `release`.

        Raises StoreInUse when another server has taken it over since, and StorageError.
        """
        async with self._starting:
            if self._task is None and not await self._start():
                return False
            if not self._is_lost:
                await self._has_locked.wait()
            if self._is_lost:
                raise StoreInUse(self._database.name, None)
            self._users += 1
            return True

    async def drain(self) -> bool:
        """Gives the shards back to the other servers: those without work at once, the others when they have none any
        more. From now on, this process takes none, and the others share them without it.

        Returns True when none is left, and False when no other server runs: then it keeps them.
        """
        if self._is_exclusive or self._task is None:
            return False
        self._is_draining = True
        self._wake.set()
        await self._drained.wait()
        return not self._shards.epochs

    async def release(self) -> None:
        """Gives all shards back when the last user releases it."""
        self._users -= 1
        if self._users > 0 or self._task is None:
            return
        self._is_stopping = True
        self._wake.set()
        _, late = await asyncio.wait([self._task], timeout=_RELEASE_SECONDS)
        for task in late:
            task.cancel()
        self._task = None
        self._is_stopping = False
        self._is_draining = False
        self._drained.clear()
        self._shards.close()

    async def _start(self) -> bool:
        await self._database.fetch("SELECT 1")  # makes the tables
        give_up_at = time.monotonic() + self._database.retry_seconds
        while True:
            try:
                return await self._lock_and_run()
            except connection_failures() as error:
                if not is_retried(error) or time.monotonic() > give_up_at:
                    detail = f"{error or 'no answer'} ({type(error).__name__})"
                    raise StorageError("Locking the database", detail) from error
                await asyncio.sleep(_RETRY_SECONDS)

    async def _lock_and_run(self) -> bool:
        connection = await self._connect()
        try:
            is_started = await self._take_first(connection)
        except BaseException:
            self._shards.close()
            connection.terminate()
            raise
        if is_started:
            self._has_locked.set()
            self._task = asyncio.create_task(self._run(connection))
        else:
            await connection.close(timeout=_RELEASE_SECONDS)
        return is_started

    async def _take_first(self, connection: Connection) -> bool:
        if not await self._lock_server(connection):
            return False
        await connection.execute(_FORGET_REPLICAS, FORGET_SECONDS)
        self._shards.add({})
        await self._balance(connection)
        while self._is_exclusive and len(self._locked) < SHARDS:
            await asyncio.sleep(_RETRY_SECONDS)  # the locks of a server that ends are released one by one
            await self._balance(connection)
        await self._notify(connection)
        return True

    async def _lock_server(self, connection: Connection) -> bool:
        if not self._is_exclusive:
            return await connection.fetchval(_TRY_SERVER_LOCK_SHARED, _SERVER_LOCK)
        if not await connection.fetchval(_TRY_SERVER_LOCK, _SERVER_LOCK):
            return False
        self._server_epoch = await connection.fetchval(_RAISE_SERVER_EPOCH)
        return True

    async def _connect(self) -> Connection:
        connection = await connect(self._database.uri)
        try:
            lease = f"{round(self._lease_seconds * 1000)}ms"
            if await connection.fetchval(_SET_LEASE, lease) is None:
                _log.warning("PostgreSQL before 14 does not end the ownership of a paused server")
            await connection.add_listener(SHARDS_CHANNEL, self._notified)
            self._replica_lock = None
            if not self._is_draining:
                number = random.getrandbits(31)
                await connection.execute(_LOCK_REPLICA, number)
                self._replica_lock = number
        except BaseException:
            connection.terminate()
            raise
        connection.add_termination_listener(self._connection_lost)
        self._locked.clear()
        return connection

    def _notified(self, *arguments: object) -> None:
        """Others gave shards back, or a server started."""
        self._wake.set()

    def _connection_lost(self, connection: object) -> None:
        self._has_locked.clear()
        self._wake.set()

    async def _run(self, connection: Connection) -> None:
        """Keeps the shards until the owner is released, or has lost the database."""
        pause = self._beat_seconds
        while not self._is_stopping and not self._is_lost:
            await self._sleep(pause)
            try:
                if connection.is_closed():
                    connection = await self._connect()
                pause = await self._keep(connection)
            except Exception as error:  # whatever it is, a new connection may work; else PostgreSQL ends the ownership
                if not isinstance(error, connection_failures()):
                    _log.exception("the ownership of sessions can't be kept")
                connection.terminate()
                pause = _RETRY_SECONDS if pause == self._beat_seconds else min(2 * pause, self._beat_seconds)

        await self._leave(connection)

    async def _sleep(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        self._wake.clear()

    async def _keep(self, connection: Connection) -> float:
        """Shows that the server is alive, and returns the time to the next call."""
        async with asyncio.timeout(2 * self._lease_seconds):  # taking may wait for a transaction for the lease
            if not await self._lock_again(connection):
                return _RETRY_SECONDS
            self._has_locked.set()
            if not self._is_lost:
                await self._balance(connection)
        if self._is_draining and self._shards.epochs:
            return _DRAIN_SECONDS
        if self._surplus_since is not None:
            return min(_SURPLUS_SECONDS, self._beat_seconds)
        return self._beat_seconds

    async def _lock_again(self, connection: Connection) -> bool:
        """Locks the owned shards that a new connection has not locked, and drops those that others have taken.

        False while some are neither: the lost connection has the lock until PostgreSQL notices.
        """
        owned = self._shards.epochs or {}
        missing = owned.keys() - self._locked
        if not missing:
            return True

        if self._is_exclusive:
            is_locked = await connection.fetchval(_TRY_SERVER_LOCK, _SERVER_LOCK)
            if await connection.fetchval(_SERVER_EPOCH) != self._server_epoch:
                self._lose_all()
                return True
            if not is_locked:
                return False
        else:
            # A server that needs the database for itself has it while it runs; then it has taken the shards, too.
            await connection.fetchval(_TRY_SERVER_LOCK_SHARED, _SERVER_LOCK)
        locked = {shard for (shard,) in await connection.fetch(_LOCK_SHARDS, list(missing))}
        epochs: dict[int, int] = dict(await connection.fetch(_EPOCHS, list(missing)))
        lost = {shard for shard in missing if epochs.get(shard) != owned[shard]}
        if lost and self._is_exclusive:
            self._lose_all()
            return True
        if lost:
            _log.warning("another server has taken over %d of %d shards", len(lost), len(owned))
            self._shards.drop(lost)
            await connection.fetch(_UNLOCK_SHARDS, list(lost & locked))
        self._locked |= locked - lost
        return missing <= locked | lost

    def _lose_all(self) -> None:
        self._is_lost = True
        self._drained.set()
        self._shards.drop(range(SHARDS))
        _log.error("This server may not write any more: %s", StoreInUse(self._database.name, None).detail)

    async def _balance(self, connection: Connection) -> None:
        """Takes free shards up to this server's share, or gives back the shards above it, and all while it drains."""
        await connection.execute(_BEAT, self.replica_id, __version__, self._address, self._token, self._is_draining)
        if self._is_draining and self._replica_lock is not None:
            await connection.fetchval(_UNLOCK_REPLICA, self._replica_lock)
            self._replica_lock = None
        survey = Survey(*await connection.fetchrow(_SURVEY))
        self._database.companion(RunListeners, RunListeners).update(survey.run_listeners)
        self._log_new_versions(survey.versions)
        owned = set(self._shards.epochs or ())
        for shard in self._locked - owned:  # a write was refused, after a change by hand or a restored backup
            await connection.fetch(_UNLOCK_SHARDS, [shard])
            self._locked.discard(shard)

        if len(owned) <= survey.share:
            self._surplus_since = None
        if self._is_draining:
            idle = owned - self._shards.busy()
            if survey.replicas and idle:
                await self._give_back(connection, idle)
            if not survey.replicas or not self._shards.epochs:
                self._drained.set()
        elif len(owned) > survey.share:
            await self._give_back_surplus(connection, owned, len(owned) - survey.share)
        elif len(owned) < survey.share:
            free = sorted(set(range(SHARDS)) - set(survey.locked))
            wanted = min(len(free), survey.share - len(owned))
            if wanted:
                await self._take(connection, random.sample(free, wanted))

    def _log_new_versions(self, versions: Collection[str]) -> None:
        """Logs each other version once: in a rolling upgrade, all servers soon have one version again."""
        for version in set(versions) - self._seen_versions:
            self._seen_versions.add(version)
            _log.warning("a server of version %s shares the database; this one has version %s", version, __version__)

    async def _give_back_surplus(self, connection: Connection, owned: Collection[int], count: int) -> None:
        """Gives back shards without work, and others if there are too few of them for too long."""
        now = time.monotonic()
        if self._surplus_since is None:
            self._surplus_since = now
        busy = self._shards.busy()
        chosen = sorted(owned, key=lambda shard: (shard in busy, random.random()))[:count]
        if now < self._surplus_since + self._patience_seconds:
            chosen = [shard for shard in chosen if shard not in busy]
        if chosen:
            await self._give_back(connection, chosen)

    async def _take(self, connection: Connection, shards: Sequence[int]) -> None:
        locked = [shard for (shard,) in await connection.fetch(_LOCK_SHARDS, shards)]
        self._locked.update(locked)
        if locked:
            self._shards.add(await self._raise_epochs(connection, locked))

    async def _raise_epochs(self, connection: Connection, shards: Sequence[int]) -> dict[int, int]:
        """Takes shards that are locked. A former owner's transaction, which locks their rows in the order of its
        writes, may be waiting for this one; PostgreSQL then ends one of the two, and this one begins again."""
        while True:
            try:
                return await take(connection, shards, self.replica_id)
            except connection_failures() as error:
                if getattr(error, "sqlstate", None) != _DEADLOCK:
                    raise

    async def _give_back(self, connection: Connection, shards: Collection[int]) -> None:
        busy = self._shards.busy().intersection(shards)
        self._shards.drop(set(shards) - busy)  # without an await in between, in which work could begin
        if busy:
            await self._shards.leave(busy)
        await connection.fetch(_UNLOCK_SHARDS, list(shards))
        self._locked -= set(shards)
        await self._notify(connection)

    async def _notify(self, connection: Connection) -> None:
        """Wakes the other servers."""
        await connection.execute(f"NOTIFY {SHARDS_CHANNEL}")

    async def _leave(self, connection: Connection) -> None:
        """Ends the connection, with its locks; the other servers take the shards at once."""
        self._shards.drop(range(SHARDS))
        try:
            async with asyncio.timeout(_RELEASE_SECONDS / 2):
                await connection.execute(_REMOVE_REPLICA, self.replica_id)
                await connection.execute("SELECT pg_advisory_unlock_all()")
                await self._notify(connection)
                await connection.close()
        except connection_failures():  # a lost connection has no locks
            connection.terminate()
