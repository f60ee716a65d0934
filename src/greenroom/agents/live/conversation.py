"""State that the tasks of a live conversation share: connection, channel to the log and callbacks."""

from __future__ import annotations

import asyncio
import copy

import msgspec

from greenroom.agents.agent import BaseAgent
from greenroom.agents.base_llm_agent import BaseLlmAgent
from greenroom.agents.callbacks import has_callbacks
from greenroom.agents.events import EventChannel
from greenroom.agents.live.connection import ReconnectingConnection, build_live_request, take_over_config
from greenroom.agents.live.replies import LiveReplies
from greenroom.agents.live.saved_audio import SavedAudio
from greenroom.agents.turn.model_call import BEFORE_MODEL, before_model
from greenroom.invocation.context import InvocationContext
from greenroom.invocation.user_context import CallbackContext
from greenroom.models.model import BaseLlm
from greenroom.records.content import Content
from greenroom.records.event import Event, EventActions
from greenroom.records.model_exchange import LlmRequest, LlmResponse

GRACE_SECONDS = 1.0
"""Time in which an agent may finish speaking after it has reported that it is done."""


class LiveConversation:
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
        self.replies = LiveReplies(ctx, agent.name)
        self.user_audio = SavedAudio(ctx, "user", "input_audio")
        self.agent_audio = SavedAudio(ctx, agent.name, "output_audio")
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
        """Ends the conversation when this turn is over, or soon."""
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
        """Shows the user's message to the callbacks. Returns whether one has answered it in place
        of the model.
        """
        if not has_callbacks(self.agent, self.ctx, BEFORE_MODEL):
            return False

        opened = self.connection.newest
        if opened is not None:
            request = opened.request
        else:
            request = await self.request()

        callback_context = CallbackContext(self.ctx)
        llm_request = msgspec.structs.replace(
            request,
            contents=[content],
            config=copy.copy(request.config),
        )
        answer = await before_model(self.agent, self.ctx, callback_context, llm_request)
        await self.show_answer(answer, callback_context, request)

        return answer is not None
