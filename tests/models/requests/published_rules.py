"""The rules by which vendors refuse requests, as their references and the errors of their services say; knows nothing of our conversion.

Each function returns what is wrong with the body of a request, in the words that a service might use; nothing if it
would be taken.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

Json = dict[str, Any]

_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_GEMINI_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.-]{0,63}")
_CLAUDE_ID = re.compile(r"[a-zA-Z0-9_-]+")
_CLAUDE_PROPERTY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_MISTRAL_ID = re.compile(r"[a-zA-Z0-9]{9}")
_NOT_AT_ROOT = ("anyOf", "oneOf", "allOf", "enum", "not")
_GEMINI_KEYWORDS = {
    "type", "format", "title", "description", "default", "example", "enum", "properties", "required", "minimum",
    "additionalProperties", "propertyOrdering", "minProperties", "maxProperties", "items", "minItems", "maxItems",
    "maximum", "minLength", "maxLength", "pattern", "anyOf", "$ref", "$defs",
}  # fmt: skip


def schemas_in(schema: Any, path: str = "parameters") -> Iterator[tuple[str, Any]]:
    """A schema and all below it, by path."""
    yield path, schema
    if not isinstance(schema, dict):
        return
    for keyword, value in schema.items():
        below = f"{path}.{keyword}"
        if keyword in ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas"):
            for name, one in value.items():
                yield from schemas_in(one, f"{below}.{name}")
        elif keyword in ("anyOf", "oneOf", "allOf", "prefixItems"):
            for at, one in enumerate(value):
                yield from schemas_in(one, f"{below}[{at}]")
        elif keyword in ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"):
            yield from schemas_in(value, below)


def of_any_schema(schema: Json) -> Iterator[str]:
    if schema.get("type") != "object":
        yield f"schema must be a JSON Schema of 'type: \"object\"', got {schema.get('type')!r}"
    for keyword in _NOT_AT_ROOT:
        if keyword in schema:
            yield f"schema must not have {keyword!r} at the top level"
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        yield f"JSON schema is invalid: {error.message[:200]}"
        return
    for path, one in schemas_in(schema):
        if not isinstance(one, dict):
            continue
        reference = one.get("$ref")
        if reference is not None and not (
            reference.startswith("#/$defs/") and reference.removeprefix("#/$defs/") in schema.get("$defs", {})
        ):
            yield f"{path}: reference to undefined schema {reference!r}"


def _of_arrays(schema: Json) -> Iterator[str]:
    for path, one in schemas_in(schema):
        if isinstance(one, dict) and "array" in _types(one) and not isinstance(one.get("items"), dict):
            yield f"{path}: array schema missing items"
        if isinstance(one, bool) and not path.endswith("additionalProperties"):
            yield f"{path}: {one} is not of type 'object'"


def of_openai_function(function: Json) -> Iterator[str]:
    if not _TOOL_NAME.fullmatch(function["name"]):
        yield f"invalid name {function['name']!r}"
    if len(function.get("description") or "") > 1024:
        yield "description: string too long. Expected a string with maximum length 1024"
    yield from of_any_schema(function["parameters"])
    yield from _of_arrays(function["parameters"])


def of_claude_tool(tool: Json) -> Iterator[str]:
    if not _TOOL_NAME.fullmatch(tool["name"]):
        yield f"tools.name: String should match pattern, got {tool['name']!r}"
    yield from of_any_schema(tool["input_schema"])
    for path, one in schemas_in(tool["input_schema"]):
        for name in one.get("properties", {}) if isinstance(one, dict) else ():
            if not _CLAUDE_PROPERTY.fullmatch(name):
                yield f"{path}: property keys should match pattern, got {name!r}"


def of_gemini_function(function: Json) -> Iterator[str]:
    if not _GEMINI_NAME.fullmatch(function["name"]):
        yield f"invalid function name {function['name']!r}"
    schema = function.get("parametersJsonSchema") or function.get("parameters_json_schema")
    if schema is not None:
        yield from of_any_schema(schema)
        yield from _of_arrays(schema)
        yield from of_gemini_schema(schema)


def of_gemini_schema(schema: Json) -> Iterator[str]:
    for path, one in schemas_in(schema):
        if not isinstance(one, dict):
            continue
        for keyword in one.keys() - _GEMINI_KEYWORDS:
            yield f"{path}: unknown name {keyword!r}"
        if "$ref" in one and len(one) > 1:
            yield f"{path}: nothing may stand beside $ref"
        if len([name for name in _types(one) if name != "null"]) > 1:
            yield f"{path}: more than one type"
        if "enum" in one and len({type(value) for value in one["enum"]} - {int, float}) > 1:
            yield f"{path}: enum of several types"
        if any(value is None or isinstance(value, bool | list | dict) for value in one.get("enum", ())):
            yield f"{path}: enum of other than texts and numbers"
        for name in one.get("required", ()):
            if name not in one.get("properties", {}):
                yield f"{path}: required: property {name!r} is not defined"
    yield from _of_required_cycles(schema)


def _of_required_cycles(schema: Json) -> Iterator[str]:
    """By required properties alone, no definition leads back to itself."""
    definitions: Json = schema.get("$defs", {})

    def leads_to(node: Any) -> set[str]:
        found: set[str] = set()
        if isinstance(node, dict):
            if isinstance(node.get("$ref"), str):
                found.add(node["$ref"].removeprefix("#/$defs/"))
            for one in node.get("anyOf", []):
                found |= leads_to(one)
            for keyword in ("items", "additionalProperties"):
                found |= leads_to(node.get(keyword))
            for name in node.get("required", ()):
                found |= leads_to(node.get("properties", {}).get(name))
        return found

    for name in definitions:
        reached, waiting = set[str](), [name]
        while waiting:
            for further in leads_to(definitions.get(waiting.pop())) - reached:
                reached.add(further)
                waiting.append(further)
        through = any(path.endswith(".properties") for path, _ in schemas_in(definitions[name]))
        if name in reached and through:
            yield f"$defs.{name}: cyclic references may only be used within non-required properties"


def _types(schema: Json) -> list[str]:
    given = schema.get("type", [])
    return [given] if isinstance(given, str) else given


# Bodies of requests


def of_messages(body: Json, *, is_paused: bool = False) -> Iterator[str]:
    """Anthropic's Messages API. is_paused: the request continues a message that the service paused amid its tools."""
    yield from _of_tools([tool for tool in body.get("tools", ()) if "input_schema" in tool], of_claude_tool)
    messages: list[Json] = body["messages"]
    if not messages:
        yield "messages: at least one message is required"
        return
    if messages[0]["role"] != "user":
        yield 'messages: first message must use the "user" role'
    if messages[-1]["role"] != "user" and not is_paused:
        yield "This model does not support assistant message prefill. The conversation must end with a user message."
    if body.get("system") is not None and isinstance(body["system"], str) and not body["system"].strip():
        yield "system: text content blocks must be non-empty"
    seen: set[str] = set()
    for at, message in enumerate(messages):
        if at and messages[at - 1]["role"] == message["role"]:
            yield f"messages.{at}: roles must alternate"
        content = message["content"]
        blocks: list[Json] = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if not blocks:
            yield f"messages.{at}: content must not be empty"
        uses = [block["id"] for block in blocks if block["type"] == "tool_use"]
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        before = messages[at - 1]["content"] if at else []
        asked = [b["id"] for b in before if b["type"] == "tool_use"] if isinstance(before, list) else []
        if sorted(results) != sorted(asked):
            yield f"messages.{at}: `tool_use` ids {asked} were found without `tool_result` blocks: {results}"
        for block in blocks:
            yield from _of_block(block, message["role"], at)
        if message["role"] == "user" and any(
            block["type"] == "tool_result" and blocks[index - 1]["type"] != "tool_result"
            for index, block in enumerate(blocks)
            if index
        ):
            yield f"messages.{at}: tool_result blocks must come first"
        if message["role"] == "assistant" and blocks and blocks[-1]["type"] in ("thinking", "redacted_thinking"):
            yield f"messages.{at}: The final block in an assistant message cannot be `thinking`"
        for one in uses:
            if not _CLAUDE_ID.fullmatch(one):
                yield f"messages.{at}.tool_use.id: String should match pattern, got {one!r}"
            if one in seen:
                yield "`tool_use` ids must be unique"
            seen.add(one)
    blocks_of_all = [
        block for message in messages if isinstance(message["content"], list) for block in message["content"]
    ]
    begun = {block["id"] for block in blocks_of_all if block["type"].endswith("_tool_use")}
    ended = {block["tool_use_id"] for block in blocks_of_all if block["type"].endswith("_tool_result")}
    waiting = {(block.get("caller") or {}).get("tool_id") for block in blocks_of_all if block["type"] == "tool_use"}
    if ended - begun or (begun - ended - waiting and not is_paused):
        yield f"server_tool_use {begun} without its result {ended}"
    if seen and not body.get("tools"):
        yield "Requests which include `tool_use` or `tool_result` blocks must define tools"


