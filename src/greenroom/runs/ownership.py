"""Says which sessions this process runs, where several servers share a store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from greenroom.errors import OwnershipLost
from greenroom.records.session import SessionKey
from greenroom.records.shard import Shards

IsOf: TypeAlias = Callable[[SessionKey], bool]
"""True for the sessions that were lost, or are given back."""


class Ownership(Protocol):
    """The sessions of a store that this process owns: it alone executes their runs and writes for them."""

    def owns(self, key: SessionKey) -> bool:
        """False for a session that another process owns, or that nobody owns for a moment."""
        ...

    def owned(self) -> Shards:
        """All shards that this process owns."""
        ...

    def add_listener(
        self,
        *,
        lost: Callable[[Shards], None],
        taken: Callable[[Shards], None],
        leaving: Callable[[Shards], Awaitable[None]],
        busy: Callable[[], Shards],
    ) -> Callable[[], None]:
        """Calls `lost` and `taken`, in any thread, when shards are lost or taken; `taken` also at once, with the
        shards that are owned already. They must not wait. leaving: awaited before busy shards are given back, after
        which they are lost. busy: returns the shards with work that giving them back would interrupt. Returns a
        function that removes the listener.
        """
        ...


def require(ownership: Ownership, key: SessionKey) -> None:
    """Raises OwnershipLost for a session that this process doesn't own."""
    if not ownership.owns(key):
        raise OwnershipLost(*key)


class Replica(NamedTuple):
    """A server of several that share a store."""

    id: str
    address: str
    """The URL at which the others reach it."""

    token: str
    """A secret that only the servers of the store can read: it proves that a request comes from this one."""


class Messages(Protocol):
    """Messages between the servers that share a store. A server doesn't receive its own."""

    async def listen(self, channel: str, received: Callable[[Sequence[str] | None], None]) -> Callable[[], None]:
        """Calls `received` for what is sent after this has returned; with None when messages may have been missed.
        Returns a function that ends it.
        """
        ...

    async def notify(self, channel: str, messages: Sequence[str]) -> None:
        """Sends messages without line breaks, of at most 7,000 bytes each. Raises StorageError."""
        ...


class Replicas(Protocol):
    """The servers that share a store."""

    @property
    def messages(self) -> Messages: ...

    @property
    def takeover_seconds(self) -> float:
        """Time in which the sessions of a server that has died get another owner."""
        ...

    @property
    def own_id(self) -> str:
        """The id of this process."""
        ...

    async def owner_of(self, key: SessionKey, *, max_age_seconds: float) -> Replica | None:
        """The server that owns a session, also while it is dead and no other has taken it; None if it has no address.

        max_age_seconds: of what is known from an earlier call. Raises StorageError.
        """
        ...

    async def find(self, replica_id: str) -> Replica | None:
        """The server with this id; None for an unknown one. Raises StorageError."""
        ...
