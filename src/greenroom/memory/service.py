"""The contract of a memory store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from greenroom.records.event import Event
from greenroom.records.listings import MemoryEntry, SearchMemoryResponse
from greenroom.records.session import Session


class BaseMemoryService(ABC):
    """Remembers what was said, per user in an app. Nothing is added by itself."""

    @abstractmethod
    async def add_session_to_memory(self, session: Session) -> None:
        """Remember the session's events that have content, in place of what was remembered of that session."""

    @abstractmethod
    async def add_events_to_memory(
        self, *, app_name: str, user_id: str, session_id: str, events: Sequence[Event]
    ) -> None:
        """Remember more events of a session; those known by id are not taken twice."""

    @abstractmethod
    async def add_memories(self, *, app_name: str, user_id: str, memories: Sequence[MemoryEntry]) -> None:
        """Remember entries that belong to no session."""

    @abstractmethod
    async def search_memory(self, *, app_name: str, user_id: str, query: str, limit: int = 10) -> SearchMemoryResponse:
        """Entries that share a word with the query, best first. Words are runs of Unicode letters and digits."""

    async def close(self) -> None:
        """Let go of files and connections."""
