"""The invocation context: the state and the services of one run, as an agent sees them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from greenroom.artifacts.service import BaseArtifactService
from greenroom.credentials.in_memory import InMemoryCredentialService
from greenroom.credentials.service import BaseCredentialService
from greenroom.errors import LlmCallsLimitExceeded
from greenroom.invocation.live_requests import LiveRequestQueue
from greenroom.memory.service import BaseMemoryService
from greenroom.models.model import BaseLlm
from greenroom.records.calls import ledger_of
from greenroom.records.content import Content
from greenroom.records.event import Event, EventActions
from greenroom.records.run import Caller, RunConfig
from greenroom.records.session import Session
from greenroom.sessions.service import BaseSessionService
from greenroom.telemetry.span import Span


@dataclass(frozen=True, kw_only=True, slots=True)
class Services:
    sessions: BaseSessionService
    artifacts: BaseArtifactService | None = None
    memory: BaseMemoryService | None = None
    credentials: BaseCredentialService = field(default_factory=InMemoryCredentialService)
    default_model: str | BaseLlm = ""


class LlmCallCounter:
    """Counts the model calls of one run, over all its agents. A limit of zero or less means none."""

    __slots__ = ("__weakref__", "count", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.count = 0

    def add(self) -> None:
        """Counts one call. Raises LlmCallsLimitExceeded when it exceeds the limit."""
        self.count += 1
        if 0 < self.limit < self.count:
            raise LlmCallsLimitExceeded(self.limit)


class RunningAgent(Protocol):
    """The part of an agent that this package uses."""

    @property
    def name(self) -> str: ...

    @property
    def run_node_of_tool(self) -> Callable[..., Awaitable[Any]] | None:
        """Runs a node in a tool of the agent; None for agents without tools."""
        ...


class Hooks(Protocol):
    """The part of an app's plugins that this package uses."""

    @property
    def listeners(self) -> Mapping[str, Sequence[object]]:
        """The plugins by hook; hooks that no plugin overrides are left out."""
        ...

    async def first_result(self, hook: str, **arguments: Any) -> Any: ...

    async def notify(self, hook: str, **arguments: Any) -> None: ...


class _NoHooks:
    listeners: Mapping[str, Sequence[object]] = MappingProxyType({})

    async def first_result(self, hook: str, **arguments: Any) -> Any:
        return None

    async def notify(self, hook: str, **arguments: Any) -> None:
        pass


NO_HOOKS: Hooks = _NoHooks()


class NodeRunner(Protocol):
    """A running node of a workflow, as the contexts below it see it."""

    @property
    def path(self) -> str: ...

    @property
    def run_child(self) -> Callable[..., Awaitable[Any]]: ...


