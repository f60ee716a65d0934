"""The context of a request, and the server state that handlers access through it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from starlette.types import Receive, Scope

from greenroom.apps.loader import AppLoader
from greenroom.artifacts.service import BaseArtifactService
from greenroom.credentials.service import BaseCredentialService
from greenroom.errors import AppNotNamed, Forbidden, MissingExtra, SessionNotFound
from greenroom.memory.service import BaseMemoryService
from greenroom.records.content import Part
from greenroom.records.session import GetSessionConfig, Session, SessionKey
from greenroom.runs.engine import RunEngine
from greenroom.server.access.authorization import (
    AuthorizedApps,
    AuthorizedArtifacts,
    AuthorizedCredentials,
    AuthorizedMemory,
    AuthorizedRuns,
    AuthorizedSessions,
    AuthorizedTraces,
    AuthorizedUsage,
    Permissions,
)
from greenroom.server.access.identity import EVERYBODY, NOBODY, Access, Identity
from greenroom.server.access.rate_limit import RequestRate
from greenroom.server.addresses import Address
from greenroom.server.app_logs import AppLogs, LogLine
from greenroom.server.settings import ServerSettings
from greenroom.sessions.service import BaseSessionService
from greenroom.telemetry.run_metrics import RunMetrics
from greenroom.traces.store import TraceStore

if TYPE_CHECKING:
    from greenroom.server.access.authentication import Authenticator


def is_path_without_app(path: str) -> bool:
    """True for paths of an app without the prefix `/apps/{app_name}`."""
    return path.startswith("/users/") or path == "/app-info"


def decode_headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


_log = logging.getLogger("greenroom.server")

_APP, _USER, _NONE = "greenroom-readiness", "nobody", "none"


@dataclass(slots=True)
class Readiness:
    """Checks the stores: writes to those of sessions and artifacts, and searches the memory store.

    Anybody may ask, so all requests within `cache_seconds` share one check.
    """

    sessions: BaseSessionService
    artifacts: BaseArtifactService
    memory: BaseMemoryService
    _: KW_ONLY
    timeout_seconds: float = 2.0
    cache_seconds: float = 1.0
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _failing: list[str] = field(default_factory=list[str], init=False)
    _check_at: float = field(default=0.0, init=False)

    async def failing_stores(self) -> list[str]:
        """Names of the stores that fail or time out."""
        async with self._lock:
            if time.monotonic() >= self._check_at:
                checks = {"sessions": self._write_session, "artifacts": self._write_artifact, "memory": self._search}
                answers = await asyncio.gather(*(self._answers(name, check) for name, check in checks.items()))
                self._failing = [name for name, is_ready in zip(checks, answers, strict=True) if not is_ready]
                self._check_at = time.monotonic() + self.cache_seconds
            return self._failing

    async def _answers(self, name: str, check: Callable[[], Awaitable[None]]) -> bool:
        try:
            async with asyncio.timeout(self.timeout_seconds):
                await check()
        except Exception as error:  # stores, also third-party ones, raise any error when they are unavailable
            _log.warning("the store of %s does not answer: %s: %s", name, type(error).__name__, error)
            return False
        return True

    async def _write_session(self) -> None:
        session = await self.sessions.create_session(app_name=_APP, user_id=_USER)
        await self.sessions.delete_session(app_name=_APP, user_id=_USER, session_id=session.id)

    async def _write_artifact(self) -> None:
        key: dict[str, Any] = {"app_name": _APP, "user_id": _USER, "session_id": uuid4().hex, "filename": _NONE}
        await self.artifacts.save_artifact(**key, artifact=Part(text="1"))
        await self.artifacts.delete_artifact(**key)

    async def _search(self) -> None:
        await self.memory.search_memory(app_name=_APP, user_id=_USER, query=_NONE)


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerState:
    """Services and settings of the server. Handlers access it only through their `RequestContext`.

    metrics: None without prometheus_client. interface: the OpenAPI document of all endpoints, as JSON. authenticator:
    None if authentication is off. rate: None without a rate limit. default_app: as configured.
    """

    apps: AppLoader
    engine: RunEngine
    sessions: BaseSessionService
    artifacts: BaseArtifactService
    memory: BaseMemoryService
    credentials: BaseCredentialService
    traces: TraceStore
    logs: AppLogs
    metrics: RunMetrics | None
    settings: ServerSettings
    readiness: Readiness
    interface: Callable[[], bytes]
    authenticator: Authenticator | None = None
    rate: RequestRate | None = None
    default_app: str | None = None

    async def default_app_for(self, identity: Identity) -> str:
        """The app of a request that names none: the configured one, else the only one that the caller may access.

        Raises AppNotNamed, and Forbidden (without the app's name) if the caller may not access the default.
        """
        if self.default_app is not None:
            if not identity.reaches(self.default_app):
                raise Forbidden("These credentials don't reach the default app")
            return self.default_app
        names = await self.apps.list_apps_async(max_age_seconds=1.0)
        reached = [name for name in names if identity.reaches(name)]
        if len(reached) != 1:
            raise AppNotNamed(len(reached))
        return reached[0]

    async def admit(self, scope: Scope, access: Access) -> Identity:
        """Authenticates the caller and applies the rate limit. Raises Unauthenticated, Forbidden, Unavailable,
        TooManyRequests."""
        if self.authenticator is None:
            if self.rate is not None and access != "open":
                self.rate.take(scope["client"][0] if scope.get("client") else "")
            return EVERYBODY
        if access == "open":
            return NOBODY
        identity = await self.authenticator.identify(scope)
        if self.rate is not None:
            self.rate.take(identity.key_id or identity.subject)
        identity.check(access)
        return identity


class RequestContext:
    """One request, as its handler sees it. `path`, `query` and `body` are decoded and validated; `address` is where the
    client reaches the server, and makes every URL and path that a client is given.

    The services are limited to the permissions of the caller and of the endpoint.
    """

    __slots__ = ("_permissions", "_server", "address", "body", "headers", "path", "query", "receive")

    def __init__(
        self,
        *,
        server: ServerState,
        identity: Identity,
        access: Access,
        path: Mapping[str, str],
        query: Mapping[str, Any],
        headers: Mapping[str, str],
        body: Any,
        receive: Receive,
        address: Address,
    ) -> None:
        self._server = server
        self._permissions = Permissions(identity, access)
        self.path = path
        self.query = query
        self.headers = headers
        self.body = body
        self.receive = receive
        self.address = address

    @property
    def identity(self) -> Identity:
        return self._permissions.identity

    async def identify(self, credentials: str) -> Identity:
        """The identity of a key or a token. Raises Unauthenticated, Unavailable."""
        authenticator = self._server.authenticator
        return EVERYBODY if authenticator is None else await authenticator.identify_by(credentials)

    async def default_app(self) -> str:
        """The app of a request that names none. Raises AppNotNamed, Forbidden."""
        return await self._server.default_app_for(self._permissions.identity)

    @property
    def apps(self) -> AuthorizedApps:
        return AuthorizedApps(self._server.apps, self._permissions.identity)

    async def check_app(self) -> None:
        """Raises AppNotFound for an app that isn't served, unless a setting allows it."""
        if not self._server.settings.allow_unknown_apps:
            await self.apps.check_exists(self.path["app_name"])

    @property
    def session_key(self) -> SessionKey:
        """The session that the path names."""
        return SessionKey(**self.session_names)

    @property
    def session_names(self) -> dict[str, Any]:
        """`app_name`, `user_id` and `session_id` of the path, as arguments of the services."""
        return {**self.user_names, "session_id": self.path["session_id"]}

    @property
    def user_names(self) -> dict[str, Any]:
        """`app_name` and `user_id` of the path, as arguments of the services."""
        return {"app_name": self.path["app_name"], "user_id": self.path["user_id"]}

    async def find_session(self, key: SessionKey, config: GetSessionConfig | None = None) -> Session:
        """Raises SessionNotFound."""
        session = await self.sessions.get_session(**key._asdict(), config=config)
        if session is None:
            raise SessionNotFound(*key)
        return session

    @property
    def engine(self) -> AuthorizedRuns:
        return AuthorizedRuns(self._server.engine, self._permissions)

    @property
    def sessions(self) -> AuthorizedSessions:
        return AuthorizedSessions(self._server.sessions, self._permissions)

    @property
    def artifacts(self) -> AuthorizedArtifacts:
        return AuthorizedArtifacts(self._server.artifacts, self._permissions)

    @property
    def credentials(self) -> AuthorizedCredentials:
        return AuthorizedCredentials(self._server.credentials, self._permissions)

    @property
    def memory(self) -> AuthorizedMemory:
        return AuthorizedMemory(self._server.memory, self._permissions)

    @property
    def usage(self) -> AuthorizedUsage:
        return AuthorizedUsage(self._server.sessions.usage, self._permissions)

    async def failing_stores(self) -> list[str]:
        """Names of the stores that don't answer."""
        return await self._server.readiness.failing_stores()

    @property
    def traces(self) -> AuthorizedTraces:
        return AuthorizedTraces(self._server.traces, self._permissions)

    def logs_after(self, number: int, *, limit: int) -> list[LogLine]:
        """Lines of the log of the path's app: of the caller's own runs, unless it acts for all users of the app."""
        app_name, identity = self.path["app_name"], self.identity
        user_id = None if identity.acts_for(app_name, None) else identity.subject
        self._permissions.check("read", app_name, user_id)
        return self._server.logs.after(number, app_name=app_name, user_id=user_id, limit=limit)

    def metrics_text(self) -> bytes:
        """Metrics of the apps that the caller may access, in Prometheus's text format. Raises MissingExtra."""
        if self._server.metrics is None:
            raise MissingExtra("telemetry", "prometheus-client")
        from greenroom.server.prometheus import metrics_in_text

        return metrics_in_text(self._server.metrics, self._server.engine.load(), shows=self.identity.reaches)

    @property
    def settings(self) -> ServerSettings:
        return self._server.settings

    @property
    def interface(self) -> bytes:
        """The OpenAPI document of all endpoints, as JSON."""
        return self._server.interface()
