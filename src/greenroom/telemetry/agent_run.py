"""An agent's share of a run."""

from __future__ import annotations

from greenroom.telemetry import names
from greenroom.telemetry.span import AttributeValue, Span


class AgentRunSpan(Span):
    __slots__ = ("_agent_name", "_description")

    def __init__(self, parent: Span, *, agent_name: str, description: str) -> None:
        super().__init__(parent.run)
        self._agent_name = agent_name
        self._description = description
        parent.add(self)

    @property
    def name(self) -> str:
        return f"{names.INVOKE_AGENT} {self._agent_name}"

    def attributes(self) -> dict[str, AttributeValue]:
        return {
            names.OPERATION: names.INVOKE_AGENT,
            names.AGENT_NAME: self._agent_name,
            names.AGENT_DESCRIPTION: self._description,
            names.CONVERSATION_ID: self.run.key.session_id,
        }
