"""Retries model calls of all agents of an app when the provider fails temporarily."""

from __future__ import annotations

from typing import Any

from greenroom.invocation.context import InvocationContext
from greenroom.models.model import BaseLlm
from greenroom.models.retrying import RetryingLlm
from greenroom.plugins.plugin import BasePlugin, agents_of_app


class RetryModelPlugin(BasePlugin):
    """Wraps the models of the agents in `RetryingLlm` when a run begins, with the same arguments.

    Other plugins see one call and one reply, or the last error.
    """

    def __init__(
        self,
        name: str = "retry_model_plugin",
        *,
        max_attempts: int = 3,
        timeout_seconds: float | None = 60.0,
        wait_seconds: float = 0.5,
        max_wait_seconds: float = 10.0,
    ) -> None:
        super().__init__(name)
        self._settings: dict[str, Any] = {
            "max_attempts": max_attempts,
            "timeout_seconds": timeout_seconds,
            "wait_seconds": wait_seconds,
            "max_wait_seconds": max_wait_seconds,
        }
        RetryingLlm("checked now, not in the first run", **self._settings)

    async def before_run_callback(self, *, invocation_context: InvocationContext) -> None:
        for agent in agents_of_app(invocation_context.agent):
            model: BaseLlm | str | None = getattr(agent, "model", None)
            if model and not isinstance(model, RetryingLlm):
                agent.model = RetryingLlm(model, **self._settings)
