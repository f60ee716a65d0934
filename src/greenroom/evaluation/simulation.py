"""What a case's user says next: the messages of a conversation, or a model that follows a scenario."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from greenroom.evaluation.records import EvalCase, Invocation
from greenroom.records.content import Content


class UserSimulator(Protocol):
    async def next_message(self, conversation: Sequence[Invocation]) -> Content | None:
        """conversation: all turns so far. None ends it. Raises ModelError."""
        ...


class RecordedUser:
    """Says what the case's conversation has, whatever the agent replies."""

    def __init__(self, case: EvalCase) -> None:
        self._messages = [turn.user_content for turn in case.conversation or ()]

    async def next_message(self, conversation: Sequence[Invocation]) -> Content | None:
        return self._messages[len(conversation)] if len(conversation) < len(self._messages) else None
