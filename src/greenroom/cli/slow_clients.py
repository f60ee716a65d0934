"""Connections that keep the server waiting are closed. uvicorn itself waits for ever for the rest of a request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_SECONDS = 10.0
"""From a connection's start, or the end of an answer, to the last header of the next request."""

BODY_SECONDS = 30.0
BODY_BYTES_PER_SECOND = 8 * 1024
"""A body may take BODY_SECONDS, and longer as long as it comes faster than this."""

STALL_SECONDS = 120.0
"""How long a client may take nothing of what is sent to it. Its run goes on; it can come back for the rest."""

SWEEP_SECONDS = 1.0


class PatientProtocol(HttpToolsProtocol):
    """Remembers since when it waits, and for what."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._head_since: float | None = time.monotonic()
        self._body_since: float | None = None
        self._body_bytes = 0
        self._unread_since: float | None = None
        self._unread_bytes = 0

    def on_headers_complete(self) -> None:
        self._head_since = None
        self._body_since = time.monotonic()
        self._body_bytes = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._body_since = None
        super().on_message_complete()

    def on_response_complete(self) -> None:
        if not self.pipeline:
            self._head_since = time.monotonic()
        super().on_response_complete()

    def pause_writing(self) -> None:
        self._unread_since = time.monotonic()
        self._unread_bytes = self.transport.get_write_buffer_size()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._unread_since = None
        super().resume_writing()

    def close_if_too_slow(self, now: float) -> None:
        if self._unread_since is not None:
            unread_bytes = self.transport.get_write_buffer_size()
            if unread_bytes < self._unread_bytes:
                self._unread_since = now
            elif now > self._unread_since + STALL_SECONDS:
                self.transport.abort()
            self._unread_bytes = unread_bytes
        elif self._head_since is not None:
            if now > self._head_since + HEAD_SECONDS:
                self.transport.abort()
        elif self._body_since is not None:
            allowed = BODY_SECONDS + self._body_bytes / BODY_BYTES_PER_SECOND
            if now > self._body_since + allowed:
                self.transport.abort()


async def sweep(connections: Collection[object]) -> None:
    """Look after all connections, for as long as the server runs. One timer for all costs less than one each."""
    while True:
        await asyncio.sleep(SWEEP_SECONDS)
        now = time.monotonic()
        for connection in tuple(connections):
            if isinstance(connection, PatientProtocol):
                connection.close_if_too_slow(now)
