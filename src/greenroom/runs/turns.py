"""The turns of runs, where the server limits the runs that it executes at a time."""

from __future__ import annotations

from greenroom.records.run import RunStatus
from greenroom.runs.fair_queue import FairQueue, Flow, Weights
from greenroom.runs.task import RunTask


class Turns:
    """Limits the number of runs that the server executes at a time. The others wait in a fair queue."""

    def __init__(self, most: int, weights: Weights) -> None:
        self._most = most
        self._running: set[RunTask] = set()
        self._waiting = FairQueue[RunTask](weights)

    def acquire(self, task: RunTask) -> bool:
        """Returns whether a run may begin now; else it waits for its turn.

        A resumed run that was running before doesn't wait.
        """
        has_room = len(self._running) < self._most and not self._waiting
        if has_room or task in self._running or task.run.status is RunStatus.RUNNING:
            self._running.add(task)
            return True
        self._waiting.push(task, Flow(task.run.app_name, task.run.user_id), task.run.priority)
        return False

    def next(self) -> RunTask | None:
        """The run whose turn it is now; None if none waits, or as many run as may."""
        if not self._waiting or len(self._running) >= self._most:
            return None
        task = self._waiting.pop()
        self._running.add(task)
        return task

    def begin(self, task: RunTask) -> None:
        """Lets a run begin that waits for its turn."""
        self._waiting.remove(task)
        self._running.add(task)

    def end(self, task: RunTask) -> None:
        """Ends a run, whether it has begun or not."""
        self._waiting.remove(task)
        self._running.discard(task)
