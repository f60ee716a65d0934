"""The invocation context: the state and the services of one run, as an agent sees them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any, Protocol

from greenroom.artifacts.service import BaseArtifactService
from greenroom.credentials.in_memory import InMemoryCredentialService
from greenroom.credentials.service import BaseCredentialService
from greenroom.errors import AgentConfigError, LlmCallsLimitExceeded
from greenroom.invocation.compaction import EventsCompactionConfig
from greenroom.invocation.live_requests import LiveRequestQueue
from greenroom.invocation.sleep import SignalUrlMaker, Waiter, sleep, wait_for
from greenroom.log.calls import NEVER
from greenroom.log.state import events_of_run, log_state_of
from greenroom.memory.service import BaseMemoryService
from greenroom.models.model import BaseLlm
from greenroom.records.approval_policy import ApprovalPolicy
from greenroom.records.audit import AuditEntry
from greenroom.records.auth import AuthCredential
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import Content
from greenroom.records.event import Event, EventActions
from greenroom.records.identifiers import uuid4
from greenroom.records.model_exchange import ContextCacheConfig
from greenroom.records.run import Caller, RunConfig
from greenroom.records.session import Session
from greenroom.redaction.rules import Redaction
from greenroom.sessions.service import BaseSessionService
from greenroom.telemetry.span import Span

Aclosing = contextlib.aclosing
"""Closes the events of an agent that another agent runs. ADK has a class of this name."""

DEFAULT_EXPIRES_SECONDS = 7 * 86400.0
"""Of signed URLs."""

ABANDONED = "the process ends, and the next one resumes the run"
"""Message of the cancellation of a run that is not cancelled for good."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Services:
    sessions: BaseSessionService
    artifacts: BaseArtifactService | None = None
    memory: BaseMemoryService | None = None
    credentials: BaseCredentialService = field(default_factory=InMemoryCredentialService)
    default_model: str | BaseLlm = ""
    context_cache: ContextCacheConfig | None = None
    compaction: EventsCompactionConfig | None = None
    signal_urls: SignalUrlMaker | None = None
    """None outside of a server."""
    approvals: ApprovalPolicy | None = None
    """The app's policy; None: the session's user approves."""
    steering: Steering | None = None
    """None outside of a server."""
    audit: Callable[[Sequence[AuditEntry]], Awaitable[None]] | None = None
    """Stores entries in the audit trail; None where there is none."""
    redaction: Redaction | None = None
    """The app's rules for what is stored."""


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

    def get_plugin(self, plugin_name: str) -> object | None: ...

    async def first_result(self, hook: str, **arguments: Any) -> Any: ...

    async def notify(self, hook: str, **arguments: Any) -> None: ...


class _NoHooks:
    listeners: Mapping[str, Sequence[object]] = MappingProxyType({})

    def get_plugin(self, plugin_name: str) -> None:
        return None

    async def first_result(self, hook: str, **arguments: Any) -> Any:
        return None

    async def notify(self, hook: str, **arguments: Any) -> None:
        pass


NO_HOOKS: Hooks = _NoHooks()


class Steering(Protocol):
    """Messages that are sent to runs while they are active."""

    def is_pending(self, ctx: InvocationContext) -> bool:
        """Whether there are messages for the run to read."""
        ...

    async def read(self, ctx: InvocationContext) -> list[Content]:
        """Stores the pending messages as events of the run, and returns them."""
        ...


class NodeRunner(Protocol):
    """A running node of a workflow, as the contexts below it see it."""

    @property
    def path(self) -> str: ...

    @property
    def run_child(self) -> Callable[..., Awaitable[Any]]: ...


class RecordedNodes(Protocol):
    """The results of nodes in the log of a run that is replayed."""

    async def execute(self, node: Any, path: str, emit: Callable[[Any], Awaitable[None]]) -> bool:
        """Gives the recorded results of a node. False where the node is to be executed."""
        ...


