"""`get_fast_api_app`: the server as a FastAPI application. Source of the names: ADK 2.13, `cli/fast_api.py`."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from starlette.types import Lifespan

from greenroom.apps.loader import AppLoader
from greenroom.cli.server_start import secured_settings, with_replica_address
from greenroom.cli.serving import app_loader, app_of_folder, read_configuration
from greenroom.errors import AgentConfigError, ConfigurationError, MissingExtra
from greenroom.records.service_uri import is_loopback

try:
    from fastapi import FastAPI
except ImportError as error:
    raise MissingExtra("fastapi", "fastapi") from error

_ANY_ADDRESS = "0.0.0.0"  # the server doesn't know on which it listens

_TRIGGER_SOURCES = ("pubsub", "eventarc")

_POOL_OPTIONS = frozenset(
    {
        "echo",
        "echo_pool",
        "max_overflow",
        "pool_pre_ping",
        "pool_recycle",
        "pool_reset_on_return",
        "pool_timeout",
        "pool_use_lifo",
        "poolclass",
    }
)
"""Options of SQLAlchemy's engine without which a store works as well."""

_TOKENS = "set GREENROOM_AUTH_TOKENS_JWKS_URL and the other settings of tokens (docs/security.md)"
_TRACES = "set OTEL_EXPORTER_OTLP_ENDPOINT to export traces (docs/observability.md)"

_log = logging.getLogger("greenroom.cli")


def get_fast_api_app(
    *,
    agents_dir: str | Path,
    web: bool,
    agent_loader: AppLoader | None = None,
    session_service_uri: str | None = None,
    session_db_kwargs: Mapping[str, Any] | None = None,
    artifact_service_uri: str | None = None,
    memory_service_uri: str | None = None,
    use_local_storage: bool = True,
    eval_storage_uri: str | None = None,
    task_store_uri: str | None = None,
    allow_origins: Sequence[str] | None = None,
    a2a: bool = False,
    host: str = "127.0.0.1",
    port: int = 8000,
    bind_host: str | None = None,
    url_prefix: str | None = None,
    trace_to_cloud: bool = False,
    otel_to_cloud: bool = False,
    reload_agents: bool = False,
    lifespan: Lifespan[FastAPI] | None = None,
    extra_plugins: Sequence[str] | None = None,
    logo_text: str | None = None,
    logo_image_url: str | None = None,
    avatar_config: object = None,
    auto_create_session: bool = False,
    max_llm_calls: int | None = None,
    default_llm_model: str | None = None,
    trigger_sources: Sequence[str] | None = None,
    trigger_oidc_audience: str | None = None,
    trigger_oidc_service_accounts: Sequence[str] | None = None,
    trigger_auth_verifier: object = None,
    gemini_enterprise_app_name: str | None = None,
    express_mode: bool = False,
) -> FastAPI:
    """Creates a FastAPI application that serves the apps of a folder, for any ASGI server.

    It is a real FastAPI application, since deployments add to it: routes (`@app.get`), routers, middleware, mounts,
    exception handlers and `app.state` work as usual. Greenroom's application answers all requests and WebSockets that
    no added route matches. It isn't mounted at `/`, because routes that are added after such a mount are never reached.
    `/openapi.json` and `/docs` describe greenroom's endpoints; `app.openapi()` returns the document of the added ones.
    API keys, tokens and limits apply to greenroom's endpoints, not to added routes.

    Parameters take precedence over variables (`GREENROOM_…`) and `greenroom.toml`, which set everything else, as for
    `greenroom serve`. Parameters that need an explanation:

    agent_loader: used in place of the folder's own loader. session_db_kwargs: `pool_size`, the number of reading
    connections to PostgreSQL; others of SQLAlchemy's pool have no effect. use_local_storage: False keeps sessions and
    artifacts in memory where no URI is given. host: not used, since URLs follow from each request. port: where other
    servers on the same PostgreSQL database reach this one, unless `replica_address` is set. bind_host: the address on
    which the ASGI server listens. With a loopback address, other names in the header `Host` are refused; with any
    other one, access has to be configured. If it isn't given, missing access control is logged as a warning.
    url_prefix: as in ADK, the proxy has to remove it before your own routes. lifespan: entered before interrupted runs
    resume, and left when all runs have ended. gemini_enterprise_app_name: the app of the gate `agent_engine`.

    Raises ConfigurationError and CallerError for settings that would be wrong to ignore.
    """
    _refuse(
        extra_plugins=(extra_plugins, "list the plugins in App(plugins=[…]) of each app"),
        trigger_oidc_audience=(trigger_oidc_audience, _TOKENS),
        trigger_oidc_service_accounts=(trigger_oidc_service_accounts, _TOKENS),
        trigger_auth_verifier=(trigger_auth_verifier, _TOKENS),
    )
    _warn(
        web=(not web, "the dev UI is served without it, too"),
        eval_storage_uri=(eval_storage_uri, "evaluation sets and results are stored beside each agent"),
        task_store_uri=(task_store_uri, "tasks of A2A are stored with the sessions"),
        trace_to_cloud=(trace_to_cloud, _TRACES),
        otel_to_cloud=(otel_to_cloud, _TRACES),
        logo_text=(logo_text, "the dev UI has its own logo"),
        logo_image_url=(logo_image_url, "the dev UI has its own logo"),
        avatar_config=(avatar_config, "live conversations have no avatars"),
        express_mode=(express_mode, "set GOOGLE_API_KEY"),
    )
    if agent_loader is not None and not isinstance(agent_loader, AppLoader):
        raise AgentConfigError(f"agent_loader must be a greenroom AppLoader, not {type(agent_loader).__name__}")

    given = {
        "session_service": session_service_uri,
        "artifact_service": artifact_service_uri,
        "memory_service": memory_service_uri,
        "cors.origins": allow_origins,
        "url_prefix": url_prefix,
        "max_llm_calls": max_llm_calls,
        "default_model": default_llm_model,
        "default_app": gemini_enterprise_app_name,
        "host": bind_host,
    }
    flags: dict[str, Any] = {key: value for key, value in given.items() if value}
    flags["port"] = port
    flags["reload"] = reload_agents
    if auto_create_session:
        flags["auto_create_session"] = True

    folder = Path(agents_dir)
    configuration = read_configuration(folder, None, flags)
    for warning in configuration.warnings:
        _log.warning("%s", warning)
    settings = configuration.settings

    if not use_local_storage:
        settings = replace(
            settings,
            session_service=settings.session_service or "memory://",
            artifact_service=settings.artifact_service or "memory://",
        )
    gates = _gates(a2a=a2a, trigger_sources=trigger_sources, has_engine=gemini_enterprise_app_name is not None)
    settings = replace(settings, gates=tuple(dict.fromkeys([*settings.gates, *gates])))
    settings = secured_settings(folder, settings, is_loopback=None if bind_host is None else is_loopback(bind_host))
    settings = with_replica_address(settings, _ANY_ADDRESS, settings.port)

    loader = agent_loader or app_loader(folder, settings)
    server, _ = app_of_folder(folder, loader, settings, session_pool_size=_pool_size(session_db_kwargs or {}))

    @asynccontextmanager
    async def running(app: FastAPI) -> AsyncGenerator[Mapping[str, Any] | None]:
        if lifespan is None:
            async with server.lifespan():
                yield None
            return
        async with lifespan(app) as state, server.lifespan():
            yield state

    # Without these routes of FastAPI, requests for `/openapi.json` and `/docs` reach greenroom.
    app = FastAPI(
        title="greenroom",
        lifespan=cast("Lifespan[FastAPI]", running),
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
    )
    app.router.default = server
    return app


