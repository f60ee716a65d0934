"""A run as an A2A task: its status, its messages as artifacts, and the calls that wait for the client.

    partial "Hel", partial "lo", complete "Hello"  →  artifact, artifact (append), artifact with the whole (lastChunk)

A message is one artifact with the event's id, so a task that is read from the log equals the one that
was streamed. Long-running calls are not in artifacts; the last status has those that are still open.

All is written in the JSON of version 1.0, as protobuf writes it, but several times as fast;
`to_message` parses it for the SDK, which encodes version 0.3 and gRPC.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import TypeAlias

import a2a.types as a2a
import msgspec
from google.protobuf.json_format import ParseDict
from msgspec import UNSET, UnsetType

from greenroom.a2a.metadata import ACTIONS, EXECUTOR_V2, NO_ACTIONS, adk_key, event_metadata, without_internal
from greenroom.a2a.parts import A2aPart, to_json_part
from greenroom.log.state import LogState
from greenroom.records import wire
from greenroom.records.base import JsonObject, as_object
from greenroom.records.content import Content, FunctionCall, Part
from greenroom.records.event import Event
from greenroom.records.human_requests import REQUEST_CREDENTIAL
from greenroom.records.run import Run, RunStatus
from greenroom.server.routes.run import PAGE_LIMIT
from greenroom.sessions.service import BaseSessionService

TaskEvent: TypeAlias = a2a.Task | a2a.TaskStatusUpdateEvent | a2a.TaskArtifactUpdateEvent

REQUEST = "a2a:request"
"""The key of a run's custom metadata that has the incoming message without its parts."""

REPLY = "a2a:reply"
"""The key of an event's custom metadata by which an agent chooses the form of its reply: `rejected`
ends the task as rejected, with the event's parts as the reason; `message` replies to SendMessage
with a bare message, not a task."""

WORKING = "TASK_STATE_WORKING"
REJECTED = "TASK_STATE_REJECTED"
STATES = {
    RunStatus.QUEUED: "TASK_STATE_SUBMITTED",
    RunStatus.RUNNING: WORKING,
    RunStatus.WAITING: "TASK_STATE_INPUT_REQUIRED",
    RunStatus.SUCCEEDED: "TASK_STATE_COMPLETED",
    RunStatus.FAILED: "TASK_STATE_FAILED",
    RunStatus.CANCELLED: "TASK_STATE_CANCELED",
}

ToParts: TypeAlias = Callable[[Iterable[Part]], Sequence[JsonObject]]


def parts_of(parts: Iterable[Part]) -> Sequence[JsonObject]:
    return [made for part in parts if (made := to_json_part(part)) is not None]


def to_task(task: JsonObject) -> a2a.Task:
    return ParseDict(wire.to_plain(task), a2a.Task())


def to_message(update: JsonObject) -> TaskEvent:
    """Parses the update of a StreamResponse."""
    ((kind, fields),) = wire.to_plain(update).items()
    message = a2a.TaskArtifactUpdateEvent() if kind == "artifactUpdate" else a2a.TaskStatusUpdateEvent()
    return ParseDict(fields, message)


