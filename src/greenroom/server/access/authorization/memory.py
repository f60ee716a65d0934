"""Memories, limited to the caller's permissions."""

from __future__ import annotations

from typing import Any

from greenroom.memory.service import BaseMemoryService
from greenroom.records.listings import MemoryEntry
from greenroom.server.access.authorization.authorized import Authorized, reading, writing


class AuthorizedMemory(Authorized[BaseMemoryService]):
    __slots__ = ()

    add_session_to_memory = writing(BaseMemoryService.add_session_to_memory, "memory.changed")
    search_memory = reading(BaseMemoryService.search_memory)
    list_memories = reading(BaseMemoryService.list_memories)

    async def change_memory(self, *, memory_id: str, **named: Any) -> MemoryEntry | None:
        """As `BaseMemoryService.change_memory`. Raises Forbidden."""
        self._check("write", (), named)
        changed = await self._service.change_memory(memory_id=memory_id, **named)
        if changed is not None:
            await self._permissions.record(
                "memory.changed", app_name=named["app_name"], user_id=named["user_id"], target=memory_id
            )
        return changed

    async def delete_memory(self, *, app_name: str, user_id: str, memory_id: str) -> None:
        """Raises Forbidden."""
        self._permissions.check("write", app_name, user_id)
        await self._service.delete_memory(app_name=app_name, user_id=user_id, memory_id=memory_id)
        await self._permissions.record("memory.deleted", app_name=app_name, user_id=user_id, target=memory_id)
