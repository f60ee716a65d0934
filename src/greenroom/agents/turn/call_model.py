"""One call of the model, with its callbacks: a request in, events out."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import TYPE_CHECKING, Any, cast

from greenroom.agents.callbacks import first_answer
from greenroom.invocation.context import InvocationContext
from greenroom.invocation.user_context import CallbackContext
from greenroom.models.model import BaseLlm
from greenroom.records.event import Event, EventActions
from greenroom.records.identifiers import new_event_id, new_function_call_id
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.records.run import StreamingMode

if TYPE_CHECKING:
    from greenroom.agents.llm_agent import LlmAgent

_NORMAL_ENDS = frozenset({None, "STOP", "FINISH_REASON_UNSPECIFIED"})


async def call_model(
    agent: LlmAgent, ctx: InvocationContext, model: BaseLlm, request: LlmRequest
) -> AsyncIterator[Event]:
    """Events of one reply. All of them share one id, so that a client can replace the chunks by the whole."""
    event_id = new_event_id()
    actions = EventActions()
    callback_context = CallbackContext(ctx, actions)
    if agent.before_model_callback is not None:
        reply = await first_answer(
            agent.before_model_callback, callback_context=callback_context, llm_request=request
        )
        if reply is not None:
            callback_context.settle()
            yield _to_event(cast("LlmResponse", reply), agent, ctx, request, event_id, actions)
            return
    ctx.llm_calls.add()
    stream = ctx.run_config.streaming_mode is StreamingMode.SSE
    replies: AsyncIterator[LlmResponse] = model.generate_content_async(request, stream=stream)
    try:
        async for reply in replies:
            response = reply
            if agent.after_model_callback is not None:
                response = await _after_model(agent, callback_context, reply)
            if _says_something(response):
                yield _to_event(response, agent, ctx, request, event_id, actions)
                if not response.partial:
                    actions = EventActions()
                    callback_context = CallbackContext(ctx, actions)
    except Exception as error:  # a model may raise anything; the agent's callbacks decide what becomes of it
        if agent.on_model_error_callback is None:
            raise
        reply = await first_answer(
            agent.on_model_error_callback, callback_context=callback_context, llm_request=request, error=error
        )
        if reply is None:
            raise
        callback_context.settle()
        yield _to_event(cast("LlmResponse", reply), agent, ctx, request, event_id, actions)
    finally:
        if isinstance(replies, AsyncGenerator):
            await replies.aclose()


async def _after_model(agent: LlmAgent, callback_context: CallbackContext, reply: LlmResponse) -> LlmResponse:
    changed = cast(
        "LlmResponse | None",
        await first_answer(agent.after_model_callback, callback_context=callback_context, llm_response=reply),
    )
    callback_context.settle()
    if changed is None:
        return reply
    if changed.partial is None:
        changed.partial = reply.partial
    if changed.turn_complete is None:
        changed.turn_complete = reply.turn_complete
    if changed.usage_metadata is None:
        changed.usage_metadata = reply.usage_metadata
    return changed


def _says_something(response: LlmResponse) -> bool:
    return bool(
        response.content is not None
        or response.error_code
        or response.interrupted
        or response.turn_complete
        or response.usage_metadata is not None
        or response.grounding_metadata is not None
    )


def _to_event(
    response: LlmResponse,
    agent: LlmAgent,
    ctx: InvocationContext,
    request: LlmRequest,
    event_id: str,
    actions: EventActions,
) -> Event:
    if response.partial:
        return Event(
            id=event_id,
            invocation_id=ctx.invocation_id,
            author=agent.name,
            branch=ctx.branch,
            content=response.content,
            partial=True,
            usage_metadata=response.usage_metadata,
            custom_metadata=response.custom_metadata,
        )
    event = Event(
        id=event_id,
        invocation_id=ctx.invocation_id,
        author=agent.name,
        branch=ctx.branch,
        content=response.content,
        actions=actions,
        turn_complete=response.turn_complete,
        interrupted=response.interrupted,
        error_code=response.error_code,
        error_message=response.error_message,
        finish_reason=response.finish_reason,
        usage_metadata=response.usage_metadata,
        model_version=response.model_version,
        grounding_metadata=response.grounding_metadata,
        citation_metadata=response.citation_metadata,
        avg_logprobs=response.avg_logprobs,
        logprobs_result=response.logprobs_result,
        custom_metadata=response.custom_metadata,
        cache_metadata=response.cache_metadata,
        interaction_id=response.interaction_id,
    )
    if event.error_code is None and event.finish_reason not in _NORMAL_ENDS:
        event.error_code = event.finish_reason
        event.error_message = event.error_message or f"The model stopped with {event.finish_reason}"
    if event.error_code is None and _is_empty(event):
        event.error_code = "MODEL_RETURNED_NO_CONTENT"
        event.error_message = "The model ended its reply without saying anything"
    calls = event.get_function_calls()
    if calls:
        long_running: list[str] = []
        for call in calls:
            if not call.id:
                call.id = new_function_call_id()
            tool: Any = request.tools_dict.get(call.name or "")
            if tool is not None and tool.is_long_running:
                long_running.append(call.id)
        event.long_running_tool_ids = sorted(long_running)
    return event


def _is_empty(event: Event) -> bool:
    parts = event.content.parts if event.content is not None else None
    return not any(part.text != "" for part in parts or ())
