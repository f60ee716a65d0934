"""Models through OpenAI's Responses API, at OpenAI or on Azure."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from greenroom.models.conversion import base64_bytes
from greenroom.models.error_reply import ErrorReply, not_a_reply
from greenroom.models.model_errors import missing_variable
from greenroom.models.openai.chat import ApiKey, OpenAIClientLlm, citation, logprobs_result
from greenroom.models.openai.items import PROVIDER, response_arguments
from greenroom.models.openai.rules import RESPONSES
from greenroom.models.provider import exchange, post
from greenroom.models.provider_names import AZURE_OPENAI
from greenroom.models.reply import ModelReply, StreamedCall, arguments_text, finish_reason, nested, token_usage
from greenroom.models.requests.rules import RequestRules
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import Blob, CodeExecutionResult, ExecutableCode, Part, ToolCall
from greenroom.records.model_exchange import LlmRequest, LlmResponse

if TYPE_CHECKING:
    import openai

_COUNTED = ("model", "input", "instructions", "previous_response_id", "tools", "tool_choice", "text", "reasoning",
            "extra_headers", "timeout")  # fmt: skip


class OpenAIResponsesLlm(OpenAIClientLlm):
    """OpenAI's models over the Responses API.

    model, api_key, base_url, headers, client: as in `OpenAILlm`.

    store, include, reasoning, parallel_tool_calls, truncation, service_tier: of the API, for
        requests that don't say otherwise.
    extra_request_args: further arguments of the SDK's `responses.create`.
    include_response_metadata: id, status and service tier of the response, under `openai_response`
        in the custom metadata.
    """

    rules: ClassVar[RequestRules] = RESPONSES

    def __init__(
        self,
        model: str = "gpt-5",
        *,
        base_url: str | None = None,
        api_key: ApiKey | None = None,
        headers: Mapping[str, str] | None = None,
        client: openai.AsyncOpenAI | None = None,
        store: bool | None = None,
        include: list[str] | None = None,
        reasoning: JsonObject | None = None,
        parallel_tool_calls: bool | None = None,
        truncation: str | None = None,
        service_tier: str | None = None,
        include_response_metadata: bool = True,
        extra_request_args: JsonObject | None = None,
    ) -> None:
        super().__init__(model, base_url=base_url, api_key=api_key, headers=headers, client=client)
        if store is False and include is None:
            include = ["reasoning.encrypted_content"]  # thoughts must be sent back

        self._defaults: JsonObject = {
            "store": store, "include": include, "reasoning": reasoning, "parallel_tool_calls": parallel_tool_calls,
            "truncation": truncation, "service_tier": service_tier, **(extra_request_args or {}),
        }  # fmt: skip
        self._include_metadata = include_response_metadata

    def convert(self, request: LlmRequest) -> JsonObject:
        arguments = response_arguments(request, model=self.service_name(request))
        defaults = {name: value for name, value in self._defaults.items() if value is not None}
        if "include" in defaults and "include" in arguments:
            defaults["include"] = arguments["include"] = [*defaults["include"], *arguments["include"]]
        return {**defaults, **arguments}

    def send(
        self,
        client: Any,
        arguments: JsonObject,
        *,
        stream: bool,
    ) -> AsyncGenerator[LlmResponse]:
        reply = ResponsesReply(include_metadata=self._include_metadata)
        return exchange(client, "/responses", arguments, reply, stream=stream, sdk=self.package)

    async def count(self, client: Any, arguments: JsonObject) -> int | None:
        prompt = {name: arguments[name] for name in _COUNTED if name in arguments}
        return (await post(client, "/responses/input_tokens", prompt)).get("input_tokens")


class AzureOpenAIResponsesLlm(OpenAIResponsesLlm):
    """OpenAI's models on Azure, over the Responses API.

    azure_endpoint: else AZURE_OPENAI_ENDPOINT. api_key: else AZURE_OPENAI_API_KEY.
    model: the deployment's name.
    """

    def __init__(
        self,
        model: str = "gpt-5",
        *,
        azure_endpoint: str | None = None,
        **arguments: Any,
    ) -> None:
        super().__init__(model, **arguments)
        self._endpoint = azure_endpoint

    @property
    def provider_name(self) -> str:
        return AZURE_OPENAI

    def make_client(self) -> openai.AsyncOpenAI:
        endpoint = self._endpoint or os.environ.get("AZURE_OPENAI_ENDPOINT")
        key = self.key() or os.environ.get("AZURE_OPENAI_API_KEY")
        if (not self._base_url and not endpoint) or not key:
            if endpoint or self._base_url:
                missing = "AZURE_OPENAI_API_KEY"
            else:
                missing = "AZURE_OPENAI_ENDPOINT"
            raise missing_variable(missing, model=self.model)

        import openai

        url = self._base_url or f"{endpoint}".rstrip("/") + "/openai/v1/"

        return openai.AsyncOpenAI(
            api_key=key,
            base_url=url,
            default_headers=self._headers,
            max_retries=0,
        )


class ResponsesReply(ModelReply):
    """Builds a reply from a response in plain JSON, streamed or complete, of OpenAI or of compatible servers.

    An item may come complete at its beginning, in deltas, with the `done` event of its arguments or its own, or only in
    the last event, with the complete response. Each event adds what earlier events did not contain.
    """

    def __init__(self, *, include_metadata: bool) -> None:
        super().__init__()
        self._include_metadata = include_metadata
        self._calls_at: dict[JsonValue, StreamedCall] = {}
        """Calls that have begun, by index, id and call id of their items."""
        self._shown: set[JsonValue] = set()
        """Indexes and ids of the items of text deltas; the type of items without either."""
        self._done: set[JsonValue] = set()
        """Indexes and ids of items that are complete."""
        self._unnumbered_done = 0
        self._has_reasoned = False
        self._logprobs: list[JsonObject] = []

    def add_whole(self, response: JsonObject) -> None:
        for _ in self._end(response):
            pass

    def add(self, event: JsonObject) -> Iterator[LlmResponse]:
        """The partial responses of a stream event."""
        kind: str = event.get("type") or ""
        if kind in ("response.output_text.delta", "response.refusal.delta"):
            self._note_shown(event, "message")
            yield self.add_text(event.get("delta") or "")
        elif kind in ("response.reasoning_summary_text.delta", "response.reasoning_text.delta"):
            self._note_shown(event, "reasoning")
            yield self.add_text(event.get("delta") or "", thought=True)
        elif kind == "response.reasoning_summary_part.added":
            if (event.get("summary_index") or 0) > 0:
                yield self.add_text("\n\n", thought=True)
        elif kind in ("response.function_call_arguments.delta", "response.function_call_arguments.done"):
            yield from self._add_event_of_call(event)
        elif kind == "response.output_item.added":
            if event["item"].get("type") == "function_call":
                yield self._begin_call(event["item"], event.get("output_index"))
        elif kind == "response.output_item.done":
            yield from self._add_item(event["item"], event.get("output_index"))
        elif kind in ("response.completed", "response.incomplete", "response.failed"):
            yield from self._end(event["response"])
        elif kind == "error" or not kind:
            raise not_a_reply(event, missing="type")

    def _note_shown(self, event: JsonObject, kind: str) -> None:
        self._shown |= _keys(event.get("output_index"), event.get("item_id")) or {kind}

    def _add_event_of_call(self, event: JsonObject) -> Iterator[LlmResponse]:
        """Adds a piece of arguments, or all of them if there were no pieces; without a key to the
        newest call.
        """
        keys = _keys(event.get("output_index"), event.get("item_id"), event.get("call_id"))
        call = next((self._calls_at[key] for key in keys if key in self._calls_at), None)
        if call is None and not keys and self._calls:
            call = self._calls[-1]

        if call is None:
            return

        if "delta" in event:
            piece = arguments_text(event["delta"])
            if piece:
                yield self.add_arguments(call, piece)
        else:
            yield from self._add_missing_arguments(call, event)

    def _begin_call(self, item: JsonObject, index: int | None) -> LlmResponse:
        call, shown = self.begin_call(item["name"], item.get("call_id") or item.get("id"))
        for key in _keys(index, item.get("id"), item.get("call_id")):
            self._calls_at.setdefault(key, call)
        return shown

    def _add_missing_arguments(
        self,
        call: StreamedCall,
        given: JsonObject,
    ) -> Iterator[LlmResponse]:
        arguments = arguments_text(given.get("arguments"))
        if arguments and not call.pieces:
            yield self.add_arguments(call, arguments)

    def _add_item(self, item: JsonObject, index: int | None) -> Iterator[LlmResponse]:
        """Adds an item that is complete, of which deltas may have been shown."""
        keys = _keys(index, item.get("id"))
        self._done |= keys
        if index is None:
            self._unnumbered_done += 1

        kind: str = item.setdefault("type", "message")
        if kind == "function_call":
            yield from self._add_call(item, index)
            return

        is_shown = bool(self._shown & keys) or kind in self._shown
        self._shown.discard(kind)

        if kind == "reasoning":
            yield from self._add_reasoning(item, is_shown=is_shown)
        elif kind == "message":
            yield from self._add_message(item, is_shown=is_shown)
        else:
            shown, *_ = [self.add_part(part) for part in _parts_of(item)]
            yield shown

    def _add_call(self, item: JsonObject, index: int | None) -> Iterator[LlmResponse]:
        keys = _keys(index, item.get("id"), item.get("call_id"))

        call = next((self._calls_at[key] for key in keys if key in self._calls_at), None)
        if call is None:
            yield self._begin_call(item, index)
            call = self._calls[-1]

        self._calls_at = {key: reply_call for key, reply_call in self._calls_at.items() if reply_call is not call}
        rest = {name: item[name] for name in item if name not in ("type", "call_id", "name", "arguments")}
        next(part for part in self.parts if part.function_call is call.call).part_metadata = {PROVIDER: rest}
        yield from self._add_missing_arguments(call, item)

    def _end(self, response: JsonObject) -> Iterator[LlmResponse]:
        """Adds the values that only the complete response has. Raises ErrorReply for a failed one."""
        status: str | None = response.get("status")
        if status in ("failed", "cancelled"):
            raise ErrorReply.of(response.get("error") or f"The response was {status}")

        output: list[JsonObject] | None = response.get("output")
        text: str | None = response.get("output_text")
        if output is None and not text and self.is_empty:
            raise not_a_reply(response, missing="output")

        unnumbered_done = self._unnumbered_done
        for index, item in enumerate(output or ()):
            if index >= unnumbered_done and not self._done & _keys(index, item.get("id")):
                yield from self._add_item(item, index)

        if text and self.is_empty:
            yield self.add_text(text)

        self._finish(response)

    def _finish(self, response: JsonObject) -> None:
        self.is_complete = True
        out = self.response
        out.model_version = response.get("model")
        out.interaction_id = response.get("id")
        reason: str | None = nested(response, "incomplete_details").get("reason")
        out.finish_reason = finish_reason(reason or response.get("status") or "completed")

        usage: JsonObject | None = response.get("usage")
        if usage:
            out.usage_metadata = token_usage(
                usage.get("input_tokens"),
                usage.get("output_tokens"),
                usage.get("total_tokens"),
                thoughts=nested(usage, "output_tokens_details").get("reasoning_tokens"),
                cached=nested(usage, "input_tokens_details").get("cached_tokens"),
            )

        out.logprobs_result, out.avg_logprobs = logprobs_result(self._logprobs)

        if self._include_metadata:
            facts = {name: response[name] for name in ("id", "status", "service_tier") if response.get(name)}
            out.custom_metadata = {"openai_response": facts}

    def _add_reasoning(self, item: JsonObject, *, is_shown: bool) -> Iterator[LlmResponse]:
        self._has_reasoned = True
        contents = _contents(item.get("summary") or item.get("content"))

        text = "\n\n".join(filter(None, map(_text_of, contents)))
        if text and not is_shown and text != self.open_text:
            self.end_text()
            yield self.add_text(text, thought=True)

        encrypted: str = item.pop("encrypted_content", None) or ""
        if encrypted:
            self.end_text(signature=encrypted.encode(), metadata={PROVIDER: item})
        else:
            self.end_text(metadata={PROVIDER: {}})  # the API stores it

    def _add_message(self, item: JsonObject, *, is_shown: bool) -> Iterator[LlmResponse]:
        contents = _contents(item.get("content"))

        text = "".join(map(_text_of, contents))
        if text and not is_shown and text != self.open_text:
            self.end_text()
            yield self.add_text(text)

        annotations: list[JsonObject] = [note for content in contents for note in content.get("annotations") or ()]
        self._citations += [citation(note) for note in annotations]
        for content in contents:
            self._logprobs += content.get("logprobs") or ()

        if not annotations:
            item.pop("content", None)

        is_needed = annotations or self._has_reasoned or item.get("phase")
        self.end_text(metadata={PROVIDER: item} if is_needed else None)


def _keys(*given: JsonValue) -> set[JsonValue]:
    return {key for key in given if key is not None}


def _contents(given: str | list[str | JsonObject] | None) -> list[JsonObject]:
    """The contents of an item, which some servers send as text."""
    contents = [given] if isinstance(given, str) else given or []
    return [{"text": one} if isinstance(one, str) else one for one in contents]


def _text_of(content: JsonObject) -> str:
    return content.get("text") or content.get("refusal") or ""


def _parts_of(item: JsonObject) -> list[Part]:
    """Converts an item of a tool that the service has run, or of an unknown kind, which is stored to be sent back."""
    kind: str = item["type"]
    if kind == "code_interpreter_call":
        code = Part(executable_code=ExecutableCode(id=item["id"], code=item.get("code"), language="PYTHON"))
        code.part_metadata = {PROVIDER: item}
        logs = "".join(one["logs"] for one in item.get("outputs") or () if one["type"] == "logs")

        if item.get("status") == "completed":
            outcome = "OUTCOME_OK"
        else:
            outcome = "OUTCOME_FAILED"

        result = CodeExecutionResult(id=item["id"], outcome=outcome, output=logs)

        return [code, Part(code_execution_result=result, part_metadata={PROVIDER: {}})]

    if kind == "image_generation_call" and item.get("result"):
        image = Blob(
            data=base64_bytes(item.pop("result")),
            mime_type=f"image/{item.get('output_format') or 'png'}",
        )
        return [Part(inline_data=image, part_metadata={PROVIDER: item})]

    if kind.endswith("_call"):
        call = ToolCall(
            id=item.get("id"),
            tool_type=kind.removesuffix("_call"),
            args=item.get("action") or {},
        )
        return [Part(tool_call=call, part_metadata={PROVIDER: item})]

    return [Part(part_metadata={PROVIDER: item})]
