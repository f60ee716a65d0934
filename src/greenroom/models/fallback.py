"""A list of models: if one is down, the next one answers."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import cast

import msgspec

from greenroom.errors import AgentConfigError, ModelError, ModelErrorCategory
from greenroom.models.attempts import CircuitBreaker, with_attempts
from greenroom.models.by_name import LLMRegistry
from greenroom.models.model import BaseLlm, BaseLlmConnection, LlmCapabilities
from greenroom.records.base import JsonObject
from greenroom.records.model_exchange import LlmRequest, LlmResponse

_DOWN = frozenset({ModelErrorCategory.NETWORK_ERROR, ModelErrorCategory.TIMEOUT_ERROR})


class FallbackModel(BaseLlm):
    """Tries each model once, in order, until one has begun to answer; after that an error is the caller's.

    models: names or models.
    retriable_status_codes: HTTP statuses after which the next one is tried; it is, too, when the
        provider can't be reached or doesn't answer in time. A model that failed failure_threshold
        times in a row is tried last for recovery_seconds. The response of another than the first
        has `fallback` in its custom metadata: the model's name, and the errors before it. All but
        the last are asked once.
    """

    def __init__(
        self,
        models: Sequence[BaseLlm | str],
        *,
        retriable_status_codes: Iterable[int] = (429, 500, 502, 503, 504),
        failure_threshold: int = 3,
        recovery_seconds: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not models:
            raise AgentConfigError("FallbackModel: models must name at least one")

        super().__init__(model=models[0] if isinstance(models[0], str) else models[0].model)
        self.models = list(models)
        self._codes = frozenset(retriable_status_codes)
        self._breakers = [
            CircuitBreaker(threshold=failure_threshold, recovery_seconds=recovery_seconds, clock=clock) for _ in models
        ]

    async def generate_content_async(
        self,
        llm_request: LlmRequest,
        stream: bool = False,
    ) -> AsyncIterator[LlmResponse]:
        failures: list[JsonObject] = []
        order = self._order()
        for index in order:
            has_begun = False
            try:
                model = self._resolved(index)
                request = _request_for(
                    model,
                    llm_request,
                    is_last=index == order[-1],
                    is_first=index == 0,
                )

                replies = cast(
                    "AsyncGenerator[LlmResponse]",
                    model.generate_content_async(request, stream),
                )
                async with aclosing(replies):
                    async for reply in replies:
                        has_begun = True
                        yield _noted(reply, model.model, failures)
            except ModelError as error:
                if has_begun or not self._is_down(error):
                    raise
                self._breakers[index].failed(error, counts=True)
                if index == order[-1]:
                    raise
                failures.append({"model": error.model, "error": error.detail})
            else:
                self._breakers[index].succeeded()
                return

    @asynccontextmanager
    async def connect(self, llm_request: LlmRequest) -> AsyncGenerator[BaseLlmConnection]:
        order = self._order()
        for index in order:
            async with AsyncExitStack() as stack:
                try:
                    connection = await stack.enter_async_context(self._resolved(index).connect(llm_request))
                except ModelError as error:
                    if index == order[-1] or not self._is_down(error):
                        raise
                    continue

                yield connection
                return

    @property
    def capabilities(self) -> LlmCapabilities:
        """The first one's."""
        return self._resolved(0).capabilities

    @property
    def provider_name(self) -> str:
        """The first one's."""
        return self._resolved(0).provider_name

    @property
    def is_on_vertex(self) -> bool | None:
        """The first one's."""
        return self._resolved(0).is_on_vertex

    @property
    def names_to_resolve(self) -> list[str]:
        given = [[model] if isinstance(model, str) else model.names_to_resolve for model in self.models]
        return [name for names in given for name in names]

    async def close(self) -> None:
        for model in self.models:
            if isinstance(model, BaseLlm):
                await model.close()

    def _resolved(self, index: int) -> BaseLlm:
        model = self.models[index]
        if isinstance(model, str):
            return LLMRegistry.resolve(model)
        return model

    def _is_down(self, error: ModelError) -> bool:
        if error.http_status:
            return error.http_status in self._codes
        return error.retryable or error.category in _DOWN

    def _order(self) -> list[int]:
        return sorted(range(len(self.models)), key=lambda index: self._breakers[index].is_open)


def _request_for(
    model: BaseLlm,
    request: LlmRequest,
    *,
    is_last: bool,
    is_first: bool,
) -> LlmRequest:
    """Copies the request, with the model's name and without data of the first model's service."""
    if not is_last:
        request = with_attempts(request, 1)
    interaction = request.previous_interaction_id if is_first else None
    return msgspec.structs.replace(request, model=model.model, previous_interaction_id=interaction)


def _noted(reply: LlmResponse, model: str, failures: list[JsonObject]) -> LlmResponse:
    if reply.partial or not failures:
        return reply
    fallback = {"model": model, "after": failures}
    return msgspec.structs.replace(
        reply,
        custom_metadata={**(reply.custom_metadata or {}), "fallback": fallback},
    )
