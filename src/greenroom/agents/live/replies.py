"""From what a connection says to events: one per message, and transcripts and text kept whole when they are cut off."""

from __future__ import annotations

from collections.abc import Iterator

from greenroom.agents.turn.call_model import name_calls
from greenroom.invocation.context import InvocationContext
from greenroom.records.content import Content, Part, Transcription
from greenroom.records.event import Event, EventActions
from greenroom.records.identifiers import new_event_id
from greenroom.records.model_exchange import LlmRequest, LlmResponse

_OWN_EVENTS = ("input_transcription", "output_transcription")
_REST = tuple(name for name in LlmResponse.__struct_fields__ if name not in _OWN_EVENTS)
_TOLD = tuple(name for name in _REST if name not in ("content", "partial"))


class Replies:
    """Pieces of a text, or of a transcript, share the id of the event with the whole."""

    def __init__(self, ctx: InvocationContext, agent: str) -> None:
        self._ctx = ctx
        self._agent = agent
        self._heard = _Pieces()
        self._spoken = _Pieces()
        self._text = _Pieces()

    def to_events(self, reply: LlmResponse, actions: EventActions, request: LlmRequest) -> Iterator[Event]:
        """The events of one message; actions go with the last."""
        if reply.input_transcription is not None:
            yield self._transcript("user", self._heard, reply.input_transcription, is_piece=bool(reply.partial))
        if reply.output_transcription is not None:
            yield self._transcript(self._agent, self._spoken, reply.output_transcription, is_piece=bool(reply.partial))
        ends_turn = bool(reply.interrupted or reply.turn_complete)
        if ends_turn:
            yield from self.cut_off(interrupted=reply.interrupted)
        event = self._event(self._agent, self._id_of(reply))
        for name in _REST:
            setattr(event, name, getattr(reply, name))
        event.actions = actions
        if event.content is not None and event.content.role is None:
            event.content = Content(role="model", parts=event.content.parts)
        if not event.partial:
            name_calls(event, request)
        if event.content is not None or actions != EventActions() or any(getattr(reply, n) for n in _TOLD):
            yield event

    def cut_off(self, *, interrupted: bool | None) -> Iterator[Event]:
        """What was said only in pieces, as whole events."""
        for author, said in (("user", self._heard), (self._agent, self._spoken)):
            if said.pieces:
                yield self._transcript(author, said, Transcription(text="".join(said.pieces)), is_piece=False)
        if self._text.pieces:
            event = self._event(self._agent, self._text.id)
            event.content = Content(role="model", parts=[Part(text="".join(self._text.pieces))])
            event.interrupted = interrupted
            self._text = _Pieces()
            yield event

    def _transcript(self, author: str, said: _Pieces, piece: Transcription, *, is_piece: bool) -> Event:
        event = self._event(author, said.id)
        event.partial = is_piece
        text = piece.text or ""
        if is_piece:
            said.pieces.append(text)
        else:
            text = text or "".join(said.pieces)
            said.__init__()
        transcription = Transcription(text=text, finished=not is_piece, language_code=piece.language_code)
        if author == "user":
            event.input_transcription = transcription
        else:
            event.output_transcription = transcription
        return event

    def _id_of(self, reply: LlmResponse) -> str:
        text = reply.content.text() if reply.content is not None else ""
        if not text:
            return new_event_id()
        if reply.partial:
            self._text.pieces.append(text)
            return self._text.id
        whole, self._text = self._text, _Pieces()
        return whole.id

    def _event(self, author: str, event_id: str) -> Event:
        return Event(id=event_id, invocation_id=self._ctx.invocation_id, author=author, branch=self._ctx.branch)


class _Pieces:
    __slots__ = ("id", "pieces")

    def __init__(self) -> None:
        self.id = new_event_id()
        self.pieces: list[str] = []
