"""Configuration of agents that call a model, which every step of their turn reads."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import field
from enum import StrEnum
from typing import Any, Literal, TypeAlias, cast

from greenroom.agents.agent import BaseAgent
from greenroom.agents.callbacks import Callbacks
from greenroom.agents.node import BaseNode
from greenroom.agents.planning import BasePlanner
from greenroom.code_executors.executor import BaseCodeExecutor
from greenroom.errors import AgentConfigError
from greenroom.invocation.context import InvocationContext
from greenroom.invocation.user_context import ReadonlyContext
from greenroom.models.by_name import LLMRegistry
from greenroom.models.model import BaseLlm
from greenroom.records.content import Content, Part
from greenroom.records.genai_types import own
from greenroom.records.generation import GenerateContentConfig
from greenroom.tools.tool import BaseTool
from greenroom.tools.toolset import BaseToolset
from greenroom.tools.value_types.plain_types import TypeSchema
from greenroom.tools.value_types.type_schema import type_schema

ADK_DEFAULT_MODEL = "gemini-3.5-flash"
LOCAL_DEFAULT_MODEL = "local/smollm2-135m"

InstructionProvider: TypeAlias = Callable[[ReadonlyContext], str | Awaitable[str]]

Instruction: TypeAlias = str | InstructionProvider
"""Text with `{variables}`, or a function whose text is taken as it is."""

StaticInstruction: TypeAlias = "str | Part | Content | Sequence[str | Part | Content]"
"""Text and media that are the same in every request. With it, the instruction is sent among the
contents.
"""

ToolUnion: TypeAlias = BaseTool | BaseToolset | BaseNode | Callable[..., Any]


_MODES = (None, "chat", "task", "single_turn")


class IncludeContents(StrEnum):
    """Selects the part of the conversation that a model sees: everything that concerns its agent, or only the events
    since the last message from outside.
    """

    DEFAULT = "default"
    NONE = "none"

    @classmethod
    def _missing_(cls, value: object) -> IncludeContents | None:
        spelled = value.lower() if isinstance(value, str) else value
        return next((one for one in cls if one.value == spelled), None)


def _listed(values: Sequence[str | None]) -> str:
    return ", ".join(map(repr, values))


class BaseLlmAgent(BaseAgent):
    """The fields of `LlmAgent`, checked, and values derived from them and from its position in the tree."""

    model: str | BaseLlm | list[str | BaseLlm] = ""
    """A name or a `BaseLlm`; a list of them becomes a `FallbackModel`; empty means that of the
    nearest LLM agent above, else the default of the app, else `default_model()`.
    """

    instruction: Instruction = ""
    global_instruction: Instruction = ""
    """An instruction for all agents of the tree. It counts on the root only."""

    static_instruction: StaticInstruction = ""
    tools: Sequence[ToolUnion] = field(default_factory=list[ToolUnion])
    generate_content_config: GenerateContentConfig | None = None
    disallow_transfer_to_parent: bool = False
    disallow_transfer_to_peers: bool = False
    offers_transfer_return: bool = False
    """Declares the argument `return` of `transfer_to_agent`, by which the model gets the control
    back when the other agent has answered.
    """

    mode: Literal["chat", "task", "single_turn"] | None = None
    """The way in which the agent gets its work.

    "chat" talks with the user, and agents transfer to it. A parent calls the others as tools:
    "task" until it calls `finish_task`, "single_turn" with its input alone. None is
    "single_turn" in a workflow, else "chat".
    """

    parallel_worker: bool | None = None
    """As a node of a workflow it runs once for each item of its input, see `Node`."""

    include_contents: IncludeContents | Literal["default", "none"] = IncludeContents.DEFAULT
    """With "none" the model sees only the events since the last message from outside."""

    input_schema: Any = None
    output_schema: Any = None
    output_key: str | None = None
    """The state key of the final answer."""

    planner: BasePlanner | None = None
    code_executor: BaseCodeExecutor | None = None
    """Runs the code in the model's replies."""

    max_steps: int | None = None
    """Model calls per turn of this agent, then it ends without an error."""

    # callbacks: see `agents.callbacks`
    before_model_callback: Callbacks = None
    after_model_callback: Callbacks = None
    on_model_error_callback: Callbacks = None
    before_tool_callback: Callbacks = None
    after_tool_callback: Callbacks = None
    on_tool_error_callback: Callbacks = None
    output_type: TypeSchema | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()

        if isinstance(self.model, list):
            from greenroom.models.fallback import FallbackModel

            self.model = FallbackModel(self.model)

        self.generate_content_config = own(self.generate_content_config)
        self.static_instruction = own(self.static_instruction)
        if isinstance(self.generate_content_config, dict):
            self.generate_content_config = GenerateContentConfig.model_validate(self.generate_content_config)

        config = self.generate_content_config
        for name in ("tools", "system_instruction", "response_schema"):
            if config is not None and getattr(config, name) is not None:
                argument = {"system_instruction": "instruction", "response_schema": "output_schema"}.get(name, name)
                raise AgentConfigError(
                    f"Agent {self.name!r}: give {argument} to the agent, not in its generation config"
                )

        if self.mode not in _MODES:
            raise AgentConfigError(f"Agent {self.name!r}: mode is one of {_listed(_MODES)}, not {self.mode!r}")

        try:
            self.include_contents = IncludeContents(self.include_contents)
        except ValueError:
            raise AgentConfigError(
                f"Agent {self.name!r}: include_contents is one of {_listed([one.value for one in IncludeContents])}, "
                f"not {self.include_contents!r}"
            ) from None

        if self.max_steps is not None and self.max_steps < 1:
            raise AgentConfigError(f"Agent {self.name!r}: max_steps must be 1 or more, or None for no limit")

        for part in static_parts(self.static_instruction):
            if part.thought or (part.text is None and part.inline_data is None and part.file_data is None):
                raise AgentConfigError(f"Agent {self.name!r}: static_instruction may hold only text, data and files")

        if self.output_schema is not None:
            self.output_type = type_schema(self.output_schema)

    @property
    def inherited_model(self) -> str | BaseLlm:
        """The agent's own model, else that of the nearest LLM agent above it; empty if none has a model."""
        model = self.model
        above = self.parent_agent
        while not model and above is not None:
            if isinstance(above, BaseLlmAgent):
                model = above.model
            above = above.parent_agent
        return cast("str | BaseLlm", model)

    @property
    def canonical_model(self) -> BaseLlm:
        """The model outside of a run, where no app has a default. Raises ModelNotFound, or
        MissingExtra.
        """
        return _resolved(self.inherited_model or default_model())

    def model_in(self, ctx: InvocationContext) -> BaseLlm:
        """The model in a run. Raises ModelNotFound, or MissingExtra."""
        return self.model_or(ctx.services.default_model)

    def model_or(self, default: str | BaseLlm) -> BaseLlm:
        """The model in an app with that default. Raises ModelNotFound, or MissingExtra."""
        return _resolved(self.inherited_model or default or default_model())

    @classmethod
    def set_default_model(cls, model: str | BaseLlm | None) -> None:
        """Sets the model of agents without one, for all apps in this process without a `default_model`.

        None: ADK's default model where it can be used, else the local one.
        """
        global _default_model
        _default_model = model

    @abstractmethod
    async def canonical_tools(self, ctx: InvocationContext | None = None) -> list[BaseTool]:
        """Returns all tools as BaseTool: functions wrapped, toolsets resolved."""

    @property
    def shared_instruction(self) -> Instruction:
        """The root's instruction for the whole tree."""
        if self.parent_agent is None:
            return self.global_instruction
        root = self.root_agent
        if isinstance(root, BaseLlmAgent):
            return root.global_instruction
        return ""

    @property
    def is_delegate(self) -> bool:
        return self.mode in ("task", "single_turn")

    @property
    def takes_transfers(self) -> bool:
        return True


_default_model: str | BaseLlm | None = None


def default_model() -> str | BaseLlm:
    """Returns the model of `set_default_model`, else ADK's default if its package and key are available, else a local
    model.
    """
    if _default_model is not None:
        return _default_model
    if LLMRegistry.fault(ADK_DEFAULT_MODEL):
        return LOCAL_DEFAULT_MODEL
    return ADK_DEFAULT_MODEL


def _resolved(model: str | BaseLlm) -> BaseLlm:
    return LLMRegistry.resolve(model) if isinstance(model, str) else model


def static_parts(instruction: StaticInstruction) -> list[Part]:
    """The parts of a static instruction, one for the texts of each `Content`. Media stay as they are."""
    if isinstance(instruction, str):
        return [Part(text=instruction)] if instruction else []
    if isinstance(instruction, Sequence):
        return [part for one in instruction for part in static_parts(one)]

    parts: list[Part] = []
    for part in [instruction] if isinstance(instruction, Part) else instruction.parts or []:
        if part.text is not None and not part.thought and parts and parts[-1].text is not None:
            parts[-1] = Part(text=parts[-1].text + part.text)
        else:
            parts.append(part)

    return parts
