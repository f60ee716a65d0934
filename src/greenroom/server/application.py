"""The ASGI application: services, run engine and endpoints."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.types import Receive, Scope, Send

from greenroom.agents.agent import BaseAgent
from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.app import App
from greenroom.apps.loader import AppLoader, StaticAppLoader
from greenroom.artifacts.in_memory import InMemoryArtifactService
from greenroom.artifacts.service import BaseArtifactService
from greenroom.audit.signing import HeadSigner
from greenroom.credentials.service import BaseCredentialService
from greenroom.errors import AgentConfigError
from greenroom.memory.in_memory import InMemoryMemoryService
from greenroom.memory.service import BaseMemoryService
from greenroom.records import wire
from greenroom.records.run import Run
from greenroom.records.run_judge import RunJudge
from greenroom.runs.engine import credential_service_beside, run_store_beside
from greenroom.runs.fair_queue import Weights
from greenroom.runs.in_process import InProcessRunEngine
from greenroom.runs.judging import Judgement
from greenroom.runs.limits import RunLimits
from greenroom.schedules.store import ScheduleLimits
from greenroom.server.access.audit import AuditTrail
from greenroom.server.access.rate_limit import RequestRate, SharedRate
from greenroom.server.addresses import RequestLocator
from greenroom.server.app_logs import AppLogs
from greenroom.server.cross_origin import OriginGuard
from greenroom.server.encryption import open_stores
from greenroom.server.endless_streams import EndlessStreams
from greenroom.server.endpoint import Endpoint
from greenroom.server.endpoints import ENDPOINTS, SOCKETS
from greenroom.server.inspection import content_policy, exports, trace_store_beside
from greenroom.server.readiness import Readiness
from greenroom.server.router import Router
from greenroom.server.server_state import ServerState
from greenroom.server.settings import GateName, ServerSettings, StatisticsSettings
from greenroom.server.signal_urls import SignalUrls
from greenroom.server.webhook_sender import WebhookSender
from greenroom.sessions.in_memory import InMemorySessionService
from greenroom.sessions.service import BaseSessionService
from greenroom.statistics.store import Retention
from greenroom.telemetry.run_metrics import RunMetrics

if TYPE_CHECKING:
    from greenroom.server.forwarding.forwarder import Forwarder
    from greenroom.telemetry.otlp import OtlpExport
    from greenroom.telemetry.otlp_metrics import OtlpMetrics

ADK_DEFAULT_APP_NAME = "ADK_DEFAULT_APP_NAME"

EXPIRY_CHECK_SECONDS = 600.0
"""Interval of the deletion of sessions that exceeded their app's `session_ttl_seconds`."""

NOTICE_SECONDS = 2.0
"""Time for which a server that has handed its sessions over still forwards requests, unless its grace period is
shorter: load balancers have yet to notice that it isn't ready."""

GATES: dict[GateName, str] = {
    "a2a": "greenroom.gates.a2a.endpoints",
    "ag_ui": "greenroom.gates.ag_ui",
    "agent_engine": "greenroom.gates.agent_engine",
    "mcp": "greenroom.gates.mcp.endpoints",
    "openai": "greenroom.gates.openai.endpoints",
    "triggers": "greenroom.gates.triggers",
}
"""The module of each gate, which is above this package and has a table `ENDPOINTS`. Some have a function `lifespan`:
its context manager is entered when the server starts, and left when it stops."""

_log = logging.getLogger("greenroom.server")


