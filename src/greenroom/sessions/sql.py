"""The session backend on a database: runs `SessionQueries` in its transactions."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from greenroom.log.compaction import changes_loading
from greenroom.records.event import Event
from greenroom.records.session import GetSessionConfig, SessionFilter, SessionKey
from greenroom.records.state import ScopedDelta
from greenroom.sessions.arguments import page_position
from greenroom.sessions.backend import Created, LogPage, SessionBackend, SessionPage, Stored, first_page
from greenroom.sessions.cached_session import CachedSession
from greenroom.sessions.prepared_event import PreparedEvent
from greenroom.sessions.sql_queries import LIST_APPS, SESSIONS_PER_DELETION, SessionQueries
from greenroom.sessions.stored_event import BLOB_BYTES

if TYPE_CHECKING:
    from greenroom.postgres.database import Database as PostgresDatabase
    from greenroom.sqlite.database import Database as SqliteDatabase

T = TypeVar("T")


class SqlSessionBackend(SessionBackend):
    """Base of the SQL backends. Subclasses implement the differences between the databases: transactions, and appends
    of rows.
    """

    def __init__(self, database: SqliteDatabase | PostgresDatabase) -> None:
        self._fetch = database.fetch

    @abstractmethod
    def write(
        self, work: Callable[[SessionQueries], Coroutine[Any, Any, T]], after_commit: Callable[[T], None] | None = None
    ) -> Awaitable[T]:
        """Runs `work` in a transaction, which may share its commit with others."""

    @abstractmethod
    async def snapshot(self, work: Callable[[SessionQueries], Coroutine[Any, Any, T]]) -> T:
        """Runs `work`, whose queries all see the same snapshot of the database."""

    @abstractmethod
    def append_rows(
        self, key: SessionKey, prepared: Sequence[PreparedEvent], after_commit: Callable[[Stored], None]
    ) -> Awaitable[Stored]:
        """Like `append`, for events that need only their own rows: together with appends to other sessions."""

    def create(
        self,
        key: SessionKey,
        now: float,
        delta: ScopedDelta,
        prepared: Sequence[PreparedEvent],
        after_commit: Callable[[Created], None],
    ) -> Awaitable[Created]:
        async def work(queries: SessionQueries) -> Created:
            session = await queries.create(key, now, delta)
            session.epoch = self.epoch
            session.checked_at = time.monotonic()
            return Created(session, await queries.append(key, prepared))

        return self.write(work, after_commit)

    async def fork(self, key: SessionKey, new_key: SessionKey, seq: int | None, now: float) -> CachedSession:
        return await self.write(lambda queries: queries.fork(key, new_key, seq, now))

    def append(
        self, key: SessionKey, prepared: Sequence[PreparedEvent], after_commit: Callable[[Stored], None]
    ) -> Awaitable[Stored]:
        if any(len(one.json or b"") > BLOB_BYTES or changes_loading(one.event) for one in prepared):
            return self.write(lambda queries: queries.append(key, prepared), after_commit)
        return self.append_rows(key, prepared, after_commit)

    def delete(self, key: SessionKey, after_commit: Callable[[], None]) -> Awaitable[None]:
        return self.write(lambda queries: queries.delete(key), lambda _: after_commit())

    async def delete_user(
        self, app_name: str, user_id: str, after_commit: Callable[[Sequence[SessionKey]], None]
    ) -> None:
        while True:
            deleted = await self.write(lambda queries: queries.delete_user(app_name, user_id), after_commit)
            if len(deleted) < SESSIONS_PER_DELETION:
                return

    async def read(
        self, key: SessionKey, *, known_number: int = 0, known_events: int = 0, from_compaction: bool = False
    ) -> CachedSession | None:
        return await self.snapshot(
            lambda queries: queries.read(
                key, known_number=known_number, known_events=known_events, from_compaction=from_compaction
            )
        )

    async def read_part(self, key: SessionKey, config: GetSessionConfig) -> CachedSession | None:
        return await self.snapshot(lambda queries: queries.read_part(key, config))

    async def read_events(self, key: SessionKey, after: int, limit: int | None) -> LogPage | None:
        return await self.snapshot(lambda queries: queries.read_events(key, after, limit))

    async def read_later(self, key: SessionKey, last_id: str | None, known: int) -> list[Event] | None:
        return await self.snapshot(lambda queries: queries.read_later(key, last_id, known))

    async def find_event(self, key: SessionKey, event_id: str) -> int | None:
        return await self.snapshot(lambda queries: queries.find_event(key, event_id))

    async def list_sessions(
        self, app_name: str, user_id: str | None, where: SessionFilter, limit: int | None, page_token: str | None
    ) -> SessionPage:
        before = page_position(page_token)
        one_more = None if limit is None else limit + 1
        found = await self.snapshot(lambda queries: queries.read_page(app_name, user_id, where, before, one_more))
        return first_page(found, limit)

    async def list_apps(self) -> list[str]:
        rows = await self._fetch(LIST_APPS)
        return [name for (name,) in rows]
