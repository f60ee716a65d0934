"""What an agent has at hand while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from greenroom.artifacts.service import BaseArtifactService
from greenroom.invocation.limits import LlmCallCounter
from greenroom.invocation.services import Services
from greenroom.memory.service import BaseMemoryService
from greenroom.records.content import Content
from greenroom.records.event import Event
from greenroom.records.run import RunConfig
from greenroom.records.session import Session
from greenroom.sessions.service import BaseSessionService


class RunningAgent(Protocol):
    """What this room needs to know of an agent."""

    @property
    def name(self) -> str: ...


class Hooks(Protocol):
    """What this room needs to know of an app's plugins."""

    def listening_to(self, hook: str) -> Sequence[object]: ...

    async def ask(self, hook: str, **arguments: Any) -> Any: ...

    async def tell(self, hook: str, **arguments: Any) -> None: ...


class _NoHooks:
    def listening_to(self, hook: str) -> Sequence[object]:
        return ()

    async def ask(self, hook: str, **arguments: Any) -> Any:
        return None

    async def tell(self, hook: str, **arguments: Any) -> None:
        pass


class InvocationContext:
    """One agent's view of a run. The session, the services and the counter are shared by all agents of the run.

    branch: dotted path of parallel agents above this one; None outside of them. end_invocation: set it to stop this
    agent after the step it is in. is_resumed: the run was taken up again from its log, so its last events may hold
    work that was begun.
    """

    __slots__ = (
        "agent",
        "branch",
        "end_invocation",
        "invocation_id",
        "is_resumed",
        "llm_calls",
        "plugins",
        "run_config",
        "services",
        "session",
        "user_content",
    )

    def __init__(
        self,
        *,
        services: Services,
        session: Session,
        invocation_id: str,
        agent: RunningAgent,
        run_config: RunConfig | None = None,
        user_content: Content | None = None,
        branch: str | None = None,
        llm_calls: LlmCallCounter | None = None,
        is_resumed: bool = False,
        plugins: Hooks | None = None,
    ) -> None:
        self.services = services
        self.session = session
        self.invocation_id = invocation_id
        self.agent = agent
        self.run_config = run_config or RunConfig()
        self.user_content = user_content
        self.branch = branch
        self.llm_calls = llm_calls or LlmCallCounter(self.run_config.max_llm_calls)
        self.end_invocation = False
        self.is_resumed = is_resumed
        self.plugins: Hooks = plugins if plugins is not None else _NoHooks()

    def for_agent(self, agent: RunningAgent, *, branch: str | None = None) -> InvocationContext:
        """The same run as another agent sees it."""
        return InvocationContext(
            services=self.services,
            session=self.session,
            invocation_id=self.invocation_id,
            agent=agent,
            run_config=self.run_config,
            user_content=self.user_content,
            branch=branch or self.branch,
            llm_calls=self.llm_calls,
            is_resumed=self.is_resumed,
            plugins=self.plugins,
        )

    def last_event(self) -> Event | None:
        """The newest stored event of this run in this branch."""
        for event in reversed(self.session.events):
            if event.invocation_id == self.invocation_id and event.branch == self.branch:
                return event
        return None

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
    def memory_service(self) -> BaseMemoryService | None:
        return self.services.memory
