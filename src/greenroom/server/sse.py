"""Server-Sent Events: one event per frame, whole frames per write.

No write ends inside a frame, because ADK's web UI then parses its buffer again. `id:` is the
event's sequence number in the session's log; partial events have none, since they are not stored.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

import msgspec

from greenroom.errors import RunNotFound, Unavailable
from greenroom.event_streams.stream import LiveItem, RunEnded, StreamItem
from greenroom.records import wire
from greenroom.records.base import JsonObject
from greenroom.records.event import Event
from greenroom.records.identifiers import is_state_patch_id
from greenroom.records.run import Run, RunStatus, public_record
from greenroom.records.session import Session
from greenroom.runs.engine import Attachment
from greenroom.server.access.authorization.runs import AuthorizedRuns
from greenroom.server.addresses import Address
from greenroom.server.replies import problem, problem_of_run

KEEP_ALIVE = b": keep-alive\n\n"


def _frame(seq: int | None, json: bytes) -> bytes:
    """The frame of an event. seq: None for a partial event."""
    if seq is None:
        return b"data: %b\n\n" % json
    return b"id: %d\ndata: %b\n\n" % (seq, json)


def _adk_frames(item: StreamItem) -> list[bytes]:
    """Returns the frames that ADK's clients get for an event; none for an internal event."""
    if item.event.is_internal():
        return []
    parts = _split_for_adk(item.event) if item.seq is not None else ()
    if parts:
        return [_frame(item.seq, wire.encode(part)) for part in parts]
    return [_frame(item.seq, item.json)]


def _split_for_adk(event: Event) -> tuple[Event, ...]:
    """Splits an event in two, content first, then artifacts: ADK's page would else show the artifact twice."""
    if not event.actions.artifact_delta or event.content is None or not event.content.parts:
        return ()
    without_artifacts = msgspec.structs.replace(event.actions, artifact_delta={})
    return (
        msgspec.structs.replace(event, actions=without_artifacts),
        msgspec.structs.replace(event, content=None),
    )


def adk_end(ended: RunEnded) -> bytes:
    """The last frame of a failed run, else empty: ADK ends streams by closing them. `problem` is our addition."""
    error = ended.run.error
    if error is None or error.status is None:
        return b""
    return _error_frame(error.code, error.message, problem_of_run(error))


def _error_frame(code: str, message: str, problem: JsonObject) -> bytes:
    details = {"error_type": code, "error_message": message, "timestamp": time.time()}
    return b"data: %b\n\n" % wire.encode({"error": f"{code}: {message}", "error_details": details, "problem": problem})


def run_end(ended: RunEnded) -> bytes:
    """A frame of type `end` with the run's record, and `problem` if it failed."""
    record = wire.encode(public_record(ended.run))
    if ended.run.error is not None:
        record = b'%b,"problem":%b}' % (record[:-1], wire.encode(problem_of_run(ended.run.error)))
    return b"event: end\ndata: %b\n\n" % record


@dataclass(kw_only=True, slots=True)
class EventFrames:
    """Encodes a subscription as SSE frames. run_id None: all runs of the session, without end."""

    attachment: Attachment
    run_id: str | None
    keep_alive_seconds: float
    address: Address
    """The server's address, for the path where the run can be read."""
    for_adk: bool = False
    """Whether streams end as ADK ends them, and leave out internal events: ADK's clients take an
    event without content for an agent's final one."""
    last_seq: int = field(default=0, init=False)

    async def pieces(self) -> AsyncGenerator[bytes]:
        """The bytes of each write, until the run ends or for ever. Sends a comment when idle.

        Raises OwnershipLost when another server has taken the session over.
        """
        while True:
            batch = await self.attachment.next_batch(idle_seconds=self.keep_alive_seconds)
            if not batch:
                yield KEEP_ALIVE
                continue

            frames: list[bytes] = []
            is_over = False
            for item in batch:
                if isinstance(item, RunEnded):
                    frames.append(adk_end(item) if self.for_adk else run_end(item))
                    is_over = self.run_id is not None
                    continue

                self.last_seq = item.seq or self.last_seq
                if self.for_adk:
                    frames += _adk_frames(item)
                else:
                    frames.append(_frame(item.seq, item.json))

            data = b"".join(frames)
            if data:
                yield data
            if is_over:
                return

    def stopping(self) -> bytes:
        """The last frame of a stream that ends before the run does; it says where to resume."""
        if not self.for_adk:  # a comment: this stream has frames for stored events and ends only
            return b"retry: 1000\n: the stream ends here; resume with Last-Event-ID: %d\n\n" % self.last_seq
        path = self.address.path(f"/runs/{self.run_id}/events")
        detail = f"The stream ends here; the run continues. Read it from {path}, after {self.last_seq}"
        stopping = problem(Unavailable.__name__, Unavailable.status, detail)
        position = {"path": path, "lastEventId": str(self.last_seq)}
        return _error_frame(Unavailable.__name__, detail, {**stopping, "resume": position})


class RunEndInserter:
    """A session's items, with the ends of runs that ended before the subscription; each end once.

    An end follows the run's last event: it comes before the next run's first event, or at the end
    of the log. after: seq of the last event that the client has seen.
    """

    def __init__(self, engine: AuthorizedRuns, attachment: Attachment, session: Session, *, after: int) -> None:
        self._engine = engine
        self._attachment = attachment
        self._key = session.key
        self._stored = len(session.events)
        self._open: str | None = None
        if 0 < after <= self._stored:
            self._open = session.events[after - 1].invocation_id
        self._is_unchecked = self._open is not None and after >= self._stored
        self._ended: tuple[str, RunStatus, float | None] | None = None

    async def next_batch(self, *, idle_seconds: float | None = None) -> list[LiveItem]:
        batch = await self._end_of_open_run() if self._is_unchecked else []
        self._is_unchecked = False
        if batch:
            return batch

        for item in await self._attachment.next_batch(idle_seconds=idle_seconds):
            if isinstance(item, RunEnded):
                if self._note_end(item.run):
                    batch.append(item)
            else:
                if item.seq is not None:
                    if item.run_id != self._open and not is_state_patch_id(item.run_id):
                        batch += await self._end_of_open_run()
                        self._open = item.run_id
                    self._is_unchecked = item.seq >= self._stored
                batch.append(item)

        return batch

    def close(self) -> None:
        self._attachment.close()

    async def _end_of_open_run(self) -> list[LiveItem]:
        run_id = self._open
        self._open = None
        if run_id is None:
            return []

        try:
            run = await self._engine.get(run_id)
        except RunNotFound:  # its events were imported
            return []

        if run.session_key != self._key:  # a fork's older events are of its origin's runs
            return []
        if not run.status.is_over:
            self._open = run_id
            return []

        return [RunEnded(run)] if self._note_end(run) else []

    def _note_end(self, run: Run) -> bool:
        """False for an end that was sent already."""
        end = run.id, run.status, run.ended_at
        is_new = end != self._ended
        self._ended = end
        if self._open == run.id:
            self._open = None
        return is_new
