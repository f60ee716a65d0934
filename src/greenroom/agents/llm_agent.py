"""The agent that thinks with a model."""

from __future__ import annotations

import copy
import logging
from bisect import bisect_right
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any, Protocol, Self, cast

from greenroom.agents.agent import BaseAgent
from greenroom.agents.agent_tool import AgentTool
from greenroom.agents.base_llm_agent import BaseLlmAgent
from greenroom.agents.live.flow import run_live_flow
from greenroom.agents.node import BaseNode
from greenroom.agents.transfer import transfer_targets
from greenroom.agents.turn.loop import run_steps
from greenroom.agents.turn.output import FinishTaskTool, save_output
from greenroom.errors import AgentConfigError, InvalidRequest
from greenroom.invocation.context import InvocationContext
from greenroom.invocation.user_context import ReadonlyContext
from greenroom.plugins.plugin import agents_of_app
from greenroom.records.event import Event
from greenroom.tools.builtin.model_side import GoogleSearchTool, VertexAiSearchTool
from greenroom.tools.functions.function_tool import FunctionTool
from greenroom.tools.tool import BaseTool, ClientTool
from greenroom.tools.toolset import BaseToolset

_log = logging.getLogger("greenroom.agents")


class LlmAgent(BaseLlmAgent):
    """Answers with a model, calls tools, and may transfer to other agents of its tree. Its fields:
    `BaseLlmAgent`.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self._wrap_tools()

    def _wrap_tools(self) -> None:
        """Wraps functions and agents in `tools` as tools, stored by the identity of the wrapped object."""
        self._search_agents: dict[int, AgentTool] = {}
        self._wrapped_tools: dict[int, BaseTool] = {}
        self._delegates: dict[int, BaseTool] = {}
        self._reported_names: set[str] = set()
        for tool in self.tools:
            if not isinstance(tool, (BaseTool, BaseToolset)):
                self._wrapped_tools[id(tool)] = as_tool(tool)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        copied = copy.copy(self)
        memo[id(self)] = copied

        own = {"_search_agents", "_wrapped_tools", "_delegates", "_reported_names"}
        for name, value in vars(self).items():
            if name not in own:
                setattr(copied, name, copy.deepcopy(value, memo))

        copied._wrap_tools()

        return copied

    async def canonical_tools(self, ctx: InvocationContext | None = None) -> list[BaseTool]:
        """Searches that older models can't have beside other tools are handed to an agent of their own."""
        tools: list[BaseTool] = []
        ends: list[int] = []
        for tool in self.tools:
            wrapped = self._wrapped_tools.get(id(tool))
            if wrapped is not None:
                tools.append(wrapped)
            elif isinstance(tool, BaseTool):
                tools.append(tool)
            elif isinstance(tool, BaseToolset):
                if ctx is not None:
                    readonly = ReadonlyContext(ctx)
                else:
                    readonly = None
                tools += await tool.get_tools_with_prefix(readonly)
            else:
                wrapped = as_tool(tool)
                self._wrapped_tools[id(tool)] = wrapped
                tools.append(wrapped)

            ends.append(len(tools))

        if len({tool.name for tool in tools}) < len(tools):
            self._warn_about_duplicate_names(tools, ends)

        for agent in self.sub_agents:
            if agent.is_delegate:
                if id(agent) not in self._delegates:
                    self._delegates[id(agent)] = as_delegate(agent)
                tools.append(self._delegates[id(agent)])

        if self.mode == "task":
            tools.append(FinishTaskTool(self))

        if ctx is not None and ctx.run_config.client_tools and ctx.isolation_scope is None:
            tools += _client_tools(ctx, {tool.name for tool in tools})

        is_alone = len(tools) == 1 and self.output_type is None and not transfer_targets(self)
        if is_alone:
            return tools

        return [self._usable_with_other_tools(tool) for tool in tools]

    def _warn_about_duplicate_names(self, tools: Sequence[BaseTool], ends: Sequence[int]) -> None:
        """Warns once for each name that several tools share.

        ends: for each of `self.tools`, the number of tools up to it.
        """
        sources: dict[str, str] = {}
        for index, tool in enumerate(tools):
            position = bisect_right(ends, index)
            source = f"tools[{position}] ({type(self.tools[position]).__name__})"
            earlier = sources.get(tool.name)
            sources[tool.name] = source

            if earlier is not None and tool.name not in self._reported_names:
                self._reported_names.add(tool.name)
                _log.warning(
                    "agent %s: %s and %s have a tool of the name %r; the model gets the second one. "
                    "Rename one of them, or give one of the toolsets a tool_name_prefix",
                    self.name, earlier, source, tool.name,
                )  # fmt: skip

    def _usable_with_other_tools(self, tool: BaseTool) -> BaseTool:
        if not isinstance(tool, (GoogleSearchTool, VertexAiSearchTool)) or not tool.bypass_multi_tools_limit:
            return tool

        agent_tool = self._search_agents.get(id(tool))
        if agent_tool is None:
            searcher = LlmAgent(
                name=f"{tool.name}_agent",
                model=self.inherited_model,
                description=f"{tool.description} Ask it in full sentences.",
                instruction=f"Answer the request with what {tool.name} finds, and say so when it finds nothing.",
                tools=[tool],
            )
            agent_tool = AgentTool(
                searcher,
                propagate_grounding_metadata=True,
            )
            self._search_agents[id(tool)] = agent_tool

        return agent_tool

    @property
    def run_node_of_tool(self) -> Callable[..., Awaitable[Any]]:
        from greenroom.agents.workflow.node_tool import run_node_of_tool  # few tools run nodes

        return run_node_of_tool

    def run_async(self, parent_context: InvocationContext) -> AsyncGenerator[Event]:
        if self.mode == "task" and parent_context.node_runner is None:
            from greenroom.agents.workflow.root import run_task  # few agents are tasks

            return run_task(self, parent_context)
        return super().run_async(parent_context)

    _never_waits = True

    def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event]:
        return run_steps(self, ctx)

    def _run_live_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event]:
        return run_live_flow(self, ctx)

    async def _call_back(self, hook: str, ctx: InvocationContext) -> Event | None:
        event = await super()._call_back(hook, ctx)
        if event is not None and hook == "before_agent_callback":  # it answers instead of the agent
            save_output(self, event)
        return event


