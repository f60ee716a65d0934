"""The `generate_content_config` of an agent: what may be set there, and the words that it knows."""

from __future__ import annotations

from greenroom.apps.yaml_config.document import Node
from greenroom.apps.yaml_config.errors import did_you_mean
from greenroom.apps.yaml_config.keys import known_entries
from greenroom.apps.yaml_config.records import GenerationSettings
from greenroom.records.generation import GenerateContentConfig

OWNED = {
    "tools": "tools",
    "system_instruction": "instruction",
    "response_schema": "output_schema",
}
"""Keys that belong to another key of the agent."""

WORDS: dict[tuple[str, ...], tuple[str, ...]] = {
    ("safety_settings", "category"): tuple(
        f"HARM_CATEGORY_{name}"
        for name in (
            "HARASSMENT", "HATE_SPEECH", "SEXUALLY_EXPLICIT", "DANGEROUS_CONTENT", "CIVIC_INTEGRITY", "JAILBREAK",
            "IMAGE_HATE", "IMAGE_DANGEROUS_CONTENT", "IMAGE_HARASSMENT", "IMAGE_SEXUALLY_EXPLICIT", "UNSPECIFIED",
        )
    ),
    ("safety_settings", "threshold"): (
        "BLOCK_LOW_AND_ABOVE", "BLOCK_MEDIUM_AND_ABOVE", "BLOCK_ONLY_HIGH", "BLOCK_NONE", "OFF",
        "HARM_BLOCK_THRESHOLD_UNSPECIFIED",
    ),
    ("response_modalities",): ("TEXT", "IMAGE", "AUDIO", "VIDEO", "MODALITY_UNSPECIFIED"),
    ("thinking_config", "thinking_level"): ("MINIMAL", "LOW", "MEDIUM", "HIGH", "THINKING_LEVEL_UNSPECIFIED"),
    ("tool_config", "function_calling_config", "mode"): ("AUTO", "ANY", "NONE", "VALIDATED", "MODE_UNSPECIFIED"),
}  # fmt: skip
"""Upper case on the wire; files may have them in any case."""


def with_right_words(node: Node) -> Node:
    """The same settings, words in upper case. Raises ConfigFileError for keys and words that can't be here."""
    for path, words in WORDS.items():
        node = _with_words(node, path, words)
    return _checked(node)


def settings(read: GenerationSettings) -> GenerateContentConfig:
    """Without what ADK's files may have and no request takes."""
    return GenerateContentConfig(**{name: getattr(read, name) for name in GenerateContentConfig.__struct_fields__})


def _checked(node: Node) -> Node:
    known, unknown = known_entries(node, [*OWNED, "http_options", "model_armor_config"], what="")
    for name, entry in known.items():
        if name in OWNED:
            raise entry.error(f"is set by the agent's {OWNED[name]}")
        if name == "model_armor_config":
            raise entry.error("is not supported: no model would be told of it")
    options = known.get("http_options")
    if options is not None and isinstance(options.value, dict):
        inside, _ = known_entries(options, ["base_url"], what="")
        if "base_url" in inside:
            raise inside["base_url"].error("may not be set here; give the address to a model, with model_code")
    return node.with_entries({**unknown, **known}) if len(known) else node


def _with_words(node: Node, path: tuple[str, ...], words: tuple[str, ...]) -> Node:
    if isinstance(node.value, list):
        items = [_with_words(item, path, words) for item in node.value]
        return Node(items, node.line, node.key, node.file)
    if not path:
        return _in_upper_case(node, words)
    if not isinstance(node.value, dict):
        return node  # the reader says what is wrong with it
    found, others = known_entries(node, [path[0]], what="")
    return node.with_entries({**others, **{name: _with_words(entry, path[1:], words) for name, entry in found.items()}})


def _in_upper_case(node: Node, words: tuple[str, ...]) -> Node:
    if node.value is False and "OFF" in words:
        word = "OFF"  # what YAML makes of it
    elif isinstance(node.value, str):
        word = node.value.upper()
    else:
        return node
    if word not in words:
        raise node.error(f"{node.value!r} is not allowed{did_you_mean(word, words)}")
    return Node(word, node.line, node.key, node.file)
