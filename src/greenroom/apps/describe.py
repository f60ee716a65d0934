"""Describes an app: its agents, their instructions, tools and models."""

from __future__ import annotations

import asyncio
import logging

import msgspec

from greenroom.agents.base_llm_agent import Instruction, default_model
from greenroom.agents.llm_agent import LlmAgent, as_tool
from greenroom.apps.app import App
from greenroom.errors import ToolDeclarationError
from greenroom.models.by_name import LLMRegistry
from greenroom.models.model import BaseLlm
from greenroom.plugins.plugin import agents_of_app
from greenroom.records.listings import AgentInfo, AppInfo
from greenroom.records.tool_declaration import FunctionDeclaration, Tool
from greenroom.tools.computer_use.toolset import ComputerUseToolset
from greenroom.tools.tool import BaseTool
from greenroom.tools.toolset import BaseToolset

_log = logging.getLogger("greenroom.apps")

_TOOLSET_SECONDS = 10.0
_LIVE = ("live", "native-audio", "realtime")
"""In the names of models with live connections."""


async def describe(app: App, *, language: str) -> AppInfo:
    """The app with all its LLM agents; other agents are only named as their parents' sub-agents.

    A toolset that doesn't answer is left out. Source: ADK's `GET /apps/{app}/app-info`, which
    refuses an app whose root is no LLM agent; here it is described like any other.
    """
    agents = [agent for agent in app.root_agent.walk() if isinstance(agent, LlmAgent)]
    infos = await asyncio.gather(*(_agent_info(agent) for agent in agents))
    return AppInfo(
        name=app.name,
        root_agent_name=app.root_agent.name,
        description=app.root_agent.description,
        language=language,
        is_computer_use=any(isinstance(tool, ComputerUseToolset) for agent in agents for tool in agent.tools),
        agents={info.name: info for info in infos},
        is_live=can_be_live(app),
    )


async def _agent_info(agent: LlmAgent) -> AgentInfo:
    return AgentInfo(
        name=agent.name,
        description=agent.description,
        instruction=shown_instruction(agent.instruction),
        tools=[Tool(function_declarations=[declaration]) for declaration in await declarations_of(agent)],
        sub_agents=[child.name for child in agent.sub_agents],
    )


def shown_instruction(instruction: Instruction) -> str:
    if isinstance(instruction, str):
        return instruction
    return f"(computed for each run by {getattr(instruction, '__name__', type(instruction).__name__)})"


async def tools_of(agent: LlmAgent) -> list[BaseTool]:
    """Outside of a run. A toolset that doesn't answer is left out."""
    tools: list[BaseTool] = []
    for tool in agent.tools:
        if isinstance(tool, BaseTool):
            tools.append(tool)
        elif isinstance(tool, BaseToolset):
            try:
                async with asyncio.timeout(_TOOLSET_SECONDS):
                    tools += await tool.get_tools_with_prefix()
            except Exception as error:  # a toolset may fail in any way, as when its server is down
                _log.warning(
                    "the toolset %s of agent %s doesn't answer", type(tool).__name__, agent.name, exc_info=error
                )
        else:
            tools.append(as_tool(tool))

    return tools


async def declarations_of(agent: LlmAgent) -> list[FunctionDeclaration]:
    """The declarations of the agent's tools, with their parameters as JSON Schema."""
    declared = map(_declared, await tools_of(agent))
    return [declaration for declaration in declared if declaration is not None]


def log_model_faults(app: App) -> None:
    """Warns of agents whose model lacks a file, a key or a package, and logs which model agents
    without one get.

    Starts the import of the SDKs of the others, in threads.
    """
    agents: dict[str | BaseLlm, list[str]] = {}
    undecided: list[str] = []
    for agent in _llm_agents(app):
        model = agent.inherited_model or app.default_model
        agents.setdefault(model or default_model(), []).append(agent.name)
        if not model:
            undecided.append(agent.name)

    if undecided:
        model = default_model()
        name = model if isinstance(model, str) else model.model
        _log.info(
            "app %r: no model is set for %s; the default is %r",
            app.name,
            ", ".join(undecided),
            name,
        )

    for model, names in agents.items():
        for model_name in [model] if isinstance(model, str) else model.names_to_resolve:
            fault = LLMRegistry.fault(model_name)
            if fault is None:
                LLMRegistry.import_sdk(model_name)
            elif isinstance(model, str):
                _log.warning(
                    "app %r can't answer: the model of %s: %s",
                    app.name,
                    ", ".join(names),
                    fault,
                )
            else:
                _log.warning(
                    "app %r: a model that %s may call: %s",
                    app.name,
                    ", ".join(names),
                    fault,
                )


def missing_for_models(app: App) -> list[str]:
    """Lists what the models of an app need on this machine and don't find, each with a remedy. Calls nothing and
    imports no SDK.
    """
    models = [agent.inherited_model or app.default_model or default_model() for agent in _llm_agents(app)]
    names = (name for model in models for name in ([model] if isinstance(model, str) else model.names_to_resolve))
    return [fault for name in dict.fromkeys(names) if (fault := LLMRegistry.fault(name)) is not None]


def can_be_live(app: App) -> bool:
    """Whether a model of the app has live connections, as far as its class and its name tell."""
    return any(_is_live(agent.inherited_model or app.default_model or default_model()) for agent in _llm_agents(app))


def _is_live(model: str | BaseLlm) -> bool:
    if isinstance(model, BaseLlm):
        if type(model).connect is BaseLlm.connect:
            return False
        if not type(model).__module__.startswith("greenroom.models."):
            return True
    name = model if isinstance(model, str) else model.model
    return any(word in name for word in _LIVE)


def _llm_agents(app: App) -> list[LlmAgent]:
    return [agent for agent in agents_of_app(app.root_agent) if isinstance(agent, LlmAgent)]


def _declared(tool: BaseTool) -> FunctionDeclaration | None:
    try:
        declaration = tool._get_declaration()
    except ToolDeclarationError as error:
        _log.warning("%s", error.detail)
        declaration = FunctionDeclaration(name=tool.name, description=tool.description)

    if declaration is None:
        return None

    return msgspec.structs.replace(
        declaration,
        parameters=None,
        parameters_json_schema=declaration.json_schema(),
    )