class TaskEvents:
    """Writes the events of a run, and keeps what the task consists of. keeps_artifacts: False for streams.

    bare_message: the newest message of the agents, if it is marked as the whole reply.
    """

    def __init__(self, run: Run, *, keeps_artifacts: bool, to_parts: ToParts = parts_of) -> None:
        self._log = LogState()
        self.bare_message: JsonObject | None = None
        self._rejection: Sequence[JsonObject] | None = None
        self._run = run
        self._to_parts = to_parts
        ids = {"app_name": run.app_name, "user_id": run.user_id, "session_id": run.session_id}
        self._ids: JsonObject = {adk_key(name): text for name, text in ids.items() if text}
        self._artifacts: list[JsonObject] | None = [] if keeps_artifacts else None
        self._history: list[JsonObject] = []
        self._begun: set[str] = set()
        self._described: tuple[str, JsonObject | None] | None = None
        self._around_text = b"", b""

    @property
    def open_calls(self) -> dict[str, FunctionCall]:
        """The calls that wait for the client, by id, oldest first."""
        return self._log.open_calls()

    def read(self, event: Event) -> list[JsonObject]:
        """Converts an event to StreamResponses for the client; nothing of the user's own ones."""
        if not event.partial:
            self._log.read([event])
        if event.author == "user":
            self.add_message(event.content.parts if event.content is not None else None, event)
            return []
        if event.is_internal():
            return []

        waiting = event.long_running_tool_ids or ()
        content = event.content
        shown: list[Part] = []
        for part in (content.parts if content is not None else None) or ():
            if part.function_call is None or part.function_call.id not in waiting:
                shown.append(part)

        message_parts = self._to_parts(shown)
        metadata = event_metadata(event, self._ids)
        reply = (event.custom_metadata or {}).get(REPLY)
        if reply == "rejected":
            self._rejection = message_parts
            return []
        if message_parts and not event.partial:
            self.bare_message = self._bare_message(event, message_parts, metadata) if reply == "message" else None
        if message_parts:
            return [self._artifact(event, message_parts, metadata)]
        if event.partial or not metadata.get(ACTIONS):
            return []

        return [self._update("statusUpdate", status=self._status(WORKING, (), None), metadata=metadata)]

    def text_chunk(self, event: Event) -> bytes | None:
        """Converts a partial event with nothing but text as `read` does, to JSON; None for others.
        The fields that the chunks of a message share are encoded once."""
        parts = (event.content.parts if event.content is not None else None) or ()
        if not (event.partial and parts and event.author != "user") or event.is_internal():
            return None

        has_more = event.usage_metadata or event.grounding_metadata or event.citation_metadata
        if has_more or event.error_code or event.actions != NO_ACTIONS or REPLY in (event.custom_metadata or {}):
            return None
        if any(part.text is None or part != Part(text=part.text) for part in parts):
            return None

        if self._described != (event.id, event.custom_metadata):
            self._described = event.id, wire.to_plain(event.custom_metadata)
            artifact = _artifact_of(event, (), event_metadata(event, self._ids))
            # No string in JSON has this text, since it would escape the quotes.
            before, _, after = wire.encode(self._update("artifactUpdate", artifact=artifact)).partition(b'"parts":[]')
            self._around_text = before, after[: -len("}}")]

        before, after = self._around_text
        append = b',"append":true' if event.id in self._begun else b""
        self._begun.add(event.id)
        return b'%b"parts":%b%b%b}}' % (before, wire.encode(parts), after, append)

    def _artifact(self, event: Event, parts: Sequence[JsonObject], metadata: JsonObject) -> JsonObject:
        artifact = _artifact_of(event, parts, metadata)
        if self._artifacts is not None and not event.partial:
            self._artifacts.append(artifact)
        flag = {"lastChunk": True} if not event.partial else {"append": True} if event.id in self._begun else {}
        self._begun.add(event.id)
        return self._update("artifactUpdate", artifact=artifact, **flag)

    def _update(self, kind: str, **fields: object) -> JsonObject:
        return {kind: {"taskId": self._run.id, "contextId": self._run.session_id, **fields}}

    def add_message(self, parts: Sequence[Part] | None, event: Event | None = None, header: object = None) -> None:
        """Adds a user's message to the history, and its answers to calls if it is not in the log."""
        if event is None:  # it is not stored yet
            content = Content(role="user", parts=list(parts or ()))
            self._log.read([Event(author="user", invocation_id=self._run.id, content=content)])
        if header is None and event is not None:
            header = (event.custom_metadata or {}).get(REQUEST)
        message_header = as_object(header)
        message_id = str(message_header.get("messageId") or (event.id if event is not None else ""))
        entries = as_object(message_header.get("metadata"))
        metadata = {key: entry for key, entry in entries.items() if entry is not None}
        message = self._message(message_id, "ROLE_USER", _parts_in(message_header) or self._to_parts(parts or ()))
        self._history.append({**message, "metadata": without_internal(metadata)})

    def _message(self, message_id: str, role: str, parts: Sequence[JsonObject]) -> JsonObject:
        ids = {"messageId": message_id, "contextId": self._run.session_id, "taskId": self._run.id}
        filled: JsonObject = {name: value for name, value in {**ids, "parts": parts}.items() if value}
        return {**filled, "role": role}

    def _bare_message(self, event: Event, parts: Sequence[JsonObject], metadata: JsonObject) -> JsonObject:
        made = self._message(event.id, "ROLE_AGENT", parts)
        made.pop("taskId", None)
        return {**made, "metadata": metadata}

    def task(self, run: Run, *, note: str | None = None, history_length: int | UnsetType = UNSET) -> JsonObject:
        """The task as it is now. note: a text beside the open calls. history_length: limit to the newest messages."""
        history = self._history
        if history_length is not UNSET:
            history = history[max(len(history) - history_length, 0) :]
        lists = {"artifacts": self._artifacts, "history": history}
        return {
            "id": run.id,
            "contextId": run.session_id,
            "status": self._status_of(run, note),
            **{name: entries for name, entries in lists.items() if entries},
            "metadata": {**self._ids, EXECUTOR_V2: True},
        }

    def status(self, run: Run) -> JsonObject:
        """The run's status as a StreamResponse."""
        return self._update("statusUpdate", status=self._status_of(run))

    def working(self) -> JsonObject:
        """The status of a task that continues."""
        return self._update("statusUpdate", status=self._status(WORKING, (), None))

    def _status_of(self, run: Run, note: str | None = None) -> JsonObject:
        state = STATES[run.status]
        parts = list[JsonObject]()
        if run.status is RunStatus.WAITING:
            calls = list(self.open_calls.values())
            if calls and calls[-1].name == REQUEST_CREDENTIAL:
                state = "TASK_STATE_AUTH_REQUIRED"
            parts = list(_call_parts(calls))
        elif run.status is RunStatus.SUCCEEDED and self._rejection is not None:
            state = REJECTED
            parts = list(self._rejection)
        elif run.status is RunStatus.FAILED and run.error is not None:
            parts = [{"text": run.error.message}]

        if note is not None:
            parts.append({"text": note})
        return self._status(state, parts, run.ended_at or run.started_at or run.created_at)

    def _status(self, state: str, parts: Sequence[JsonObject], time: float | None) -> JsonObject:
        status: JsonObject = {"state": state, "timestamp": _timestamp(time)}
        if parts:
            message_id = f"{self._run.id}-{self._run.message_after_seq}"
            status["message"] = self._message(message_id, "ROLE_AGENT", parts)
        return status


