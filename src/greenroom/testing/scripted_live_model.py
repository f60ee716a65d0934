"""A model that speaks from a script in live connections: audio, transcripts, tool calls,
interruptions and drops.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from greenroom.errors import ModelError
from greenroom.models.model import BaseLlmConnection, RealtimeInput
from greenroom.records.content import ActivityEnd, Blob, Content, FunctionCall, Part, Transcription
from greenroom.records.model_exchange import AudioStreamEnd, LlmRequest, LlmResponse
from greenroom.testing.scripted_model import Script, ScriptedModel, words

AUDIO = "audio/pcm;rate=24000"
CHUNK = b"\x01\x00" * 240
"""Ten milliseconds of sound."""


@dataclass(frozen=True)
class Says:
    """Speaks: for each word a chunk of audio and a piece of the transcript, then the whole transcript."""

    text: str


@dataclass(frozen=True)
class Hears:
    """Transcript of the user's speech: word by word, then whole."""

    text: str


@dataclass(frozen=True)
class Listens:
    """Waits until `messages` more messages have arrived after the message that this turn answers."""

    messages: int = 1


@dataclass(frozen=True)
class Drops:
    """The connection is lost. The rest of the turn follows on the next one."""


@dataclass(frozen=True)
class HangsUp:
    """The model's service closes the connection normally."""


INTERRUPTED = LlmResponse(interrupted=True)
TURN_COMPLETE = LlmResponse(turn_complete=True)

LiveItem: TypeAlias = str | Says | Hears | Listens | Drops | HangsUp | FunctionCall | LlmResponse | Exception
Heard: TypeAlias = Content | RealtimeInput
LiveTurn: TypeAlias = LiveItem | Sequence[LiveItem] | Callable[[Heard], LiveItem | Sequence[LiveItem]]


class ScriptedLiveModel(ScriptedModel):
    """Answers each message that ends a user's turn with the script's next turn, over all its connections.

    script: the turns in order, or a function that answers each. A turn is one or several items; text is sent in pieces
        and then whole. A turn is completed automatically, unless it ends with a call, a drop or a response that
        completes it. A user's turn ends with a content that isn't partial, the end of speech, the end of an audio
        stream, or a history whose last word is the user's.
    text_script: for requests that aren't live.
    connections: all that were opened, with the messages received.
    """

    def __init__(
        self,
        script: Sequence[LiveTurn] | Callable[[Heard], LiveItem | Sequence[LiveItem]],
        *,
        model: str = "scripted-live",
        text_script: Script = (),
    ) -> None:
        super().__init__(text_script, model=model)
        self._answer = script if callable(script) else None
        self._turns = deque[LiveTurn](() if callable(script) else script)
        self._unsaid = deque[LiveItem]()
        self.connections: list[ScriptedConnection] = []

    @contextlib.asynccontextmanager
    async def connect(self, llm_request: LlmRequest) -> AsyncGenerator[ScriptedConnection]:
        connection = ScriptedConnection(self, llm_request)
        self.connections.append(connection)
        try:
            yield connection
        finally:
            await connection.close()

    async def next_item(self, connection: ScriptedConnection) -> LiveItem | None:
        """None when the connection was closed meanwhile."""
        while not self._unsaid:
            heard = await connection.next_turn()
            if heard is None:
                return None

            turn = self._answer or (self._turns.popleft() if self._turns else None)
            if turn is None:
                raise ModelError(f"The live script has no turn for {heard!r}", model=self.model)

            reply = turn(heard) if callable(turn) else turn
            items: list[LiveItem]
            if isinstance(reply, LiveItem):
                items = [reply]
            else:
                items = list(reply)

            if items and not _ends(items[-1]):
                items.append(TURN_COMPLETE)

            self._unsaid.extend(items)

        return self._unsaid.popleft()


