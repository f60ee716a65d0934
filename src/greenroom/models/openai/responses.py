"""Models behind OpenAI's Responses API, at OpenAI or on Azure."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from greenroom.errors import ModelError
from greenroom.models.conversion import base64_bytes
from greenroom.models.model_errors import ModelErrorCategory, category_of_type, missing_variable, new_model_error
from greenroom.models.openai.chat import ApiKey, OpenAIClientLlm, citation, logprobs_result
from greenroom.models.openai.items import PROVIDER, response_arguments
from greenroom.models.provider import exchange, post
from greenroom.models.reply import Reply, StreamedCall, finish_reason, nested, token_usage
from greenroom.records.base import JsonObject
from greenroom.records.content import Blob, CodeExecutionResult, ExecutableCode, Part, ToolCall
from greenroom.records.model_exchange import LlmRequest, LlmResponse

if TYPE_CHECKING:
    import openai

_COUNTED = ("model", "input", "instructions", "previous_response_id", "tools", "tool_choice", "text", "reasoning",
            "extra_headers", "timeout")  # fmt: skip


class OpenAIResponsesLlm(OpenAIClientLlm):
    """model, api_key, base_url, headers, client: as in `OpenAILlm`.

    store, include, reasoning, parallel_tool_calls, truncation, service_tier: of the API, for requests that don't say
    otherwise. extra_request_args: further arguments of the SDK's `responses.create`. include_response_metadata: id,
    status and service tier of the response, under `openai_response` in the custom metadata.
    """

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
        given = {name: value for name, value in self._defaults.items() if value is not None}
        if "include" in given and "include" in arguments:
            given["include"] = arguments["include"] = [*given["include"], *arguments["include"]]
        return {**given, **arguments}

    def send(self, client: Any, arguments: JsonObject, *, stream: bool) -> AsyncGenerator[LlmResponse]:
        reply = ResponseReply(self.model, include_metadata=self._include_metadata)
        return exchange(client, "/responses", arguments, reply, stream=stream, sdk=self.package)

    async def count(self, client: Any, arguments: JsonObject) -> int | None:
        prompt = {name: arguments[name] for name in _COUNTED if name in arguments}
        return (await post(client, "/responses/input_tokens", prompt)).get("input_tokens")


class AzureOpenAIResponsesLlm(OpenAIResponsesLlm):
    """azure_endpoint: else AZURE_OPENAI_ENDPOINT. api_key: else AZURE_OPENAI_API_KEY. model: the deployment's name."""

    def __init__(self, model: str = "gpt-5", *, azure_endpoint: str | None = None, **arguments: Any) -> None:
        super().__init__(model, **arguments)
        self._endpoint = azure_endpoint

    def make_client(self) -> openai.AsyncOpenAI:
        endpoint = self._endpoint or os.environ.get("AZURE_OPENAI_ENDPOINT")
        key = self.key() or os.environ.get("AZURE_OPENAI_API_KEY")
        if (not self._base_url and not endpoint) or not key:
            missing = "AZURE_OPENAI_API_KEY" if endpoint or self._base_url else "AZURE_OPENAI_ENDPOINT"
            raise missing_variable(missing, model=self.model)
        import openai

        url = self._base_url or f"{endpoint}".rstrip("/") + "/openai/v1/"
        return openai.AsyncOpenAI(api_key=key, base_url=url, default_headers=self._headers, max_retries=0)


