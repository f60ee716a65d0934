"""Repeated attempts of a node."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import tenacity

from greenroom.agents.node import RetryConfig
from greenroom.agents.workflow.errors import NodeFailure


async def retried(
    policy: RetryConfig,
    attempt: Callable[[], Awaitable[None]],
    *,
    first: int,
    on_retry: Callable[[NodeFailure, int], Awaitable[None]],
) -> None:
    """Calls `attempt` until it succeeds, or the policy is used up; then raises the last NodeFailure.

    first: the number of the first attempt here, when a process before this one has made others.
    on_retry: called before each pause, with the failure and the number of the next attempt.
    """

    def number(state: tenacity.RetryCallState) -> int:
        return state.attempt_number + first - 1

    async def before_sleep(state: tenacity.RetryCallState) -> None:
        if state.outcome is not None:
            failure = state.outcome.exception()
        else:
            failure = None
        assert isinstance(failure, NodeFailure)
        await on_retry(failure, number(state) + 1)

    retrying = tenacity.AsyncRetrying(
        stop=lambda state: number(state) >= policy.attempts,
        wait=lambda state: policy.delay_seconds(number(state)),
        retry=tenacity.retry_if_exception(lambda error: isinstance(error, NodeFailure) and policy.covers(error.error)),
        before_sleep=before_sleep,
        reraise=True,
    )
    await retrying(attempt)
