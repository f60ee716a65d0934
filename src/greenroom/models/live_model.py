"""The contract of a live, two-way connection to a model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence

from greenroom.records.content import Blob, Content
from greenroom.records.model_exchange import LlmResponse


class BaseLlmConnection(ABC):
    @abstractmethod
    async def send_history(self, history: Sequence[Content]) -> None:
        """Give the conversation so far; the model answers if its last content is the user's."""

    @abstractmethod
    async def send_content(self, content: Content) -> None:
        """Give a whole user turn, or function responses."""

    @abstractmethod
    async def send_realtime(self, blob: Blob) -> None:
        """Give a piece of audio, video or an image as it comes."""

    @abstractmethod
    def receive(self) -> AsyncIterator[LlmResponse]:
        """What the model says, until the connection ends."""

    @abstractmethod
    async def close(self) -> None: ...
