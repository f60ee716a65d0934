"""Creates embeddings by the name of their provider and model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from greenroom.errors import InvalidRequest

if TYPE_CHECKING:
    from greenroom.embeddings.embeddings import BaseEmbeddings

_KNOWN = "openai/MODEL, gemini/MODEL, local/MODEL, local/FILE.gguf"


def embeddings_from_name(name: str) -> BaseEmbeddings:
    """Creates embeddings from a name: the provider, and its model or a file.

    A local model that was not downloaded yet fails when it is used. Raises InvalidRequest for an unknown provider.
    """
    provider, _, model = name.partition("/")
    if provider == "openai" and model:
        from greenroom.embeddings.openai import OpenAIEmbeddings

        return OpenAIEmbeddings(model)

    if provider == "gemini" and model:
        from greenroom.embeddings.gemini import GeminiEmbeddings

        return GeminiEmbeddings(model)

    if provider == "local" and model:
        from greenroom.embeddings.local import LocalEmbeddings
        from greenroom.models.local.files import file_of_known_model

        return LocalEmbeddings(file_of_known_model(model) or model)

    raise InvalidRequest(f"There are no embeddings {name!r}. Known: {_KNOWN}")
