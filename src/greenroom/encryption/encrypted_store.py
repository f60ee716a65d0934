"""The contract of stores that encrypt, for the server that opens them."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class EncryptedStore(Protocol):
    """A store that can encrypt what it holds."""

    async def load_keys(self) -> None:
        """Opens the store, and writes nothing if that fails.

        Raises KeyRefused if the store has no keys although it is encrypted, or if they are not its own.
        """
        ...

    @property
    def is_encrypted(self) -> bool:
        """True for a store that was given keys."""
        ...
