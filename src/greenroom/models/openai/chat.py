"""Models through OpenAI's chat completions: OpenAI itself, Ollama, vLLM, or any server that speaks
the same.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from greenroom.errors import GreenroomError
from greenroom.models.conversion import request_options
from greenroom.models.error_reply import ErrorReply, error_in, not_a_reply
from greenroom.models.model import BaseLlmConnection
from greenroom.models.openai.call_deltas import CallDeltas, given_id
from greenroom.models.openai.messages import PROVIDER, completion_arguments
from greenroom.models.openai.rules import CHAT, REALTIME, chat_rules
from greenroom.models.provider import ProviderLlm, exchange
from greenroom.models.provider_names import OPENAI, provider_in
from greenroom.models.reply import ModelReply, arguments_text, finish_reason, nested, token_usage
from greenroom.models.requests.rules import RequestRules
from greenroom.records.answer_metadata import (
    Citation,
    GenerateContentResponseUsageMetadata,
    LogprobsResult,
    LogprobsResultCandidate,
    LogprobsResultTopCandidates,
)
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import Part
from greenroom.records.model_exchange import LlmRequest, LlmResponse

if TYPE_CHECKING:
    import openai

PREFIXES = frozenset({"openai", "ollama", "vllm", "groq", "openrouter", "deepseek", "mistral", "xai"})
_REASONING_FIELDS = ("reasoning_content", "reasoning")
"""Fields that DeepSeek, vLLM and others send beside `content`; OpenAI's own API doesn't."""
ApiKey = str | Callable[[], str | Awaitable[str]]
_CALL_FIELDS = frozenset({"id", "index", "type", "function"})
_FAILURES = {
    "error": "server_error",  # of Mistral and OpenRouter
    "insufficient_system_resource": "overloaded_error",  # of DeepSeek
    "abort": "server_error",  # of vLLM and SGLang
}
"""Finish reasons of replies that the server couldn't end, and the type of the error."""


