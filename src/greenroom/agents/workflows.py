"""Workflow agents: they run their sub-agents one after the other, again and again, or side by side.

They write checkpoints, events that say how far they got, so that a run that was cut off is resumed from there:
`actions.agentState` when an agent moves on, `actions.endOfAgent` when it is done, both without content.

Source: ADK's workflow agents and resumability.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import field
from typing import Any, Literal, NamedTuple, TypeAlias

from greenroom.agents.agent import BaseAgent
from greenroom.agents.events import EventChannel
from greenroom.errors import AgentConfigError, BranchFailed, as_exception
from greenroom.invocation.context import InvocationContext
from greenroom.log.calls import is_within
from greenroom.log.state import events_of_run
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.event import Event, EventActions


class Checkpoint(NamedTuple):
    """The state that an agent stored last, from which it resumes."""

    resumed_from: int
    """Index in the log after the event. state None: the agent is done."""

    state: JsonObject | None


def newest_checkpoint(agent: BaseAgent, ctx: InvocationContext) -> Checkpoint | None:
    """Returns the agent's newest checkpoint in a run that is resumed; None when it begins now."""
    for index, event in ctx.own_events(agent.name):
        if event.actions.end_of_agent or event.content is not None:  # a callback answered for it
            return Checkpoint(index + 1, None)
        if event.actions.agent_state is not None:
            return Checkpoint(index + 1, event.actions.agent_state)
    return None


def checkpoint(agent: BaseAgent, ctx: InvocationContext, state: JsonObject) -> Event:
    return _event(agent, ctx, EventActions(agent_state=state))


def done(agent: BaseAgent, ctx: InvocationContext, state_delta: JsonObject | None = None) -> Event:
    return _event(agent, ctx, EventActions(end_of_agent=True, state_delta=state_delta or {}))


def _event(agent: BaseAgent, ctx: InvocationContext, actions: EventActions) -> Event:
    return Event(
        invocation_id=ctx.invocation_id,
        author=agent.name,
        branch=ctx.branch,
        actions=actions,
    )


CURRENT = "current_sub_agent"
ROUNDS = "times_looped"


class _InOrder(BaseAgent):
    """Runs the sub-agents one after the other, in rounds."""

    _never_waits = True

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event]:
        rounds = 0

        first = 0
        resumed_from = None
        reached = newest_checkpoint(self, ctx)
        if reached is not None:
            if reached.state is None:
                return
            rounds = int(reached.state.get(ROUNDS, 0))
            first = position_of(self, reached.state)
            resumed_from = reached.resumed_from

        while self._has_round(rounds):
            for child in self.sub_agents[first:]:
                if resumed_from is None:
                    yield checkpoint(self, ctx, self._position(child, rounds))

                if resumed_from is not None:
                    since = resumed_from
                else:
                    since = len(ctx.session.events)

                async with aclosing(child.run_async(ctx.entering(resumed_from))) as events:
                    async for event in events:
                        yield event

                resumed_from = None

                if ctx.is_waiting(since):
                    return

                if self._is_left(ctx, since):
                    yield done(self, ctx)
                    return

            first = 0
            rounds += 1

        yield done(self, ctx)

    @abstractmethod
    def _has_round(self, rounds: int) -> bool:
        """True if another round follows.

        rounds: how many have ended.
        """

    def _position(self, child: BaseAgent, rounds: int) -> JsonObject:
        return {CURRENT: child.name}

    def _is_left(self, ctx: InvocationContext, since: int) -> bool:
        return False


class SequentialAgent(_InOrder):
    """Runs its sub-agents one after the other. A sub-agent that fails ends the sequence with its error; one that waits
    for an answer halts the sequence until the answer arrives. An escalation does not end it.
    """

    def _has_round(self, rounds: int) -> bool:
        return rounds == 0

    async def _run_live_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event]:
        """Runs the sub-agents in order. A sub-agent with a connection reports its end through a tool."""
        queue = ctx.live_request_queue
        for child in self.sub_agents:
            step = ctx.entering(None)
            step.announces_done = True
            async with aclosing(child.run_live(step)) as events:
                async for event in events:
                    yield event
            if queue is not None and queue.is_closed:
                return


def position_of(agent: BaseAgent, state: dict[str, object]) -> int:
    """Index of the child that a checkpoint names. Raises AgentConfigError when the agent has
    changed since.
    """
    names = [child.name for child in agent.sub_agents]
    if state.get(CURRENT) not in names:
        raise AgentConfigError(f"Agent {agent.name!r} was at {state.get(CURRENT)!r}, which is no sub-agent any more")
    return names.index(str(state[CURRENT]))


class LoopAgent(_InOrder):
    """Runs its sub-agents in a loop. Ends after `max_iterations` rounds, or when an agent in it escalates and has
    completed its turn.
    """

    max_iterations: int | None = None
    """None means no limit; zero or less means no round at all. An escalation is spent by the
    nearest loop around the agent that wrote it.
    """

    def _has_round(self, rounds: int) -> bool:
        return bool(self.sub_agents) and (self.max_iterations is None or rounds < self.max_iterations)

    def _position(self, child: BaseAgent, rounds: int) -> JsonObject:
        return {CURRENT: child.name, ROUNDS: rounds}

    def _is_left(self, ctx: InvocationContext, since: int) -> bool:
        """Whether an escalation of this loop is in the log from there on; read from the log, so
        that it counts after a crash, too.
        """
        return any(
            event.actions.escalate
            and event.isolation_scope == ctx.isolation_scope
            and is_within(event.branch, ctx.branch)
            and self._spends(event)
            for event in events_of_run(ctx.session.events, ctx.invocation_id, since=since)
        )

    def _spends(self, event: Event) -> bool:
        author = self.root_agent.find_agent(event.author)
        while author is not None:
            if isinstance(author, LoopAgent):
                return author is self
            author = author.parent_agent
        return True


