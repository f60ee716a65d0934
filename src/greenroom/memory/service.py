"""The contract of a memory store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from greenroom.records.event import Event
from greenroom.records.listings import MemoryEntry, SearchMemoryResponse
from greenroom.records.session import Session


class BaseMemoryService(ABC):
    """Stores memories per user and app. Nothing is added automatically."""

    @abstractmethod
    async def add_session_to_memory(self, session: Session) -> None:
        """Stores the session's events that have content, replacing its earlier ones."""

    @abstractmethod
    async def add_events_to_memory(
        self, *, app_name: str, user_id: str, session_id: str, events: Sequence[Event]
    ) -> None:
        """Adds events of a session; events already stored, by id, are skipped."""

    @abstractmethod
    async def add_memories(self, *, app_name: str, user_id: str, memories: Sequence[MemoryEntry]) -> None:
        """Stores entries that belong to no session."""

    @abstractmethod
    async def search_memory(self, *, app_name: str, user_id: str, query: str, limit: int = 10) -> SearchMemoryResponse:
        """Finds entries that share a word with the query, best first. Words are runs of Unicode letters and digits."""

    async def close(self) -> None:
        """Closes files and connections."""
