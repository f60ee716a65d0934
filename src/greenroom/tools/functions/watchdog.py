"""Names the asynchronous tool that blocks the event loop."""

from __future__ import annotations

import asyncio
import linecache
import logging
import sys
import threading
import time
from collections.abc import Awaitable
from types import FrameType
from typing import TypeVar

T = TypeVar("T")

_log = logging.getLogger(__name__)

_FUNCTION_TOOL = "greenroom.tools.functions.function_tool"


class _Loop:
    """One event loop with calls in progress. alive_at: when it last showed that it turns. seen: see `_inspect`."""

    __slots__ = ("alive_at", "calls", "is_asked", "is_reported", "loop", "seen", "thread_id")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.thread_id = threading.get_ident()
        self.calls = 0
        self.alive_at = 0.0
        self.is_asked = False
        self.is_reported = False
        self.seen: int | None = None

    def answer(self) -> None:
        self.alive_at = time.monotonic()
        self.is_asked = self.is_reported = False
        self.seen = None


class Watchdog:
    """While calls are in progress, a daemon thread asks their event loop for a sign of life four times per threshold.

    A call itself costs two dictionary look-ups under a lock. Code that holds the interpreter lock all the while (a
    slow regular expression) stops this thread too and goes unnoticed, as does a task that the tool only started.
    """

    def __init__(self, *, threshold_seconds: float = 1.0, idle_seconds: float = 10.0) -> None:
        self._threshold = threshold_seconds
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()
        self._loops: dict[asyncio.AbstractEventLoop, _Loop] = {}
        self._is_running = False

    async def watch(self, tool_name: str, work: Awaitable[T]) -> T:
        """Await `work`; a warning is logged when it blocks the loop. `tool_name` is read from this very frame."""
        loop = asyncio.get_running_loop()
        self._enter(loop)
        try:
            return await work
        finally:
            self._leave(loop)

    def _enter(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            watched = self._loops.get(loop)
            if watched is None:
                watched = self._loops[loop] = _Loop(loop)
            watched.calls += 1
            watched.alive_at = time.monotonic()
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._patrol, name="greenroom-watchdog", daemon=True).start()

    def _leave(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            watched = self._loops[loop]
            watched.calls -= 1
            if watched.calls == 0:
                del self._loops[loop]

    def _patrol(self) -> None:
        interval = self._threshold / 4
        woken_at = busy_at = time.monotonic()
        while True:
            time.sleep(interval)
            now = time.monotonic()
            was_held_up = now - woken_at > 2 * interval
            woken_at = now
            with self._lock:
                loops = list(self._loops.values())
                if loops:
                    busy_at = now
                elif now - busy_at > self._idle_seconds:
                    self._is_running = False
                    return
            for watched in loops:
                if was_held_up:
                    watched.alive_at = now  # the whole process was, which no tool is to blame for
                self._look_after(watched, now)

    def _look_after(self, watched: _Loop, now: float) -> None:
        if not watched.is_asked:
            watched.is_asked = True
            try:
                watched.loop.call_soon_threadsafe(watched.answer)
            except RuntimeError:
                return  # closed in the middle of a call
        silent_seconds = now - watched.alive_at
        if silent_seconds > self._threshold / 2 and not watched.is_reported:
            self._inspect(watched, silent_seconds)

    def _inspect(self, watched: _Loop, silent_seconds: float) -> None:
        """Report the call that runs now, if it also ran at each look since the loop fell silent."""
        frame = sys._current_frames().get(watched.thread_id)
        found = _find_call(frame)
        call = 0 if found is None else id(found[0])
        if watched.seen is None:
            watched.seen = call
        elif watched.seen != call:
            watched.seen = 0
        if silent_seconds < self._threshold or found is None or not watched.seen:
            return
        watched.is_reported = True
        outer, tool_frame = found
        _log.warning(
            "Tool %r has been blocking the event loop for %.1f s, so that nothing else runs: %s. "
            "Await something, or make the function synchronous, and it gets a thread of its own.",
            outer.f_locals.get("tool_name"),
            silent_seconds,
            _line(tool_frame),
        )


def _find_call(frame: FrameType | None) -> tuple[FrameType, FrameType] | None:
    """The innermost `watch` on a stack, and of what it awaits the outermost frame that isn't ours: the function's."""
    tool_frame = frame
    while frame is not None:
        if frame.f_code is Watchdog.watch.__code__ and tool_frame is not None:
            return frame, tool_frame
        if frame.f_globals.get("__name__") != _FUNCTION_TOOL:
            tool_frame = frame
        frame = frame.f_back
    return None


def _line(frame: FrameType) -> str:
    path, number = frame.f_code.co_filename, frame.f_lineno
    text = linecache.getline(path, number).strip()
    return f"{path}:{number} in {frame.f_code.co_name}" + (f": {text}" if text else "")
