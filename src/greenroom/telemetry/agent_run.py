"""What the span of an agent's share of a run holds."""

from __future__ import annotations

from greenroom.telemetry import names
from greenroom.telemetry.span import Span


def begin_agent_run(parent: Span, *, name: str, description: str) -> Span:
    span = parent.child(f"{names.INVOKE_AGENT} {name}")
    span.attributes = {
        names.OPERATION: names.INVOKE_AGENT,
        names.AGENT_NAME: name,
        names.AGENT_DESCRIPTION: description,
        names.CONVERSATION_ID: span.trace.key.session_id,
    }
    return span
