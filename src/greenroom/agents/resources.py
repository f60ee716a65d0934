"""What a tree of agents holds open: toolsets and code executors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from greenroom.agents.agent import BaseAgent
from greenroom.agents.agent_tool import AgentTool
from greenroom.agents.llm_agent import LlmAgent
from greenroom.code_executors.executor import BaseCodeExecutor
from greenroom.tools.toolset import BaseToolset

Resource: TypeAlias = BaseToolset | BaseCodeExecutor


def resources_of(root: BaseAgent) -> list[Resource]:
    """Each once, those of agents that are tools included."""
    return list(dict.fromkeys(_resources(root, set())))


def _resources(root: BaseAgent, seen: set[int]) -> Iterator[Resource]:
    if id(root) in seen:
        return
    seen.add(id(root))
    for agent in root.walk():
        if not isinstance(agent, LlmAgent):
            continue
        if agent.code_executor is not None:
            yield agent.code_executor
        for tool in agent.tools:
            if isinstance(tool, BaseToolset):
                yield tool
            elif isinstance(tool, AgentTool):
                yield from _resources(tool.agent, seen)
