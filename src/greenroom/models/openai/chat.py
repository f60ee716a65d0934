"""Models behind OpenAI's chat completions: OpenAI itself, Ollama, vLLM, or any server that speaks the same."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from greenroom.errors import GreenroomError
from greenroom.models.conversion import request_options
from greenroom.models.model import BaseLlmConnection
from greenroom.models.openai.messages import PROVIDER, completion_arguments
from greenroom.models.provider import ProviderLlm, exchange
from greenroom.models.reply import Reply, StreamedCall, finish_reason, nested, token_usage
from greenroom.records.answer_metadata import (
    Citation,
    FinishReason,
    GenerateContentResponseUsageMetadata,
    LogprobsResult,
    LogprobsResultCandidate,
    LogprobsResultTopCandidates,
)
from greenroom.records.base import JsonObject
from greenroom.records.content import Part
from greenroom.records.model_exchange import LlmRequest, LlmResponse

if TYPE_CHECKING:
    import openai

PREFIXES = frozenset({"openai", "ollama", "vllm", "groq", "openrouter", "deepseek", "mistral", "xai"})
_REASONING_FIELDS = ("reasoning_content", "reasoning")
"""Fields that DeepSeek, vLLM and others send beside `content`; OpenAI's own API doesn't."""
ApiKey = str | Callable[[], str | Awaitable[str]]
_CALL_FIELDS = frozenset({"id", "index", "type", "function"})


class OpenAIClientLlm(ProviderLlm):
    """A model behind OpenAI's SDK, whichever of its APIs.

    base_url, api_key: as in the SDK, which otherwise reads OPENAI_BASE_URL and OPENAI_API_KEY; servers of one's own at
    `base_url` need no key. api_key may be a sync or async function, called before each request. headers: sent with each
    request, in addition to the SDK's own. client: an `AsyncOpenAI` to use instead of all three; the caller closes it.
    """

    extra: ClassVar[str] = "openai"
    package: ClassVar[str] = "openai"

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: ApiKey | None = None,
        headers: Mapping[str, str] | None = None,
        client: openai.AsyncOpenAI | None = None,
    ) -> None:
        super().__init__(model, client=client)
        self._base_url, self._api_key, self._headers = base_url, api_key, headers

    def make_client(self) -> openai.AsyncOpenAI:
        import openai

        key, url, headers = self.key(), self._base_url, self._headers
        try:
            return openai.AsyncOpenAI(api_key=key, base_url=url, default_headers=headers, max_retries=0)
        except openai.OpenAIError:
            if url is None:
                raise
            return openai.AsyncOpenAI(api_key="none", base_url=url, default_headers=headers, max_retries=0)

    def secrets(self) -> Sequence[str | None]:
        client = self._made_client or self._given_client
        given = self._api_key if isinstance(self._api_key, str) else None
        return given, client.api_key if client else None

    def key(self) -> Any:
        """The key, or the function that gives it, as the SDK takes them."""
        given = self._api_key
        if given is None or isinstance(given, str):
            return given

        async def current() -> str:
            key = given()
            return await key if inspect.isawaitable(key) else key

        return current

    @asynccontextmanager
    async def connect(self, llm_request: LlmRequest) -> AsyncGenerator[BaseLlmConnection]:
        """Opens a connection to the Realtime API; `live_connect_config` of the request has its settings."""
        client = await self.load()
        from greenroom.models.live import connection_error
        from greenroom.models.openai.realtime import RealtimeConnection

        name = self.service_name(llm_request)
        async with AsyncExitStack() as stack:
            try:
                headers: JsonObject = request_options(llm_request.config).get("extra_headers") or {}
                connecting = client.realtime.connect(model=name, extra_headers=headers)
                socket = await stack.enter_async_context(connecting)
                connection = RealtimeConnection(socket, model=self.model, secrets=self.secrets())
                await connection.begin(llm_request)
            except GreenroomError:
                raise
            except Exception as error:
                raise connection_error(error, model=self.model, secrets=self.secrets()) from error
            yield connection

    def service_name(self, request: LlmRequest) -> str:
        """The model's name without the prefix that chose this class or server."""
        name = request.model or self.model
        prefix, _, rest = name.partition("/")
        return rest if rest and prefix in PREFIXES else name


class OpenAILlm(OpenAIClientLlm):
    """Chat completions. model: `openai/<name>` or the service's own name.

    max_tokens: for requests that don't say otherwise; by default the service's own limit.
    """

    def __init__(
        self,
        model: str = "gpt-4o",
        *,
        max_tokens: int | None = None,
        base_url: str | None = None,
        api_key: ApiKey | None = None,
        headers: Mapping[str, str] | None = None,
        client: openai.AsyncOpenAI | None = None,
    ) -> None:
        super().__init__(model, base_url=base_url, api_key=api_key, headers=headers, client=client)
        self.max_tokens = max_tokens

    def convert(self, request: LlmRequest) -> JsonObject:
        if self.max_tokens is not None and request.config.max_output_tokens is None:
            config = msgspec.structs.replace(request.config, max_output_tokens=self.max_tokens)
            request = msgspec.structs.replace(request, config=config)
        return completion_arguments(request, model=self.service_name(request))

    def send(self, client: Any, arguments: JsonObject, *, stream: bool) -> AsyncGenerator[LlmResponse]:
        if stream:
            arguments = {**arguments, "stream_options": {"include_usage": True}}
        return exchange(client, "/chat/completions", arguments, CompletionReply(), stream=stream, sdk=self.package)