def _of_block(block: Json, role: str, at: int) -> Iterator[str]:
    kind = block["type"]
    if kind == "text" and not block["text"].strip():
        yield f"messages.{at}: text content blocks must contain non-whitespace text"
    if kind == "tool_use":
        if role != "assistant":
            yield f"messages.{at}: `tool_use` blocks can only be in `assistant` messages"
        if not _TOOL_NAME.fullmatch(block["name"]):
            yield f"messages.{at}.tool_use.name: String should match pattern, got {block['name']!r}"
    if kind in ("tool_result", "image", "document") and role != "user":
        yield f"messages.{at}: `{kind}` blocks can only be in `user` messages"
    if kind == "thinking" and not block.get("signature"):
        yield f"messages.{at}.thinking.signature: Field required"
    if kind == "tool_result" and isinstance(block["content"], list):
        for inner in block["content"]:
            yield from _of_block(inner, role, at)


def of_completions(body: Json, *, is_mistral: bool = False) -> Iterator[str]:
    """OpenAI's chat completions; with Mistral's own rules."""
    yield from _of_tools([tool["function"] for tool in body.get("tools", ())], of_openai_function)
    messages: list[Json] = [one for one in body["messages"] if one["role"] not in ("system", "developer")]
    if not messages:
        yield "messages: at least one message is required"
        return
    if messages[0]["role"] != "user":
        yield "Conversation roles must begin with user"
    if messages[-1]["role"] == "assistant":
        yield "Expected last role User or Tool for serving but got assistant"
    open_ids: list[str] = []
    seen: set[str] = set()
    previous = ""
    for at, message in enumerate(messages):
        role = message["role"]
        if role == "tool":
            if message["tool_call_id"] not in open_ids:
                yield f"messages.{at}: 'tool' must be a response to a preceding message with 'tool_calls'"
            else:
                open_ids.remove(message["tool_call_id"])
        elif open_ids:
            yield f"messages.{at}: tool_call_ids did not have response messages: {open_ids}"
            open_ids = []
        if role != "tool" and role == previous:
            yield f"messages.{at}: conversation roles must alternate"
        if is_mistral and role == "user" and previous == "tool":
            yield f"messages.{at}: Unexpected role 'user' after role 'tool'"
        if role == "assistant" and not message.get("content") and not message.get("tool_calls"):
            yield f"messages.{at}: Assistant message must have either content or tool_calls"
        for call in message.get("tool_calls") or ():
            valid = _MISTRAL_ID.fullmatch(call["id"]) if is_mistral else len(call["id"]) <= 40
            if not valid or not call["id"]:
                yield f"messages.{at}.tool_calls.id: {call['id']!r} is too long, or has other characters"
            if call["id"] in seen:
                yield f"messages.{at}: duplicate call id {call['id']!r}"
            if not _TOOL_NAME.fullmatch(call["function"]["name"]):
                yield f"messages.{at}.tool_calls.function.name: {call['function']['name']!r}"
            seen.add(call["id"])
            open_ids.append(call["id"])
        previous = role
    if open_ids:
        yield f"tool_call_ids did not have response messages: {open_ids}"


