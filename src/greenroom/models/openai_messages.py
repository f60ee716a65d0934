"""Converts requests to the arguments of OpenAI's chat completions; no SDK, no network.

Source: https://platform.openai.com/docs/api-reference/chat
"""

from __future__ import annotations

import base64
import re
from collections import defaultdict, deque
from collections.abc import Iterable
from typing import cast

import msgspec

from greenroom.models.model import output_schema
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import Blob, Content, FileData, FunctionCall, FunctionResponse, Part
from greenroom.records.generation import GenerateContentConfig
from greenroom.records.model_exchange import LlmRequest

_REASONING = re.compile(r"(o\d|gpt-[56])(?!.*chat)")
_AUDIO_FORMATS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
_TOOL_CHOICES = {"ANY": "required", "NONE": "none", "AUTO": "auto", "VALIDATED": "auto"}


def is_reasoning_model(name: str) -> bool:
    """Whether OpenAI's own service refuses sampling settings and `max_tokens` for this model."""
    return _REASONING.match(name) is not None


def completion_arguments(request: LlmRequest, *, model: str) -> JsonObject:
    """The keyword arguments of `chat.completions.create`. model: the service's own name."""
    config = request.config
    is_reasoning = is_reasoning_model(model)
    arguments: JsonObject = {
        "model": model,
        "messages": messages(request, system_role="developer" if is_reasoning else "system"),
        "max_completion_tokens" if is_reasoning else "max_tokens": config.max_output_tokens,
        "stop": config.stop_sequences or None,
        "seed": config.seed,
        "presence_penalty": config.presence_penalty,
        "frequency_penalty": config.frequency_penalty,
        "logprobs": config.response_logprobs,
        "top_logprobs": config.logprobs,
        "service_tier": config.service_tier,
        "response_format": _response_format(config),
        **_tools(request),
    }
    for name, value in (("temperature", config.temperature), ("top_p", config.top_p)):
        if not is_reasoning or value == 1:
            arguments[name] = value
    if is_reasoning and config.thinking_config is not None and config.thinking_config.thinking_level:
        arguments["reasoning_effort"] = config.thinking_config.thinking_level.lower()
    options = config.http_options or {}
    arguments["extra_headers"] = options.get("headers")
    if options.get("timeout") is not None:
        arguments["timeout"] = options["timeout"] / 1000  # the Gemini SDK's unit is the millisecond
    return {name: value for name, value in arguments.items() if value is not None}


def messages(request: LlmRequest, *, system_role: str = "system") -> list[JsonObject]:
    out: list[JsonObject] = []
    system = request.config.system_text()
    if system:
        out.append({"role": system_role, "content": system})
    ids = _CallIds()
    for content in request.contents:
        if content.role in ("model", "assistant"):
            out.extend(_assistant(content, ids))
        else:
            out.extend(_user(content, ids))
    return out


def strict_schema(schema: JsonObject) -> JsonObject:
    """The schema as `strict` wants it: closed objects whose properties are all required, nothing beside a `$ref`."""
    return cast("JsonObject", _strict(schema))


class _CallIds:
    """Ids for calls that have none, and for each response the id of the call it answers."""

    def __init__(self) -> None:
        self._made = 0
        self._unanswered: defaultdict[str, deque[str]] = defaultdict(deque)

    def of_call(self, call: FunctionCall) -> str:
        if not call.id:
            self._made += 1
        call_id = call.id or f"call_{self._made}"
        self._unanswered[call.name or ""].append(call_id)
        return call_id

    def of_response(self, response: FunctionResponse) -> str:
        waiting = self._unanswered[response.name or ""]
        if response.id:
            if response.id in waiting:
                waiting.remove(response.id)
            return response.id
        return waiting.popleft() if waiting else f"call_{response.name}"


def _assistant(content: Content, ids: _CallIds) -> Iterable[JsonObject]:
    texts: list[str] = []
    calls: list[JsonObject] = []
    for part in content.parts or ():
        if part.function_call is not None:
            call = part.function_call
            arguments = msgspec.json.encode(call.args or {}).decode()
            function = {"name": call.name or "", "arguments": arguments}
            calls.append({"id": ids.of_call(call), "type": "function", "function": function})
        elif part.text and part.thought:
            texts.append(f"[thought] {part.text}\n")
        else:
            texts.append(_as_text(part))
    text = "".join(texts)
    if calls:
        yield {"role": "assistant", "content": text or None, "tool_calls": calls}
    elif text:
        yield {"role": "assistant", "content": text}