def _refuse(**parameters: tuple[object, str]) -> None:
    """Raises ConfigurationError for given parameters. The text of each says what to do instead."""
    faults = [
        f"{name} of get_fast_api_app is not offered: {text}" for name, (value, text) in parameters.items() if value
    ]
    if faults:
        raise ConfigurationError(faults)


def _warn(**parameters: tuple[object, str]) -> None:
    """Logs given parameters that have no effect."""
    for name, (value, text) in parameters.items():
        if value:
            _log.warning("%s of get_fast_api_app has no effect: %s", name, text)


def _gates(*, a2a: bool, trigger_sources: Sequence[str] | None, has_engine: bool) -> Iterator[Any]:
    if a2a:
        yield "a2a"
    if has_engine:
        yield "agent_engine"
    if trigger_sources:
        unknown = sorted({*trigger_sources} - {*_TRIGGER_SOURCES})
        if unknown:
            raise ConfigurationError([f"trigger_sources has pubsub and eventarc, not {', '.join(unknown)}"])
        others = sorted({*_TRIGGER_SOURCES} - {*trigger_sources})
        if others:
            _log.warning("trigger_sources: the gate `triggers` also accepts messages of %s", ", ".join(others))
        yield "triggers"


def _pool_size(session_db_kwargs: Mapping[str, Any]) -> int | None:
    """Reads the one option that has a meaning here. Raises ConfigurationError for one that must not be ignored."""
    others = sorted({*session_db_kwargs} - {"pool_size"})
    unknown = [name for name in others if name not in _POOL_OPTIONS]
    if unknown:
        fault = f"session_db_kwargs has {', '.join(unknown)}: write options of the connection into the URI"
        raise ConfigurationError([fault])
    if others:
        _log.warning("session_db_kwargs: %s has no effect", ", ".join(others))
    return session_db_kwargs.get("pool_size")