def of_responses(body: Json) -> Iterator[str]:
    """OpenAI's Responses API."""
    yield from _of_tools([tool for tool in body.get("tools", ()) if tool["type"] == "function"], of_openai_function)
    items: list[Json] = body["input"]
    if not items:
        yield "input: at least one item is required"
        return
    calls: set[str] = set()
    answered: set[str] = set()
    for at, item in enumerate(items):
        kind = item["type"]
        if kind == "function_call":
            if not 1 <= len(item["call_id"]) <= 64 or not _TOOL_NAME.fullmatch(item["name"]):
                yield f"input.{at}: invalid call_id or name: {item['call_id']!r}, {item['name']!r}"
            if item["call_id"] in calls:
                yield f"input.{at}: duplicate call_id"
            calls.add(item["call_id"])
        elif kind == "function_call_output":
            if item["call_id"] not in calls or item["call_id"] in answered:
                yield f"No tool call found for function call output with call_id {item['call_id']}"
            answered.add(item["call_id"])
        elif kind == "reasoning":
            following = items[at + 1] if at + 1 < len(items) else {"type": "message", "role": "user"}
            if following.get("role") == "user" or following["type"] == "function_call_output":
                yield f"Item {at} of type 'reasoning' was provided without its required following item."
    if calls - answered:
        yield f"No tool output found for function call {calls - answered}"
    if items[-1]["type"] != "function_call_output" and items[-1].get("role") != "user":
        yield "the model has nothing to answer"


