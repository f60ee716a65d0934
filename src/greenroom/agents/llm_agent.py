"""The agent that thinks with a model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import field
from typing import Any, Literal, TypeAlias

from greenroom.agents.agent import BaseAgent
from greenroom.agents.agent_tool import AgentTool
from greenroom.agents.callbacks import Callbacks
from greenroom.agents.live.conversation import converse
from greenroom.agents.planning import BasePlanner
from greenroom.agents.turn.hand_over import transfer_targets
from greenroom.agents.turn.instructions import static_text
from greenroom.agents.turn.steps import run_steps
from greenroom.agents.turn.structured_output import save_output
from greenroom.code_executors.executor import BaseCodeExecutor
from greenroom.errors import AgentConfigError
from greenroom.invocation.context import InvocationContext
from greenroom.invocation.user_context import ReadonlyContext
from greenroom.models.by_name import LLMRegistry
from greenroom.models.model import BaseLlm
from greenroom.records.content import Content, Part
from greenroom.records.event import Event
from greenroom.records.generation import GenerateContentConfig
from greenroom.tools.builtin.model_side import GoogleSearchTool, VertexAiSearchTool
from greenroom.tools.function_tool import FunctionTool
from greenroom.tools.tool import BaseTool
from greenroom.tools.toolset import BaseToolset
from greenroom.tools.type_schema import TypeSchema

DEFAULT_MODEL = "local/smollm2-135m"

Instruction: TypeAlias = str | Callable[[ReadonlyContext], str | Awaitable[str]]
"""Text with `{variables}`, or a function whose text is taken as it is."""

StaticInstruction: TypeAlias = "str | Part | Content | Sequence[str | Part | Content]"
"""Text that is the same in every request. With it, the instruction stands among the contents."""

ToolUnion: TypeAlias = BaseTool | BaseToolset | Callable[..., Any]


class LlmAgent(BaseAgent):
    """Answers with a model, calls tools, and may hand over to other agents of its tree.

    model: a name or a `BaseLlm`; empty means the nearest LLM agent above, else `DEFAULT_MODEL`. global_instruction
    counts on the root only. include_contents: "none" shows the model only what came since the last message from
    outside. output_key: where in state the final answer goes. code_executor: runs the code in the model's replies.
    max_steps: model calls per turn of this agent, then it ends without an error. Callbacks are called with keyword
    arguments.
    """

    model: str | BaseLlm = ""
    instruction: Instruction = ""
    global_instruction: Instruction = ""
    static_instruction: StaticInstruction = ""
    tools: Sequence[ToolUnion] = field(default_factory=tuple)
    generate_content_config: GenerateContentConfig | None = None
    disallow_transfer_to_parent: bool = False
    disallow_transfer_to_peers: bool = False
    include_contents: Literal["default", "none"] = "default"
    input_schema: Any = None
    output_schema: Any = None
    output_key: str | None = None
    planner: BasePlanner | None = None
    code_executor: BaseCodeExecutor | None = None
    max_steps: int | None = None
    before_model_callback: Callbacks = None
    after_model_callback: Callbacks = None
    on_model_error_callback: Callbacks = None
    before_tool_callback: Callbacks = None
    after_tool_callback: Callbacks = None
    on_tool_error_callback: Callbacks = None
    output_type: TypeSchema | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        config = self.generate_content_config
        for name in ("tools", "system_instruction", "response_schema"):
            if config is not None and getattr(config, name) is not None:
                where = {"system_instruction": "instruction", "response_schema": "output_schema"}.get(name, name)
                raise AgentConfigError(f"Agent {self.name!r}: give {where} to the agent, not in its generation config")
        if self.max_steps is not None and self.max_steps < 1:
            raise AgentConfigError(f"Agent {self.name!r}: max_steps must be 1 or more, or None for no limit")
        try:
            static_text(self.static_instruction)
        except AgentConfigError as error:
            raise AgentConfigError(f"Agent {self.name!r}: static_instruction {error.detail}") from None
        if self.output_schema is not None:
            self.output_type = TypeSchema(self.output_schema)
        self._search_agents: dict[int, AgentTool] = {}
        self._function_tools: dict[int, FunctionTool] = {}
        for tool in self.tools:
            if not isinstance(tool, (BaseTool, BaseToolset)):
                self._function_tools[id(tool)] = FunctionTool(tool)

    @property
    def canonical_model(self) -> BaseLlm:
        """Raises ModelNotFound, or MissingExtra."""
        agent: BaseAgent | None = self
        while agent is not None:
            if isinstance(agent, LlmAgent) and agent.model:
                return LLMRegistry.resolve(agent.model) if isinstance(agent.model, str) else agent.model
            agent = agent.parent_agent
        return LLMRegistry.resolve(DEFAULT_MODEL)

    @property
    def shared_instruction(self) -> Instruction:
        """The root's instruction for the whole tree."""
        root = self.root_agent
        return root.global_instruction if isinstance(root, LlmAgent) else ""

    async def canonical_tools(self, ctx: InvocationContext | None = None) -> list[BaseTool]:
        """The tools by themselves: functions wrapped, toolsets asked, and searches that older models can't have beside
        other tools handed to an agent of their own."""
        tools: list[BaseTool] = []
        for tool in self.tools:
            if isinstance(tool, BaseTool):
                tools.append(tool)
            elif isinstance(tool, BaseToolset):
                readonly = ReadonlyContext(ctx) if ctx is not None else None
                tools += [one for one in await tool.get_tools(readonly) if tool.is_selected(one, readonly)]
            else:
                wrapped = self._function_tools.get(id(tool))
                if wrapped is None:
                    wrapped = self._function_tools[id(tool)] = FunctionTool(tool)
                tools.append(wrapped)
        is_alone = len(tools) == 1 and self.output_type is None and not transfer_targets(self)
        return tools if is_alone else [self._beside_others(tool) for tool in tools]

    def _beside_others(self, tool: BaseTool) -> BaseTool:
        if not isinstance(tool, (GoogleSearchTool, VertexAiSearchTool)) or not tool.bypass_multi_tools_limit:
            return tool
        asked = self._search_agents.get(id(tool))
        if asked is None:
            searcher = LlmAgent(
                name=f"{tool.name}_agent",
                model=self.canonical_model,
                description=f"{tool.description} Ask it in full sentences.",
                instruction=f"Answer the request with what {tool.name} finds, and say so when it finds nothing.",
                tools=[tool],
            )
            asked = self._search_agents[id(tool)] = AgentTool(searcher, propagate_grounding_metadata=True)
        return asked

    @property
    def takes_transfers(self) -> bool:
        return True

    def _run_async_impl(self, ctx: InvocationContext) -> AsyncIterator[Event]:
        return run_steps(self, ctx)

    def _run_live_impl(self, ctx: InvocationContext) -> AsyncIterator[Event]:
        return converse(self, ctx)

    async def _call_back(self, hook: str, callbacks: Callbacks, ctx: InvocationContext) -> Event | None:
        event = await super()._call_back(hook, callbacks, ctx)
        if event is not None and hook == "before_agent_callback":  # it answers in place of the agent
            save_output(self, event)
        return event


Agent = LlmAgent
