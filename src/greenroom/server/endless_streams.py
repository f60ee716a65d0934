"""Streams without an end of their own: lists that are followed, sessions, logs. They end when the server begins to
stop, which else would wait for them until its grace period is over.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator
from typing import Any

STOPPING = b": the server is stopping\n\n"
"""The last piece of a stream of changes: a comment, since its reader has nothing to resume but reads the list again."""


class EndlessStreams:
    """The tasks that write the endless streams of one server."""

    def __init__(self) -> None:
        self._writers: set[asyncio.Task[Any]] = set()
        self._has_ended = False

    @contextlib.contextmanager
    def writing(self) -> Generator[None]:
        """Registers the current task. `end` cancels it within this context."""
        writer = asyncio.current_task()
        assert writer is not None
        if self._has_ended:
            writer.cancel()
        self._writers.add(writer)
        try:
            yield
        finally:
            self._writers.discard(writer)

    def end(self) -> None:
        """Ends all streams, also those that begin later."""
        self._has_ended = True
        for writer in self._writers:
            writer.cancel()
