"""Repeats model calls that failed before their first reply, and spares services that keep failing."""

from __future__ import annotations

import random
import time
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from greenroom.errors import ModelError, ModelErrorCategory
from greenroom.models.model_errors import new_model_error
from greenroom.records.base import JsonObject
from greenroom.records.model_exchange import LlmRequest, LlmResponse

if TYPE_CHECKING:
    import tenacity

Replies = AsyncGenerator[LlmResponse]

_DOWN = frozenset({
    ModelErrorCategory.SERVER_ERROR, ModelErrorCategory.NETWORK_ERROR, ModelErrorCategory.TIMEOUT_ERROR
})  # fmt: skip


_API_RETRY: JsonObject = {
    "attempts": 5, "initial_delay": 1.0, "max_delay": 60.0, "exp_base": 2.0, "jitter": 1.0, "queues_rate_limits": False,
}  # fmt: skip
"""Defaults of the API's `HttpRetryOptions`."""


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of repeating failed calls: how often before the deadline, and after which pauses.

    The pauses grow from initial_delay by exp_base up to max_delay; where the provider says how long
    to wait, that counts.
    """

    attempts: int = 3
    """Including the first; 1 for no retry."""
    initial_delay: float = 0.5
    """Seconds before the second attempt."""
    max_delay: float = 30.0
    """Seconds, the longest pause."""
    exp_base: float = 2.0
    """Factor from one pause to the next."""
    jitter: float = 0.5
    """Seconds, the most that is added to a pause at random."""
    queues_rate_limits: bool = True
    """Calls that a rate limit refused wait their turn: until the deadline where the provider says
    how long to wait, else for `rate_limit_attempts`. False: they are repeated like others.
    """
    rate_limit_attempts: int = 8
    """Of calls that a rate limit refused without saying how long to wait: about a minute of pauses."""
    http_status_codes: list[int] | None = None
    """If given, only errors with these are retried."""

    @classmethod
    def of(cls, retry_options: JsonObject) -> RetryPolicy:
        """Reads the API's `HttpRetryOptions`."""
        given = {name: value for name, value in retry_options.items() if value is not None}
        return msgspec.convert({**_API_RETRY, **given}, cls)

    def pause_seconds(self, error: ModelError, attempt: int) -> float:
        jitter = random.uniform(0, self.jitter)
        if error.retry_after_seconds is not None:
            return error.retry_after_seconds + jitter
        return min(self.initial_delay * self.exp_base ** min(attempt - 1, 30), self.max_delay) + jitter

    def covers(self, error: BaseException | None, attempt: int) -> bool:
        """Whether the call is repeated after this attempt, if there is time."""
        if not isinstance(error, ModelError) or not error.retryable:
            return False
        if self.http_status_codes is not None and error.http_status not in self.http_status_codes:
            return False
        if self.queues_rate_limits and error.category == ModelErrorCategory.RATE_LIMITED:
            return error.retry_after_seconds is not None or attempt < max(self.attempts, self.rate_limit_attempts)
        return attempt < self.attempts


async def begin(
    start: Callable[[], Replies], policy: RetryPolicy, *, timeout_seconds: float | None
) -> tuple[Replies, LlmResponse | None]:
    """The replies and the first of them, after as many attempts as the policy allows. The caller
    closes the replies.

    timeout_seconds: no pause begins that would end later. Raises the last attempt's error.
    """
    began = time.monotonic()

    try:
        return await _begin(start)
    except ModelError as error:
        if not policy.covers(error, 1):
            raise
        failed = [error]

    import tenacity  # only for calls that failed: it costs as much as the rest of a call

    async def attempt() -> tuple[Replies, LlmResponse | None]:
        if failed:
            raise failed.pop()  # the first attempt's
        return await _begin(start)

    if timeout_seconds is None:
        left = None
    else:
        left = timeout_seconds - (time.monotonic() - began)

    retrying = tenacity.AsyncRetrying(
        retry=lambda state: policy.covers(_error_of(state), state.attempt_number),
        wait=lambda state: policy.pause_seconds(_error_of(state), state.attempt_number),
        stop=tenacity.stop_never if left is None else tenacity.stop_before_delay(left),
        reraise=True,
    )

    return await retrying(attempt)


def _error_of(state: tenacity.RetryCallState) -> Any:
    return state.outcome.exception() if state.outcome is not None else None


async def _begin(start: Callable[[], Replies]) -> tuple[Replies, LlmResponse | None]:
    replies = start()
    try:
        return replies, await anext(replies, None)
    except BaseException:
        await replies.aclose()
        raise


def with_attempts(request: LlmRequest, attempts: int) -> LlmRequest:
    """The request with this number of attempts in its HTTP options."""
    options: JsonObject = {**(request.config.http_options or {}), "retry_options": {"attempts": attempts}}
    return msgspec.structs.replace(
        request,
        config=msgspec.structs.replace(request.config, http_options=options),
    )


class CircuitBreaker:
    """Opens after `threshold` failures in a row, for `recovery_seconds`. Then one call is let
    through: it closes the breaker, or opens it again. Errors of the caller and rate limits are
    no failures.
    """

    def __init__(
        self, *, threshold: int = 5, recovery_seconds: float = 30.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._threshold = threshold
        self._recovery_seconds = recovery_seconds
        self._clock = clock
        self._failures = 0
        self._open_until = 0.0
        self._last = ""

    @property
    def is_open(self) -> bool:
        return self._failures >= self._threshold and self._clock() < self._open_until

    def check(self, model: str) -> None:
        """Raises ModelError, which may be retried, while the breaker is open."""
        if self._failures < self._threshold:
            return

        now = self._clock()
        if now < self._open_until:
            raise new_model_error(
                f"{model}: not called for {self._open_until - now:.0f} s, because it failed {self._failures} times in "
                f"a row, last with: {self._last}",
                model=model,
                category=ModelErrorCategory.SERVER_ERROR,
                retry_after_seconds=self._open_until - now,
            )

        self._open_until = now + self._recovery_seconds  # for all other calls

    def succeeded(self) -> None:
        self._failures = 0

    def failed(self, error: ModelError, *, counts: bool | None = None) -> None:
        """Records a failure.

        counts: True if the service failed. None: decided by the category of the error.
        """
        if counts if counts is not None else error.category in _DOWN:
            self._failures += 1
            self._open_until = self._clock() + self._recovery_seconds
            self._last = error.detail