def create_app(
    *,
    agents_dir: str | Path | None = None,
    agents: Iterable[App | BaseAgent] | None = None,
    app_loader: AppLoader | None = None,
    session_service: BaseSessionService | None = None,
    artifact_service: BaseArtifactService | None = None,
    memory_service: BaseMemoryService | None = None,
    credential_service: BaseCredentialService | None = None,
    settings: ServerSettings | None = None,
) -> GreenroomApp:
    """Creates an ASGI application that serves apps from a folder, from code, or from a custom loader.

    Services default to in-memory ones; credentials are stored in the same database as sessions. The application closes
    the services on shutdown. Run it in any ASGI server or mount it in another application; it needs lifespan events.
    """
    if sum(given is not None for given in (agents_dir, agents, app_loader)) != 1:
        raise AgentConfigError("Give create_app exactly one of agents_dir, agents and app_loader")
    if agents_dir is not None:
        from greenroom.apps.load_directory import DirectoryAppLoader

        app_loader = DirectoryAppLoader(agents_dir)
    elif agents is not None:
        app_loader = StaticAppLoader(agents)
    assert app_loader is not None
    sessions = session_service or InMemorySessionService()
    artifacts = artifact_service or InMemoryArtifactService()
    memory = memory_service or InMemoryMemoryService()
    credentials = credential_service or credential_service_beside(sessions)
    settings = settings or ServerSettings()
    limits = settings.limits
    if settings.default_model is not None:
        LlmAgent.set_default_model(settings.default_model)
    artifacts.limit_bytes = limits.artifact_bytes
    if settings.prices is not None:
        from greenroom.usage.prices import PriceTable

        sessions.usage.prices = PriceTable.load(settings.prices)
    content = content_policy(settings.traced_content)
    is_shared = settings.replica_address is not None
    traces = trace_store_beside(sessions, with_content=content.in_debug, is_shared=is_shared)
    metrics = RunMetrics() if find_spec("prometheus_client") is not None else None
    enabled_exports = exports(with_content=content.in_export)
    authenticator = rate = None
    if settings.auth.is_on:
        from greenroom.server.access.authentication import Authenticator

        authenticator = Authenticator(settings.auth)
    if limits.requests_per_second is not None:
        rate = RequestRate(per_second=limits.requests_per_second, at_once=limits.requests_at_once)
    webhook_sender = WebhookSender(secrets=settings.webhook_secrets, allows_private=settings.allow_private_webhooks)
    signal_urls = SignalUrls(settings.public_url, webhook_sender.signers)
    run_store = run_store_beside(sessions, address=settings.replica_address)
    audit: AuditTrail | None = None
    if settings.audit.key is not None:
        signer = HeadSigner.load(settings.audit.key)
        audit = AuditTrail(run_store.audit, signer, sign_seconds=settings.audit.sign_seconds)
    engine = InProcessRunEngine(
        apps=app_loader,
        run_store=run_store,
        session_service=sessions,
        artifact_service=artifacts,
        memory_service=memory,
        credential_service=credentials,
        auto_create_session=settings.auto_create_session,
        deadline_seconds=settings.run_deadline_seconds,
        max_llm_calls=settings.max_llm_calls,
        session_ttl_seconds=settings.session_ttl_seconds,
        limits=RunLimits(
            per_user=limits.runs_per_user,
            per_app=limits.runs_per_app,
            per_server=limits.runs_per_server,
            running=limits.max_running_runs,
            weights=_weights_of(limits.run_weights),
            events_per_session=limits.events_per_session,
        ),
        is_valid_caller=authenticator.is_valid if authenticator is not None else None,
        schedule_limits=ScheduleLimits(per_user=limits.schedules_per_user, per_app=limits.schedules_per_app),
        trace_listeners=[listener for listener in (traces, metrics, *enabled_exports) if listener is not None],
        send_webhook=webhook_sender.send,
        signal_urls=signal_urls,
        is_audited=audit is not None,
        judge_run=partial(_judge_run, sessions),
        statistics_retention=_retention(settings.statistics),
    )
    server = ServerState(
        apps=app_loader,
        engine=engine,
        sessions=sessions,
        artifacts=artifacts,
        memory=memory,
        credentials=credentials,
        traces=traces,
        logs=AppLogs(with_content=content.in_debug),
        metrics=metrics,
        webhook_sender=webhook_sender,
        signal_urls=signal_urls,
        settings=settings,
        readiness=Readiness(sessions, artifacts, memory),
        endless_streams=EndlessStreams(),
        interface=partial(_interface, settings.gates, with_auth=settings.auth.is_on),
        authenticator=authenticator,
        rate=rate,
        audit=audit,
        default_app=settings.default_app or os.environ.get(ADK_DEFAULT_APP_NAME) or None,
    )
    return GreenroomApp(server, enabled_exports)


