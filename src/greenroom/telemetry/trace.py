"""What is recorded of one run, for whoever listens."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

from greenroom.records.session import SessionKey
from greenroom.telemetry.span import RunSpan, Span
from greenroom.telemetry.traced_run import TracedRun


class Trace:
    """What one process did for a run, from its start or its resumption on.

    root: the span of the run itself; None for a run that never got its turn. status: the run's, once it has ended.

    Nothing here refers to itself: a trace that is dropped is gone, and no work for the garbage collector.
    """

    __slots__ = ("end_time", "root", "run", "status")

    def __init__(self, key: SessionKey, run_id: str, *, traceparent: str | None = None) -> None:
        self.run = TracedRun(key, run_id, traceparent)
        self.root: RunSpan | None = None
        self.status = ""
        self.end_time = 0

    def begin(self) -> RunSpan:
        """The span of the run itself."""
        self.root = RunSpan(self.run)
        return self.root

    def spans(self) -> list[tuple[Span, Span | None]]:
        """Each after its parent, and with it. Once the run has ended."""
        found: list[tuple[Span, Span | None]] = []
        if self.root is not None:
            self.root.gather(found, None, self.end_time)
        return found

    def parent_id(self, parent: Span | None) -> int | None:
        """Of a span with that parent: the root's is the caller's span, if it named one."""
        if parent is not None:
            return parent.span_id
        return self.run.remote_parent.span_id if self.run.remote_parent is not None else None

    def end(self, status: str, listeners: Sequence[TraceListener]) -> None:
        self.status = status
        self.end_time = time.time_ns()
        for listener in listeners:
            listener.trace_ended(self)


class TraceListener(Protocol):
    def trace_ended(self, trace: Trace) -> None:
        """Called in the event loop when a run has ended; must be quick and must not raise."""
        ...
