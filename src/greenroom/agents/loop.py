"""Runs its agents in turn, again and again."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from greenroom.agents.agent import BaseAgent
from greenroom.agents.checkpoint import done, moved_on, newest_checkpoint
from greenroom.agents.sequential import CURRENT, position_of
from greenroom.invocation.context import InvocationContext
from greenroom.records.calls import is_within
from greenroom.records.event import Event

ROUNDS = "times_looped"


class LoopAgent(BaseAgent):
    """Ends after `max_iterations` rounds, or when an agent in it escalates and has finished what it was doing.

    max_iterations: None means no limit; zero or less means no round at all. An escalation is spent by the nearest loop
    around the agent that wrote it.
    """

    max_iterations: int | None = None

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event]:
        rounds, first, place = 0, 0, None
        reached = newest_checkpoint(self, ctx)
        if reached is not None:
            if reached.state is None:
                return
            rounds = int(reached.state.get(ROUNDS, 0))
            first, place = position_of(self, reached.state), reached.place
        while self.sub_agents and (self.max_iterations is None or rounds < self.max_iterations):
            for child in self.sub_agents[first:]:
                if place is None:
                    yield moved_on(self, ctx, {CURRENT: child.name, ROUNDS: rounds})
                since = place if place is not None else len(ctx.session.events)
                async with aclosing(child.run_async(ctx.entering(place))) as events:
                    async for event in events:
                        yield event
                place = None
                if ctx.is_waiting(since):
                    return
                if self._is_left(ctx, since):
                    yield done(self, ctx)
                    return
            first = 0
            rounds += 1
        yield done(self, ctx)

    def _is_left(self, ctx: InvocationContext, since: int) -> bool:
        """Whether an escalation of this loop is in the log from there on; read from the log, so that it counts after a
        crash, too."""
        return any(
            event.actions.escalate
            and event.invocation_id == ctx.invocation_id
            and event.isolation_scope == ctx.isolation_scope
            and is_within(event.branch, ctx.branch)
            and self._spends(event)
            for event in ctx.session.events[since:]
        )

    def _spends(self, event: Event) -> bool:
        author = self.root_agent.find_agent(event.author)
        while author is not None:
            if isinstance(author, LoopAgent):
                return author is self
            author = author.parent_agent
        return True
