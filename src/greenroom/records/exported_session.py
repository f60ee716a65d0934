"""Sessions in files."""

from __future__ import annotations

import msgspec

from greenroom.records.base import JsonObject
from greenroom.records.feedback import Feedback
from greenroom.records.session import Session


class ExportedSession(Session, kw_only=True):
    """A line of an export."""

    initial_state: JsonObject | None = None
    """The session's own state before its first event; None if it isn't known."""
    feedback: list[Feedback] = msgspec.field(default_factory=list[Feedback])
    """The feedback on the session's events."""
