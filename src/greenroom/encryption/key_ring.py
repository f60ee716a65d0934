"""The data keys of a store, which its servers share.

A store has one key for hashes, with the id 0, and data keys with the ids 1, 2, 3, …, each wrapped by a key-encryption
key of the provider. All servers encrypt with the newest data key that they know, and decrypt with the one that a value
names: a server that meets an unknown id reads the keys again.

AES-GCM with random nonces is safe for 2**32 values of one key. So servers reserve numbers of values in blocks, before
they have used them up, and a key of which 2**31 are reserved gets a successor.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from greenroom.encryption.aes import KEY_BYTES, cipher_of
from greenroom.encryption.key_provider import KeyProvider, WrappedKey
from greenroom.errors import KeyRefused

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

T = TypeVar("T")

_log = logging.getLogger("greenroom.encryption")

INDEX_KEY = 0
"""The id of the key for hashes. It stays the same, since hashes of one word must be equal."""

BLOCK = 2**20
"""Number of values that a server reserves at a time."""

MAX_VALUES = 2**31
"""Number of reserved values after which a key gets a successor."""

REFRESH_SECONDS = 10.0
"""Interval at which a server that encrypts reads the keys again."""


class StoredKey(NamedTuple):
    """A data key as it is stored."""

    id: int
    wrapped: WrappedKey
    created_at: float
    values: int = 0
    """Number of values that servers have reserved."""


class StoredKeys(NamedTuple):
    keys: Sequence[StoredKey]

    allows_plaintext: bool
    """True while rows that were written before encryption was turned on may not be encrypted yet."""


class KeyStore(Protocol):
    """The data keys of a store, as they are stored. Each call opens what it needs, since it may run in any thread."""

    name: str
    """The store, for messages."""

    async def read(self) -> StoredKeys:
        """Reads the keys, without changing anything; none if the store doesn't exist yet, or isn't encrypted."""
        ...

    async def add(self, keys: Sequence[StoredKey]) -> None:
        """Adds keys, unless there are keys with their ids. The first ones turn encryption on."""
        ...

    async def reserve(self, key_id: int, values: int) -> int:
        """Adds to the number of reserved values of a key, and returns it."""
        ...

    async def rewrap(self, key_id: int, before: WrappedKey, after: WrappedKey) -> bool:
        """Replaces the wrapped form of a key; False if it isn't `before` any more."""
        ...


