"""A GGUF model embeds texts without a network."""

from __future__ import annotations

from pathlib import Path

import pytest

from greenroom.embeddings.local import LocalEmbeddings
from greenroom.errors import ModelError
from greenroom.models.local.files import find_model_file

_FACTS = ["My bicycle is blue", "I was born in Lisbon", "I work as a carpenter", "My dog is called Rex"]
_QUESTIONS = ["What colour is my bike?", "Where do I come from?", "What is my job?", "What is the name of my pet?"]


@pytest.mark.model
async def test_a_generating_model_finds_facts_by_their_meaning() -> None:
    embeddings = LocalEmbeddings(find_model_file("local/smollm2-135m"))
    facts = await embeddings.embed(_FACTS)
    questions = await embeddings.embed(_QUESTIONS, is_query=True)
    found = [
        max(range(4), key=lambda at: sum(a * b for a, b in zip(question, facts[at], strict=True)))
        for question in questions
    ]
    assert sum(at == fact for at, fact in enumerate(found)) >= 3
    embeddings.max_bytes = 200
    [long] = await embeddings.embed(["word " * 5000])
    assert len(long) == len(facts[0])
    await embeddings.close()


async def test_a_missing_file_is_named() -> None:
    embeddings = LocalEmbeddings(Path("nowhere.gguf"))
    with pytest.raises(ModelError, match=r"no model file at .*nowhere\.gguf"):
        await embeddings.embed(["a"])
    await embeddings.close()
