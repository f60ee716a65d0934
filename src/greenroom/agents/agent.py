"""The base of all agents: a name, a position in a tree, and a way to run."""

from __future__ import annotations

import copy
import dataclasses
import logging
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Self, TypeAlias, cast

from greenroom.agents.callbacks import Callbacks, first_answer, has_callbacks
from greenroom.agents.node import BaseNode
from greenroom.agents.waiting import run_waiting
from greenroom.errors import AgentConfigError
from greenroom.invocation.context import InvocationContext
from greenroom.invocation.user_context import CallbackContext
from greenroom.records.content import Content
from greenroom.records.event import Event
from greenroom.telemetry import names
from greenroom.telemetry.agent_spans import operation_span
from greenroom.telemetry.span import Span
from greenroom.tools.tool import OnInterrupt

_log = logging.getLogger("greenroom.agents")

Work: TypeAlias = Callable[[InvocationContext], AsyncIterator[Event]]

_NAME = re.compile(r"[^\W\d]\w*(?:[-. ]\w+)*")


class BaseAgent(BaseNode, ABC):
    """Base of all agents. A subclass declares its fields as annotations and writes
    `_run_async_impl`.

    name: unique in the tree, else a warning is logged; starts with a letter or `_`, and isn't
    "user".
    """

    sub_agents: Sequence[BaseAgent] = dataclasses.field(default_factory=list["BaseAgent"])
    """Each agent has one parent."""

    before_agent_callback: Callbacks = None
    after_agent_callback: Callbacks = None
    parent_agent: BaseAgent | None = dataclasses.field(default=None, init=False, repr=False)
    on_interrupt: OnInterrupt = "retry"

    is_remote = False
    """Whether it runs on another server."""

    _never_waits = False
    """Whether `InvocationContext.sleep` is never called in `_run_async_impl`."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "_run_async_impl" in vars(cls) and "_never_waits" not in vars(cls):
            cls._never_waits = False

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise AgentConfigError(f"Agent name {self.name!r} must be a word: letters, digits and '_', no digit first")
        if self.name == "user":
            raise AgentConfigError("An agent can't be named 'user': that is the author of the user's messages")

        for child in self.sub_agents:
            if child.is_graph:
                raise AgentConfigError(
                    f"Workflow {child.name!r} can't be a sub-agent of {self.name!r}; give {self.name!r} a place in its "
                    "edges, or offer the workflow as a tool"
                )
            if child.parent_agent is not None and child.parent_agent is not self:
                raise AgentConfigError(
                    f"Agent {child.name!r} already belongs to {child.parent_agent.name!r}; "
                    f"it can't be a sub-agent of {self.name!r} too"
                )

            child.parent_agent = self

        self._warn_of_equal_names()

    def _warn_of_equal_names(self) -> None:
        counts = Counter(agent.name for agent in self.walk())

        twice = sorted(name for name, count in counts.items() if count > 1)
        if twice:
            _log.warning(
                "agent %s: several agents of its tree have the name %s; transfers and resumption find the first one",
                self.name,
                ", ".join(twice),
            )

    def clone(self, update: Mapping[str, Any] | None = None) -> Self:
        """A copy with some other fields and without a parent; the sub-agents are cloned too."""
        changes = dict(update or {})

        wrong = changes.keys() - {field.name for field in dataclasses.fields(self) if field.init}
        if wrong:
            raise AgentConfigError(f"A clone of agent {self.name!r} can't be given {', '.join(sorted(wrong))}")

        fields: dict[str, Any] = {name: [*value] for name, value in vars(self).items() if isinstance(value, list)}
        fields |= {"sub_agents": [child.clone() for child in self.sub_agents], **changes, "parent_agent": None}
        cloned = copy.copy(self)
        vars(cloned).update(fields)
        cloned.__post_init__()

        return cloned

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name!r})"

    @property
    def run_node_of_tool(self) -> Callable[..., Awaitable[Any]] | None:
        """Runs a node in a tool of the agent, see `Context.run_node`; None for agents without tools."""
        return None

    @property
    def root_agent(self) -> BaseAgent:
        agent = self
        while agent.parent_agent is not None:
            agent = agent.parent_agent
        return agent

    @property
    def takes_transfers(self) -> bool:
        """Whether agents below may hand the conversation up to this one, or past it to its other
        children.
        """
        return False

    @property
    def is_delegate(self) -> bool:
        """Whether its parent calls it as a tool, and can't transfer to it."""
        return False

    def walk(self) -> Iterator[BaseAgent]:
        """This agent and all below it, parents first."""
        yield self
        for child in self.sub_agents:
            yield from child.walk()

    def find_agent(self, name: str) -> BaseAgent | None:
        """This agent or one below it."""
        return next((agent for agent in self.walk() if agent.name == name), None)

    def find_sub_agent(self, name: str) -> BaseAgent | None:
        return next((agent for agent in self.walk() if agent.name == name and agent is not self), None)

    def run_async(self, parent_context: InvocationContext) -> AsyncGenerator[Event]:
        """The agent's events, callbacks included. The reader stores each whole one before taking
        the next.
        """
        work = self._run_async_impl if self._never_waits else self._run_waiting
        return self._work(parent_context.for_agent(self), work)

    def run_live(self, parent_context: InvocationContext) -> AsyncGenerator[Event]:
        """The agent's events in a live run, whose client speaks through `live_request_queue`.

        Raises AgentConfigError for agents that can't do that: parallel and loop agents, and models
        without a live connection.
        """
        return self._work(parent_context.for_agent(self), self._run_live_impl)

    def _work(self, ctx: InvocationContext, work: Work) -> AsyncGenerator[Event]:
        if ctx.span is None:
            return self._with_callbacks(ctx, work)
        span = self.begin_span(ctx.span)
        ctx.span = span
        return _traced(self._with_callbacks(ctx, work), span)

    def begin_span(self, parent: Span) -> Span:
        described = {names.AGENT_NAME: self.name, names.AGENT_DESCRIPTION: self.description}
        return operation_span(parent, names.INVOKE_AGENT, self.name, described)

    def _with_callbacks(self, ctx: InvocationContext, work: Work) -> AsyncGenerator[Event]:
        if (
            has_callbacks(self, ctx, "before_agent_callback")
            or has_callbacks(self, ctx, "after_agent_callback")
            or "on_agent_error_callback" in ctx.plugins.listeners
        ):
            return self._run_with_callbacks(ctx, work)
        return cast("AsyncGenerator[Event]", work(ctx))

    @abstractmethod
    def _run_async_impl(self, ctx: InvocationContext) -> AsyncIterator[Event]:
        """The agent's own work: an async generator of events."""

    def _run_waiting(self, ctx: InvocationContext) -> AsyncGenerator[Event]:
        """`_run_async_impl` for agents whose code may wait."""
        below = {agent.name for agent in self.walk() if agent is not self}
        return run_waiting(ctx, self._run_async_impl, below=below)

    def _run_live_impl(self, ctx: InvocationContext) -> AsyncIterator[Event]:
        """The agent's own work in a live run."""
        raise AgentConfigError(f"Agent {self.name!r} can't run live: {type(self).__name__} doesn't support it")

    async def _run_with_callbacks(
        self,
        ctx: InvocationContext,
        work: Work,
    ) -> AsyncGenerator[Event]:
        try:
            if next(ctx.own_events(self.name), None) is None:
                event = await self._call_back("before_agent_callback", ctx)
                if event is not None:
                    yield event
                    if event.content is not None:
                        return
                if ctx.end_invocation:
                    return

            async with aclosing(cast("AsyncGenerator[Event]", work(ctx))) as events:
                async for event in events:
                    yield event

            if not ctx.end_invocation:
                event = await self._call_back("after_agent_callback", ctx)
                if event is not None:
                    yield event
        except Exception as error:  # plugins are notified of whatever an agent raises
            await ctx.plugins.notify(
                "on_agent_error_callback", agent=self, callback_context=CallbackContext(ctx), error=error
            )
            raise

    async def _call_back(self, hook: str, ctx: InvocationContext) -> Event | None:
        """An event with the answer, or with the state that was changed on the way; None when there
        is neither.
        """
        callback_context = CallbackContext(ctx)
        for_plugins = {"agent": self, "callback_context": callback_context}

        content: Content | None = await first_answer(
            self, ctx, hook, for_plugins=for_plugins, callback_context=callback_context
        )
        actions = callback_context.collect_actions()
        if content is None and not actions.state_delta and not actions.artifact_delta:
            return None

        if content is not None and content.role is None:
            content = Content(role="model", parts=content.parts)

        return ctx.new_event(self.name, content=content, actions=actions)


async def _traced(run: AsyncGenerator[Event], span: Span) -> AsyncGenerator[Event]:
    with span:
        async with aclosing(run) as events:
            async for event in events:
                yield event
