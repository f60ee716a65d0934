"""State that the tasks of a live conversation share: connection, channel to the log, replies, audio
and callbacks.
"""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Iterator

import msgspec

from greenroom.agents.agent import BaseAgent
from greenroom.agents.base_llm_agent import BaseLlmAgent
from greenroom.agents.callbacks import has_callbacks
from greenroom.agents.events import EventChannel
from greenroom.agents.live.connection import ReconnectingConnection, build_live_request, take_over_config
from greenroom.agents.turn.model_call import BEFORE_MODEL, before_model, name_calls, name_model
from greenroom.agents.turn.prompt import SAVED_LIVE_AUDIO
from greenroom.errors import AgentConfigError
from greenroom.invocation.context import InvocationContext
from greenroom.invocation.user_context import CallbackContext
from greenroom.models.model import BaseLlm
from greenroom.records.content import Blob, Content, FileData, Part, Transcription
from greenroom.records.event import Event, EventActions
from greenroom.records.identifiers import new_event_id
from greenroom.records.model_exchange import LlmRequest, LlmResponse

MAX_BYTES = 8 * 1024 * 1024
"""A piece of a conversation that grows beyond this is saved as it is, and the next one begun: about
four minutes.
"""


class SavedAudio:
    """One direction of a conversation. author: who speaks."""

    def __init__(self, ctx: InvocationContext, author: str, direction: str) -> None:
        self._ctx = ctx
        self._author = author
        self._direction = direction
        self._chunks: list[bytes] = []
        self._bytes = 0
        self._mime_type = ""
        self._began_at = 0  # in milliseconds

    async def add(self, blob: Blob) -> Event | None:
        """Returns the event of a piece that was saved because the next one begins with this blob."""
        mime_type = blob.mime_type or ""
        if not self._ctx.run_config.save_live_blob or not blob.data or not mime_type.startswith("audio/"):
            return None

        if self._bytes >= MAX_BYTES or mime_type != self._mime_type:
            saved = await self.save()
        else:
            saved = None

        if not self._chunks:
            self._mime_type = mime_type
            self._began_at = max(time.time_ns() // 1_000_000, self._began_at + 1)  # no two pieces share a name

        self._chunks.append(blob.data)
        self._bytes += len(blob.data)

        return saved

    async def save(self) -> Event | None:
        """Save what was said since the last time; None when that is nothing."""
        if not self._chunks:
            return None

        ctx = self._ctx

        artifacts = self._ctx.artifact_service
        if artifacts is None:
            raise AgentConfigError("Live audio is to be saved, but the runner has no artifact service")

        blob = Blob(data=b"".join(self._chunks), mime_type=self._mime_type)
        kind = self._mime_type.partition("/")[2].partition(";")[0]
        name = f"adk_live_audio_storage_{self._direction}_{self._began_at}.{kind}"
        self._chunks.clear()
        self._bytes = 0
        artifact = Part(inline_data=blob)
        version = await artifacts.save_artifact(
            **ctx.session.key._asdict(),
            filename=name,
            artifact=artifact,
        )
        uri = f"artifact://{ctx.app_name}/{ctx.user_id}/{ctx.session.id}{SAVED_LIVE_AUDIO}{name}#{version}"
        file = Part(file_data=FileData(file_uri=uri, mime_type=self._mime_type))
        content = Content(role="user" if self._author == "user" else "model", parts=[file])

        return ctx.new_event(
            self._author,
            content=content,
            actions=EventActions(artifact_delta={name: version}),
        )


_APART = ("content", "partial", "input_transcription", "output_transcription")
_REST = tuple(name for name in LlmResponse.__struct_fields__ if name not in _APART)


class Replies:
    """Pieces of a text, or of a transcript, share the id of the event with the whole."""

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
        if reply.input_transcription is not None:
            yield self._transcript(
                "user",
                self._heard,
                reply.input_transcription,
                is_piece=bool(reply.partial),
            )

        if reply.output_transcription is not None:
            yield self._transcript(
                self._agent,
                self._spoken,
                reply.output_transcription,
                is_piece=bool(reply.partial),
            )

        ends_turn = bool(reply.interrupted or reply.turn_complete)
        if ends_turn:
            yield from self.cut_off(interrupted=reply.interrupted)

        event = self._event(self._agent, self._id_of(reply))
        for name in ("content", "partial", *_REST):
            setattr(event, name, getattr(reply, name))

        event.actions = actions
        if event.content is not None and event.content.role is None:
            event.content = Content(role="model", parts=event.content.parts)

        if not event.partial:
            name_calls(event, request)
            name_model(event, request)

        if event.content is not None or actions != EventActions() or any(getattr(reply, n) for n in _REST):
            yield event

    def cut_off(self, *, interrupted: bool | None) -> Iterator[Event]:
        """Yields a whole event for each message of which only pieces have arrived."""
        for author, said in (("user", self._heard), (self._agent, self._spoken)):
            if said.pieces:
                yield self._transcript(
                    author,
                    said,
                    Transcription(text="".join(said.pieces)),
                    is_piece=False,
                )

        if self._text.pieces:
            event = self._event(self._agent, self._text.id)
            event.content = Content(role="model", parts=[Part(text="".join(self._text.pieces))])
            event.interrupted = interrupted
            self._text = _Pieces()
            yield event

    def _transcript(
        self,
        author: str,
        said: _Pieces,
        piece: Transcription,
        *,
        is_piece: bool,
    ) -> Event:
        event = self._event(author, said.id)
        event.partial = is_piece

        text = piece.text or ""
        if is_piece:
            said.pieces.append(text)
        else:
            text = text or "".join(said.pieces)
            said.__init__()

        transcription = Transcription(
            text=text,
            finished=not is_piece,
            language_code=piece.language_code,
        )
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

        whole = self._text
        self._text = _Pieces()

        return whole.id

    def _event(self, author: str, event_id: str) -> Event:
        return Event(
            id=event_id,
            invocation_id=self._ctx.invocation_id,
            author=author,
            branch=self._ctx.branch,
        )


class _Pieces:
    __slots__ = ("id", "pieces")

    def __init__(self) -> None:
        self.id = new_event_id()
        self.pieces: list[str] = []


GRACE_SECONDS = 1.0
"""Time in which an agent may finish speaking after it said that it is done."""


class Conversation:
    """The state that all tasks of a live conversation share.

    reading: held while the log is made the history of a connection, and while something is in the
        log that callbacks have not seen yet.
    successor: the agent that continues when this one's conversation is over.
    """

    def __init__(self, agent: BaseLlmAgent, ctx: InvocationContext) -> None:
        self.agent = agent
        self.ctx = ctx
        self.model: BaseLlm = agent.model_in(ctx)
        self.channel = EventChannel()
        ctx.send = self.channel.send
        self.connection = ReconnectingConnection((ctx.run_config.session_resumption or {}).get("handle"))
        self.replies = Replies(ctx, agent.name)
        self.heard = SavedAudio(ctx, "user", "input_audio")
        self.said = SavedAudio(ctx, agent.name, "output_audio")
        self.reading = asyncio.Lock()
        self.successor: BaseAgent | None = None
        self.over = asyncio.Event()
        self.is_finishing = False

    async def show(self, *events: Event | None) -> None:
        """Returns when the events are stored."""
        for event in events:
            if event is not None:
                await self.channel.send(event)

    async def show_answer(
        self, answer: LlmResponse | None, callback_context: CallbackContext, request: LlmRequest
    ) -> None:
        """Shows the callbacks' response in place of the model's, or only their changes of the state."""
        actions = callback_context.collect_actions()
        if answer is not None:
            await self.show(*self.replies.to_events(answer, actions, request))
        elif actions != EventActions():
            await self.show(self.ctx.new_event(actions=actions))

    async def save(self, *sides: SavedAudio) -> None:
        for side in sides:
            await self.show(await side.save())

    def finish_soon(self) -> None:
        """End the conversation when this turn is over, or soon."""
        if not self.is_finishing:
            self.is_finishing = True
            asyncio.get_running_loop().call_later(GRACE_SECONDS, self.over.set)

    async def request(self, handle: str | None = None) -> LlmRequest:
        return await build_live_request(self.agent, self.ctx, self.model, handle=handle)

    async def request_to_connect(self, handle: str | None) -> LlmRequest | None:
        """Returns the request to connect with, as plugins left it. None when one refused; its
        answer has been shown.
        """
        request = await self.request(handle)
        callback_context = CallbackContext(self.ctx)
        answer = await self._ask_plugins(callback_context, request)
        if answer is not None and request.contents and request.contents[-1].role == "model":
            # It may mean the user's last words, which have had their answer: does it mean the connection, too?
            request = await self.request(handle)
            history = request.contents
            request.contents = []
            answer = await self._ask_plugins(callback_context, request)
            request.contents = history

        await self.show_answer(answer, callback_context, request)
        take_over_config(request)

        return request if answer is None else None

    async def _ask_plugins(
        self,
        callback_context: CallbackContext,
        request: LlmRequest,
    ) -> LlmResponse | None:
        with request.own_contents():
            return await self.ctx.plugins.first_result(
                BEFORE_MODEL, callback_context=callback_context, llm_request=request
            )

    async def answer_user(self, content: Content) -> bool:
        """Show what the user said; whether a callback has answered it instead of the model."""
        if not has_callbacks(self.agent, self.ctx, BEFORE_MODEL):
            return False

        opened = self.connection.newest
        if opened is not None:
            request = opened.request
        else:
            request = await self.request()

        callback_context = CallbackContext(self.ctx)
        asked = msgspec.structs.replace(
            request,
            contents=[content],
            config=copy.copy(request.config),
        )
        answer = await before_model(self.agent, self.ctx, callback_context, asked)
        await self.show_answer(answer, callback_context, request)

        return answer is not None
