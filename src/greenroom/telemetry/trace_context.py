"""W3C trace context: where a run's trace comes from, and how work that a tool does elsewhere joins it."""

from __future__ import annotations

import re
from typing import NamedTuple

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SAMPLED = 0x01


class RemoteParent(NamedTuple):
    """The caller's span, from its `traceparent` header."""

    trace_id: int
    span_id: int
    is_sampled: bool


def read_traceparent(header: str | None) -> RemoteParent | None:
    """None for what isn't a valid header, as the standard asks. Source: W3C Trace Context, 3.2."""
    match = _TRACEPARENT.fullmatch(header.strip()) if header else None
    if match is None:
        return None
    version, trace_id, span_id, flags, rest = match.groups()
    if version == "ff" or (version == "00" and rest) or not int(trace_id, 16) or not int(span_id, 16):
        return None
    return RemoteParent(int(trace_id, 16), int(span_id, 16), bool(int(flags, 16) & _SAMPLED))


def write_traceparent(trace_id: int, span_id: int, *, is_sampled: bool) -> str:
    return f"00-{trace_id:032x}-{span_id:016x}-{'01' if is_sampled else '00'}"
