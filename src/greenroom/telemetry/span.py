"""The spans of one run, recorded as it goes.

Our own record and not OpenTelemetry's: the debug endpoints need spans without any package installed, and a span of the
SDK costs as much as a tenth of a whole turn. What listens is handed the finished trace, and makes of it what it needs.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from random import getrandbits
from typing import Any, Protocol, TypeAlias

from greenroom.records.session import SessionKey
from greenroom.telemetry import names
from greenroom.telemetry.trace_context import RemoteParent, read_traceparent, write_traceparent

AttributeValue: TypeAlias = str | int | float | bool | list[str]

CANCELLED = "cancelled"


class Span:
    """attributes: never None. content: what was said, by attribute name, as the objects themselves; whoever shows or
    sends it makes JSON of it. Times in nanoseconds since the epoch; end_time 0 while it is open. first_reply_time: of a
    model call, when its first chunk came."""

    __slots__ = (
        "attributes", "content", "end_time", "error", "first_reply_time", "name", "parent_id", "span_id", "start_time",
        "trace",
    )  # fmt: skip

    def __init__(self, trace: Trace, name: str, parent_id: int | None) -> None:
        self.trace = trace
        self.name = name
        self.parent_id = parent_id
        self.span_id = getrandbits(64) or 1
        self.start_time = time.time_ns()
        self.end_time = 0
        self.first_reply_time = 0
        self.attributes: dict[str, AttributeValue] = {}
        self.content: dict[str, object] = {}
        self.error: str | None = None
        trace.spans.append(self)

    def child(self, name: str) -> Span:
        return Span(self.trace, name, self.span_id)

    def fail(self, error: BaseException | str) -> None:
        """The class name alone: messages may hold what was said."""
        self.error = error if isinstance(error, str) else type(error).__name__
        self.attributes[names.ERROR_TYPE] = self.error

    def end(self) -> None:
        self.end_time = time.time_ns()

    def __enter__(self) -> Span:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is not None and not isinstance(error, GeneratorExit):
            self.fail(error)
        self.end()

    def traceparent(self) -> str:
        return write_traceparent(self.trace.trace_id, self.span_id, is_sampled=self.trace.is_sampled)


class Trace:
    """What one process did for a run, from its start or its resumption on.

    trace_id: the caller's, else made from the run's id, so that all attempts at a run, wherever they are made, share
    it. status: the run's, once it has ended.
    """

    __slots__ = ("is_sampled", "key", "remote_parent", "run_id", "spans", "status", "trace_id")

    def __init__(self, key: SessionKey, run_id: str, *, traceparent: str | None = None) -> None:
        self.key = key
        self.run_id = run_id
        self.remote_parent: RemoteParent | None = read_traceparent(traceparent) if traceparent else None
        self.trace_id = self.remote_parent.trace_id if self.remote_parent is not None else _id_for(run_id)
        self.is_sampled = self.remote_parent is None or self.remote_parent.is_sampled
        self.spans: list[Span] = []
        self.status = ""

    def begin(self) -> Span:
        """The span of the run itself."""
        span = Span(self, names.INVOCATION, self.remote_parent.span_id if self.remote_parent is not None else None)
        span.attributes[names.INVOCATION_ID] = self.run_id
        span.attributes[names.CONVERSATION_ID] = self.key.session_id
        return span

    def end(self, status: str, listeners: Sequence[TraceListener]) -> None:
        self.status = status
        for span in self.spans:
            if not span.end_time:
                span.fail(CANCELLED)
                span.end()
        for listener in listeners:
            listener.trace_ended(self)


NO_SPAN: AbstractContextManager[None] = nullcontext()
"""Stands for a span when nobody traces."""


class TraceListener(Protocol):
    def trace_ended(self, trace: Trace) -> None:
        """Called in the event loop when a run has ended; must be quick and must not raise. A run that never got its
        turn has no spans."""
        ...


current_span: ContextVar[Span | None] = ContextVar("greenroom_span", default=None)
"""The span that the running code belongs to: a tool call, or else the run."""


class current:  # noqa: N801 - reads like contextlib's
    """Makes a span the one that the running code belongs to."""

    __slots__ = ("_bridged", "_span", "_token")

    def __init__(self, span: Span) -> None:
        self._span = span

    def __enter__(self) -> Span:
        self._token = current_span.set(self._span)
        self._bridged = bridge.attach(self._span) if bridge is not None else None
        return self._span

    def __exit__(self, *_: object) -> None:
        current_span.reset(self._token)
        if self._bridged is not None and bridge is not None:
            bridge.detach(self._bridged)


class ContextBridge(Protocol):
    """Makes our span the parent of spans that other libraries begin with OpenTelemetry."""

    def attach(self, span: Span) -> Any: ...

    def detach(self, token: Any) -> None: ...


bridge: ContextBridge | None = None
"""Set while traces are exported."""


def current_traceparent() -> str | None:
    """The `traceparent` header for a request that is made on behalf of the running tool; None when nothing traces."""
    span = current_span.get()
    return None if span is None else span.traceparent()


def _id_for(run_id: str) -> int:
    return int.from_bytes(hashlib.blake2b(run_id.encode(), digest_size=16).digest()) or 1
