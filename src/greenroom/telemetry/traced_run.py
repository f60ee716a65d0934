"""The run that spans belong to, and the trace that it is a part of."""

from __future__ import annotations

import hashlib

from greenroom.records.session import SessionKey
from greenroom.telemetry.trace_context import RemoteParent, read_traceparent


class TracedRun:
    """remote_parent: the caller's span, if it named one."""

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


def _id_for(run_id: str) -> int:
    return int.from_bytes(hashlib.blake2b(run_id.encode(), digest_size=16).digest()) or 1
