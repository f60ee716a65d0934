"""ADK's configuration classes of agents, for apps that subclass or annotate with them.

YAML agents are read from the fields of their own class (docs/yaml.md), and don't need a
`config_type`.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

from greenroom.records.declarative import Declarative


class ArgumentConfig(Declarative):
    value: Any
    name: str | None = None


class CodeConfig(Declarative):
    name: str
    args: list[ArgumentConfig] = field(default_factory=list[ArgumentConfig])


class AgentRefConfig(Declarative):
    config_path: str | None = None
    code: str | None = None


class BaseAgentConfig(Declarative):
    name: str
    agent_class: str = "BaseAgent"
    description: str = ""
    sub_agents: list[AgentRefConfig] | None = None
    before_agent_callbacks: list[CodeConfig] | None = None
    after_agent_callbacks: list[CodeConfig] | None = None
