"""Reports asynchronous tools that block the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import linecache
import logging
import sys
import threading
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from types import FrameType
from typing import TypeVar

T = TypeVar("T")

_log = logging.getLogger(__name__)

_FUNCTION_TOOL = "greenroom.tools.functions.function_tool"


@dataclass(slots=True, eq=False)
class _WatchedLoop:
    """An event loop with calls in progress."""

    loop: asyncio.AbstractEventLoop
    thread_id: int
    calls: int = 0
    has_ping: bool = False
    """A callback is scheduled and has not run yet."""

    running: int = 0
    """The call that every look since `running_since` found on the loop's stack, with no callback
    run between; 0 for none.
    """

    running_since: float = 0.0
    is_reported: bool = False

    def pong(self) -> None:
        self.has_ping = False
        self.running = 0


class Watchdog:
    """While calls are in progress, a daemon thread pings their event loop four times per threshold.

    A call costs two dictionary look-ups under a lock. Code that holds the interpreter lock all the
    while, such as a slow regular expression, stops this thread too and is not reported, nor is a
    task that the tool only started.
    """

    def __init__(self, *, threshold_seconds: float = 1.0, idle_seconds: float = 10.0) -> None:
        self._threshold = threshold_seconds
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()
        self._loops: dict[asyncio.AbstractEventLoop, _WatchedLoop] = {}
        self._is_running = False

    async def watch(self, tool_name: str, work: Awaitable[T]) -> T:
        """Awaits `work`, and logs a warning if it blocks the loop. The report reads `tool_name`
        from this frame.
        """
        loop = asyncio.get_running_loop()
        with self._lock:
            watched = self._loops.get(loop)
            if watched is None:
                watched = _WatchedLoop(loop, threading.get_ident())
                self._loops[loop] = watched
            watched.calls += 1
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._patrol, name="greenroom-watchdog", daemon=True).start()

        try:
            return await work
        finally:
            with self._lock:
                watched.calls -= 1
                if not watched.calls:
                    del self._loops[loop]

    def _patrol(self) -> None:
        """Ends when there were no calls for `idle_seconds`."""
        interval = self._threshold / 4
        now = time.monotonic()
        busy_at = now
        while True:
            time.sleep(interval)
            before = now

            now = time.monotonic()
            with self._lock:
                loops = list(self._loops.values())
                if loops:
                    busy_at = now
                elif now - busy_at > self._idle_seconds:
                    self._is_running = False
                    return

            for watched in loops:
                if now - before > 2 * interval:
                    watched.running_since = now  # the whole process was stopped, which is no tool's fault
                self._check(watched, now)

    def _check(self, watched: _WatchedLoop, now: float) -> None:
        """Reports the call that has been running for the threshold, once."""
        if not watched.has_ping:
            watched.has_ping = True
            with contextlib.suppress(RuntimeError):  # the loop was closed during a call
                watched.loop.call_soon_threadsafe(watched.pong)

        current_call = _find_call(sys._current_frames().get(watched.thread_id))

        call = 0 if current_call is None else id(current_call[0])
        if call != watched.running:
            watched.running = call
            watched.running_since = now
            watched.is_reported = False

        blocked_seconds = now - watched.running_since
        if current_call is None or watched.is_reported or blocked_seconds < self._threshold:
            return

        watched.is_reported = True
        watch, tool = current_call
        path = tool.f_code.co_filename
        number = tool.f_lineno
        _log.warning(
            "Tool %r has been blocking the event loop for %.1f s, so that nothing else runs: %s:%d in %s: %s. "
            "Await something, or make the function synchronous, and it gets a thread of its own.",
            watch.f_locals.get("tool_name"),
            blocked_seconds,
            path,
            number,
            tool.f_code.co_name,
            linecache.getline(path, number).strip(),
        )


def _find_call(frame: FrameType | None) -> tuple[FrameType, FrameType] | None:
    """Returns the innermost `watch` on a stack, and the function's frame: of the frames that it awaits, the outermost
    that is not ours.
    """
    tool_frame = frame
    while frame is not None:
        if frame.f_code is Watchdog.watch.__code__ and tool_frame is not None:
            return frame, tool_frame
        if frame.f_globals.get("__name__") != _FUNCTION_TOOL:
            tool_frame = frame
        frame = frame.f_back

    return None
