"""Embeddings of OpenAI, and of servers that offer its endpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from greenroom.embeddings.embeddings import BaseEmbeddings
from greenroom.errors import MissingExtra, ModelError

if TYPE_CHECKING:
    import openai


class OpenAIEmbeddings(BaseEmbeddings):
    """Embeds by `POST /embeddings`.

    base_url, api_key: as in the SDK, which otherwise reads OPENAI_BASE_URL and OPENAI_API_KEY; servers of one's own at
    `base_url` need no key. dimensions: of shorter vectors, from models that can shorten them.
    """

    def __init__(
        self,
        model: str = "text-embedding-3-small",
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        dimensions: int | None = None,
    ) -> None:
        super().__init__(f"{model}:{dimensions}" if dimensions else model)
        self._name = model
        self._base_url = base_url
        self._api_key = api_key
        self._dimensions = dimensions
        self._client: openai.AsyncOpenAI | None = None

    async def embed_batch(
        self,
        texts: Sequence[str],
        *,
        is_query: bool,
    ) -> Sequence[Sequence[float]]:
        try:
            import openai
        except ImportError as error:
            raise MissingExtra("openai", "openai") from error

        try:
            if self._client is None:
                key = self._api_key or ("none" if self._base_url else None)
                self._client = openai.AsyncOpenAI(api_key=key, base_url=self._base_url)

            answer = await self._client.embeddings.create(
                model=self._name,
                input=list(texts),
                dimensions=self._dimensions or openai.omit,
                encoding_format="float",  # not every compatible server knows base64
            )
        except openai.OpenAIError as error:
            raise ModelError(f"{self.model}: {error}", model=self.model) from error

        return [one.embedding for one in sorted(answer.data, key=lambda one: one.index)]

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
