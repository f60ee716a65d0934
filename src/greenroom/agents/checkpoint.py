"""Checkpoints of workflow agents: events that say how far they got, so that a run that was cut off goes on from there.

Source: ADK's resumable workflows. `actions.agentState` is written when an agent moves on, `actions.endOfAgent` when it
is done; both without content.
"""

from __future__ import annotations

from typing import NamedTuple

from greenroom.agents.agent import BaseAgent
from greenroom.invocation.context import InvocationContext
from greenroom.records.base import JsonObject
from greenroom.records.event import Event, EventActions


class Checkpoint(NamedTuple):
    """place: index in the log behind the event. state None: the agent is done."""

    place: int
    state: JsonObject | None


def newest_checkpoint(agent: BaseAgent, ctx: InvocationContext) -> Checkpoint | None:
    """How far the agent got in a run that is taken up again; None when it begins now."""
    for index, event in ctx.share(agent.name):
        if event.actions.end_of_agent or event.content is not None:  # a callback answered in its place
            return Checkpoint(index + 1, None)
        if event.actions.agent_state is not None:
            return Checkpoint(index + 1, event.actions.agent_state)
    return None


def moved_on(agent: BaseAgent, ctx: InvocationContext, state: JsonObject) -> Event:
    return _event(agent, ctx, EventActions(agent_state=state))


def done(agent: BaseAgent, ctx: InvocationContext, state_delta: JsonObject | None = None) -> Event:
    return _event(agent, ctx, EventActions(end_of_agent=True, state_delta=state_delta or {}))


def _event(agent: BaseAgent, ctx: InvocationContext, actions: EventActions) -> Event:
    return Event(invocation_id=ctx.invocation_id, author=agent.name, branch=ctx.branch, actions=actions)
