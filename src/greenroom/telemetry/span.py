"""The spans of a run, recorded while it runs, and its trace.

This is our own record rather than OpenTelemetry's: the debug endpoints need spans without any package installed, and
every run pays for them. A span refers to objects that exist anyway; names, attributes and JSON are made on demand.
"""

from __future__ import annotations

import hashlib
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from random import getrandbits
from typing import Any, NamedTuple, Protocol, TypeAlias

from greenroom.records.run import Run
from greenroom.records.session import SessionKey
from greenroom.telemetry import names

current_run: ContextVar[Run | None] = ContextVar("greenroom_run", default=None)
"""Set in the task of a run; inherited by the tasks and threads that it starts."""


_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SAMPLED = 0x01


class RemoteParent(NamedTuple):
    """The caller's span, from its `traceparent` header."""

    trace_id: int
    span_id: int
    is_sampled: bool


def read_traceparent(header: str | None) -> RemoteParent | None:
    """None for what isn't a valid header, as the standard requires. Source: W3C Trace Context, 3.2."""
    match = _TRACEPARENT.fullmatch(header.strip()) if header else None
    if match is None:
        return None
    version, trace_id, span_id, flags, rest = match.groups()
    if version == "ff" or (version == "00" and rest) or not int(trace_id, 16) or not int(span_id, 16):
        return None
    return RemoteParent(int(trace_id, 16), int(span_id, 16), bool(int(flags, 16) & _SAMPLED))


def write_traceparent(trace_id: int, span_id: int, *, is_sampled: bool) -> str:
    return f"00-{trace_id:032x}-{span_id:016x}-{'01' if is_sampled else '00'}"


class TracedRun:
    """A traced run. `remote_parent` is the caller's span, if the request named one."""

    __slots__ = ("_trace_id", "key", "redact", "remote_parent", "run_id")

    def __init__(self, key: SessionKey, run_id: str, traceparent: str | None) -> None:
        self.key = key
        self.run_id = run_id
        self.remote_parent: RemoteParent | None = read_traceparent(traceparent) if traceparent else None
        self.redact: Callable[[Any], Any] | None = None
        """Replaces what the app's rules find in the content of a span; None without rules."""
        self._trace_id = 0

    @property
    def trace_id(self) -> int:
        """The caller's trace id, else one derived from the run's id, so that all attempts at a run share it, on every
        server.
        """
        if not self._trace_id:
            parent = self.remote_parent
            self._trace_id = parent.trace_id if parent is not None else _id_for(self.run_id)
        return self._trace_id

    @property
    def is_sampled(self) -> bool:
        return self.remote_parent is None or self.remote_parent.is_sampled

    def agent_id(self, agent_name: str) -> str:
        """An id of the agent that no agent of another app has."""
        return f"{self.key.app_name}/{agent_name}"


def _id_for(run_id: str) -> int:
    return int.from_bytes(hashlib.blake2b(run_id.encode(), digest_size=16).digest()) or 1


AttributeValue: TypeAlias = str | int | float | bool | list[str]

CANCELLED = "cancelled"


class Span(ABC):
    """Times in nanoseconds since the epoch; end_time 0 while it is open. error: the name of a class
    or a code; messages may contain parts of the conversation."""

    is_client = False
    """True for a call of another service."""

    __slots__ = ("_children", "_id", "end_time", "error", "name", "run", "start_time")

    def __init__(self, run: TracedRun, name: str) -> None:
        self.run = run
        self.name = name
        self.start_time = time.time_ns()
        self.end_time = 0
        self.error: str | None = None
        self._id = 0
        self._children: list[Span] | None = None

    @abstractmethod
    def attributes(self) -> dict[str, AttributeValue]:
        """None of them null."""

    def content(self) -> dict[str, object]:
        """Requests, replies, arguments and results by attribute name, as objects; encoded when shown or exported."""
        return {}

    @property
    def exported_name(self) -> str:
        """The name by OpenTelemetry's conventions, where ADK's is another one."""
        return self.name

    def exported_attributes(self) -> dict[str, AttributeValue]:
        """Attributes of OpenTelemetry's conventions that ADK's spans don't have. Made in the exporter's thread."""
        key = self.run.key
        return {names.SESSION: key.session_id, names.USER: key.user_id, names.CONVERSATION_ID: key.session_id}

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

    @property
    def children(self) -> Sequence[Span]:
        return self._children or ()

    def gather(self, into: list[tuple[Span, Span | None]], parent: Span | None, ended_at: int) -> None:
        """The span and its descendants, with their parents. Spans that are still open were cancelled."""
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

    def attributes(self) -> dict[str, AttributeValue]:
        return {names.INVOCATION_ID: self.run.run_id, names.CONVERSATION_ID: self.run.key.session_id}


NO_SPAN: AbstractContextManager[None] = nullcontext()
"""Used instead of a span when tracing is off."""

current_span: ContextVar[Span | None] = ContextVar("greenroom_span", default=None)
"""The span that the running code belongs to: a tool call, or else the run."""


class current:  # noqa: N801 - reads like contextlib's
    """Makes a span the current one."""

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
    """The `traceparent` header for a request that is made on behalf of the running tool; None when tracing is off."""
    span = current_span.get()
    return None if span is None else span.traceparent()


class Trace:
    """The spans of one attempt at a run in one process, from its start or resumption.

    root: the span of the run itself; None for a run that never got its turn. status: the run's, once it has ended.

    It has no reference cycles, so a dropped trace is freed without the garbage collector.
    """

    __slots__ = ("end_time", "root", "run", "status")

    def __init__(self, key: SessionKey, run_id: str, *, traceparent: str | None = None) -> None:
        self.run = TracedRun(key, run_id, traceparent)
        self.root: RunSpan | None = None
        self.status = ""
        self.end_time = 0

    def begin(self) -> RunSpan:
        """The span of the run itself."""
        self.root = RunSpan(self.run, names.INVOCATION)
        return self.root

    def spans(self) -> list[tuple[Span, Span | None]]:
        """Returns each span with its parent, parents first. Call it after the run has ended."""
        spans: list[tuple[Span, Span | None]] = []
        if self.root is not None:
            self.root.gather(spans, None, self.end_time)
        return spans

    def parent_id(self, parent: Span | None) -> int | None:
        """The parent id of a span with that parent: the root's is the caller's span, if it named one."""
        if parent is not None:
            return parent.span_id
        remote_parent = self.run.remote_parent
        return remote_parent.span_id if remote_parent is not None else None

    def end(self, status: str, listeners: Sequence[TraceListener]) -> None:
        self.status = status
        self.end_time = time.time_ns()
        for listener in listeners:
            listener.trace_ended(self)


class TraceListener(Protocol):
    def trace_ended(self, trace: Trace) -> None:
        """Called in the event loop when a run has ended; must be quick and must not raise."""
        ...
