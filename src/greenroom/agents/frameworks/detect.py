"""Recognizes agents of other frameworks by the modules of their classes, so that no framework is imported for that."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

from greenroom.agents.agent import BaseAgent


class Framework(NamedTuple):
    """A framework whose agents can be hosted."""

    package: str
    """The top-level package of its classes."""
    classes: frozenset[str]
    """The base classes of its agents."""
    module: str
    """The module of the class that hosts them."""
    name: str
    """The name of that class."""
    field: str
    """The argument of that class for the framework's agent."""


FRAMEWORKS = (
    Framework(
        "langgraph",
        frozenset({"Pregel", "StateGraph"}),
        "greenroom.agents.frameworks.langgraph.agent",
        "LangGraphAgent",
        "graph",
    ),
    Framework(
        "pydantic_ai",
        frozenset({"AbstractAgent"}),
        "greenroom.agents.frameworks.pydantic_ai.agent",
        "PydanticAiAgent",
        "agent",
    ),
    Framework(
        "agents",
        frozenset({"AgentBase"}),
        "greenroom.agents.frameworks.openai_agents.agent",
        "OpenAIAgentsAgent",
        "agent",
    ),
)


def framework_of(value: object) -> Framework | None:
    """The framework that an object is an agent of; None for other objects."""
    for base in type(value).__mro__:
        package = base.__module__.partition(".")[0]
        for framework in FRAMEWORKS:
            if framework.package == package and base.__name__ in framework.classes:
                return framework
    return None


def hosted_agent(value: object, *, name: str) -> BaseAgent | None:
    """An agent that hosts the object, if it is an agent of a framework. name: of the app. Raises MissingExtra."""
    framework = framework_of(value)
    if framework is None:
        return None

    host: Callable[..., BaseAgent] = getattr(import_module(framework.module), framework.name)
    own_name = name.rpartition(".")[2]
    if own_name[:1].isdigit():  # as a folder's name may begin, and an agent's may not
        own_name = f"_{own_name}"
    return host(**{"name": own_name, framework.field: value})
