"""The queue of a client's input to a live run."""

from __future__ import annotations

import asyncio
from collections import deque

from greenroom.records import wire
from greenroom.records.content import ActivityEnd, ActivityStart, Blob, Content
from greenroom.records.model_exchange import LiveRequest

MAX_WAITING_REQUESTS = 256
MAX_WAITING_BYTES = 4 * 1024 * 1024


class LiveRequestQueue:
    """Requests in order, read by one agent at a time. Source of names: ADK's LiveRequestQueue.

    The `send…` methods never wait; a sender that may be faster than the model calls `await drain()` after each.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[LiveRequest, int]] = deque()
        self._bytes = 0
        self._is_closed = False
        self._changed = asyncio.Event()

    def send_content(self, content: Content, partial: bool = False) -> None:
        """A user's turn, or function responses. partial: more of the turn will follow."""
        self.send(LiveRequest(content=content, partial=partial or None))

    def send_realtime(self, blob: Blob) -> None:
        """A piece of audio, video or an image."""
        self.send(LiveRequest(blob=blob))

    def send_activity_start(self) -> None:
        self.send(LiveRequest(activity_start=ActivityStart()))

    def send_activity_end(self) -> None:
        self.send(LiveRequest(activity_end=ActivityEnd()))

    def send_audio_stream_end(self) -> None:
        """The audio pauses, as when the microphone is switched off, so that the model answers the audio so far."""
        self.send(LiveRequest(audio_stream_end=True))

    def close(self) -> None:
        """Ends the input: the run ends when its running tools have answered."""
        self.send(LiveRequest(close=True))

    def send(self, req: LiveRequest) -> None:
        """Enqueues a request; dropped after a close."""
        if self._is_closed:
            return
        self._is_closed = req.close
        size = _size(req)
        self._waiting.append((req, size))
        self._bytes += size
        self._wake()

    async def drain(self) -> None:
        """Waits until the queue is below its limits; returns at once when it is closed."""
        while not self._is_closed and (len(self._waiting) >= MAX_WAITING_REQUESTS or self._bytes > MAX_WAITING_BYTES):
            await self._changed.wait()

    async def join(self) -> None:
        """Waits until all requests have been taken out of the queue."""
        while self._waiting:
            await self._changed.wait()

    async def get(self) -> LiveRequest:
        """Waits for the next request and removes it."""
        request = await self.peek()
        self.take()
        return request

    async def peek(self) -> LiveRequest:
        """Waits for the next request, which stays in the queue until `take`: a failed delivery loses nothing."""
        while not self._waiting:
            await self._changed.wait()
        return self._waiting[0][0]

    def take(self) -> None:
        _, size = self._waiting.popleft()
        self._bytes -= size
        self._wake()

    @property
    def closed(self) -> bool:
        """True once `close` was called."""
        return self._is_closed

    is_closed = closed

    def _wake(self) -> None:
        changed = self._changed
        self._changed = asyncio.Event()
        changed.set()


def _size(request: LiveRequest) -> int:
    if request.blob is not None:
        return len(request.blob.data or b"")
    return len(wire.encode(request.content)) if request.content is not None else 0
