"""A URI names the memory store."""

from __future__ import annotations

import pytest

from greenroom.errors import InvalidRequest
from greenroom.memory.from_uri import embeddings_from_name, memory_service_from_uri
from greenroom.memory.in_memory import InMemoryMemoryService


@pytest.mark.parametrize("uri", ["memory://", "sqlite://", "sqlite+aiosqlite:///:memory:"])
def test_memory_names_the_store_of_this_process(uri: str) -> None:
    assert isinstance(memory_service_from_uri(uri), InMemoryMemoryService)


@pytest.mark.parametrize("uri", ["", "memory", "memory://x", "redis://x"])
def test_others_are_refused_with_the_list_of_what_is_known(uri: str) -> None:
    with pytest.raises(InvalidRequest, match="Known: memory://"):
        memory_service_from_uri(uri)


@pytest.mark.parametrize(
    ("name", "stored_as"),
    [
        ("openai/text-embedding-3-small", "text-embedding-3-small"),
        ("gemini/gemini-embedding-001", "gemini-embedding-001:768"),
        ("local//models/small.gguf", "local/small.gguf"),
    ],
)
async def test_embeddings_have_names(name: str, stored_as: str) -> None:
    embeddings = embeddings_from_name(name)
    assert embeddings.model == stored_as
    await embeddings.close()


@pytest.mark.parametrize("name", ["", "openai", "openai/", "cohere/x"])
def test_unknown_embeddings_are_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match="Known: openai/MODEL"):
        embeddings_from_name(name)
