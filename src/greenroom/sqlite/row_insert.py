"""An INSERT that writes many rows in one call."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from itertools import chain
from typing import Any, Protocol, TypeAlias

Row: TypeAlias = tuple[str | int | float | bytes | None, ...]

_SIZES = (64, 16, 4, 1)
"""Rows per call: few sizes, so that each statement is compiled once. Older releases of SQLite take 999 values."""


class RowWriter(Protocol):
    """Writes the rows of a transaction together."""

    def write(self, cursor: sqlite3.Cursor, rows: Sequence[Any]) -> None:
        """Writes the rows in this order. When this raises, the caller rolls its transaction back."""
        ...


class RowInsert:
    """SQLite releases the GIL during each call and has to acquire it again after it. With many threads that costs more
    than writing the rows, so many rows share one call."""

    def __init__(self, start: str, *, columns: int, end: str = "") -> None:
        """Prepares the statement. `start` is the part up to `VALUES`, `end` the part after the rows."""
        row = f"({', '.join('?' * columns)})"
        self._statements = [(size, f"{start} {', '.join([row] * size)} {end}") for size in _SIZES]

    def write(self, cursor: sqlite3.Cursor, rows: Sequence[Row]) -> None:
        """Writes the rows in this order. When this raises, the caller rolls its transaction back."""
        offset = 0
        for size, statement in self._statements:
            while len(rows) - offset >= size:
                cursor.execute(statement, tuple(chain.from_iterable(rows[offset : offset + size])))
                offset += size
