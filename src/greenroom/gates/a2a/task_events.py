"""A run as an A2A task: its status, its messages as artifacts, and the calls that wait for the client.

    partial "Hel", partial "lo", complete "Hello"  →  artifact, artifact (append), artifact with the whole (lastChunk)

A message is one artifact with the event's id, so a task that is read from the log equals the one that was streamed.
Long-running calls are not in artifacts; the last status has those that are still open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from datetime import UTC, datetime
from typing import TypeAlias

import a2a.types as a2a
import msgspec

from greenroom.a2a.metadata import EXECUTOR_V2, adk_key, event_metadata, to_struct, without_internal
from greenroom.a2a.parts import to_a2a_part
from greenroom.records import wire
from greenroom.records.base import JsonObject
from greenroom.records.content import FunctionCall, Part
from greenroom.records.event import Event, EventActions
from greenroom.records.human_requests import REQUEST_CREDENTIAL
from greenroom.records.run import Run, RunStatus
from greenroom.records.session import SessionKey
from greenroom.server.routes.run import PAGE_LIMIT
from greenroom.sessions.service import BaseSessionService

TaskEvent: TypeAlias = a2a.Task | a2a.TaskStatusUpdateEvent | a2a.TaskArtifactUpdateEvent

REQUEST = "a2a:request"
"""The key of a run's custom metadata that has the incoming message without its parts."""

STATES = {
    RunStatus.QUEUED: a2a.TaskState.TASK_STATE_SUBMITTED,
    RunStatus.RUNNING: a2a.TaskState.TASK_STATE_WORKING,
    RunStatus.WAITING: a2a.TaskState.TASK_STATE_INPUT_REQUIRED,
    RunStatus.SUCCEEDED: a2a.TaskState.TASK_STATE_COMPLETED,
    RunStatus.FAILED: a2a.TaskState.TASK_STATE_FAILED,
    RunStatus.CANCELLED: a2a.TaskState.TASK_STATE_CANCELED,
}


ToParts: TypeAlias = Callable[[Iterable[Part]], Sequence[a2a.Part]]

_NO_ACTIONS = EventActions()


def parts_of(parts: Iterable[Part]) -> Sequence[a2a.Part]:
    return [made for part in parts if (made := to_a2a_part(part)) is not None]


