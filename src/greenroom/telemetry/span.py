"""The spans of one run, recorded as it goes.

Our own record and not OpenTelemetry's: the debug endpoints need spans without any package installed, and every run pays
for them. So a span only holds on to what was at hand; names, attributes and JSON are made of it when somebody asks.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from random import getrandbits
from typing import Any, Protocol, TypeAlias

from greenroom.telemetry import names
from greenroom.telemetry.trace_context import write_traceparent
from greenroom.telemetry.traced_run import TracedRun

AttributeValue: TypeAlias = str | int | float | bool | list[str]

CANCELLED = "cancelled"


class Span(ABC):
    """Times in nanoseconds since the epoch; end_time 0 while it is open. error: what went wrong, as the name of a class
    or a code: messages may hold what was said."""

    __slots__ = ("_children", "_id", "end_time", "error", "run", "start_time")

    def __init__(self, run: TracedRun) -> None:
        self.run = run
        self.start_time = time.time_ns()
        self.end_time = 0
        self.error: str | None = None
        self._id = 0
        self._children: list[Span] | None = None

    @property
    @abstractmethod
    def name(self) -> str: ...

    @abstractmethod
    def attributes(self) -> dict[str, AttributeValue]:
        """None of them null."""

    def content(self) -> dict[str, object]:
        """What was said, by attribute name, as the objects themselves; whoever shows or sends it makes JSON of it."""
        return {}

    @property
    def span_id(self) -> int:
        if not self._id:
            self._id = getrandbits(64) or 1
        return self._id

    def add(self, child: Span) -> None:
        if self._children is None:
            self._children = [child]
        else:
            self._children.append(child)

    def gather(self, into: list[tuple[Span, Span | None]], parent: Span | None, ended_at: int) -> None:
        """Itself and all below, with their parents. What is still open then was cancelled."""
        if not self.end_time:
            self.end_time = ended_at
            self.fail(CANCELLED)
        into.append((self, parent))
        if self._children is not None:
            for child in self._children:
                child.gather(into, self, ended_at)

    def fail(self, error: BaseException | str) -> None:
        self.error = error if isinstance(error, str) else type(error).__name__

    def end(self) -> None:
        self.end_time = time.time_ns()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is not None and not isinstance(error, GeneratorExit):
            self.fail(error)
        self.end_time = time.time_ns()

    def traceparent(self) -> str:
        return write_traceparent(self.run.trace_id, self.span_id, is_sampled=self.run.is_sampled)


class RunSpan(Span):
    """The root of a trace."""

    __slots__ = ()

    @property
    def name(self) -> str:
        return names.INVOCATION

    def attributes(self) -> dict[str, AttributeValue]:
        return {names.INVOCATION_ID: self.run.run_id, names.CONVERSATION_ID: self.run.key.session_id}


NO_SPAN: AbstractContextManager[None] = nullcontext()
"""Stands for a span when nobody traces."""

current_span: ContextVar[Span | None] = ContextVar("greenroom_span", default=None)
"""The span that the running code belongs to: a tool call, or else the run."""


class current:  # noqa: N801 - reads like contextlib's
    """Makes a span the one that the running code belongs to."""

    __slots__ = ("_bridged", "_span", "_token")

    def __init__(self, span: Span) -> None:
        self._span = span

    def __enter__(self) -> None:
        self._token = current_span.set(self._span)
        self._bridged = bridge.attach(self._span) if bridge is not None else None

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
