"""A URI names the memory store."""

from __future__ import annotations

import pytest

from greenroom.errors import InvalidRequest
from greenroom.memory.from_uri import memory_service_from_uri
from greenroom.memory.in_memory import InMemoryMemoryService


@pytest.mark.parametrize("uri", ["memory://", "sqlite://", "sqlite+aiosqlite:///:memory:"])
def test_memory_names_the_store_of_this_process(uri: str) -> None:
    assert isinstance(memory_service_from_uri(uri), InMemoryMemoryService)


@pytest.mark.parametrize("uri", ["", "memory", "memory://x", "redis://x"])
def test_others_are_refused_with_the_list_of_what_is_known(uri: str) -> None:
    with pytest.raises(InvalidRequest, match="Known: memory://"):
        memory_service_from_uri(uri)
