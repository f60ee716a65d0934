"""Threads for functions that block."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, TypeVar

T = TypeVar("T")

_log = logging.getLogger(__name__)

_Outcome: TypeAlias = asyncio.Future[tuple[Any, BaseException | None]]


class _Job(NamedTuple):
    context: contextvars.Context
    func: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    outcome: _Outcome


class ThreadPool:
    """Starts a thread when none is idle, up to a limit; what comes then waits for its turn.

    The limit is high because tools wait far more than they compute, and may wait for one another. The standard
    library's executor won't do: the interpreter joins its threads on exit, so that one stuck tool would keep the
    process alive. These are daemons, and idle ones end by themselves.
    """

    def __init__(self, *, max_threads: int = 256, idle_seconds: float = 10.0) -> None:
        self._max_threads = max_threads
        self._idle_seconds = idle_seconds
        self._jobs: deque[_Job] = deque()
        self._changed = threading.Condition()
        self._idle = 0
        self._threads = 0
        self._warned_at = float("-inf")

    async def run(self, func: Callable[[], T]) -> T:
        """The function's result, or its exception, with this task's context variables.

        Cancelling returns at once. A function that has begun goes on in its thread, and its result is lost; one that
        has not begun never does.
        """
        loop = asyncio.get_running_loop()
        job = _Job(contextvars.copy_context(), func, loop, loop.create_future())
        self._submit(job)
        result, error = await job.outcome
        if error is not None:
            try:
                raise error
            finally:
                del error  # the exception's traceback holds this frame
        return result

    def _submit(self, job: _Job) -> None:
        with self._changed:
            self._jobs.append(job)
            if self._idle >= len(self._jobs):
                self._changed.notify()
            elif self._threads < self._max_threads:
                self._threads += 1
                threading.Thread(target=self._work, name="greenroom-tool", daemon=True).start()
            elif time.monotonic() - self._warned_at > 60:
                self._warned_at = time.monotonic()
                _log.warning("All %d threads for synchronous tools are busy; calls are waiting", self._max_threads)

    def _work(self) -> None:
        while (job := self._next()) is not None:
            if job.outcome.cancelled():
                continue
            result: Any = None
            error: BaseException | None = None
            try:
                result = job.context.run(job.func)
            except BaseException as raised:  # it is raised where the result is awaited
                error = raised
            try:
                job.loop.call_soon_threadsafe(_settle, job.outcome, result, error)
            except RuntimeError:
                pass  # the loop is closed, so nobody waits
            del job, result, error  # not to be kept alive by an idle thread

    def _next(self) -> _Job | None:
        """None when the thread has been idle for long enough."""
        with self._changed:
            self._idle += 1
            try:
                if not self._changed.wait_for(lambda: bool(self._jobs), self._idle_seconds):
                    self._threads -= 1
                    return None
                return self._jobs.popleft()
            finally:
                self._idle -= 1


def _settle(outcome: _Outcome, result: Any, error: BaseException | None) -> None:
    if not outcome.done():
        # as a value, because a future takes no StopIteration
        outcome.set_result((result, error))
