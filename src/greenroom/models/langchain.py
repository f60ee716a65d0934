"""Chat models of LangChain, from any package."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, ClassVar, cast

from greenroom.models.conversion import (
    as_text,
    base64_of,
    built_in_tools,
    check_settings,
    code_as_text,
    functions,
    is_model,
    json_text,
    mime_type_of,
    own,
    refused,
    response_format,
    tool_choice,
    unsupported_media,
    warn_once,
    with_newness,
)
from greenroom.models.openai.messages import ACKNOWLEDGED
from greenroom.models.openai.rules import ANY_SERVICE, MISTRAL, is_mistral
from greenroom.models.provider import ProviderLlm
from greenroom.models.reply import ModelReply, StreamedCall, finish_reason, nested, token_usage
from greenroom.models.requests.rules import RequestRules
from greenroom.models.requests.turns import BEGINNING, CONTINUE, NO_CONTENTS
from greenroom.records.base import JsonObject
from greenroom.records.content import Blob, Content, FileData, Part
from greenroom.records.model_exchange import LlmRequest, LlmResponse

if TYPE_CHECKING:
    from langchain_core.language_models.chat_models import BaseChatModel
    from langchain_core.messages import HumanMessage

PROVIDER = "langchain"

_TAKEN = frozenset({"system_instruction", "tools", "tool_config", "response_schema", "response_json_schema",
                    "response_mime_type", "stop_sequences", "http_options"})  # fmt: skip
_SETTINGS = {"temperature": "temperature", "top_p": "top_p", "top_k": "top_k", "max_output_tokens": "max_tokens",
             "seed": "seed", "presence_penalty": "presence_penalty", "frequency_penalty": "frequency_penalty",
             "response_logprobs": "logprobs", "logprobs": "top_logprobs", "service_tier": "service_tier"}  # fmt: skip
"""Of a request, and what fields of chat models are called. A chat model without the field doesn't
take the setting.
"""


class LangchainLlm(ProviderLlm):
    """A chat model of LangChain.

    chat_model: an instance, which has its own key, address and headers, and does its own retries.

    max_tokens, temperature, top_k, top_p: for requests that don't say otherwise.
    """

    extra: ClassVar[str] = "langchain"
    package: ClassVar[str] = "langchain_core"
    rules: ClassVar[RequestRules] = ANY_SERVICE

    def __init__(
        self,
        chat_model: BaseChatModel,
        *,
        max_tokens: int | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
    ) -> None:
        named = cast("Any", chat_model)
        name = getattr(named, "model_name", None) or getattr(named, "model", None) or type(chat_model).__name__
        super().__init__(str(name), client=chat_model)
        defaults = {
            "max_tokens": max_tokens,
            "temperature": temperature,
            "top_k": top_k,
            "top_p": top_p,
        }
        self._defaults: JsonObject = {key: value for key, value in defaults.items() if value is not None}

    def make_client(self) -> Any:
        raise NotImplementedError  # it is given

    def convert(self, request: LlmRequest) -> JsonObject:
        """`messages`, and `options` of the call, with `tools` and `tool_choice` among them if there
        are any.
        """
        config = request.config
        fields = self._given_client.__class__.model_fields
        check_settings(config, taken=_TAKEN | _SETTINGS.keys(), model=self.model)

        options = dict(self._defaults)
        for name, field in _SETTINGS.items():
            value = getattr(config, name)
            if value is None:
                continue
            if field in fields:
                options[field] = value
            else:
                warn_once(self.model, name)

        for name, _ in built_in_tools(request):
            raise refused(f"{self.model} has no built-in tool {name!r} in LangChain", model=self.model)

        if config.stop_sequences:
            options["stop"] = config.stop_sequences

        if (config.http_options or {}).get("headers"):
            options["extra_headers"] = (config.http_options or {})["headers"]

        wanted = response_format(config)
        if wanted is not None:
            options["response_format"] = wanted

        declarations, mode = tool_choice(request)
        if declarations and mode != "NONE":
            options["tools"] = [{"type": "function", "function": function} for function in functions(declarations)]
            if mode == "ANY":
                options["tool_choice"] = "any"

        return {"messages": _messages(request, model=self.model), "options": options}

    def rules_for(self, request: LlmRequest) -> RequestRules:
        return MISTRAL if is_mistral(self.model) else self.rules

    async def send(
        self,
        client: Any,
        arguments: JsonObject,
        *,
        stream: bool,
    ) -> AsyncGenerator[LlmResponse]:
        options = dict(arguments["options"])
        tools = options.pop("tools", None)
        if tools:
            if "tool_choice" in options:
                choice = {"tool_choice": options.pop("tool_choice")}
            else:
                choice = {}
            client = client.bind_tools(tools, **choice)

        gathered = LangchainReply()
        try:
            if not stream:
                gathered.add_whole(await client.ainvoke(arguments["messages"], **options))
                yield gathered.whole()
                return

            async with aclosing(client.astream(arguments["messages"], **options)) as chunks:
                async for chunk in chunks:
                    for shown in gathered.add(chunk):
                        yield shown
        except ValueError as error:
            if "not supported" in str(error) or "is not strict" in str(error):  # refused before it was sent
                media = ", ".join(_media_types(arguments["messages"]))
                raise refused(f"{self.model}: {error} {media}".rstrip(), model=self.model) from error
            raise

        if gathered.response.finish_reason is not None or not gathered.provider:
            yield gathered.whole()

    async def close(self) -> None:
        """The chat model is its owner's to close."""


