"""The contract of a store of traces."""

from __future__ import annotations

from abc import ABC, abstractmethod

from greenroom.records.session import SessionKey
from greenroom.telemetry.span_record import SpanRecord
from greenroom.telemetry.trace import Trace, TraceListener

SPANS_SHOWN = 1000
"""At most so many of a session's spans are shown, the newest ones."""


class TraceStore(TraceListener, ABC):
    """Bounded: the oldest traces go first. A session's traces go with it.

    Spans are asked for by ids that their askers know, so every question says whose spans may be shown; None stands for
    any app, or any user.
    """

    @abstractmethod
    def trace_ended(self, trace: Trace) -> None:
        """Keep it; what that takes is done later, off the path of the run."""

    @abstractmethod
    async def of_session(self, session_id: str, *, app_name: str | None, user_id: str | None) -> list[SpanRecord]:
        """In the order of their beginning; empty for a session that is not known."""

    @abstractmethod
    async def of_event(self, event_id: str, *, app_name: str | None, user_id: str | None) -> SpanRecord | None:
        """The last span that was recorded for an event."""

    @abstractmethod
    async def forget(self, key: SessionKey) -> None:
        """Drop the traces of a session that was deleted."""

    async def close(self) -> None:
        """Write what is yet to be written."""
