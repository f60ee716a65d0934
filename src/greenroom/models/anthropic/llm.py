"""Claude through Anthropic's Messages API, at Anthropic or on Google's Vertex AI."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, ClassVar, cast

import msgspec

from greenroom.errors import MissingProject
from greenroom.models.anthropic.messages import PROVIDER, STRUCTURED_OUTPUT, assistant_blocks, message_arguments
from greenroom.models.anthropic.rules import RULES
from greenroom.models.by_name import CLAUDE_LOCATIONS, CLAUDE_PROJECTS
from greenroom.models.conversion import json_text
from greenroom.models.error_reply import not_a_reply
from greenroom.models.model_errors import missing_variable
from greenroom.models.provider import ProviderLlm, exchange, post
from greenroom.models.provider_names import ANTHROPIC, VERTEX_AI
from greenroom.models.reply import ModelReply, StreamedCall, arguments_text, finish_reason, nested, token_usage
from greenroom.models.requests.rules import RequestRules
from greenroom.records.answer_metadata import Citation, FinishReason, GenerateContentResponseUsageMetadata
from greenroom.records.base import JsonObject
from greenroom.records.content import CodeExecutionResult, Content, ExecutableCode, Part, ToolCall, ToolResponse
from greenroom.records.model_exchange import LlmRequest, LlmResponse

if TYPE_CHECKING:
    import anthropic
    from anthropic.lib.vertex import AsyncAnthropicVertex

_PROMPT = ("model", "messages", "system", "tools", "tool_choice", "thinking", "extra_headers", "timeout")


class AnthropicLlm(ProviderLlm):
    """Claude at Anthropic.

    model: `anthropic/<name>` or the service's own name.

    max_tokens: of an answer, unless the request says otherwise.
    api_key, base_url: as in the SDK, which otherwise reads ANTHROPIC_API_KEY and
        ANTHROPIC_BASE_URL.
    headers: sent with each request.
    client: an `AsyncAnthropic` to use instead of these; the caller closes it.
    """

    extra: ClassVar[str] = "anthropic"
    package: ClassVar[str] = "anthropic"
    rules: ClassVar[RequestRules] = RULES
    max_continuations: int = 10
    """Limit of continuing one message that the service pauses amid its own tools."""

    def __init__(
        self,
        model: str = "claude-sonnet-4-20250514",
        *,
        max_tokens: int = 8192,
        api_key: str | None = None,
        base_url: str | None = None,
        headers: Mapping[str, str] | None = None,
        client: anthropic.AsyncAnthropic | AsyncAnthropicVertex | None = None,
    ) -> None:
        super().__init__(model, client=client)
        self.max_tokens = max_tokens
        self._api_key = api_key
        self._base_url = base_url
        self._headers = headers

    @property
    def provider_name(self) -> str:
        return ANTHROPIC

    def make_client(self) -> Any:
        import anthropic

        key = self._api_key

        url = self._base_url
        client = anthropic.AsyncAnthropic(
            api_key=key,
            base_url=url,
            default_headers=self._headers,
            max_retries=0,
        )
        if client.api_key is None and client.auth_token is None and client.credentials is None:
            if url is None:
                raise missing_variable("ANTHROPIC_API_KEY", model=self.model)
            return client.copy(api_key="none")  # servers of one's own need no key

        return client

    def secrets(self) -> Sequence[str | None]:
        client = self._made_client or self._given_client
        return self._api_key, getattr(client, "api_key", None), getattr(client, "auth_token", None)

    def convert(self, request: LlmRequest) -> JsonObject:
        import anthropic

        name = (request.model or self.model).removeprefix("anthropic/").rpartition("publishers/anthropic/models/")[2]
        return message_arguments(
            request, model=name, max_tokens=self.max_tokens, transform_schema=anthropic.transform_schema
        )

    async def count(self, client: Any, arguments: JsonObject) -> int | None:
        prompt = {name: arguments[name] for name in _PROMPT if name in arguments}
        return (await post(client, "/v1/messages/count_tokens", prompt)).get("input_tokens")

    async def send(
        self,
        client: Any,
        arguments: JsonObject,
        *,
        stream: bool,
    ) -> AsyncGenerator[LlmResponse]:
        """Sends a message that the service paused back as often as it does, within the limits of a call.

        Source: https://docs.anthropic.com/en/api/handling-stop-reasons (pause_turn)
        """
        reply = ClaudeReply()
        sent: JsonObject = arguments
        for continuations_left in range(self.max_continuations, -1, -1):
            async with aclosing(
                exchange(client, "/v1/messages", sent, reply, stream=stream, sdk=self.package)
            ) as responses:
                async for response in responses:
                    if response.partial or not reply.is_paused:
                        yield response
                    elif not continuations_left:
                        response.error_code = FinishReason.OTHER
                        response.finish_reason = FinishReason.OTHER
                        response.error_message = f"The service paused the message {self.max_continuations + 1} times"
                        yield response

            if not reply.is_paused:
                return

            blocks = assistant_blocks(
                Content(role="model", parts=reply.parts),
                model=arguments["model"],
            )
            sent = {**arguments, "messages": [*arguments["messages"], {"role": "assistant", "content": blocks}]}
            reply.continue_turn()


class Claude(AnthropicLlm):
    """Claude on Vertex AI.

    project, location: else from GOOGLE_CLOUD_PROJECT and GOOGLE_CLOUD_LOCATION.
    credentials: of `google.auth`, else the environment's default ones.
    headers, client: as in `AnthropicLlm`; client is an `AsyncAnthropicVertex`.
    """

    def __init__(
        self,
        model: str = "claude-3-5-sonnet-v2@20241022",
        *,
        max_tokens: int = 8192,
        project: str | None = None,
        location: str | None = None,
        credentials: Any = None,
        base_url: str | None = None,
        headers: Mapping[str, str] | None = None,
        client: AsyncAnthropicVertex | None = None,
    ) -> None:
        super().__init__(
            model,
            max_tokens=max_tokens,
            base_url=base_url,
            headers=headers,
            client=client,
        )
        self._project = project
        self._location = location
        self._credentials = credentials

    @property
    def provider_name(self) -> str:
        return VERTEX_AI

    def make_client(self) -> Any:
        from anthropic.lib.vertex import AsyncAnthropicVertex

        project = self._project or _variable(CLAUDE_PROJECTS)
        location = self._location or _variable(CLAUDE_LOCATIONS)
        if not project or not location:
            if project:
                variable = "GOOGLE_CLOUD_LOCATION"
            else:
                variable = "GOOGLE_CLOUD_PROJECT"
            detail = f"The model {self.model!r} needs the environment variable {variable}"
            raise MissingProject(detail, model=self.model, category="AUTH_ERROR")

        return AsyncAnthropicVertex(
            project_id=project,
            region=location,
            credentials=self._credentials,
            base_url=self._base_url,
            default_headers=self._headers,
            max_retries=0,
        )


def _variable(names: Sequence[str]) -> str | None:
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


class ClaudeReply(ModelReply):
    """A message as plain JSON, in stream events or whole: Anthropic's, and those of servers
    compatible with it.

    is_paused: the service has stopped amid its own tools, and wants the message back to continue
    it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.is_paused = False
        self._usage: JsonObject = {}
        self._earlier_usage: list[JsonObject] = []
        # The open block: its beginning and its deltas.
        self._block: JsonObject = {}
        self._call: StreamedCall | None = None
        self._json: list[str] = []
        self._signature = ""

    def add_whole(self, message: JsonObject) -> None:
        if message.get("content") is None and message.get("stop_reason") is None:
            raise not_a_reply(message, missing="content")
        for _ in self._add_message(message):
            pass
        self._finish(message)

    def add(self, event: JsonObject) -> Iterator[LlmResponse]:
        """The partial responses of a stream event."""
        kind: str = event.get("type") or ""
        if kind == "content_block_delta":
            yield from self._add_delta(event["delta"])
        elif kind == "content_block_start":
            yield from self._begin(event["content_block"])
        elif kind == "content_block_stop":
            yield from self._end()
        elif kind == "message_start":
            yield from self._add_message(event["message"])
        elif kind == "message_delta":
            self._note_usage(event.get("usage"))
            if nested(event, "delta").get("stop_reason") is not None:
                yield from self._end()
                self._finish(event["delta"])
        elif kind == "message_stop":
            yield from self._end()
            self.is_complete = True
        elif kind == "error" or not kind:
            raise not_a_reply(event, missing="type")

    def continue_turn(self) -> None:
        """Prepares for the rest of a message that was paused."""
        self.is_paused = False
        self.is_complete = False
        self._earlier_usage.append(self._usage)
        self._usage = {}

    def _add_message(self, message: JsonObject) -> Iterator[LlmResponse]:
        """Adds a message with the blocks that it has; in a stream, most services send none with its
        start.
        """
        self.response.model_version = message.get("model")
        self._note_usage(message.get("usage"))
        content: str | list[JsonObject] = message.get("content") or []
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            yield from self._begin(block)
            yield from self._end()

    def _add_delta(self, delta: JsonObject) -> Iterator[LlmResponse]:
        kind: str = delta["type"]
        if kind in ("text_delta", "thinking_delta"):
            yield from self._add_piece(delta.get(kind.removesuffix("_delta")), thought=kind == "thinking_delta")
        elif kind == "input_json_delta":
            piece = arguments_text(delta.get("partial_json"))
            if self._call is None:
                self._json.append(piece)
            elif piece:
                yield from self._shown(self._call, self.add_arguments(self._call, piece))
        elif kind == "signature_delta":
            self._signature += delta["signature"]
        elif kind == "citations_delta":
            self._block["citations"] = [*(self._block.get("citations") or ()), delta["citation"]]

    def _add_piece(self, text: str | None, *, thought: bool) -> Iterator[LlmResponse]:
        if text:
            yield self.add_text(text, thought=thought)

    def _shown(self, call: StreamedCall, response: LlmResponse) -> Iterator[LlmResponse]:
        """Hides calls of the tool through which earlier models return structured answers."""
        if call.call.name != STRUCTURED_OUTPUT:
            yield response

    def whole(self) -> LlmResponse:
        for index, part in enumerate(self.parts):
            call = part.function_call
            if call is not None and call.name == STRUCTURED_OUTPUT:
                for streamed in [streamed_call for streamed_call in self._calls if streamed_call.call is call]:
                    self._calls.remove(streamed)
                    self.parts[index] = Part(text=_unwrapped(streamed.text))

        if self._usage:
            self.response.usage_metadata = _token_usage([*self._earlier_usage, self._usage])

        return super().whole()

    def _begin(self, block: JsonObject) -> Iterator[LlmResponse]:
        """Begins a block. Its content is its first piece, except for a call's input, which may come in deltas."""
        yield from self._end()
        kind: str = block["type"]
        self._block = dict(block)
        self._signature = block.get("signature") or ""

        if kind == "tool_use":
            extra = {name: block[name] for name in block if name not in ("type", "id", "name", "input")}
            metadata = {PROVIDER: extra} if extra else None
            self._call, shown = self.begin_call(block["name"], block.get("id"), metadata=metadata)
            yield from self._shown(self._call, shown)
        elif kind in ("text", "thinking"):
            yield from self._add_piece(block.get(kind), thought=kind == "thinking")

    def _end(self) -> Iterator[LlmResponse]:
        """Ends the open block, if any."""
        block = self._block
        kind = block.get("type")
        call = self._call
        pieces = "".join(self._json)
        self._block = {}
        self._call = None
        self._json.clear()

        if call is not None:
            block_input = block.get("input")
            if block_input and not call.pieces:
                yield from self._shown(call, self.add_arguments(call, arguments_text(block_input)))
        elif kind == "thinking":
            self.end_text(
                signature=self._signature.encode() or None,
                metadata={PROVIDER: {"type": "thinking"}},
            )
        elif kind == "redacted_thinking":
            self.end_text()
            self.end_text(signature=block["data"].encode(), metadata={PROVIDER: {"type": kind}})
        elif kind == "text":
            citations: list[JsonObject] = block.get("citations") or []
            self.end_text(metadata={PROVIDER: {"citations": citations}} if citations else None)
            for citation in citations:
                title = citation.get("title") or citation.get("document_title")
                self._citations.append(Citation(uri=citation.get("url"), title=title))
        elif kind is not None:
            if pieces.strip():
                block["input"] = msgspec.json.decode(pieces)
            self.add_part(_part_of(block))

    def _finish(self, end: JsonObject) -> None:
        self.is_complete = True
        reason: str | None = end.get("stop_reason")
        self.is_paused = reason == "pause_turn"

        if reason is not None:
            self.response.finish_reason = finish_reason(reason)
        else:
            self.response.finish_reason = None

        if reason == "refusal":
            details = nested(end, "stop_details")
            self.response.error_message = details.get("explanation") or details.get("category")

    def _note_usage(self, usage: JsonObject | None) -> None:
        """Later events repeat the counts that have changed."""
        self._usage |= {name: value for name, value in (usage or {}).items() if value is not None}


