"""The contract of a memory store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from greenroom.errors import NotOffered
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import Content
from greenroom.records.event import Event
from greenroom.records.listings import ListMemoriesResponse, MemoryEntry, SearchMemoryResponse
from greenroom.records.session import Session

OfMemory = TypeVar("OfMemory", Event, MemoryEntry)


def with_metadata(entry: OfMemory, metadata: Mapping[str, JsonValue] | None) -> OfMemory:
    """An event or entry with more metadata; its own counts more."""
    if not metadata:
        return entry
    return msgspec.structs.replace(entry, custom_metadata={**metadata, **(entry.custom_metadata or {})})


class BaseMemoryService(ABC):
    """Stores memories per user and app.

    Methods that are not abstract raise NotOffered in stores without them, such as those written for ADK.
    """

    @abstractmethod
    async def add_session_to_memory(self, session: Session) -> None:
        """Stores the session's events with content, replacing its earlier ones."""

    async def add_events_to_memory(
        self, *, app_name: str, user_id: str, session_id: str, events: Sequence[Event]
    ) -> None:
        """Adds events of a session; events already stored, by id, are skipped."""
        raise NotOffered(f"{type(self).__name__} stores whole sessions only")

    async def add_memories(self, *, app_name: str, user_id: str, memories: Sequence[MemoryEntry]) -> None:
        """Stores entries that belong to no session."""
        if type(self).add_memory is BaseMemoryService.add_memory:
            raise NotOffered(f"{type(self).__name__} stores whole sessions only")
        await self.add_memory(app_name=app_name, user_id=user_id, memories=memories)

    async def add_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        memories: Sequence[MemoryEntry],
        custom_metadata: Mapping[str, JsonValue] | None = None,
    ) -> None:
        """ADK's form of `add_memories`. custom_metadata: for all entries."""
        entries = [with_metadata(entry, custom_metadata) for entry in memories]
        await self.add_memories(app_name=app_name, user_id=user_id, memories=entries)

    @abstractmethod
    async def search_memory(self, *, app_name: str, user_id: str, query: str, limit: int = 10) -> SearchMemoryResponse:
        """Finds entries that share a word with the query, best first. Words are runs of Unicode letters and digits.

        Stores with embeddings also find entries without a common word.
        """

    async def list_memories(
        self, *, app_name: str, user_id: str, limit: int = 100, page_token: str | None = None
    ) -> ListMemoriesResponse:
        """A page of a user's memories, in the order in which they were added. Raises InvalidRequest."""
        raise NotOffered(f"{type(self).__name__} can't list memories")

    async def change_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        memory_id: str,
        content: Content,
        custom_metadata: JsonObject | None = None,
    ) -> MemoryEntry | None:
        """Replaces the content of the entry with this id, and its metadata if some is given. Returns the entry; None if
        it doesn't exist. An entry of a session has the content of its event again when the session is added again.
        """
        raise NotOffered(f"{type(self).__name__} can't change memories")

    async def delete_user(self, *, app_name: str, user_id: str) -> None:
        """Deletes all memories of a user in an app."""
        raise NotOffered(f"{type(self).__name__} can't delete a user's memories")

    async def delete_memory(self, *, app_name: str, user_id: str, memory_id: str | None = None) -> None:
        """Deletes the entry with this id, whatever its source; does nothing if it doesn't exist."""
        raise NotOffered(f"{type(self).__name__} can't delete memories")

    async def close(self) -> None:
        """Closes files and connections."""
