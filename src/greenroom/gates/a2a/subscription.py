"""A subscription to a task: it lasts until the task's terminal state, over all the times that the task waits."""

from __future__ import annotations

from greenroom.event_streams.stream import LiveItem
from greenroom.records.run import Run, RunStatus
from greenroom.runs.engine import Attachment
from greenroom.server.access.authorization.runs import AuthorizedRuns


def is_terminal(run: Run) -> bool:
    return run.status.is_over and run.status is not RunStatus.WAITING


class TaskSubscription:
    """An attachment to a run that yields `RunEnded` each time that the run waits, and once in a terminal state.

    A run that waits has no reader of its own in the engine, so the session is read.
    """

    def __init__(self, engine: AuthorizedRuns, run: Run, *, after: int) -> None:
        self._engine = engine
        self._run_id = run.id
        self._after = after
        self._is_checked = False
        key = run.session_key
        self._attachment: Attachment = engine.attach_to_session(key, after=after)

    async def next_batch(self, *, idle_seconds: float | None = None) -> list[LiveItem]:
        if not self._is_checked:
            self._is_checked = True
            await self._check_status()
        while True:
            items = await self._attachment.next_batch(idle_seconds=idle_seconds)
            found = [item for item in items if item.run_id == self._run_id]
            if found or not items:
                return found

    def close(self) -> None:
        self._attachment.close()

    async def _check_status(self) -> None:
        """Reads a run from the log that ended after its record was read, and before the session was attached to."""
        run = await self._engine.get(self._run_id)
        if is_terminal(run):
            self._attachment.close()
            self._attachment = await self._engine.attach(run.id, after=self._after)
