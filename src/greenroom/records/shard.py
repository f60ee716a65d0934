"""The shards over which sessions are distributed, so that several servers can share a store."""

from __future__ import annotations

from hashlib import sha256

from greenroom.records.session import SessionKey

SHARDS = 256
"""Their number. Stored epochs belong to shards, so it stays."""


class Shards(frozenset[int]):
    """Some of the shards, with their sessions."""

    def include(self, key: SessionKey) -> bool:
        """True for a session that belongs to one of them."""
        return shard_of(key) in self


def shard_of(key: SessionKey) -> int:
    """The first byte of the SHA-256 digest of app, user and session id, in UTF-8, separated by NUL characters.

    The same for every process and release, and that of the function `shard_of` in PostgreSQL.
    """
    return sha256("\0".join(key).encode("utf-8", "surrogatepass")).digest()[0]
