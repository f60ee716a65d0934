"""Models behind OpenAI's chat completions: OpenAI itself, Ollama, vLLM, or any server that speaks the same."""

from __future__ import annotations

import importlib
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from greenroom.errors import MissingExtra, ModelError
from greenroom.models.model import BaseLlm
from greenroom.models.openai_messages import completion_arguments
from greenroom.records.answer_metadata import FinishReason, GenerateContentResponseUsageMetadata
from greenroom.records.base import JsonObject
from greenroom.records.content import Content, FunctionCall, Part
from greenroom.records.model_exchange import LlmRequest, LlmResponse

if TYPE_CHECKING:
    import openai
    from openai.types import CompletionUsage
    from openai.types.chat import ChatCompletion, ChatCompletionChunk, ChatCompletionMessage
    from openai.types.chat.chat_completion_chunk import ChoiceDelta, ChoiceDeltaToolCall

_RETRYABLE_STATUS = {408, 409, 425, 429}
_SECRET = re.compile(r"\b(sk|key|Bearer)[-_ ][^\s'\",;)]{4,}", re.IGNORECASE)


class OpenAILlm(BaseLlm):
    """model: `openai/<name>` or the service's own name.

    base_url, api_key: as in the SDK, which otherwise reads OPENAI_BASE_URL and OPENAI_API_KEY; servers of one's own at
    `base_url` need no key. headers: sent with each request, in addition to the SDK's own. client: an `AsyncOpenAI` to
    use instead of all three; the caller closes it.
    """

    def __init__(
        self,
        model: str = "openai/gpt-4o-mini",
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        client: openai.AsyncOpenAI | None = None,
    ) -> None:
        super().__init__(model=model)
        try:
            import openai
        except ImportError as error:
            raise MissingExtra("openai", "openai") from error
        self._sdk = openai
        # What the SDK's HTTP library (httpx, or httpx2 from 3.0) raises in the middle of a stream comes unwrapped.
        library = next(
            base.__module__ for base in openai.DefaultAsyncHttpxClient.__mro__ if base.__name__ == "AsyncClient"
        )
        self._transport_error: type[Exception] = importlib.import_module(library.partition(".")[0]).HTTPError
        self._base_url, self._api_key, self._headers = base_url, api_key, headers
        self._given, self._made = client, None

    async def generate_content_async(self, llm_request: LlmRequest, stream: bool = False) -> AsyncIterator[LlmResponse]:
        name = (llm_request.model or self.model).removeprefix("openai/")
        arguments = completion_arguments(llm_request, model=name)
        try:
            if stream:
                async for response in self._streamed(arguments):
                    yield response
            else:
                yield reply(await self._completions().create(**arguments))
        except self._sdk.OpenAIError as error:
            raise self._model_error(error) from error
        except self._transport_error as error:
            detail = f"{self.model}: the connection broke: {type(error).__name__}"
            raise ModelError(detail, model=self.model, retryable=True) from error

    async def close(self) -> None:
        client, self._made = self._made, None
        if client is not None:
            await client.close()

    async def _streamed(self, arguments: JsonObject) -> AsyncIterator[LlmResponse]:
        options: dict[str, Any] = {**arguments, "stream": True, "stream_options": {"include_usage": True}}
        gathered = GatheredReply()
        chunks: openai.AsyncStream[ChatCompletionChunk]
        async with await self._completions().create(**options) as chunks:
            async for chunk in chunks:
                for partial in gathered.add(chunk):
                    yield partial
        if not gathered.is_complete:
            raise ModelError(f"{self.model}: the stream ended before its end", model=self.model, retryable=True)
        yield gathered.response()

    def _completions(self) -> Any:
        """Untyped: the arguments are built at run time, which the SDK's overloads can't express."""
        return self._client().chat.completions

    def _client(self) -> openai.AsyncOpenAI:
        if self._given is not None:
            return self._given
        if self._made is None:
            key, url, headers = self._api_key, self._base_url, self._headers
            try:
                self._made = self._sdk.AsyncOpenAI(api_key=key, base_url=url, default_headers=headers)
            except self._sdk.OpenAIError:
                if url is None:
                    raise
                self._made = self._sdk.AsyncOpenAI(api_key="none", base_url=url, default_headers=headers)
        return self._made

    def _model_error(self, error: openai.OpenAIError) -> ModelError:
        sdk = self._sdk
        retryable = isinstance(error, sdk.APIConnectionError)
        what = type(error).__name__
        if isinstance(error, sdk.APIStatusError):
            status = error.status_code
            retryable = (status in _RETRYABLE_STATUS or status >= 500) and error.code != "insufficient_quota"
            what = f"HTTP {status}"
        said = str(getattr(error, "message", None) or error)
        client = self._given or self._made
        for secret in (self._api_key, client.api_key if client else None):
            if secret:
                said = said.replace(secret, "…")
        said = _SECRET.sub("…", said)
        return ModelError(f"{self.model}: {what}: {said}", model=self.model, retryable=retryable)


_FINISH_REASONS = {
    "stop": FinishReason.STOP,
    "tool_calls": FinishReason.STOP,
    "function_call": FinishReason.STOP,
    "length": FinishReason.MAX_TOKENS,
    "content_filter": FinishReason.SAFETY,
}


