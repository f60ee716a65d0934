"""The models of this package as a model for the OpenAI Agents SDK."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from functools import cached_property
from typing import Any, cast

from greenroom.errors import MissingExtra, ModelError
from greenroom.models.by_name import LLMRegistry
from greenroom.models.model import BaseLlm
from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata
from greenroom.records.identifiers import new_event_id, new_function_call_id
from greenroom.records.model_exchange import LlmRequest, LlmResponse

try:
    from agents import Model, Usage
    from agents.items import ModelResponse, TResponseOutputItem
except ImportError as error:
    raise MissingExtra("openai-agents", "openai-agents") from error

from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseReasoningItem,
    ResponseReasoningSummaryTextDeltaEvent,
    ResponseTextDeltaEvent,
    ResponseUsage,
)
from openai.types.responses.response_reasoning_item import Summary
from openai.types.responses.response_usage import InputTokensDetails, OutputTokensDetails

from greenroom.agents.frameworks.openai_agents.messages import to_request


class OpenAIAgentsModel(Model):
    """A model of greenroom, by its name or as an object, for agents of the OpenAI Agents SDK.

    model: as `LlmAgent.model`.
    """

    def __init__(self, model: str | BaseLlm) -> None:
        self._given = model

    @cached_property
    def _llm(self) -> BaseLlm:
        return LLMRegistry.resolve(self._given) if isinstance(self._given, str) else self._given

    @property
    def model(self) -> str:
        """The model's name."""
        return self._llm.model

    @property
    def provider_name(self) -> str:
        """The provider's name in traces."""
        return self._llm.provider_name

    async def get_response(
        self,
        system_instructions: Any,
        input: Any,  # noqa: A002 - the SDK's name
        model_settings: Any,
        tools: Any,
        output_schema: Any,
        handoffs: Any,
        tracing: Any,
        **options: Any,
    ) -> ModelResponse:
        request = self._request(system_instructions, input, model_settings, tools, output_schema, handoffs)
        whole = LlmResponse()
        async with aclosing(self._replies(request, stream=False)) as replies:
            async for reply in replies:
                whole = reply
        usage = _usage(whole.usage_metadata)
        return ModelResponse(
            _items(whole),
            Usage(
                requests=1,
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
                total_tokens=usage.total_tokens,
                input_tokens_details=usage.input_tokens_details,
                output_tokens_details=usage.output_tokens_details,
            ),
            response_id=None,
        )

    async def stream_response(
        self,
        system_instructions: Any,
        input: Any,  # noqa: A002 - the SDK's name
        model_settings: Any,
        tools: Any,
        output_schema: Any,
        handoffs: Any,
        tracing: Any,
        **options: Any,
    ) -> AsyncIterator[Any]:
        request = self._request(system_instructions, input, model_settings, tools, output_schema, handoffs)
        number = 0
        async with aclosing(self._replies(request, stream=True)) as replies:
            async for reply in replies:
                for event in _deltas(reply) if reply.partial else [_completed(reply, self.model)]:
                    event.sequence_number = number
                    number += 1
                    yield event

    def _request(
        self, system: Any, given: Any, settings: Any, tools: Any, output_schema: Any, handoffs: Any
    ) -> LlmRequest:
        return to_request(
            system,
            given,
            model=self.model,
            settings=settings,
            tools=tools,
            handoffs=handoffs,
            schema=None if output_schema is None or output_schema.is_plain_text() else output_schema.json_schema(),
        )

    async def _replies(self, request: LlmRequest, *, stream: bool) -> AsyncGenerator[LlmResponse]:
        given = cast("AsyncGenerator[LlmResponse]", self._llm.generate_content_async(request, stream=stream))
        async with aclosing(given) as replies:
            async for reply in replies:
                if reply.error_code is not None and not reply.partial:
                    raise ModelError(reply.error_message or reply.error_code, model=self.model)
                yield reply


def _items(reply: LlmResponse) -> list[TResponseOutputItem]:
    items: list[TResponseOutputItem] = []
    for part in (reply.content.parts if reply.content is not None else None) or ():
        if part.function_call is not None:
            call = part.function_call
            item = ResponseFunctionToolCall(
                type="function_call",
                call_id=call.id or new_function_call_id(),
                name=call.name or "",
                arguments=json.dumps(call.args or {}),
            )
            items.append(item)
        elif part.text and part.thought:
            summary = Summary(type="summary_text", text=part.text)
            items.append(ResponseReasoningItem(id=new_event_id(), type="reasoning", summary=[summary]))
        elif part.text:
            text = ResponseOutputText(type="output_text", text=part.text, annotations=[])
            items.append(
                ResponseOutputMessage(
                    id=new_event_id(), type="message", role="assistant", status="completed", content=[text]
                )
            )
    return items


def _deltas(reply: LlmResponse) -> list[Any]:
    """The events of a piece of text. Calls come with the complete response."""
    events: list[Any] = []
    for part in (reply.content.parts if reply.content is not None else None) or ():
        if part.text and part.thought:
            events.append(
                ResponseReasoningSummaryTextDeltaEvent(
                    type="response.reasoning_summary_text.delta",
                    delta=part.text,
                    item_id="",
                    output_index=0,
                    summary_index=0,
                    sequence_number=0,
                )
            )
        elif part.text:
            events.append(
                ResponseTextDeltaEvent(
                    type="response.output_text.delta",
                    delta=part.text,
                    item_id="",
                    output_index=0,
                    content_index=0,
                    logprobs=[],
                    sequence_number=0,
                )
            )
    return events


def _completed(reply: LlmResponse, model: str) -> Any:
    response = Response(
        id=new_event_id(),
        created_at=0,
        model=model,
        object="response",
        output=cast("Any", _items(reply)),
        parallel_tool_calls=True,
        tool_choice="auto",
        tools=[],
        usage=_usage(reply.usage_metadata),
    )
    return ResponseCompletedEvent(type="response.completed", response=response, sequence_number=0)


def _usage(usage: GenerateContentResponseUsageMetadata | None) -> ResponseUsage:
    counted = usage or GenerateContentResponseUsageMetadata()
    return ResponseUsage(
        input_tokens=counted.input_tokens,
        output_tokens=counted.output_tokens,
        total_tokens=counted.input_tokens + counted.output_tokens,
        input_tokens_details=InputTokensDetails(
            cached_tokens=counted.cached_content_token_count or 0, cache_write_tokens=0
        ),
        output_tokens_details=OutputTokensDetails(reasoning_tokens=counted.thoughts_token_count or 0),
    )
