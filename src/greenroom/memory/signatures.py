"""Signatures of vectors, one bit for the sign of each component: a search in memory for the nearest of many."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterable
from dataclasses import dataclass

from greenroom.errors import MissingExtra

MAX_SCANNED = 200_000
"""Greatest number of vectors of a user that are searched, the newest first."""
_MAX_CACHED = 400_000


def check_numpy() -> None:
    """Raises MissingExtra without numpy."""
    import importlib.util

    if importlib.util.find_spec("numpy") is None:
        raise MissingExtra("embeddings", "numpy")


def signs(vector: array[float]) -> str:
    return "".join("1" if value > 0 else "0" for value in vector)


@dataclass(frozen=True, slots=True)
class Signatures:
    """The signatures of a user's vectors of one model, oldest first."""

    entries: list[int]
    bits: bytes
    """Those of all entries, one after the other."""

    read_to: int = 0
    """The position in the database from which the next read continues."""

    repeated: frozenset[int] = frozenset()
    """Entries of these that the next read may return again."""

    def extended(self, rows: Iterable[tuple[int, bytes]], *, read_to: int, repeated: Iterable[int] = ()) -> Signatures:
        """Returns these signatures with more entries.

        rows: entries with their bits, oldest first, all of the same number of whole 64-bit words.
        """
        new = {entry: bits for entry, bits in rows if entry not in self.repeated}
        if not new:
            return Signatures(self.entries, self.bits, read_to, frozenset(repeated))
        # Copied, since other threads may be reading the present ones.
        entries = [*self.entries, *new]
        bits = b"".join((self.bits, *new.values()))

        dropped = max(len(entries) - MAX_SCANNED, 0)
        bits = bits[dropped * (len(bits) // len(entries)) :]
        return Signatures(entries[dropped:], bits, read_to, frozenset(repeated))

    def nearest(self, query: bytes, count: int) -> list[int]:
        """Returns the `count` entries whose bits differ least."""
        import numpy

        if len(self.entries) <= count:
            return self.entries
        words = numpy.frombuffer(query, "u8")
        columns = numpy.frombuffer(self.bits, "u8").reshape(-1, len(words)).T
        distances = numpy.zeros(len(self.entries), "u4")
        for column, word in zip(columns, words, strict=True):  # a sum over short rows takes three times as long
            distances += numpy.bitwise_count(column ^ word)
        return [self.entries[at] for at in numpy.argpartition(distances, count)[:count]]


NONE = Signatures([], b"")

Owner = tuple[str, str]


class SignatureCache:
    """Cache of the signatures of the users who searched last.

    Entries are only added: deleted ones have no vector any more, so a search drops them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: dict[tuple[Owner, str], Signatures] = {}

    def get(self, owner: Owner, model: str) -> Signatures:
        with self._lock:
            return self._of.get((owner, model), NONE)

    def put(self, owner: Owner, model: str, known: Signatures, extended: Signatures) -> None:
        """Replaces `known` by `extended`, unless another thread has replaced it in the meantime."""
        with self._lock:
            if self._of.get((owner, model), NONE) is not known:
                return
            self._of.pop((owner, model), None)
            self._of[owner, model] = extended
            cached = sum(len(each.entries) for each in self._of.values())
            for key in list(self._of)[:-1]:
                if cached <= _MAX_CACHED:
                    break
                cached -= len(self._of.pop(key).entries)

    def drop(self, owner: Owner, model: str) -> None:
        with self._lock:
            self._of.pop((owner, model), None)

    def clear(self) -> None:
        with self._lock:
            self._of.clear()
