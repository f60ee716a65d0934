"""The models of this package as models of Pydantic AI."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, cast

from greenroom.errors import MissingExtra, ModelError
from greenroom.models.by_name import LLMRegistry
from greenroom.models.model import BaseLlm
from greenroom.records.content import Part
from greenroom.records.model_exchange import LlmRequest, LlmResponse

try:
    from pydantic_ai.messages import (
        ModelMessage,
        ModelResponse,
        ModelResponsePart,
        ModelResponseStreamEvent,
        TextPart,
        ThinkingPart,
        ToolCallPart,
    )
    from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
    from pydantic_ai.profiles import ModelProfileSpec
    from pydantic_ai.settings import ModelSettings
    from pydantic_ai.tools import RunContext
    from pydantic_ai.usage import RequestUsage
except ImportError as error:
    raise MissingExtra("pydantic-ai", "pydantic-ai-slim") from error

from greenroom.agents.frameworks.pydantic_ai.messages import to_request

_PROVIDER = "greenroom"


class GreenroomModel(Model):
    """A model of greenroom, by its name or as an object, for agents of Pydantic AI.

    model: as `LlmAgent.model`. settings, profile: as of the framework's own models.
    """

    def __init__(
        self,
        model: str | BaseLlm,
        *,
        settings: ModelSettings | None = None,
        profile: ModelProfileSpec | None = None,
    ) -> None:
        super().__init__(settings=settings, profile=profile)
        self._model = model

    @cached_property
    def _llm(self) -> BaseLlm:
        return LLMRegistry.resolve(self._model) if isinstance(self._model, str) else self._model

    @property
    def model_name(self) -> str:
        return self._model if isinstance(self._model, str) else self._model.model

    @property
    def system(self) -> str:
        return _PROVIDER

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        request = self._to_request(messages, model_settings, model_request_parameters)
        newest = LlmResponse()
        async with aclosing(self._replies(request, stream=False)) as replies:
            async for reply in replies:
                newest = reply
        return ModelResponse(
            parts=list(_response_parts(newest)),
            usage=_usage(newest),
            model_name=newest.model_version or self.model_name,
            provider_name=_PROVIDER,
        )

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        request = self._to_request(messages, model_settings, model_request_parameters)
        async with aclosing(self._replies(request, stream=True)) as replies:
            yield _Streamed(model_request_parameters, _name=self.model_name, _replies=replies)

    def _to_request(
        self, messages: list[ModelMessage], settings: ModelSettings | None, parameters: ModelRequestParameters
    ) -> LlmRequest:
        settings, parameters = self.prepare_request(settings, parameters)
        return to_request(messages, model=self._llm.model, parameters=parameters, settings=settings)

    async def _replies(self, request: LlmRequest, *, stream: bool) -> AsyncGenerator[LlmResponse]:
        generated = cast("AsyncGenerator[LlmResponse]", self._llm.generate_content_async(request, stream=stream))
        async with aclosing(generated) as replies:
            async for reply in replies:
                if reply.error_code is not None and not reply.partial:
                    raise ModelError(reply.error_message or reply.error_code, model=self._llm.model)
                yield reply


@dataclass
class _Streamed(StreamedResponse):
    _name: str
    _replies: AsyncGenerator[LlmResponse]
    _timestamp: datetime = field(default_factory=lambda: datetime.now(UTC))

    async def _get_event_iterator(self) -> AsyncIterator[ModelResponseStreamEvent]:
        has_text = False
        async for reply in self._replies:
            if not reply.partial:
                self._usage = _usage(reply)
                self._name = reply.model_version or self._name
            for part in (reply.content.parts if reply.content is not None else None) or ():
                if part.function_call is None:
                    if not reply.partial and has_text:  # the whole text, after its chunks
                        continue
                    has_text = has_text or bool(part.text)
                for event in self._events(part):
                    yield event

    def _events(self, part: Part) -> Iterator[ModelResponseStreamEvent]:
        manager = self._parts_manager
        if part.function_call is not None:
            call = part.function_call
            yield manager.handle_tool_call_part(
                vendor_part_id=None, tool_name=call.name or "", args=call.args or {}, tool_call_id=call.id
            )
        elif part.text and part.thought:
            yield from manager.handle_thinking_delta(vendor_part_id="thought", content=part.text)
        elif part.text:
            yield from manager.handle_text_delta(vendor_part_id="text", content=part.text)

    @property
    def model_name(self) -> str:
        return self._name

    @property
    def provider_name(self) -> str:
        return _PROVIDER

    @property
    def provider_url(self) -> None:
        return None

    @property
    def timestamp(self) -> datetime:
        return self._timestamp


def _response_parts(reply: LlmResponse) -> Iterator[ModelResponsePart]:
    for part in (reply.content.parts if reply.content is not None else None) or ():
        if part.function_call is not None:
            call = part.function_call
            made = ToolCallPart(call.name or "", call.args or {})
            if call.id is not None:
                made.tool_call_id = call.id
            yield made
        elif part.text and part.thought:
            yield ThinkingPart(part.text)
        elif part.text:
            yield TextPart(part.text)


def _usage(reply: LlmResponse) -> RequestUsage:
    usage = reply.usage_metadata
    if usage is None:
        return RequestUsage()
    return RequestUsage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cached_content_token_count or 0,
    )