def _messages(request: LlmRequest, *, model: str) -> list[Any]:
    """Begins with the user's message, after the system's, and ends with it or with results of tools."""
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

    out: list[Any] = []
    for content, is_new in with_newness(request.contents):
        if is_model(content):
            converted = _of_model(content)
        else:
            converted = _of_user(content, is_new=is_new, model=model)

        for message in converted:
            if is_mistral(model) and isinstance(message, HumanMessage) and out and isinstance(out[-1], ToolMessage):
                out.append(AIMessage(ACKNOWLEDGED))
            out.append(message)

    if not out:
        out.append(HumanMessage(NO_CONTENTS))

    if not isinstance(out[0], HumanMessage):
        out.insert(0, HumanMessage(BEGINNING))

    if isinstance(out[-1], AIMessage):
        out.append(HumanMessage(CONTINUE))

    system = request.config.system_text()
    if system:
        out.insert(0, SystemMessage(system))

    return out


def _of_model(content: Content) -> Iterator[Any]:
    """Texts as one string; as blocks of LangChain's standard format when there are blocks of its
    own to send back.
    """
    from langchain_core.messages import AIMessage

    blocks: list[JsonObject] = []
    calls: list[JsonObject] = []
    provider: str | None = None
    for part in content.parts or ():
        own_fields = own(part, PROVIDER)
        if part.function_call is not None:
            call = part.function_call
            tool_call = {
                "name": call.name or "",
                "args": call.args or {},
                "id": call.id,
                "type": "tool_call",
            }
            calls.append(tool_call)
        elif own_fields is not None and "block" in own_fields:
            provider = own_fields["provider"]
            block: JsonObject = dict(own_fields["block"])
            if part.thought:
                block["reasoning"] = part.text or ""
            if part.thought_signature is not None:
                block["extras"] = {**block.get("extras", {}), "signature": part.thought_signature.decode()}
            blocks.append(block)
        elif not part.thought and (text := as_text(part)):
            blocks.append({"type": "text", "text": text})

    if provider is not None:
        metadata = {"output_version": "v1", "model_provider": provider}
        yield AIMessage(
            content=cast("Any", [*blocks, *calls]),
            tool_calls=calls,
            response_metadata=metadata,
        )
    elif blocks or calls:
        yield AIMessage(content="".join(block["text"] for block in blocks), tool_calls=calls)


def _of_user(content: Content, *, is_new: bool, model: str) -> Iterator[Any]:
    """Results of tools come first: they belong to the calls before them."""
    from langchain_core.messages import HumanMessage, ToolMessage

    blocks: list[JsonObject] = []
    for part in content.parts or ():
        if part.function_response is not None:
            response = part.function_response
            text = json_text(response.response or {})
            media = [
                _media(media_part.inline_data, media_part.file_data, is_new=is_new, model=model)
                for media_part in response.parts or ()
            ]
            yield ToolMessage(
                content=cast("Any", [{"type": "text", "text": text}, *media] if media else text),
                tool_call_id=response.id,
                name=response.name,
                status="error" if "error" in (response.response or {}) else "success",
            )
        elif part.inline_data is not None or part.file_data is not None:
            blocks.append(_media(part.inline_data, part.file_data, is_new=is_new, model=model))
        elif text := part.text or code_as_text(part):
            blocks.append({"type": "text", "text": text})

    if blocks and all(block["type"] == "text" for block in blocks):
        yield HumanMessage("\n".join(block["text"] for block in blocks))
    elif blocks:
        yield HumanMessage(cast("Any", blocks))


def human_message(content: Content) -> HumanMessage | None:
    """A user's content as a message; None for one without text or media."""
    from langchain_core.messages import HumanMessage

    messages = _of_user(content, is_new=True, model="")
    return next((message for message in messages if isinstance(message, HumanMessage)), None)


