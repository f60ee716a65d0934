"""A model that answers from a recording when the request is a replayed one, and else is the model it stands for."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from typing import cast

from greenroom.models.by_name import LLMRegistry
from greenroom.models.live_model import BaseLlmConnection
from greenroom.models.model import BaseLlm
from greenroom.records.model_exchange import LlmRequest, LlmResponse

Answers = Callable[[LlmRequest], list[LlmResponse] | None]


class ReplayingLlm(BaseLlm):
    """The model behind it is only looked up when it is needed: a replay needs no provider's package and no key."""

    def __init__(self, real: BaseLlm | str, answers: Answers) -> None:
        super().__init__(model=real if isinstance(real, str) else real.model)
        self._given = real
        self._answers = answers

    @classmethod
    def around(cls, model: BaseLlm | str, answers: Answers) -> BaseLlm:
        if isinstance(model, ReplayingLlm) and model._answers == answers:
            return model
        return cls(model, answers)

    async def generate_content_async(self, llm_request: LlmRequest, stream: bool = False) -> AsyncIterator[LlmResponse]:
        recorded = self._answers(llm_request)
        if recorded is not None:
            for response in recorded:
                if stream or not response.partial:
                    yield response
            return
        replies = self._real().generate_content_async(llm_request, stream)
        async with aclosing(cast("AsyncGenerator[LlmResponse]", replies)):
            async for response in replies:
                yield response

    def connect(self, llm_request: LlmRequest) -> AbstractAsyncContextManager[BaseLlmConnection]:
        return self._real().connect(llm_request)

    async def close(self) -> None:
        if isinstance(self._given, BaseLlm):
            await self._given.close()

    def _real(self) -> BaseLlm:
        return LLMRegistry.resolve(self._given) if isinstance(self._given, str) else self._given
