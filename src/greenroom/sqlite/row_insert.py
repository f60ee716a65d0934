"""An INSERT that writes many rows by one call."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from itertools import chain
from typing import TypeAlias

Row: TypeAlias = tuple[str | int | float | bytes | None, ...]

_SIZES = (64, 16, 4, 1)
"""Rows per call: few sizes, so that each statement is compiled once. Older releases of SQLite take 999 values."""


class RowInsert:
    """While SQLite is at work other threads have the interpreter, which they must give back after each call. In a crowd
    that costs more than the rows do, so there are few calls."""

    def __init__(self, start: str, *, columns: int, end: str = "") -> None:
        """start: up to `VALUES`. end: what follows the rows."""
        row = f"({', '.join('?' * columns)})"
        self._statements = [(size, f"{start} {', '.join([row] * size)} {end}") for size in _SIZES]

    def write(self, cursor: sqlite3.Cursor, rows: Sequence[Row]) -> None:
        """In this order. Nothing or all, in a transaction that the caller rolls back when this raises."""
        offset = 0
        for size, statement in self._statements:
            while len(rows) - offset >= size:
                cursor.execute(statement, tuple(chain.from_iterable(rows[offset : offset + size])))
                offset += size
