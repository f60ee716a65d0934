"""The ASGI application: services, the runs over them, and the way in."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncGenerator, Iterable
from functools import cache, partial
from pathlib import Path
from typing import Any

from starlette.types import Receive, Scope, Send

from greenroom.agents.agent import BaseAgent
from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.app import App
from greenroom.apps.loader import AppLoader, StaticAppLoader
from greenroom.artifacts.in_memory import InMemoryArtifactService
from greenroom.artifacts.service import BaseArtifactService
from greenroom.credentials.service import BaseCredentialService
from greenroom.errors import AgentConfigError, ConfigurationError
from greenroom.memory.in_memory import InMemoryMemoryService
from greenroom.memory.service import BaseMemoryService
from greenroom.records import wire
from greenroom.runs.engine import RunEngine, credential_service_beside, run_store_beside
from greenroom.runs.in_process import InProcessRunEngine
from greenroom.runs.limits import RunLimits
from greenroom.server.call import Rooms
from greenroom.server.cors import with_cors
from greenroom.server.default_app import named_default
from greenroom.server.endpoints import ENDPOINTS, SOCKETS
from greenroom.server.inspection import content_policy, run_metrics, trace_export, trace_store_beside
from greenroom.server.openapi import build_openapi
from greenroom.server.origin import OriginGuard
from greenroom.server.request_rate import RequestRate
from greenroom.server.routing import routed
from greenroom.server.settings import ServerSettings
from greenroom.sessions.in_memory import InMemorySessionService
from greenroom.sessions.service import BaseSessionService

ADK_MAX_LLM_CALLS = "ADK_MAX_LLM_CALLS"

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
    """An ASGI application that serves apps from a folder, from code, or from a loader of one's own.

    Services that are not given keep everything in memory; credentials lie beside the sessions. The application closes
    the services when it stops. Mount it in another application, or give it to any ASGI server; it needs the lifespan
    events of either.
    """
    if sum(given is not None for given in (agents_dir, agents, app_loader)) != 1:
        raise AgentConfigError("Give create_app exactly one of agents_dir, agents and app_loader")
    if agents_dir is not None:
        from greenroom.apps.load_directory import DirectoryAppLoader

        app_loader = DirectoryAppLoader(agents_dir)
    elif agents is not None:
        app_loader = StaticAppLoader(agents)
    assert app_loader is not None
    return GreenroomApp(
        apps=app_loader,
        sessions=session_service or InMemorySessionService(),
        artifacts=artifact_service or InMemoryArtifactService(),
        memory=memory_service or InMemoryMemoryService(),
        credentials=credential_service,
        settings=settings or ServerSettings(),
    )


class GreenroomApp:
    def __init__(
        self,
        *,
        apps: AppLoader,
        sessions: BaseSessionService,
        artifacts: BaseArtifactService,
        memory: BaseMemoryService,
        credentials: BaseCredentialService | None,
        settings: ServerSettings,
    ) -> None:
        self.settings = settings
        if settings.default_model is not None:
            LlmAgent.set_default_model(settings.default_model)
        content = content_policy(settings.traced_content)
        traces = trace_store_beside(sessions, with_content=content.in_debug)
        metrics = run_metrics()
        self._export = trace_export(with_content=content.in_export)
        limits = settings.limits
        if limits.artifact_bytes is not None:
            artifacts.limit_bytes = limits.artifact_bytes
        self._credentials = credentials or credential_service_beside(sessions)
        authenticator = None
        if settings.auth.is_on:
            from greenroom.server.access.authentication import Authenticator

            authenticator = Authenticator(settings.auth)
        self.engine: RunEngine = InProcessRunEngine(
            apps=apps,
            run_store=run_store_beside(sessions),
            session_service=sessions,
            artifact_service=artifacts,
            memory_service=memory,
            credential_service=self._credentials,
            auto_create_session=settings.auto_create_session,
            deadline_seconds=settings.run_deadline_seconds,
            max_llm_calls=_max_llm_calls(settings),
            limits=RunLimits(
                per_user=limits.runs_per_user,
                per_app=limits.runs_per_app,
                per_server=limits.runs_per_server,
                events_per_session=limits.events_per_session,
            ),
            trace_listeners=[listener for listener in (traces, metrics, self._export) if listener is not None],
        )
        self._rooms = Rooms(
            apps=apps,
            engine=self.engine,
            sessions=sessions,
            artifacts=artifacts,
            memory=memory,
            credentials=self._credentials,
            traces=traces,
            metrics=metrics,
            settings=settings,
            interface=partial(_interface, with_auth=settings.auth.is_on),
            authenticator=authenticator,
            rate=RequestRate(per_second=limits.requests_per_second, at_once=limits.requests_at_once)
            if limits.requests_per_second is not None
            else None,
            default_app=named_default(settings),
        )
        self._lifespan_state: dict[str, Any] = {}
        """From the HTTP server; stopping_at: the monotonic time of the signal to stop, since when the grace counts."""
        routes = routed(ENDPOINTS, SOCKETS, self._rooms, lifespan=self._lifespan)
        self._app = OriginGuard(with_cors(routes, settings.cors), cors=settings.cors, hosts=settings.allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            self._lifespan_state = scope.get("state", {})
        if scope["type"] == "http":
            # Routed by the raw path, so that an id may hold an encoded slash.
            raw: bytes = scope.get("raw_path") or scope["path"].encode()
            scope = {**scope, "path": raw.partition(b"?")[0].decode("latin-1")}
        await self._app(scope, receive, send)

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: object) -> AsyncGenerator[None]:
        rooms = self._rooms
        await asyncio.to_thread(rooms.apps.preload)
        if rooms.default_app is not None and rooms.default_app not in (names := rooms.apps.list_apps()):
            _log.warning("the default app is %r, but the apps are: %s", rooms.default_app, ", ".join(names) or "none")
        resumed = await self.engine.recover()
        if resumed:
            _log.info("took up %d runs that were cut off", resumed)
        try:
            yield
        finally:
            stopping_at: float = self._lifespan_state.get("stopping_at", time.monotonic())
            used = time.monotonic() - stopping_at
            await self.engine.close(grace_seconds=max(self.settings.grace_seconds - used, 0.0))
            if self._export is not None:
                await asyncio.to_thread(self._export.close)
            rooms.apps.close()
            if rooms.authenticator is not None:
                await rooms.authenticator.close()
            for service in (rooms.traces, rooms.sessions, rooms.artifacts, rooms.memory, self._credentials):
                await service.close()


def _max_llm_calls(settings: ServerSettings) -> int | None:
    """Raises ConfigurationError."""
    if settings.max_llm_calls is not None:
        return settings.max_llm_calls
    text = os.environ.get(ADK_MAX_LLM_CALLS) or None
    try:
        return None if text is None else max(int(text), 0)
    except ValueError:
        raise ConfigurationError([f"variable {ADK_MAX_LLM_CALLS} must be a whole number, not {text!r}"]) from None


@cache
def _interface(*, with_auth: bool) -> bytes:
    return wire.encode(build_openapi(ENDPOINTS, SOCKETS, with_auth=with_auth))
