"""The keys of each kind of agent, of its tools and of its references, and the words that they know."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from greenroom.apps.yaml_config.document import ConfigNode
from greenroom.apps.yaml_config.keys import known_entries
from greenroom.records.base import JsonValue
from greenroom.records.generation import (
    FunctionCallingConfig,
    GenerateContentConfig,
    SafetySetting,
    ThinkingConfig,
)
from greenroom.records.model_options import (
    FunctionCallingConfigMode,
    HarmBlockThreshold,
    HarmCategory,
    Modality,
    ThinkingLevel,
)

Name: TypeAlias = Annotated[ConfigNode, Meta(extra_json_schema={"type": "string", "minLength": 1})]
"""A text with its line and key, for errors that are found later."""

Args: TypeAlias = Annotated[ConfigNode, Meta(extra_json_schema={"type": "object"})]

TypeReference: TypeAlias = Annotated[
    ConfigNode,
    Meta(
        description="A type in code (`{name: shop.types.Order}`), or a JSON Schema.",
        extra_json_schema={"type": ["object", "string"]},
    ),
]


class Config(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Keys may be written in snake_case or in camelCase."""


class CodeReference(Config, kw_only=True):
    name: Annotated[Name, Meta(description="A dotted name, `shop.guards.no_secrets`, or a registered one.")]


Callbacks: TypeAlias = Annotated[
    list[CodeReference], Meta(description="Functions, asked in this order; the first answer wins.")
]


class CodeWithArgs(Config, kw_only=True):
    name: Annotated[Name, Meta(description="An object, or a class or function that makes it.")]
    args: Annotated[Args, Meta(description="What the class or function is called with.")] | None = None


class AgentReference(Config, kw_only=True):
    """Exactly one of the two."""

    config_path: Annotated[Name, Meta(description="A file of the app, from the folder of this file on.")] | None = None
    code: Annotated[Name, Meta(description="An agent in code, by its dotted or its registered name.")] | None = None


class ToolEntry(Config, kw_only=True):
    name: Annotated[
        Name, Meta(description="A tool of greenroom's, or the dotted name of a function, a tool or a toolset.")
    ]
    args: (
        Annotated[Args, Meta(description="What a tool's class is made with, or a function that makes a tool.")] | None
    ) = None


class AgentConfig(Config, kw_only=True):
    """Any agent."""

    name: Annotated[str, Meta(description="Unique in the team; a Python name, and not `user`.")]
    agent_class: Annotated[str, Meta(description="The kind of agent.")] = "LlmAgent"
    description: Annotated[str, Meta(description="What the agent is for; other agents see it.")] = ""
    sub_agents: Annotated[list[AgentReference], Meta(description="The agents below this one.")] = []
    before_agent_callbacks: Callbacks = []
    after_agent_callbacks: Callbacks = []


class GenerationSettings(GenerateContentConfig, kw_only=True):
    """The parameters of generation."""

    automatic_function_calling: JsonValue = None


class LlmAgentConfig(AgentConfig, kw_only=True):
    """An agent that thinks with a model."""

    instruction: Annotated[str, Meta(description="The prompt of the agent; {name} inserts a value of the state.")]
    model: Annotated[str, Meta(description="A model's name. Without one: that of the nearest LLM agent above.")] = ""
    model_code: Annotated[CodeWithArgs, Meta(description="A model in code, in place of a name.")] | None = None
    static_instruction: (
        Annotated[
            ConfigNode,
            Meta(
                description="Text before the instruction, the same in every request.",
                extra_json_schema={"type": ["string", "object", "array"]},
            ),
        ]
        | None
    ) = None
    global_instruction: Annotated[
        str, Meta(description="A prompt for all agents of the team; used in the root only.")
    ] = ""
    disallow_transfer_to_parent: bool = False
    disallow_transfer_to_peers: bool = False
    offers_transfer_return: bool = False
    include_contents: Annotated[
        Literal["default", "none"], Meta(description="`none` shows the model only the latest message.")
    ] = "default"
    input_schema: TypeReference | None = None
    output_schema: TypeReference | None = None
    output_key: Annotated[str, Meta(description="Where in the state the answer goes.")] | None = None
    max_steps: Annotated[int, Meta(ge=1, description="Model calls per turn.")] | None = None
    tools: list[ToolEntry] = []
    generate_content_config: GenerationSettings | None = None
    planner: CodeWithArgs | None = None
    planner_code: CodeWithArgs | None = None
    code_executor: CodeWithArgs | None = None
    code_executor_code: CodeWithArgs | None = None
    before_model_callbacks: Callbacks = []
    after_model_callbacks: Callbacks = []
    on_model_error_callbacks: Callbacks = []
    before_tool_callbacks: Callbacks = []
    after_tool_callbacks: Callbacks = []
    on_tool_error_callbacks: Callbacks = []


