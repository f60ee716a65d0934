"""Calls the model, with its callbacks: a request in, events out."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from operator import attrgetter
from typing import Any, cast

import msgspec

from greenroom.agents.base_llm_agent import BaseLlmAgent
from greenroom.agents.callbacks import first_answer, has_callbacks
from greenroom.agents.planning import BasePlanner
from greenroom.agents.turn.code import complete_reply
from greenroom.errors import ToolError, as_exception
from greenroom.invocation.context import InvocationContext
from greenroom.invocation.user_context import CallbackContext
from greenroom.models.model import BaseLlm
from greenroom.records.answer_metadata import FinishReason
from greenroom.records.content import Content, Part
from greenroom.records.event import Event
from greenroom.records.genai_types import own_content
from greenroom.records.human_requests import REQUESTS
from greenroom.records.identifiers import new_event_id, new_function_call_id
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.records.run import StreamingMode
from greenroom.records.state import GROUNDING_METADATA
from greenroom.records.wake_up import note_wake_up
from greenroom.telemetry.agent_spans import ModelCallSpan

_NORMAL_ENDS = frozenset({None, "STOP", "FINISH_REASON_UNSPECIFIED"})
_NO_ANSWER = "MODEL_RETURNED_NO_CONTENT"

BEFORE_MODEL = "before_model_callback"
AFTER_MODEL = "after_model_callback"


async def call_model(
    agent: BaseLlmAgent, ctx: InvocationContext, model: BaseLlm, request: LlmRequest, span: ModelCallSpan | None = None
) -> AsyncGenerator[Event]:
    """Yields the events of one reply. The chunks and the complete event share an id, so that a client can replace the
    chunks.
    """
    message = _Message(ctx, request, span)
    stream = ctx.run_config.streaming_mode is StreamingMode.SSE
    if has_callbacks(agent, ctx, BEFORE_MODEL):
        answer = await before_model(agent, ctx, message.callback_context, request)
        if answer is not None:
            yield message.to_event(with_error_code(answer, stream=stream))
            return

    ctx.llm_calls.add()
    if span is not None:
        span.note_request(request)
    is_watched = has_callbacks(agent, ctx, AFTER_MODEL)
    streamed = cast("AsyncGenerator[LlmResponse]", model.generate_content_async(request, stream=stream))

    async with aclosing(streamed) as replies:
        while True:
            try:
                reply = await anext(replies)
            except StopAsyncIteration:
                return
            except BaseException as raised:  # plugins and callbacks decide what becomes of it
                answer = await answer_to(as_exception(raised), agent, ctx, message.callback_context, request)
                yield message.to_event(with_error_code(answer, stream=stream))
                return
            if message.is_whole:
                message = _Message(ctx, request, span)
            if is_watched:
                reply = await after_model(agent, ctx, message.callback_context, reply)
            if reply.content is not None:
                reply.content = own_content(reply.content)
            if reply.partial:
                if reply.content is not None or _has_content(reply):
                    yield message.to_event(reply)
                continue
            reply = with_error_code(reply, stream=stream)
            if agent.planner is not None:
                reply = _planned(agent.planner, message.callback_context, reply)
            if agent.code_executor is not None:
                reply = await complete_reply(agent.code_executor, message.callback_context, reply)
            if reply.content is not None or _has_content(reply):
                yield message.to_event(reply)


async def before_model(
    agent: BaseLlmAgent, ctx: InvocationContext, callback_context: CallbackContext, request: LlmRequest
) -> LlmResponse | None:
    """A callback's reply instead of the model's."""
    with request.own_contents():
        return await first_answer(agent, ctx, BEFORE_MODEL, callback_context=callback_context, llm_request=request)


async def answer_to(
    error: Exception,
    agent: BaseLlmAgent,
    ctx: InvocationContext,
    callback_context: CallbackContext,
    request: LlmRequest,
) -> LlmResponse:
    """A callback's reply instead of the model's error. Raises the error when there is none."""
    with request.own_contents():
        answer: LlmResponse | None = await first_answer(
            agent,
            ctx,
            "on_model_error_callback",
            callback_context=callback_context,
            llm_request=request,
            error=error,
        )
    if answer is None:
        raise error
    return answer


def _planned(planner: BasePlanner, callback_context: CallbackContext, reply: LlmResponse) -> LlmResponse:
    if reply.content is None or not reply.content.parts:
        return reply
    parts = planner.process_planning_response(callback_context, reply.content.parts)
    if parts is None:
        return reply
    return msgspec.structs.replace(reply, content=Content(role=reply.content.role, parts=parts))


async def after_model(
    agent: BaseLlmAgent, ctx: InvocationContext, callback_context: CallbackContext, reply: LlmResponse
) -> LlmResponse:
    changed: LlmResponse | None = await first_answer(
        agent, ctx, AFTER_MODEL, callback_context=callback_context, llm_response=reply
    )
    if changed is None:
        return reply
    # A copy: a callback may answer every chunk with the same object.
    return msgspec.structs.replace(
        changed,
        partial=reply.partial if changed.partial is None else changed.partial,
        turn_complete=reply.turn_complete if changed.turn_complete is None else changed.turn_complete,
        usage_metadata=reply.usage_metadata if changed.usage_metadata is None else changed.usage_metadata,
    )


def with_error_code(reply: LlmResponse, *, stream: bool) -> LlmResponse:
    """Marks a complete reply without an answer as an error: a reply that ended with STOP but holds only thoughts or
    blank text, or a reply without parts that ended abnormally.

    stream: a STOP without parts may follow content that was already sent, so it is no error then. Source: ADK 2.13.
    """
    if reply.error_code is not None or reply.partial:
        return reply
    parts = (reply.content.parts if reply.content is not None else None) or ()
    code = reply.finish_reason
    message = f"The model stopped with {reply.finish_reason}"
    if code == FinishReason.STOP:
        if (stream and not parts) or any(map(_is_answer, parts)):
            return reply
        code = _NO_ANSWER
        message = "The model ended its reply without an answer"
    elif parts or code in _NORMAL_ENDS:
        return reply
    return msgspec.structs.replace(reply, error_code=code, error_message=reply.error_message or message)


def _is_answer(part: Part) -> bool:
    if part.text is not None and not part.thought and part.text.strip():
        return True
    media = part.inline_data or part.file_data or part.audio_transcription
    code = part.executable_code or part.code_execution_result
    return bool(part.function_call or part.function_response or part.tool_call or part.tool_response or media or code)


def _has_content(response: LlmResponse) -> bool:
    return bool(
        response.error_code
        or response.interrupted
        or response.turn_complete
        or response.usage_metadata is not None
        or response.grounding_metadata is not None
    )


class _Message:
    """A message that the model is writing, with its id and its callback context. Actions of callbacks become part of
    its complete event.
    """

    __slots__ = ("_callback_context", "_ctx", "_id", "_request", "_span", "is_whole")

    def __init__(self, ctx: InvocationContext, request: LlmRequest, span: ModelCallSpan | None) -> None:
        self._ctx = ctx
        self._request = request
        self._span = span
        self._id = new_event_id()
        if span is not None:
            span.event_id = self._id
        self._callback_context: CallbackContext | None = None
        self.is_whole = False

    @property
    def callback_context(self) -> CallbackContext:
        if self._callback_context is None:
            self._callback_context = CallbackContext(self._ctx)
        return self._callback_context

    def to_event(self, response: LlmResponse) -> Event:
        ctx = self._ctx
        span = self._span
        if span is not None and not span.first_reply_time:
            span.note_first_reply()
        event = Event(
            id=self._id,
            invocation_id=ctx.invocation_id,
            author=ctx.agent.name,
            branch=ctx.branch,
            content=response.content,
            partial=response.partial,
            usage_metadata=response.usage_metadata,
            custom_metadata=response.custom_metadata,
        )
        if response.partial:
            return event
        self.is_whole = True

        for name, value in zip(_OF_WHOLE_REPLIES, _values_of_whole(response), strict=True):
            if value is not None:
                setattr(event, name, value)

        name_model(event, self._request)
        if self._callback_context is not None:
            event.actions = self._callback_context.collect_actions()
        if not event.grounding_metadata:
            event.grounding_metadata = ctx.session.state.get(GROUNDING_METADATA)
        name_calls(event, self._request)
        if span is not None:
            span.note_reply(response)
        return event


_OF_CHUNKS = {"content", "partial", "usage_metadata", "custom_metadata"}
_OF_WHOLE_REPLIES = tuple(name for name in LlmResponse.__struct_fields__ if name not in _OF_CHUNKS)
_values_of_whole = attrgetter(*_OF_WHOLE_REPLIES)


def name_model(event: Event, request: LlmRequest) -> None:
    """Reported usage is counted by model: where the model doesn't say its version, by the requested name."""
    if event.usage_metadata is not None and event.model_version is None:
        event.model_version = request.model


def name_calls(event: Event, request: LlmRequest) -> None:
    """Gives ids to calls without one, and returns the ids of the calls that are answered later."""
    calls = event.get_function_calls()
    if not calls:
        return
    long_running: list[str] = []
    given: set[str] = set()
    for call in calls:
        if not call.id or call.id in given:
            call.id = new_function_call_id()
        given.add(call.id)
        tool: Any = request.tools_dict.get(call.name or "")
        if tool is None or not tool.is_long_running or call.name in REQUESTS:
            continue
        try:
            wake_up = tool.wake_up(call.args or {}, now=event.timestamp)
        except ToolError:
            continue
        long_running.append(call.id)
        if wake_up is not None:
            note_wake_up(event, call, wake_up)
    event.long_running_tool_ids = sorted(long_running)
