"""Describes the agents of an app, for comparing versions of it: instructions, models, settings and tools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from greenroom.agents.agent import BaseAgent
from greenroom.agents.base_llm_agent import default_model
from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.app import App
from greenroom.apps.describe import declarations_of, shown_instruction
from greenroom.models.model import BaseLlm
from greenroom.plugins.plugin import agents_of_app
from greenroom.records import wire
from greenroom.records.app_version import AgentDescription
from greenroom.records.base import JsonObject

_VALUES = (
    "mode",
    "include_contents",
    "output_key",
    "max_steps",
    "max_iterations",
    "disallow_transfer_to_parent",
    "disallow_transfer_to_peers",
    "offers_transfer_return",
    "parallel_worker",
)
"""Fields of agents with plain values."""

_OBJECTS = ("planner", "code_executor")
"""Fields of which the class is shown."""


async def describe_agents(app: App) -> list[AgentDescription]:
    """All agents of the app, those in workflows and in tools included, the root first.

    Of toolsets, the tools are listed that they have now; one that doesn't answer is left out.
    """
    agents = cast("list[object]", agents_of_app(app.root_agent))
    return [await _describe(agent, app) for agent in agents if isinstance(agent, BaseAgent)]


async def _describe(agent: BaseAgent, app: App) -> AgentDescription:
    described = AgentDescription(
        name=agent.name,
        kind=type(agent).__name__,
        description=agent.description,
        sub_agents=[child.name for child in agent.sub_agents],
        settings=_settings_of(agent),
    )
    if isinstance(agent, LlmAgent):
        model = agent.inherited_model or app.default_model or default_model()
        described.model = model if isinstance(model, str) else model.model
        described.instruction = shown_instruction(agent.instruction)
        described.global_instruction = shown_instruction(agent.global_instruction)
        described.tools = await declarations_of(agent)
        described.settings.update(_settings_of_model(agent, model))
    return described


def _settings_of(agent: BaseAgent) -> JsonObject:
    settings: JsonObject = {}
    for name in _VALUES:
        value: object = getattr(agent, name, None)
        if value not in (None, False, "default"):
            settings[name] = wire.to_plain(value)
    for name in _OBJECTS:
        value = getattr(agent, name, None)
        if value is not None:
            settings[name] = type(value).__name__
    for name in sorted(vars(agent)):
        callbacks = getattr(agent, name) if name.endswith("_callback") else None
        if callbacks:
            settings[name] = [_name_of(callback) for callback in _listed(callbacks)]
    return settings


def _settings_of_model(agent: LlmAgent, model: str | BaseLlm) -> JsonObject:
    settings: JsonObject = {}
    if isinstance(model, BaseLlm):
        settings["model_class"] = type(model).__name__
    if agent.generate_content_config is not None:
        settings["generate_content_config"] = wire.to_plain(agent.generate_content_config)
    if agent.static_instruction:
        settings["static_instruction"] = wire.to_plain(agent.static_instruction)
    if agent.output_type is not None:
        settings["output_schema"] = agent.output_type.json_schema()
    return settings


def _listed(callbacks: Any) -> Sequence[Callable[..., Any]]:
    return cast("Sequence[Any]", callbacks) if isinstance(callbacks, Sequence) else [callbacks]


def _name_of(callback: Callable[..., Any]) -> str:
    return getattr(callback, "__name__", type(callback).__name__)
