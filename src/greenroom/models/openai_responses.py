"""Models behind OpenAI's Responses API, at OpenAI or on Azure."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from greenroom.errors import ModelError
from greenroom.models.conversion import base64_bytes
from greenroom.models.model_errors import ModelErrorCategory, category_of_type, new_model_error
from greenroom.models.openai import OpenAIClientLlm, logprobs_result
from greenroom.models.openai_items import PROVIDER, response_arguments
from greenroom.models.reply import Reply, StreamedCall
from greenroom.records.answer_metadata import (
    Citation,
    CitationMetadata,
    FinishReason,
    GenerateContentResponseUsageMetadata,
)
from greenroom.records.base import JsonObject
from greenroom.records.content import Blob, CodeExecutionResult, ExecutableCode, Part, ToolCall
from greenroom.records.model_exchange import LlmRequest, LlmResponse

if TYPE_CHECKING:
    import openai

_FINISH_REASONS = {"max_output_tokens": FinishReason.MAX_TOKENS, "content_filter": FinishReason.SAFETY}


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
        api_key: str | None = None,
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

    async def send(self, client: Any, arguments: JsonObject, *, stream: bool) -> AsyncGenerator[LlmResponse]:
        reply = ResponseReply(self.model, include_metadata=self._include_metadata)
        if not stream:
            response = await client.responses.create(**arguments)
            for item in response.output:
                reply.add_item(item)
            reply.finish(response)
            yield reply.whole()
            return
        async with await client.responses.create(**arguments, stream=True) as events:
            async for event in events:
                for shown in reply.add(event):
                    yield shown
        if reply.is_complete:
            yield reply.whole()


class AzureOpenAIResponsesLlm(OpenAIResponsesLlm):
    """azure_endpoint: else AZURE_OPENAI_ENDPOINT. api_key: else AZURE_OPENAI_API_KEY. model: the deployment's name."""

    def __init__(self, model: str = "gpt-5", *, azure_endpoint: str | None = None, **arguments: Any) -> None:
        super().__init__(model, **arguments)
        self._endpoint = azure_endpoint

    def make_client(self) -> openai.AsyncOpenAI:
        endpoint = self._endpoint or os.environ.get("AZURE_OPENAI_ENDPOINT")
        key = self._api_key or os.environ.get("AZURE_OPENAI_API_KEY")
        if (not self._base_url and not endpoint) or not key:
            missing = "AZURE_OPENAI_API_KEY" if endpoint or self._base_url else "AZURE_OPENAI_ENDPOINT"
            detail = f"The model {self.model!r} needs the environment variable {missing}"
            raise ModelError(detail, model=self.model, category=ModelErrorCategory.AUTH_ERROR)
        import openai

        url = self._base_url or f"{endpoint}".rstrip("/") + "/openai/v1/"
        return openai.AsyncOpenAI(api_key=key, base_url=url, default_headers=self._headers)


