"""The contract of a model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

from greenroom.models.live_model import BaseLlmConnection
from greenroom.records.declarative import Declarative
from greenroom.records.model_exchange import LlmRequest, LlmResponse


class BaseLlm(Declarative, ABC):
    """A model by name. One instance serves many runs at once.

    A subclass may declare fields of its own as annotations. The contents of a request belong to the session's log: a
    model reads them, and makes new ones for what it changes.
    """

    model: str

    @abstractmethod
    def generate_content_async(self, llm_request: LlmRequest, stream: bool = False) -> AsyncIterator[LlmResponse]:
        """Answer a request.

        Not streaming: exactly one response. Streaming: any number with `partial=True`, each with only the new content,
        then one without `partial` that holds the whole. Raises ModelError when the provider fails; an answer cut short
        by the provider's rules is a response with `error_code`.
        """

    def connect(self, llm_request: LlmRequest) -> AbstractAsyncContextManager[BaseLlmConnection]:
        """Open a live connection. Raises NotImplementedError for models that have none."""
        raise NotImplementedError(f"{self.model} has no live connection")

    async def close(self) -> None:
        """Let go of connections, threads and files."""
