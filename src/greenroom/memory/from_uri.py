"""Creates the memory store that a URI names."""

from __future__ import annotations

from greenroom.errors import InvalidRequest
from greenroom.memory.service import BaseMemoryService

_KNOWN = "memory://"


def memory_service_from_uri(uri: str) -> BaseMemoryService:
    """Raises InvalidRequest for an unknown URI."""
    scheme, separator, rest = uri.partition("://")
    if scheme == "memory" and separator and not rest.strip("/"):
        from greenroom.memory.in_memory import InMemoryMemoryService

        return InMemoryMemoryService()
    raise InvalidRequest(f"Unknown memory store: {uri!r}. Known: {_KNOWN}", location=("uri",))
