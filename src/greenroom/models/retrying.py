"""A model that retries transient failures of its provider."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing
from typing import cast

from greenroom.errors import AgentConfigError
from greenroom.models.attempts import Replies, RetryPolicy, begin, with_attempts
from greenroom.models.by_name import LLMRegistry
from greenroom.models.model import BaseLlm, BaseLlmConnection, LlmCapabilities
from greenroom.records.model_exchange import LlmRequest, LlmResponse


class WrapperLlm(BaseLlm):
    """Delegates to another model. A model given by name is looked up on its first call."""

    def __init__(self, wrapped: BaseLlm | str) -> None:
        super().__init__(model=wrapped if isinstance(wrapped, str) else wrapped.model)
        self._wrapped = wrapped

    @property
    def wrapped(self) -> BaseLlm:
        if isinstance(self._wrapped, str):
            return LLMRegistry.resolve(self._wrapped)
        return self._wrapped

    async def count_tokens(self, llm_request: LlmRequest) -> int | None:
        return await self.wrapped.count_tokens(llm_request)

    @property
    def capabilities(self) -> LlmCapabilities:
        return self.wrapped.capabilities

    @property
    def provider_name(self) -> str:
        return self.wrapped.provider_name

    @property
    def is_on_vertex(self) -> bool | None:
        return self.wrapped.is_on_vertex

    @property
    def names_to_resolve(self) -> list[str]:
        if isinstance(self._wrapped, str):
            return [self._wrapped]
        return self._wrapped.names_to_resolve

    def connect(self, llm_request: LlmRequest) -> AbstractAsyncContextManager[BaseLlmConnection]:
        return self.wrapped.connect(llm_request)

    async def close(self) -> None:
        if isinstance(self._wrapped, BaseLlm):
            await self._wrapped.close()


class RetryingLlm(WrapperLlm):
    """Retries a request that failed with a `retryable` `ModelError` before its first reply or chunk.

    model: the wrapped model; a name is resolved with the first request.
    max_attempts: including the first.
    timeout_seconds: no new attempt begins later. The pauses between attempts double from
        wait_seconds on, up to max_wait_seconds, with a random jitter of up to a second; where the
        provider says how long to wait, that counts, and nothing is retried if it is longer than
        timeout_seconds.
    """

    def __init__(
        self,
        model: BaseLlm | str,
        *,
        max_attempts: int = 3,
        timeout_seconds: float | None = 60.0,
        wait_seconds: float = 0.5,
        max_wait_seconds: float = 10.0,
    ) -> None:
        super().__init__(model)
        if max_attempts < 1:
            raise AgentConfigError("RetryingLlm: max_attempts must be 1 or more")

        self._policy = RetryPolicy(
            attempts=max_attempts,
            initial_delay=wait_seconds,
            max_delay=max_wait_seconds,
            jitter=min(1.0, wait_seconds),
            queues_rate_limits=False,
        )
        self._timeout_seconds = timeout_seconds

    async def generate_content_async(
        self,
        llm_request: LlmRequest,
        stream: bool = False,
    ) -> AsyncIterator[LlmResponse]:
        model = self.wrapped
        request = with_attempts(llm_request, 1)

        def start() -> Replies:
            return cast("Replies", model.generate_content_async(request, stream))

        replies, first = await begin(start, self._policy, timeout_seconds=self._timeout_seconds)
        async with aclosing(replies):
            if first is not None:
                yield first
            async for reply in replies:
                yield reply
