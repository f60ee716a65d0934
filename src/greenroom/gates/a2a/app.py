"""`to_a2a`: one agent as an application for any ASGI server. Source of the names: ADK 2.13."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec

from greenroom.a2a.well_known import AGENT_CARD_WELL_KNOWN_PATH
from greenroom.agents.agent import BaseAgent
from greenroom.errors import MissingExtra
from greenroom.runner.in_memory import InMemoryRunner
from greenroom.runner.runner import Runner

try:
    import a2a.types as a2a
    import httpx
    from a2a.client.card_resolver import parse_agent_card
    from a2a.server.agent_execution import AgentExecutor
    from a2a.server.request_handlers import DefaultRequestHandler
    from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
    from a2a.server.tasks import (
        BasePushNotificationSender,
        InMemoryTaskStore,
        PushNotificationConfigStore,
        TaskStore,
    )
    from starlette.applications import Starlette
except ImportError as error:
    raise MissingExtra("a2a", "a2a-sdk") from error

from greenroom.gates.a2a.card import AgentCardBuilder
from greenroom.gates.a2a.executor import A2aAgentExecutor
from greenroom.tools.web.address_guard import GuardedTransport

_PUSH_SECONDS = 10.0


def to_a2a(
    agent: BaseAgent,
    *,
    host: str = "localhost",
    port: int = 8000,
    protocol: str = "http",
    rpc_path: str = "",
    agent_card: a2a.AgentCard | str | Path | None = None,
    push_config_store: PushNotificationConfigStore | None = None,
    task_store: TaskStore | None = None,
    runner: Runner | None = None,
    lifespan: Callable[[Starlette], AbstractAsyncContextManager[None]] | None = None,
    agent_executor_factory: Callable[[Runner], AgentExecutor] | None = None,
    security_schemes: Mapping[str, a2a.SecurityScheme] | None = None,
    default_skill_security: Sequence[Mapping[str, Sequence[str]]] | None = None,
) -> Starlette:
    """An application with the agent's card, JSON-RPC and REST, in versions 1.0 and 0.3 of the protocol.

    Sessions and tasks are in memory unless `runner` and `task_store` are given; `greenroom serve
    --a2a` keeps them. protocol, host, port, rpc_path: the address in the card, which is built at
    start. agent_card: a card or the path of one in its place. security_schemes: for the card only;
    nothing is authenticated. push_config_store: with it, states of tasks are sent to clients'
    webhooks at public addresses. lifespan: entered at start, and left before the runner is closed.
    """
    path = f"/{rpc_path.strip('/')}" if rpc_path.strip("/") else ""
    runner = runner or InMemoryRunner(agent, app_name=agent.name)
    executor = agent_executor_factory(runner) if agent_executor_factory else A2aAgentExecutor(runner=runner)

    if isinstance(agent_card, (str, Path)):
        agent_card = parse_agent_card(msgspec.json.decode(Path(agent_card).read_bytes()))
    builder = AgentCardBuilder(
        agent=agent,
        rpc_url=f"{protocol}://{host}:{port}{path}",
        capabilities=a2a.AgentCapabilities(streaming=True, push_notifications=push_config_store is not None),
        security_schemes=security_schemes,
        default_skill_security=default_skill_security,
    )

    @asynccontextmanager
    async def serving(app: Starlette) -> AsyncGenerator[None]:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(runner)
            sender = None
            if push_config_store is not None:
                transport = GuardedTransport(httpx.create_ssl_context())
                client = httpx.AsyncClient(transport=transport, timeout=_PUSH_SECONDS, trust_env=False)
                sender = BasePushNotificationSender(await stack.enter_async_context(client), push_config_store)

            card = agent_card or await builder.build()
            handler = DefaultRequestHandler(
                agent_executor=executor,
                task_store=task_store or InMemoryTaskStore(),
                agent_card=card,
                push_config_store=push_config_store,
                push_sender=sender,
            )
            app.router.routes[:] = [
                *create_agent_card_routes(card, card_url=path + AGENT_CARD_WELL_KNOWN_PATH),
                *create_jsonrpc_routes(handler, rpc_url=path or "/", enable_v0_3_compat=True),
                *create_rest_routes(handler, path_prefix=path, enable_v0_3_compat=True),
            ]
            if lifespan is not None:
                await stack.enter_async_context(lifespan(app))
            yield

    return Starlette(lifespan=serving)
