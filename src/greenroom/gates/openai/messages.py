"""Messages and items of OpenAI's interfaces as contents.

Source: OpenAI's reference of Chat Completions and Responses.
"""

from __future__ import annotations

import re
from typing import Any, cast

from greenroom.errors import InvalidRequest
from greenroom.gates.chat_messages import ToolCallMessage, blob_part, call_part, no_such_call, response_object
from greenroom.gates.run_start import response_part
from greenroom.records.base import JsonObject, JsonValue, Record, as_object
from greenroom.records.content import Content, FileData, FunctionResponse, Part
from greenroom.records.run import Run
from greenroom.records.session import Session
from greenroom.records.tool_declaration import FunctionDeclaration

_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)?(?:;[\w=.+-]+)*;base64,(.*)", re.DOTALL)

INSTRUCTION_ROLES = frozenset({"system", "developer"})


class ChatMessage(Record, kw_only=True, rename=None):
    """A message of a chat."""

    role: str
    """`system`, `developer`, `user`, `assistant` or `tool`."""
    content: str | list[JsonObject] | None = None
    """Text, or parts of the types `text`, `image_url`, `input_audio`, `file` and `refusal`."""
    tool_calls: list[ToolCallMessage] | None = None
    """Calls in an assistant's message."""
    tool_call_id: str | None = None
    """The call that a tool's message answers."""
    name: str | None = None
    """Not used."""


def parts_of(content: JsonValue) -> list[Part]:
    """Parts of a message in either interface. Raises InvalidRequest for types that have no equivalent."""
    if content is None:
        return []
    if isinstance(content, str):
        return [Part(text=content)] if content else []
    if not isinstance(content, list):
        raise InvalidRequest("The content of a message must be a text or a list of parts", location=("body",))
    return [_part(as_object(part)) for part in cast("list[JsonValue]", content)]


def _part(part: JsonObject) -> Part:
    kind = part.get("type")
    match kind:
        case "text" | "input_text" | "output_text":
            return Part(text=_text(part, "text"))
        case "refusal":
            return Part(text=_text(part, "refusal"))
        case "image_url":
            image: Any = part.get("image_url")
            return _file(_text(image, "url") if as_object(image) else image, "image/*")
        case "input_image" if part.get("image_url"):
            return _file(part["image_url"], "image/*")
        case "input_audio":
            audio: Any = part.get("input_audio")
            return blob_part(_text(audio, "data"), f"audio/{_text(audio, 'format')}")
        case "file" | "input_file":
            inner = as_object(part.get("file", part))
            url = inner.get("file_data") or inner.get("file_url")
            if url:
                file_part = _file(url, "application/octet-stream")
                if file_part.inline_data is not None:
                    file_part.inline_data.display_name = inner.get("filename")
                return file_part
        case _:
            pass

    raise InvalidRequest(f"A message can't have a part of type {kind!r} with these fields", location=("body",))


def _text(holder: Any, name: str) -> str:
    value = as_object(holder).get(name)
    if not isinstance(value, str):
        raise InvalidRequest(f"A part of a message lacks the text {name!r}", location=("body",))
    return value


def _file(url: Any, default_type: str) -> Part:
    if not isinstance(url, str):
        raise InvalidRequest("The file or image of a part must be a URL", location=("body",))
    match = _DATA_URL.fullmatch(url)
    if match is None:
        return Part(file_data=FileData(file_uri=url, mime_type=default_type))
    return blob_part(match[2], match[1] or "text/plain")


def is_from_agent(item: JsonObject) -> bool:
    """True for an item of a response that the agent wrote."""
    return item.get("type") in ("function_call", "reasoning", "item_reference") or item.get("role") == "assistant"


def contents_of(items: str | list[JsonObject], session: Session | None) -> list[Content]:
    """Items of `/v1/responses` as contents. session None: the items are the whole conversation, and
    outputs answer calls among them."""
    if isinstance(items, str):
        return [Content(role="user", parts=[Part(text=items)])]

    contents: list[Content] = []
    names: dict[str, str] = {}
    for item in items:
        match item.get("type", "message"):
            case "message":
                role = "model" if item.get("role") == "assistant" else "user"
                parts = parts_of(item.get("content"))
                if str(item.get("role")) in INSTRUCTION_ROLES and session is not None:
                    continue
            case "function_call":
                call_id = _text(item, "call_id")
                name = _text(item, "name")
                names[call_id] = name
                role = "model"
                parts = [call_part(name, _text(item, "arguments"), call_id)]
                if contents and contents[-1].role == "model":  # the items of one message, such as parallel calls
                    contents[-1].parts = [*(contents[-1].parts or ()), *parts]
                    continue
            case "function_call_output":
                role = "user"
                call_id = _text(item, "call_id")
                if session is not None:
                    parts = [response_part(session, call_id, item.get("output"))]
                elif call_id not in names:
                    raise no_such_call(call_id)
                else:
                    response = response_object(item.get("output"))
                    answer = FunctionResponse(id=call_id, name=names[call_id], response=response)
                    parts = [Part(function_response=answer)]
            case "reasoning" | "item_reference":
                continue
            case other:
                raise InvalidRequest(f"The input can't have an item of type {other!r}", location=("body", "input"))

        contents.append(Content(role=role, parts=parts))

    return contents


def declarations_of(tools: list[JsonObject] | None) -> list[FunctionDeclaration] | None:
    """Function tools, in the form of either interface. Raises InvalidRequest for others: agents bring their own."""
    declarations: list[FunctionDeclaration] = []
    for tool in tools or ():
        function = as_object(tool.get("function", tool))
        if tool.get("type") != "function" or not isinstance(function.get("name"), str):
            raise InvalidRequest("Tools of a client must be functions with a name", location=("body", "tools"))
        schema: JsonValue = function.get("parameters")
        declarations.append(
            FunctionDeclaration(
                name=function["name"], description=function.get("description"), parameters_json_schema=schema
            )
        )

    return declarations or None


def usage_of(run: Run, names: tuple[str, str] = ("prompt", "completion")) -> JsonObject | None:
    """Returns the run's token counts.

    names: prefixes of the fields for input and output tokens.
    """
    usage = run.usage
    if usage is None:
        return None
    return {
        f"{names[0]}_tokens": usage.input_tokens,
        f"{names[0]}_tokens_details": {"cached_tokens": usage.cached_content_token_count or 0},
        f"{names[1]}_tokens": usage.output_tokens,
        f"{names[1]}_tokens_details": {"reasoning_tokens": usage.thoughts_token_count or 0},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }
