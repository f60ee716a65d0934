"""The contract of a store of run records."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod

from greenroom.records.run import Run


class RunStore(ABC):
    """Keeps the record of every run, beside the session store and, where that is a database, in it.

    Records are written in the order of the calls, and in order with the session store's appends on the same database:
    a record saved before an event was appended is never missing when the event is there.
    """

    @abstractmethod
    def save(self, run: Run) -> asyncio.Future[None]:
        """Write the record as it is now, over an earlier one. Queued at the call; the future says when it is stored.

        Its failure is logged, so the future may be dropped.
        """

    @abstractmethod
    async def get(self, run_id: str) -> Run | None: ...

    @abstractmethod
    async def find_by_idempotency_key(self, *, app_name: str, user_id: str, key: str) -> Run | None:
        """The run that was ever saved with this key, as it is now; its key and digest are those of that time.

        A run has one key for the request that began it, and one for each answer that it went on with.
        """

    @abstractmethod
    async def list_runs(self, *, app_name: str, user_id: str, session_id: str, limit: int = 100) -> list[Run]:
        """Runs of a session, newest first."""

    @abstractmethod
    async def list_unfinished(self) -> list[Run]:
        """All that are queued or running, oldest first: after a start, what a crash left behind."""

    async def close(self) -> None:
        """Let go of the database."""