def _parts_in(header: JsonObject) -> list[JsonObject]:
    """The parts that a header keeps; none if they are no parts, since clients of other endpoints may write headers."""
    try:
        return msgspec.to_builtins(msgspec.convert(header.get("parts", []), list[A2aPart]))
    except msgspec.ValidationError:
        return []


def _artifact_of(event: Event, parts: Sequence[JsonObject], metadata: JsonObject) -> JsonObject:
    return {"artifactId": event.id, "parts": parts, "metadata": metadata}


def _timestamp(time: float | None) -> str:
    """Formats a time, or the current one, in protobuf's JSON format: without a fraction, or with 3 or 6 digits."""
    moment = datetime.now(UTC) if time is None else datetime.fromtimestamp(time, UTC)
    return moment.isoformat()[: -len("+00:00")].removesuffix("000") + "Z"


async def read_run(sessions: BaseSessionService, run: Run, *, keeps_artifacts: bool = True) -> tuple[TaskEvents, int]:
    """Returns the run's stored events, and the sequence number of the last event read."""
    events = TaskEvents(run, keeps_artifacts=keeps_artifacts)
    seq = run.after_seq
    key = run.session_key

    while True:
        page = await sessions.list_events(**key._asdict(), after=seq, limit=PAGE_LIMIT)
        for event in page.events:
            if event.invocation_id == run.id:
                events.read(event)
        seq += len(page.events)
        if len(page.events) < PAGE_LIMIT:
            return events, seq


def _call_parts(calls: Iterable[FunctionCall]) -> Iterable[JsonObject]:
    for call in calls:
        made = to_json_part(Part(function_call=call), is_long_running=True)
        if made is not None:
            yield made
