"""The services and settings of a server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starlette.types import Scope

from greenroom.apps.loader import AppLoader
from greenroom.artifacts.service import BaseArtifactService
from greenroom.credentials.service import BaseCredentialService
from greenroom.errors import AppNotNamed, Forbidden
from greenroom.memory.service import BaseMemoryService
from greenroom.runs.engine import RunEngine
from greenroom.server.access.audit import AuditTrail, RequestAudit
from greenroom.server.access.identity import EVERYBODY, NOBODY, Access, Identity
from greenroom.server.access.rate_limit import RequestRate
from greenroom.server.app_logs import AppLogs
from greenroom.server.endless_streams import EndlessStreams
from greenroom.server.exchange import EXCHANGE, Exchange
from greenroom.server.settings import ServerSettings
from greenroom.server.signal_urls import SignalUrls
from greenroom.server.webhook_sender import WebhookSender
from greenroom.sessions.service import BaseSessionService
from greenroom.telemetry.run_metrics import RunMetrics
from greenroom.traces.store import TraceStore

if TYPE_CHECKING:
    from greenroom.server.access.authentication import Authenticator
from greenroom.server.readiness import Readiness


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerState:
    """Services and settings of the server. Handlers access it only through their `RequestContext`."""

    apps: AppLoader
    engine: RunEngine
    sessions: BaseSessionService
    artifacts: BaseArtifactService
    memory: BaseMemoryService
    credentials: BaseCredentialService
    traces: TraceStore
    logs: AppLogs
    metrics: RunMetrics | None
    """None without prometheus_client."""
    webhook_sender: WebhookSender
    signal_urls: SignalUrls
    settings: ServerSettings
    readiness: Readiness
    endless_streams: EndlessStreams
    interface: Callable[[], bytes]
    """Returns the OpenAPI document of all endpoints, as JSON."""
    authenticator: Authenticator | None = None
    """None if authentication is off."""
    rate: RequestRate | None = None
    """None without a rate limit."""
    audit: AuditTrail | None = None
    """None if the audit trail is off."""
    setting_origins: dict[str, str] = field(default_factory=dict[str, str])
    """The origins of settings that were loaded, by key."""
    default_app: str | None = None
    """The default app of the settings."""

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
        """Authenticates the caller and applies the rate limit. Raises Unauthenticated, Forbidden,
        Unavailable, TooManyRequests."""
        exchange: Exchange | None = scope.get(EXCHANGE)
        rate = None if exchange is not None and exchange.is_counted else self.rate
        if self.authenticator is None:
            if rate is not None and access != "open":
                rate.take(scope["client"][0] if scope.get("client") else "")
            return EVERYBODY
        if access == "open":
            return NOBODY

        identity = await self.authenticator.identify(scope)
        if self.audit is not None and (request := RequestAudit.of_current()) is not None:
            request.identify(identity)
        if rate is not None:
            rate.take(identity.key_id or identity.subject)
        identity.check(access)
        return identity
