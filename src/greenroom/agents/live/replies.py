"""A live model's messages as events."""

from __future__ import annotations

from collections.abc import Iterator

from greenroom.agents.turn.model_call import name_calls, name_model
from greenroom.invocation.context import InvocationContext
from greenroom.records.content import Content, Part, Transcription
from greenroom.records.event import Event, EventActions
from greenroom.records.identifiers import new_event_id
from greenroom.records.model_exchange import LlmRequest, LlmResponse

_HANDLED_APART = ("content", "partial", "input_transcription", "output_transcription")
_OTHER_FIELDS = tuple(name for name in LlmResponse.__struct_fields__ if name not in _HANDLED_APART)


class _Pieces:
    """The pieces of a message so far, and the id of its events."""

    __slots__ = ("id", "pieces")

    def __init__(self) -> None:
        self.id = new_event_id()
        self.pieces: list[str] = []

    def __bool__(self) -> bool:
        return bool(self.pieces)

    def text(self) -> str:
        return "".join(self.pieces)


class LiveReplies:
    """Turns a live model's messages into events.

    Pieces of a text, or of a transcript, share the id of the event with the whole.
    """

    def __init__(self, ctx: InvocationContext, agent: str) -> None:
        self._ctx = ctx
        self._agent = agent
        self._heard = _Pieces()
        self._spoken = _Pieces()
        self._text = _Pieces()

    def to_events(
        self,
        reply: LlmResponse,
        actions: EventActions,
        request: LlmRequest,
    ) -> Iterator[Event]:
        """The events of one message; actions go with the last."""
        is_piece = bool(reply.partial)
        if reply.input_transcription is not None:
            yield self._user_transcript(reply.input_transcription, is_piece=is_piece)
        if reply.output_transcription is not None:
            yield self._agent_transcript(reply.output_transcription, is_piece=is_piece)

        if reply.interrupted or reply.turn_complete:
            yield from self.cut_off(interrupted=reply.interrupted)

        event = self._event(self._agent, self._id_of(reply))
        for name in ("content", "partial", *_OTHER_FIELDS):
            setattr(event, name, getattr(reply, name))

        event.actions = actions
        if event.content is not None and event.content.role is None:
            event.content = Content(role="model", parts=event.content.parts)

        if not event.partial:
            name_calls(event, request)
            name_model(event, request)

        has_other_fields = any(getattr(reply, name) for name in _OTHER_FIELDS)
        if event.content is not None or actions != EventActions() or has_other_fields:
            yield event

    def cut_off(self, *, interrupted: bool | None) -> Iterator[Event]:
        """Yields a whole event for each message of which only pieces have arrived."""
        if self._heard:
            yield self._user_transcript(Transcription(text=self._heard.text()), is_piece=False)
        if self._spoken:
            yield self._agent_transcript(Transcription(text=self._spoken.text()), is_piece=False)

        if self._text:
            event = self._event(self._agent, self._text.id)
            event.content = Content(role="model", parts=[Part(text=self._text.text())])
            event.interrupted = interrupted
            self._text = _Pieces()
            yield event

    def _user_transcript(self, piece: Transcription, *, is_piece: bool) -> Event:
        event = self._event("user", self._heard.id)
        event.partial = is_piece
        event.input_transcription = _add(self._heard, piece, is_piece=is_piece)
        if not is_piece:
            self._heard = _Pieces()
        return event

    def _agent_transcript(self, piece: Transcription, *, is_piece: bool) -> Event:
        event = self._event(self._agent, self._spoken.id)
        event.partial = is_piece
        event.output_transcription = _add(self._spoken, piece, is_piece=is_piece)
        if not is_piece:
            self._spoken = _Pieces()
        return event

    def _id_of(self, reply: LlmResponse) -> str:
        text = reply.content.text() if reply.content is not None else ""
        if not text:
            return new_event_id()

        if reply.partial:
            self._text.pieces.append(text)
            return self._text.id

        text_reply = self._text
        self._text = _Pieces()

        return text_reply.id

    def _event(self, author: str, event_id: str) -> Event:
        return Event(
            id=event_id,
            invocation_id=self._ctx.invocation_id,
            author=author,
            branch=self._ctx.branch,
        )


def _add(spoken: _Pieces, piece: Transcription, *, is_piece: bool) -> Transcription:
    """The transcript to show: the piece, or the whole, which may come without its text."""
    text = piece.text or ""
    if is_piece:
        spoken.pieces.append(text)
    else:
        text = text or spoken.text()
    return Transcription(text=text, finished=not is_piece, language_code=piece.language_code)