class ResponseReply(Reply):
    """A response, in stream events or whole."""

    def __init__(self, model: str, *, include_metadata: bool) -> None:
        super().__init__()
        self.is_complete = False
        self._model, self._include_metadata = model, include_metadata
        self._calls_at: dict[int, StreamedCall] = {}
        self._shown_at = -1
        self._has_reasoned = False
        self._citations: list[Citation] = []
        self._logprobs: list[Any] = []

    def add(self, event: Any) -> Iterator[LlmResponse]:
        """The partial responses of a stream event."""
        kind: str = event.type
        if kind in ("response.output_text.delta", "response.refusal.delta"):
            self._shown_at = event.output_index
            yield self.add_text(event.delta)
        elif kind == "response.function_call_arguments.delta":
            yield self.add_arguments(self._calls_at[event.output_index], event.delta)
        elif kind in ("response.reasoning_summary_text.delta", "response.reasoning_text.delta"):
            self._shown_at = event.output_index
            yield self.add_text(event.delta, thought=True)
        elif kind == "response.reasoning_summary_part.added" and event.summary_index > 0:
            yield self.add_text("\n\n", thought=True)
        elif kind == "response.output_item.added" and event.item.type == "function_call":
            self._calls_at[event.output_index], shown = self.begin_call(event.item.name, event.item.call_id)
            yield shown
        elif kind == "response.output_item.done":
            shown = self.add_item(event.item, index=event.output_index)
            if shown is not None:
                yield shown
        elif kind in ("response.completed", "response.incomplete", "response.failed"):
            self.finish(event.response)
        elif kind == "error":
            raise self._failed(event.code, event.message)

    def add_item(self, item: Any, *, index: int = -1) -> LlmResponse | None:
        """Adds an item that is complete, of which deltas may have been shown: those of this index."""
        kind, raw = item.type, item.to_dict(mode="json")
        is_shown = index >= 0 and self._shown_at == index
        if kind == "function_call":
            call = self._calls_at.get(index) or self.begin_call(item.name, item.call_id)[0]
            rest = {name: raw[name] for name in raw if name not in ("type", "call_id", "name", "arguments")}
            next(part for part in self.parts if part.function_call is call.call).part_metadata = {PROVIDER: rest}
            return None if call.pieces or not item.arguments else self.add_arguments(call, item.arguments)
        if kind == "reasoning":
            return self._add_reasoning(item, raw, is_shown=is_shown)
        if kind == "message":
            return self._add_message(item, raw, is_shown=is_shown)
        parts = _parts_of(item, raw)
        shown = [self.add_part(part) for part in parts]
        return shown[0]

    def finish(self, response: Any) -> None:
        """Raises ModelError for a response that failed."""
        if response.status in ("failed", "cancelled"):
            error = response.error
            raise self._failed(error.code if error else None, error.message if error else f"It was {response.status}")
        self.is_complete = True
        out = self.response
        out.model_version, out.interaction_id = response.model, response.id
        details = response.incomplete_details
        reason = details.reason if details is not None else None
        out.finish_reason = FinishReason.STOP if response.status == "completed" else FinishReason.OTHER
        if reason is not None:
            out.finish_reason = _FINISH_REASONS.get(reason, FinishReason.OTHER)
        out.usage_metadata = _usage(response.usage)
        out.logprobs_result, out.avg_logprobs = logprobs_result(self._logprobs)
        if self._citations:
            out.citation_metadata = CitationMetadata(citations=self._citations)
        if self._include_metadata:
            facts = {"id": response.id, "status": response.status, "service_tier": response.service_tier}
            out.custom_metadata = {
                "openai_response": {name: value for name, value in facts.items() if value is not None}
            }

    def _add_reasoning(self, item: Any, raw: JsonObject, *, is_shown: bool) -> LlmResponse | None:
        self._has_reasoned = True
        shown = None
        if not is_shown:
            self.end_text()
            said = [one.text for one in item.summary] or [one.text for one in item.content or ()]
            shown = self.add_text("\n\n".join(said), thought=True) if said else None
        encrypted: str = raw.pop("encrypted_content", None) or ""
        if encrypted:
            self.end_text(signature=encrypted.encode(), metadata={PROVIDER: raw})
        else:
            self.end_text(metadata={PROVIDER: {}})  # the API keeps it by itself
        return shown

    def _add_message(self, item: Any, raw: JsonObject, *, is_shown: bool) -> LlmResponse | None:
        shown = None
        text = "".join(one.text if one.type == "output_text" else one.refusal for one in item.content)
        if not is_shown and text:
            self.end_text()
            shown = self.add_text(text)
        annotations = [note for one in item.content for note in getattr(one, "annotations", None) or ()]
        self._citations += [_citation(note) for note in annotations]
        for one in item.content:
            self._logprobs += getattr(one, "logprobs", None) or ()
        if not annotations:
            del raw["content"]
        is_needed = annotations or self._has_reasoned or raw.get("phase")
        self.end_text(metadata={PROVIDER: raw} if is_needed else None)
        return shown

    def _failed(self, code: str | None, message: str) -> ModelError:
        category = category_of_type(code) or ModelErrorCategory.SERVER_ERROR
        return new_model_error(f"{self._model}: {code or 'error'}: {message}", model=self._model, category=category)


def _parts_of(item: Any, raw: JsonObject) -> list[Part]:
    """An item of a tool that the service ran by itself, or of a kind that we don't know: kept to be sent back."""
    if item.type == "code_interpreter_call":
        code = Part(executable_code=ExecutableCode(id=item.id, code=item.code, language="PYTHON"))
        code.part_metadata = {PROVIDER: raw}
        logs = "".join(one.logs for one in item.outputs or () if one.type == "logs")
        outcome = "OUTCOME_OK" if item.status == "completed" else "OUTCOME_FAILED"
        result = CodeExecutionResult(id=item.id, outcome=outcome, output=logs)
        return [code, Part(code_execution_result=result, part_metadata={PROVIDER: {}})]
    if item.type == "image_generation_call" and item.result:
        image = Blob(data=base64_bytes(raw.pop("result")), mime_type=f"image/{raw.get('output_format') or 'png'}")
        return [Part(inline_data=image, part_metadata={PROVIDER: raw})]
    if item.type.endswith("_call"):
        call = ToolCall(id=raw.get("id"), tool_type=item.type.removesuffix("_call"), args=raw.get("action") or {})
        return [Part(tool_call=call, part_metadata={PROVIDER: raw})]
    return [Part(part_metadata={PROVIDER: raw})]


def _citation(note: Any) -> Citation:
    return Citation(
        uri=getattr(note, "url", None),
        title=getattr(note, "title", None) or getattr(note, "filename", None),
        start_index=getattr(note, "start_index", None),
        end_index=getattr(note, "end_index", None),
    )


def _usage(usage: Any) -> GenerateContentResponseUsageMetadata | None:
    """As the Gemini API counts: thoughts are not among the candidates' tokens."""
    if usage is None:
        return None
    thoughts = (usage.output_tokens_details.reasoning_tokens if usage.output_tokens_details else None) or 0
    cached = usage.input_tokens_details.cached_tokens if usage.input_tokens_details else None
    return GenerateContentResponseUsageMetadata(
        prompt_token_count=usage.input_tokens,
        candidates_token_count=usage.output_tokens - thoughts,
        total_token_count=usage.total_tokens,
        thoughts_token_count=thoughts or None,
        cached_content_token_count=cached or None,
    )
