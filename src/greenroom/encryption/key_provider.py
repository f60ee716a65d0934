"""The contract of a holder of key-encryption keys: a file, the environment, or a key management service."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class WrappedKey(NamedTuple):
    """A data key, encrypted by a key-encryption key."""

    key_id: str
    """The key-encryption key, with its version."""

    data: bytes


class KeyProvider(Protocol):
    """Wraps and unwraps data keys, which are random and have 32 bytes. It never sees the data.

    A server calls it when it opens a store, and when it needs a new data key: never for single rows. The methods may be
    called in other event loops than the server's, so connections are opened for each call. They raise KeyRefused, with
    the reason: for a key that the provider lacks, or for a service that can't be reached.
    """

    async def current_key_id(self) -> str:
        """Returns the id of the key with which `wrap` wraps now."""
        ...

    async def wrap(self, data_key: bytes) -> WrappedKey:
        """Encrypts a data key with the current key-encryption key."""
        ...

    async def unwrap(self, wrapped: WrappedKey) -> bytes:
        """Decrypts a data key, also one that an earlier key-encryption key has wrapped."""
        ...
