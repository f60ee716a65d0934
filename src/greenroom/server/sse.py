"""Server-Sent Events: one event per frame, whole frames per write.

ADK's web UI reads its buffer anew when a write ends inside a frame, so none does. `id:` is an event's place in its
session's log; partial events have none, since they can't be asked for again.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable

from greenroom.event_streams.stream import RunEnded, StreamItem
from greenroom.records import wire
from greenroom.runs.engine import Attachment
from greenroom.server.error_response import problem_of_run

KEEP_ALIVE = b": keep-alive\n\n"

EndFrame = Callable[[RunEnded], bytes]


def event_frame(item: StreamItem) -> bytes:
    if item.seq is None:
        return b"data: %b\n\n" % item.json
    return b"id: %d\ndata: %b\n\n" % (item.seq, item.json)


def adk_end(ended: RunEnded) -> bytes:
    """ADK ends a stream by closing it; only an error has a frame, the last one. `problem` in it is ours."""
    error = ended.run.error
    if error is None or error.status is None:
        return b""
    details = {"error_type": error.code, "error_message": error.message, "timestamp": time.time()}
    frame = {"error": f"{error.code}: {error.message}", "error_details": details, "problem": problem_of_run(error)}
    return b"data: %b\n\n" % wire.encode(frame)


def run_end(ended: RunEnded) -> bytes:
    """A frame of type `end` with the run's record, and `problem` if it failed."""
    record = wire.encode(ended.run)
    if ended.run.error is not None:
        record = b'%b,"problem":%b}' % (record[:-1], wire.encode(problem_of_run(ended.run.error)))
    return b"event: end\ndata: %b\n\n" % record


async def frames(
    attachment: Attachment,
    *,
    end: EndFrame,
    keep_alive_seconds: float,
    ends_with_run: bool = True,
    with_checkpoints: bool = True,
) -> AsyncGenerator[bytes]:
    """A piece per write, until the run ends or for ever. A long silence is filled with a comment, to keep it open.

    with_checkpoints False: ADK's clients take an event without content for an agent's last word.
    """
    while True:
        batch = await attachment.next_batch(idle_seconds=keep_alive_seconds)
        if not batch:
            yield KEEP_ALIVE
            continue
        out: list[bytes] = []
        is_over = False
        for item in batch:
            if isinstance(item, RunEnded):
                out.append(end(item))
                is_over = ends_with_run
            elif with_checkpoints or not item.event.is_checkpoint():
                out.append(event_frame(item))
        data = b"".join(out)
        if data:
            yield data
        if is_over:
            return
