"""Conversion between the items of the OpenAI Agents SDK and contents."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

import msgspec
from agents import FunctionTool, Handoff, ModelSettings, Tool
from agents.items import ModelResponse
from agents.tool import ToolOutputFileContent, ToolOutputImage, ToolOutputText
from agents.usage import Usage
from pydantic_core import to_jsonable_python

from greenroom.models.openai.items import items
from greenroom.models.openai.responses import ResponsesReply
from greenroom.models.reply import token_usage
from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import Blob, Content, FileData, FunctionCall, FunctionResponse, Part
from greenroom.records.generation import GenerateContentConfig
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.records.tool_declaration import FunctionDeclaration
from greenroom.records.tool_declaration import Tool as DeclaredTools

_STRUCTURED = (ToolOutputText, ToolOutputImage, ToolOutputFileContent)


def to_items(contents: Iterable[Content]) -> list[JsonObject]:
    """The user's contents as items."""
    converted: list[JsonObject] = []
    for content in contents:
        for item in items([content], model="") if content.parts else ():
            pieces = cast("list[JsonObject]", item["content"])
            text = pieces[0]["text"] if len(pieces) == 1 and pieces[0]["type"] == "input_text" else None
            converted.append({"role": "user", "content": pieces if text is None else text})
    return converted


def to_request(
    system: str | None,
    given: str | Sequence[JsonObject],
    *,
    model: str | None,
    settings: ModelSettings,
    tools: Sequence[Tool],
    handoffs: Sequence[Handoff[Any, Any]],
    schema: JsonObject | None,
) -> LlmRequest:
    """A request as plugins and the models of this package see it."""
    declared = [
        FunctionDeclaration(
            name=tool.name, description=tool.description, parameters_json_schema=tool.params_json_schema
        )
        for tool in tools
        if isinstance(tool, FunctionTool)
    ]
    declared += [
        FunctionDeclaration(
            name=handoff.tool_name,
            description=handoff.tool_description,
            parameters_json_schema=handoff.input_json_schema,
        )
        for handoff in handoffs
    ]
    config = GenerateContentConfig(
        system_instruction=system or None,
        temperature=settings.temperature,
        top_p=settings.top_p,
        max_output_tokens=settings.max_tokens,
        tools=[DeclaredTools(function_declarations=declared)] if declared else None,
    )
    if schema is not None:
        config.response_mime_type = "application/json"
        config.response_json_schema = schema
    return LlmRequest(model=model, contents=list(to_contents(given)), config=config)


def to_contents(given: str | Sequence[JsonObject]) -> Iterator[Content]:
    """A conversation. Successive items of one side are one content."""
    if isinstance(given, str):
        yield Content(role="user", parts=[Part(text=given)])
        return

    names: dict[str, str] = {}
    role = ""
    parts: list[Part] = []
    for item in given:
        is_users = item.get("role") in ("user", "system", "developer") or str(item.get("type")).endswith("_output")
        if parts and is_users != (role == "user"):
            yield Content(role=role, parts=parts)
            parts = []
        role = "user" if is_users else "model"
        parts += _parts(item, names)
    if parts:
        yield Content(role=role, parts=parts)


def _parts(item: JsonObject, names: dict[str, str]) -> Iterator[Part]:
    kind = item.get("type", "message")
    if kind == "message":
        yield from _contents(item.get("content"))
    elif kind == "reasoning":
        yield from (Part(text=one["text"], thought=True) for one in item.get("summary") or ())
    elif kind == "function_call":
        call = to_call(item)
        names[str(call.id)] = call.name or ""
        yield Part(function_call=call)
    elif kind == "function_call_output":
        call_id = str(item["call_id"])
        yield response_part(names.get(call_id, ""), call_id, item["output"])


def _contents(content: JsonValue) -> Iterator[Part]:
    """The contents of a message: texts, images and files, and of others their type."""
    if isinstance(content, str):
        yield Part(text=content)
    for piece in cast("list[JsonObject]", content) if isinstance(content, list) else ():
        text = piece.get("text") or piece.get("refusal")
        url = piece.get("image_url") or piece.get("file_url") or piece.get("file_data")
        if text is not None:
            yield Part(text=text)
        elif isinstance(url, str):
            yield _media(url)
        else:
            yield Part(text=f"[{piece['type']}]")


