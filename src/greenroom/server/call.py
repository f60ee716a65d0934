"""One HTTP call as a handler sees it, and what it may answer."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from starlette.types import Receive, Scope

from greenroom.apps.loader import AppLoader
from greenroom.artifacts.service import BaseArtifactService
from greenroom.credentials.service import BaseCredentialService
from greenroom.memory.service import BaseMemoryService
from greenroom.runs.engine import RunEngine
from greenroom.server.access.authorization import (
    Authorized,
    AuthorizedApps,
    AuthorizedRuns,
    AuthorizedTraces,
    Permissions,
    metrics_text,
)
from greenroom.server.access.identity import EVERYBODY, NOBODY, Access, Identity
from greenroom.server.default_app import default_app
from greenroom.server.readiness import stores_not_ready
from greenroom.server.request_rate import RequestRate
from greenroom.server.settings import ServerSettings
from greenroom.server.socket import Socket
from greenroom.sessions.service import BaseSessionService
from greenroom.telemetry.run_metrics import RunMetrics
from greenroom.traces.store import TraceStore

if TYPE_CHECKING:
    from greenroom.server.access.authentication import Authenticator


@dataclass(frozen=True, kw_only=True, slots=True)
class Rooms:
    """What the server works with. Handlers reach it through their `Call` only.

    metrics None: nothing could show them. interface: the OpenAPI document of all endpoints, as JSON. authenticator
    None: everybody may do everything. rate None: as often as they like. default_app: that is named by a setting.
    """

    apps: AppLoader
    engine: RunEngine
    sessions: BaseSessionService
    artifacts: BaseArtifactService
    memory: BaseMemoryService
    credentials: BaseCredentialService
    traces: TraceStore
    metrics: RunMetrics | None
    settings: ServerSettings
    interface: Callable[[], bytes]
    authenticator: Authenticator | None = None
    rate: RequestRate | None = None
    default_app: str | None = None

    def app_meant_by(self, identity: Identity) -> str:
        """Where a request names none. Raises AppNotNamed, Forbidden."""
        return default_app(self.default_app, self.apps, identity)

    async def admit(self, scope: Scope, access: Access) -> Identity:
        """Who may come in with a request to an endpoint. Raises Unauthenticated, Forbidden, Unavailable,
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


class Call:
    """`path` and `query` are decoded and checked against the endpoint; `body` is of its body type.

    The services are seen through the caller's identity and the endpoint's access, and refuse what these don't allow.
    """

    __slots__ = ("_permissions", "_rooms", "body", "headers", "path", "query", "receive")

    def __init__(
        self,
        *,
        rooms: Rooms,
        identity: Identity,
        access: Access,
        path: Mapping[str, str],
        query: Mapping[str, Any],
        headers: Mapping[str, str],
        body: Any,
        receive: Receive,
    ) -> None:
        self._rooms = rooms
        self._permissions = Permissions(identity, access)
        self.path = path
        self.query = query
        self.headers = headers
        self.body = body
        self.receive = receive

    @property
    def identity(self) -> Identity:
        return self._permissions.identity

    async def identify(self, credentials: str) -> Identity:
        """Whose a key or a token is. Raises Unauthenticated, Unavailable."""
        authenticator = self._rooms.authenticator
        return EVERYBODY if authenticator is None else await authenticator.identify_by(credentials)

    def default_app(self) -> str:
        """The app that is meant where the request names none. Raises AppNotNamed, Forbidden."""
        return self._rooms.app_meant_by(self._permissions.identity)

    @property
    def apps(self) -> AuthorizedApps:
        return AuthorizedApps(self._rooms.apps, self._permissions.identity)

    def check_app(self) -> None:
        """Raises AppNotFound for an app that isn't served, unless a setting allows it."""
        if not self._rooms.settings.allow_unknown_apps:
            self.apps.check_exists(self.path["app_name"])

    @property
    def engine(self) -> AuthorizedRuns:
        return AuthorizedRuns(self._rooms.engine, self._permissions)

    @property
    def sessions(self) -> BaseSessionService:
        return cast("BaseSessionService", Authorized(self._rooms.sessions, self._permissions))

    @property
    def artifacts(self) -> BaseArtifactService:
        return cast("BaseArtifactService", Authorized(self._rooms.artifacts, self._permissions))

    @property
    def credentials(self) -> BaseCredentialService:
        return cast("BaseCredentialService", Authorized(self._rooms.credentials, self._permissions))

    @property
    def memory(self) -> BaseMemoryService:
        return cast("BaseMemoryService", Authorized(self._rooms.memory, self._permissions))

    def stores_not_ready(self) -> Awaitable[list[str]]:
        """Names of the stores that don't answer; nothing of what is in them."""
        return stores_not_ready(self._rooms.sessions, self._rooms.artifacts, self._rooms.memory)

    @property
    def traces(self) -> AuthorizedTraces:
        return AuthorizedTraces(self._rooms.traces, self._permissions)

    def metrics_text(self) -> bytes:
        """In Prometheus's text format. Raises MissingExtra."""
        return metrics_text(self._rooms.metrics, self._rooms.engine, self.identity)

    @property
    def settings(self) -> ServerSettings:
        return self._rooms.settings

    @property
    def interface(self) -> bytes:
        """The OpenAPI document of all endpoints, as JSON."""
        return self._rooms.interface()


@dataclass(kw_only=True, slots=True)
class Reply:
    """A whole body: JSON of `value`, or `data` as it is."""

    value: Any = None
    data: bytes | None = None
    status: int = 200
    media_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(kw_only=True, slots=True)
class StreamReply:
    """A body in pieces, each written at once. close: lets go of what they come from, read to the end or not at all.
    when_client_leaves: called if the client goes away before the last piece. when_server_stops: makes the last piece if
    the server stops before."""

    pieces: AsyncGenerator[bytes]
    close: Callable[[], None]
    when_client_leaves: Callable[[], None] | None = None
    when_server_stops: Callable[[], bytes] | None = None
    media_type: str = "text/event-stream; charset=utf-8"
    headers: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(kw_only=True, slots=True)
class SocketReply:
    """A WebSocket that is taken: `talk` accepts it, and returns when it is over."""

    talk: Callable[[Socket], Awaitable[None]]


AnyReply: TypeAlias = Reply | StreamReply | SocketReply
