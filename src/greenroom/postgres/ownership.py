"""The shards of sessions that this process owns, and the fence that keeps the writes of former owners out.

Taking a shard raises its epoch in the table `shards`. Writes of the owner carry the epoch, and their statements write
only if it is still the shard's: they lock its row until their commit, so that nobody can take the shard in between.

    server 1 takes shard 7: epoch 1
    server 1 appends an event with epoch 1: it is stored
    server 1 is paused, and its lock on the shard ends
    server 2 takes shard 7: epoch 2; it waits for statements of server 1 that are under way
    server 1 continues, and appends an event with epoch 1: nothing is stored, the append raises OwnershipLost
    server 1 drops its state of the shard's sessions

Programs that aren't servers own nothing, and their writes carry no epoch: they may write beside the owner.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from greenroom.errors import OwnershipLost
from greenroom.postgres.connection import Connection
from greenroom.records.session import SessionKey
from greenroom.records.shard import Shards, shard_of

IS_OWNER = """(
    SELECT coalesce(array_agg(epoch ORDER BY shard), '{{}}') = {epochs}::bigint[] FROM (
        SELECT shard, epoch FROM shards WHERE shard = ANY ({shards}::smallint[]) ORDER BY shard FOR SHARE
    ) AS locked
)"""
"""For a statement that writes many rows: true if shards still have their epochs, as `columns_of` lists them; then they
keep them until the end of the transaction."""

IS_OWNER_OF_ONE = """(
    {epoch}::bigint IS NULL
    OR EXISTS (SELECT 1 FROM shards WHERE shard = {shard}::smallint AND epoch = {epoch}::bigint FOR SHARE)
)"""
"""The same for one shard, in less time. epoch: NULL for a program that owns no shards."""

_TAKE = """
    INSERT INTO shards (shard, epoch, owner) SELECT shard, 1, $2 FROM unnest($1::smallint[]) AS taken (shard) ORDER BY 1
    ON CONFLICT (shard) DO UPDATE SET epoch = shards.epoch + 1, owner = excluded.owner
    RETURNING shard, epoch
"""
_IS_OWNER = f"SELECT {IS_OWNER_OF_ONE.format(shard='$1', epoch='$2')}"


class Fence(NamedTuple):
    """The shard of a write's session, and the epoch in which this process owns it."""

    key: SessionKey
    shard: int
    epoch: int
    shards: OwnedShards

    def refuse(self) -> OwnershipLost:
        """The error of a write that was refused. The shard counts as lost."""
        self.shards.report_lost(self)
        return OwnershipLost(*self.key)

    async def is_lost(self, connection: Connection) -> bool:
        """Returns True if another server has taken the shard; else nobody can take it until the transaction ends."""
        return not await connection.fetchval(_IS_OWNER, self.shard, self.epoch)


async def check(fence: Fence | None, connection: Connection) -> None:
    """Keeps the shard from being taken until the end of the transaction. Raises OwnershipLost if it was already.

    fence: None for a program that owns no shards.
    """
    if fence is not None and await fence.is_lost(connection):
        raise fence.refuse()


