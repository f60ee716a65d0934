"""The context of a request, through which handlers reach the services of the server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from starlette.types import Receive, Scope

from greenroom.errors import Forbidden, MissingExtra, NotOffered, SessionNotFound, StorageError
from greenroom.records.content import Content
from greenroom.records.listings import SettingInfo
from greenroom.records.run import Webhook
from greenroom.records.session import GetSessionConfig, Session, SessionKey
from greenroom.server.access.audit import RequestAudit
from greenroom.server.access.authorization.access import AuthorizedAccess
from greenroom.server.access.authorization.apps import AuthorizedApps
from greenroom.server.access.authorization.artifacts import AuthorizedArtifacts
from greenroom.server.access.authorization.audit import AuthorizedAudit
from greenroom.server.access.authorization.budgets import AuthorizedBudgets
from greenroom.server.access.authorization.credentials import AuthorizedCredentials
from greenroom.server.access.authorization.feedback import AuthorizedFeedback
from greenroom.server.access.authorization.memory import AuthorizedMemory
from greenroom.server.access.authorization.permissions import Permissions
from greenroom.server.access.authorization.requests import AuthorizedRequests
from greenroom.server.access.authorization.runs import AuthorizedRuns
from greenroom.server.access.authorization.schedules import AuthorizedSchedules
from greenroom.server.access.authorization.sessions import AuthorizedSessions
from greenroom.server.access.authorization.statistics import AuthorizedStatistics
from greenroom.server.access.authorization.traces import AuthorizedTraces
from greenroom.server.access.authorization.usage import AuthorizedUsage
from greenroom.server.access.authorization.user_data import AuthorizedUserData
from greenroom.server.access.authorization.versions import AuthorizedVersions
from greenroom.server.access.authorization.webhooks import AuthorizedWebhooks
from greenroom.server.access.identity import EVERYBODY, Access, Identity
from greenroom.server.addresses import Address
from greenroom.server.app_logs import LogLine
from greenroom.server.exchange import Exchange
from greenroom.server.server_state import ServerState
from greenroom.server.settings import ServerSettings
from greenroom.server.signal_urls import SignalTicket
from greenroom.server.user_data.inventory import UserData
from greenroom.sessions.in_memory import InMemorySessionService
from greenroom.sessions.service import BaseSessionService

_STORE_LOAD_SECONDS = 1.0
"""Time limit of the query for the metrics of a database, which may be away."""


def is_path_without_app(path: str) -> bool:
    """True for paths of an app without the prefix `/apps/{app_name}`."""
    return path.startswith("/users/") or path == "/app-info"


def decode_headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


class RequestContext:
    """The request and the services, for the handler. `path`, `query` and `body` are decoded and validated; `address` is
    the server's address as the client uses it, from which every URL in a response is built.

    The services are limited to the permissions of the caller and of the endpoint.
    """

    __slots__ = ("_find_address", "_permissions", "_server", "body", "headers", "path", "query", "receive")

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
        find_address: Callable[[], Address],
        exchange: Exchange | None = None,
        audit: RequestAudit | None = None,
    ) -> None:
        """Holds the request. `find_address` is called on the first use of `address`, which few requests need."""
        self._server = server
        self._permissions = Permissions(identity, access, exchange, audit)
        self.path = path
        self.query = query
        self.headers = headers
        self.body = body
        self.receive = receive
        self._find_address = find_address

    @property
    def address(self) -> Address:
        return self._find_address()

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

    def new_session_key(self, key_of: Callable[[str], SessionKey]) -> SessionKey:
        """The key of a session that is to be created with a new random id, of those that this server runs.

        key_of: makes the key with an id.
        """
        return self._server.sessions.new_key(key_of)

    async def find_session(self, key: SessionKey, config: GetSessionConfig | None = None) -> Session:
        """Raises SessionNotFound."""
        session = await self.sessions.get_session(**key._asdict(), config=config)
        if session is None:
            raise SessionNotFound(*key)
        return session

    async def find_session_of_request(self, request_id: str) -> Session:
        """The session of a request to people. Raises RequestNotFound, Forbidden, SessionNotFound."""
        key = await self.requests.get_session_of_request(request_id)
        session = await self._server.sessions.get_session(**key._asdict())
        if session is None:
            raise SessionNotFound(*key)
        return session

    @property
    def replica_id(self) -> str | None:
        """The id of this server among those that share its store; None where it is the only one."""
        replicas = self._server.engine.replicas
        return None if replicas is None else replicas.own_id

    @property
    def forwarded_id(self) -> str | None:
        """The same for each copy of a request that another server has forwarded; None for a client's own."""
        exchange = self._permissions.exchange
        forwarded = exchange.take_forwarded() if exchange is not None else None
        return None if forwarded is None else forwarded.run_id

    def forward_to(self, replica_id: str) -> None:
        """Has another server of the store answer the request, in place of the handler's response."""
        if self._permissions.exchange is not None:
            self._permissions.exchange.forward_to(replica_id)

    def answer_here(self) -> None:
        """Has this server answer the request, since no other one can; what it doesn't own is an error."""
        if self._permissions.exchange is not None:
            self._permissions.exchange.answer_here()

    @property
    def engine(self) -> AuthorizedRuns:
        return AuthorizedRuns(self._server.engine, self._permissions)

    @property
    def requests(self) -> AuthorizedRequests:
        """Requests to people."""
        return AuthorizedRequests(self._server.engine, self._permissions)

    @property
    def webhooks(self) -> AuthorizedWebhooks:
        return AuthorizedWebhooks(self._server.engine, self._permissions)

    @property
    def schedules(self) -> AuthorizedSchedules:
        return AuthorizedSchedules(self._server.engine.schedules, self._permissions)

    @property
    def feedback(self) -> AuthorizedFeedback:
        return AuthorizedFeedback(self._server.engine.feedback, self._permissions)

    @property
    def versions(self) -> AuthorizedVersions:
        return AuthorizedVersions(self._server.engine.versions, self._permissions)

    def read_ticket(self, token: str) -> SignalTicket:
        """The signal of a signed URL. Raises NotFound, LinkExpired."""
        return self._server.signal_urls.read(token)

    def check_webhook(self, app_name: str, webhook: Webhook) -> None:
        """Raises InvalidRequest for a webhook that can't be called, NotOffered if none can."""
        self._server.webhook_sender.check(app_name, webhook)

    @property
    def sessions(self) -> AuthorizedSessions:
        return AuthorizedSessions(self._server.sessions, self._permissions, self._server.engine.redaction_of)

    def sessions_in_memory(self) -> BaseSessionService:
        """Sessions that aren't stored. Budgets count the usage of their runs with that of the server's sessions."""
        sessions = InMemorySessionService()
        sessions.usage = self._server.sessions.usage
        return sessions

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
    def user_data(self) -> AuthorizedUserData:
        return AuthorizedUserData(self._data_of, self._permissions)

    def _data_of(self, app_name: str, user_id: str) -> UserData:
        server = self._server
        return UserData(
            app_name=app_name,
            user_id=user_id,
            engine=server.engine,
            session_service=server.sessions,
            artifact_service=server.artifacts,
            memory_service=server.memory,
            credential_service=server.credentials,
            trace_store=server.traces,
            audit=server.audit.store if server.audit is not None else None,
        )

    async def redacted(self, content: Content) -> Content:
        """The content as the path's app stores it. Raises AppNotFound, AppLoadError."""
        redaction = await self._server.engine.redaction_of(self.path["app_name"])
        return content if redaction is None else await redaction.redact_content(content)

    def server_settings(self) -> list[SettingInfo]:
        """The settings in effect, without secrets. Raises Forbidden."""
        from greenroom.server.configuration import values_of  # for a page that few requests ask for

        self.identity.check("admin")
        if not self.identity.is_unlimited:
            raise Forbidden("The settings are of all apps, so only administrators of all apps may see them")
        return [
            SettingInfo(
                key=value.setting.key,
                value=value.shown,
                origin=value.origin,
                is_default=value.value == value.setting.default,
                description=value.setting.help,
                variable=value.setting.variable,
            )
            for value in values_of(self._server.settings, self._server.setting_origins)
        ]

    @property
    def budgets(self) -> AuthorizedBudgets:
        return AuthorizedBudgets(self._server.engine.budgets, self._permissions)

    @property
    def usage(self) -> AuthorizedUsage:
        return AuthorizedUsage(self._server.sessions.usage, self._permissions)

    @property
    def audit(self) -> AuthorizedAudit:
        """Raises NotOffered where the audit trail is off."""
        if self._server.audit is None:
            raise NotOffered("This server keeps no audit trail; `audit_key` switches it on")
        return AuthorizedAudit(self._server.audit.store, self._permissions)

    @property
    def access(self) -> AuthorizedAccess:
        """Keys, service accounts and roles. Raises NotOffered where the server has no store of them."""
        authenticator = self._server.authenticator
        if authenticator is None or authenticator.keys is None:
            raise NotOffered(
                "This server has no API keys. `greenroom keys create --scopes admin` creates the first one, and the "
                "setting auth.keys names their store"
            )
        return AuthorizedAccess(authenticator.keys, self._permissions)

    @property
    def statistics(self) -> AuthorizedStatistics:
        """Raises NotOffered where runs aren't counted."""
        statistics = self._server.engine.statistics
        if statistics is None:
            raise NotOffered("This server keeps no statistics; `statistics_enabled` switches them on")
        return AuthorizedStatistics(statistics, self._permissions)

    @property
    def currency(self) -> str:
        """Of costs."""
        return self._server.sessions.usage.prices.currency

    @property
    def is_draining(self) -> bool:
        """True from the server's stop signal on."""
        return self._server.readiness.is_draining

    async def failing_stores(self) -> list[str]:
        """Names of the stores that don't answer."""
        return await self._server.readiness.failing_stores()

    @property
    def traces(self) -> AuthorizedTraces:
        return AuthorizedTraces(self._server.traces, self._permissions)

    def logs_after(self, number: int, *, limit: int) -> list[LogLine]:
        """Lines of the log of the path's app: of the caller's own runs, unless it acts for all users of the app."""
        app_name = self.path["app_name"]
        identity = self.identity
        user_id = None if identity.acts_for(app_name, None) else identity.subject
        self._permissions.check("read", app_name, user_id)
        return self._server.logs.after(number, app_name=app_name, user_id=user_id, limit=limit)

    async def metrics_text(self) -> bytes:
        """Metrics of the apps that the caller may access, in Prometheus's text format. Raises MissingExtra."""
        if self._server.metrics is None:
            raise MissingExtra("telemetry", "prometheus-client")
        from greenroom.server.prometheus import ServerNumbers, SqliteSizes, metrics_in_text

        engine, sessions = self._server.engine, self._server.sessions
        numbers = ServerNumbers(
            metrics=self._server.metrics,
            prices=sessions.usage.prices,
            load=engine.load(),
        )
        if sessions.server_database is not None:
            with contextlib.suppress(OSError):
                numbers.sqlite = await asyncio.to_thread(SqliteSizes.read, sessions.server_database)
        with contextlib.suppress(StorageError, TimeoutError):  # the other metrics are needed then, too
            async with asyncio.timeout(_STORE_LOAD_SECONDS):
                numbers.store = await engine.store_load()
                numbers.requests = await engine.count_requests()
        return metrics_in_text(numbers, shows=self.identity.reaches)

    @property
    def settings(self) -> ServerSettings:
        return self._server.settings

    @property
    def interface(self) -> bytes:
        """The OpenAPI document of all endpoints, as JSON."""
        return self._server.interface()
