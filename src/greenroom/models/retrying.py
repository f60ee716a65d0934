"""A model that retries transient failures of its provider."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import cast

from greenroom.errors import AgentConfigError, MissingExtra, ModelError
from greenroom.models.by_name import LLMRegistry
from greenroom.models.model import BaseLlm, BaseLlmConnection
from greenroom.records.model_exchange import LlmRequest, LlmResponse

_Replies = AsyncGenerator[LlmResponse]


class WrapperLlm(BaseLlm):
    """Delegates to another model; one given by name is looked up when it is first called."""

    def __init__(self, wrapped: BaseLlm | str) -> None:
        super().__init__(model=wrapped if isinstance(wrapped, str) else wrapped.model)
        self._wrapped = wrapped

    @property
    def wrapped(self) -> BaseLlm:
        return LLMRegistry.resolve(self._wrapped) if isinstance(self._wrapped, str) else self._wrapped

    def connect(self, llm_request: LlmRequest) -> AbstractAsyncContextManager[BaseLlmConnection]:
        return self.wrapped.connect(llm_request)

    async def close(self) -> None:
        if isinstance(self._wrapped, BaseLlm):
            await self._wrapped.close()


class RetryingLlm(WrapperLlm):
    """Retries a request that failed with a `retryable` `ModelError` before its first reply or chunk.

    model: the wrapped model; a name is resolved with the first request. max_attempts: including the first.
    timeout_seconds: no new attempt begins later. The pauses between attempts double from wait_seconds on, up to
    max_wait_seconds, with a random jitter of up to a second; where the provider says how long to wait, that counts, and
    nothing is retried if it is longer than timeout_seconds. Needs the extra `retry`.
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
        try:
            import stamina
        except ImportError as error:
            raise MissingExtra("retry", "stamina") from error
        self._attempts = lambda: stamina.retry_context(
            on=lambda error: _pause(error, timeout_seconds),
            attempts=max_attempts,
            timeout=timeout_seconds,
            wait_initial=wait_seconds,
            wait_max=max_wait_seconds,
            wait_jitter=min(1.0, wait_seconds),
        )

    async def generate_content_async(self, llm_request: LlmRequest, stream: bool = False) -> AsyncIterator[LlmResponse]:
        replies: _Replies | None = None
        first: LlmResponse | None = None
        async for attempt in self._attempts():
            with attempt:
                replies, first = await self._begin(llm_request, stream)
        assert replies is not None
        try:
            if first is not None:
                yield first
            async for reply in replies:
                yield reply
        finally:
            await replies.aclose()

    async def _begin(self, llm_request: LlmRequest, stream: bool) -> tuple[_Replies, LlmResponse | None]:
        replies = cast("_Replies", self.wrapped.generate_content_async(llm_request, stream))
        try:
            return replies, await anext(replies, None)
        except BaseException:
            await replies.aclose()
            raise


def _pause(error: Exception, timeout_seconds: float | None) -> bool | float:
    """Whether to retry, or after how many seconds."""
    if not isinstance(error, ModelError) or not error.retryable:
        return False
    if error.retry_after_seconds is None:
        return True
    return error.retry_after_seconds if error.retry_after_seconds <= (timeout_seconds or float("inf")) else False