class InvocationContext:
    """An agent's view of the run. The session, the services and the counter are shared by all agents of the run.

    The services can be passed one by one, as in ADK.
    """

    services: Services
    session: Session
    invocation_id: str
    agent: RunningAgent
    run_config: RunConfig
    user_content: Content | None
    """The user's message."""
    caller: Caller | None
    """The caller of the request that started or continued the run; None without authentication."""
    branch: str | None
    """Dotted path of the parallel agents above this one; None outside of them."""
    llm_calls: LlmCallCounter
    plugins: Hooks
    live_request_queue: LiveRequestQueue | None
    """The client's input in a live run; None in others."""
    span: Span | None
    """The agent's span, or the run's; None without tracing."""
    is_resumable: bool
    """Whether the app's runs can be resumed."""

    end_invocation: bool = False
    """Set to stop this agent after its current step."""
    resumed_from: int | None = None
    """While a run is resumed, the index in the log of this agent's first event of the run; None
    when the agent starts now."""
    was_cut_off: bool = False
    """True if the process died during the run, so that the outcome of started calls is unknown."""
    isolation_scope: str | None = None
    """The scope of an agent that runs as a tool: it sees only events of that scope."""
    scope_start: int = 0
    """The index in the log from which the agent sees events of its scope."""
    request: Content | None = None
    """The request to a node's agent, if that is not the user's message."""
    node_runner: NodeRunner | None = None
    """The node of a workflow that this agent is, or runs in."""
    waiter: Waiter | None = None
    """Waits for the agent's own code; None for agents that have none."""
    announces_done: bool = False
    """Whether the agent is one of a live sequence, and announces when the next one may start."""
    credential_by_key: dict[str, AuthCredential]
    """Credentials that the user granted in this run."""

    store: Callable[[Event], Awaitable[None]] | None = None
    """Stores an event that no agent yields; None outside of a runner."""
    send: Callable[[Event], Awaitable[None]] | None = None
    """While tools run, stores an event that one of them emits."""
    unstored: list[Event]
    """Events of a turn that ended with an exception, which are stored in one step with the run's
    end; shared by the agents of a branch."""
    stored_with: dict[str, list[Event]]
    """Events to be stored in one step with another event, directly after it, by the id of that
    event; shared by all contexts of a run."""
    stored_later: dict[str, str]
    """By the id of an event that an agent yields, the id of a later one with which it is stored in
    one step; shared by all contexts of a run."""

    recorded_nodes: RecordedNodes | None = None
    """Answers in place of nodes, while a run is replayed."""

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
        plugins: Hooks | None = None,
        live_request_queue: LiveRequestQueue | None = None,
        span: Span | None = None,
        is_resumable: bool = False,
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
        self.llm_calls = LlmCallCounter(self.run_config.max_llm_calls)
        self.plugins = plugins if plugins is not None else NO_HOOKS
        self.unstored = []
        self.live_request_queue = live_request_queue
        self.stored_with = {}
        self.stored_later = {}
        self.span = span
        self.is_resumable = is_resumable
        self.credential_by_key = {}
        self._shared: dict[str, Any] = {}

    def for_agent(self, agent: RunningAgent, *, branch: str | None = None) -> InvocationContext:
        """The context of the same run for another agent."""
        ctx = self.model_copy()
        ctx.agent = agent
        ctx.branch = branch or self.branch
        ctx.end_invocation = False
        ctx.send = None
        ctx.waiter = None
        return ctx

    def model_copy(self, *, update: Mapping[str, Any] | None = None) -> InvocationContext:
        """A shallow copy, with other values for some attributes."""
        copied: InvocationContext = object.__new__(type(self))
        copied.__dict__ = self.__dict__.copy()
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
        """Responses of tools whose error an agent of the app's own has handled, as it continues;
        they are to be stored before its next event."""
        handled = list(self.unstored)
        self.unstored.clear()
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
        for index in reversed(log_state_of(events).run(self.invocation_id).indexes):
            if index < self.resumed_from:
                return
            event = events[index]
            if event.author == author and event.branch == self.branch:
                yield index, event

    def _get_events(self, *, current_invocation: bool = False, current_branch: bool = False) -> list[Event]:
        """The session's events, or those of this run or branch: ADK's, which agents that others wrote call.

        A branch has its agents' events, and the user's messages that are not in a branch beside it.
        Answers count in the branch of their call, and above it. Checkpoints are left out where ADK
        writes none.
        """
        events: Sequence[Event] = self.session.events
        if current_invocation:
            events = events_of_run(self.session.events, self.invocation_id)
        if not self.is_resumable:
            events = [event for event in events if not event.is_checkpoint()]
        if not current_branch:
            return list(events)

        called: set[str | None] = set()
        for event in self.session.events:
            if self._is_in_or_below(event.branch):
                called.update(call.id for call in event.get_function_calls())
        return [event for event in events if self._is_of_branch(event, called)]

    def _is_of_branch(self, event: Event, called: set[str | None]) -> bool:
        if event.author != "user":
            return event.branch == self.branch
        answered = {response.id for response in event.get_function_responses()}
        if self.branch is not None and answered and called.isdisjoint(answered):
            return False
        return event.branch is None or self._is_in_or_below(event.branch)

    def _is_in_or_below(self, branch: str | None) -> bool:
        if self.branch is None:
            return True
        return branch is not None and (branch == self.branch or branch.startswith(f"{self.branch}."))

    async def sleep(
        self,
        seconds: float | None = None,
        *,
        until: datetime | str | None = None,
        max_late_seconds: float | None = None,
    ) -> float:
        """Waits in the code of a custom agent's `_run_async_impl`, without a task or memory: the run ends as waiting,
        and continues at the time. Then the agent runs again from its start. What it yields before this call is dropped,
        since the log has it, and the call returns at once.

        Returns the seconds by which it is late. until: UTC if it has no offset. max_late_seconds: a run that can
        continue only that much later is cancelled. Raises ValueError, and AgentConfigError in other places.
        """
        return await sleep(self._waiter(), seconds, until, max_late_seconds)

    async def wait_for(self, signal: str, *, timeout: float | None = None) -> JsonValue:
        """Like `sleep`, until a signal is sent to the run. Returns its value. timeout: seconds; then TimeoutError."""
        return await wait_for(self._waiter(), signal, timeout)

    def signal_url(
        self,
        signal: str,
        *,
        value: JsonValue = None,
        expires_seconds: float = DEFAULT_EXPIRES_SECONDS,
        place: str | None = None,
    ) -> str:
        """A signed URL that sends a signal to this run once, without an API key, to hand out in a mail.

        A person who opens it is asked to confirm; a program posts to it. value: of the signal; by default the body of
        the post. place: of the URLs for the same signal and place, one counts; by default the place in the agent's
        code. Raises NotOffered on a server without `public_url` and `webhook_secrets`, AgentConfigError without a
        server, and ValueError.
        """
        urls = self.services.signal_urls
        if urls is None:
            raise AgentConfigError("signal_url() is for agents in a server")
        if place is None:
            place = self.waiter.place if self.waiter is not None else uuid4()
        return urls.make(
            app_name=self.app_name,
            run_id=self.invocation_id,
            signal=signal,
            value=value,
            place=place,
            expires_seconds=expires_seconds,
        )

    def _waiter(self) -> Waiter:
        if self.waiter is None:
            raise AgentConfigError(
                "sleep() and wait_for() of an invocation context are for _run_async_impl of a custom agent"
            )
        return self.waiter

    @property
    def is_in_conversation(self) -> bool:
        """Whether the agent takes part in the conversation with the user: not below a parallel agent, or as a tool."""
        return self.branch is None and self.isolation_scope is None

    def is_waiting(self, since: int, *, branch: str | None = None) -> bool:
        """Whether a call made at that index of the log or later, in this branch or below it, is still open."""
        log_state = log_state_of(self.session.events)
        return log_state.is_waiting(self.invocation_id, since=since, branch=branch or self.branch)

    @property
    def compaction_lock(self) -> asyncio.Lock:
        return self._shared.setdefault("compaction_lock", asyncio.Lock())

    def abort(self) -> None:
        """Ends the run as cancelled after its next event. May be called from any thread."""
        self._shared["aborted"] = True

    @property
    def is_aborted(self) -> bool:
        return "aborted" in self._shared

    def increment_llm_call_count(self) -> None:
        """Counts a model call of an agent of one's own. Raises LlmCallsLimitExceeded."""
        self.llm_calls.add()

    def should_pause_invocation(self, event: Event) -> bool:
        """True if a resumable app waits after this event: one of its long-running calls has no answer by a user."""
        if not self.is_resumable or not event.get_function_calls():
            return False
        run = log_state_of(self.session.events).find_run(self.invocation_id)
        for call_id in event.long_running_tool_ids or ():
            call = run.call(call_id, event.author, event.branch) if run is not None else None
            if call is None or call.answered_at == NEVER:
                return True
        return False

    @property
    def agent_states(self) -> dict[str, JsonObject]:
        """The checkpoints of this run by agent; by path in workflows. Read from its log when it is first asked for."""
        return self._checkpoints()[0]

    @property
    def end_of_agents(self) -> dict[str, bool]:
        """Whether an agent of `agent_states` has ended."""
        return self._checkpoints()[1]

    def _checkpoints(self) -> tuple[dict[str, JsonObject], dict[str, bool]]:
        checkpoints: tuple[dict[str, JsonObject], dict[str, bool]] | None = self._shared.get("checkpoints")
        if checkpoints is None:
            checkpoints = self._shared["checkpoints"] = dict[str, JsonObject](), dict[str, bool]()
            for event in events_of_run(self.session.events, self.invocation_id):
                actions = event.actions
                path = event.node_path
                if actions.end_of_agent or actions.agent_state is not None:
                    self.set_agent_state(
                        path or event.author, agent_state=actions.agent_state, end_of_agent=bool(actions.end_of_agent)
                    )

        return checkpoints

    def set_agent_state(self, agent_name: str, *, agent_state: Any = None, end_of_agent: bool = False) -> None:
        """Sets what `agent_states` says of an agent; without a state and an end, forgets it. To be
        found after a restart it has to be stored, as `actions.agent_state` or
        `actions.end_of_agent` of an event.

        agent_state: JSON, or a pydantic model.
        """
        dump: Any = getattr(agent_state, "model_dump", None)
        states, ends = self._checkpoints()
        states.pop(agent_name, None)
        ends.pop(agent_name, None)
        if end_of_agent or agent_state is not None:
            ends[agent_name] = end_of_agent
        if agent_state is not None and not end_of_agent:
            states[agent_name] = agent_state if dump is None else dump(mode="json")

    def reset_sub_agent_states(self, agent_name: str) -> None:
        """Forgets the checkpoints of all agents below this one."""
        find: Any = getattr(self.agent, "find_agent", None)
        agent = find(agent_name) if find is not None else None
        for below in agent.sub_agents if agent is not None else ():
            self.set_agent_state(below.name)
            self.reset_sub_agent_states(below.name)

    @property
    def node_path(self) -> str | None:
        """The path of the workflow node that this agent is, or runs in."""
        return self.node_runner.path if self.node_runner is not None else None

    @property
    def plugin_manager(self) -> Hooks:
        return self.plugins

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
