"""Models that run in this process from a GGUF file, without key and network."""

from __future__ import annotations

import re
import threading
from collections.abc import AsyncIterator
from typing import ClassVar

from greenroom.errors import ModelError
from greenroom.models.local_conversation import (
    OpenQuestion,
    answer_from,
    chat_messages,
    open_question,
    without_oldest_turn,
)
from greenroom.models.local_engine import Engine
from greenroom.models.local_files import resolve
from greenroom.models.local_tools import ArgumentsDecoder, candidates, choose
from greenroom.models.model import BaseLlm, output_schema
from greenroom.records.answer_metadata import FinishReason, GenerateContentResponseUsageMetadata
from greenroom.records.base import JsonObject
from greenroom.records.content import Content, FunctionCall, Part
from greenroom.records.generation import GenerateContentConfig
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.records.tool_declaration import FunctionDeclaration

_DEFAULT_OUTPUT_TOKENS = 256
_TEMPLATE_TOKENS = 64
"""What a chat format may add to the words of a conversation."""


class LocalLlm(BaseLlm):
    """model: `local/` and a known name (`greenroom models list`), or the path of any GGUF file.

    The file is loaded with the first request, once for all models of the same name. Text is generated at temperature 0
    unless the request says otherwise. Tools are chosen by comparing how well their descriptions explain the user's
    words, and called with arguments copied from these words; the calls come without ids.
    context_tokens: for prompt and answer together; the oldest turns of longer conversations are dropped.
    threads: by default half the processors.
    """

    _engines: ClassVar[dict[tuple[str, int, int | None], tuple[Engine, set[int]]]] = {}
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(
        self, model: str = "local/smollm2-135m", *, context_tokens: int = 4096, threads: int | None = None
    ) -> None:
        super().__init__(model=model)
        self._context_tokens, self._threads = context_tokens, threads
        self._engine: Engine | None = None

    async def generate_content_async(self, llm_request: LlmRequest, stream: bool = False) -> AsyncIterator[LlmResponse]:
        engine = self._loaded_once()
        question = open_question(llm_request.contents)
        last = llm_request.contents[-1] if llm_request.contents else None
        if any(part.function_response is not None for part in (last.parts if last else None) or ()):
            async for response in self._from_results(engine, question, stream=stream):
                yield response
            return
        call = await self._call(engine, llm_request, question)
        if call is not None:
            yield call
            return
        async for response in self._text(engine, llm_request):
            if stream or not response.partial:
                yield response

    async def close(self) -> None:
        """Frees the model when no other LocalLlm uses it."""
        engine, self._engine = self._engine, None
        if engine is None:
            return
        with self._lock:
            users = self._engines[self._key][1]
            users.discard(id(self))
            if users:
                return
            del self._engines[self._key]
        await engine.close()

    @property
    def _key(self) -> tuple[str, int, int | None]:
        return self.model, self._context_tokens, self._threads

    def _loaded_once(self) -> Engine:
        if self._engine is None:
            with self._lock:
                if self._key not in self._engines:
                    model = self.model
                    made = Engine(
                        lambda: resolve(model),
                        context_tokens=self._context_tokens,
                        model=model,
                        threads=self._threads,
                    )
                    self._engines[self._key] = made, set()
                self._engine, users = self._engines[self._key]
                users.add(id(self))
        return self._engine

    async def _call(self, engine: Engine, request: LlmRequest, question: OpenQuestion) -> LlmResponse | None:
        declarations, is_required = _callable(request, question)
        if not declarations or not question.text:
            return None
        system = request.config.system_text()
        choice = await choose(
            engine, question.text, candidates(declarations, system=system, is_tool_required=is_required)
        )
        declaration = choice.candidate.declaration
        if declaration is None:
            return None
        decoder = ArgumentsDecoder(engine, question=question.text, earlier=question.earlier)
        args = await decoder.decode(declaration, choice.candidate.args)
        return LlmResponse(
            content=Content(role="model", parts=[Part(function_call=FunctionCall(name=declaration.name, args=args))]),
            finish_reason=FinishReason.STOP,
            usage_metadata=_usage(choice.tokens + decoder.prompt_tokens, decoder.tokens),
            model_version=self.model,
        )

    async def _from_results(
        self, engine: Engine, question: OpenQuestion, *, stream: bool
    ) -> AsyncIterator[LlmResponse]:
        text, prompt_tokens, tokens = await answer_from(engine, question.text, question.results)
        if stream:
            for word in re.findall(r"\S+\s*", text):
                yield self._partial(word)
        yield self._final(text, FinishReason.STOP, _usage(prompt_tokens, tokens))

    async def _text(self, engine: Engine, request: LlmRequest) -> AsyncIterator[LlmResponse]:
        options = _options(request.config)
        messages = chat_messages(request.config.system_text(), request.contents)
        messages = await self._fitting(engine, messages, int(options["max_tokens"]))
        text, finish, usage = "", None, None
        async for chunk in engine.stream({**options, "messages": messages}):
            choices: list[JsonObject] = chunk.get("choices") or []
            for choice in choices:
                delta: JsonObject = choice.get("delta") or {}
                piece: str = delta.get("content") or ""
                finish = choice.get("finish_reason") or finish
                if piece:
                    text += piece
                    yield self._partial(piece)
            if chunk.get("usage"):
                usage = _usage(chunk["usage"]["prompt_tokens"], chunk["usage"]["completion_tokens"])
        if finish is None:
            raise ModelError(f"{self.model} ended its stream without a finish reason", model=self.model, retryable=True)
        yield self._final(text, FinishReason.MAX_TOKENS if finish == "length" else FinishReason.STOP, usage)

    async def _fitting(self, engine: Engine, messages: list[JsonObject], answer_tokens: int) -> list[JsonObject]:
        """The messages without the oldest turns that leave no room for an answer."""
        room = engine.context_tokens - min(answer_tokens, engine.context_tokens // 2)
        # A token is at least a byte, so that most conversations needn't be counted.
        while sum(len(m["content"].encode()) + _TEMPLATE_TOKENS for m in messages) > room:
            count = await engine.count_tokens(messages)
            if count <= room:
                break
            shorter = without_oldest_turn(messages)
            if shorter is None:
                detail = f"The prompt has {count} tokens; {self.model} has room for {room}"
                raise ModelError(detail, model=self.model)
            messages = shorter
        return messages

    def _partial(self, text: str) -> LlmResponse:
        return LlmResponse(content=Content(role="model", parts=[Part(text=text)]), partial=True)

    def _final(
        self, text: str, finish_reason: FinishReason, usage: GenerateContentResponseUsageMetadata | None
    ) -> LlmResponse:
        return LlmResponse(
            content=Content(role="model", parts=[Part(text=text)] if text else []),
            finish_reason=finish_reason,
            usage_metadata=usage,
            model_version=self.model,
        )


def _callable(request: LlmRequest, question: OpenQuestion) -> tuple[list[FunctionDeclaration], bool]:
    """The tools that may be called now, and whether one must be.

    A tool that another agent has used on this very question isn't called again: small models would transfer the user
    in circles.
    """
    config = request.config.tool_config
    calling = config.function_calling_config if config else None
    mode = ((calling.mode if calling else None) or "AUTO").upper()
    if mode == "NONE" or output_schema(request.config) is not None:
        return [], False
    allowed = calling.allowed_function_names if calling else None
    return [
        declaration
        for declaration in request.function_declarations()
        if declaration.name
        and (not allowed or declaration.name in allowed)
        and not re.search(rf"\b{re.escape(declaration.name)}\b", question.retold)
    ], mode == "ANY"


def _options(config: GenerateContentConfig) -> JsonObject:
    options: JsonObject = {
        "temperature": config.temperature or 0,
        "top_p": config.top_p,
        "top_k": None if config.top_k is None else int(config.top_k),
        "max_tokens": config.max_output_tokens or _DEFAULT_OUTPUT_TOKENS,
        "stop": config.stop_sequences,
        "seed": config.seed,
        "presence_penalty": config.presence_penalty,
        "frequency_penalty": config.frequency_penalty,
        "cache_prompt": True,
    }
    schema = output_schema(config)
    if schema is not None:
        options["response_format"] = {"type": "json_schema", "json_schema": {"schema": schema}}
    elif config.response_mime_type == "application/json":
        options["response_format"] = {"type": "json_object"}
    return {name: value for name, value in options.items() if value is not None}


def _usage(prompt_tokens: int, tokens: int) -> GenerateContentResponseUsageMetadata:
    return GenerateContentResponseUsageMetadata(
        prompt_token_count=prompt_tokens, candidates_token_count=tokens, total_token_count=prompt_tokens + tokens
    )