class TaskEvents:
    """Writes the events of a run, and keeps what the task consists of. keeps_artifacts: False for streams."""

    def __init__(self, run: Run, *, keeps_artifacts: bool, to_parts: ToParts = parts_of) -> None:
        self.open_calls: dict[str, FunctionCall] = {}
        self._run, self._to_parts = run, to_parts
        self._ids = {"app_name": run.app_name, "user_id": run.user_id, "session_id": run.session_id}
        self._artifacts: list[a2a.Artifact] | None = [] if keeps_artifacts else None
        self._history: list[a2a.Message] = []
        self._begun: set[str] = set()
        self._described: tuple[str, JsonObject | None] | None = None
        self._metadata = msgspec.Raw()

    def read(self, event: Event) -> list[TaskEvent]:
        """Converts an event for the client; nothing of the user's own ones."""
        if event.author == "user":
            self.add_message(event.content.parts if event.content is not None else None, event)
            return []
        if event.is_internal():
            return []
        waiting = event.long_running_tool_ids or ()
        content = event.content
        shown: list[Part] = []
        for part in (content.parts if content is not None else None) or ():
            call = part.function_call
            if call is not None and call.id is not None and call.id in waiting:
                self.open_calls[call.id] = call
            else:
                shown.append(part)
        made = self._to_parts(shown)
        metadata = to_struct(event_metadata(event, **self._ids))
        if made:
            return [self._artifact(event, made, metadata)]
        if event.partial or not metadata.fields.get(adk_key("actions")):
            return []
        return [self._status(a2a.TaskState.TASK_STATE_WORKING, metadata=metadata)]

    def text_chunk(self, event: Event) -> JsonObject | None:
        """Converts a partial event with nothing but text as `read` does, to JSON; None for others. Protobuf's JSON
        takes ten times as long, for each chunk of a stream."""
        parts = (event.content.parts if event.content is not None else None) or ()
        if not (event.partial and parts and event.author != "user") or event.is_internal():
            return None
        has_more = event.usage_metadata or event.grounding_metadata or event.citation_metadata
        if has_more or event.error_code or event.actions != _NO_ACTIONS:
            return None
        if any(part.text is None or part != Part(text=part.text) for part in parts):
            return None
        described = event.id, event.custom_metadata
        if self._described != described:
            self._described = deepcopy(described)
            self._metadata = msgspec.Raw(wire.encode(without_internal(event_metadata(event, **self._ids))))
        artifact: JsonObject = {"artifactId": event.id, "parts": [{"text": part.text} for part in parts]}
        artifact["metadata"] = self._metadata
        update: JsonObject = {"taskId": self._run.id, "contextId": self._run.session_id, "artifact": artifact}
        if event.id in self._begun:
            update["append"] = True
        self._begun.add(event.id)
        return update

    def _artifact(self, event: Event, parts: Sequence[a2a.Part], metadata: object) -> a2a.TaskArtifactUpdateEvent:
        artifact = a2a.Artifact(artifact_id=event.id, parts=parts, metadata=metadata)  # pyright: ignore[reportArgumentType]
        if self._artifacts is not None and not event.partial:
            self._artifacts.append(artifact)
        appends = bool(event.partial) and event.id in self._begun
        self._begun.add(event.id)
        return a2a.TaskArtifactUpdateEvent(
            task_id=self._run.id,
            context_id=self._run.session_id,
            artifact=artifact,
            append=appends,
            last_chunk=not event.partial,
        )

    def add_message(self, parts: Sequence[Part] | None, event: Event | None = None, header: object = None) -> None:
        """Adds a user's message to the history; its function responses close calls."""
        for part in parts or ():
            if part.function_response is not None:
                self.open_calls.pop(part.function_response.id or "", None)
        if header is None and event is not None:
            header = (event.custom_metadata or {}).get(REQUEST)
        known: JsonObject = header if isinstance(header, dict) else {}  # pyright: ignore[reportUnknownVariableType]
        made = self._to_parts(parts or ())
        self._history.append(
            a2a.Message(
                message_id=str(known.get("messageId") or (event.id if event is not None else "")),
                context_id=self._run.session_id,
                task_id=self._run.id,
                role=a2a.Role.ROLE_USER,
                parts=made,
                metadata=to_struct(known.get("metadata") or {}),
            )
        )

    def task(self, run: Run, *, note: str | None = None) -> a2a.Task:
        """The task as it is now. note: a text beside the open calls."""
        return a2a.Task(
            id=run.id,
            context_id=run.session_id,
            status=self._status_of(run, note),
            artifacts=self._artifacts or (),
            history=self._history,
            metadata=to_struct({**{adk_key(key): value for key, value in self._ids.items()}, EXECUTOR_V2: True}),
        )

    def status(self, run: Run) -> a2a.TaskStatusUpdateEvent:
        return self.update(self._status_of(run))

    def _status_of(self, run: Run, note: str | None = None) -> a2a.TaskStatus:
        state, parts = STATES[run.status], list[a2a.Part]()
        if run.status is RunStatus.WAITING:
            calls = list(self.open_calls.values())
            if calls and calls[-1].name == REQUEST_CREDENTIAL:
                state = a2a.TaskState.TASK_STATE_AUTH_REQUIRED
            parts = list(_call_parts(calls))
        elif run.status is RunStatus.FAILED and run.error is not None:
            parts = [a2a.Part(text=run.error.message)]
        if note is not None:
            parts.append(a2a.Part(text=note))
        return self._make_status(state, parts, run.ended_at or run.started_at or run.created_at)

    def _status(self, state: a2a.TaskState, *, metadata: object) -> a2a.TaskStatusUpdateEvent:
        update = self.update(self._make_status(state, (), None))
        update.metadata.CopyFrom(metadata)  # pyright: ignore[reportArgumentType]
        return update

    def update(self, status: a2a.TaskStatus) -> a2a.TaskStatusUpdateEvent:
        return a2a.TaskStatusUpdateEvent(task_id=self._run.id, context_id=self._run.session_id, status=status)

    def _make_status(self, state: a2a.TaskState, parts: Sequence[a2a.Part], time: float | None) -> a2a.TaskStatus:
        moment = datetime.now(UTC) if time is None else datetime.fromtimestamp(time, UTC)
        status = a2a.TaskStatus(state=state, timestamp=moment)
        if parts:
            run = self._run
            message_id = f"{run.id}-{run.message_after_seq}"
            status.message.CopyFrom(
                a2a.Message(
                    message_id=message_id,
                    context_id=run.session_id,
                    task_id=run.id,
                    role=a2a.Role.ROLE_AGENT,
                    parts=parts,
                )
            )
        return status


async def read_run(sessions: BaseSessionService, run: Run, *, keeps_artifacts: bool = True) -> tuple[TaskEvents, int]:
    """The run's stored events, and the sequence number of the last one that was read."""
    events, seq = TaskEvents(run, keeps_artifacts=keeps_artifacts), run.after_seq
    key = SessionKey(run.app_name, run.user_id, run.session_id)
    while True:
        page = await sessions.list_events(**key._asdict(), after=seq, limit=PAGE_LIMIT)
        for event in page.events:
            if event.invocation_id == run.id:
                events.read(event)
        seq += len(page.events)
        if len(page.events) < PAGE_LIMIT:
            return events, seq


def _call_parts(calls: Iterable[FunctionCall]) -> Iterable[a2a.Part]:
    for call in calls:
        made = to_a2a_part(Part(function_call=call), is_long_running=True)
        if made is not None:
            yield made
