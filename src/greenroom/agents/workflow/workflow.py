"""Workflows: the order of their nodes, and the nodes' inputs.

A run walks its graph from START. Each completed node triggers the nodes at the end of the edges that are followed from
it. To resume, the walk is repeated: runs that are complete in the log are replayed in the order of their completion,
which gives every run its former number and input; the remaining runs are then started.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import field
from typing import Any, cast

from greenroom.agents.agent import BaseAgent
from greenroom.agents.node import BaseNode, NodeExecution
from greenroom.agents.workflow.edges import EdgeItem, Graph
from greenroom.agents.workflow.errors import NodeWaiting, WorkflowConfigurationError, WorkflowDataError
from greenroom.agents.workflow.execution import NodeRun, sub_branch
from greenroom.agents.workflow.nodes import START_NAME, AgentNode, JoinNode
from greenroom.agents.workflow.position import NodeStatus
from greenroom.agents.workflow.root import run_as_root
from greenroom.invocation.context import InvocationContext
from greenroom.records.base import JsonValue
from greenroom.records.event import Event, NodeInfo
from greenroom.telemetry import names
from greenroom.telemetry.agent_spans import operation_span
from greenroom.telemetry.span import Span

_log = logging.getLogger("greenroom.workflows")


class Workflow(BaseAgent):
    """An agent that runs a graph of nodes. Its output is the output of the last node, the one without successors.

    Raises GraphValidationError, which lists all faults of the edges.
    """

    edges: Sequence[EdgeItem] = field(default_factory=list[EdgeItem])
    """Chains of nodes, such as `("START", a, (b, c), d)`, and `Edge`s."""

    max_concurrency: int | None = None
    """The number of its nodes that run at a time; None, zero or less means no limit."""

    rerun_on_resume: bool = True
    graph: Graph = field(init=False, repr=False)
    """Made of the edges."""

    is_graph = True
    _never_waits = True
    runs_own_code = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sub_agents:
            raise WorkflowConfigurationError(f"Workflow {self.name!r} has nodes, no sub_agents")
        self.graph = Graph(self, self.edges)
        for agent in self.agents:
            agent.parent_agent = agent.parent_agent or self

    @property
    def agents(self) -> Iterator[BaseAgent]:
        """The agents among the nodes, other workflows included."""
        for node in self.graph.nodes.values():
            inner = getattr(node, "node", node)  # of a parallel worker
            if isinstance(inner, AgentNode):
                yield inner.agent
            elif isinstance(inner, BaseAgent):
                yield inner

    def walk(self) -> Iterator[BaseAgent]:
        yield self
        if hasattr(self, "graph"):
            for agent in self.agents:
                yield from agent.walk()

    def begin_span(self, parent: Span) -> Span:
        return operation_span(
            parent,
            names.INVOKE_WORKFLOW,
            self.name,
            {names.WORKFLOW_NAME: self.name},
        )

    async def execute(self, execution: NodeExecution) -> None:
        """Runs it as a node of another workflow, or as the root."""
        await _Walk(self, cast("NodeRun", execution)).run()

    def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event]:
        return run_as_root(self, ctx)


class _Walk:
    """A walk through a workflow's graph: triggers, numbers and starts the runs of its nodes.

    numbers: by node, the number of its newest run. joins: by node, the outputs and branches that have reached it since
    its last run, by the node before it. ready: runs that may start; postponed: by node, the runs that wait for an
    earlier run of the same node. is_held: a task waits for the user's next message, and no other run may start before
    it.
    """

    def __init__(self, workflow: Workflow, run: NodeRun) -> None:
        self._workflow = workflow
        self._run = run
        self._engine = run.engine
        self._graph = workflow.graph
        limit = workflow.max_concurrency
        self._limit = limit if limit is not None and limit > 0 else None
        self._numbers: dict[str, int] = {}
        self._joins: dict[str, dict[str, tuple[JsonValue, str | None]]] = {}
        self._ready: deque[NodeRun] = deque()
        self._postponed: dict[str, deque[NodeRun]] = {}
        self._busy: set[str] = set()
        self._are_waiting = False
        self._is_held = False
        self._ended: list[str] = []

    async def run(self) -> None:
        if not self._graph.edges:
            return

        self._replay()
        first, starts = self._start_ready()
        if "/" not in self._run.path and self._run.record.status is NodeStatus.INACTIVE:
            starts.insert(0, self._run.mark(NodeStatus.RUNNING))  # marks the run as a workflow's

        if starts:
            await self._engine.send(*starts)

        try:
            async with asyncio.TaskGroup() as self._group:
                self._launch(first)
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None

        if len(self._ended) > 1:
            raise WorkflowConfigurationError(
                f"Workflow {self._workflow.name!r}: {' and '.join(self._ended)} both ended it with an output; join them"
            )
        if self._are_waiting:
            raise NodeWaiting

        await self._report_joins()

    def _replay(self) -> None:
        """Goes as far as the log does."""
        recorded: list[tuple[int, int, NodeRun]] = []
        counter = itertools.count()
        triggered = self._triggered_by(START_NAME, self._run.node_input, None, self._run.branch)
        while True:
            for run in triggered:
                completed_at = run.record.completion(is_one_event=run.node.is_one_event)
                if completed_at is None:
                    self._ready.append(run)
                else:
                    heapq.heappush(recorded, (completed_at, next(counter), run))

            if not recorded:
                return

            run = heapq.heappop(recorded)[2]
            triggered = self._follow(run)

    # tasks

    def _launch(self, runs: list[NodeRun]) -> None:
        for run in runs:
            self._group.create_task(self._run_chain(run))

    async def _run_chain(self, run: NodeRun | None) -> None:
        """Runs a node, and then the first of the nodes that can start after it; the others get tasks of their own."""
        while run is not None:
            if not await run.run():
                self._are_waiting = True
                self._is_held = self._is_held or run.node.is_task
                run.followers, starts = self._release(run)
                if starts:
                    await self._engine.send(*starts)

            self._launch(run.followers[1:])
            run = run.followers[0] if run.followers else None

    def completed(self, run: NodeRun) -> list[Event]:
        triggered = self._follow(run)
        self._ready.extend(triggered)
        run.followers, starts = self._release(run)

        record = run.record
        name = run.node.name
        routed = [edge for edge in self._graph.after.get(name, ()) if edge.routes]
        if not routed or triggered or self._graph.followed(name, record.route) or self._waits_for_output(run):
            return starts

        if record.route is None:
            _log.warning(
                "workflow %s: node %s gave no route, and has routed edges only",
                self._run.path,
                name,
            )
            return starts

        message = f"Node {name!r} gave the route {record.route!r}, which none of its edges has"

        return [
            self._error(run.path, "RouteNotFound", message),
            run.mark(NodeStatus.COMPLETED),
            *starts,
        ]

    def _error(self, path: str, code: str, message: str) -> Event:
        return Event(
            author=self._workflow.name,
            error_code=code,
            error_message=message,
            node_info=NodeInfo(path=path),
        )

    def _release(self, run: NodeRun) -> tuple[list[NodeRun], list[Event]]:
        name = run.node.name
        self._busy.discard(name)
        if self._postponed.get(name):
            self._ready.appendleft(self._postponed[name].popleft())
        return self._start_ready()

    def _start_ready(self) -> tuple[list[NodeRun], list[Event]]:
        """The runs that start now, and the checkpoints to store before they do."""
        runs: list[NodeRun] = []
        while self._ready and not self._is_held and (self._limit is None or len(self._busy) < self._limit):
            run = self._ready.popleft()
            if run.node.name in self._busy:
                self._postponed.setdefault(run.node.name, deque()).append(run)
                continue
            self._busy.add(run.node.name)
            runs.append(run)

        return runs, [start for run in runs if (start := run.start_event()) is not None]

    # triggers

    def _waits_for_output(self, run: NodeRun) -> bool:
        return run.node.wait_for_output and not run.record.has_result and run.record.output is None

    def _follow(self, run: NodeRun) -> list[NodeRun]:
        """Returns the runs that a completed run triggers."""
        name = run.node.name
        record = run.record
        if self._graph.is_terminal(name):
            if record.output is not None and name not in self._ended:
                self._ended.append(name)
            return []

        if self._waits_for_output(run):
            return []

        return self._triggered_by(name, record.output, record.route, run.branch)

    def _triggered_by(
        self,
        name: str,
        output: Any,
        route: JsonValue,
        branch: str | None,
    ) -> list[NodeRun]:
        targets = self._graph.followed(name, route)
        runs: list[NodeRun] = []
        for target in targets:
            if isinstance(target, JoinNode):
                joined = self._joined(target, name, output, branch)
                if joined is not None:
                    runs.append(joined)
            else:
                runs.append(self._new_run(target, output, branch, is_one_of_several=len(targets) > 1))

        return runs

    def _joined(self, join: JoinNode, name: str, output: Any, branch: str | None) -> NodeRun | None:
        reached = self._joins.setdefault(join.name, {})
        reached[name] = (output, branch)

        before = self._graph.before[join.name]
        if len(reached) < len(before):
            return None

        del self._joins[join.name]
        common = _common_branch([reached[source][1] for source in before])

        return self._new_run(join, {source: reached[source][0] for source in before}, common)

    def _new_run(
        self, node: BaseNode, node_input: Any, branch: str | None, *, is_one_of_several: bool = False
    ) -> NodeRun:
        number = self._numbers.get(node.name, 0) + 1
        self._numbers[node.name] = number
        name = f"{node.name}@{number}"
        return NodeRun(
            self._engine,
            node,
            f"{self._run.path}/{name}",
            node_input,
            branch=sub_branch(branch, name) if is_one_of_several else branch,
            author=node.name if isinstance(node, Workflow) else self._workflow.name,
            parent=self._run,
            owner=self,
            stands_for=self._run.output_for if self._graph.is_terminal(node.name) else (),
            isolation_scope=self._run.isolation_scope,
        )

    async def _report_joins(self) -> None:
        """Joins that can't run any more: without any output of the workflow that is its failure."""
        for name, reached in self._joins.items():
            path = f"{self._run.path}/{name}@{self._numbers.get(name, 0) + 1}"
            if path in self._engine.position:
                continue

            missing = [source for source in self._graph.before[name] if source not in reached]
            message = f"Node {name!r} never ran: it joins {', '.join(missing)}, which did not run"

            if not self._ended:
                raise WorkflowDataError(message)

            error = self._error(path, "JoinNotReached", message)
            after = self._run.mark(NodeStatus.RUNNING)
            await self._engine.send(error, after)


def _common_branch(branches: list[str | None]) -> str | None:
    parts = [branch.split(".") if branch else [] for branch in branches]
    common = itertools.takewhile(lambda steps: len(set(steps)) == 1, zip(*parts, strict=False))
    return ".".join(steps[0] for steps in common) or None
