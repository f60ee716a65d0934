"""A folder with a recorded conversation: the user's messages, the answers of models and tools, and the resulting
session.

Source: the layout of ADK's conformance tests: `spec.yaml`, `generated-recordings.yaml`, `generated-session.yaml`, the
latter two with `-sse` in their names if the conversation was streamed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from greenroom.errors import InvalidRequest, ReplayConfigError
from greenroom.log.state import log_state_of
from greenroom.plugins.recording import live_runs, turns_of
from greenroom.plugins.recordings_file import StreamingName, dump, read_plain, read_record, recordings_file, to_snake
from greenroom.plugins.replay import comparable_state
from greenroom.records import wire
from greenroom.records.base import JsonObject
from greenroom.records.content import Content, Part, UserContent
from greenroom.records.copy_on_write import CopyOnWriteList
from greenroom.records.event import Event
from greenroom.records.login_secrets import without_internal
from greenroom.records.session import Session

_SPEC = "spec.yaml"


class UserMessage(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """text, or a whole content; state_delta is applied with it, or on its own if is_patch."""

    text: str | None = None
    content: JsonObject | None = None
    state_delta: JsonObject | None = None
    custom_metadata: JsonObject | None = None
    """Of the run."""

    live_run: str | None = None
    """Equal for the messages of one live run, of which the recordings have the contents."""

    is_patch: bool = False
    answered: list[str | None] | None = None
    """Names of the calls that the function responses answer, where a response has another name.
    These and is_patch are ours. Without text and content, the run has no message.
    """

    def as_content(self) -> Content | None:
        """Raises ReplayConfigError."""
        if self.content is None:
            return None if self.text is None else UserContent(self.text)
        try:
            return wire.from_plain(self.content, Content)
        except InvalidRequest as error:
            raise ReplayConfigError(f"{_SPEC}: a user's message: {error.detail}") from error


class Spec(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    description: str = ""
    agent: str
    """Name of the app."""

    initial_state: JsonObject = msgspec.field(default_factory=dict[str, object])
    user_messages: list[UserMessage] = msgspec.field(default_factory=list[UserMessage])


class RecordedCase(NamedTuple):
    folder: Path
    mode: StreamingName

    @property
    def name(self) -> str:
        return f"{self.folder.parent.name}/{self.folder.name}" + (" (streamed)" if self.mode == "sse" else "")

    @property
    def recordings_path(self) -> Path:
        return self.folder / recordings_file(self.mode)

    @property
    def session_path(self) -> Path:
        return self.folder / ("generated-session-sse.yaml" if self.mode == "sse" else "generated-session.yaml")

    def spec(self) -> Spec:
        """Raises ReplayConfigError."""
        path = self.folder / _SPEC
        try:
            return msgspec.convert(read_plain(path), Spec)
        except msgspec.ValidationError as error:
            raise ReplayConfigError(f"{path}: {error}") from error

    def session(self) -> Session | None:
        """The session as it became then; None if that wasn't kept. Raises ReplayConfigError."""
        if self.session_path.exists():
            return read_record(self.session_path, Session)
        return None

    def clear(self) -> None:
        """Creates the folder, and deletes the files of an earlier recording of this mode."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in (self.recordings_path, self.session_path):
            path.unlink(missing_ok=True)

    def write(self, spec: Spec, session: Session) -> None:
        (self.folder / _SPEC).write_text(dump(msgspec.to_builtins(spec)), encoding="utf-8")
        plain: JsonObject = to_snake(session)
        plain["state"] = comparable_state(session.state)

        for event in plain.get("events", []):
            actions: JsonObject = event.get("actions", {})
            if "state_delta" in actions:
                actions["state_delta"] = comparable_state(actions["state_delta"])

        self.session_path.write_text(dump(plain), encoding="utf-8")


def cases_in(paths: Iterable[Path]) -> list[RecordedCase]:
    """Returns the cases in these folders and below, by category and name, without those that have no recordings."""
    folders = {spec.parent.resolve() for path in paths for spec in path.rglob(_SPEC)}
    modes: tuple[StreamingName, ...] = ("none", "sse")
    found = [RecordedCase(folder, mode) for folder in folders for mode in modes]
    return sorted(case for case in found if case.recordings_path.exists())


def spec_of(session: Session) -> Spec:
    """The user's messages of the conversation, for a replay. State that no event set is the initial
    state.
    """
    changed = {key for event in session.events for key in event.actions.state_delta}
    initial_state = {key: value for key, value in session.state.items() if key not in changed}
    spec = Spec(agent=session.app_name, initial_state=initial_state)

    live = live_runs(session)
    delta: JsonObject = {}
    names = {call.id: call.name for event in session.events for call in event.get_function_calls()}
    for turn, event in turns_of(session):
        is_new = turn == len(spec.user_messages)
        if event.author == "user" and event.invocation_id not in live:
            delta |= comparable_state(event.actions.state_delta)

        if event.invocation_id in live:
            if is_new:
                metadata = without_internal(event.custom_metadata)
                spec.user_messages.append(UserMessage(live_run=event.invocation_id, custom_metadata=metadata))
        elif is_new:
            if event.author == "user":
                message = _message(event, delta)
            else:
                message = UserMessage(state_delta=delta or None)

            message.is_patch = event.author == "user" and event.content is None
            message.answered = _answered(event, names)
            message.custom_metadata = without_internal(event.custom_metadata)
            spec.user_messages.append(message)
            delta = {}

    return spec


def _message(event: Event, delta: JsonObject) -> UserMessage:
    parts = (event.content.parts if event.content else None) or []
    if event.content is None or (len(parts) == 1 and parts[0] == Part(text=parts[0].text)):
        return UserMessage(text=parts[0].text if parts else None, state_delta=delta or None)
    return UserMessage(content=to_snake(event.content), state_delta=delta or None)


def _answered(message: Event, names: Mapping[str | None, str | None]) -> list[str | None] | None:
    """Returns the names of the calls that the message answers; None if each response has the name of its call.

    names: the names of all calls, by id.
    """
    if message.author == "user":
        responses = message.get_function_responses()
    else:
        responses = []

    answered = [names.get(response.id, response.name) for response in responses]
    if answered == [response.name for response in responses]:
        return None

    return answered


def with_open_calls(
    content: Content | None, events: CopyOnWriteList[Event], answered: Sequence[str | None] | None = None
) -> Content | None:
    """The message with the ids of open calls of the same name, oldest first: a call may have
    another id in each run.

    answered: names of the calls that the responses answer, if they have others.
    """
    if content is None or not any(part.function_response for part in content.parts or ()):
        return content

    open_calls = log_state_of(events).open_calls()
    by_name: dict[str | None, deque[str]] = {}
    for call_id, call in open_calls.items():
        by_name.setdefault(call.name, deque()).append(call_id)

    parts: list[Part] = []
    names = deque(answered or ())
    for part in content.parts or ():
        response = part.function_response
        if response is not None:
            name = names.popleft() if names else response.name
            if response.id not in open_calls and by_name.get(name):
                response = msgspec.structs.replace(response, id=by_name[name].popleft())
                part = msgspec.structs.replace(part, function_response=response)
        parts.append(part)

    return Content(role=content.role, parts=parts)
