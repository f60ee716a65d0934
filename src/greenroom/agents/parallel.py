"""Runs its agents side by side, each in a branch of its own."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import field
from typing import Any, Literal, TypeAlias

from greenroom.agents.agent import BaseAgent
from greenroom.agents.checkpoint import done, moved_on, newest_checkpoint
from greenroom.agents.events import EventChannel
from greenroom.errors import AgentConfigError, BranchFailed, as_exception
from greenroom.invocation.context import InvocationContext
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.calls import is_within
from greenroom.records.event import Event

WAITING = "waiting_sub_agent"

Reducer: TypeAlias = Literal["append", "merge", "sum"] | Callable[[list[Any]], Any]
"""How the values that several branches wrote to one state key become one: lists joined, maps merged (a later branch
wins), numbers added, or whatever a function makes of the values, in the order of the sub-agents."""


class ParallelAgent(BaseAgent):
    """Events come as they are produced, in order within a branch; a branch goes on when its event has been stored.

    A branch doesn't see what its siblings say; state is shared. state_reducers: by state key, for keys that several
    branches write; for other keys the last one in the log wins. When a branch fails, the others are stopped and the
    error says which it was.
    """

    state_reducers: Mapping[str, Reducer] = field(default_factory=dict[str, Reducer])

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
            yield moved_on(self, ctx, {})
        place = reached.place if reached is not None else None
        since = place if place is not None else len(ctx.session.events)
        channel = EventChannel()
        work = [
            self._send_branch(channel, branch, self._run_branch(child, ctx.entering(place, branch=branch), since))
            for child, branch in zip(self.sub_agents, self._branches(ctx), strict=True)
        ]
        async with aclosing(channel.run(*work)) as events:
            async for event in events:
                yield event
        if not ctx.is_waiting(since):
            yield done(self, ctx, self._reduced_state(ctx, since))

    async def _send_branch(self, channel: EventChannel, branch: str, stream: AsyncGenerator[Event]) -> None:
        try:
            async with aclosing(stream) as events:
                async for event in events:
                    await channel.send(event)
        except BranchFailed:  # of a parallel agent below
            raise
        except BaseException as raised:  # whatever a branch raises ends the others
            error = as_exception(raised)
            raise BranchFailed(branch, error) from error

    async def _run_branch(self, child: BaseAgent, ctx: InvocationContext, since: int) -> AsyncGenerator[Event]:
        """A call that waits gets a checkpoint behind it: the log then says that it was begun, whatever happens to the
        other branches while it waits."""
        async with aclosing(child.run_async(ctx)) as events:
            async for event in events:
                yield event
        of_branch = (event for event in reversed(ctx.session.events[since:]) if is_within(event.branch, ctx.branch))
        last = next((event for event in of_branch if event.invocation_id == ctx.invocation_id), None)
        if last is not None and last.long_running_tool_ids and ctx.is_waiting(since):
            yield moved_on(self, ctx, {WAITING: child.name})

    def _branches(self, ctx: InvocationContext) -> list[str]:
        above = f"{ctx.branch}." if ctx.branch else ""
        return [f"{above}{self.name}.{child.name}" for child in self.sub_agents]

    def _reduced_state(self, ctx: InvocationContext, since: int) -> JsonObject:
        """What the branches wrote to the keys that have a reducer, reduced; keys that one branch wrote stay."""
        reduced: JsonObject = {}
        for key, reducer in self.state_reducers.items():
            written: list[JsonValue] = []
            for branch in self._branches(ctx):
                values = [
                    event.actions.state_delta[key]
                    for event in ctx.session.events[since:]
                    if key in event.actions.state_delta
                    and event.invocation_id == ctx.invocation_id
                    and is_within(event.branch, branch)
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