WAITING = "waiting_sub_agent"

Reducer: TypeAlias = Literal["append", "merge", "sum"] | Callable[[list[Any]], Any]
"""Joins the values that several branches wrote to one state key: lists joined, maps merged (a later
branch wins), numbers added, or by a function of the values, in the order of the sub-agents.
"""


class ParallelAgent(BaseAgent):
    """Runs its sub-agents concurrently. Events arrive as they are produced, in order within a branch; a branch
    continues when its event has been stored.

    A branch doesn't see its siblings' messages; state is shared.
    """

    _never_waits = True

    state_reducers: Mapping[str, Reducer] = field(default_factory=dict[str, Reducer])
    """By state key, for keys that several branches write; for other keys the last one in the log
    wins. When a branch fails, the others are stopped and the error says which it was.
    """

    def __post_init__(self) -> None:
        super().__post_init__()

        names = [child.name for child in self.sub_agents]
        for name in names:
            if clash := [other for other in names if other.startswith(f"{name}.")]:
                raise AgentConfigError(f"Agent {self.name!r}: the branch of {clash[0]!r} would lie in that of {name!r}")

        for key, reducer in self.state_reducers.items():
            if not callable(reducer) and reducer not in ("append", "merge", "sum"):
                raise AgentConfigError(
                    f"Agent {self.name!r}: the reducer of {key!r} must be 'append', 'merge', 'sum' or a function"
                )

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event]:
        reached = newest_checkpoint(self, ctx)
        if not self.sub_agents or (reached is not None and reached.state is None):
            return

        if reached is None:
            yield checkpoint(self, ctx, {})

        if reached is not None:
            resumed_from = reached.resumed_from
        else:
            resumed_from = None

        if resumed_from is not None:
            since = resumed_from
        else:
            since = len(ctx.session.events)

        channel = EventChannel()
        branches = [ctx.entering(resumed_from, branch=branch) for branch in self._branches(ctx)]
        for branch in branches:
            branch.unstored = []

        work = [
            self._send_branch(channel, branch, self._run_branch(child, branch, since))
            for child, branch in zip(self.sub_agents, branches, strict=True)
        ]
        try:
            async with aclosing(channel.run(*work)) as events:
                async for event in events:
                    yield event
        finally:  # not before: an event of another branch doesn't mean that the error of the first has been handled
            for branch in branches:
                ctx.unstored += branch.unstored

        if not ctx.is_waiting(since):
            yield done(self, ctx, self._reduced_state(ctx, since))

    async def _send_branch(
        self,
        channel: EventChannel,
        ctx: InvocationContext,
        stream: AsyncGenerator[Event],
    ) -> None:
        try:
            async with aclosing(stream) as events:
                async for event in events:
                    for handled in ctx.take_handled():
                        await channel.send(handled)
                    await channel.send(event)
            for handled in ctx.take_handled():
                await channel.send(handled)
        except BranchFailed:  # of a parallel agent below
            raise
        except BaseException as raised:  # whatever a branch raises ends the others
            error = as_exception(raised)
            raise BranchFailed(ctx.branch or "", error) from error

    async def _run_branch(
        self,
        child: BaseAgent,
        ctx: InvocationContext,
        since: int,
    ) -> AsyncGenerator[Event]:
        """Runs a branch. If it waits, a checkpoint after its call records that the branch has begun, whatever the other
        branches do in the meantime.
        """
        async with aclosing(child.run_async(ctx)) as events:
            async for event in events:
                yield event
        of_run = events_of_run(ctx.session.events, ctx.invocation_id, since=since)
        last = next((event for event in reversed(of_run) if is_within(event.branch, ctx.branch)), None)
        if last is not None and last.long_running_tool_ids and ctx.is_waiting(since):
            yield checkpoint(self, ctx, {WAITING: child.name})

    def _branches(self, ctx: InvocationContext) -> list[str]:
        above = f"{ctx.branch}." if ctx.branch else ""
        return [f"{above}{self.name}.{child.name}" for child in self.sub_agents]

    def _reduced_state(self, ctx: InvocationContext, since: int) -> JsonObject:
        """Reduces the values that the branches wrote to keys with a reducer; keys that only one branch wrote are
        unchanged.
        """
        reduced: JsonObject = {}
        of_run = events_of_run(ctx.session.events, ctx.invocation_id, since=since)
        for key, reducer in self.state_reducers.items():
            written: list[JsonValue] = []
            for branch in self._branches(ctx):
                values = [
                    event.actions.state_delta[key]
                    for event in of_run
                    if key in event.actions.state_delta and is_within(event.branch, branch)
                ]
                if values:
                    written.append(values[-1])

            if len(written) > 1:
                reduced[key] = _reduce(self.name, key, reducer, written)

        return reduced


def _reduce(agent: str, key: str, reducer: Reducer, values: list[Any]) -> JsonValue:
    try:
        if callable(reducer):
            return reducer(values)
        if reducer == "append":
            return [item for value in values for item in value]
        if reducer == "merge":
            return {name: item for value in values for name, item in value.items()}
        return sum(values)
    except (TypeError, AttributeError) as error:
        raise AgentConfigError(f"Agent {agent!r} can't reduce what its branches wrote to {key!r}: {error}") from error
