"""Embeddings by the name of their provider and model."""

from __future__ import annotations

import pytest

from greenroom.errors import InvalidRequest
from greenroom.models.embeddings_by_name import embeddings_from_name


@pytest.mark.parametrize(
    ("name", "stored_as"),
    [
        ("openai/text-embedding-3-small", "text-embedding-3-small"),
        ("gemini/gemini-embedding-001", "gemini-embedding-001:768"),
        ("local//models/small.gguf", "local/small.gguf"),
        ("local/smollm2-135m", "local/smollm2-135m.gguf"),
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
