"""Resumption of runs that may have ended the process that ran them.

Example: a tool of run C calls `os._exit` whenever it runs. A, B and C are active when it does so first.

    process  before it starts       what it does                        what it dies with
    1                               runs A, B, C                        C
    2        none has stalled       resumes A, B, C at once             C: none had stored a new event
    3        A, B, C stalled once   the same                            C: A and B were cut off again
    4        A, B, C are suspects   resumes a few of them at a time     C: A and B may have made progress by now
    5        the rest are suspects  resumes A, then B, then C alone     C alone, the first time
    6, 7     C is a suspect         resumes C alone                     C alone, again
    8                               fails C with RunGivenUp

A suspect leaves the trial when it has stored an event or has ended. If it does neither for a while, the next one starts
beside it, and neither counts as alone: the process may then end by either of them. The time is twice as long after each
crash, so a run that ends the process late is alone at last, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence

from greenroom.records.run import Run, RunStatus
from greenroom.runs.task import RunTask

_log = logging.getLogger("greenroom.runs")

ALONE_FROM = 2
"""A run that stalled so often is resumed alone; one that stalled less often, with a few others."""

GROUP_SIZE = 4
"""Maximum number of suspects that are resumed at once."""

TRIAL_SECONDS = 10.0
"""Time after which the next suspects start although one has made no progress; doubled by each attempt that stalled."""

MAX_TRIAL_SECONDS = 600.0


def is_suspect(run: Run) -> bool:
    """True of a run that was active when processes ended, again and again, without storing an event."""
    return run.status is RunStatus.RUNNING and run.stalled > 0 and not run.is_live


class SuspectRuns:
    """Starts suspects in groups, those with the fewest stalls first, then one by one."""

    def __init__(
        self,
        tasks: Sequence[RunTask],
        *,
        others: Sequence[RunTask],
        begin: Callable[[RunTask], object],
        save: Callable[[RunTask], Awaitable[None]],
        trial_seconds: float = TRIAL_SECONDS,
    ) -> None:
        """Prepares the suspects.

        tasks: in their sessions' queues, and held there. others: resumed runs that are no suspects, and have begun.
        begin: starts a held task. save: stores its record.
        """
        self._tasks = sorted(tasks, key=lambda task: (task.run.stalled_alone, task.run.stalled))
        self._on_trial = {task for task in (*tasks, *others) if not task.is_held}
        self._begin = begin
        self._save = save
        self._trial_seconds = trial_seconds
        for task in (*tasks, *others):
            task.has_progressed = asyncio.Event()

    async def resume(self) -> None:
        """Returns when the last of them has begun and made progress, or when its time is up."""
        await self._wait_for(self._on_trial, self._trial_seconds)

        for group in _groups(self._tasks):
            pending = [task for task in group if not task.has_ended]
            await self._start(pending)
            stalled = max((task.run.stalled for task in pending), default=0)
            await self._wait_for(set(pending), min(self._trial_seconds * 2**stalled, MAX_TRIAL_SECONDS))

    async def _start(self, group: Sequence[RunTask]) -> None:
        is_alone = len(group) == 1 and not self._on_trial
        if not is_alone:
            await self._nobody_is_alone()

        for task in group:
            _log.warning(
                "run %s was cut off %d times without storing an event; it is resumed %s",
                task.run.id, task.run.stalled + 1, "alone" if is_alone else "with few others",
            )  # fmt: skip
            task.is_alone = is_alone
            self._on_trial.add(task)
            self._begin(task)

    async def _nobody_is_alone(self) -> None:
        for task in self._on_trial:
            if task.run.resumed_alone:
                task.run.resumed_alone = False
                await self._save(task)

    async def _wait_for(self, tasks: set[RunTask], seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                for task in tasks:
                    assert task.has_progressed is not None
                    await task.has_progressed.wait()

        for task in list(self._on_trial):
            if task.has_progressed is not None and task.has_progressed.is_set():
                self._on_trial.discard(task)


def _groups(tasks: Sequence[RunTask]) -> list[Sequence[RunTask]]:
    """Returns groups of those that stalled once, then each of the others alone.

    All groups are made at once: a started task counts another attempt, and would be in a later group, too.
    """
    together = [task for task in tasks if task.run.stalled < ALONE_FROM]
    alone = [task for task in tasks if task.run.stalled >= ALONE_FROM]
    groups: list[Sequence[RunTask]] = []
    for start in range(0, len(together), GROUP_SIZE):
        groups.append(together[start : start + GROUP_SIZE])
    for task in alone:
        groups.append([task])
    return groups