class InvocationContext:
    """One agent's view of a run. The session, the services and the counter are shared by all agents of the run.

    caller: of the request that started or continued the run; None without authentication.
    branch: dotted path of parallel agents above this one; None outside of them. end_invocation: set it to stop this
    agent after its current step. resumed_from: set while a run is resumed: the index in the log of this agent's first
    event of the run. None when the agent starts now. was_cut_off: the process died during the run, so the outcome of
    what it had started is unknown. isolation_scope, scope_start: set for agents that run as a tool: they see only
    events of that scope, from that index of the log. unstored: events of a turn that an exception ended, shared by the
    agents of a branch; stored in one step with the run's end. send: while tools run, stores an event that one of them
    emits. live_request_queue: the client's input in a live run; None in others. announces_done: the agent is one of a
    live sequence, and announces when the next may start. node_runner: the node of a workflow that this agent is, or
    runs in. stored_with: events to be stored in one step with another, right behind it, by the id of that event; shared
    by all contexts of a run.
    span: the agent's, or the run's; None without tracing. The services can be passed one by one, as in ADK.
    """

    def __init__(
        self,
        *,
        services: Services | None = None,
        session_service: BaseSessionService | None = None,
        artifact_service: BaseArtifactService | None = None,
        memory_service: BaseMemoryService | None = None,
        credential_service: BaseCredentialService | None = None,
        session: Session,
        invocation_id: str,
        agent: RunningAgent,
        run_config: RunConfig | None = None,
        user_content: Content | None = None,
        caller: Caller | None = None,
        branch: str | None = None,
        llm_calls: LlmCallCounter | None = None,
        resumed_from: int | None = None,
        was_cut_off: bool = False,
        plugins: Hooks | None = None,
        live_request_queue: LiveRequestQueue | None = None,
        announces_done: bool = False,
        span: Span | None = None,
    ) -> None:
        if services is None:
            if session_service is None:
                raise TypeError("InvocationContext() needs a session_service")
            services = Services(
                sessions=session_service,
                artifacts=artifact_service,
                memory=memory_service,
                credentials=credential_service or InMemoryCredentialService(),
            )
        self.services = services
        self.session = session
        self.invocation_id = invocation_id
        self.agent = agent
        self.run_config = run_config or RunConfig()
        self.user_content = user_content
        self.caller = caller
        self.branch = branch
        self.llm_calls = llm_calls or LlmCallCounter(self.run_config.max_llm_calls)
        self.end_invocation = False
        self.resumed_from = resumed_from
        self.was_cut_off = was_cut_off
        self.plugins: Hooks = plugins if plugins is not None else NO_HOOKS
        self.isolation_scope: str | None = None
        self.scope_start = 0
        self.unstored: list[Event] = []
        self.send: Callable[[Event], Awaitable[None]] | None = None
        self.live_request_queue = live_request_queue
        self.announces_done = announces_done
        self.node_runner: NodeRunner | None = None
        self.stored_with: dict[str, list[Event]] = {}
        self.span = span

    def for_agent(self, agent: RunningAgent, *, branch: str | None = None) -> InvocationContext:
        """The context of the same run for another agent."""
        ctx = self.model_copy()
        ctx.agent, ctx.branch = agent, branch or self.branch
        ctx.end_invocation, ctx.send = False, None
        return ctx

    def model_copy(self, *, update: Mapping[str, Any] | None = None) -> InvocationContext:
        """A shallow copy, with other values for some attributes."""
        copied: InvocationContext = object.__new__(type(self))
        copied.__dict__.update(self.__dict__)
        if update:
            copied.__dict__.update(update)
        return copied

    def entering(self, resumed_from: int | None, *, branch: str | None = None) -> InvocationContext:
        """The context for a child agent whose first event has that index in the log, or that starts now (None)."""
        ctx = self.for_agent(self.agent, branch=branch)
        ctx.resumed_from = resumed_from
        return ctx

    def new_event(
        self, author: str | None = None, *, content: Content | None = None, actions: EventActions | None = None
    ) -> Event:
        """An event of this run and branch. author: by default the agent."""
        return Event(
            invocation_id=self.invocation_id,
            author=self.agent.name if author is None else author,
            branch=self.branch,
            content=content,
            actions=EventActions() if actions is None else actions,
        )

    def take_handled(self) -> list[Event]:
        """Responses of tools whose error an agent of the app's own has handled, as it continues; they are to be stored
        before its next event."""
        handled, self.unstored[:] = list(self.unstored), ()
        for event in handled:
            event.error_code = event.error_message = None
        return handled

    def own_events(self, author: str) -> Iterator[tuple[int, Event]]:
        """The events that an agent wrote in this run and branch, newest first, each with its index in the log.

        Empty unless the run is resumed; events before `resumed_from` are left out.
        """
        if self.resumed_from is None:
            return
        events = self.session.events
        for index in reversed(ledger_of(events).run(self.invocation_id).indexes):
            if index < self.resumed_from:
                return
            event = events[index]
            if event.author == author and event.branch == self.branch:
                yield index, event

    def is_waiting(self, since: int, *, branch: str | None = None) -> bool:
        """Whether a call made at that index of the log or later, in this branch or below it, is still open."""
        ledger = ledger_of(self.session.events)
        return ledger.is_waiting(self.invocation_id, since=since, branch=branch or self.branch)

    @property
    def app_name(self) -> str:
        return self.session.app_name

    @property
    def user_id(self) -> str:
        return self.session.user_id

    @property
    def session_service(self) -> BaseSessionService:
        return self.services.sessions

    @property
    def artifact_service(self) -> BaseArtifactService | None:
        return self.services.artifacts

    @property
    def credential_service(self) -> BaseCredentialService:
        return self.services.credentials

    @property
    def memory_service(self) -> BaseMemoryService | None:
        return self.services.memory
