"""The contract of an embedding model."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from array import array
from collections.abc import Sequence

from greenroom.errors import ModelError


class BaseEmbeddings(ABC):
    """Turns texts into vectors. Texts that are longer than `max_bytes` in UTF-8 are cut at their
    end.

    A subclass sets the limits of its provider. No tokenizer makes more tokens than bytes, so that a
    text of `max_bytes` fits into as many tokens.
    """

    max_bytes: int = 8000
    batch_size: int = 32

    def __init__(self, model: str) -> None:
        """Sets the name under which vectors are stored; vectors of different models are never compared."""
        self.model = model

    async def embed(self, texts: Sequence[str], *, is_query: bool = False) -> list[array[float]]:
        """Returns one vector of length 1 for each text.

        is_query: True for texts to search for, False for texts to store.

        Raises ModelError when the provider fails, and MissingExtra without its package.
        """
        vectors: list[array[float]] = []
        for first in range(0, len(texts), self.batch_size):
            batch = [self._cut(text) for text in texts[first : first + self.batch_size]]
            answer = await self.embed_batch(batch, is_query=is_query)
            if len(answer) != len(batch):
                detail = f"{self.model} returned {len(answer)} vectors for {len(batch)} texts"
                raise ModelError(detail, model=self.model)
            vectors += map(_unit_vector, answer)

        return vectors

    @abstractmethod
    async def embed_batch(
        self,
        texts: Sequence[str],
        *,
        is_query: bool,
    ) -> Sequence[Sequence[float]]:
        """Returns one vector of any length for each of up to `batch_size` texts, in their order."""

    async def close(self) -> None:
        """Closes connections, and frees a local model."""

    def _cut(self, text: str) -> str:
        return text.encode()[: self.max_bytes].decode(errors="ignore") or " "  # providers refuse empty texts


def _unit_vector(vector: Sequence[float]) -> array[float]:
    length = math.hypot(*vector) or 1.0
    return array("f", (value / length for value in vector))
