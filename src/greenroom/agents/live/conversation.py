"""The live road of an LLM agent: what the client says goes to the model, what the model says becomes events.

Source: ADK's live flow. A connection that is lost is opened again, and nobody notices: with the vendor's resumption
handle if there is one, else with the history from the log.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, cast

from greenroom.agents.agent import BaseAgent
from greenroom.agents.callbacks import is_anyone_listening
from greenroom.agents.closing import closing
from greenroom.agents.live.before_model import BeforeModel
from greenroom.agents.live.client_input import ClientInput
from greenroom.agents.live.link import Link, Opened
from greenroom.agents.live.model_spans import ModelSpans, is_words
from greenroom.agents.live.outbox import Outbox
from greenroom.agents.live.replies import Replies
from greenroom.agents.live.request import build_live_request
from greenroom.agents.live.saved_audio import SavedAudio
from greenroom.agents.live.tool_calls import ToolCalls
from greenroom.agents.turn.call_model import after_model, answer_to
from greenroom.agents.turn.structured_output import save_output
from greenroom.errors import AgentConfigError, ModelError
from greenroom.invocation.context import InvocationContext
from greenroom.invocation.user_context import CallbackContext
from greenroom.models.model import BaseLlm
from greenroom.records.content import Blob, Content, Part
from greenroom.records.event import Event
from greenroom.records.identifiers import new_event_id
from greenroom.records.model_exchange import LlmResponse
from greenroom.telemetry.model_call import sent_history_span

if TYPE_CHECKING:
    from greenroom.agents.llm_agent import LlmAgent

_log = logging.getLogger("greenroom.live")

MAX_RECONNECTS = 5
"""So often in a row a lost connection is opened again, as long as the model says nothing."""

FIRST_PAUSE_SECONDS = 0.1
"""Before the second attempt; doubled before each further one."""

GRACE_SECONDS = 1.0
"""How long an agent may go on speaking after it said that it is done."""


async def converse(agent: LlmAgent, ctx: InvocationContext) -> AsyncIterator[Event]:
    """The agent's events until the client hangs up, the model ends it, or another agent takes over; then that one's."""
    conversation = Conversation(agent, ctx)
    task = asyncio.create_task(conversation.hold())
    task.add_done_callback(lambda _: conversation.outbox.end())
    try:
        async with closing(conversation.outbox.events()) as events:
            async for event in events:
                save_output(agent, event)
                yield event
        await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    if conversation.successor is not None:
        async with closing(conversation.successor.run_live(ctx)) as events:
            async for event in events:
                yield event


class Conversation:
    """What the halves of a conversation share: the connection, the events on their way, and its end.

    reading: held while the log is made the history of a connection, and while something is in the log that callbacks
    have not seen yet.
    """

    def __init__(self, agent: LlmAgent, ctx: InvocationContext) -> None:
        self.agent = agent
        self.ctx = ctx
        self.outbox = Outbox()
        ctx.send = self.outbox.put
        self.link = Link()
        self.successor: BaseAgent | None = None
        self.heard = SavedAudio(ctx, "user", "input_audio")
        self.calls = ToolCalls(self)
        self.reading = asyncio.Lock()
        self._said = SavedAudio(ctx, agent.name, "output_audio")
        self.model: BaseLlm = agent.canonical_model
        self.replies = Replies(ctx, agent.name)
        self.before_model = BeforeModel(self)
        self._spans = ModelSpans(ctx.span, agent_name=agent.name, model=self.model.model)
        self._over = asyncio.Event()
        self._is_leaving = False
        self._handle: str | None = (ctx.run_config.session_resumption or {}).get("handle")
        self._must_move = False
        self._has_heard = False
        self._is_in_turn = False

    async def hold(self) -> None:
        """From the first connection to the end. Raises what failed it."""
        try:
            async with asyncio.TaskGroup() as group:
                self.calls.spawn = group.create_task
                talking = group.create_task(self._keep_connected())
                listening = group.create_task(ClientInput(self).pass_on())
                end = group.create_task(self._over.wait())
                await asyncio.wait((talking, end), return_when=asyncio.FIRST_COMPLETED)
                listening.cancel()
                self.link.end()
                await self.calls.settle()
                for task in (talking, end):
                    task.cancel()
        except BaseExceptionGroup as group:
            await self._save(self.heard, self._said)
            error = _innermost(group)
            if isinstance(error, Exception):
                self._spans.lose(error)
            raise error from None
        await self._save(self.heard, self._said)

    async def show(self, event: Event | None) -> None:
        """Returns when the event is stored."""
        if event is not None:
            await self.outbox.put(event)

    def finish(self) -> None:
        """Hang up."""
        self._over.set()

    def leave(self) -> None:
        """Hang up when this turn is over, or soon."""
        if not self._is_leaving:
            self._is_leaving = True
            asyncio.get_running_loop().call_later(GRACE_SECONDS, self.finish)

    # the model's side

    async def _keep_connected(self) -> None:
        lost_in_a_row = 0
        while True:
            self._has_heard = False
            try:
                await self._connect()
                lost = self.link.shut()
            except ModelError as error:
                lost = error
                self.link.shut()
            for event in self.replies.cut_off(interrupted=True):
                await self.show(event)
            self._is_in_turn = False
            if lost is not None:
                self._spans.lose(lost)
            if self._over.is_set():
                return
            if lost is not None and not lost.retryable:
                await self._fail(lost)
                return
            if lost is None and self._handle is None and not self._must_move:
                return
            self._must_move = False
            lost_in_a_row = 1 if self._has_heard else lost_in_a_row + 1
            if lost_in_a_row > MAX_RECONNECTS:
                await self._fail(lost or ModelError("The model hangs up again and again", model=self.model.model))
                return
            _log.info("run %s: connecting to %s again", self.ctx.invocation_id, self.model.model)
            if lost_in_a_row > 1:
                await asyncio.sleep(FIRST_PAUSE_SECONDS * 2 ** (lost_in_a_row - 2))

    async def _connect(self) -> None:
        """One connection from its beginning to its end."""
        handle = self._handle
        async with self.reading:
            self.link.readings += 1
            reading = self.link.readings
            request = await self.before_model.let_in(handle)
        if request is None:
            self.finish()
            return
        self.ctx.llm_calls.add()
        try:
            connecting = self.model.connect(request)
        except NotImplementedError as error:
            raise AgentConfigError(f"Agent {self.agent.name!r} can't run live: {error}") from None
        async with connecting as connection:
            if handle is None and request.contents:
                with sent_history_span(self.ctx.span, request.contents, event_id=new_event_id()):
                    await connection.send_history(request.contents)
                self.link.sent_at = time.time_ns()
            opened = Opened(connection, request, reading if handle is None else None)
            self.link.open(opened)
            async with closing(connection.receive()) as replies:
                async for reply in replies:
                    self._has_heard = True
                    await self._take(reply, opened)
                    if self._must_move and not self._is_in_turn and not self.calls.are_at_work:
                        return

    async def _take(self, reply: LlmResponse, opened: Opened) -> None:
        self._note(reply)
        callback_context = CallbackContext(self.ctx)
        if is_words(reply) and is_anyone_listening(
            self.ctx.plugins, "after_model_callback", self.agent.after_model_callback
        ):
            reply = await after_model(self.agent, self.ctx, callback_context, reply)
        events = list(self.replies.to_events(reply, callback_context.settle(), opened.request))
        self._spans.note(reply, events, opened.request, sent_at=self.link.sent_at)
        for event in events:
            for part in (event.content.parts if event.content is not None else None) or ():
                if part.inline_data is not None:
                    await self.show(await self._said.add(part.inline_data))
            await self.show(event)
            calls = event.get_function_calls() if not event.partial else []
            if calls:
                self.calls.start(calls, opened.request.tools_dict)
            heard = event.input_transcription
            if heard is not None and heard.finished and heard.text:
                await self.before_model.guard(Content(role="user", parts=[Part(text=heard.text)]))
        if reply.interrupted:
            await self._save(self._said)
        if reply.turn_complete:
            await self._save(self.heard, self._said)
            if self._is_leaving:
                self.finish()

    def _note(self, reply: LlmResponse) -> None:
        update = reply.live_session_resumption_update or {}
        if update.get("newHandle") and update.get("resumable") is not False:
            self._handle = update["newHandle"]
        if reply.go_away is not None:
            self._must_move = True
        if reply.turn_complete or reply.interrupted:
            self._is_in_turn = False
        elif reply.content is not None or reply.output_transcription is not None:
            self._is_in_turn = True

    async def _fail(self, error: ModelError) -> None:
        """Raise the error, unless a callback has something to say in its place."""
        callback_context = CallbackContext(self.ctx)
        request = await build_live_request(self.agent, self.ctx, self.model, handle=None)
        self._spans.fail(error, request)
        answer = await answer_to(error, self.agent, self.ctx, callback_context, request)
        for event in self.replies.to_events(answer, callback_context.settle(), request):
            await self.show(event)

    async def _save(self, *sides: SavedAudio) -> None:
        for side in sides:
            await self.show(await side.save())

    async def save_heard(self, blob: Blob) -> None:
        await self.show(await self.heard.add(blob))


def _innermost(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return (
        _innermost(cast("BaseExceptionGroup[BaseException]", first)) if isinstance(first, BaseExceptionGroup) else first
    )
