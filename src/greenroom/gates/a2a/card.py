"""Agent cards: descriptions of agents for clients that choose one. Source: ADK's AgentCardBuilder.

Cards only have descriptions, never instructions.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from weakref import WeakKeyDictionary

from greenroom.agents.agent import BaseAgent
from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.node import BaseNode
from greenroom.agents.workflow.workflow import Workflow
from greenroom.agents.workflows import LoopAgent, ParallelAgent, SequentialAgent
from greenroom.apps.app import App
from greenroom.errors import MissingExtra
from greenroom.server.request_context import RequestContext
from greenroom.tools.builtin.examples import ExampleTool
from greenroom.tools.tool import BaseTool
from greenroom.version import __version__

try:
    import a2a.types as a2a
    from a2a.client.card_resolver import parse_agent_card
except ImportError as error:
    raise MissingExtra("a2a", "a2a-sdk") from error

DEFAULT_DESCRIPTION = "An ADK Agent"
DEFAULT_URL = "http://localhost:80/a2a"
KEY_SCHEME = "bearer"
VERSIONS = ("1.0", "0.3")
BINDINGS = ("JSONRPC", "HTTP+JSON")
INPUT_MODES = (
    "text/plain", "text/markdown", "text/html", "text/csv", "application/json", "application/pdf",
    "image/png", "image/jpeg", "image/webp", "image/gif", "image/heic",
    "audio/wav", "audio/mpeg", "audio/mp4", "audio/ogg", "audio/flac", "audio/aac",
    "video/mp4", "video/webm", "video/mpeg", "video/quicktime",
)  # fmt: skip
"""Media types that models take. A message with others is refused; `agent.json` of an app may list its own."""

_TYPES: tuple[tuple[type[BaseNode], str], ...] = (
    (SequentialAgent, "sequential_workflow"),
    (ParallelAgent, "parallel_workflow"),
    (LoopAgent, "loop_workflow"),
    (Workflow, "graph_workflow"),
)
CARD_SECONDS = 60.0

_cards: WeakKeyDictionary[App, dict[bool, tuple[float, a2a.AgentCard]]] = WeakKeyDictionary()
_log = logging.getLogger("greenroom.a2a")


class AgentCardBuilder:
    """Builds agent cards.

    rpc_url: without trailing slash. default_skill_security: requirements of skills whose tool has none in its
    `custom_metadata["security"]`: lists of scopes by the names of security schemes.
    """

    def __init__(
        self,
        *,
        agent: BaseNode,
        rpc_url: str | None = None,
        capabilities: a2a.AgentCapabilities | None = None,
        doc_url: str | None = None,
        provider: a2a.AgentProvider | None = None,
        agent_version: str | None = None,
        security_schemes: Mapping[str, a2a.SecurityScheme] | None = None,
        default_skill_security: Sequence[Mapping[str, Sequence[str]]] | None = None,
    ) -> None:
        self._agent = agent
        self._url = (rpc_url or DEFAULT_URL).rstrip("/")
        self._capabilities = capabilities or a2a.AgentCapabilities(streaming=True)
        self._doc_url = doc_url or ""
        self._provider = provider
        self._version = agent_version or "0.0.1"
        self._schemes = dict(security_schemes or {})
        self._security = [dict(requirement) for requirement in default_skill_security or ()]

    async def build(self) -> a2a.AgentCard:
        agent = self._agent
        card = a2a.AgentCard(
            name=agent.name,
            description=agent.description or DEFAULT_DESCRIPTION,
            version=self._version,
            documentation_url=self._doc_url,
            provider=self._provider,
            capabilities=self._capabilities,
            supported_interfaces=[
                a2a.AgentInterface(url=self._url, protocol_binding=binding, protocol_version=version)
                for version in VERSIONS
                for binding in BINDINGS
            ],
            default_input_modes=INPUT_MODES,
            default_output_modes=["text/plain"],
            security_schemes=self._schemes,
            skills=await self._skills(agent),
        )
        for name in self._schemes:
            card.security_requirements.append(_requirement({name: ()}))

        return card

    async def _skills(self, agent: BaseNode) -> list[a2a.AgentSkill]:
        skills: list[a2a.AgentSkill] = []
        children = agent.sub_agents if isinstance(agent, BaseAgent) else ()
        described = agent.description or DEFAULT_DESCRIPTION

        if isinstance(agent, LlmAgent):
            skills.append(self._skill(agent.name, "model", described, ["llm"]))
            for tool in await agent.canonical_tools():
                if isinstance(tool, ExampleTool):
                    continue
                skill_id = f"{agent.name}-{tool.name}"
                text = tool.description or f"Tool: {tool.name}"
                skills.append(self._skill(skill_id, tool.name, text, ["llm", "tools"], tool))

            if agent.planner is not None:
                text = "Can think about the tasks and make plans"
                skills.append(self._skill(f"{agent.name}-planner", "planning", text, ["llm", "planning"]))
            if agent.code_executor is not None:
                skill_id = f"{agent.name}-code-executor"
                tags = ["llm", "code_execution"]
                skills.append(self._skill(skill_id, "code-execution", "Can execute code", tags))
        else:
            kind = next((tag for type_, tag in _TYPES if isinstance(agent, type_)), "custom_agent")
            name = "custom" if kind == "custom_agent" else "workflow"
            steps = "; ".join(f"{child.name}: {child.description}" for child in children if child.description)
            if isinstance(agent, LoopAgent) and agent.max_iterations:
                steps += f" (at most {agent.max_iterations} times)"
            text = f"{described} Steps: {steps}" if steps else described
            skills.append(self._skill(agent.name, name, text, [kind]))
            if children:
                text = "Orchestrates " + ", ".join(child.name for child in children)
                skills.append(self._skill(f"{agent.name}-sub-agents", "sub-agents", text, [kind, "orchestration"]))

        for child in children:
            try:
                inner = await self._skills(child)
            except Exception:  # a toolset of a child fails in any way; the others are still described
                _log.warning("the skills of %s are left out of the card", child.name, exc_info=True)
                continue
            for skill in inner:
                skill.id = f"{child.name}_{skill.id}"
                skill.name = f"{child.name}: {skill.name}"
                skill.tags.insert(0, f"sub_agent:{child.name}")
            skills += inner

        return skills

    def _skill(
        self, skill_id: str, name: str, description: str, tags: Sequence[str], tool: BaseTool | None = None
    ) -> a2a.AgentSkill:
        security = ((tool.custom_metadata or {}).get("security") if tool is not None else None) or self._security
        return a2a.AgentSkill(
            id=skill_id,
            name=name,
            description=description,
            tags=tags,
            security_requirements=[_requirement(scheme) for scheme in security],
        )


def _requirement(schemes: Mapping[str, Sequence[str]]) -> a2a.SecurityRequirement:
    return a2a.SecurityRequirement(
        schemes={name: a2a.StringList(list=list(scopes)) for name, scopes in schemes.items()}
    )


async def _built(app: App, capabilities: a2a.AgentCapabilities, *, with_auth: bool) -> a2a.AgentCard:
    """The card of an app, at most CARD_SECONDS old: its toolsets may ask other servers for their tools."""
    cards = _cards.setdefault(app, {})
    made_at, card = cards.get(with_auth, (0.0, None))
    if card is None or time.monotonic() - made_at > CARD_SECONDS:
        http = a2a.HTTPAuthSecurityScheme(scheme="Bearer", description="A key or a token of this server")
        schemes: dict[str, a2a.SecurityScheme] = {}
        if with_auth:
            schemes[KEY_SCHEME] = a2a.SecurityScheme(http_auth_security_scheme=http)
        version = app.version or __version__
        builder = AgentCardBuilder(
            agent=app.root_agent, capabilities=capabilities, agent_version=version, security_schemes=schemes
        )
        card = await builder.build()
        cards[with_auth] = time.monotonic(), card

    return card


async def card_of(context: RequestContext) -> a2a.AgentCard:
    """The card of the path's app: `agent.json` in its folder, else built from its agents; with this
    server's address, capabilities and authentication. Raises AppNotFound, AppLoadError."""
    name = context.path["app_name"]
    app = await context.apps.load(name)
    folder = context.apps.folder(name)
    with_auth = context.settings.auth.is_on
    capabilities = a2a.AgentCapabilities(streaming=True, push_notifications=True, extended_agent_card=with_auth)
    built = a2a.AgentCard()
    built.CopyFrom(await _built(app, capabilities, with_auth=with_auth))
    for interface in built.supported_interfaces:
        interface.url = context.address.url(f"/a2a/{name}")

    if context.settings.a2a_grpc is not None:
        interface = a2a.AgentInterface(protocol_binding="GRPC", protocol_version="1.0", tenant=name)
        interface.url = _grpc_address(context.settings.a2a_grpc, context.address.host)
        built.supported_interfaces.append(interface)

    if folder is None:
        return built
    data = await asyncio.to_thread(_read, folder / "agent.json")
    if data is None:
        return built

    card = parse_agent_card(json.loads(data))
    if not card.capabilities.ByteSize():
        card.capabilities.CopyFrom(capabilities)
    if not card.supported_interfaces:
        card.supported_interfaces.extend(built.supported_interfaces)
    return card


def _read(file: Path) -> bytes | None:
    return file.read_bytes() if file.is_file() else None


def _grpc_address(address: str, host: str) -> str:
    """Returns the address that clients connect to. For a server that listens on all interfaces, it has the host name of
    the request.
    """
    listening, _, port = address.rpartition(":")
    is_everywhere = listening in ("0.0.0.0", "[::]")
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    return f"{name}:{port}" if is_everywhere else address