class CompletionReply(Reply):
    """A completion as plain JSON, in chunks or whole."""

    def __init__(self) -> None:
        super().__init__()
        self._open: list[tuple[int | None, str | None, StreamedCall]] = []
        self._logprobs: list[JsonObject] = []
        self._reasoning_field: str | None = None
        self._reasoning_details: list[JsonObject] = []

    def add_whole(self, completion: JsonObject) -> None:
        super().add_whole(completion)
        if not completion.get("choices"):
            self.response.finish_reason = FinishReason.OTHER

    def add(self, chunk: JsonObject) -> Iterator[LlmResponse]:
        """Only the first choice is read."""
        if chunk.get("model"):
            self.response.model_version = chunk["model"]
        usage = chunk.get("usage")
        if usage is not None:
            self.response.usage_metadata = _usage(usage)
        for choice in (chunk.get("choices") or ())[:1]:
            yield from self.add_message(choice.get("message") or nested(choice, "delta"))
            self._logprobs += nested(choice, "logprobs").get("content") or ()
            if choice.get("finish_reason") is not None:
                self._finish(choice["finish_reason"])

    def add_message(self, message: JsonObject) -> Iterator[LlmResponse]:
        for name in _REASONING_FIELDS:
            said = message.get(name)
            if isinstance(said, str) and said:
                self._reasoning_field = name
                yield self.add_text(said, thought=True)
                break
        for detail in message.get("reasoning_details") or ():
            self._add_reasoning_detail(detail)
        text: str = (message.get("content") or "") + (message.get("refusal") or "")
        if text:
            self._end_thought()
            yield self.add_text(text)
        for note in message.get("annotations") or ():
            self._citations.append(citation(nested(note, "url_citation")))
        for call in message.get("tool_calls") or ():
            self._end_thought()
            yield from self._add_call(call)

    def _finish(self, reason: str) -> None:
        self._end_thought()
        self.is_complete = True
        self.response.finish_reason = finish_reason(reason)
        self.response.logprobs_result, self.response.avg_logprobs = logprobs_result(self._logprobs)

    def _add_reasoning_detail(self, detail: JsonObject) -> None:
        """OpenRouter's; the texts of pieces with the same index belong together."""
        known = self._reasoning_details
        if known and detail.get("index") is not None and known[-1].get("index") == detail["index"]:
            for name, value in detail.items():
                is_text = name in ("text", "summary", "data") and known[-1].get(name) and value
                known[-1][name] = known[-1][name] + value if is_text else value or known[-1].get(name)
        else:
            known.append(detail)

    def _end_thought(self) -> None:
        name, details = self._reasoning_field, self._reasoning_details
        beside: JsonObject = {"beside": {"reasoning_details": details}} if details else {}
        if name is not None:
            self.end_text(metadata={PROVIDER: {"name": name, **beside}})
        elif details:  # only encrypted ones
            self.add_part(Part(text="", thought=True, part_metadata={PROVIDER: beside}))
        self._reasoning_field, self._reasoning_details = None, []

    def _add_call(self, delta: JsonObject) -> Iterator[LlmResponse]:
        """Pieces belong together by their index; some servers give every call the same, or none, but its own id."""
        function: JsonObject | None = delta.get("function")
        index, call_id = delta.get("index"), delta.get("id")
        if function is None and delta.get("type") != "function" and call_id:
            return  # a custom tool's call: none was declared
        name, arguments = (function or {}).get("name") or "", (function or {}).get("arguments") or ""
        for known_index, known_id, call in reversed(self._open):
            if known_index == index and (not call_id or not known_id or known_id == call_id):
                call.call.name = call.call.name or name
                break
        else:
            extra = {key: value for key, value in delta.items() if value is not None and key not in _CALL_FIELDS}
            call, shown = self.begin_call(name, call_id, metadata={PROVIDER: extra} if extra else None)
            self._open.append((index, call_id, call))
            yield shown
        if arguments:
            yield self.add_arguments(call, arguments)


def _usage(usage: JsonObject) -> GenerateContentResponseUsageMetadata:
    return token_usage(
        usage.get("prompt_tokens"),
        usage.get("completion_tokens"),
        usage.get("total_tokens"),
        thoughts=nested(usage, "completion_tokens_details").get("reasoning_tokens"),
        cached=nested(usage, "prompt_tokens_details").get("cached_tokens"),
    )


def citation(note: JsonObject) -> Citation:
    """Of an annotation of OpenAI's APIs."""
    return Citation(
        uri=note.get("url"),
        title=note.get("title") or note.get("filename"),
        start_index=note.get("start_index"),
        end_index=note.get("end_index"),
    )


def logprobs_result(tokens: list[JsonObject]) -> tuple[LogprobsResult | None, float | None]:
    """The log probabilities of the API's tokens, and their average."""
    if not tokens:
        return None, None
    top = [LogprobsResultTopCandidates(candidates=_candidates(one.get("top_logprobs") or ())) for one in tokens]
    result = LogprobsResult(chosen_candidates=_candidates(tokens), top_candidates=top)
    return result, sum(one["logprob"] for one in tokens) / len(tokens)


def _candidates(tokens: Sequence[JsonObject]) -> list[LogprobsResultCandidate]:
    return [LogprobsResultCandidate(token=one["token"], log_probability=one["logprob"]) for one in tokens]
