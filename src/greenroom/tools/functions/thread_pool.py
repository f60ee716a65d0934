"""Threads for functions that block."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

_log = logging.getLogger(__name__)


class ThreadPool:
    """Starts a thread when none is idle, up to a limit; further calls wait in a queue.

    The limit is high because tools wait far more than they compute, and may wait for one another.
    The standard library's executor is joined when the interpreter exits, so one stuck tool would
    keep the process alive; these threads are daemons. Idle threads end.
    """

    def __init__(self, *, max_threads: int = 256, idle_seconds: float = 10.0) -> None:
        self._max_threads = max_threads
        self._idle_seconds = idle_seconds
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._spare = 0  # idle threads minus queued calls
        self._warned_at = float("-inf")

    async def run(self, func: Callable[[], T]) -> T:
        """Returns the function's result, or raises its exception. It runs with this task's context variables.

        Cancelling returns at once. A function that has begun runs to its end in its thread, and its result is dropped;
        a function that has not begun never runs.
        """
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
        context = contextvars.copy_context()

        def call() -> None:
            result: Any = None
            error: BaseException | None = None
            if not outcome.cancelled():
                try:
                    result = context.run(func)
                except BaseException as raised:  # it is raised where the result is awaited
                    error = raised

            with self._lock:
                self._spare += 1

            with contextlib.suppress(RuntimeError):  # the loop is closed, so nobody waits
                loop.call_soon_threadsafe(set_outcome, result, error)

            del error  # its traceback holds this frame

        def set_outcome(result: Any, error: BaseException | None) -> None:
            if not outcome.done():
                outcome.set_result((result, error))  # as a value, because a future takes no StopIteration

        self._submit(call)

        result, error = await outcome
        if error is not None:
            try:
                raise error
            finally:
                del error  # the exception's traceback holds this frame

        return result

    def _submit(self, call: Callable[[], None]) -> None:
        with self._lock:
            self._calls.put(call)
            self._spare -= 1

            if self._spare >= 0:
                return

            if self._threads < self._max_threads:
                self._threads += 1
                self._spare += 1
                threading.Thread(target=self._work, name="greenroom-tool", daemon=True).start()
            elif time.monotonic() - self._warned_at > 60:
                self._warned_at = time.monotonic()
                _log.warning(
                    "All %d threads for synchronous tools are busy; calls are waiting",
                    self._max_threads,
                )

    def _work(self) -> None:
        while True:
            try:
                call = self._calls.get(timeout=self._idle_seconds)
            except queue.Empty:
                with self._lock:
                    if self._spare > 0:
                        self._spare -= 1
                        self._threads -= 1
                        return
            else:
                call()
                del call  # an idle thread must not keep its result alive


@functools.cache
def shared_pool(max_threads: int) -> ThreadPool:
    """The process's pool of this size."""
    return ThreadPool(max_threads=max_threads)