class OwnedShards:
    """The shards of one database that this process owns."""

    def __init__(self) -> None:
        self.epochs: Mapping[int, int] | None = None
        """By shard; None while this process is no server. It is replaced, never changed."""

        self.taken_at = -math.inf
        """Monotonic time at which shards were taken last. Until then, others may have written to their sessions."""

        self._on_lost: list[Callable[[Shards], None]] = []
        self._on_taken: list[Callable[[Shards], None]] = []
        self._on_leaving: list[Callable[[Shards], Awaitable[None]]] = []
        self._busy: list[Callable[[], Shards]] = []

    def owns(self, key: SessionKey) -> bool:
        """False for a session of which only another process may execute runs."""
        return self.epochs is None or shard_of(key) in self.epochs

    def owned(self) -> Shards:
        return Shards(self.epochs or ())

    def fence(self, key: SessionKey, epochs: Mapping[int, int] | None) -> Fence | None:
        """Returns the fence of a session's writes; None for a program that owns no shards.

        epochs: the epochs at the time when the write was requested. Raises OwnershipLost.
        """
        if epochs is None:
            return None
        shard = shard_of(key)
        epoch = epochs.get(shard)
        if epoch is None:
            raise OwnershipLost(*key)
        return Fence(key, shard, epoch, self)

    def add(self, epochs: Mapping[int, int]) -> None:
        """Records shards that this process has taken, with their epochs, and notifies the listeners."""
        self.epochs = {**(self.epochs or {}), **epochs}
        self.taken_at = time.monotonic()
        for call in list(self._on_taken) if epochs else ():
            call(Shards(epochs))

    def drop(self, shards: Collection[int]) -> None:
        """Records that shards are lost or given back, and notifies the listeners."""
        if self.epochs is None:
            return
        dropped = Shards(self.epochs.keys() & set(shards))
        if not dropped:
            return
        self.epochs = {shard: epoch for shard, epoch in self.epochs.items() if shard not in dropped}
        for call in list(self._on_lost):
            call(dropped)

    def report_lost(self, fence: Fence) -> None:
        """Notes that a write was refused, unless the shard was taken again meanwhile."""
        if self.epochs is not None and self.epochs.get(fence.shard) == fence.epoch:
            self.drop([fence.shard])

    def close(self) -> None:
        """Notes that this process is no server any more."""
        self.epochs = None

    def busy(self) -> Shards:
        """The owned shards with work that giving them back would interrupt."""
        busy = frozenset[int]().union(*(shards() for shards in list(self._busy)))
        return Shards(busy & (self.epochs or {}).keys())

    async def leave(self, shards: Collection[int]) -> None:
        """Lets the listeners leave busy shards that are given back, and drops them."""
        for call in list(self._on_leaving):
            await call(Shards(shards))
        self.drop(shards)

    def add_listener(
        self,
        *,
        lost: Callable[[Shards], None],
        taken: Callable[[Shards], None] | None = None,
        leaving: Callable[[Shards], Awaitable[None]] | None = None,
        busy: Callable[[], Shards] | None = None,
    ) -> Callable[[], None]:
        """Calls `lost` and `taken`, in any thread, when shards are lost or taken; `taken` also at once, with the shards
        that are owned already. They must not wait. leaving: awaited before busy shards are given back, after which they
        are lost. busy: returns the shards with work that giving them back would interrupt. Returns a function that
        removes the listener.
        """
        self._on_lost.append(lost)
        if leaving is not None:
            self._on_leaving.append(leaving)
        if taken is not None:
            self._on_taken.append(taken)
            if self.epochs:
                taken(Shards(self.epochs))
        if busy is not None:
            self._busy.append(busy)

        def remove() -> None:
            self._on_lost.remove(lost)
            if leaving is not None:
                self._on_leaving.remove(leaving)
            if taken is not None:
                self._on_taken.remove(taken)
            if busy is not None:
                self._busy.remove(busy)

        return remove


def parameters_of(fence: Fence | None) -> tuple[int | None, int | None]:
    """Returns the shard and the epoch for a statement that writes one row."""
    return (None, None) if fence is None else (fence.shard, fence.epoch)


def columns_of(fences: Iterable[Fence | None]) -> tuple[list[int], list[int]]:
    """The shards and epochs of the fences of a statement, each pair once."""
    pairs = sorted({(fence.shard, fence.epoch) for fence in fences if fence is not None})
    return [shard for shard, _ in pairs], [epoch for _, epoch in pairs]


async def lost_of(connection: Connection, fences: Iterable[Fence | None]) -> set[Fence]:
    """Returns the fences whose shards are lost, of those of a statement that wrote nothing."""
    return {fence for fence in set(fences) if fence is not None and await fence.is_lost(connection)}


async def take(connection: Connection, shards: Collection[int], owner: str) -> dict[int, int]:
    """Raises the epochs of shards, and returns them. Waits for writes of the former owner that are under way."""
    rows = await connection.fetch(_TAKE, list(shards), owner)
    return dict(rows)
