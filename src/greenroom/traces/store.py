"""The contract of a store of traces, and the store in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque

from greenroom.records.session import SessionKey
from greenroom.telemetry.span import Trace, TraceListener
from greenroom.telemetry.span_record import SpanRecord, span_records, spans_for_display

SPANS_SHOWN = 1000
"""Maximum number of a session's spans that are shown, the newest ones."""


class TraceStore(TraceListener, ABC):
    """Bounded: the oldest traces are deleted first. Deleting a session deletes its traces.

    Every query names the app and the user whose spans may be read, since ids can be guessed; None means any.
    """

    @abstractmethod
    def trace_ended(self, trace: Trace) -> None:
        """Stores the trace; the work is done later, not in the run."""

    @abstractmethod
    async def of_session(self, session_id: str, *, app_name: str | None, user_id: str | None) -> list[SpanRecord]:
        """Returns the session's spans in the order of their beginning; empty for an unknown session."""

    @abstractmethod
    async def of_event(self, event_id: str, *, app_name: str | None, user_id: str | None) -> SpanRecord | None:
        """The last span that was recorded for an event."""

    @abstractmethod
    async def forget(self, key: SessionKey) -> None:
        """Deletes the traces of a deleted session."""

    async def close(self) -> None:
        """Writes pending spans."""


class InMemoryTraceStore(TraceStore):
    """Spans are kept as they were recorded, and converted to records when read."""

    def __init__(self, *, with_content: bool = True, most_traces: int = 1000) -> None:
        """Creates a store.

        with_content: True to show requests, replies, arguments and results.
        """
        self._with_content = with_content
        self._traces: deque[Trace] = deque(maxlen=most_traces)

    def trace_ended(self, trace: Trace) -> None:
        if trace.root is not None:
            self._traces.append(trace)

    async def of_session(self, session_id: str, *, app_name: str | None, user_id: str | None) -> list[SpanRecord]:
        spans = [
            span
            for trace in self._traces
            if trace.run.key.session_id == session_id and _may_see(trace.run.key, app_name, user_id)
            for span in self._records(trace)
        ]
        return spans_for_display(spans[-SPANS_SHOWN:])

    async def of_event(self, event_id: str, *, app_name: str | None, user_id: str | None) -> SpanRecord | None:
        for trace in reversed(self._traces):
            if _may_see(trace.run.key, app_name, user_id):
                for span in reversed(self._records(trace)):
                    if span.event_id == event_id:
                        return span
        return None

    async def forget(self, key: SessionKey) -> None:
        self._traces = deque((trace for trace in self._traces if trace.run.key != key), self._traces.maxlen)

    def _records(self, trace: Trace) -> list[SpanRecord]:
        return span_records(trace, with_content=self._with_content)


def _may_see(key: SessionKey, app_name: str | None, user_id: str | None) -> bool:
    return app_name in (None, key.app_name) and user_id in (None, key.user_id)
