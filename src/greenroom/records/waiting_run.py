"""Waiting runs, compared with the present code of their app."""

from __future__ import annotations

import msgspec

from greenroom.records.base import Record
from greenroom.records.run import Run


class VersionDifference(Record, kw_only=True):
    """The first step of a run that differs when its log is replayed with other code of its app."""

    seq: int
    """The sequence number of the event, in the session's log."""
    text: str
    """The step in the log, and the step with the other code."""


class WaitingRun(Record, kw_only=True):
    """A waiting run, and whether it would differ if it continued with the present code."""

    run: Run
    """The run's record."""
    waits_for: list[str] = msgspec.field(default_factory=list[str])
    """Names of what the run waits for, such as `approval of pay`."""
    version: str | None = None
    """The present version of the app's code; None when it can't be loaded."""
    on_version_change: str | None = None
    """The app's policy for a run that differs; None when the app can't be loaded."""
    difference: VersionDifference | None = None
    """None if the replay is equal, or the run began with this version, or with a published one, which it keeps."""


class ListWaitingRunsResponse(Record, kw_only=True, omit_defaults=False):
    """A page of the waiting runs of an app."""

    waiting_runs: list[WaitingRun] = msgspec.field(default_factory=list[WaitingRun])
    """Newest first."""
    next_page_token: str | None = None
    """`page_token` of the next request; None on the last page."""
