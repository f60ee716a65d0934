"""The API keys of a running server: held in memory, read again when their file changes."""

from __future__ import annotations

import asyncio
import logging
import time

from greenroom.errors import StorageError, Unauthenticated
from greenroom.server.access.api_keys import ApiKey, ApiKeyFile, id_of
from greenroom.server.access.identity import Identity

_log = logging.getLogger("greenroom.server")

REFRESH_SECONDS = 0.5
MARK_SECONDS = 60.0


class LiveKeys:
    """What others change in the file holds here after REFRESH_SECONDS; a new key does at once. A file that can't be
    read lets nobody in."""

    def __init__(self, file: ApiKeyFile) -> None:
        self._file = file
        self._keys: dict[str, tuple[ApiKey, Identity]] = {}
        self._state: tuple[int, int, int] | None = None
        self._check_at = 0.0
        self._refreshing = asyncio.Lock()
        self._used: dict[str, float] = {}
        self._mark_at = time.monotonic()
        self._marking: asyncio.Task[None] | None = None

    async def identify(self, key: str) -> Identity:
        """Raises Unauthenticated, or StorageError."""
        key_id = id_of(key) or ""
        if time.monotonic() >= self._check_at or key_id not in self._keys:
            await self._refresh(even_if_fresh=key_id not in self._keys)
        found, identity = self._keys.get(key_id, (None, None))
        now = time.time()
        if found is None or identity is None or not found.fits(key) or found.revoked_at is not None:
            raise Unauthenticated("This API key is not valid")
        if not found.is_good(now):
            raise Unauthenticated("This API key has expired")
        self._used[found.id] = now
        if time.monotonic() >= self._mark_at:
            self._mark_at = time.monotonic() + MARK_SECONDS
            self._marking = asyncio.create_task(self.mark_used())
        return identity

    async def is_good(self, key_id: str) -> bool:
        """Whether a key that was good still is."""
        if time.monotonic() >= self._check_at:
            try:
                await self._refresh()
            except StorageError:
                return False
        found = self._keys.get(key_id)
        return found is not None and found[0].is_good(time.time())

    async def mark_used(self) -> None:
        """Write down when keys were last used."""
        used, self._used = self._used, {}
        if not used:
            return
        try:
            await asyncio.to_thread(self._file.mark_used, used)
        except StorageError as error:  # the file may be there to be read only
            _log.debug("the last use of API keys is not written down: %s", error.detail)

    async def close(self) -> None:
        if self._marking is not None:
            await self._marking
        await self.mark_used()

    async def _refresh(self, *, even_if_fresh: bool = False) -> None:
        """even_if_fresh: look at the file's state anyway, since a key may just have been made."""
        async with self._refreshing:
            if time.monotonic() < self._check_at and not even_if_fresh:
                return
            state = self._file.state()
            if state is None or state != self._state:
                self._keys = {key.id: (key, key.identity) for key in await asyncio.to_thread(self._file.list)}
                self._state = state
            self._check_at = time.monotonic() + REFRESH_SECONDS
