"""What a handler can reach: the services, seen through the identity of its caller.

A handler gets nothing else, so a check that it forgets is made here. Whom a caller acts for is decided by its identity
and by the names in the request alone: being refused tells nothing about what exists. A run is asked for by its id only,
so one of another user is answered as if it weren't there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import TypeVar

from greenroom.apps.app import App
from greenroom.apps.loader import AppLoader
from greenroom.artifacts.service import BaseArtifactService
from greenroom.credentials.service import BaseCredentialService
from greenroom.errors import AppLoadError, AppNotFound, Forbidden, MissingExtra, RunNotFound
from greenroom.invocation.live_requests import LiveRequestQueue
from greenroom.memory.service import BaseMemoryService
from greenroom.records.auth import AuthCredential
from greenroom.records.base import JsonObject
from greenroom.records.content import Part
from greenroom.records.event import Event
from greenroom.records.listings import ArtifactVersion, SearchMemoryResponse
from greenroom.records.run import AgentRunRequest, ListRunsResponse, Run, RunConfig, RunFilter
from greenroom.records.session import GetSessionConfig, ListEventsResponse, ListSessionsResponse, Session, SessionKey
from greenroom.records.state import APP_PREFIX
from greenroom.runs.engine import Attachment, RunEngine
from greenroom.server.access.identity import Access, Identity
from greenroom.sessions.service import BaseSessionService, StoredEvent
from greenroom.telemetry.run_metrics import RunMetrics
from greenroom.telemetry.span_record import SpanRecord
from greenroom.traces.store import TraceStore

T = TypeVar("T")

_TO_READ: frozenset[Access] = frozenset({"read", "run", "manage", "debug"})
_TO_WRITE: frozenset[Access] = frozenset({"run", "manage"})


class Grant:
    """An identity, as far as the endpoint it called goes: what is open can't read, and what reads can't write."""

    __slots__ = ("access", "identity")

    def __init__(self, identity: Identity, access: Access) -> None:
        self.identity = identity
        self.access: Access = access

    def to_read(self, app_name: str, user_id: str | None) -> None:
        """Raises Forbidden."""
        self._check(_TO_READ, app_name, user_id)

    def to_write(self, app_name: str, user_id: str | None) -> None:
        """Raises Forbidden."""
        self._check(_TO_WRITE, app_name, user_id)

    def to_change_state(self, *deltas: JsonObject | None) -> None:
        """State of the app is read by the agents of all its users. Raises Forbidden."""
        if any(key.startswith(APP_PREFIX) for delta in deltas for key in delta or ()):
            self.identity.check("manage")

    def _check(self, accesses: frozenset[Access], app_name: str, user_id: str | None) -> None:
        if self.access not in accesses:
            raise Forbidden(f"This endpoint's scope, {self.access!r}, does not reach so far")
        if not self.identity.is_unlimited:
            self.identity.check_reach(app_name, user_id)


class GuardedSessions:
    """`BaseSessionService`, for one caller. Every operation raises Forbidden where it acts for somebody else."""

    __slots__ = ("_grant", "_sessions")

    def __init__(self, sessions: BaseSessionService, grant: Grant) -> None:
        self._sessions = sessions
        self._grant = grant

    def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: JsonObject | None = None,
        session_id: str | None = None,
        events: Sequence[Event] = (),
    ) -> Awaitable[Session]:
        self._grant.to_write(app_name, user_id)
        self._grant.to_change_state(state, *(event.actions.state_delta for event in events))
        return self._sessions.create_session(
            app_name=app_name, user_id=user_id, state=state, session_id=session_id, events=events
        )

    def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Awaitable[Session | None]:
        self._grant.to_read(app_name, user_id)
        return self._sessions.get_session(app_name=app_name, user_id=user_id, session_id=session_id, config=config)

    def list_sessions(
        self, *, app_name: str, user_id: str | None = None, limit: int | None = None, page_token: str | None = None
    ) -> Awaitable[ListSessionsResponse]:
        self._grant.to_read(app_name, user_id)
        return self._sessions.list_sessions(app_name=app_name, user_id=user_id, limit=limit, page_token=page_token)

    def list_events(
        self, *, app_name: str, user_id: str, session_id: str, after: int = 0, limit: int | None = None
    ) -> Awaitable[ListEventsResponse]:
        self._grant.to_read(app_name, user_id)
        return self._sessions.list_events(
            app_name=app_name, user_id=user_id, session_id=session_id, after=after, limit=limit
        )

    def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> Awaitable[None]:
        self._grant.to_write(app_name, user_id)
        return self._sessions.delete_session(app_name=app_name, user_id=user_id, session_id=session_id)

    def append(self, session: Session, *events: Event) -> Awaitable[list[StoredEvent]]:
        self._grant.to_write(session.app_name, session.user_id)
        self._grant.to_change_state(*(event.actions.state_delta for event in events))
        return self._sessions.append(session, *events)


class GuardedRuns:
    """`RunEngine`, for one caller."""

    __slots__ = ("_engine", "_grant")

    def __init__(self, engine: RunEngine, grant: Grant) -> None:
        self._engine = engine
        self._grant = grant

    def start(
        self,
        request: AgentRunRequest,
        *,
        idempotency_key: str | None = None,
        attach: bool = True,
        traceparent: str | None = None,
    ) -> Awaitable[tuple[Run, Attachment | None]]:
        self._grant.to_write(request.app_name, request.user_id)
        self._grant.to_change_state(request.state_delta)
        apps, caller = self._grant.identity.apps, self._grant.identity.caller
        starting = self._engine.start(
            request, idempotency_key=idempotency_key, attach=attach, traceparent=traceparent, caller=caller
        )
        return starting if apps is None else _naming_no_app_but(apps, starting)

    def start_live(
        self,
        key: SessionKey,
        requests: LiveRequestQueue,
        *,
        run_config: RunConfig,
        after: int | None = None,
        traceparent: str | None = None,
    ) -> Awaitable[tuple[Run, Attachment]]:
        self._grant.to_write(key.app_name, key.user_id)
        apps, caller = self._grant.identity.apps, self._grant.identity.caller
        starting = self._engine.start_live(
            key, requests, run_config=run_config, after=after, traceparent=traceparent, caller=caller
        )
        return starting if apps is None else _naming_no_app_but(apps, starting)

    async def get(self, run_id: str) -> Run:
        """Raises RunNotFound, also for a run of somebody else."""
        run = await self._engine.get(run_id)
        try:
            self._grant.to_read(run.app_name, run.user_id)
        except Forbidden:
            raise RunNotFound(run_id) from None
        return run

    async def attach(self, run_id: str, *, after: int | None = None, with_user_events: bool = True) -> Attachment:
        """Raises RunNotFound, also for a run of somebody else."""
        await self.get(run_id)
        return await self._engine.attach(run_id, after=after, with_user_events=with_user_events)

    def attach_to_session(self, key: SessionKey, *, after: int) -> Attachment:
        self._grant.to_read(key.app_name, key.user_id)
        return self._engine.attach_to_session(key, after=after)

    def append(self, session: Session, event: Event) -> Awaitable[None]:
        self._grant.to_write(session.app_name, session.user_id)
        self._grant.to_change_state(event.actions.state_delta)
        return self._engine.append(session, event)

    async def cancel(self, run_id: str, *, reason: str) -> Run:
        """Raises RunNotFound, also for a run of somebody else."""
        run = await self.get(run_id)
        self._grant.to_write(run.app_name, run.user_id)
        return await self._engine.cancel(run_id, reason=reason)

    async def list_runs(self, where: RunFilter, *, limit: int, page_token: str | None = None) -> ListRunsResponse:
        """Runs that the caller may see; without an app, those of its own user in all apps that it reaches.

        Raises Forbidden where a filter names what it may not see.
        """
        identity = self._grant.identity
        if where.app_names is None and identity.apps is not None:
            where.app_names = sorted(identity.apps)
        apps = where.app_names if where.app_names is not None else ["*"]
        if where.user_id is None and not all(identity.acts_for(app, None) for app in apps):
            where.user_id = identity.subject
        for app in apps:
            self._grant.to_read(app, where.user_id)
        return await self._engine.list_runs(where, limit=limit, page_token=page_token)

    def delete_session(self, key: SessionKey) -> Awaitable[None]:
        self._grant.to_write(key.app_name, key.user_id)
        return self._engine.delete_session(key)


async def _naming_no_app_but(apps: frozenset[str], starting: Awaitable[T]) -> T:
    try:
        return await starting
    except AppNotFound as error:
        raise AppNotFound(error.app_name, sorted(apps - {error.app_name})) from None


class GuardedArtifacts:
    """`BaseArtifactService`, for one caller."""

    __slots__ = ("_artifacts", "_grant")

    def __init__(self, artifacts: BaseArtifactService, grant: Grant) -> None:
        self._artifacts = artifacts
        self._grant = grant

    def save_artifact(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        filename: str,
        artifact: Part,
        custom_metadata: JsonObject | None = None,
    ) -> Awaitable[int]:
        self._grant.to_write(app_name, user_id)
        return self._artifacts.save_artifact(
            app_name=app_name,
            user_id=user_id,
            session_id=session_id,
            filename=filename,
            artifact=artifact,
            custom_metadata=custom_metadata,
        )

    def load_artifact(
        self, *, app_name: str, user_id: str, session_id: str, filename: str, version: int | None = None
    ) -> Awaitable[Part | None]:
        self._grant.to_read(app_name, user_id)
        return self._artifacts.load_artifact(
            app_name=app_name, user_id=user_id, session_id=session_id, filename=filename, version=version
        )

    def list_artifact_keys(self, *, app_name: str, user_id: str, session_id: str) -> Awaitable[list[str]]:
        self._grant.to_read(app_name, user_id)
        return self._artifacts.list_artifact_keys(app_name=app_name, user_id=user_id, session_id=session_id)

    def list_versions(self, *, app_name: str, user_id: str, session_id: str, filename: str) -> Awaitable[list[int]]:
        self._grant.to_read(app_name, user_id)
        return self._artifacts.list_versions(
            app_name=app_name, user_id=user_id, session_id=session_id, filename=filename
        )

    def get_artifact_version(
        self, *, app_name: str, user_id: str, session_id: str, filename: str, version: int | None = None
    ) -> Awaitable[ArtifactVersion | None]:
        self._grant.to_read(app_name, user_id)
        return self._artifacts.get_artifact_version(
            app_name=app_name, user_id=user_id, session_id=session_id, filename=filename, version=version
        )

    def delete_artifact(self, *, app_name: str, user_id: str, session_id: str, filename: str) -> Awaitable[None]:
        self._grant.to_write(app_name, user_id)
        return self._artifacts.delete_artifact(
            app_name=app_name, user_id=user_id, session_id=session_id, filename=filename
        )


class GuardedMemory:
    """`BaseMemoryService`, for one caller."""

    __slots__ = ("_grant", "_memory")

    def __init__(self, memory: BaseMemoryService, grant: Grant) -> None:
        self._memory = memory
        self._grant = grant

    def add_session_to_memory(self, session: Session) -> Awaitable[None]:
        self._grant.to_write(session.app_name, session.user_id)
        return self._memory.add_session_to_memory(session)

    def search_memory(
        self, *, app_name: str, user_id: str, query: str, limit: int = 10
    ) -> Awaitable[SearchMemoryResponse]:
        self._grant.to_read(app_name, user_id)
        return self._memory.search_memory(app_name=app_name, user_id=user_id, query=query, limit=limit)


class GuardedCredentials:
    """`BaseCredentialService`, for one caller."""

    __slots__ = ("_credentials", "_grant")

    def __init__(self, credentials: BaseCredentialService, grant: Grant) -> None:
        self._credentials = credentials
        self._grant = grant

    def list_credentials(self, *, app_name: str, user_id: str) -> Awaitable[dict[str, AuthCredential]]:
        self._grant.to_read(app_name, user_id)
        return self._credentials.list_credentials(app_name=app_name, user_id=user_id)

    def delete_credential(self, *, app_name: str, user_id: str, credential_key: str) -> Awaitable[None]:
        self._grant.to_write(app_name, user_id)
        return self._credentials.delete_credential(app_name=app_name, user_id=user_id, credential_key=credential_key)


class GuardedTraces:
    """`TraceStore`, for one caller: what it may not see is as if it weren't there.

    app_name None, as in the paths of ADK's first servers: of all apps for whom nothing is closed, else of the caller's
    own runs, or those of the apps that it is bound to.
    """

    __slots__ = ("_grant", "_traces")

    def __init__(self, traces: TraceStore, grant: Grant) -> None:
        self._traces = traces
        self._grant = grant

    async def of_session(self, session_id: str, *, app_name: str | None) -> list[SpanRecord]:
        found: list[SpanRecord] = []
        for app, user in self._whose(app_name):
            found += await self._traces.of_session(session_id, app_name=app, user_id=user)
        return found

    async def of_event(self, event_id: str, *, app_name: str | None) -> SpanRecord | None:
        for app, user in self._whose(app_name):
            span = await self._traces.of_event(event_id, app_name=app, user_id=user)
            if span is not None:
                return span
        return None

    async def forget(self, key: SessionKey) -> None:
        self._grant.to_write(key.app_name, key.user_id)
        await self._traces.forget(key)

    def _whose(self, app_name: str | None) -> list[tuple[str | None, str | None]]:
        """Apps and users that are asked for; None: any. Raises Forbidden."""
        identity = self._grant.identity
        if app_name is not None:
            all_users = identity.acts_for(app_name, None)
            self._grant.to_read(app_name, None if all_users else identity.subject)
            return [(app_name, None if all_users else identity.subject)]
        if identity.is_unlimited:
            return [(None, None)]
        if identity.apps is None:
            return [(None, identity.subject)]
        return [whose for app in sorted(identity.apps) for whose in self._whose(app)]


class GuardedMetrics:
    """The numbers of all runs, for one caller: those of the apps that it reaches."""

    __slots__ = ("_engine", "_identity", "_metrics")

    def __init__(self, metrics: RunMetrics | None, engine: RunEngine, identity: Identity) -> None:
        self._metrics = metrics
        self._engine = engine
        self._identity = identity

    def in_text(self) -> bytes:
        """In Prometheus's text format. Raises MissingExtra."""
        if self._metrics is None:
            raise MissingExtra("telemetry", "prometheus-client")
        from greenroom.server.prometheus import metrics_in_text

        return metrics_in_text(self._metrics, self._engine.load(), shows=self._identity.reaches)