class SequentialAgentConfig(AgentConfig, kw_only=True):
    """Runs its agents one after the other."""


class ParallelAgentConfig(AgentConfig, kw_only=True):
    """Runs its agents side by side."""

    state_reducers: Annotated[
        dict[str, Any],
        Meta(
            description="How the values that several branches write to one state key become one: append, merge, sum, "
            "or a function in code."
        ),
    ] = {}


class LoopAgentConfig(AgentConfig, kw_only=True):
    """Runs its agents in turn, again and again."""

    max_iterations: Annotated[int, Meta(description="Rounds; without it, until an agent ends the loop.")] | None = None


class WorkflowConfig(AgentConfig, kw_only=True):
    """Runs a graph of nodes."""

    edges: Annotated[
        Args,
        Meta(
            description="Chains of nodes, `[START, .nodes.check, {large: .nodes.ask, small: .nodes.book}]`, or maps "
            "with `from_node`, `to_node` and `route`.",
            extra_json_schema={"type": "array"},
        ),
    ]
    max_concurrency: Annotated[int, Meta(description="How many nodes run at a time.")] | None = None
    timeout: Annotated[float, Meta(description="Seconds for the whole workflow.")] | None = None
    input_schema: TypeReference | None = None
    output_schema: TypeReference | None = None


OWNED = {
    "tools": "tools",
    "system_instruction": "instruction",
    "response_schema": "output_schema",
}
"""Keys that belong to another key of the agent."""

_LITERAL: Any = Literal


def _one_of(words: type[StrEnum]) -> Any:
    return _LITERAL[tuple(map(str, words))]


ENUMS: dict[tuple[type[msgspec.Struct], str], Any] = {
    (SafetySetting, "category"): _one_of(HarmCategory) | None,
    (SafetySetting, "threshold"): _one_of(HarmBlockThreshold) | None,
    (GenerationSettings, "response_modalities"): list[_one_of(Modality)] | None,
    (ThinkingConfig, "thinking_level"): _one_of(ThinkingLevel) | None,
    (FunctionCallingConfig, "mode"): _one_of(FunctionCallingConfigMode) | None,
}
"""Fields whose text is one of some words, upper case on the wire; files may have them in any case."""


def check_generation_keys(node: ConfigNode) -> None:
    """Raises ConfigFileError for keys that can't be here."""
    entries, _ = known_entries(node, [*OWNED, "http_options", "model_armor_config"], what="")
    for name, entry in entries.items():
        if name in OWNED:
            raise entry.error(f"is set by the agent's {OWNED[name]}")
        if name == "model_armor_config":
            raise entry.error("is not supported: no model takes it")

        if isinstance(entry.value, dict):
            inside, _ = known_entries(entry, ["base_url"], what="")
            if "base_url" in inside:
                raise inside["base_url"].error("may not be set here; give the address to a model, with model_code")


def generation_config(read: GenerationSettings) -> GenerateContentConfig:
    """Leaves out keys that ADK's files may have but requests don't accept."""
    return GenerateContentConfig(**{name: getattr(read, name) for name in GenerateContentConfig.__struct_fields__})
