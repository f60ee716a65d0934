"""Before-model callbacks of a live conversation: plugins see each connection, and all see what the user says."""

from __future__ import annotations

import copy

import msgspec

from greenroom.agents.callbacks import first_answer, is_anyone_listening
from greenroom.agents.live.conversation import Conversation
from greenroom.agents.live.request import build_live_request, take_over_config
from greenroom.invocation.user_context import CallbackContext
from greenroom.records.content import Content
from greenroom.records.event import Event, EventActions
from greenroom.records.model_exchange import LlmRequest, LlmResponse

_HOOK = "before_model_callback"


class BeforeModel:
    def __init__(self, talk: Conversation) -> None:
        self._talk = talk

    async def let_in(self, handle: str | None) -> LlmRequest | None:
        """What to connect with, as plugins left it. None when one refused; what it said instead has been shown."""
        request = await self._request(handle)
        callback_context = CallbackContext(self._talk.ctx)
        answer = await self._ask_plugins(callback_context, request)
        if answer is not None and request.contents and request.contents[-1].role == "model":
            # It may mean the user's last words, which have had their answer: does it mean the connection, too?
            request = await self._request(handle)
            history, request.contents = request.contents, []
            answer = await self._ask_plugins(callback_context, request)
            request.contents = history
        await self._show(answer, callback_context, request)
        take_over_config(request)
        return request if answer is None else None

    async def guard(self, content: Content) -> bool:
        """Show what the user said; whether a callback has answered it in the model's place."""
        agent, ctx = self._talk.agent, self._talk.ctx
        if not is_anyone_listening(ctx.plugins, _HOOK, agent.before_model_callback):
            return False
        opened = self._talk.link.newest
        request = opened.request if opened is not None else await self._request(handle=None)
        callback_context = CallbackContext(ctx)
        asked = msgspec.structs.replace(request, contents=[content], config=copy.copy(request.config))
        with asked.own_contents():
            answer: LlmResponse | None = await first_answer(
                ctx.plugins,
                _HOOK,
                agent.before_model_callback,
                callback_context=callback_context,
                llm_request=asked,
            )
        await self._show(answer, callback_context, request)
        return answer is not None

    async def _request(self, handle: str | None) -> LlmRequest:
        talk = self._talk
        return await build_live_request(talk.agent, talk.ctx, talk.model, handle=handle)

    async def _ask_plugins(self, callback_context: CallbackContext, request: LlmRequest) -> LlmResponse | None:
        with request.own_contents():
            return await self._talk.ctx.plugins.first_result(
                _HOOK, callback_context=callback_context, llm_request=request
            )

    async def _show(self, answer: LlmResponse | None, callback_context: CallbackContext, request: LlmRequest) -> None:
        """An answer, or only what callbacks did to the state."""
        talk, actions = self._talk, callback_context.settle()
        if answer is not None:
            for event in talk.replies.to_events(answer, actions, request):
                await talk.show(event)
        elif actions != EventActions():
            ctx = talk.ctx
            event = Event(invocation_id=ctx.invocation_id, author=talk.agent.name, branch=ctx.branch, actions=actions)
            await talk.show(event)