class ResponseReply(Reply):
    """A response as plain JSON, in stream events or whole."""

    def __init__(self, model: str, *, include_metadata: bool) -> None:
        super().__init__()
        self._model, self._include_metadata = model, include_metadata
        self._calls_at: dict[int | None, StreamedCall] = {}
        self._shown_at: int | None = -1
        self._has_reasoned = False
        self._logprobs: list[JsonObject] = []

    def add_whole(self, response: JsonObject) -> None:
        for item in response["output"]:
            self._add_item(item)
        self._finish(response)

    def add(self, event: JsonObject) -> Iterator[LlmResponse]:
        """The partial response of a stream event, if it has one."""
        shown = self._add_event(event)
        if shown is not None:
            yield shown

    def _add_event(self, event: JsonObject) -> LlmResponse | None:
        kind: str = event["type"]
        index: int | None = event.get("output_index")
        if kind in ("response.output_text.delta", "response.refusal.delta"):
            self._shown_at = index
            return self.add_text(event["delta"])
        if kind == "response.function_call_arguments.delta":
            return self.add_arguments(self._calls_at[index], event["delta"])
        if kind in ("response.reasoning_summary_text.delta", "response.reasoning_text.delta"):
            self._shown_at = index
            return self.add_text(event["delta"], thought=True)
        if kind == "response.reasoning_summary_part.added" and event["summary_index"] > 0:
            return self.add_text("\n\n", thought=True)
        if kind == "response.output_item.added" and event["item"]["type"] == "function_call":
            self._calls_at[index], shown = self.begin_call(event["item"]["name"], event["item"]["call_id"])
            return shown
        if kind == "response.output_item.done":
            return self._add_item(event["item"], index=index)
        if kind in ("response.completed", "response.incomplete", "response.failed"):
            self._finish(event["response"])
        elif kind == "error":
            raise self._failed(event)
        return None

    def _add_item(self, item: JsonObject, *, index: int | None = -1) -> LlmResponse | None:
        """Adds an item that is complete, of which deltas may have been shown: those of this index."""
        kind = item["type"]
        is_shown = index != -1 and self._shown_at == index  # None from servers that don't number their items
        if kind == "function_call":
            call = self._calls_at.get(index) or self.begin_call(item["name"], item["call_id"])[0]
            rest = {name: item[name] for name in item if name not in ("type", "call_id", "name", "arguments")}
            next(part for part in self.parts if part.function_call is call.call).part_metadata = {PROVIDER: rest}
            return None if call.pieces or not item["arguments"] else self.add_arguments(call, item["arguments"])
        if kind == "reasoning":
            return self._add_reasoning(item, is_shown=is_shown)
        if kind == "message":
            return self._add_message(item, is_shown=is_shown)
        shown, *_ = [self.add_part(part) for part in _parts_of(item)]
        return shown

    def _finish(self, response: JsonObject) -> None:
        """Raises ModelError for a response that failed."""
        status: str | None = response.get("status")
        if status in ("failed", "cancelled"):
            raise self._failed(response.get("error") or {"message": f"It was {status}"})
        self.is_complete = True
        out = self.response
        out.model_version, out.interaction_id = response.get("model"), response.get("id")
        reason = nested(response, "incomplete_details").get("reason")
        out.finish_reason = finish_reason(reason or status)
        usage: JsonObject | None = response.get("usage")
        if usage is not None:
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

    def _add_reasoning(self, item: JsonObject, *, is_shown: bool) -> LlmResponse | None:
        self._has_reasoned = True
        shown = None
        if not is_shown:
            self.end_text()
            said = [one["text"] for one in item.get("summary") or item.get("content") or ()]
            shown = self.add_text("\n\n".join(said), thought=True) if said else None
        encrypted: str = item.pop("encrypted_content", None) or ""
        if encrypted:
            self.end_text(signature=encrypted.encode(), metadata={PROVIDER: item})
        else:
            self.end_text(metadata={PROVIDER: {}})  # the API keeps it by itself
        return shown

    def _add_message(self, item: JsonObject, *, is_shown: bool) -> LlmResponse | None:
        shown = None
        contents: list[JsonObject] = item["content"]
        text = "".join(one.get("text") or one.get("refusal") or "" for one in contents)
        if not is_shown and text:
            self.end_text()
            shown = self.add_text(text)
        annotations: list[JsonObject] = [note for one in contents for note in one.get("annotations") or ()]
        self._citations += [citation(note) for note in annotations]
        for one in contents:
            self._logprobs += one.get("logprobs") or ()
        if not annotations:
            del item["content"]
        is_needed = annotations or self._has_reasoned or item.get("phase")
        self.end_text(metadata={PROVIDER: item} if is_needed else None)
        return shown

    def _failed(self, error: JsonObject) -> ModelError:
        code = error.get("code")
        category = category_of_type(code) or ModelErrorCategory.SERVER_ERROR
        detail = f"{self._model}: {code or 'error'}: {error.get('message')}"
        return new_model_error(detail, model=self._model, category=category)


def _parts_of(item: JsonObject) -> list[Part]:
    """An item of a tool that the service ran by itself, or of a kind that we don't know: kept to be sent back."""
    kind: str = item["type"]
    if kind == "code_interpreter_call":
        code = Part(executable_code=ExecutableCode(id=item["id"], code=item.get("code"), language="PYTHON"))
        code.part_metadata = {PROVIDER: item}
        logs = "".join(one["logs"] for one in item.get("outputs") or () if one["type"] == "logs")
        outcome = "OUTCOME_OK" if item.get("status") == "completed" else "OUTCOME_FAILED"
        result = CodeExecutionResult(id=item["id"], outcome=outcome, output=logs)
        return [code, Part(code_execution_result=result, part_metadata={PROVIDER: {}})]
    if kind == "image_generation_call" and item.get("result"):
        image = Blob(data=base64_bytes(item.pop("result")), mime_type=f"image/{item.get('output_format') or 'png'}")
        return [Part(inline_data=image, part_metadata={PROVIDER: item})]
    if kind.endswith("_call"):
        call = ToolCall(id=item.get("id"), tool_type=kind.removesuffix("_call"), args=item.get("action") or {})
        return [Part(tool_call=call, part_metadata={PROVIDER: item})]
    return [Part(part_metadata={PROVIDER: item})]
