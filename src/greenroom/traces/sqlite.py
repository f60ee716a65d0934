"""Traces in the SQLite file of the sessions."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Sequence

from greenroom.sqlite.database import Database
from greenroom.traces.sql import DROP_OLDEST, MOST_ROWS, SpanRow, SqlTraceStore

# A run may end after its session was deleted.
_INSERT = """
    INSERT INTO spans (app_name, user_id, session_id, event_id, data)
    SELECT ?1, ?2, ?3, ?4, ?5
    WHERE EXISTS (SELECT 1 FROM sessions WHERE app_name = ?1 AND user_id = ?2 AND id = ?3)
"""


class SqliteTraceStore(SqlTraceStore):
    """Needs a file that a `SqliteSessionService` writes its sessions to."""

    def __init__(self, path: str | os.PathLike[str], *, with_content: bool = True, most_rows: int = MOST_ROWS) -> None:
        """with_content: whether requests, replies and results are stored. The first call opens the file."""
        self._file = Database.open(path)
        super().__init__(self._file, with_content=with_content, most_rows=most_rows)

    def write(self, make_rows: Callable[[], Sequence[SpanRow]]) -> asyncio.Future[None]:
        rows: list[SpanRow] = []

        def apply(cursor: sqlite3.Cursor) -> None:
            if not rows:  # made here, in the writer's thread, and once
                rows.extend(make_rows())
            cursor.executemany(_INSERT, rows)
            cursor.execute(DROP_OLDEST, (self.most_rows,))

        return self._file.submit(apply)
