"""Replies with the steps of a run: a stream of Server-Sent Events, or all steps at the end."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from greenroom.event_streams.stream import RunEnded
from greenroom.gates.steps import Step, StepReader
from greenroom.records import wire
from greenroom.records.base import JsonObject
from greenroom.records.run import OnDisconnect, Run
from greenroom.runs.engine import Attachment
from greenroom.server.replies import StreamReply
from greenroom.server.request_context import RequestContext
from greenroom.server.routes.run import RUN_ID_HEADER, when_client_leaves
from greenroom.server.sse import KEEP_ALIVE


class Translator(Protocol):
    """Writes steps as the frames of a protocol."""

    def frames(self, step: Step) -> bytes: ...

    def stopping(self) -> bytes:
        """The last frames when the server stops before the run ends."""
        ...


def stream_reply(
    context: RequestContext,
    attachment: Attachment,
    translator: Translator,
    run: Run,
    *,
    on_disconnect: OnDisconnect | None = None,
    continuation: str | None = None,
) -> StreamReply:
    """A Server-Sent Events stream of the run until its end. on_disconnect: by default as the settings say.

    continuation: see StreamReply.
    """

    async def pieces() -> AsyncGenerator[bytes]:
        reader = StepReader()
        while True:
            steps = await reader.next(attachment, idle_seconds=context.settings.keep_alive_seconds)
            yield b"".join(map(translator.frames, steps)) or KEEP_ALIVE
            if any(isinstance(step, RunEnded) for step in steps):
                return

    return StreamReply(
        pieces=pieces(),
        close=attachment.close,
        when_server_stops=translator.stopping,
        continuation=continuation,
        when_client_leaves=when_client_leaves(context, run.id, on_disconnect),
        headers={RUN_ID_HEADER: run.id},
    )


async def all_steps(attachment: Attachment) -> tuple[list[Step], RunEnded]:
    """The steps up to the end of the run, and the end. Closes the attachment."""
    reader = StepReader()
    steps = list[Step]()
    try:
        while True:
            for step in await reader.next(attachment):
                if isinstance(step, RunEnded):
                    return steps, step
                steps.append(step)
    finally:
        attachment.close()


def data_frame(data: JsonObject) -> bytes:
    return b"data: %b\n\n" % wire.encode(data)