class OpenAIClientLlm(ProviderLlm):
    """Base of models through OpenAI's SDK, for each of its APIs.

    base_url, api_key: as in the SDK, which otherwise reads OPENAI_BASE_URL and OPENAI_API_KEY; servers of one's own at
    `base_url` need no key. api_key may be a sync or async function, called before each request. headers: sent with each
    request, in addition to the SDK's own. client: an `AsyncOpenAI` to use instead of all three; the caller closes it.
    """

    extra: ClassVar[str] = "openai"
    package: ClassVar[str] = "openai"
    rules: ClassVar[RequestRules] = CHAT

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
        self._base_url = base_url
        self._api_key = api_key
        self._headers = headers

    @property
    def provider_name(self) -> str:
        return provider_in(self.model, default=OPENAI)

    def make_client(self) -> openai.AsyncOpenAI:
        import openai

        key = self.key()
        url = self._base_url
        headers = self._headers
        try:
            return openai.AsyncOpenAI(
                api_key=key,
                base_url=url,
                default_headers=headers,
                max_retries=0,
            )
        except openai.OpenAIError:
            if url is None:
                raise

            return openai.AsyncOpenAI(
                api_key="none",
                base_url=url,
                default_headers=headers,
                max_retries=0,
            )

    def secrets(self) -> Sequence[str | None]:
        client = self._made_client or self._given_client
        given = self._api_key if isinstance(self._api_key, str) else None
        return given, client.api_key if client else None

    def key(self) -> Any:
        """The key, or the function that gives it, as the SDK takes them."""
        api_key = self._api_key
        if api_key is None or isinstance(api_key, str):
            return api_key

        async def current() -> str:
            key = api_key()
            return await key if inspect.isawaitable(key) else key

        return current

    @asynccontextmanager
    async def connect(self, llm_request: LlmRequest) -> AsyncGenerator[BaseLlmConnection]:
        """Opens a connection to the Realtime API; `live_connect_config` of the request has its
        settings.
        """
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
                prepared, names = REALTIME.prepare(llm_request)
                connection.use(REALTIME, names)
                await connection.begin(prepared)
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
    """Chat completions.

    model: `openai/<name>` or the service's own name.

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

    def rules_for(self, request: LlmRequest) -> RequestRules:
        return chat_rules(request.model or self.model)

    def convert(self, request: LlmRequest) -> JsonObject:
        if self.max_tokens is not None and request.config.max_output_tokens is None:
            config = msgspec.structs.replace(request.config, max_output_tokens=self.max_tokens)
            request = msgspec.structs.replace(request, config=config)
        return completion_arguments(request, model=self.service_name(request))

    def send(
        self,
        client: Any,
        arguments: JsonObject,
        *,
        stream: bool,
    ) -> AsyncGenerator[LlmResponse]:
        if stream:
            arguments = {**arguments, "stream_options": {"include_usage": True}}

        return exchange(
            client,
            "/chat/completions",
            arguments,
            CompletionReply(),
            stream=stream,
            sdk=self.package,
        )


class CompletionReply(ModelReply):
    """A completion as plain JSON, in chunks or whole: OpenAI's, and those of servers compatible
    with it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._deltas = CallDeltas()
        self._logprobs: list[JsonObject] = []
        # The thought that is open: its metadata, and OpenRouter's details of it.
        self._thought: JsonObject | None = None
        self._reasoning_details: list[JsonObject] = []

    def add_whole(self, completion: JsonObject) -> None:
        if not completion.get("choices"):
            raise not_a_reply(completion, missing="choices")
        super().add_whole(completion)

    def add(self, chunk: JsonObject) -> Iterator[LlmResponse]:
        """Adds the first choice of a chunk; others are ignored."""
        if chunk.get("model"):
            self.response.model_version = chunk["model"]

        usage: JsonObject | None = chunk.get("usage")
        if usage:
            self.response.usage_metadata = _usage(usage)

        choices: list[JsonObject] = chunk.get("choices") or []
        if choices:
            yield from self._add_choice(choices[0])
        elif usage and not self.is_empty:
            self.is_complete = True  # its last chunk, of servers that give no finish reason
        else:
            error = error_in(chunk)
            if error is not None:
                raise error

    def _add_choice(self, choice: JsonObject) -> Iterator[LlmResponse]:
        delta: JsonObject | None = choice.get("delta")
        if delta:
            yield from self.add_message(delta)

        message: JsonObject | None = choice.get("message")
        if message:
            yield from self._add_whole_message(message)

        self._logprobs += nested(choice, "logprobs").get("content") or ()

        reason: str | None = choice.get("finish_reason")
        if choice.get("error") or reason in _FAILURES:
            raise _failure(choice)

        if reason:
            self._finish(reason)

    def _add_whole_message(self, message: JsonObject) -> Iterator[LlmResponse]:
        """Adds a message that isn't in pieces. In a stream, where some servers repeat it in the last chunk, only the
        parts missing from its deltas are added.
        """
        if self.is_empty:
            yield from self.add_message(message)
            return

        if not self.has_text:
            yield from self._add_content(message.get("content"))

        for position, call in enumerate(_calls_of(message)):
            if position >= len(self._calls):
                yield from self._add_calls([call])
            elif not self._calls[position].pieces:
                arguments = arguments_text(nested(call, "function").get("arguments"))
                yield self.add_arguments(self._calls[position], arguments)

    def add_message(self, message: JsonObject) -> Iterator[LlmResponse]:
        for name in _REASONING_FIELDS:
            thought = message.get(name)
            if isinstance(thought, str) and thought:
                self._thought = {"name": name}
                yield self.add_text(thought, thought=True)
                break

        for detail in message.get("reasoning_details") or ():
            self._add_reasoning_detail(detail)

        yield from self._add_content(message.get("content"))
        yield from self._add_content(message.get("refusal"))
        for note in message.get("annotations") or ():
            self._citations.append(citation(nested(note, "url_citation")))

        yield from self._add_calls(_calls_of(message))

    def _add_content(
        self,
        content: str | JsonObject | list[str | JsonObject] | None,
    ) -> Iterator[LlmResponse]:
        """Adds a text, or a list of parts, such as Mistral's: texts, thoughts and references."""
        parts = content if isinstance(content, list) else [content or ""]
        for part in parts:
            if isinstance(part, str):
                yield from self._add_answer(part)
                continue

            kind: str = part.get("type") or "text"
            if kind in ("thinking", "reasoning"):
                text = _text_of(part.get(kind) or part.get("text"))
                if text:
                    self._thought = self._thought or {"type": kind}
                    yield self.add_text(text, thought=True)
            elif kind.endswith("reference"):
                self._citations += _references(part)
            else:
                yield from self._add_answer(_text_of(part.get("text") or part.get("refusal")))

    def _add_answer(self, text: str) -> Iterator[LlmResponse]:
        if text:
            self._end_thought()
            yield self.add_text(text)

    def whole(self) -> LlmResponse:
        self._end_thought()
        return super().whole()

    def _finish(self, reason: str) -> None:
        self.is_complete = True
        self.response.finish_reason = finish_reason(reason)
        self.response.logprobs_result, self.response.avg_logprobs = logprobs_result(self._logprobs)

    def _add_reasoning_detail(self, detail: JsonObject) -> None:
        """OpenRouter's; the texts of pieces with the same index belong together."""
        details = self._reasoning_details
        if details and detail.get("index") is not None and details[-1].get("index") == detail["index"]:
            for name, value in detail.items():
                is_text = name in ("text", "summary", "data") and details[-1].get(name) and value
                if is_text:
                    details[-1][name] = details[-1][name] + value
                else:
                    details[-1][name] = value or details[-1].get(name)
        else:
            details.append(detail)

    def _end_thought(self) -> None:
        thought = self._thought

        details = self._reasoning_details
        beside: JsonObject
        if details:
            beside = {"beside": {"reasoning_details": details}}
        else:
            beside = {}

        if thought is not None:
            self.end_text(metadata={PROVIDER: {**thought, **beside}})
        elif details:  # only encrypted ones
            self.add_part(Part(text="", thought=True, part_metadata={PROVIDER: beside}))

        self._thought = None
        self._reasoning_details = []

    def _add_calls(self, deltas: Iterable[JsonObject]) -> Iterator[LlmResponse]:
        """Adds the calls of a message, or of one chunk."""
        self._deltas.begin_chunk()

        for delta in deltas:
            function: JsonObject | None = delta.get("function")
            if function is None and delta.get("type") != "function" and delta.get("id"):
                continue  # a custom tool's call: none was declared

            self._end_thought()
            name: str = nested(delta, "function").get("name") or ""
            arguments = arguments_text(nested(delta, "function").get("arguments"))

            call = self._deltas.call_of(delta, name, arguments)
            if call is None:
                extra = {key: value for key, value in delta.items() if value is not None and key not in _CALL_FIELDS}
                metadata = {PROVIDER: extra} if extra else None
                call, shown = self.begin_call(name, given_id(delta), metadata=metadata)
                self._deltas.begin(delta, call)
                yield shown
            elif name:
                call.call.name = call.call.name or name

            is_repeated = bool(name) and call.is_whole
            if arguments and not is_repeated:
                yield self.add_arguments(call, arguments)