class KeyRing:
    """The unwrapped keys of a store. Loaded with the first value that is encrypted or decrypted, in a thread, so that
    it works with and without an event loop; `load` does it beforehand."""

    def __init__(self, store: KeyStore, provider: KeyProvider, *, refresh_seconds: float = REFRESH_SECONDS) -> None:
        self.store = store
        self.provider = provider
        self.refresh_seconds = refresh_seconds
        self._lock = threading.Lock()
        self._data_keys: dict[int, bytes] = {}
        self._ciphers: dict[int, AESGCM] = {}
        self._index_key: bytes | None = None
        self._allows_plaintext = False
        self._current = 0
        """The id of the newest data key; 0 until the keys are loaded."""

        self._used = 0
        """Values encrypted with the current key and not reserved yet; negative while some are left."""

        self._refreshed_at = 0.0
        self._refreshing: threading.Thread | None = None

    def load_now(self) -> None:
        """Loads the keys, if they aren't loaded yet, and blocks meanwhile."""
        if self._current == 0:
            self._run(self.load)

    def encryption_key(self) -> tuple[int, AESGCM]:
        """The id of the current data key and its cipher. Counts a value."""
        self.load_now()
        self._used += 1
        if self._used > 0 or time.monotonic() - self._refreshed_at > self.refresh_seconds:
            self._start_refresh()
        current = self._current
        return current, self._ciphers[current]

    def current_id(self) -> int:
        """The id of the current data key."""
        self.load_now()
        return self._current

    def decryption_key(self, key_id: int) -> AESGCM | None:
        """The cipher of a data key; None for an id that the store doesn't have."""
        cipher = self._ciphers.get(key_id)
        if cipher is None:
            self._run(self._read)
            cipher = self._ciphers.get(key_id)
        return cipher

    async def current_data_key(self) -> tuple[int, bytes]:
        """The id of the current data key and the key, from which others are derived."""
        if self._current == 0 or time.monotonic() - self._refreshed_at > self.refresh_seconds:
            await self.load()
        current = self._current
        return current, self._data_keys[current]

    async def accepts_plaintext(self) -> bool:
        """Like `allows_plaintext`, in the present event loop."""
        if self._current == 0:
            await self.load()
        return self._allows_plaintext

    async def data_key(self, key_id: int) -> bytes | None:
        """A data key; None for an id that the store doesn't have."""
        if key_id not in self._data_keys:
            await self._read()
        return self._data_keys.get(key_id)

    def index_key(self) -> bytes:
        """The key for hashes."""
        self.load_now()
        assert self._index_key is not None
        return self._index_key

    def allows_plaintext(self) -> bool:
        """True while values may be plaintext that were written before encryption was turned on."""
        self.load_now()
        return self._allows_plaintext

    async def load(self) -> None:
        """Reads and unwraps the keys, and makes the first ones in a new store. Raises KeyRefused, StorageError."""
        is_first_time = self._current == 0
        if not await self._read():
            now = time.time()
            await self.store.add([await self._new_key(INDEX_KEY, now), await self._new_key(1, now)])
            if not await self._read():
                raise KeyRefused(f"the keys of {self.store.name} can't be stored")
        if is_first_time and self._allows_plaintext:
            _log.warning(
                "%s has data that is not encrypted; `greenroom encryption rotate DIR --data` encrypts databases",
                self.store.name,
            )

    async def add_data_key(self) -> int:
        """Adds a data key, with which all servers encrypt from then on. Returns its id."""
        await self.load()
        await self.store.add([await self._new_key(self._current + 1, time.time())])
        await self._read()
        return self._current

    async def rewrap(self) -> int:
        """Wraps the keys again that other key-encryption keys than the current one have wrapped. Returns their number.

        Interrupted, it can be repeated.
        """
        await self.load()
        current = await self.provider.current_key_id()
        count = 0
        for key in (await self.store.read()).keys:
            if key.wrapped.key_id != current:
                after = await self.provider.wrap(await self.provider.unwrap(key.wrapped))
                count += await self.store.rewrap(key.id, key.wrapped, after)
        return count

    async def _new_key(self, key_id: int, now: float) -> StoredKey:
        return StoredKey(key_id, await self.provider.wrap(os.urandom(KEY_BYTES)), now)

    async def _read(self) -> bool:
        """Reads the keys, and unwraps the new ones; False if the store has none."""
        stored = await self.store.read()
        for key in stored.keys:
            is_known = self._index_key is not None if key.id == INDEX_KEY else key.id in self._ciphers
            if is_known:
                continue
            data_key = await self.provider.unwrap(key.wrapped)
            if len(data_key) != KEY_BYTES:
                raise KeyRefused(f"the key {key.wrapped.key_id!r} unwraps no data key of {self.store.name}")
            if key.id == INDEX_KEY:
                self._index_key = data_key
            else:
                self._data_keys[key.id] = data_key
                self._ciphers[key.id] = cipher_of(data_key)
        newest = max((key.id for key in stored.keys), default=0)
        if newest > self._current:
            self._current = newest
            self._used = 0
        self._allows_plaintext = stored.allows_plaintext
        self._refreshed_at = time.monotonic()
        return newest > 0

    async def _refresh(self) -> None:
        """Reads the keys again, reserves more values of the current key, and adds its successor in time."""
        await self._read()
        if self._used <= -BLOCK // 2:
            return
        current = self._current
        self._used -= BLOCK
        if await self.store.reserve(current, BLOCK) >= MAX_VALUES:
            await self.store.add([await self._new_key(current + 1, time.time())])
            await self._read()

    def _start_refresh(self) -> None:
        with self._lock:
            if self._refreshing is not None:
                return
            thread = threading.Thread(target=self._refresh_in_thread, name="greenroom-encryption-keys", daemon=True)
            self._refreshing = thread
        thread.start()

    def close(self) -> None:
        """Waits until nothing is being read in a thread."""
        thread = self._refreshing
        if thread is not None:
            thread.join()

    def _refresh_in_thread(self) -> None:
        try:
            asyncio.run(self._refresh())
        except Exception as error:  # of any driver or provider; the next value that is encrypted tries again
            _log.warning("the encryption keys of %s can't be read again: %s", self.store.name, error)
        finally:
            self._refreshed_at = time.monotonic()
            self._refreshing = None

    def _run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Runs `work` to its end in a thread with an event loop of its own."""
        outcome: list[T | BaseException] = []

        def run() -> None:
            try:
                outcome.append(asyncio.run(work()))
            except BaseException as error:  # raised to the caller, in its thread
                outcome.append(error)

        thread = threading.Thread(target=run, name="greenroom-encryption-keys")
        thread.start()
        thread.join()
        (result,) = outcome
        if isinstance(result, BaseException):
            raise result
        return result
