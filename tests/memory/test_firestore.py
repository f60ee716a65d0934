"""Memories in Firestore keep the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from greenroom.errors import TooLarge
from greenroom.memory.firestore import FirestoreMemoryService
from greenroom.memory.from_uri import memory_service_from_uri
from greenroom.testing.contracts.memory_service import *  # noqa: F403
from greenroom.testing.contracts.memory_service import _HERE, _event, _found, _remember


@pytest.fixture
async def memory_service(firestore_host: str) -> AsyncIterator[FirestoreMemoryService]:
    service = memory_service_from_uri(f"firestore://test-{uuid4().hex}/chats")
    assert isinstance(service, FirestoreMemoryService)
    yield service
    await service.close()


async def test_many_events_and_many_words_are_stored_and_found(memory_service: FirestoreMemoryService) -> None:
    """More than one batch, and a query of more words than Firestore takes at once."""
    await _remember(memory_service, *(_event(f"note number{number}", timestamp=number) for number in range(120)))
    words = " ".join(f"number{number}" for number in range(45))
    assert sorted(await _found(memory_service, words, limit=100)) == sorted(f"note number{n}" for n in range(45))
    await _remember(memory_service)
    assert await _found(memory_service, "note") == []


async def test_an_entry_larger_than_a_document_is_refused_whole(memory_service: FirestoreMemoryService) -> None:
    with pytest.raises(TooLarge):
        await memory_service.add_events_to_memory(
            **_HERE, session_id="s-1", events=[_event("a note"), _event("note " * 200_000)]
        )
    assert await _found(memory_service, "note") == []


async def test_stop_words_are_neither_stored_nor_searched_for(firestore_host: str) -> None:
    from google.cloud.firestore import AsyncClient

    client = AsyncClient(project=f"test-{uuid4().hex}")
    whole = FirestoreMemoryService(client)
    without = FirestoreMemoryService(client, stop_words={"The"})
    await _remember(whole, _event("The bicycle"))
    assert await _found(without, "the") == []
    assert await _found(without, "the bicycle") == ["The bicycle"]
    await _remember(without, _event("the tea", timestamp=2))
    assert await _found(whole, "the") == []
    assert await _found(whole, "tea") == ["the tea"]
    client.close()
