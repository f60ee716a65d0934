"""Models behind OpenAI's chat completions: OpenAI itself, Ollama, vLLM, or any server that speaks the same."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from greenroom.models.openai_messages import PROVIDER, completion_arguments
from greenroom.models.provider import ProviderLlm
from greenroom.models.reply import Reply, StreamedCall
from greenroom.records.answer_metadata import (
    FinishReason,
    GenerateContentResponseUsageMetadata,
    LogprobsResult,
    LogprobsResultCandidate,
    LogprobsResultTopCandidates,
)
from greenroom.records.base import JsonObject
from greenroom.records.model_exchange import LlmRequest, LlmResponse

if TYPE_CHECKING:
    import openai
    from openai.types import CompletionUsage
    from openai.types.chat import ChatCompletion, ChatCompletionChunk

PREFIXES = frozenset({"openai", "ollama", "vllm", "groq", "openrouter", "deepseek", "mistral", "xai"})
_REASONING_FIELDS = ("reasoning_content", "reasoning")
"""What DeepSeek, vLLM and others send beside `content`; OpenAI's own API doesn't."""


class OpenAIClientLlm(ProviderLlm):
    """A model behind OpenAI's SDK, whichever of its APIs.

    base_url, api_key: as in the SDK, which otherwise reads OPENAI_BASE_URL and OPENAI_API_KEY; servers of one's own at
    `base_url` need no key. headers: sent with each request, in addition to the SDK's own. client: an `AsyncOpenAI` to
    use instead of all three; the caller closes it.
    """

    extra: ClassVar[str] = "openai"
    package: ClassVar[str] = "openai"

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        client: openai.AsyncOpenAI | None = None,
    ) -> None:
        super().__init__(model, client=client)
        self._base_url, self._api_key, self._headers = base_url, api_key, headers

    def make_client(self) -> openai.AsyncOpenAI:
        import openai

        key, url, headers = self._api_key, self._base_url, self._headers
        try:
            return openai.AsyncOpenAI(api_key=key, base_url=url, default_headers=headers)
        except openai.OpenAIError:
            if url is None:
                raise
            return openai.AsyncOpenAI(api_key="none", base_url=url, default_headers=headers)

    def secrets(self) -> Sequence[str | None]:
        client = self._given_client or self._made_client
        return self._api_key, client.api_key if client else None

    def service_name(self, request: LlmRequest) -> str:
        """The model's name without the prefix that chose this class or server."""
        name = request.model or self.model
        prefix, _, rest = name.partition("/")
        return rest if rest and prefix in PREFIXES else name


class OpenAILlm(OpenAIClientLlm):
    """Chat completions. model: `openai/<name>` or the service's own name."""

    def __init__(
        self,
        model: str = "openai/gpt-4o-mini",
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        client: openai.AsyncOpenAI | None = None,
    ) -> None:
        super().__init__(model, base_url=base_url, api_key=api_key, headers=headers, client=client)

    def convert(self, request: LlmRequest) -> JsonObject:
        return completion_arguments(request, model=self.service_name(request))

    async def send(self, client: Any, arguments: JsonObject, *, stream: bool) -> AsyncGenerator[LlmResponse]:
        if not stream:
            yield reply(await client.chat.completions.create(**arguments))
            return
        options = {**arguments, "stream": True, "stream_options": {"include_usage": True}}
        gathered = CompletionReply()
        async with await client.chat.completions.create(**options) as chunks:
            async for chunk in chunks:
                for partial in gathered.add(chunk):
                    yield partial
        if gathered.is_complete:
            yield gathered.whole()


_FINISH_REASONS = {
    "stop": FinishReason.STOP,
    "tool_calls": FinishReason.STOP,
    "function_call": FinishReason.STOP,
    "length": FinishReason.MAX_TOKENS,
    "content_filter": FinishReason.SAFETY,
}


def reply(completion: ChatCompletion) -> LlmResponse:
    """The first choice of a completion that wasn't streamed."""
    gathered = CompletionReply()
    gathered.note(completion)
    if not completion.choices:
        gathered.response.finish_reason = FinishReason.OTHER
    for choice in completion.choices[:1]:
        message = choice.message
        for _ in gathered.add_message(message, message.tool_calls or ()):
            pass
        gathered.add_logprobs(choice.logprobs)
        gathered.finish(choice.finish_reason)
    return gathered.whole()


