"""From a URI to the memory store it names."""

from __future__ import annotations

from greenroom.errors import InvalidRequest
from greenroom.memory.service import BaseMemoryService

_KNOWN = "memory://"


def memory_service_from_uri(uri: str) -> BaseMemoryService:
    """The store for a URI. Raises InvalidRequest."""
    scheme, separator, rest = uri.partition("://")
    if scheme == "memory" and separator and not rest.strip("/"):
        from greenroom.memory.in_memory import InMemoryMemoryService

        return InMemoryMemoryService()
    raise InvalidRequest(f"No memory store is known for {uri!r}. Known: {_KNOWN}", location=("uri",))
