"""Converts requests to the arguments of OpenAI's chat completions; no SDK, no network.

Source: https://platform.openai.com/docs/api-reference/chat
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import cast

from greenroom.models.conversion import (
    base64_of,
    built_in_tools,
    check_settings,
    code_as_text,
    data_uri,
    functions,
    is_model,
    json_text,
    own,
    refused,
    request_options,
    response_format,
    tool_choice,
    unsupported_media,
    warn_once,
    with_newness,
)
from greenroom.models.model import ServiceTier, effort_of
from greenroom.models.openai.rules import is_mistral
from greenroom.models.requests.turns import BEGINNING, CONTINUE, NO_CONTENTS
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import Blob, Content, FileData, Part
from greenroom.records.generation import GenerateContentConfig
from greenroom.records.model_exchange import LlmRequest

PROVIDER = "openai_chat"
ACKNOWLEDGED = "OK"

_REASONING = re.compile(r"(o\d|gpt-[56])(?!.*chat)")
AUDIO_FORMATS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
TOOL_CHOICES = {"ANY": "required", "NONE": "none", "AUTO": "auto"}
TAKEN = frozenset({
    "system_instruction", "temperature", "top_p", "max_output_tokens", "stop_sequences", "response_logprobs",
    "logprobs", "presence_penalty", "frequency_penalty", "seed", "response_mime_type", "response_schema",
    "response_json_schema", "tools", "tool_config", "thinking_config", "http_options", "service_tier", "effort",
})  # fmt: skip


def is_reasoning_model(name: str) -> bool:
    """Whether OpenAI's own service refuses sampling settings and `max_tokens` for this model."""
    return _REASONING.match(name) is not None


def reasoning_effort(config: GenerateContentConfig) -> str | None:
    """The thinking level, or the level that a budget of tokens comes to."""
    thinking = config.thinking_config
    effort = effort_of(config)
    if effort is not None or thinking is None:
        return effort
    if thinking.thinking_level:
        return thinking.thinking_level.lower()

    budget = thinking.thinking_budget
    if budget is None or budget < 0:
        return None
    if budget == 0:
        return "none"
    if budget <= 1024:
        return "low"
    if budget <= 2048:
        return "medium"

    return "high"


def sampling(config: GenerateContentConfig, *, model: str) -> JsonObject:
    """Temperature and top-p, which reasoning models don't take. Warns of them, and of thinking for
    other models.
    """
    settings = {"temperature": config.temperature, "top_p": config.top_p}
    if not is_reasoning_model(model):
        for name in ("thinking_config", "effort"):
            if getattr(config, name, None) is not None:
                warn_once(model, name)
        return settings

    for name, value in settings.items():
        if value not in (None, 1):
            warn_once(model, name)

    return {name: value for name, value in settings.items() if value == 1}


def service_tier(config: GenerateContentConfig, *, model: str) -> str | None:
    if config.service_tier == ServiceTier.DEFERRED:
        raise refused(f"{model} has no service tier {config.service_tier!r}", model=model)
    if config.service_tier == ServiceTier.STANDARD:
        return "default"
    return config.service_tier


def completion_arguments(request: LlmRequest, *, model: str) -> JsonObject:
    """The keyword arguments of `chat.completions.create`. model: the service's own name."""
    config = request.config
    check_settings(config, taken=TAKEN, model=model)
    is_reasoning = is_reasoning_model(model)
    arguments: JsonObject = {
        "messages": messages(
            request,
            system_role="developer" if is_reasoning else "system",
            is_mistral=is_mistral(request.model or model),
        ),
        "max_completion_tokens" if is_reasoning else "max_tokens": config.max_output_tokens,
        **common_arguments(request, model=model),
        **sampling(config, model=model),
        "reasoning_effort": reasoning_effort(config) if is_reasoning else None,
    }

    return {name: value for name, value in arguments.items() if value is not None}


def common_arguments(request: LlmRequest, *, model: str) -> JsonObject:
    """The arguments that all chat completions have; None where the request doesn't say."""
    config = request.config
    return {
        "model": model,
        "stop": config.stop_sequences or None,
        "seed": config.seed,
        "presence_penalty": config.presence_penalty,
        "frequency_penalty": config.frequency_penalty,
        "logprobs": config.response_logprobs,
        "top_logprobs": config.logprobs,
        "service_tier": service_tier(config, model=model),
        "response_format": response_format(config),
        **_tools(request, model=model),
        **request_options(config),
    }


def messages(
    request: LlmRequest,
    *,
    system_role: str = "system",
    is_mistral: bool = False,
) -> list[JsonObject]:
    """Begins with the user's message, after the system's, and ends with it or with results of
    tools. Users' messages alternate with assistants', since templates of many servers refuse
    others.

    is_mistral: Mistral takes a user's message after results of tools only with an assistant's
    between them.
    """
    out: list[JsonObject] = []
    for content, is_new in with_newness(request.contents):
        model = request.model or ""
        if is_model(content):
            converted = _assistant(content)
        else:
            converted = _user(content, is_new=is_new, model=model)

        for message in converted:
            if is_mistral and message["role"] == "user" and out and out[-1]["role"] == "tool":
                out.append({"role": "assistant", "content": ACKNOWLEDGED})
            _append(out, message)

    if not out:
        out.append({"role": "user", "content": NO_CONTENTS})

    if out[0]["role"] != "user":
        out.insert(0, {"role": "user", "content": BEGINNING})

    if out[-1]["role"] == "assistant":
        out.append({"role": "user", "content": CONTINUE})

    system = request.config.system_text()
    if system:
        out.insert(0, {"role": system_role, "content": system})

    return out


