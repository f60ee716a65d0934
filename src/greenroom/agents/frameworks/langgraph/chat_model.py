"""The models of this package as a chat model for graphs of LangGraph and other users of LangChain."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from functools import cached_property
from typing import Any, cast

from greenroom.errors import MissingExtra, ModelError
from greenroom.models.by_name import LLMRegistry
from greenroom.models.model import BaseLlm
from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata
from greenroom.records.base import JsonObject
from greenroom.records.model_exchange import LlmResponse

try:
    from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
    from langchain_core.language_models.base import LanguageModelInput
    from langchain_core.language_models.chat_models import BaseChatModel
    from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
    from langchain_core.messages.ai import UsageMetadata
    from langchain_core.messages.tool import tool_call, tool_call_chunk
    from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
    from langchain_core.runnables import Runnable
    from langchain_core.tools import BaseTool
    from langchain_core.utils.function_calling import convert_to_openai_tool
    from pydantic import ConfigDict
except ImportError as error:
    raise MissingExtra("langchain", "langchain-core") from error

from greenroom.agents.frameworks.langgraph.messages import to_request


class ChatGreenroom(BaseChatModel):
    """A model of greenroom, by its name or as an object, for LangChain. It is asynchronous: await `ainvoke`.

    model: as `LlmAgent.model`. max_tokens, temperature: of each request.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, ignored_types=(cached_property,))

    model: Any
    max_tokens: int | None = None
    temperature: float | None = None

    @property
    def _llm_type(self) -> str:
        return "greenroom"

    @cached_property
    def _llm(self) -> BaseLlm:
        return LLMRegistry.resolve(self.model) if isinstance(self.model, str) else self.model

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> Any:
        return {**super()._get_ls_params(stop=stop, **kwargs), "ls_model_name": self._llm.model}

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"max_tokens": self.max_tokens, "temperature": self.temperature}

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        declared = [convert_to_openai_tool(tool) for tool in tools]
        if tool_choice is not None:
            kwargs["tool_choice"] = tool_choice
        return self.bind(tools=declared, **kwargs)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        raise NotImplementedError("The models of greenroom are asynchronous: await ainvoke() or astream()")

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        message = AIMessage("")
        async with aclosing(self._replies(messages, stop, stream=False, options=kwargs)) as replies:
            async for reply in replies:
                message = _to_message(reply)
        return ChatResult(generations=[ChatGeneration(message=message)])

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        has_text = False
        async with aclosing(self._replies(messages, stop, stream=True, options=kwargs)) as replies:
            async for reply in replies:
                has_text = has_text or bool(reply.partial)
                chunk = ChatGenerationChunk(message=_to_chunk(reply, has_text=has_text))
                if run_manager is not None:
                    await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
                yield chunk

    async def _replies(
        self, messages: list[BaseMessage], stop: list[str] | None, *, stream: bool, options: dict[str, Any]
    ) -> AsyncGenerator[LlmResponse]:
        given = {"max_tokens": self.max_tokens, "temperature": self.temperature, **options}
        request = to_request(messages, model=self._llm.model, options=given)
        request.config.stop_sequences = stop
        streamed = cast("AsyncGenerator[LlmResponse]", self._llm.generate_content_async(request, stream=stream))
        async with aclosing(streamed) as replies:
            async for reply in replies:
                if reply.error_code is not None and not reply.partial:
                    raise ModelError(reply.error_message or reply.error_code, model=self._llm.model)
                yield reply


def _to_message(reply: LlmResponse) -> AIMessage:
    calls = [tool_call(name=call.name or "", args=call.args or {}, id=call.id) for call in reply.get_function_calls()]
    return AIMessage(
        content=cast("Any", _content(reply)),
        tool_calls=calls,
        usage_metadata=_usage(reply.usage_metadata),
        response_metadata=_metadata(reply),
    )


def _to_chunk(reply: LlmResponse, *, has_text: bool) -> AIMessageChunk:
    """A complete reply after its chunks brings what the chunks didn't: calls, usage and metadata."""
    if reply.partial:
        return AIMessageChunk(content=cast("Any", _content(reply)))
    calls = [
        tool_call_chunk(name=call.name, args=json.dumps(call.args or {}), id=call.id, index=index)
        for index, call in enumerate(reply.get_function_calls())
    ]
    return AIMessageChunk(
        content=cast("Any", "" if has_text else _content(reply)),
        tool_call_chunks=calls,
        usage_metadata=_usage(reply.usage_metadata),
        response_metadata=_metadata(reply),
        chunk_position="last",
    )


def _content(reply: LlmResponse) -> str | list[JsonObject]:
    parts = [part for part in (reply.content.parts if reply.content is not None else None) or () if part.text]
    if any(part.thought for part in parts):
        return [
            {"type": "reasoning", "reasoning": part.text} if part.thought else {"type": "text", "text": part.text}
            for part in parts
        ]
    return "".join(part.text or "" for part in parts)


def _metadata(reply: LlmResponse) -> JsonObject:
    metadata: JsonObject = {"finish_reason": (reply.finish_reason or "STOP").lower()}
    if reply.model_version is not None:
        metadata["model_name"] = reply.model_version
    return metadata


def _usage(usage: GenerateContentResponseUsageMetadata | None) -> UsageMetadata | None:
    if usage is None:
        return None
    return UsageMetadata(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        total_tokens=usage.input_tokens + usage.output_tokens,
        input_token_details={"cache_read": usage.cached_content_token_count or 0},
        output_token_details={"reasoning": usage.thoughts_token_count or 0},
    )
