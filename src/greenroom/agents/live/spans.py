"""The spans of a live conversation's model calls."""

from __future__ import annotations

from collections.abc import Sequence

from greenroom.models.model import BaseLlm
from greenroom.records.event import Event
from greenroom.records.identifiers import new_event_id
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.telemetry.agent_spans import ModelCallSpan
from greenroom.telemetry.span import Span


class ModelSpans:
    """Records a span for each turn of the model.

    A span begins with what the model was sent last before it spoke, and ends with its turn, or
    where it calls tools.
    """

    def __init__(self, parent: Span | None, *, agent_name: str, model: BaseLlm) -> None:
        self._parent = parent
        self._agent_name = agent_name
        self._model = model
        self._newest: ModelCallSpan | None = None
        self._lost: Exception | None = None

    def note(
        self,
        reply: LlmResponse,
        events: Sequence[Event],
        request: LlmRequest,
        *,
        sent_at: int,
    ) -> None:
        """A reply and its outcome.

        sent_at: when the model was sent something last; nanoseconds since the epoch.
        """
        spoken = [event for event in events if event.author == self._agent_name and _has_content(event)]
        span = self._newest
        if spoken and (span is None or span.end_time):
            span = self._begin(spoken[0].id, request, sent_at)

        if span is None:
            return

        span.note_first_reply()

        for event in spoken:
            if not event.partial and has_words(event):
                span.event_id = event.id
                span.note_reply(_as_reply(event))

        if not reply.partial and (has_words(reply) or reply.error_code):
            span.note_reply(reply)
        elif reply.usage_metadata is not None:  # may come when the turn is over
            span.usage = reply.usage_metadata

        has_calls = any(event.get_function_calls() for event in spoken if not event.partial)
        if not span.end_time and (has_calls or reply.turn_complete or reply.interrupted):
            span.end()

    def lose(self, error: Exception) -> None:
        """The connection is lost; if the model was speaking, that call has failed."""
        span = self._newest
        if span is not None and not span.end_time:
            span.fail(error)
            span.end()
            self._lost = error

    def fail(self, error: Exception, request: LlmRequest) -> None:
        """The model can't be asked any more."""
        if error is self._lost:
            return
        span = self._begin(new_event_id(), request, 0)
        if span is not None:
            span.fail(error)
            span.end()

    def _begin(self, event_id: str, request: LlmRequest, sent_at: int) -> ModelCallSpan | None:
        if self._parent is None:
            return None

        if self._newest is not None:
            ended_at = self._newest.end_time
        else:
            ended_at = 0

        model = self._model
        span = ModelCallSpan(self._parent, agent_name=self._agent_name, model=model.model, called=model)
        self._newest = span
        span.event_id = event_id
        span.note_request(request)
        if sent_at > ended_at:
            span.start_time = sent_at

        return span


def has_words(message: LlmResponse | Event) -> bool:
    """Whether there is something in it to read: text, calls, transcripts."""
    if message.output_transcription is not None:
        return True
    if message.content is None:
        return False
    return any(part.text or part.function_call is not None for part in message.content.parts or ())


def _has_content(event: Event) -> bool:
    return event.content is not None or event.output_transcription is not None or event.error_code is not None


def _as_reply(event: Event) -> LlmResponse:
    return LlmResponse(
        content=event.content, output_transcription=event.output_transcription, interrupted=event.interrupted
    )