class GuardedApps:
    """`AppLoader`, for one caller: apps that it doesn't reach are not listed, and are refused without a look."""

    __slots__ = ("_apps", "_identity")

    def __init__(self, apps: AppLoader, identity: Identity) -> None:
        self._apps = apps
        self._identity = identity

    def list_apps(self) -> list[str]:
        return [name for name in self._apps.list_apps() if self._identity.reaches(name)]

    async def load(self, app_name: str) -> App:
        self._check(app_name)
        try:
            return await self._apps.load_async(app_name)
        except AppNotFound:
            raise AppNotFound(app_name, self.list_apps()) from None

    def check_exists(self, app_name: str) -> None:
        """Raises Forbidden, AppNotFound."""
        self._check(app_name)
        if app_name not in (names := self.list_apps()):
            raise AppNotFound(app_name, names)

    def problems(self) -> Mapping[str, AppLoadError]:
        return {name: error for name, error in self._apps.problems().items() if self._identity.reaches(name)}

    def language(self, app_name: str) -> str:
        self._check(app_name)
        return self._apps.language(app_name)

    def readme(self, app_name: str) -> str | None:
        self._check(app_name)
        return self._apps.readme(app_name)

    def _check(self, app_name: str) -> None:
        if not self._identity.reaches(app_name):
            raise Forbidden(f"These credentials don't reach the app {app_name!r}")
