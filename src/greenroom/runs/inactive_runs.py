"""The ends of runs that have no task: waiting and delayed ones, and those that can't be resumed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from greenroom.errors import GreenroomError, RunCancelled
from greenroom.event_streams.in_process import InProcessEventStream
from greenroom.event_streams.stream import RunEnded
from greenroom.records.inbox import RequestChanges
from greenroom.records.run import Run, RunStatus
from greenroom.runs.queues import when_done
from greenroom.runs.store import RunStore
from greenroom.runs.task import described
from greenroom.runs.watch import RunWatches
from greenroom.statistics.run_figures import RunFigures
from greenroom.telemetry.span import Trace, TraceListener


@dataclass(kw_only=True, eq=False)
class InactiveRuns:
    """Ends runs that are only records in the store. Call it under the session's lock, or before the session's runs are
    resumed.
    """

    run_store: RunStore
    watches: RunWatches
    stream: InProcessEventStream
    trace_listeners: Sequence[TraceListener]
    has_statistics: bool = False
    """Whether runs are counted in the statistics."""

    def end(self, run: Run, error: GreenroomError) -> asyncio.Future[None]:
        """Stores and publishes that a run failed, or was cancelled. Returns the future of its record."""
        run.status = RunStatus.CANCELLED if isinstance(error, RunCancelled) else RunStatus.FAILED
        run.error = described(error)
        run.ended_at = time.time()
        saving = self.run_store.save(run, requests=_without_requests(run), figures=self._figures(run))
        when_done(saving, partial(self._end_saved, RunEnded(run, error)))
        return saving

    def _end_saved(self, end: RunEnded, saving: asyncio.Future[None]) -> None:
        if saving.cancelled() or saving.exception() is not None:
            return
        self.watches.publish(end.run)
        self.stream.publish(end.run.session_key, end)
        if self.trace_listeners:
            Trace(end.run.session_key, end.run.id).end(end.run.status, self.trace_listeners)

    async def cancel_waiting(self, run: Run) -> None:
        """Cancels a waiting run."""
        run.status = RunStatus.CANCELLED
        run.ended_at = time.time()
        run.asked = {}
        run.wake_ups = {}
        await self.run_store.save(run, requests=_without_requests(run), figures=self._figures(run))
        self.watches.publish(run)
        self.stream.publish(run.session_key, RunEnded(run))

    def _figures(self, run: Run) -> Sequence[RunFigures]:
        """Figures of its end for the statistics; nothing of its log has still to be counted."""
        return (RunFigures(run, (), has_ended=True, prices=None),) if self.has_statistics else ()

    def end_read(self, run: Run, run_id: str, seq: int) -> asyncio.Future[None]:
        """Stores the end of a run whose message the run `run_id` has stored before a crash."""
        run.note_reading(run_id, seq)
        run.status = RunStatus.SUCCEEDED
        run.ended_at = time.time()
        if run.request is not None:
            run.request = msgspec.structs.replace(run.request, new_message=None, state_delta=None)
        self.watches.publish(run)
        return self.run_store.save(run)


def _without_requests(run: Run) -> RequestChanges | None:
    """Cancels the open requests to people of a run that ends without an answer to them."""
    if not run.requests:
        return None
    changes = RequestChanges(cancelled=list(run.requests.values()))
    run.requests = {}
    return changes
