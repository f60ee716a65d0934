"""Runs a node: its attempts, its stored events, and its resumption.

A node's function returns or yields values. `NodeRun` converts them to events, passes them to the run's one reader,
which stores them, and reports when the node is complete. All runs below one workflow share an `Engine`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Protocol, cast

from greenroom.agents.node import BaseNode
from greenroom.agents.waiting import wait_event
from greenroom.agents.workflow.engine import WorkflowEngine
from greenroom.agents.workflow.errors import (
    DynamicNodeFailError,
    NodeFailure,
    NodeInterrupted,
    NodeTimeoutError,
    NodeWaiting,
    WorkflowConfigurationError,
    WorkflowDataError,
)
from greenroom.agents.workflow.node_context import NodeContext, check_delta
from greenroom.agents.workflow.position import NodeStatus, checkpoint
from greenroom.agents.workflow.requests import request_event
from greenroom.agents.workflow.values import input_value, output_value
from greenroom.errors import ToolError, as_exception, code_of, error_of, message_of
from greenroom.invocation.context import InvocationContext
from greenroom.invocation.sleep import wait_id
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import Content
from greenroom.records.event import Event, EventActions, NodeInfo
from greenroom.records.human_requests import RequestInput
from greenroom.telemetry.span import Span, current
from greenroom.tools.value_types.plain_types import InvalidValue


class Owner(Protocol):
    """The graph that a run belongs to."""

    def completed(self, run: NodeRun) -> list[Event]:
        """Called before the last event of a run is stored. Returns the values to store with it."""
        ...


class Beginning(Enum):
    """The start of a run, which depends on the events that an earlier process stored."""

    NEW = auto()
    """There is nothing yet, or the run resumes where it was."""

    AGAIN = auto()
    """It failed for good before: its attempts count from 1 again."""

    CUT_OFF = auto()
    """A process died during an attempt, which therefore fails with NodeInterrupted."""


@dataclass(slots=True)
class Attempt:
    """The state of an attempt. Each attempt has a new record."""

    task: asyncio.Task[Any] | None
    """The task that executes the node."""

    is_waiting: bool = False
    """A node that this one runs waits for a person."""

    final: Event | None = None
    """The newest event of a node that gives one, held until the run is complete."""

    gave_output: bool = False
    delegate: NodeRun | None = None
    """The child whose output is this node's."""

    counts: dict[str, int] = field(default_factory=dict[str, int])
    """By a node's name, how often it was run without a run_id."""

    waits: int = 0
    """The number of times that the node's code has waited."""


