"""Traces in the PostgreSQL database of the sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from greenroom.postgres.connection import Connection
from greenroom.postgres.database import Database, numbered
from greenroom.traces.sql import DROP_OLDEST, MOST_ROWS, SpanRow, SqlTraceStore

# A run may end after its session was deleted.
_INSERT = """
    INSERT INTO spans (app_name, user_id, session_id, event_id, data)
    SELECT app_name, user_id, session_id, event_id, data
    FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[])
        WITH ORDINALITY AS given (app_name, user_id, session_id, event_id, data, place)
    WHERE EXISTS (
        SELECT 1 FROM sessions
        WHERE sessions.app_name = given.app_name AND sessions.user_id = given.user_id AND id = session_id
    )
    ORDER BY place
"""


class PostgresTraceStore(SqlTraceStore):
    """Needs a database that a `PostgresSessionService` writes its sessions to."""

    def __init__(self, uri: str, *, with_content: bool = True, most_rows: int = MOST_ROWS) -> None:
        """with_content: whether requests, replies and results are stored. Connects on the first call."""
        self._postgres = Database.open(uri)
        super().__init__(self._postgres, with_content=with_content, most_rows=most_rows)

    def write(self, make_rows: Callable[[], Sequence[SpanRow]]) -> asyncio.Future[None]:
        return asyncio.ensure_future(self._insert(make_rows))

    async def _insert(self, make_rows: Callable[[], Sequence[SpanRow]]) -> None:
        rows = await asyncio.to_thread(make_rows)

        async def apply(connection: Connection) -> None:
            if rows:
                await connection.execute(_INSERT, *map(list, zip(*rows, strict=True)))
            await connection.execute(numbered(DROP_OLDEST), self.most_rows)

        await self._postgres.submit(apply)
