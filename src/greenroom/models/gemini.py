"""Gemini behind the Gemini API, or on Google's Vertex AI."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from greenroom.errors import NotOffered
from greenroom.models.conversion import refused
from greenroom.models.gemini_contents import generate_arguments
from greenroom.models.partial_args import write_partial_args
from greenroom.models.provider import ProviderLlm
from greenroom.models.reply import Reply, partial
from greenroom.records.answer_metadata import (
    CitationMetadata,
    FinishReason,
    GenerateContentResponseUsageMetadata,
    GroundingMetadata,
    LogprobsResult,
)
from greenroom.records.base import JsonObject
from greenroom.records.content import FunctionCall, Part
from greenroom.records.identifiers import new_function_call_id
from greenroom.records.model_exchange import LlmRequest, LlmResponse

if TYPE_CHECKING:
    from google import genai

KEY_VARIABLES = ("GOOGLE_API_KEY", "GEMINI_API_KEY")


class Gemini(ProviderLlm):
    """model: the service's own name, `models/…`, or the path of a model or endpoint on Vertex.

    api_key: else GOOGLE_API_KEY, else GEMINI_API_KEY. vertexai, project, location, credentials (of `google.auth`): else
    GOOGLE_GENAI_USE_ENTERPRISE or GOOGLE_GENAI_USE_VERTEXAI, GOOGLE_CLOUD_PROJECT, GOOGLE_CLOUD_LOCATION and the
    environment's default credentials. base_url, headers: of a proxy. retry_options: of the SDK, which doesn't retry
    without them. speech_config: for requests without one. client_kwargs: further arguments of the SDK's client.
    client: a `genai.Client` to use instead of all these; the caller closes it.
    """

    extra: ClassVar[str] = "gemini"
    package: ClassVar[str] = "google.genai"

    def __init__(
        self,
        model: str = "gemini-2.5-flash",
        *,
        api_key: str | None = None,
        vertexai: bool | None = None,
        project: str | None = None,
        location: str | None = None,
        credentials: Any = None,
        base_url: str | None = None,
        api_version: str | None = None,
        headers: Mapping[str, str] | None = None,
        retry_options: Any = None,
        speech_config: Any = None,
        use_interactions_api: bool = False,
        client: genai.Client | None = None,
        client_kwargs: JsonObject | None = None,
    ) -> None:
        super().__init__(model, client=client)
        if use_interactions_api:
            raise NotOffered("Gemini(use_interactions_api=True) is not supported")
        self._api_key, self._speech_config = api_key, speech_config
        self._backend: JsonObject = {
            "vertexai": vertexai, "project": project, "location": location, "credentials": credentials
        }  # fmt: skip
        if hasattr(retry_options, "model_dump"):
            retry_options = retry_options.model_dump(exclude_none=True)
        self._http: JsonObject = {
            "base_url": base_url, "api_version": api_version, "headers": headers, "retry_options": retry_options
        }  # fmt: skip
        self._client_kwargs = client_kwargs or {}

    def make_client(self) -> genai.Client:
        from google import genai

        http = {**self._http, "api_version": self._http["api_version"] or os.environ.get("GOOGLE_GENAI_API_VERSION")}
        given: JsonObject = {
            **self._backend,
            "api_key": self._api_key,
            "http_options": {name: value for name, value in http.items() if value is not None} or None,
            **self._client_kwargs,
        }
        return genai.Client(**{name: value for name, value in given.items() if value is not None})

    async def close_client(self, client: Any) -> None:
        await client.aio.aclose()
        await asyncio.to_thread(client.close)

    def secrets(self) -> Sequence[str | None]:
        return self._api_key, *(os.environ.get(name) for name in KEY_VARIABLES)

    def convert(self, request: LlmRequest) -> JsonObject:
        from google.genai import types

        client: Any = self._given_client or self._made_client
        name = (request.model or self.model).removeprefix("gemini/")
        arguments = generate_arguments(request, model=name, is_vertex=client.vertexai)
        config: JsonObject = arguments["config"]
        if self._speech_config is not None:
            config.setdefault("speech_config", self._speech_config)
        try:
            arguments["config"] = types.GenerateContentConfig(**config)
            arguments["contents"] = [types.Content(**content) for content in arguments["contents"]]
        except ValueError as error:
            raise refused(f"{self.model}: {error}", model=self.model) from error
        return arguments

    async def send(self, client: Any, arguments: JsonObject, *, stream: bool) -> AsyncGenerator[LlmResponse]:
        reply = ContentReply()
        try:
            if not stream:
                for _ in reply.add(await client.aio.models.generate_content(**arguments)):
                    pass
            else:
                async for chunk in await client.aio.models.generate_content_stream(**arguments):
                    for shown in reply.add(chunk):
                        yield shown
        except ValueError as error:
            if "only supported in" in str(error):  # the SDK refuses what this backend doesn't have
                raise refused(f"{self.model}: {error}", model=self.model) from error
            raise
        if reply.is_complete or not stream:
            yield reply.whole()


class ContentReply(Reply):
    """A `GenerateContentResponse`, or chunks of one."""

    def __init__(self) -> None:
        super().__init__()
        self.is_complete = False
        self._open: FunctionCall | None = None

    def add(self, chunk: Any) -> Iterator[LlmResponse]:
        """The partial responses of a chunk. Only the first candidate is read."""
        response = self.response
        response.model_version = chunk.model_version or response.model_version
        if chunk.usage_metadata is not None:
            response.usage_metadata = _record(chunk.usage_metadata, GenerateContentResponseUsageMetadata)
        feedback = chunk.prompt_feedback
        if not chunk.candidates:
            if feedback is not None and feedback.block_reason is not None:
                self.is_complete = True
                response.error_code = response.finish_reason = str(feedback.block_reason.value)
                said = feedback.block_reason_message
                response.error_message = said or f"The prompt was blocked: {response.error_code}"
            return
        candidate = chunk.candidates[0]
        for part in (candidate.content.parts if candidate.content else None) or ():
            shown = self._add_part(part)
            if shown is not None:
                yield shown
        self._note(candidate)

    def whole(self) -> LlmResponse:
        if self.response.finish_reason is None and self.is_empty:
            self.response.finish_reason = FinishReason.OTHER
        return super().whole()

    def _note(self, candidate: Any) -> None:
        response = self.response
        if candidate.finish_reason is not None:
            self.is_complete = True
            response.finish_reason = str(candidate.finish_reason.value)
            response.error_message = candidate.finish_message or response.error_message
        if candidate.grounding_metadata is not None:
            response.grounding_metadata = GroundingMetadata(_plain(candidate.grounding_metadata))
        if candidate.citation_metadata is not None:
            response.citation_metadata = CitationMetadata(_plain(candidate.citation_metadata))
        if candidate.logprobs_result is not None:
            response.logprobs_result = LogprobsResult(_plain(candidate.logprobs_result))
        if candidate.avg_logprobs is not None:
            response.avg_logprobs = candidate.avg_logprobs
        more: JsonObject = {}
        if candidate.url_context_metadata is not None:
            more["urlContextMetadata"] = _plain(candidate.url_context_metadata)
        if candidate.safety_ratings:
            more["safetyRatings"] = [_plain(rating) for rating in candidate.safety_ratings]
        if more:
            response.custom_metadata = {"gemini": more}

    def _add_part(self, part: Any) -> LlmResponse | None:
        if part.text is not None and part.model_fields_set <= {"text", "thought", "thought_signature"}:
            shown = self.add_text(part.text, thought=bool(part.thought)) if part.text else None
            if part.thought_signature is not None:
                self.end_text(signature=part.thought_signature, thought=bool(part.thought))
            return shown
        made = _record(part, Part)
        call = made.function_call
        if call is None:
            return self.add_part(made)
        if self._open is not None and not call.name:
            return self._go_on_with(self._open, call)
        self._open = None
        if call.partial_args is None and not call.will_continue:
            return self.add_part(made)
        call.id = call.id or new_function_call_id()
        shown = msgspec.structs.replace(made, function_call=msgspec.structs.replace(call))
        pieces, call.partial_args, call.will_continue = call.partial_args, None, None
        args: JsonObject = call.args or {}
        write_partial_args(args, pieces or ())
        call.args = args
        self._open = call
        self.add_part(made)
        return partial(shown)

    def _go_on_with(self, opened: FunctionCall, piece: FunctionCall) -> LlmResponse | None:
        assert opened.args is not None
        write_partial_args(opened.args, piece.partial_args or ())
        if not piece.will_continue:
            self._open = None
        piece.id, piece.name = opened.id, opened.name
        return partial(Part(function_call=piece))


def _plain(record: Any) -> JsonObject:
    return record.model_dump(mode="json", by_alias=True, exclude_none=True)


def _record(given: Any, kind: type[Any]) -> Any:
    return msgspec.convert(given.model_dump(mode="json", by_alias=True, exclude_none=True), kind)
