"""State that the runs of nodes below one workflow share: their position in the log, and the way
into it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from greenroom.agents.node import BaseNode
from greenroom.agents.workflow.position import Position
from greenroom.invocation.context import InvocationContext
from greenroom.log.state import log_state_of
from greenroom.records.content import Content
from greenroom.records.event import Event


class WorkflowEngine:
    """The shared state of the runs below one workflow.

    build: makes a node of the argument of `ctx.run_node`.

    span: the parent span; None when tracing is off.
    """

    def __init__(
        self, ctx: InvocationContext, store: Callable[[Event], Awaitable[None]], build: Callable[[Any], BaseNode]
    ) -> None:
        self.ctx = ctx
        self.span = ctx.span
        self.position = Position()
        self._store = store
        self._build = build
        self._built: dict[int, tuple[Any, BaseNode]] = {}

    def node(self, item: Any) -> BaseNode:
        if id(item) not in self._built:
            self._built[id(item)] = (item, self._build(item))
        return self._built[id(item)][1]

    async def send(self, event: Event, *following: Event) -> None:
        """Stores the events in one step."""
        for one in (event, *following):
            self.position.add(one)
        await self.store(event, *following)

    async def store(self, event: Event, *following: Event) -> None:
        """Stores events that the position has already."""
        for one in (event, *following):
            one.invocation_id = self.ctx.invocation_id
        if following:
            self.ctx.stored_with[event.id] = [*following]
        await self._store(event)


def first_message(ctx: InvocationContext) -> Content | None:
    """Returns the user's request: answers, and messages to tasks, may have come since."""
    if ctx.resumed_from is not None and ctx.isolation_scope is None:
        events = ctx.session.events
        for index in reversed(log_state_of(events).run(ctx.invocation_id).messages):
            if events[index].isolation_scope is None and not events[index].get_function_responses():
                return events[index].content
    return ctx.user_content
