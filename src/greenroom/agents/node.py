"""The base of everything that can be a node of a workflow; agents are nodes, too."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from greenroom.invocation.user_context import Context
from greenroom.records.declarative import Declarative
from greenroom.telemetry import names
from greenroom.telemetry.agent_spans import operation_span
from greenroom.telemetry.span import Span
from greenroom.tools.tool import OnInterrupt


@dataclass(kw_only=True)
class RetryConfig:
    """Retries of a node whose attempt failed. A field that is None has its default."""

    max_attempts: int | None = None
    """Including the first one; 0 and 1 mean no retry. Default: 5."""

    initial_delay: float | None = None
    """Seconds before the first retry. Default: 1."""

    max_delay: float | None = None
    """Seconds that a delay grows to at most. Default: 60."""

    backoff_factor: float | None = None
    """By which each delay is longer than the one before. Default: 2."""

    jitter: float | None = None
    """The share of the delay by which it may differ. Default: 1."""

    exceptions: Sequence[type[BaseException] | str] | None = None
    """Classes or names of classes, those below them included; None means all."""

    @property
    def attempts(self) -> int:
        if self.max_attempts is None:
            return 5
        return max(1, self.max_attempts)

    def delay_seconds(self, failed_attempt: int) -> float:
        """The pause after the attempt of that number, counted from 1."""
        initial = 1.0 if self.initial_delay is None else self.initial_delay
        longest = 60.0 if self.max_delay is None else self.max_delay

        if self.backoff_factor is None:
            factor = 2.0
        else:
            factor = self.backoff_factor

        jitter = 1.0 if self.jitter is None else self.jitter

        try:
            delay = initial * factor ** (failed_attempt - 1)
        except OverflowError:
            delay = longest

        if jitter > 0:
            delay = min(delay, longest / (1 + jitter))
            delay += random.uniform(-jitter * delay, jitter * delay)

        return max(0.0, min(delay, longest))

    def covers(self, error: BaseException) -> bool:
        if self.exceptions is None:
            return True
        return any(kind in self.exceptions or kind.__name__ in self.exceptions for kind in type(error).__mro__)


class NodeExecution(Protocol):
    """The execution of a node, as the node sees it."""

    @property
    def ctx(self) -> Context: ...

    @property
    def node_input(self) -> Any: ...

    async def emit(self, value: Any) -> None:
        """Stores a value that the node yielded: an output, an event, or a request for input; None is ignored."""
        ...


class BaseNode(Declarative):
    """A step of a workflow. A subclass writes `_run_impl`, an async generator of outputs and
    events.
    """

    name: str
    """A Python identifier."""

    description: str = ""
    rerun_on_resume: bool = False
    """It runs again when a request that it made is answered, with the answers in
    `ctx.resume_inputs`; otherwise the answer is its output.
    """

    wait_for_output: bool = False
    """A run without output or route triggers nothing; the node waits to be triggered again."""

    retry_config: RetryConfig | None = None
    timeout: float | None = None
    """Seconds, for each attempt."""

    input_schema: Any = None
    """The type to which the input is converted; a JSON Schema is not enforced."""

    output_schema: Any = None
    """The type to which the output is converted; a JSON Schema is not enforced."""

    state_schema: Any = None
    """Pydantic model of the state keys that it and the nodes below it may write."""

    on_interrupt: OnInterrupt = "report"
    """Treatment of a run that a crash cut off: "report" fails it with NodeInterrupted, which is
    not retried; "retry" runs it again.
    """

    _always_required = frozenset({"name"})

    is_graph = False
    runs_own_code = True
    """Whether it is a step with code of its own, and not one that only runs or joins other nodes."""
    is_task = False
    converts_input = False
    """Whether its `execute` converts the input to the input schema."""

    @property
    def is_one_event(self) -> bool:
        """True if a run stores at most one event, which completes it."""
        return False

    def begin_span(self, parent: Span) -> Span | None:
        """Begins the span of an attempt; None for a node that runs an agent, which has its own."""
        return operation_span(parent, names.INVOKE_NODE, self.name, {})

    def _run_impl(self, *, ctx: Context, node_input: Any) -> AsyncIterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} has no _run_impl")

    async def execute(self, execution: NodeExecution) -> None:
        """Runs the node once. The framework calls it."""
        async for value in self._run_impl(ctx=execution.ctx, node_input=execution.node_input):
            await execution.emit(value)
