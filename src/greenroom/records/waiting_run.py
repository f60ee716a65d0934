"""Waiting runs, compared with the present code of their app."""

from __future__ import annotations

from greenroom.records.base import Record


class VersionDifference(Record, kw_only=True):
    """The first step of a run that differs when its log is replayed with other code of its app."""

    seq: int
    """The sequence number of the event, in the session's log."""
    text: str
    """The step in the log, and the step with the other code."""