class CompletionReply(Reply):
    """A completion, in chunks or whole."""

    def __init__(self) -> None:
        super().__init__()
        self.is_complete = False
        self._open: list[tuple[int | None, str | None, StreamedCall]] = []
        self._logprobs: list[Any] = []

    def note(self, completion: ChatCompletion | ChatCompletionChunk) -> None:
        if completion.model:
            self.response.model_version = completion.model
        if completion.usage is not None:
            self.response.usage_metadata = _usage(completion.usage)

    def add(self, chunk: ChatCompletionChunk) -> Iterator[LlmResponse]:
        """The partial responses of a chunk."""
        self.note(chunk)
        for choice in chunk.choices[:1]:
            yield from self.add_message(choice.delta, choice.delta.tool_calls or ())
            self.add_logprobs(choice.logprobs)
            if choice.finish_reason is not None:
                self.finish(choice.finish_reason)

    def add_message(self, message: Any, calls: Iterable[Any]) -> Iterator[LlmResponse]:
        if message.model_extra:
            for name in _REASONING_FIELDS:
                said = message.model_extra.get(name)
                if isinstance(said, str) and said:
                    yield self.add_text(said, thought=True)
                    self._reasoning_field = name
                    break
        text = (message.content or "") + (message.refusal or "")
        if text:
            self._end_thought()
            yield self.add_text(text)
        for call in calls:
            self._end_thought()
            yield from self._add_call(call)

    def finish(self, reason: str) -> None:
        self._end_thought()
        self.is_complete = True
        self.response.finish_reason = _FINISH_REASONS.get(reason, FinishReason.OTHER)
        self.response.logprobs_result, self.response.avg_logprobs = logprobs_result(self._logprobs)

    def add_logprobs(self, logprobs: Any) -> None:
        if logprobs is not None:
            self._logprobs += logprobs.content or ()

    _reasoning_field: str | None = None

    def _end_thought(self) -> None:
        if self._reasoning_field is not None:
            self.end_text(metadata={PROVIDER: {"name": self._reasoning_field}})
            self._reasoning_field = None

    def _add_call(self, delta: Any) -> Iterator[LlmResponse]:
        """Pieces belong together by their index; some servers give every call the same, or none, but its own id."""
        function = delta.function
        index: int | None = getattr(delta, "index", None)
        if function is None and getattr(delta, "type", None) != "function" and delta.id:
            return  # a custom tool's call: none was declared
        arguments = (function.arguments if function else None) or ""
        for known_index, known_id, call in reversed(self._open):
            if known_index == index and (not delta.id or not known_id or known_id == delta.id):
                if function is not None and function.name and not call.call.name:
                    call.call.name = function.name
                break
        else:
            given: JsonObject = delta.model_extra or {}
            extra = {key: value for key, value in given.items() if value is not None}
            call, partial = self.begin_call(
                (function.name if function else None) or "",
                delta.id,
                metadata={PROVIDER: extra} if extra else None,
            )
            self._open.append((index, delta.id, call))
            yield partial
        if arguments:
            yield self.add_arguments(call, arguments)


def _usage(usage: CompletionUsage) -> GenerateContentResponseUsageMetadata:
    """As the Gemini API counts: thoughts are not among the candidates' tokens."""
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


def logprobs_result(tokens: list[Any]) -> tuple[LogprobsResult | None, float | None]:
    """The log probabilities of the API's tokens, and their average."""
    if not tokens:
        return None, None
    chosen = [LogprobsResultCandidate(token=t.token, log_probability=t.logprob) for t in tokens]
    top = [
        [LogprobsResultCandidate(token=t.token, log_probability=t.logprob) for t in token.top_logprobs]
        for token in tokens
    ]
    result = LogprobsResult(
        chosen_candidates=chosen, top_candidates=[LogprobsResultTopCandidates(candidates=one) for one in top]
    )
    return result, sum(token.logprob for token in tokens) / len(tokens)
