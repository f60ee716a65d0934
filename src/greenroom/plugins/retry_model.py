"""Has all agents of an app ask their models again when the provider fails for a moment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from greenroom.invocation.context import InvocationContext
from greenroom.models.model import BaseLlm
from greenroom.models.retrying import RetryingLlm
from greenroom.plugins.plugin import BasePlugin


class RetryModelPlugin(BasePlugin):
    """Wraps the models of the agents in `RetryingLlm` when a run begins; its arguments are those of that class.

    Other plugins see one call and one reply, or the last error. Needs the extra `retry`.
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
        for agent in _tree(invocation_context.agent):
            model: BaseLlm | str | None = getattr(agent, "model", None)
            if model and not isinstance(model, RetryingLlm):
                agent.model = RetryingLlm(model, **self._settings)


def _tree(agent: Any) -> Iterator[Any]:
    """All agents of the app, those that are tools included."""
    seen: set[int] = set()
    waiting = [agent.root_agent]
    while waiting:
        one = waiting.pop()
        if id(one) not in seen:
            seen.add(id(one))
            yield one
            waiting += one.sub_agents
            waiting += [tool.agent for tool in getattr(one, "tools", ()) if hasattr(tool, "agent")]
