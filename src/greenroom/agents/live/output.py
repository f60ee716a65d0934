"""The model's half of a live conversation: its successive connections, and its messages.

A lost connection is opened again without the client noticing: with the vendor's resumption handle if there is one, else
with the history from the log.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import cast

from greenroom.agents.callbacks import has_callbacks
from greenroom.agents.live.connection import OpenConnection
from greenroom.agents.live.conversation import LiveConversation
from greenroom.agents.live.spans import ModelSpans, has_words
from greenroom.agents.live.tools import ToolCalls
from greenroom.agents.turn.model_call import AFTER_MODEL, after_model, answer_to
from greenroom.errors import AgentConfigError, ModelError
from greenroom.invocation.user_context import CallbackContext
from greenroom.records.content import Content, Part
from greenroom.records.event import Event
from greenroom.records.identifiers import new_event_id
from greenroom.records.model_exchange import LlmResponse
from greenroom.telemetry.agent_spans import sent_history_span

_log = logging.getLogger("greenroom.live")

MAX_RECONNECTS = 5
"""Reconnections in a row without a reply of the model, before the run fails."""

FIRST_PAUSE_SECONDS = 0.1
"""Before the second attempt; doubled before each further one."""


class ModelOutput:
    """Receives the model's output, over successive connections."""

    def __init__(self, conversation: LiveConversation, calls: ToolCalls, spans: ModelSpans) -> None:
        self._conversation = conversation
        self._calls = calls
        self._spans = spans
        self._has_handles = conversation.connection.handle is not None
        self._must_move = False
        self._has_heard = False
        self._is_in_turn = False
        self._unshown = deque[Event]()

    async def receive(self) -> None:
        """Receives until the conversation is over, or the model closes it. Raises errors that connecting
        again can't repair.
        """
        conversation = self._conversation
        lost_in_a_row = 0
        while True:
            self._has_heard = False

            try:
                await self._connect()
                lost = conversation.connection.mark_lost()
            except ModelError as error:
                lost = error
                conversation.connection.mark_lost()

            await conversation.show(*conversation.replies.cut_off(interrupted=True))
            self._is_in_turn = False
            if lost is not None:
                self._spans.lose(lost)

            if conversation.over.is_set():
                return

            if lost is not None and not lost.retryable:
                await self._fail(lost)
                return

            if lost is None and not self._has_handles and not self._must_move:
                return

            self._must_move = False

            lost_in_a_row = 1 if self._has_heard else lost_in_a_row + 1
            if lost_in_a_row > MAX_RECONNECTS:
                await self._fail(lost or ModelError("The model closes each connection", model=conversation.model.model))
                return

            _log.info(
                "run %s: connecting to %s again",
                conversation.ctx.invocation_id,
                conversation.model.model,
            )
            if lost_in_a_row > 1:
                await asyncio.sleep(FIRST_PAUSE_SECONDS * 2 ** (lost_in_a_row - 2))

    async def end(self) -> None:
        """Stores the model's unfinished replies, even if `receive` was cancelled; except for calls,
        which nobody would make any more.
        """
        unshown = [event for event in self._unshown if not event.get_function_calls()]
        await self._conversation.show(*unshown, *self._conversation.replies.cut_off(interrupted=True))

    async def _connect(self) -> None:
        """Runs one connection until it ends."""
        conversation = self._conversation
        handle = conversation.connection.handle
        async with conversation.reading:
            conversation.connection.readings += 1
            reading = conversation.connection.readings
            request = await conversation.request_to_connect(handle)

        if request is None:
            conversation.over.set()
            return

        conversation.ctx.llm_calls.add()

        try:
            connecting = conversation.model.connect(request)
        except NotImplementedError as error:
            raise AgentConfigError(f"Agent {conversation.agent.name!r} can't run live: {error}") from None

        async with connecting as connection:
            if handle is None and request.contents:
                with sent_history_span(conversation.ctx.span, request.contents, event_id=new_event_id()):
                    await connection.send_history(request.contents)
                conversation.connection.sent_at = time.time_ns()

            opened = OpenConnection(connection, request, reading if handle is None else None)
            await conversation.connection.open(opened)

            async with aclosing(cast("AsyncGenerator[LlmResponse]", connection.receive())) as replies:
                async for reply in replies:
                    self._has_heard = True
                    await self._process(reply, opened)
                    has_all = conversation.connection.handle is not None or not self._has_handles
                    if self._must_move and has_all and not self._is_in_turn and not self._calls.are_at_work:
                        return

    async def _process(self, reply: LlmResponse, opened: OpenConnection) -> None:
        conversation = self._conversation
        self._note(reply)
        callback_context = CallbackContext(conversation.ctx)
        if has_words(reply) and has_callbacks(conversation.agent, conversation.ctx, AFTER_MODEL):
            reply = await after_model(conversation.agent, conversation.ctx, callback_context, reply)

        events = list(conversation.replies.to_events(reply, callback_context.collect_actions(), opened.request))
        self._spans.note(reply, events, opened.request, sent_at=conversation.connection.sent_at)
        self._unshown.extend(events)

        while self._unshown:
            event = self._unshown[0]
            for part in (event.content.parts if event.content is not None else None) or ():
                if part.inline_data is not None:
                    await conversation.show(await conversation.agent_audio.add(part.inline_data))

            self._unshown.popleft()
            calls = [] if event.partial else event.get_function_calls()
            if calls:
                async with self._calls.storing:
                    await conversation.show(event)
                    self._calls.start(calls, opened)
            else:
                await conversation.show(event)

            heard = event.input_transcription
            if heard is not None and heard.finished and heard.text:
                await conversation.answer_user(Content(role="user", parts=[Part(text=heard.text)]))

        if reply.interrupted:
            await conversation.save(conversation.agent_audio)

        if reply.turn_complete:
            await conversation.save(conversation.user_audio, conversation.agent_audio)
            if conversation.is_finishing:
                conversation.over.set()

    def _note(self, reply: LlmResponse) -> None:
        connection = self._conversation.connection
        update = reply.live_session_resumption_update
        heard = reply.input_transcription
        says_something = reply.content is not None or reply.output_transcription is not None
        if (says_something and not self._is_in_turn) or (heard is not None and not reply.partial):
            connection.note_answer()

        if reply.turn_complete or reply.get_function_calls():
            connection.note_handle(None)  # until the next update

        if update is not None:
            if update.get("resumable") is not False:
                handle = update.get("newHandle")
            else:
                handle = None
            connection.note_handle(handle)
            self._has_handles = self._has_handles or handle is not None

        if reply.go_away is not None:
            self._must_move = True

        if reply.turn_complete or reply.interrupted:
            self._is_in_turn = False
        elif says_something:
            self._is_in_turn = True

    async def _fail(self, error: ModelError) -> None:
        """Raises the error, unless a callback answers instead."""
        conversation = self._conversation
        callback_context = CallbackContext(conversation.ctx)
        request = await conversation.request()
        self._spans.fail(error, request)
        answer = await answer_to(
            error,
            conversation.agent,
            conversation.ctx,
            callback_context,
            request,
        )
        await conversation.show_answer(answer, callback_context, request)