def _user(content: Content, ids: _CallIds) -> Iterable[JsonObject]:
    """Tool messages come first: they must follow the assistant's calls at once."""
    pieces: list[JsonObject] = []
    for part in content.parts or ():
        if part.function_response is not None:
            response = part.function_response
            answer = msgspec.json.encode(response.response or {}).decode()
            yield {"role": "tool", "tool_call_id": ids.of_response(response), "content": answer}
            for item in response.parts or ():  # a tool message holds text only
                pieces.append(_media(item.inline_data, item.file_data))
        elif part.inline_data is not None or part.file_data is not None:
            pieces.append(_media(part.inline_data, part.file_data))
        elif text := _as_text(part):
            pieces.append({"type": "text", "text": text})
    if pieces and all(piece["type"] == "text" for piece in pieces):
        yield {"role": "user", "content": "\n".join(piece["text"] for piece in pieces)}
    elif pieces:
        yield {"role": "user", "content": pieces}


def _as_text(part: Part) -> str:
    if part.text:
        return part.text
    if part.executable_code is not None:
        language = (part.executable_code.language or "").lower()
        return f"```{language}\n{part.executable_code.code or ''}\n```\n"
    if part.code_execution_result is not None:
        return f"```output\n{part.code_execution_result.output or ''}\n```\n"
    if part.file_data is not None:
        return f"[file {part.file_data.file_uri}]"
    return f"[{part.inline_data.mime_type}]" if part.inline_data is not None else ""


def _media(blob: Blob | None, file: FileData | None) -> JsonObject:
    if blob is None:
        uri = (file.file_uri if file else None) or ""
        if uri.startswith(("http://", "https://", "data:image/")):
            return {"type": "image_url", "image_url": {"url": uri}}
        if uri.startswith("file-"):
            return {"type": "file", "file": {"file_id": uri}}
        return {"type": "text", "text": f"[file {uri}]"}
    data, mime_type = blob.data or b"", blob.mime_type or "application/octet-stream"
    encoded = base64.b64encode(data).decode()
    if mime_type.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": f"data:{mime_type};base64,{encoded}"}}
    if mime_type in _AUDIO_FORMATS:
        return {"type": "input_audio", "input_audio": {"data": encoded, "format": _AUDIO_FORMATS[mime_type]}}
    if mime_type.startswith("text/"):
        return {"type": "text", "text": data.decode(errors="replace")}
    name = blob.display_name or f"file.{mime_type.rpartition('/')[2]}"
    return {"type": "file", "file": {"filename": name, "file_data": f"data:{mime_type};base64,{encoded}"}}


def _tools(request: LlmRequest) -> JsonObject:
    tool_config = request.config.tool_config
    calling = tool_config.function_calling_config if tool_config else None
    allowed = calling.allowed_function_names if calling else None
    declarations = [d for d in request.function_declarations() if not allowed or d.name in allowed]
    if not declarations:
        return {}
    functions = [
        {"name": d.name, "description": d.description or "", "parameters": d.json_schema()} for d in declarations
    ]
    mode = (calling.mode if calling else None) or "AUTO"
    return {
        "tools": [{"type": "function", "function": function} for function in functions],
        "tool_choice": _TOOL_CHOICES.get(mode.upper(), "auto"),
    }


def _response_format(config: GenerateContentConfig) -> JsonObject | None:
    schema = output_schema(config)
    if schema is not None:
        name = re.sub(r"[^A-Za-z0-9_-]", "_", str(schema.get("title") or "response"))[:64]
        return {
            "type": "json_schema",
            "json_schema": {"name": name, "strict": True, "schema": strict_schema(schema)},
        }
    return {"type": "json_object"} if config.response_mime_type == "application/json" else None


def _strict(node: JsonValue) -> JsonValue:
    if isinstance(node, list):
        return [_strict(item) for item in cast("list[JsonValue]", node)]
    if not isinstance(node, dict):
        return node
    schema = cast("JsonObject", node)
    if "$ref" in schema:
        return {"$ref": schema["$ref"]}
    out: JsonObject = {}
    for key, value in schema.items():
        if key in ("properties", "$defs", "definitions"):  # maps of names, which may be those of keywords
            out[key] = {name: _strict(item) for name, item in cast("JsonObject", value).items()}
        elif key in ("enum", "const", "required"):
            out[key] = value
        elif key != "default":
            out[key] = _strict(value)
    if out.get("type") == "object" or "properties" in out:
        out["properties"] = out.get("properties", {})
        out["additionalProperties"] = False
        out["required"] = sorted(out["properties"])
    return out
