"""The keys, service accounts and roles of a store, as a server uses them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Hashable, Mapping

from greenroom.errors import StorageError, Unauthenticated
from greenroom.records.access import Role
from greenroom.server.access.api_keys import AccessRecords, ApiKey, ApiKeyStore, Change, id_of
from greenroom.server.access.identity import Identity

_log = logging.getLogger("greenroom.server")

REFRESH_SECONDS = 0.5
MARK_SECONDS = 60.0
"""Interval between two updates of a key's time of last use."""


class ApiKeyCache:
    """Caches the records of a store. Changes take effect within REFRESH_SECONDS, new keys and changes by this server at
    once. If the store can't be read, every key is refused."""

    def __init__(self, store: ApiKeyStore) -> None:
        self._store = store
        self._records = AccessRecords()
        self._identities: dict[str, tuple[ApiKey, Identity | None]] = {}
        self._state: Hashable | None = None
        self._checked_at = float("-inf")
        self._refreshing: asyncio.Task[None] | None = None
        self._used: dict[str, float] = {}
        self._mark_at = time.monotonic()
        self._marking: asyncio.Task[None] | None = None

    async def identify(self, key: str) -> Identity:
        """Raises Unauthenticated, or StorageError."""
        key_id = id_of(key)
        if time.monotonic() >= self._checked_at + REFRESH_SECONDS or key_id not in self._identities:
            await self._refresh(even_if_fresh=key_id not in self._identities)
        if key_id not in self._identities:
            raise Unauthenticated("This API key is not valid")
        api_key, identity = self._identities[key_id]
        now = time.time()
        if not api_key.fits(key) or api_key.revoked_at is not None:
            raise Unauthenticated("This API key is not valid")
        if not api_key.is_good(now):
            raise Unauthenticated("This API key has expired")
        if identity is None:
            raise Unauthenticated("The service account of this API key is disabled")
        self._used[api_key.id] = now
        if time.monotonic() >= self._mark_at:
            self._mark_at = time.monotonic() + MARK_SECONDS
            self._marking = asyncio.create_task(self.mark_used())
        return identity

    async def identity_of(self, key_id: str) -> Identity | None:
        """The identity of a key's bearer at present; None if the key isn't valid any more. Raises StorageError."""
        if time.monotonic() >= self._checked_at + REFRESH_SECONDS:
            await self._refresh()
        found = self._identities.get(key_id)
        return found[1] if found is not None and found[0].is_good(time.time()) else None

    async def roles(self) -> Mapping[str, Role]:
        """The roles at present, by name. Raises StorageError."""
        if time.monotonic() >= self._checked_at + REFRESH_SECONDS:
            await self._refresh()
        return self._records.roles

    async def read(self) -> AccessRecords:
        """The records, with the last uses of keys by this server. Raises StorageError."""
        await self.mark_used()
        return await self._store.read()

    async def change(self, change: Change) -> AccessRecords:
        """Changes the records, as `ApiKeyStore.change`, with effect on this server when it returns."""
        changed = await self._store.change(change)
        await self._refresh(even_if_fresh=True)
        return changed

    async def mark_used(self) -> None:
        """Stores the times at which keys were last used."""
        used = self._used
        self._used = {}
        if not used:
            return
        try:
            await self._store.mark_used(used)
        except StorageError as error:  # the store may be read-only
            _log.debug("the last use of API keys was not stored: %s", error.detail)

    async def close(self) -> None:
        if self._marking is not None:
            await self._marking
        await self.mark_used()
        if self._refreshing is not None:
            await asyncio.wait([self._refreshing])
        await self._store.close()

    async def _refresh(self, *, even_if_fresh: bool = False) -> None:
        """Reads the keys if they have changed. Callers share a check that is under way, and its error.

        even_if_fresh: checks them even within REFRESH_SECONDS, since a key may just have been created.
        """
        now = time.monotonic()
        checked_from = now if even_if_fresh else now - REFRESH_SECONDS
        while self._checked_at < checked_from:  # twice, if the check that is under way began before the call
            if self._refreshing is None:
                self._refreshing = asyncio.create_task(self._read_changes())
                self._refreshing.add_done_callback(self._end_refresh)
            await asyncio.shield(self._refreshing)

    async def _read_changes(self) -> None:
        checked_at = time.monotonic()
        state = await self._store.state()
        if state is None or state != self._state:
            records = await self._store.read()
            self._identities = {key.id: (key, records.identity_of(key)) for key in records.keys.values()}
            self._records = records
            self._state = state
        self._checked_at = checked_at

    def _end_refresh(self, task: asyncio.Task[None]) -> None:
        self._refreshing = None
        if not task.cancelled():
            task.exception()  # marks it as seen: all callers may have been cancelled