def _token_usage(messages: Iterable[JsonObject]) -> GenerateContentResponseUsageMetadata:
    """Returns the total usage of a message and of the paused messages that it continues."""
    prompt = 0

    output = 0
    cached = 0
    thoughts = 0
    for usage in messages:
        read: int = usage.get("cache_read_input_tokens", 0)
        written: int = usage.get("cache_creation_input_tokens", 0)
        cached += read
        prompt += usage.get("input_tokens", 0) + read + written
        output += usage.get("output_tokens", 0)
        thoughts += nested(usage, "output_tokens_details").get("thinking_tokens") or 0

    return token_usage(prompt, output, thoughts=thoughts or None, cached=cached)


def _part_of(block: JsonObject) -> Part:
    """Converts a block of a tool that the service has run, or of an unknown kind, which is stored to be sent back."""
    kind = str(block.get("type"))

    content = block.get("content")
    if isinstance(content, dict):
        result = cast("JsonObject", content)
    else:
        result = {}

    metadata = {PROVIDER: block}
    if kind == "server_tool_use":
        call_id = block.get("id")
        name = block.get("name")
        args: JsonObject = block.get("input") or {}
        if name == "code_execution" and isinstance(args.get("code"), str):
            code = ExecutableCode(id=call_id, code=args["code"], language="PYTHON")
            return Part(executable_code=code, part_metadata=metadata)

        return Part(
            tool_call=ToolCall(id=call_id, tool_type=name, args=args),
            part_metadata=metadata,
        )

    if not kind.endswith("_tool_result"):
        return Part(part_metadata=metadata)

    if "return_code" in result:
        executed = CodeExecutionResult(
            id=block.get("tool_use_id"),
            outcome="OUTCOME_FAILED" if result["return_code"] else "OUTCOME_OK",
            output=(result.get("stdout") or "") + (result.get("stderr") or ""),
        )
        return Part(code_execution_result=executed, part_metadata=metadata)

    response = ToolResponse(
        id=block.get("tool_use_id"), tool_type=kind.removesuffix("_tool_result"), response={"content": content}
    )
    rest = {key: value for key, value in block.items() if key != "content"}

    return Part(tool_response=response, part_metadata={PROVIDER: rest})


def _unwrapped(arguments: str) -> str:
    answer = msgspec.json.decode(arguments or "{}", type=JsonObject)
    if list(answer) == [STRUCTURED_OUTPUT]:
        return json_text(answer[STRUCTURED_OUTPUT])
    return arguments
