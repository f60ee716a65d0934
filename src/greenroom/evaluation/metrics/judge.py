"""A model that judges: the same question is asked several times, and the majority decides."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from contextvars import ContextVar
from typing import Any, TypeVar, cast

from greenroom.errors import InvalidRequest, ModelError
from greenroom.evaluation.metrics.metric import in_snake_case
from greenroom.evaluation.records import text_of
from greenroom.models.by_name import LLMRegistry
from greenroom.models.model import BaseLlm
from greenroom.records import wire
from greenroom.records.base import JsonObject
from greenroom.records.content import UserContent
from greenroom.records.generation import GenerateContentConfig
from greenroom.records.model_exchange import LlmRequest, LlmResponse

T = TypeVar("T")

DEFAULT_MODEL = "gemini-2.5-flash"

replies_asked: ContextVar[list[LlmResponse]] = ContextVar("replies_asked")
"""Collects the replies to `ask` of judges, simulated users and simulated tools, which an
evaluation's budget counts.
"""

_OBJECT = re.compile(r"\{.*\}", re.DOTALL)


class Judge:
    """Asks a model for verdicts. Models are called `parallel` at a time."""

    def __init__(self, options: JsonObject) -> None:
        """Reads the judge's options: `judge_model` (a name, or a model), `judge_model_config`, `num_samples`,
        `parallelism_limit`.

        Raises InvalidRequest for wrong options.
        """
        plain_options = in_snake_case(options)
        self._model: str | BaseLlm = plain_options.get("judge_model") or DEFAULT_MODEL
        self._config = wire.from_plain(plain_options.get("judge_model_config") or {}, GenerateContentConfig)
        self.samples = plain_options.get("num_samples", 5)

        parallel = plain_options.get("parallelism_limit", 1)
        for name, number, most in (("num_samples", self.samples, 100), ("parallelism_limit", parallel, 100)):
            if not isinstance(number, int) or not 1 <= number <= most:
                raise InvalidRequest(f"{name} of a judge is from 1 to {most}, not {number!r}")

        self._parallel = asyncio.Semaphore(parallel)

    async def ask(self, instruction: str, question: str, read: Callable[[str], T]) -> list[T]:
        """The answers that `read` could read; it raises ValueError or KeyError for others.

        Raises ModelError when a call of the model fails, or no answer could be read.
        """
        samples = (self._ask_once(instruction, question) for _ in range(self.samples))
        answers: list[T] = []
        for answer in await asyncio.gather(*samples, return_exceptions=True):
            if isinstance(answer, BaseException):
                raise answer
            with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
                answers.append(read(answer))

        if not answers:
            raise ModelError("No answer of the judge has the form that was asked for", model=str(self._model))

        return answers

    async def _ask_once(self, instruction: str, question: str) -> str:
        config = self._config.model_copy(update={"system_instruction": instruction})
        async with self._parallel:
            return await ask(self._model, question, config)


async def ask(named: str | BaseLlm, question: str, config: GenerateContentConfig) -> str:
    """A model's answer, without thoughts; empty when it has no text. Raises ModelError."""
    if isinstance(named, BaseLlm):
        model = named
    else:
        model = LLMRegistry.resolve(named)

    request = LlmRequest(model=model.model, contents=[UserContent(question)], config=config)
    async with aclosing(cast("AsyncGenerator[LlmResponse]", model.generate_content_async(request))) as replies:
        async for reply in replies:
            replies_asked.get([]).append(reply)
            if reply.error_code:
                raise ModelError(reply.error_message or reply.error_code, model=model.model)
            return text_of(reply.content) or ""

    raise ModelError("The model did not answer", model=model.model)


def read_object(text: str) -> JsonObject:
    """The JSON object in an answer, which may have words around it. Raises ValueError."""
    found = _OBJECT.search(text)
    value: Any = json.loads(found[0]) if found else None
    if not isinstance(value, dict):
        raise ValueError("no JSON object")
    return value  # pyright: ignore[reportUnknownVariableType]


def majority(verdicts: list[bool]) -> bool:
    """Whether more than half are true."""
    return 2 * sum(verdicts) > len(verdicts)
