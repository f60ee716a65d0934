"""Runs its agents one after the other."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from greenroom.agents.agent import BaseAgent
from greenroom.agents.checkpoint import done, moved_on, newest_checkpoint
from greenroom.errors import AgentConfigError
from greenroom.invocation.context import InvocationContext
from greenroom.records.event import Event

CURRENT = "current_sub_agent"


class SequentialAgent(BaseAgent):
    """Each sub-agent runs to its end before the next begins. One that fails ends the sequence with its error; one that
    waits for an answer halts it until the answer comes. An escalation doesn't."""

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event]:
        first, place = 0, None
        reached = newest_checkpoint(self, ctx)
        if reached is not None:
            if reached.state is None:
                return
            first, place = position_of(self, reached.state), reached.place
        for child in self.sub_agents[first:]:
            if place is None:
                yield moved_on(self, ctx, {CURRENT: child.name})
            since = place if place is not None else len(ctx.session.events)
            async with aclosing(child.run_async(ctx.entering(place))) as events:
                async for event in events:
                    yield event
            if ctx.is_waiting(since):
                return
            place = None
        yield done(self, ctx)

    async def _run_live_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event]:
        """Each sub-agent that has a connection says itself when it is done, with a tool."""
        queue = ctx.live_request_queue
        for child in self.sub_agents:
            step = ctx.entering(None)
            step.says_when_done = True
            async with aclosing(child.run_live(step)) as events:
                async for event in events:
                    yield event
            if queue is not None and queue.is_closed:
                return


def position_of(agent: BaseAgent, state: dict[str, object]) -> int:
    """Index of the child that a checkpoint names. Raises AgentConfigError when the agent has changed since."""
    names = [child.name for child in agent.sub_agents]
    if state.get(CURRENT) not in names:
        raise AgentConfigError(f"Agent {agent.name!r} was at {state.get(CURRENT)!r}, which is no sub-agent any more")
    return names.index(str(state[CURRENT]))