Agent = LlmAgent


def as_tool(item: BaseNode | Callable[..., Any]) -> BaseTool:
    """Wraps a function, a workflow or a function node as a tool. Raises AgentConfigError for other objects."""
    if isinstance(item, BaseNode):
        from greenroom.agents.workflow.node_tool import tool_of_node  # few agents have workflows as tools

        return tool_of_node(item)
    return FunctionTool(item)


def as_delegate(agent: BaseAgent) -> BaseTool:
    from greenroom.agents.workflow.node_tool import DelegateTool  # few agents have delegates

    return DelegateTool(agent)


def check_root(agent: BaseAgent) -> None:
    """Raises AgentConfigError for an agent that can't take a user's messages."""
    if isinstance(agent, LlmAgent) and agent.mode == "single_turn":
        raise AgentConfigError(f"Agent {agent.name!r} can't be the root: its mode is single_turn")


class Resource(Protocol):
    async def close(self) -> None: ...


def resources_of(root: BaseAgent) -> list[Resource]:
    """Returns the resources of all agents in the tree, including agents that are tools, each once."""
    resources: list[Resource] = []
    for agent in agents_of_app(root):
        if isinstance(agent, LlmAgent):
            resources += [agent.code_executor] if agent.code_executor is not None else []
            tools = [tool for tool in agent.tools if isinstance(tool, (BaseTool, BaseToolset))]
            resources += [cast("Resource", tool) for tool in tools if hasattr(tool, "close")]
            if hasattr(agent.instruction, "close"):  # a provider with a connection
                resources.append(cast("Resource", agent.instruction))

    return list(dict.fromkeys(resources))


def _client_tools(ctx: InvocationContext, own: set[str]) -> list[ClientTool]:
    """Returns the client's tools. Raises InvalidRequest if one has no name, or the name of one of the agent's tools."""
    tools = [ClientTool(declaration) for declaration in ctx.run_config.client_tools]
    for tool in tools:
        if not tool.name:
            raise InvalidRequest("A tool of the client has no name")
        if tool.name in own:
            raise InvalidRequest(f"The client declares a tool {tool.name!r}, but agent {ctx.agent.name!r} has one")
    return tools