def _append(out: list[JsonObject], message: JsonObject) -> None:
    """Adds a message, merged with the previous one if the roles are equal."""
    before = out[-1] if out else message
    if not out or message["role"] == "tool" or before["role"] != message["role"]:
        out.append(message)
        return

    joined: JsonObject = {**before, **message}
    for name in before.keys() & message.keys() - {"role"}:
        joined[name] = _joined(before[name], message[name])

    out[-1] = joined


def _joined(first: JsonValue, second: JsonValue) -> JsonValue:
    """Joins texts, or lists of pieces."""
    if first is None or second is None:
        return second if first is None else first
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n{second}"
    return [*_pieces(first), *_pieces(second)]


def _pieces(content: JsonValue) -> list[JsonValue]:
    if isinstance(content, list):
        return cast("list[JsonValue]", content)
    return [{"type": "text", "text": content}]


def _assistant(content: Content) -> Iterable[JsonObject]:
    texts: list[str] = []
    calls: list[JsonObject] = []
    extra: JsonObject = {}
    for part in content.parts or ():
        own_fields = own(part, PROVIDER) or {}
        if part.function_call is not None:
            call = part.function_call
            function = {"name": call.name or "", "arguments": json_text(call.args or {})}
            calls.append({**own_fields, "id": call.id, "type": "function", "function": function})
        elif part.thought and own_fields:  # of DeepSeek, vLLM, OpenRouter and others: the fields it came in
            extra |= own_fields.get("beside", {})
            if own_fields.get("name"):
                extra[own_fields["name"]] = part.text
        elif part.thought and part.text:
            texts.append(f"[thought] {part.text}\n")
        else:
            texts.append(_as_text(part))

    text = "".join(texts)
    if calls:
        yield {"role": "assistant", "content": text or None, **extra, "tool_calls": calls}
    elif text:
        yield {"role": "assistant", "content": text, **extra}


def _user(content: Content, *, is_new: bool, model: str) -> Iterable[JsonObject]:
    """Tool messages come first: they must follow the assistant's calls at once."""
    pieces: list[JsonObject] = []
    for part in content.parts or ():
        if part.function_response is not None:
            response = part.function_response
            yield {
                "role": "tool",
                "tool_call_id": response.id,
                "content": json_text(response.response or {}),
            }
            for item in response.parts or ():  # a tool message holds text only
                pieces.append(_media(item.inline_data, item.file_data, is_new=is_new, model=model))
        elif part.inline_data is not None or part.file_data is not None:
            pieces.append(_media(part.inline_data, part.file_data, is_new=is_new, model=model))
        elif text := _as_text(part):
            pieces.append({"type": "text", "text": text})

    if pieces and all(piece["type"] == "text" for piece in pieces):
        yield {"role": "user", "content": "\n".join(piece["text"] for piece in pieces)}
    elif pieces:
        yield {"role": "user", "content": pieces}


def _as_text(part: Part) -> str:
    if part.text:
        return part.text

    code = code_as_text(part)
    if code is not None:
        return code
    if part.file_data is not None:
        return f"[file {part.file_data.file_uri}]"
    if part.inline_data is not None:
        return f"[{part.inline_data.mime_type}]"

    return ""


def _media(blob: Blob | None, file: FileData | None, *, is_new: bool, model: str) -> JsonObject:
    if blob is None:
        uri = (file.file_uri if file else None) or ""
        mime_type = (file.mime_type if file else None) or "image/"
        if uri.startswith(("http://", "https://", "data:image/")) and mime_type.startswith("image/"):
            return {"type": "image_url", "image_url": {"url": uri}}
        if uri.startswith("file-"):
            return {"type": "file", "file": {"file_id": uri}}
    else:
        mime_type = blob.mime_type or "application/octet-stream"
        if mime_type.startswith("image/"):
            return {"type": "image_url", "image_url": {"url": data_uri(blob)}}

        if mime_type in AUDIO_FORMATS:
            audio = {"data": base64_of(blob), "format": AUDIO_FORMATS[mime_type]}
            return {"type": "input_audio", "input_audio": audio}

        if mime_type.startswith("text/"):
            return {"type": "text", "text": (blob.data or b"").decode(errors="replace")}

        if not mime_type.startswith(("video/", "audio/")):
            name = blob.display_name or f"file.{mime_type.rpartition('/')[2]}"
            return {"type": "file", "file": {"filename": name, "file_data": data_uri(blob)}}

    return {"type": "text", "text": unsupported_media(blob, file, is_new=is_new, model=model)}


def _tools(request: LlmRequest, *, model: str) -> JsonObject:
    for name, _ in built_in_tools(request):
        raise refused(f"{model} has no built-in tool {name!r} in chat completions", model=model)

    declarations, mode = tool_choice(request)
    if not declarations:
        return {}

    return {
        "tools": [{"type": "function", "function": function} for function in functions(declarations)],
        "tool_choice": TOOL_CHOICES[mode],
    }
