"""The toolsets that a tree of agents works with."""

from __future__ import annotations

from collections.abc import Iterator

from greenroom.agents.agent import BaseAgent
from greenroom.agents.agent_tool import AgentTool
from greenroom.agents.llm_agent import LlmAgent
from greenroom.tools.toolset import BaseToolset


def toolsets_of(root: BaseAgent) -> list[BaseToolset]:
    """Each once, those of agents that are tools included."""
    return list(dict.fromkeys(_toolsets(root, set())))


def _toolsets(root: BaseAgent, seen: set[int]) -> Iterator[BaseToolset]:
    if id(root) in seen:
        return
    seen.add(id(root))
    for agent in root.walk():
        for tool in agent.tools if isinstance(agent, LlmAgent) else ():
            if isinstance(tool, BaseToolset):
                yield tool
            elif isinstance(tool, AgentTool):
                yield from _toolsets(tool.agent, seen)
