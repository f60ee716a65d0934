"""Models that run in this process from a GGUF file, without key and network."""

from __future__ import annotations

import re
import threading
from collections.abc import AsyncIterator

from greenroom.errors import ModelError
from greenroom.models.conversion import built_in_tools, refused, tool_choice
from greenroom.models.local.conversation import (
    OpenQuestion,
    answer_from,
    chat_messages,
    open_question,
    without_media,
    without_oldest_turn,
)
from greenroom.models.local.engine import LlamaEngine
from greenroom.models.local.files import resolve
from greenroom.models.local.tools import ArgumentsDecoder, candidates, choose
from greenroom.models.model import BaseLlm, output_schema
from greenroom.models.reply import partial, token_usage
from greenroom.records.answer_metadata import FinishReason, GenerateContentResponseUsageMetadata
from greenroom.records.base import JsonObject
from greenroom.records.content import Content, FunctionCall, Part
from greenroom.records.generation import GenerateContentConfig
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.records.tool_declaration import FunctionDeclaration

_DEFAULT_OUTPUT_TOKENS = 256
_TEMPLATE_TOKENS = 64
"""Tokens that a chat format may add to the words of a conversation."""

_engines: dict[tuple[str, int, int | None], LlamaEngine] = {}
_lock = threading.Lock()


