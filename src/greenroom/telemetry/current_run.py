"""The run that the running code belongs to, for whoever tells of it."""

from __future__ import annotations

from contextvars import ContextVar

from greenroom.records.run import Run

current_run: ContextVar[Run | None] = ContextVar("greenroom_run", default=None)
"""Set in the task of a run, and so in all tasks and threads that are begun there."""
