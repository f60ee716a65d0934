"""A run as a sequence of steps, which each gate writes in its protocol's words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from greenroom.event_streams.stream import RunEnded
from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata
from greenroom.records.base import JsonObject
from greenroom.records.content import FunctionCall, FunctionResponse, Part
from greenroom.records.event import Event
from greenroom.records.human_requests import requests_in
from greenroom.runs.engine import Attachment


class TextStep(NamedTuple):
    """Text that was not sent before."""

    message_id: str
    """The same for all pieces of a message."""
    author: str
    text: str
    is_thought: bool


class CorrectionStep(NamedTuple):
    """The complete text of a message that differs from the pieces sent before, because the model or a callback has
    changed it. No other text of the message follows.
    """

    message_id: str
    author: str
    text: str


class MessageEnd(NamedTuple):
    """The message with this id is complete and stored."""

    message_id: str


class CallStep(NamedTuple):
    """A function call."""

    message_id: str
    author: str
    call: FunctionCall
    is_open: bool
    """Whether the client has to send the response."""
    is_request: bool
    """Whether the framework asks a person by this call."""


class ResponseStep(NamedTuple):
    """The response to a call, by its tool."""

    message_id: str
    response: FunctionResponse


class MediaStep(NamedTuple):
    """A part with a file, inline or by URI."""

    message_id: str
    part: Part


class StateStep(NamedTuple):
    """Changes of the session's state; `REMOVED` removes a key."""

    delta: JsonObject


Step: TypeAlias = TextStep | CorrectionStep | MessageEnd | CallStep | ResponseStep | MediaStep | StateStep | RunEnded


class StepReader:
    """Turns the events of a run into steps. Text that came in partial events is not repeated by their message:

        partial "Hel", partial "lo", complete "Hello!"  →  "Hel", "lo", "!"
        partial "Hel", partial "lo", complete "Howdy"   →  "Hel", "lo", a correction with "Howdy"

    Thoughts are not corrected. One message at a time: steps of parallel agents wait until the message that began first
    is complete. usage: the token counts of the events read; a run's record also counts its earlier messages.
    """

    def __init__(self) -> None:
        self.usage: GenerateContentResponseUsageMetadata | None = None
        self._said: dict[tuple[str, bool], str] = {}
        self._current: TextStep | CallStep | None = None
        self._waiting: list[Step] = []

    async def next(self, attachment: Attachment, *, idle_seconds: float | None = None) -> list[Step]:
        """Returns all steps that are ready. Empty after `idle_seconds` without an event, and for events without a
        visible step.
        """
        steps: list[Step] = []
        for item in await attachment.next_batch(idle_seconds=idle_seconds):
            if isinstance(item, RunEnded):
                steps += [*self._waiting, RunEnded(replace(item.run, usage=self.usage), item.error)]
            else:
                steps += self.read(item.event)
        return steps

    def read(self, event: Event) -> list[Step]:
        """Returns the steps of an event; none for the user's own events."""
        if event.usage_metadata is not None and not event.partial:
            self.usage = self.usage or GenerateContentResponseUsageMetadata()
            self.usage.add(event.usage_metadata)
        return self._in_order(self._steps(event))

    def _in_order(self, steps: Iterable[Step]) -> list[Step]:
        ready: list[Step] = []
        for step in steps:
            current = self._current
            if isinstance(step, (StateStep, RunEnded)) or current is None or step.message_id == current.message_id:
                ready.append(step)
                if isinstance(step, (TextStep, CallStep)):
                    self._current = step
            elif isinstance(step, (TextStep, CallStep)) and step.author == current.author:
                # The agent's earlier message was cut off, and will not be completed.
                self._current = step
                ready.append(step)
            else:
                self._waiting.append(step)
                continue

            if isinstance(step, MessageEnd):
                self._current = None
                waiting = self._waiting
                self._waiting = []
                ready += self._in_order(waiting)

        return ready

    def _steps(self, event: Event) -> Iterator[Step]:
        if event.author == "user" or event.is_internal():
            return

        parts = (event.content.parts if event.content is not None else None) or ()
        if event.partial:
            yield from self._partial_steps(event, parts)
            return
        if event.actions.state_delta:
            yield StateStep(event.actions.state_delta)
        yield from self._complete_steps(event, parts)
        if parts:
            yield MessageEnd(event.id)

    def _partial_steps(self, event: Event, parts: Sequence[Part]) -> Iterator[Step]:
        for part in parts:
            if part.text:
                key = event.id, bool(part.thought)
                self._said[key] = self._said.get(key, "") + part.text
                yield TextStep(event.id, event.author, part.text, key[1])

    def _complete_steps(self, event: Event, parts: Sequence[Part]) -> Iterator[Step]:
        differs: dict[bool, bool] = {}
        left: dict[bool, int] = {}
        for is_thought in (False, True):
            streamed = self._said.pop((event.id, is_thought), "")
            text = "".join(part.text for part in parts if part.text and bool(part.thought) is is_thought)
            differs[is_thought] = bool(parts) and not text.startswith(streamed)
            left[is_thought] = len(streamed)
            if differs[is_thought] and not is_thought:
                yield CorrectionStep(event.id, event.author, text)

        for part in parts:
            if part.text:
                is_thought = bool(part.thought)
                new = "" if differs[is_thought] else part.text[left[is_thought] :]
                left[is_thought] = max(left[is_thought] - len(part.text), 0)
                if new:
                    yield TextStep(event.id, event.author, new, is_thought)
            elif part.function_call is not None:
                call = part.function_call
                is_open = call.id in (event.long_running_tool_ids or ())
                yield CallStep(event.id, event.author, call, is_open, call in requests_in(event))
            elif part.function_response is not None:
                yield ResponseStep(event.id, part.function_response)
            elif part.inline_data is not None or part.file_data is not None:
                yield MediaStep(event.id, part)