def _calls_of(message: JsonObject) -> list[JsonObject]:
    """The calls of a message or delta: a list, one object, or OpenAI's former `function_call`."""
    calls: JsonObject | list[JsonObject] | None = message.get("tool_calls")
    if calls:
        return [calls] if isinstance(calls, dict) else calls
    former: JsonObject | None = message.get("function_call")
    return [{"type": "function", "function": former}] if former else []


def _text_of(value: str | list[str | JsonObject] | None) -> str:
    """A text, or the texts of a list of parts."""
    if value is None or isinstance(value, str):
        return value or ""
    return "".join(part if isinstance(part, str) else part.get("text") or "" for part in value)


def _references(part: JsonObject) -> list[Citation]:
    """Mistral's: of a page that its tool has found, or by the ids of documents in the prompt."""
    if part.get("url") or part.get("title"):
        return [Citation(uri=part.get("url"), title=part.get("title"))]
    ids: list[JsonValue] = part.get("reference_ids") or []
    return [Citation(title=str(one)) for one in ids]


def _failure(choice: JsonObject) -> ErrorReply:
    """The error that ended a choice."""
    error: JsonValue = choice.get("error")
    if error:
        return ErrorReply.of(error)
    reason = choice["finish_reason"]
    return ErrorReply(f"The server ended the reply with {reason!r}", kind=_FAILURES[reason])


def _usage(usage: JsonObject) -> GenerateContentResponseUsageMetadata:
    return token_usage(
        usage.get("prompt_tokens"),
        usage.get("completion_tokens"),
        usage.get("total_tokens"),
        thoughts=nested(usage, "completion_tokens_details").get("reasoning_tokens"),
        cached=nested(usage, "prompt_tokens_details").get("cached_tokens"),
    )


def citation(note: JsonObject) -> Citation:
    """Reads an annotation of OpenAI's APIs."""
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
