"""The keys of each kind of agent, of its tools and of its references.

Source: the YAML files of ADK, in Python and in Java. The JSON Schema for editors is made from these records, too.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from greenroom.apps.yaml_config.document import Node
from greenroom.records.base import JsonValue
from greenroom.records.generation import GenerateContentConfig

Name: TypeAlias = Annotated[Node, Meta(extra_json_schema={"type": "string", "minLength": 1})]
"""A text whose place is needed later, to tell what is wrong with it."""

Args: TypeAlias = Annotated[Node, Meta(extra_json_schema={"type": "object"})]

TypeReference: TypeAlias = Annotated[
    Node,
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
    description: Annotated[str, Meta(description="What the agent is for, as other agents are told.")] = ""
    sub_agents: Annotated[list[AgentReference], Meta(description="The agents below this one.")] = []
    before_agent_callbacks: Callbacks = []
    after_agent_callbacks: Callbacks = []


class GenerationSettings(GenerateContentConfig, kw_only=True):
    """How the model is asked to generate."""

    automatic_function_calling: JsonValue = None


class LlmAgentConfig(AgentConfig, kw_only=True):
    """An agent that thinks with a model."""

    instruction: Annotated[str, Meta(description="What the agent is told; {name} stands for a value of the state.")]
    model: Annotated[str, Meta(description="A model's name. Without one: that of the nearest LLM agent above.")] = ""
    model_code: Annotated[CodeWithArgs, Meta(description="A model in code, in place of a name.")] | None = None
    static_instruction: (
        Annotated[
            Node,
            Meta(
                description="Said before the instruction, the same in every request.",
                extra_json_schema={"type": ["string", "object", "array"]},
            ),
        ]
        | None
    ) = None
    global_instruction: Annotated[str, Meta(description="Said to all agents of the team; counts in the root only.")] = (
        ""
    )
    disallow_transfer_to_parent: bool = False
    disallow_transfer_to_peers: bool = False
    offers_transfer_return: bool = False
    include_contents: Annotated[
        Literal["default", "none"], Meta(description="`none` shows the model only what came in last.")
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
