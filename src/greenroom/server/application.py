"""The ASGI application: services, run engine and routes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Iterable
from functools import cache, cached_property, partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

from starlette.routing import BaseRoute, Match, Router, WebSocketRoute, compile_path
from starlette.types import ASGIApp, Lifespan, Receive, Scope, Send

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
from greenroom.server.access.rate_limit import RequestRate
from greenroom.server.cross_origin import OriginGuard, with_cors
from greenroom.server.endpoint import Endpoint, EndpointApp, send_reply
from greenroom.server.endpoints import ENDPOINTS, SOCKETS
from greenroom.server.inspection import content_policy, run_metrics, trace_export, trace_store_beside
from greenroom.server.openapi import build_openapi
from greenroom.server.replies import status_reply
from greenroom.server.request_context import ServerState, named_default, with_app_segment
from greenroom.server.settings import ServerSettings
from greenroom.server.websocket_endpoint import SocketApp
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
        self._server = ServerState(
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
        """Set by the HTTP server. stopping_at: monotonic time of the stop signal, at which the grace period begins."""
        routes = routed(ENDPOINTS, SOCKETS, self._server, lifespan=self._lifespan)
        self._app = OriginGuard(with_cors(routes, settings.cors), cors=settings.cors, hosts=settings.allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            self._lifespan_state = scope.get("state", {})
        if scope["type"] == "http":
            # Routed by the raw path, so that an id may contain an encoded slash.
            raw: bytes = scope.get("raw_path") or scope["path"].encode()
            scope = {**scope, "path": raw.partition(b"?")[0].decode("latin-1")}
        await self._app(scope, receive, send)

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: object) -> AsyncGenerator[None]:
        server = self._server
        await asyncio.to_thread(server.apps.preload)
        if server.default_app is not None and server.default_app not in (names := server.apps.list_apps()):
            _log.warning("the default app is %r, but the apps are: %s", server.default_app, ", ".join(names) or "none")
        resumed = await self.engine.recover()
        if resumed:
            _log.info("resumed %d interrupted runs", resumed)
        try:
            yield
        finally:
            stopping_at: float = self._lifespan_state.get("stopping_at", time.monotonic())
            used = time.monotonic() - stopping_at
            await self.engine.close(grace_seconds=max(self.settings.grace_seconds - used, 0.0))
            if self._export is not None:
                await asyncio.to_thread(self._export.close)
            server.apps.close()
            if server.authenticator is not None:
                await server.authenticator.close()
            for service in (server.traces, server.sessions, server.artifacts, server.memory, self._credentials):
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


def routed(
    endpoints: Iterable[Endpoint], sockets: Iterable[Endpoint], server: ServerState, *, lifespan: Lifespan[Router]
) -> ASGIApp:
    return _Shortcut(
        Router(
            routes=[*_routes(endpoints, server), *_sockets(sockets, server)],
            default=_not_found,
            redirect_slashes=False,
            lifespan=lifespan,
        )
    )


class _Route(BaseRoute):
    """Routes one path of the table to its application. The regular expression is compiled on the first request with the
    same number of segments: compiling all of them takes a tenth of the start-up time."""

    def __init__(self, path: str, app: ASGIApp) -> None:
        self.path = path
        self.app = app
        self._slashes = None if ":path}" in path else path.count("/")

    @cached_property
    def _regex(self) -> re.Pattern[str]:
        return compile_path(self.path)[0]

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        path: str = scope["path"].removeprefix(scope.get("root_path", ""))
        if scope["type"] != "http" or (self._slashes is not None and self._slashes != path.count("/")):
            return Match.NONE, {}
        found = self._regex.match(path)
        if found is None:
            return Match.NONE, {}
        return Match.FULL, {"path_params": {**scope.get("path_params", {}), **found.groupdict()}}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)


class _Shortcut:
    """Looks up paths without parameters, the busiest ones included, in a dict before matching routes in order."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._by_path: dict[str, ASGIApp] = {
            route.path: route.app for route in router.routes if isinstance(route, _Route) and "{" not in route.path
        }

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        app = self._by_path.get(scope["path"]) if scope["type"] == "http" and not scope.get("root_path") else None
        if app is None:
            if scope["type"] == "http":
                scope = with_app_segment(scope)
            return self._router(scope, receive, send)
        scope["path_params"] = {}
        return app(scope, receive, send)


def _routes(endpoints: Iterable[Endpoint], server: ServerState) -> Iterable[_Route]:
    """One route per path, in the order of the table, for all methods of the path, so that a wrong method is a 405."""
    by_path: dict[str, dict[str, ASGIApp]] = {}
    by_path_any: dict[str, ASGIApp] = {}
    for endpoint in endpoints:
        app = EndpointApp(endpoint, server)
        for path in (endpoint.path, *endpoint.aliases):
            methods = by_path.setdefault(path, {})
            methods[endpoint.method] = app
            if endpoint.takes_any_method:
                by_path_any[path] = app
            if endpoint.method == "GET":
                methods["HEAD"] = app
    return [_Route(path, _ByMethod(methods, by_path_any.get(path))) for path, methods in by_path.items()]


def _sockets(endpoints: Iterable[Endpoint], server: ServerState) -> Iterable[WebSocketRoute]:
    for endpoint in endpoints:
        app = SocketApp(endpoint, server)
        for path in (endpoint.path, *endpoint.aliases):
            yield WebSocketRoute(path, app)


class _ByMethod:
    def __init__(self, methods: dict[str, ASGIApp], default: ASGIApp | None) -> None:
        self._methods = methods
        self._default = default

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        app = self._methods.get(scope["method"], self._default)
        if app is None:
            allow = {"allow": ", ".join(sorted(self._methods))}
            return send_reply(status_reply(HTTPStatus.METHOD_NOT_ALLOWED, headers=allow), send)
        return app(scope, receive, send)


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1000})
    else:
        await send_reply(status_reply(HTTPStatus.NOT_FOUND), send)