def _media(url: str) -> Part:
    """The media of a URL, which may have them in itself."""
    prefix, _, data = url.partition(";base64,")
    if not url.startswith("data:") or not data:
        return Part(file_data=FileData(file_uri=url))
    return Part(inline_data=Blob(data=base64.b64decode(data), mime_type=prefix.removeprefix("data:")))


def reply_of(response: ModelResponse) -> LlmResponse:
    """The reply in a response."""
    output: list[JsonObject] = [_plain(item) for item in response.output]
    reply = ResponsesReply(include_metadata=False)
    reply.add_whole({"output": [item for item in output if not _is_call(item)], "status": "completed"})
    whole = reply.whole()

    parts = [part for part in (whole.content.parts if whole.content else None) or () if _has_content(part)]
    for part in parts:
        part.part_metadata = None  # the item itself is in the agent's state
        part.thought_signature = None
    parts += [Part(function_call=to_call(item)) for item in output if _is_call(item)]
    whole.content = Content(role="model", parts=parts) if parts else None
    whole.usage_metadata = _usage(response.usage)
    return whole


def _plain(item: object) -> JsonObject:
    return to_jsonable_python(item)


def _is_call(item: JsonObject) -> bool:
    return item.get("type") in ("function_call", "mcp_approval_request")


def _has_content(part: Part) -> bool:
    return part.text is None or bool(part.text)


def _usage(usage: Usage) -> GenerateContentResponseUsageMetadata | None:
    if not usage.requests and not usage.total_tokens:
        return None
    return token_usage(
        usage.input_tokens,
        usage.output_tokens,
        usage.total_tokens,
        thoughts=usage.output_tokens_details.reasoning_tokens,
        cached=usage.input_tokens_details.cached_tokens,
    )


def to_call(item: JsonObject) -> FunctionCall:
    """The call of a function, or one on a hosted MCP server that must be approved."""
    return FunctionCall(id=item.get("call_id") or item.get("id"), name=item["name"], args=arguments_of(item))


def arguments_of(item: JsonObject) -> JsonObject:
    """The arguments of a call; none if they aren't an object in JSON."""
    try:
        arguments: Any = json.loads(item.get("arguments") or "{}")
    except ValueError:
        return {}
    return cast("JsonObject", arguments) if isinstance(arguments, dict) else {}


def response_part(name: str, call_id: str, value: object) -> Part:
    """The result of a tool. An object is the response itself, other values are its `result`."""
    plain: JsonValue = to_jsonable_python(value, fallback=str)
    response = cast("JsonObject", plain) if isinstance(plain, dict) else {"result": plain}
    return Part(function_response=FunctionResponse(id=call_id, name=name, response=response))


def output_value(item: JsonObject) -> JsonValue:
    """The value of an item that answers a call."""
    if item.get("type") == "mcp_approval_response":
        return {"approved": item.get("approve")}
    output = item.get("output")
    try:
        decoded: JsonValue = json.loads(output) if isinstance(output, str) and output[:1] == "{" else output
    except ValueError:
        return output
    return decoded


def dump_result(value: Any) -> JsonValue:
    """Converts the result of a tool for the log, so that the SDK makes the same text of it."""
    if isinstance(value, _STRUCTURED):
        return value.model_dump(mode="json", exclude_none=True)
    if type(value) in (list, tuple) and value and all(isinstance(one, _STRUCTURED) for one in value):
        return [dump_result(one) for one in value]
    return value if _is_json(value) else str(value)


def _is_json(value: Any) -> bool:
    """Whether it is read from JSON as it was written."""
    if type(value) is list:
        return all(map(_is_json, cast("Any", value)))
    if type(value) is dict:
        return all(type(key) is str and _is_json(one) for key, one in cast("Any", value).items())
    return value is None or type(value) in (str, int, float, bool)


def output_text(output: object) -> str:
    """The text of an output that the model hasn't written."""
    return output if isinstance(output, str) else msgspec.json.encode(to_jsonable_python(output, fallback=str)).decode()