class ScriptedConnection(BaseLlmConnection):
    """A live connection that answers from a script.

    request: of the opening.
    history: as sent; None when none was.
    received: all input since, in order.
    """

    def __init__(self, model: ScriptedLiveModel, request: LlmRequest) -> None:
        self.request = request
        self.history: list[Content] | None = None
        self.received: list[Heard] = []
        self.is_closed = False
        self._model = model
        self._turns: asyncio.Queue[tuple[Heard, int] | None] = asyncio.Queue()
        self._noticed = 0
        self._came_in = asyncio.Event()
        self._is_lost = False

    async def send_history(self, history: Sequence[Content]) -> None:
        self.history = list(history)
        if history and history[-1].role == "user":
            self._turns.put_nowait((history[-1], 0))

    async def send_content(self, content: Content) -> None:
        self._take_in(content, ends_turn=True)

    async def send_partial_content(self, content: Content) -> bool:
        self._take_in(content, ends_turn=False)
        return True

    async def send_realtime(self, data: RealtimeInput) -> None:
        self._take_in(data, ends_turn=isinstance(data, (ActivityEnd, AudioStreamEnd)))

    async def close(self) -> None:
        self.is_closed = True
        self._turns.put_nowait(None)
        self._came_in.set()

    async def receive(self) -> AsyncIterator[LlmResponse]:
        while (item := await self._model.next_item(self)) is not None:
            if isinstance(item, HangsUp):
                return
            if isinstance(item, Drops):
                raise self._lost()
            if isinstance(item, Exception):
                raise item

            if isinstance(item, Listens):
                await self._listen(item.messages)
                if self.is_closed:
                    return
            else:
                for response in _responses(item):
                    yield response
                    await asyncio.sleep(0)

    async def next_turn(self) -> Heard | None:
        turn = await self._turns.get()
        if turn is None:
            return None
        heard, self._noticed = turn
        return heard

    def drop(self) -> None:
        """Drops the connection without notice: the next send fails."""
        self._is_lost = True

    def audio(self) -> bytes:
        """The audio received so far."""
        return b"".join(data.data or b"" for data in self.received if isinstance(data, Blob))

    def _take_in(self, data: Heard, *, ends_turn: bool) -> None:
        if self._is_lost or self.is_closed:
            raise self._lost()
        self.received.append(data)
        self._came_in.set()
        if ends_turn:
            self._turns.put_nowait((data, len(self.received)))

    async def _listen(self, messages: int) -> None:
        self._noticed += messages
        while len(self.received) < self._noticed and not self.is_closed:
            self._came_in.clear()
            await self._came_in.wait()

    def _lost(self) -> ModelError:
        self._is_lost = True
        return ModelError("The connection was lost", model=self._model.model, retryable=True)


def _ends(item: LiveItem) -> bool:
    """Whether a turn needs no end after this item."""
    if isinstance(item, LlmResponse):
        return bool(item.turn_complete or item.interrupted)
    return isinstance(item, (FunctionCall, Drops, HangsUp, Exception))


def _responses(item: str | Says | Hears | FunctionCall | LlmResponse) -> Iterable[LlmResponse]:
    if isinstance(item, LlmResponse):
        yield msgspec.structs.replace(item)
    elif isinstance(item, FunctionCall):
        # A new call each time: the framework gives ids to the calls of a response.
        yield LlmResponse(content=_content(Part(function_call=msgspec.structs.replace(item))))
    elif isinstance(item, str):
        for word in words(item):
            yield LlmResponse(content=_content(Part(text=word)), partial=True)
        yield LlmResponse(content=_content(Part(text=item)))
    elif isinstance(item, Hears):
        for word in words(item.text):
            yield LlmResponse(
                input_transcription=Transcription(text=word, finished=False),
                partial=True,
            )
        yield LlmResponse(input_transcription=Transcription(text=item.text, finished=True))
    else:
        for word in words(item.text):
            yield LlmResponse(content=_content(Part(inline_data=Blob(data=CHUNK, mime_type=AUDIO))))
            yield LlmResponse(
                output_transcription=Transcription(text=word, finished=False),
                partial=True,
            )
        yield LlmResponse(output_transcription=Transcription(text=item.text, finished=True))


def _content(part: Part) -> Content:
    return Content(role="model", parts=[part])