def _media(blob: Blob | None, file: FileData | None, *, is_new: bool, model: str) -> JsonObject:
    mime_type = mime_type_of(blob, file)

    kind = mime_type.partition("/")[0]
    if kind == "text" and blob is not None:
        return {"type": "text", "text": (blob.data or b"").decode(errors="replace")}

    kind = kind if kind in ("image", "audio", "video") else "file"
    if blob is not None:
        extras = {"extras": {"filename": blob.display_name or f"file.{mime_type.rpartition('/')[2]}"}}
        data = {"type": kind, "base64": base64_of(blob), "mime_type": mime_type}
        return {**data, **(extras if kind == "file" else {})}

    uri = (file.file_uri if file else None) or ""
    if uri.startswith(("https://", "http://")):
        return {"type": kind, "url": uri, "mime_type": mime_type}

    return {"type": "text", "text": unsupported_media(blob, file, is_new=is_new, model=model)}


def _media_types(messages: list[Any]) -> set[str]:
    """The media types of the blocks of all messages."""
    contents: list[Any] = [message.content for message in messages]
    blocks: list[JsonObject] = [block for content in contents if not isinstance(content, str) for block in content]
    return {block["mime_type"] for block in blocks if "mime_type" in block}


class LangchainReply(ModelReply):
    """An `AIMessage`, in chunks or whole.

    provider: LangChain's name of the service, empty if unknown.
    """

    def __init__(self) -> None:
        super().__init__()
        self.provider = ""
        self._block: JsonObject = {}
        self._open: dict[Any, StreamedCall] = {}
        self._usage = Counter[str]()

    def add(self, message: Any) -> Iterator[LlmResponse]:
        metadata: JsonObject = message.response_metadata
        self.provider = metadata.get("model_provider") or self.provider

        if isinstance(message.content, str) and "reasoning_content" not in message.additional_kwargs:
            if message.content:
                yield self.add_text(message.content)
        else:
            for block in message.content_blocks:
                shown = self._add_block(block)
                if shown is not None:
                    yield shown

        calls: list[JsonObject] | None = getattr(message, "tool_call_chunks", None)
        if calls is None:
            # Their order is lost. The malformed come first, so that none runs of those that may depend on them.
            calls = [*message.invalid_tool_calls, *message.tool_calls]

        yield from self._add_calls(calls)
        reason = metadata.get("finish_reason") or metadata.get("stop_reason")
        if reason is not None:
            self.response.finish_reason = finish_reason(reason)

        self.response.model_version = metadata.get("model_name") or self.response.model_version
        if message.usage_metadata is not None:
            self._add_usage(message.usage_metadata)

    def end_text(self, **options: Any) -> None:
        if self._block:
            block = self._block
            self._block = {}
            signature = block.get("extras", {}).pop("signature", None)
            options["metadata"] = {PROVIDER: {"provider": self.provider, "block": block}}

            if isinstance(signature, str):
                options["signature"] = signature.encode()
            else:
                options["signature"] = None

        super().end_text(**options)

    def _add_block(self, block: JsonObject) -> LlmResponse | None:
        kind = block["type"]
        if kind == "text":
            return self.add_text(block["text"]) if block["text"] else None

        if kind == "reasoning":
            extras = {**self._block.get("extras", {}), **block.get("extras", {})}

            text: str = block.get("reasoning") or ""
            if text or not self._block:
                shown = self.add_text(text, thought=True)
            else:
                shown = None

            rest = {name: value for name, value in block.items() if name not in ("index", "reasoning", "extras")}
            self._block = {**self._block, **rest, "extras": extras}

            return shown if text else None

        if kind.removesuffix("_chunk") not in ("tool_call", "invalid_tool_call"):
            return self.add_part(Part(part_metadata={PROVIDER: {"provider": self.provider, "block": block}}))

        return None

    def _add_calls(self, calls: Iterable[JsonObject]) -> Iterator[LlmResponse]:
        """Chunks belong together by their index; whole calls have none, and their arguments as an
        object.
        """
        for call in calls:
            index = call.get("index")
            if index is not None and not call.get("id"):
                streamed = self._open.get(index)
            else:
                streamed = None

            if streamed is None:
                streamed, shown = self.begin_call(call["name"] or "", call["id"])
                self._open[index] = streamed
                yield shown

            if isinstance(call["args"], str | None):
                arguments = call["args"]
            else:
                arguments = json_text(call["args"])

            if arguments:
                yield self.add_arguments(streamed, arguments)

    def _add_usage(self, usage: JsonObject) -> None:
        """Adds a chunk's usage: each chunk only has the tokens since the previous one."""
        counts = {"cached": nested(usage, "input_token_details").get("cache_read"),
                  "thoughts": nested(usage, "output_token_details").get("reasoning"),
                  **{name: usage[f"{name}_tokens"] for name in ("input", "output", "total")}}  # fmt: skip
        self._usage.update({name: count or 0 for name, count in counts.items()})
        used = self._usage
        self.response.usage_metadata = token_usage(
            used["input"], used["output"], used["total"], thoughts=used["thoughts"], cached=used["cached"]
        )
