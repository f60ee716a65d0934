"""What is recorded of one run, for whoever listens."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from greenroom.records.session import SessionKey
from greenroom.telemetry.trace_context import RemoteParent, read_traceparent

if TYPE_CHECKING:
    from greenroom.telemetry.span import Span


class TracedRun:
    """The run that spans belong to."""

    __slots__ = ("_trace_id", "key", "remote_parent", "run_id")

    def __init__(self, key: SessionKey, run_id: str, traceparent: str | None) -> None:
        self.key = key
        self.run_id = run_id
        self.remote_parent: RemoteParent | None = read_traceparent(traceparent) if traceparent else None
        self._trace_id = 0

    @property
    def trace_id(self) -> int:
        """The caller's, else made from the run's id, so that all attempts at a run share it wherever they are made."""
        if not self._trace_id:
            parent = self.remote_parent
            self._trace_id = parent.trace_id if parent is not None else _id_for(self.run_id)
        return self._trace_id

    @property
    def is_sampled(self) -> bool:
        return self.remote_parent is None or self.remote_parent.is_sampled


class Trace:
    """What one process did for a run, from its start or its resumption on.

    root: the span of the run itself; None for a run that never got its turn. status: the run's, once it has ended.

    Nothing here refers to itself: a trace that is dropped is gone, and no work for the garbage collector.
    """

    __slots__ = ("end_time", "root", "run", "status")

    def __init__(self, key: SessionKey, run_id: str, *, traceparent: str | None = None) -> None:
        self.run = TracedRun(key, run_id, traceparent)
        self.root: Span | None = None
        self.status = ""
        self.end_time = 0

    def spans(self) -> Iterator[tuple[Span, int | None]]:
        """Each after its parent, with its parent's id. Once the run has ended."""
        if self.root is not None:
            parent = self.run.remote_parent
            yield from self.root.walk(parent.span_id if parent is not None else None, self.end_time)

    def end(self, status: str, listeners: Sequence[TraceListener]) -> None:
        self.status = status
        self.end_time = time.time_ns()
        for listener in listeners:
            listener.trace_ended(self)


class TraceListener(Protocol):
    def trace_ended(self, trace: Trace) -> None:
        """Called in the event loop when a run has ended; must be quick and must not raise."""
        ...


def _id_for(run_id: str) -> int:
    return int.from_bytes(hashlib.blake2b(run_id.encode(), digest_size=16).digest()) or 1
