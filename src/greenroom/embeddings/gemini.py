"""Embeddings of Gemini's models, by the Gemini API or Vertex AI."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from greenroom.embeddings.embeddings import BaseEmbeddings
from greenroom.errors import MissingExtra, ModelError


class GeminiEmbeddings(BaseEmbeddings):
    """Embeddings by Gemini or Vertex AI.

    dimensions: of shorter vectors; with None, the vectors are as long as the model makes them.
    client_options: arguments of `google.genai.Client`, which otherwise reads GEMINI_API_KEY or
    GOOGLE_API_KEY, or the settings of Vertex AI, from the environment.
    """

    def __init__(
        self,
        model: str = "gemini-embedding-001",
        *,
        dimensions: int | None = 768,
        **client_options: Any,
    ) -> None:
        super().__init__(model if dimensions is None else f"{model}:{dimensions}")
        self._name = model
        self._dimensions = dimensions
        self._client_options = client_options
        self._client: Any = None

    async def embed_batch(
        self,
        texts: Sequence[str],
        *,
        is_query: bool,
    ) -> Sequence[Sequence[float]]:
        try:
            from google import genai
        except ImportError as error:
            raise MissingExtra("gemini", "google-genai") from error

        task = "RETRIEVAL_QUERY" if is_query else "RETRIEVAL_DOCUMENT"
        try:
            if self._client is None:
                self._client = genai.Client(**self._client_options)

            client: Any = self._client
            answer: Any = await client.aio.models.embed_content(
                model=self._name,
                contents=list(texts),
                config={"task_type": task, "output_dimensionality": self._dimensions},
            )
        except Exception as error:  # also those of httpx or aiohttp, whichever the SDK uses, and for a missing key
            raise ModelError(f"{self.model}: {error}", model=self.model) from error

        embeddings = cast("list[Any]", answer.embeddings or [])

        return [embedding.values or [] for embedding in embeddings]

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aio.aclose()