class LocalLlm(BaseLlm):
    """A model in a GGUF file, run in this process.

    model: `local/` and a known name (`greenroom models list`), or the path of any GGUF file.

    The file is loaded with the first request, once for all models of the same name. Text is
    generated at temperature 0 unless the request says otherwise. Tools are chosen by comparing how
    well their descriptions explain the user's words, and called with arguments copied from these
    words; the calls come without ids. Images, files and built-in tools raise
    MessageConversionError.

    context_tokens: for prompt and answer together; the oldest turns of longer conversations are
        dropped.
    threads: by default half the processors.
    """

    def __init__(
        self, model: str = "local/smollm2-135m", *, context_tokens: int = 4096, threads: int | None = None
    ) -> None:
        super().__init__(model=model)
        self._key = model, context_tokens, threads
        self._engine: LlamaEngine | None = None

    @property
    def provider_name(self) -> str:
        return "local"

    async def generate_content_async(
        self,
        llm_request: LlmRequest,
        stream: bool = False,
    ) -> AsyncIterator[LlmResponse]:
        for name, _ in built_in_tools(llm_request):
            raise refused(f"{self.model} has no built-in tool {name!r}", model=self.model)

        contents = without_media(llm_request.contents, model=self.model)
        engine = self._shared_engine()
        question = open_question(contents)
        if any(part.function_response for content in llm_request.contents[-1:] for part in content.parts or ()):
            responses = self._from_results(engine, question)
        elif call := await self._call(engine, llm_request, question):
            yield call
            return
        else:
            responses = self._text(engine, llm_request.config, contents)

        async for response in responses:
            if stream or not response.partial:
                yield response

    async def close(self) -> None:
        """Frees the model when no other LocalLlm uses it."""
        with _lock:
            engine = self._engine
            self._engine = None

            if engine is None:
                return

            engine.users -= 1

            if engine.users:
                return

            del _engines[self._key]

        await engine.close()

    def _shared_engine(self) -> LlamaEngine:
        with _lock:
            if self._engine is None:
                model, context_tokens, threads = self._key
                engine = LlamaEngine(
                    lambda: resolve(model),
                    context_tokens=context_tokens,
                    model=model,
                    threads=threads,
                )
                self._engine = _engines.setdefault(self._key, engine)
                self._engine.users += 1

            return self._engine

    async def _call(
        self,
        engine: LlamaEngine,
        request: LlmRequest,
        question: OpenQuestion,
    ) -> LlmResponse | None:
        declarations, is_required = _callable(request, question)
        if not declarations or not question.text:
            return None

        options = candidates(
            declarations,
            system=request.config.system_text(),
            is_tool_required=is_required,
        )

        chosen, tokens = await choose(engine, question.text, options)
        if chosen.declaration is None:
            return None

        decoder = ArgumentsDecoder(engine, question=question.text, earlier=question.earlier)
        call = FunctionCall(
            name=chosen.declaration.name,
            args=await decoder.decode(chosen.declaration, chosen.args),
        )

        return self._complete_response(
            Part(function_call=call),
            usage=token_usage(tokens + decoder.prompt_tokens, decoder.tokens),
        )

    async def _from_results(
        self,
        engine: LlamaEngine,
        question: OpenQuestion,
    ) -> AsyncIterator[LlmResponse]:
        text, prompt_tokens, tokens = await answer_from(engine, question.text, question.results)
        for word in re.findall(r"\S+\s*", text):
            yield partial(Part(text=word))
        yield self._complete_response(Part(text=text), usage=token_usage(prompt_tokens, tokens))

    async def _text(
        self, engine: LlamaEngine, config: GenerateContentConfig, contents: list[Content]
    ) -> AsyncIterator[LlmResponse]:
        options = _options(config)
        messages = chat_messages(config.system_text(), contents)
        messages = await self._fitting(engine, messages, int(options["max_tokens"]))

        text = ""
        finish = None
        usage = None
        async for chunk in engine.stream({**options, "messages": messages}):
            choices: list[JsonObject] = chunk.get("choices") or []
            for choice in choices:
                finish = choice.get("finish_reason") or finish
                delta: JsonObject = choice.get("delta") or {}
                piece: str = delta.get("content") or ""
                if piece:
                    text += piece
                    yield partial(Part(text=piece))

            if chunk.get("usage"):
                usage = token_usage(
                    chunk["usage"]["prompt_tokens"],
                    chunk["usage"]["completion_tokens"],
                )

        if finish is None:
            raise ModelError(f"{self.model} ended its stream without a finish reason", model=self.model, retryable=True)

        if finish == "length":
            reason = FinishReason.MAX_TOKENS
        else:
            reason = FinishReason.STOP

        yield self._complete_response(*([Part(text=text)] if text else []), finish_reason=reason, usage=usage)

    async def _fitting(
        self,
        engine: LlamaEngine,
        messages: list[JsonObject],
        answer_tokens: int,
    ) -> list[JsonObject]:
        """The messages without the oldest turns that leave no room for an answer."""
        room = engine.context_tokens - min(answer_tokens, engine.context_tokens // 2)
        # A token is at least a byte, so that most conversations needn't be counted.
        while sum(len(m["content"].encode()) + _TEMPLATE_TOKENS for m in messages) > room:
            count = await engine.count_tokens(messages)
            if count <= room:
                break
            shorter = without_oldest_turn(messages)
            if shorter is None:
                raise ModelError(f"The prompt has {count} tokens; {self.model} has room for {room}", model=self.model)
            messages = shorter

        return messages

    def _complete_response(
        self,
        *parts: Part,
        usage: GenerateContentResponseUsageMetadata | None,
        finish_reason: FinishReason = FinishReason.STOP,
    ) -> LlmResponse:
        content = Content(role="model", parts=list(parts))
        return LlmResponse(
            content=content,
            finish_reason=finish_reason,
            usage_metadata=usage,
            model_version=self.model,
        )


def _callable(
    request: LlmRequest,
    question: OpenQuestion,
) -> tuple[list[FunctionDeclaration], bool]:
    """The tools that may be called now, and whether one must be.

    A tool that another agent has used on this very question isn't called again: small models would
    transfer the user in circles.
    """
    declarations, mode = tool_choice(request)
    if mode == "NONE" or output_schema(request.config) is not None:
        return [], False
    unused = [
        declaration
        for declaration in declarations
        if not re.search(rf"\b{re.escape(declaration.name or '')}\b", question.retold)
    ]
    return unused, mode == "ANY"


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
