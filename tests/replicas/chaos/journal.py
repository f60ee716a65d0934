"""A journal of faults and of what clients noticed of them, for the report of a failed check."""

from __future__ import annotations

import time
from collections import Counter
from typing import NamedTuple


class Entry(NamedTuple):
    time: float
    who: str
    what: str

    def __str__(self) -> str:
        moment = time.strftime("%H:%M:%S", time.gmtime(self.time))
        return f"{moment}.{int(self.time % 1 * 1000):03} {self.who}: {self.what}"


class Journal:
    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.counts: Counter[str] = Counter()

    def note(self, who: str, what: str) -> None:
        self.entries.append(Entry(time.time(), who, what))

    def count(self, name: str, by: int = 1) -> None:
        self.counts[name] += by

    def of(self, who: str) -> list[Entry]:
        return [entry for entry in self.entries if entry.who == who]

    def around(self, begin: float, end: float, *, who: str) -> list[Entry]:
        return [entry for entry in self.entries if entry.who == who and begin <= entry.time <= end]
