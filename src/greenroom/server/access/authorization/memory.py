"""Memories, limited to the caller's permissions."""

from __future__ import annotations

from greenroom.memory.service import BaseMemoryService
from greenroom.server.access.authorization.authorized import Authorized, reading, writing


class AuthorizedMemory(Authorized[BaseMemoryService]):
    __slots__ = ()

    add_session_to_memory = writing(BaseMemoryService.add_session_to_memory, "memory.changed")
    search_memory = reading(BaseMemoryService.search_memory)
