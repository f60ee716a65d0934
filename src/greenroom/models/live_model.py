"""The contract of a live, two-way connection to a model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from typing import TypeAlias

from greenroom.records.content import Blob, Content
from greenroom.records.model_exchange import ActivityEnd, ActivityStart, AudioStreamEnd, LlmResponse

RealtimeInput: TypeAlias = Blob | ActivityStart | ActivityEnd | AudioStreamEnd


class BaseLlmConnection(ABC):
    """One connection. Whoever opened it sends from one task and receives in another.

    When the connection is lost, sending and receiving raise ModelError with `retryable`; another error of the model is
    a ModelError without it.
    """

    @abstractmethod
    async def send_history(self, history: Sequence[Content]) -> None:
        """Give the conversation so far; the model answers if its last content is the user's."""

    @abstractmethod
    async def send_content(self, content: Content, *, partial: bool = False) -> None:
        """Give a user's turn, or function responses. partial: more of the turn will follow."""

    @abstractmethod
    async def send_realtime(self, data: RealtimeInput) -> None:
        """Give a piece of audio, video or an image as it comes, or say when the user begins and stops speaking."""

    @abstractmethod
    def receive(self) -> AsyncIterator[LlmResponse]:
        """What the model says, turn after turn, until the connection was closed from either side.

        Text and transcriptions: pieces with `partial`, then the whole without; a transcription's whole is `finished`.
        Media: content without `partial`. Function calls: whole. `turn_complete` and `interrupted` end a turn.
        """

    @abstractmethod
    async def close(self) -> None:
        """Whoever is receiving gets what has come, and then the end."""
