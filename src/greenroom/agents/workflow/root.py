"""A node that is run as an agent: the root of a workflow, or an agent in mode `task`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing

from greenroom.agents.agent import BaseAgent
from greenroom.agents.events import EventChannel
from greenroom.agents.node import BaseNode
from greenroom.agents.workflow.engine import WorkflowEngine, first_message
from greenroom.agents.workflow.errors import NodeFailure
from greenroom.agents.workflow.execution import NodeRun
from greenroom.agents.workflow.nodes import AgentNode, build_node
from greenroom.invocation.context import InvocationContext
from greenroom.log.state import log_state_of
from greenroom.records.event import Event


async def run_as_root(node: BaseNode, ctx: InvocationContext) -> AsyncGenerator[Event]:
    """The events of the node, which runs on the path `NAME@1` with the user's message as its input."""
    channel = EventChannel()
    engine = WorkflowEngine(ctx, channel.send, build_node)

    stored = list(_stored_events(ctx))
    if stored and stored[-1][1].actions.end_of_agent and stored[-1][1].author == node.name:
        return

    engine.position.read(stored)

    run = NodeRun(
        engine,
        node,
        f"{node.name}@1",
        first_message(ctx),
        branch=ctx.branch,
        author=node.name,
        parent=None,
    )
    try:
        async with aclosing(channel.run(run.run())) as events:
            async for event in events:
                yield event
    except NodeFailure as failure:  # what other nodes had sent is stored by now
        for event in failure.events[:-1]:
            yield event
        ctx.unstored += failure.events[-1:]
        raise failure.error from failure.error.__cause__


def run_task(agent: BaseAgent, ctx: InvocationContext) -> AsyncGenerator[Event]:
    return run_as_root(AgentNode.of(agent), ctx.for_agent(agent))


def _stored_events(ctx: InvocationContext) -> Iterator[tuple[int, Event]]:
    """The stored events of the run, when it is resumed."""
    if ctx.resumed_from is None:
        return
    events = ctx.session.events
    for index in log_state_of(events).run(ctx.invocation_id).indexes:
        event = events[index]
        if index >= ctx.resumed_from and (event.isolation_scope == ctx.isolation_scope or event.is_of_task()):
            yield index, event
