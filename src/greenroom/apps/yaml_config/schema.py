"""A JSON Schema of the files, from the records that they are read by, so that editors can complete
and check them.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec

from greenroom.apps.yaml_config import records
from greenroom.apps.yaml_config.document import ConfigNode
from greenroom.apps.yaml_config.keys import by_either_spelling, camel, snake
from greenroom.apps.yaml_config.records import ENUMS, OWNED
from greenroom.records.base import JsonObject

_KINDS: dict[str, type[records.AgentConfig]] = {
    "LlmAgent": records.LlmAgentConfig,
    "SequentialAgent": records.SequentialAgentConfig,
    "ParallelAgent": records.ParallelAgentConfig,
    "LoopAgent": records.LoopAgentConfig,
    "Workflow": records.WorkflowConfig,
}
_DEFS = "#/$defs/"
_CLASS_KEYS = ("agent_class", "agentClass")


def config_schema() -> JsonObject:
    """Returns the schema of a file for an agent of any kind. Keys are described in snake_case; camelCase is allowed,
    too.
    """
    _, definitions = msgspec.json.schema_components(
        [*_KINDS.values(), records.AgentConfig], schema_hook=_of_other, ref_template=_DEFS + "{name}"
    )
    definitions = cast("dict[str, JsonObject]", definitions)
    for kind, config in _KINDS.items():
        _name_the_kind(definitions[config.__name__], kind)

    _open_for_other_keys(definitions["AgentConfig"])
    _add_words(definitions)
    definitions["AgentReference"]["oneOf"] = [
        {"anyOf": [{"required": ["config_path"]}, {"required": ["configPath"]}]},
        {"required": ["code"]},
    ]

    for definition in definitions.values():
        if "properties" in definition:
            definition["properties"] = _in_both_spellings(definition["properties"])

    roots: list[JsonObject] = [{"$ref": _DEFS + c.__name__} for c in (*_KINDS.values(), records.AgentConfig)]

    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A greenroom agent",
        "anyOf": roots,
        "$defs": _reached_from(roots, definitions),
    }


def _reached_from(value: Any, definitions: dict[str, JsonObject]) -> dict[str, JsonObject]:
    reached: dict[str, JsonObject] = {}
    waiting = [value]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += cast("list[Any]", node)
        elif isinstance(node, dict):
            inner = cast("JsonObject", node)
            waiting += inner.values()
            name = str(inner.get("$ref", "")).removeprefix(_DEFS)
            if name in definitions and name not in reached:
                reached[name] = definitions[name]
                waiting.append(definitions[name])

    return {name: definitions[name] for name in definitions if name in reached}


def _of_other(tp: type) -> JsonObject:
    if tp is ConfigNode:
        return {}
    raise NotImplementedError(tp)


def _name_the_kind(definition: JsonObject, kind: str) -> None:
    names = [kind, f"google.adk.agents.{kind}"]
    if kind == "LlmAgent":
        names.append("Agent")
    else:
        definition["anyOf"] = [{"required": [key]} for key in _CLASS_KEYS]
    definition["properties"]["agent_class"] = {"enum": names, "description": "The kind of agent."}
    definition["additionalProperties"] = False


def _open_for_other_keys(definition: JsonObject) -> None:
    """Classes of one's own take keys of their own, and sub-agents in short."""
    definition["description"] = "An agent of a class of one's own; other keys go to the class."
    definition["properties"]["agent_class"] = {
        "type": "string",
        "description": "The dotted name of a class of agents, or a registered one.",
        "not": {"enum": [*_KINDS, *(f"google.adk.agents.{kind}" for kind in _KINDS), "Agent"]},
    }
    reference: JsonObject = {"anyOf": [{"$ref": _DEFS + "AgentReference"}, {"type": "string"}]}
    definition["properties"]["sub_agents"] = {"type": "array", "items": reference}
    definition["anyOf"] = [{"required": [key]} for key in _CLASS_KEYS]
    definition.pop("additionalProperties", None)


def _add_words(definitions: dict[str, JsonObject]) -> None:
    contents = definitions["LlmAgentConfig"]["properties"]["include_contents"]
    contents |= _in_any_case(contents.pop("enum"))
    settings = definitions["GenerationSettings"]["properties"]
    for key in OWNED:
        settings.pop(camel(key))

    for (record, name), kind in ENUMS.items():
        schema = msgspec.json.schema(kind)
        for option in schema["anyOf"]:
            listed: JsonObject = option.get("items", option)
            if words := listed.pop("enum", None):
                listed |= _in_any_case([*words, *([False] if "OFF" in words else [])])  # `OFF` is false in YAML
        definitions[record.__name__]["properties"][camel(name)] = schema

    for name in ("GenerationSettings", "SafetySetting", "ThinkingConfig", "ToolConfig", "FunctionCallingConfig"):
        definitions[name]["additionalProperties"] = False


def _in_any_case(words: list[str | bool]) -> JsonObject:
    """The words for an editor to complete, and a pattern that takes them in lower case, too."""
    pattern = "|".join(_any_case_pattern(str(word)) for word in words)
    return {"anyOf": [{"enum": words}, {"type": "string", "pattern": f"^({pattern})$"}]}


def _any_case_pattern(word: str) -> str:
    return "".join(f"[{char}{char.lower()}]" if char.isalpha() else char for char in word.upper())


def _in_both_spellings(properties: dict[str, Any]) -> dict[str, Any]:
    names = {snake(key): _described(schema) for key, schema in properties.items()}
    return {spelling: names[name] for spelling, name in by_either_spelling(names).items()}


def _described(schema: JsonObject) -> JsonObject:
    """Moves the description outside, where editors look for it."""
    descriptions = [option["description"] for option in schema.get("anyOf", []) if "description" in option]
    if descriptions:
        return {"description": descriptions[0], **schema}
    return schema