def of_generate_content(body: Json) -> Iterator[str]:
    """Gemini's generateContent, of the wire or of the SDK's arguments."""
    config = body.get("config") or body
    tools = config.get("tools") or ()
    functions = [f for tool in tools for f in tool.get("functionDeclarations", tool.get("function_declarations", ()))]
    yield from _of_tools(functions, of_gemini_function)
    contents: list[Json] = body["contents"]
    if not contents:
        yield "contents is not specified"
        return
    if contents[0]["role"] != "user":
        yield "Please ensure that multiturn requests begin with a user turn"
    if contents[-1]["role"] != "user":
        yield "Please ensure that multiturn requests end with a user turn or a function response."
    for at, content in enumerate(contents):
        parts: list[Json] = content["parts"]
        if not parts:
            yield f"contents.{at}.parts must not be empty"
        calls = _of_kind(parts, "functionCall", "function_call")
        responses = _of_kind(parts, "functionResponse", "function_response")
        before = contents[at - 1]["parts"] if at else []
        asked = _of_kind(before, "functionCall", "function_call")
        if sorted(one["name"] for one in responses) != sorted(one["name"] for one in asked):
            yield "Please ensure that the number of function response parts is equal to that of the function call parts"
        if calls and (content["role"] != "model" or not at or contents[at - 1]["role"] != "user"):
            yield "Please ensure that function call turn comes immediately after a user turn or a function response turn."
        for one in (*calls, *responses):
            if not _GEMINI_NAME.fullmatch(one["name"]):
                yield f"invalid function name {one['name']!r}"
    if contents and _of_kind(contents[-1]["parts"], "functionCall", "function_call"):
        yield "function calls without responses"


def _of_kind(parts: list[Json], *names: str) -> list[Json]:
    return [part[name] for part in parts for name in names if name in part]


def _of_tools(tools: list[Json], check: Callable[[Json], Iterator[str]]) -> Iterator[str]:
    names = [tool["name"] for tool in tools]
    if len(set(names)) < len(names):
        yield f"Tool names must be unique: {names}"
    for tool in tools:
        for problem in check(tool):
            yield f"tool {tool['name']!r}: {problem}"