def reply(completion: ChatCompletion) -> LlmResponse:
    """The first choice of a completion that wasn't streamed."""
    gathered = GatheredReply()
    gathered.model_version = completion.model
    gathered.usage = completion.usage
    if completion.choices:
        choice = completion.choices[0]
        message = choice.message
        gathered.finish_reason = choice.finish_reason
        gathered.thought = _reasoning(message) or ""
        gathered.text = (message.content or "") + (message.refusal or "")
        for call in message.tool_calls or ():
            if call.type == "function":
                gathered.calls.append(_StreamedCall(None, call.id, call.function.name, call.function.arguments))
    return gathered.response()


@dataclass
class _StreamedCall:
    index: int | None
    id: str | None
    name: str
    arguments: str


class GatheredReply:
    """A streamed completion: `add` every chunk, then take the whole `response`."""

    def __init__(self) -> None:
        self.text = ""
        self.thought = ""
        self.calls: list[_StreamedCall] = []
        self.finish_reason: str | None = None
        self.usage: CompletionUsage | None = None
        self.model_version: str | None = None

    @property
    def is_complete(self) -> bool:
        return self.finish_reason is not None

    def add(self, chunk: ChatCompletionChunk) -> Iterator[LlmResponse]:
        """The partial responses of a chunk."""
        self.usage = chunk.usage or self.usage
        self.model_version = chunk.model or self.model_version
        if not chunk.choices:
            return
        choice = chunk.choices[0]
        self.finish_reason = choice.finish_reason or self.finish_reason
        thought = _reasoning(choice.delta) or ""
        text = (choice.delta.content or "") + (choice.delta.refusal or "")
        self.thought += thought
        self.text += text
        if thought:
            yield _partial(Part(text=thought, thought=True))
        if text:
            yield _partial(Part(text=text))
        for call in choice.delta.tool_calls or ():
            self._add_call(call)

    def response(self) -> LlmResponse:
        parts: list[Part] = []
        if self.thought:
            parts.append(Part(text=self.thought, thought=True))
        if self.text:
            parts.append(Part(text=self.text))
        finish_reason = _FINISH_REASONS.get(self.finish_reason or "", FinishReason.OTHER)
        response = LlmResponse(
            content=Content(role="model", parts=parts),
            finish_reason=finish_reason,
            usage_metadata=_usage(self.usage),
            model_version=self.model_version,
        )
        if finish_reason != FinishReason.STOP and not (parts or self.calls):
            response.error_code = finish_reason
            response.error_message = f"The model stopped with {self.finish_reason!r}"
        for call in self.calls:
            arguments = _arguments(call.arguments)
            if arguments is None:
                response.error_code = FinishReason.MALFORMED_FUNCTION_CALL
                response.error_message = (
                    f"The model called {call.name!r} with arguments that aren't a JSON object: {call.arguments[:200]!r}"
                )
                response.content = Content(role="model", parts=[p for p in parts if p.function_call is None])
                break
            parts.append(Part(function_call=FunctionCall(id=call.id, name=call.name, args=arguments)))
        return response

    def _add_call(self, delta: ChoiceDeltaToolCall) -> None:
        """Pieces belong together by their index; some servers give every call the same, or none, but its own id."""
        function = delta.function
        name = (function.name if function else None) or ""
        arguments = (function.arguments if function else None) or ""
        for call in reversed(self.calls):
            if call.index == delta.index and (not delta.id or not call.id or call.id == delta.id):
                call.id = call.id or delta.id
                call.name = call.name or name
                call.arguments += arguments
                return
        self.calls.append(_StreamedCall(delta.index, delta.id, name, arguments))


def _arguments(text: str) -> JsonObject | None:
    if not text.strip():
        return {}
    try:
        return msgspec.json.decode(text, type=JsonObject)
    except msgspec.DecodeError:
        return None


def _reasoning(message: ChatCompletionMessage | ChoiceDelta) -> str | None:
    """The reasoning that DeepSeek, vLLM and others send beside `content`; OpenAI's own API doesn't."""
    extra = message.model_extra or {}
    said = extra.get("reasoning_content") or extra.get("reasoning")
    return said if isinstance(said, str) else None


def _partial(part: Part) -> LlmResponse:
    return LlmResponse(content=Content(role="model", parts=[part]), partial=True)


def _usage(usage: CompletionUsage | None) -> GenerateContentResponseUsageMetadata | None:
    """As the Gemini API counts: thoughts are not among the candidates' tokens."""
    if usage is None:
        return None
    details = usage.completion_tokens_details
    thoughts = (details.reasoning_tokens if details else None) or 0
    cached = usage.prompt_tokens_details.cached_tokens if usage.prompt_tokens_details else None
    return GenerateContentResponseUsageMetadata(
        prompt_token_count=usage.prompt_tokens,
        candidates_token_count=usage.completion_tokens - thoughts,
        total_token_count=usage.total_tokens,
        thoughts_token_count=thoughts or None,
        cached_content_token_count=cached or None,
    )
