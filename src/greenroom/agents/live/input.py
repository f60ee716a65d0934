"""The client's half of a live conversation: passes its queue to the model, and typed messages to the log."""

from __future__ import annotations

from greenroom.agents.human_input.answers import decided_calls, load_granted
from greenroom.agents.live.conversation import LiveConversation
from greenroom.agents.live.tools import ToolCalls
from greenroom.errors import ApprovalRefused, GreenroomError, NotApprover
from greenroom.log.state import log_state_of
from greenroom.models.model import BaseLlmConnection, RealtimeInput
from greenroom.records.approval_policy import policy_of
from greenroom.records.content import ActivityEnd, ActivityStart, Blob, Content, FunctionResponse, Part
from greenroom.records.event import Event, EventActions
from greenroom.records.human_requests import REQUESTS
from greenroom.records.model_exchange import AudioStreamEnd, LiveRequest


class ClientInput:
    """A request leaves the queue when the model, or the log, has it, so that the next agent
    continues after it.
    """

    def __init__(self, conversation: LiveConversation, calls: ToolCalls) -> None:
        queue = conversation.ctx.live_request_queue
        assert queue is not None
        self._queue = queue
        self._conversation = conversation
        self._calls = calls
        self._unfinished: list[Part] = []
        self._listener: BaseLlmConnection | None = None
        """The connection that has got all pieces of the unfinished turn."""

    async def forward(self) -> None:
        """Forwards until the client closes the queue. Tools that are at work may finish."""
        while True:
            request = await self._queue.peek()
            await self._send_steering()
            if request.close:
                await self._calls.settle()
                self._conversation.over.set()
                return

            self._calls.copy_input(request)

            signal = _signal(request)
            if signal is not None or request.content is None:
                await self._note(request.state_delta)
                request.state_delta = None
                if signal is not None:
                    if isinstance(signal, Blob):
                        await self._conversation.show(await self._conversation.user_audio.add(signal))
                    await self._conversation.connection.send_realtime(signal)
                self._queue.take()
            else:
                await self._send_typed(request, request.content)

    async def _send_typed(self, request: LiveRequest, content: Content) -> None:
        """Stores typed text and answers to calls before the model gets them."""
        parts = content.parts or []
        answers = [part.function_response for part in parts if part.function_response is not None]
        if request.partial and not answers:
            self._unfinished += parts
            await self._note(request.state_delta)
            request.state_delta = None
            begun = Content(role="user", parts=list(self._unfinished))
            await self._conversation.connection.send(lambda live: self._send_piece(live, content, begun))
            self._queue.take()
            return

        event = self._event(request.state_delta)
        message = Content(role="user", parts=[*self._unfinished, *parts])
        event.content = message
        if answers:
            try:
                self._check(message, answers)
                ctx = self._conversation.ctx
                # Few answers need it, and it loads all that exchanges logins.
                from greenroom.agents.human_input.credential_exchange import exchange_credentials

                event.content = await exchange_credentials(ctx.services.credentials, ctx.session, message)
            except GreenroomError as error:
                self._queue.take()
                await self._refuse(error)
                return

        complete = message if self._unfinished else content
        self._unfinished = []
        self._queue.take()

        async with self._conversation.reading:
            readings = self._conversation.connection.readings
            await self._conversation.show(event)
            is_answered = not answers and await self._conversation.answer_user(message)

        if any(answer.name in REQUESTS for answer in answers):
            await load_granted(self._conversation.ctx)
            at = self._index_of(event)
            self._calls.start(decided_calls(self._conversation.agent.name, self._conversation.ctx, at=at)[0])
        elif not is_answered:
            await self._conversation.connection.send(
                lambda live: self._send(live, content, complete),
                stored_at=readings,
            )

    async def _send_steering(self) -> None:
        """Stores the messages of other requests, and sends them to the model."""
        ctx = self._conversation.ctx
        steering = ctx.services.steering
        if steering is None or not steering.is_pending(ctx):
            return
        async with self._conversation.reading:
            readings = self._conversation.connection.readings
            messages = await steering.read(ctx)
            unanswered = [message for message in messages if not await self._conversation.answer_user(message)]
        for message in unanswered:
            await self._conversation.connection.send(
                lambda live, message=message: live.send_content(message), stored_at=readings
            )

    async def _send(self, live: BaseLlmConnection, content: Content, whole: Content) -> None:
        """Sends a content. A connection that has not received the earlier pieces gets `whole`, which includes them."""
        await live.send_content(content if live is self._listener else whole)
        self._listener = live

    async def _send_piece(self, live: BaseLlmConnection, content: Content, begun: Content) -> None:
        """Sends a piece of a content. A connection that has not received the earlier pieces gets `begun`, which
        includes them.
        """
        is_taken = await live.send_partial_content(content if live is self._listener else begun)
        self._listener = live if is_taken else None

    def _check(self, content: Content, answers: list[FunctionResponse]) -> None:
        """Raises InvalidRequest for answers to calls that are not a client's to answer, ApprovalRefused, and
        NotApprover for requests with a policy, whose answers are counted outside of the conversation.
        """
        log_state = log_state_of(self._conversation.ctx.session.events)
        for answer in answers:
            log_state.call_to_answer(answer, location=("content", "parts"))
        approvals = {answer.id for answer in answers if answer.name in REQUESTS}
        if approvals and not approvals <= self._calls.asked:
            raise ApprovalRefused("this conversation has not asked for it")
        for request in (log_state.find_request(request_id) for request_id in approvals):
            if request is not None and policy_of(request.call) is not None:
                raise NotApprover("by its policy, it is answered in the inbox when the conversation has ended")
        log_state.decide(content)

    def _index_of(self, event: Event) -> int:
        events = self._conversation.ctx.session.events
        return next(index for index in range(len(events) - 1, -1, -1) if events[index].id == event.id)

    async def _refuse(self, error: GreenroomError) -> None:
        """Shown to readers of the stream; not stored."""
        event = self._event(None)
        event.author = self._conversation.agent.name
        event.partial = True
        event.error_code = error.code
        event.error_message = error.detail
        await self._conversation.show(event)

    async def _note(self, state_delta: dict[str, object] | None) -> None:
        if state_delta:
            await self._conversation.show(self._event(state_delta))

    def _event(self, state_delta: dict[str, object] | None) -> Event:
        actions = EventActions(state_delta=dict(state_delta or {}))
        return Event(
            invocation_id=self._conversation.ctx.invocation_id,
            author="user",
            actions=actions,
        )


def _signal(request: LiveRequest) -> RealtimeInput | None:
    """Returns the request's first signal that is sent to the model as it is."""
    if request.activity_start is not None:
        return ActivityStart()
    if request.activity_end is not None:
        return ActivityEnd()
    if request.audio_stream_end:
        return AudioStreamEnd()
    return request.blob