class NodeRun:
    """A run of a node, on a path of its own.

    stands_for: paths of other nodes that get the same output.
    owner: the graph that contains the node; None for a node that another node runs.
    author: the author of its events.
    """

    def __init__(
        self,
        engine: WorkflowEngine,
        node: BaseNode,
        path: str,
        node_input: Any,
        *,
        branch: str | None,
        author: str,
        parent: NodeRun | None,
        owner: Owner | None = None,
        stands_for: Sequence[str] = (),
        isolation_scope: str | None = None,
    ) -> None:
        self.engine = engine
        self.node = node
        self.path = path
        self.node_input = node_input
        self.branch = branch
        self.author = author
        self.parent = parent
        self.owner = owner
        self.output_for = [path, *stands_for]
        self.isolation_scope = isolation_scope
        if node.is_task and isolation_scope is None and engine.ctx.isolation_scope is None:
            self.isolation_scope = path

        self.state_schema: Any = node.state_schema
        self.span: Span | None = engine.span
        if parent is not None:
            self.state_schema = node.state_schema or parent.state_schema
            self.span = parent.span
        self._outer_span = self.span

        self.record = engine.position.at(path)
        self._is_suspended = self.record.is_suspended(is_one_event=node.is_one_event)
        self._beginning = self._read_beginning()
        if self._beginning is Beginning.AGAIN:
            self.record.attempt = 1

        self.followers: list[NodeRun] = []
        self._attempt = Attempt(task=None)
        self._children: set[asyncio.Task[Any]] = set()
        self._unstored: list[Event] = []
        self._held: list[Event] = []
        self._held_error: DynamicNodeFailError | None = None

    def _read_beginning(self) -> Beginning:
        record = self.record
        if record.status is NodeStatus.FAILED:
            return Beginning.AGAIN

        was_running = record.status is NodeStatus.RUNNING and not self._is_suspended and not record.has_result
        if was_running and self.node.on_interrupt == "report":
            return Beginning.CUT_OFF

        return Beginning.NEW

    # events of the run

    def start_event(self) -> Event | None:
        """The checkpoint to store before the node's code runs; None where it needs none."""
        if self.node.on_interrupt != "report" or self._beginning is not Beginning.NEW:
            return None
        if self._waits() or self._has_ended():
            return None
        return self.mark(NodeStatus.RUNNING)

    def mark(
        self,
        status: NodeStatus,
        *,
        attempt: int | None = None,
        is_answered: bool = False,
    ) -> Event:
        """A checkpoint of this run."""
        attempt = self.record.attempt if attempt is None else attempt
        return checkpoint(
            self.path,
            author=self.author,
            branch=self.branch,
            status=status,
            attempt=attempt,
            is_answered=is_answered,
            interrupts=[*self.record.requests] if status is NodeStatus.WAITING else (),
        )

    def _waits(self) -> bool:
        record = self.record
        if not self._is_suspended or not record.requests:
            return False
        return not (record.is_answered and self.node.rerun_on_resume)

    def _has_ended(self) -> bool:
        record = self.record
        if self._is_suspended and not self.node.rerun_on_resume:
            return True
        if self._beginning is Beginning.AGAIN:
            return False
        return record.has_result or record.status is NodeStatus.COMPLETED

    # life of the run

    async def run(self) -> bool:
        """Runs the node, or the rest of an interrupted run. False if it waits for a person. Raises NodeFailure."""
        if self._waits():
            return False

        record = self.record
        if self._has_ended():
            await self._complete(is_answered=self._is_suspended and not record.has_result)
            return True

        if self._beginning is Beginning.AGAIN:
            await self.send(self.mark(NodeStatus.PENDING))

        await self._make_attempts()

        if self._attempt.is_waiting or (record.requests and not record.has_result):
            if self._attempt.final is not None:
                await self.send(self._attempt.final)

            if record.requests:
                needs_checkpoint = not self.node.is_one_event or not record.asked
            else:
                needs_checkpoint = self.node.on_interrupt == "report"
            if needs_checkpoint:
                await self.send(self.mark(NodeStatus.WAITING))

            return False

        await self._complete()

        return True

    async def _complete(self, *, is_answered: bool = False) -> None:
        final = self._attempt.final
        ended = [final or self._end_event(is_answered=is_answered)]
        if final is not None and self.engine.ctx.is_resumable:
            ended.append(self.mark(NodeStatus.COMPLETED))
        for event in ended:
            self.engine.position.add(event)

        following: list[Event] = []
        if self.owner is not None:
            following = self.owner.completed(self)
        for event in following:
            self.engine.position.add(event)

        await self.engine.store(*self._pop_held(), *ended, *following)

    def _pop_held(self) -> list[Event]:
        held = self._held
        self._held = []
        return held

    def _end_event(self, *, is_answered: bool) -> Event:
        event = self.mark(NodeStatus.COMPLETED, is_answered=is_answered)
        if "/" not in self.path:
            event.actions.agent_state = None
            event.actions.end_of_agent = True
        return event

    async def _make_attempts(self) -> None:
        policy = self.node.retry_config
        is_interrupted = self._beginning is Beginning.CUT_OFF  # which is not retried
        if policy is None or policy.attempts == 1 or is_interrupted:
            await self._make_attempt()
            return

        from greenroom.agents.workflow.retries import retried  # imports tenacity, which only retries need

        await retried(
            policy,
            self._make_attempt,
            first=self.record.attempt,
            on_retry=self._note_retry,
        )

    async def _note_retry(self, failure: NodeFailure, next_attempt: int) -> None:
        await self.engine.send(*failure.events, self.mark(NodeStatus.PENDING, attempt=next_attempt))

    async def _make_attempt(self) -> None:
        if self._beginning is Beginning.CUT_OFF:
            raise self.failure(NodeInterrupted(self.path))

        if self.record.status is NodeStatus.PENDING and self.node.on_interrupt == "report":
            await self.send(self.mark(NodeStatus.RUNNING))

        self._attempt = Attempt(task=asyncio.current_task())

        span = None
        if self._outer_span is not None and "/" in self.path:  # the root's span is the agent's
            span = self.node.begin_span(self._outer_span)

        if span is None:
            await self._execute()
            return

        self.span = span

        try:
            with current(span):
                await self._execute()
        except BaseException as error:
            span.fail(error.error if isinstance(error, NodeFailure) else error)
            raise
        finally:
            span.end()

    async def _execute(self) -> None:
        self.ctx = self._context()

        error: Exception | None = None
        limit = asyncio.timeout(self.node.timeout)
        try:
            async with limit:
                if not self.node.converts_input:
                    self.node_input = input_value(self.node_input, self.node.input_schema)
                recorded = self._invocation.recorded_nodes
                if recorded is None or not await recorded.execute(self.node, self.path, self.emit):
                    await self.node.execute(self)
                await self._wait_for_children()
                await self._send_leftovers()
        except NodeWaiting:
            self._attempt.is_waiting = True
            await self._wait_for_children()
        except NodeFailure:
            raise
        except TimeoutError as raised:
            if limit.expired():
                error = NodeTimeoutError(self.node.name, self.node.timeout or 0)
            else:
                error = raised
        except BaseException as raised:  # a node's code may raise anything, and only its run fails
            error = as_exception(raised)
        finally:
            if self._children:
                for task in self._children:
                    task.cancel()
                await asyncio.gather(*self._children, return_exceptions=True)

        if error is not None:
            if isinstance(error, DynamicNodeFailError):
                self.ctx.error = error.error
                self.ctx.error_node_path = error.error_node_path
            else:
                self.ctx.error = error
                self.ctx.error_node_path = self.path

            raise self.failure(error) from error

    def failure(self, error: Exception) -> NodeFailure:
        """Builds the events that a failed attempt leaves. An unhandled error of a child is the node's."""
        held = self._pop_held()

        if isinstance(error, DynamicNodeFailError):
            if error is self._held_error:
                return NodeFailure(error.error, held[:-1])  # without the checkpoint after the child's
            error = error.error

        unstored = list(self._unstored)
        self._unstored[:] = []
        event = self._marked(unstored.pop() if unstored else Event(author=self.author, branch=self.branch))
        event.error_code = code_of(error)
        event.error_message = message_of(error)

        return NodeFailure(error, [*held, *unstored, event])

    def _context(self) -> NodeContext:
        invocation = self.engine.ctx.model_copy()
        self._invocation = invocation
        invocation.branch = self.branch
        invocation.unstored = self._unstored
        invocation.node_runner = self
        invocation.span = self.span
        invocation.isolation_scope = self.isolation_scope or invocation.isolation_scope
        parent_ctx = getattr(self.parent, "ctx", None)
        ctx = NodeContext(
            invocation,
            self.record,
            self.state_schema,
            self.node,
            self.path,
            parent_ctx,
            self,
        )
        ctx.event_author = self.author

        return ctx

    @property
    def invocation(self) -> InvocationContext:
        """The context of the run for agents and tools in this node."""
        return self._invocation

    # what the node gives

    async def emit(self, value: Any) -> None:
        if value is None:
            return

        if isinstance(value, RequestInput):
            await self.send(self._with_actions(request_event(value)))
            return

        if isinstance(value, Event):
            if value.long_running_tool_ids:
                await self.send(self._with_actions(value))
                return
            event = value
        elif isinstance(value, Content):
            event = Event(author=self.author, content=value)
        else:
            event = Event(author=self.author, output=value)

        if event.partial:
            await self.send(self._marked(event))
            return

        if self._attempt.final is not None:
            await self.send(self._attempt.final)
        self._attempt.final = None

        gave_output = event.output is not None
        event = self._with_actions(event)
        if gave_output and event.output is None and event.content is None and event.actions == EventActions():
            return

        if self.node.is_one_event:
            self._attempt.final = event
        else:
            await self.send(event)

    async def send(self, event: Event, *following: Event) -> None:
        """Stores the events in one step, after the held-back ones."""
        for added in (self._marked(event), *following):
            self.engine.position.add(added)

        held: list[Event] = []
        if not event.partial:
            held = self._pop_held()
        await self.engine.store(*held, event, *following)

    def _marked(self, event: Event) -> Event:
        """Sets the fields that all events of this node share, unless they are set already."""
        event.author = event.author or self.author
        event.invocation_id = self.engine.ctx.invocation_id
        event.branch = event.branch or self.branch
        event.isolation_scope = event.isolation_scope or self.isolation_scope
        event.node_info = event.node_info or NodeInfo()
        event.node_info.path = self.path
        return event

    def _with_actions(self, event: Event) -> Event:
        """Completes an event with its stored output and the node's changes through its context."""
        check_delta(event.actions.state_delta, self.state_schema)
        actions = self.ctx.take_actions()
        if actions is not None:
            event.actions.merge(actions)

        if event.output is not None:
            event.output = self._output(event.output)
            delegate = self._attempt.delegate
            if delegate is not None and event.output == delegate.record.output:
                event.output = None  # the delegate's event has it
            else:
                event.node_info = NodeInfo(output_for=self.output_for)

        return self._marked(event)

    def _output(self, value: Any) -> JsonValue:
        if self._attempt.gave_output:
            raise ValueError(f"Node {self.node.name!r} gave a second output; a run of a node has one at most")
        self._attempt.gave_output = True
        try:
            return output_value(value, self.node.output_schema)
        except (InvalidValue, ToolError) as error:
            raise WorkflowDataError(f"The output of node {self.node.name!r} is not valid: {error}") from error

    async def _send_leftovers(self) -> None:
        """Sends output, route and state that the node has set on its context after its last event."""
        ctx = self.ctx
        if ctx.output is not None:
            value = ctx.output
            ctx.output = None
            await self.emit(Event(author=self.author, output=value))
        elif (actions := ctx.take_actions()) is not None:
            event = self._marked(Event(author=self.author, actions=actions))
            if self.node.is_one_event:
                self._attempt.final = event
            else:
                await self.send(event)

    # waiting

    @property
    def place(self) -> str:
        return f"{self.path}:{self._attempt.waits}"

    async def wait(self, tool: str, args: JsonObject, *, max_late_seconds: float | None = None) -> JsonObject:
        """`Context.sleep` and `Context.wait_for` in the node's code."""
        if not self.node.rerun_on_resume:
            raise ValueError(f"Node {self.node.name!r} needs rerun_on_resume=True to wait")

        self._attempt.waits += 1
        call_id = wait_id(self.engine.ctx.invocation_id, self.path, self._attempt.waits)
        if call_id in self.record.answers:
            return cast("JsonObject", self.record.answers[call_id] or {})

        with self._other_task():
            await self.flush()
            if call_id not in self.record.requests:
                await self.send(self._with_actions(wait_event(call_id, tool, args, max_late_seconds=max_late_seconds)))
            raise NodeWaiting

    # child nodes

    async def run_child(
        self,
        item: Any,
        node_input: Any,
        *,
        use_as_output: bool = False,
        run_id: str | None = None,
        use_sub_branch: bool = False,
        branch: str | None = None,
        isolation_scope: str | None = None,
    ) -> Any:
        if not self.node.rerun_on_resume:
            raise ValueError(f"Node {self.node.name!r} needs rerun_on_resume=True to run other nodes")

        node = self.engine.node(item)

        if run_id is not None and run_id.isdigit():
            raise ValueError(f"run_id {run_id!r} must not be a number: numbers count the runs without a run_id")

        if run_id is None:
            number = self._attempt.counts.get(node.name, 0) + 1
            self._attempt.counts[node.name] = number
            run_id = str(number)

        if use_as_output and self._attempt.delegate is not None:
            raise ValueError(f"Node {self.node.name!r} runs another node already whose output is its own")

        if use_sub_branch:
            branch = sub_branch(self.branch, f"{node.name}@{run_id}")

        child = self._child(node, run_id, node_input, branch=branch)
        if use_as_output:
            self._attempt.delegate = child
            if not self._attempt.gave_output:
                child.output_for += self.output_for

        child.isolation_scope = isolation_scope or self.isolation_scope

        return await self._run_child(child)

    async def run_numbered_child(self, node: BaseNode, node_input: Any, number: int) -> Any:
        """Runs a child in a branch of its own, under that number."""
        run_id = str(number)
        branch = sub_branch(self.branch, f"{node.name}@{run_id}")
        return await self._run_child(self._child(node, run_id, node_input, branch=branch))

    def _child(
        self,
        node: BaseNode,
        run_id: str,
        node_input: Any,
        *,
        branch: str | None,
    ) -> NodeRun:
        return NodeRun(
            self.engine,
            node,
            f"{self.path}/{node.name}@{run_id}",
            node_input,
            branch=branch or self.branch,
            author=self.author,
            parent=self,
            isolation_scope=self.isolation_scope,
        )

    async def _run_child(self, child: NodeRun) -> Any:
        record = child.record
        node = child.node
        if record.completion(is_one_event=node.is_one_event) is not None:
            return record.output
        if record.status is NodeStatus.FAILED and record.error and record.failed_at > self.record.attempt_at:
            raise DynamicNodeFailError(node.name, error_of(*record.error), child.path)  # the node has handled it before

        with self._other_task():
            try:
                await self.flush()
                start = child.start_event()
                if start is not None:
                    await self.engine.send(start)
                if not await child.run():
                    raise NodeWaiting
            except NodeFailure as failure:
                failed = child.mark(NodeStatus.FAILED)
                for event in (*failure.events, failed):
                    self.engine.position.add(event)
                record.error = (code_of(failure.error), message_of(failure.error))
                self._held += [*failure.events, failed]
                self._held_error = DynamicNodeFailError(node.name, failure.error, child.path)
                raise self._held_error from failure.error

        return record.output

    @contextlib.contextmanager
    def _other_task(self) -> Generator[None]:
        """Counts the current task among those of the node's children, unless it executes the node itself."""
        task = asyncio.current_task()
        if task is None or task is self._attempt.task:
            yield
            return
        self._children.add(task)
        try:
            yield
        finally:
            self._children.discard(task)

    async def flush(self) -> None:
        """Stores the failure of a child that this node has handled."""
        if self._held:
            await self.engine.store(*self._pop_held())

    async def _wait_for_children(self) -> None:
        """Waits for nodes that were started in tasks of their own."""
        while self._children:
            for outcome in await asyncio.gather(*self._children, return_exceptions=True):
                if isinstance(outcome, NodeWaiting) and self._attempt.is_waiting:
                    continue
                if isinstance(outcome, NodeWaiting):
                    raise WorkflowConfigurationError(
                        f"Node {self.node.name!r} ended without awaiting a node that waits for a person"
                    )
                if isinstance(outcome, BaseException):
                    raise outcome


def sub_branch(branch: str | None, name: str) -> str:
    return f"{branch}.{name}" if branch else name
