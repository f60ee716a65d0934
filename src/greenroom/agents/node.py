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
    """Retries of a node whose attempt failed. A field that is None has its default.

    max_attempts: 5, the first one included; 0 and 1 mean no retry. initial_delay, max_delay: 1 and 60 seconds.
    backoff_factor: 2. jitter: 1, the share of the delay by which it may differ. exceptions: classes or names of
    classes, those below them included; None means all.
    """

    max_attempts: int | None = None
    initial_delay: float | None = None
    max_delay: float | None = None
    backoff_factor: float | None = None
    jitter: float | None = None
    exceptions: Sequence[type[BaseException] | str] | None = None

    @property
    def attempts(self) -> int:
        return 5 if self.max_attempts is None else max(1, self.max_attempts)

    def delay_seconds(self, failed_attempt: int) -> float:
        """The pause behind the attempt of that number, counted from 1."""
        initial = 1.0 if self.initial_delay is None else self.initial_delay
        longest = 60.0 if self.max_delay is None else self.max_delay
        factor = 2.0 if self.backoff_factor is None else self.backoff_factor
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
    """One execution of a node, as the node sees it."""

    @property
    def ctx(self) -> Context: ...

    @property
    def node_input(self) -> Any: ...

    async def emit(self, value: Any) -> None:
        """Stores what a node yields: an output, an event, a request for input; None is nothing."""
        ...


class BaseNode(Declarative):
    """A step of a workflow. A subclass writes `_run_impl`, an async generator of outputs and events.

    name: a Python identifier. rerun_on_resume: when a request that it made is answered, it runs again with the answers
    in `ctx.resume_inputs`; otherwise the answer is its output. wait_for_output: a run without output or route triggers
    nothing; the node waits to be triggered again. timeout: seconds, for each attempt. input_schema, output_schema:
    types to which values are converted; JSON Schemas are not enforced. state_schema: pydantic model of the state keys
    that it and the nodes below it may write. on_interrupt: what happens to a run that a crash cut off: "report" fails
    it with NodeInterrupted, which is not retried; "retry" runs it again.
    """

    name: str
    description: str = ""
    rerun_on_resume: bool = False
    wait_for_output: bool = False
    retry_config: RetryConfig | None = None
    timeout: float | None = None
    input_schema: Any = None
    output_schema: Any = None
    state_schema: Any = None
    on_interrupt: OnInterrupt = "report"

    _always_required = frozenset({"name"})

    is_graph = False
    is_task = False
    converts_input = False
    """Whether its `execute` converts the input to the input schema."""

    @property
    def is_one_event(self) -> bool:
        """Whether a run stores one event at most, with which it is complete."""
        return False

    def begin_span(self, parent: Span) -> Span | None:
        """The span of one attempt; None of a node that runs an agent, which has its own."""
        return operation_span(parent, names.INVOKE_NODE, self.name, {})

    def _run_impl(self, *, ctx: Context, node_input: Any) -> AsyncIterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} has no _run_impl")

    async def execute(self, execution: NodeExecution) -> None:
        """Runs the node once. The framework calls it."""
        async for value in self._run_impl(ctx=execution.ctx, node_input=execution.node_input):
            await execution.emit(value)