class GreenroomApp:
    """The ASGI application that `create_app` returns."""

    def __init__(self, server: ServerState, exports: Sequence[OtlpExport | OtlpMetrics]) -> None:
        self.settings = server.settings
        self.engine = server.engine
        self._server = server
        self._exports = exports
        self._expiry: asyncio.Task[None] | None = None
        self._gates = AsyncExitStack()
        router = Router((*_endpoints(server.settings.gates), *SOCKETS), server)
        self._locator = RequestLocator(self.settings, knows=router.knows)
        self._app = OriginGuard(router, cors=self.settings.cors, hosts=self.settings.allowed_hosts)
        self._forwarder: Forwarder | None = None
        self._shared_rate: SharedRate | None = None

    def note_origins(self, origins: Mapping[str, str]) -> None:
        """Notes where the settings come from, which administrators see."""
        self._server.setting_origins.update(origins)

    async def drain(self, *, notice_seconds: float = NOTICE_SECONDS) -> None:
        """Hands the sessions over to the other servers of the store, and answers requests meanwhile, then ends the
        endless streams: for HTTP servers, between their stop signal and the end of their listeners. Returns within the
        grace period.

        notice_seconds: after which it returns at the earliest, if other servers run.
        """
        self._server.readiness.is_draining = True
        if self._forwarder is not None:
            started = time.monotonic()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.settings.grace_seconds):
                    if await self.engine.drain():
                        await asyncio.sleep(started + notice_seconds - time.monotonic())
        self._server.endless_streams.end()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(scope, receive, send)
            return
        if self._forwarder is not None:
            await self._forwarder(scope, receive, send)
            return
        await self._app(self._locator.locate(scope), receive, send)

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(self._locator.locate(scope), receive, send)

    @contextlib.asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        """Starts the server, and stops it when the block ends: for an application that mounts this one, since ASGI
        sends lifespan events to the outermost application only.
        """
        await self._start()
        try:
            yield
        finally:
            await self._stop(stopping_at=time.monotonic())

    async def _lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self._start()
        except BaseException as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            raise
        await send({"type": "lifespan.startup.complete"})
        try:
            await receive()
        finally:
            # Set by the HTTP server: monotonic time of the stop signal, at which the grace period begins.
            await self._stop(stopping_at=scope.get("state", {}).get("stopping_at", time.monotonic()))
        await send({"type": "lifespan.shutdown.complete"})

    async def _start(self) -> None:
        apps, default_app = self._server.apps, self._server.default_app
        logging.getLogger().addHandler(self._server.logs)
        await asyncio.to_thread(apps.preload)
        if default_app is not None and default_app not in (names := await apps.list_apps_async()):
            _log.warning("the default app is %r, but the apps are: %s", default_app, ", ".join(names) or "none")
        server = self._server
        await open_stores(
            server.sessions,
            server.artifacts,
            server.memory,
            server.credentials,
            encrypts=self.settings.encryption.keys is not None,
        )
        self._expiry = asyncio.create_task(self._delete_expired_sessions())
        resumed = await self.engine.recover()
        if self._server.audit is not None:
            await self._server.audit.start(self.settings)
        if self.engine.replicas is not None:
            from greenroom.server.forwarding.forwarder import Forwarder
            from greenroom.server.handoff import HandoffApp

            handoff = HandoffApp(self._handle, self.engine.replicas)
            self._forwarder = Forwarder(handoff, self.engine.replicas, grace_seconds=self.settings.grace_seconds)
            if self._server.rate is not None:
                self._shared_rate = SharedRate(self._server.rate, self.engine.replicas.messages)
                await self._shared_rate.start()
        if resumed:
            _log.info("resumed %d interrupted runs", resumed)
        for name in self.settings.gates:
            lifespan = getattr(import_module(GATES[name]), "lifespan", None)
            if lifespan is not None:
                await self._gates.enter_async_context(lifespan(self._server))

    async def _delete_expired_sessions(self) -> None:
        while True:
            await asyncio.sleep(EXPIRY_CHECK_SECONDS)
            try:
                async for key in self.engine.delete_expired_sessions():
                    await self._server.traces.forget(key)
            except Exception:  # stores may fail in any way; the next pass tries again
                _log.exception("expired sessions could not be deleted")

    async def _stop(self, *, stopping_at: float) -> None:
        server = self._server
        server.readiness.is_draining = True
        logging.getLogger().removeHandler(server.logs)
        if self._expiry is not None:
            self._expiry.cancel()
        if self._shared_rate is not None:
            await self._shared_rate.close()
        used = time.monotonic() - stopping_at
        grace_seconds = max(self.settings.grace_seconds - used, 0.0)
        await asyncio.gather(self._gates.aclose(), self.engine.close(grace_seconds=grace_seconds))
        if server.audit is not None:
            await server.audit.close()  # the engine has closed its store, but the sessions still hold the database
        await server.webhook_sender.close()
        if self._forwarder is not None:
            self._forwarder.close()
        for export in self._exports:
            await asyncio.to_thread(export.close)
        server.apps.close()
        if server.authenticator is not None:
            await server.authenticator.close()
        for service in (server.traces, server.sessions, server.artifacts, server.memory, server.credentials):
            await service.close()


async def _judge_run(sessions: BaseSessionService, judge: RunJudge, run: Run, app: App) -> Judgement | None:
    # Imported only for apps with judges.
    from greenroom.evaluation.run_judging import judge_run

    judged = await judge_run(judge, run, app, sessions=sessions)
    return None if judged is None else Judgement(*judged)


def _retention(statistics: StatisticsSettings) -> Retention | None:
    """None where runs aren't counted."""
    if not statistics.enabled:
        return None
    return Retention(minutes=statistics.minute_days, hours=statistics.hour_days, days=statistics.day_days)


def _weights_of(run_weights: Iterable[str]) -> Weights:
    weights: dict[str, dict[str, float]] = {"app": {}, "user": {}}
    for each in run_weights:
        owner, _, weight = each.rpartition("=")
        kind, _, name = owner.partition(":")
        weights[kind][name] = float(weight)
    return Weights(weights["app"], weights["user"])


def _endpoints(gates: Iterable[GateName]) -> tuple[Endpoint, ...]:
    tables: list[tuple[Endpoint, ...]] = [import_module(GATES[name]).ENDPOINTS for name in gates]
    return (*ENDPOINTS, *chain.from_iterable(tables))


@cache
def _interface(gates: tuple[GateName, ...], *, with_auth: bool) -> bytes:
    from greenroom.server.openapi import build_openapi

    return wire.encode(build_openapi(_endpoints(gates), SOCKETS, with_auth=with_auth))
