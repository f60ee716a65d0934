"""One run of a node: its attempts, what it stores, and how it resumes.

A node's function returns or yields values; `NodeRun` makes events of them, hands them to the run's
one reader, which stores them, and says when the node is complete. All runs below one workflow share
an `Engine`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

from greenroom.agents.node import BaseNode
from greenroom.agents.workflow.engine import Engine
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
from greenroom.records.base import JsonValue
from greenroom.records.content import Content
from greenroom.records.event import Event, EventActions, NodeInfo
from greenroom.records.human_requests import RequestInput
from greenroom.telemetry.span import current
from greenroom.tools.value_types.plain_types import InvalidValue


class Owner(Protocol):
    """The graph that a run belongs to."""

    def completed(self, run: NodeRun) -> list[Event]:
        """Called before the last event of a run is stored. Returns what is to be stored with it."""
        ...


class NodeRun:
    """One run of a node, on a path of its own.

    stands_for: paths of the nodes whose output its output is, too.
    owner: the graph that it is in; None of a node that another one runs.
    author: of its events.
    """

    def __init__(
        self,
        engine: Engine,
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

        self.state_schema: Any = node.state_schema or (parent.state_schema if parent is not None else None)
        self.record = engine.position.at(path)
        self.followers: list[NodeRun] = []
        self.is_waiting = False
        self._outer_span = self.span = parent.span if parent is not None else engine.span
        self.final: Event | None = None
        self._gave_output = False
        self._delegate: NodeRun | None = None
        self._unstored: list[Event] = []
        self._held: list[Event] = []
        self._held_error: DynamicNodeFailError | None = None
        self._counts: dict[str, int] = {}
        self._children: set[asyncio.Task[Any]] = set()
        self._task: asyncio.Task[Any] | None = None
        self._begins_again = self.record.status is NodeStatus.FAILED
        self._is_suspended = self.record.is_suspended(is_one_event=node.is_one_event)
        is_running = self.record.status is NodeStatus.RUNNING and not self._is_suspended and not self.record.has_result
        self._was_cut_off = is_running and node.on_interrupt == "report"
        if self._begins_again:
            self.record.attempt = 1

    # events of the run

    def start_event(self) -> Event | None:
        """The checkpoint to store before the node's code runs; None where it needs none."""
        if self.node.on_interrupt != "report" or self._was_cut_off or self._begins_again:
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
        return not self._begins_again and (record.has_result or record.status is NodeStatus.COMPLETED)

    # life of the run

    async def run(self) -> bool:
        """Runs the node, or does what is left of it. False when it waits for a person. Raises
        NodeFailure.
        """
        if self._waits():
            return False

        record = self.record
        if self._has_ended():
            await self._complete(is_answered=self._is_suspended and not record.has_result)
            return True

        if self._begins_again:
            await self.send(self.mark(NodeStatus.PENDING))

        await self._attempts()

        if self.is_waiting or (record.requests and not record.has_result):
            if self.final is not None:
                await self.send(self.final)
            if not self.node.is_one_event if record.requests else self.node.on_interrupt == "report":
                await self.send(self.mark(NodeStatus.WAITING))
            return False

        await self._complete()

        return True

    async def _complete(self, *, is_answered: bool = False) -> None:
        ended = [self.final or self._end_event(is_answered=is_answered)]
        if self.final is not None and self.engine.ctx.is_resumable:
            ended.append(self.mark(NodeStatus.COMPLETED))

        for one in ended:
            self.engine.position.add(one)

        if self.owner is not None:
            behind = self.owner.completed(self)
        else:
            behind = []

        for one in behind:
            self.engine.position.add(one)

        held = self._held
        self._held = []
        await self.engine.store(*held, *ended, *behind)

    def _end_event(self, *, is_answered: bool) -> Event:
        event = self.mark(NodeStatus.COMPLETED, is_answered=is_answered)
        if "/" not in self.path:
            event.actions.agent_state = None
            event.actions.end_of_agent = True
        return event

    async def _attempts(self) -> None:
        policy = self.node.retry_config
        if policy is None or policy.attempts == 1 or self._was_cut_off:  # an interruption is not retried
            await self._attempt()
            return
        from greenroom.agents.workflow.retries import retried  # with tenacity, for those who retry

        await retried(policy, self._attempt, first=self.record.attempt, on_retry=self._note_retry)

    async def _note_retry(self, failure: NodeFailure, next_attempt: int) -> None:
        await self.engine.send(*failure.events, self.mark(NodeStatus.PENDING, attempt=next_attempt))

    async def _attempt(self) -> None:
        if self._was_cut_off:
            self._was_cut_off = False
            raise self.failure(NodeInterrupted(self.path))

        if self.record.status is NodeStatus.PENDING and self.node.on_interrupt == "report":
            await self.send(self.mark(NodeStatus.RUNNING))

        self.is_waiting = False
        self.final = None
        self._gave_output = False
        self._delegate = None
        self._counts = {}
        self._task = asyncio.current_task()
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
                await self.node.execute(self)
                await self._wait_for_children()
                await self._take_leftovers()
        except NodeWaiting:
            self.is_waiting = True
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
                failed = error
            else:
                failed = None

            self.ctx.error = error if failed is None else failed.error

            if failed is None:
                self.ctx.error_node_path = self.path
            else:
                self.ctx.error_node_path = failed.error_node_path

            raise self.failure(error) from error

    def failure(self, error: Exception) -> NodeFailure:
        """Builds the events that a failed attempt leaves. An unhandled error of a child is the node's."""
        held = self._held
        self._held = []

        if isinstance(error, DynamicNodeFailError):
            if error is self._held_error:
                return NodeFailure(error.error, held[:-1])  # without the checkpoint behind the child's
            error = error.error

        unstored = list(self._unstored)
        self._unstored[:] = []
        event = self._marked(unstored.pop() if unstored else Event(author=self.author, branch=self.branch))
        event.error_code = code_of(error)
        event.error_message = message_of(error)

        return NodeFailure(error, [*held, *unstored, event])

    def _context(self) -> NodeContext:
        self._invocation = invocation = self.engine.ctx.model_copy()
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

        if self.final is not None:
            await self.send(self.final)

        self.final = None

        gave_output = event.output is not None
        event = self._with_actions(event)
        if gave_output and event.output is None and event.content is None and event.actions == EventActions():
            return

        if self.node.is_one_event:
            self.final = event
        else:
            await self.send(event)

    async def send(self, event: Event, *behind: Event) -> None:
        for one in (self._marked(event), *behind):
            self.engine.position.add(one)
        held, self._held = ([], self._held) if event.partial else (self._held, [])
        await self.engine.store(*held, event, *behind)

    def _marked(self, event: Event) -> Event:
        """With what events of this node have in common; what they have already stays."""
        event.author = event.author or self.author
        event.invocation_id = self.engine.ctx.invocation_id
        event.branch = event.branch or self.branch
        event.isolation_scope = event.isolation_scope or self.isolation_scope
        event.node_info = event.node_info or NodeInfo()
        event.node_info.path = self.path
        return event

    def _with_actions(self, event: Event) -> Event:
        """With an output in its stored form, and what the node has changed through its context since."""
        check_delta(event.actions.state_delta, self.state_schema)
        actions = self.ctx.take_actions()
        if actions is not None:
            event.actions.merge(actions)

        if event.output is not None:
            event.output = self._output(event.output)
            if self._delegate is not None and event.output == self._delegate.record.output:
                event.output = None  # the delegate's event has it
            else:
                event.node_info = NodeInfo(output_for=self.output_for)

        return self._marked(event)

    def _output(self, value: Any) -> JsonValue:
        if self._gave_output:
            raise ValueError(f"Node {self.node.name!r} gave a second output; a run of a node has one at most")
        self._gave_output = True
        try:
            return output_value(value, self.node.output_schema)
        except (InvalidValue, ToolError) as error:
            raise WorkflowDataError(f"The output of node {self.node.name!r} is not valid: {error}") from error

    async def _take_leftovers(self) -> None:
        """Output, route and state that the node has set on its context without yielding anything
        behind.
        """
        ctx = self.ctx
        if ctx.output is not None:
            value = ctx.output
            ctx.output = None
            await self.emit(Event(author=self.author, output=value))
        elif (actions := ctx.take_actions()) is not None:
            event = self._marked(Event(author=self.author, actions=actions))
            if self.node.is_one_event:
                self.final = event
            else:
                await self.send(event)

    # nodes that this one runs

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
            self._counts[node.name] = number = self._counts.get(node.name, 0) + 1
            run_id = str(number)

        if use_as_output and self._delegate is not None:
            raise ValueError(f"Node {self.node.name!r} runs another node already whose output is its own")

        if use_sub_branch:
            branch = sub_branch(self.branch, f"{node.name}@{run_id}")

        child = self._child(node, run_id, node_input, branch=branch)
        if use_as_output:
            self._delegate = child
            if not self._gave_output:
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

        task = asyncio.current_task()
        is_own = task is self._task
        if task is not None and not is_own:
            self._children.add(task)

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
        finally:
            if task is not None and not is_own:
                self._children.discard(task)

        return record.output

    async def flush(self) -> None:
        """Stores the failure of a child that this node has handled."""
        if self._held:
            held = self._held
            self._held = []
            await self.engine.store(*held)

    async def _wait_for_children(self) -> None:
        """For nodes that were started in tasks of their own and not waited for."""
        while self._children:
            for outcome in await asyncio.gather(*self._children, return_exceptions=True):
                if isinstance(outcome, NodeWaiting) and self.is_waiting:
                    continue
                if isinstance(outcome, NodeWaiting):
                    raise WorkflowConfigurationError(
                        f"Node {self.node.name!r} ended without awaiting a node that waits for a person"
                    )
                if isinstance(outcome, BaseException):
                    raise outcome


def sub_branch(branch: str | None, name: str) -> str:
    return f"{branch}.{name}" if branch else name
