"""Converts requests to the arguments of OpenAI's Responses API; no SDK, no network.

Source: https://platform.openai.com/docs/api-reference/responses
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from greenroom.models.conversion import (
    answer_schema,
    as_text,
    base64_of,
    built_in_of,
    check_settings,
    code_as_text,
    data_uri,
    functions,
    is_model,
    json_text,
    mime_type_of,
    own,
    request_options,
    tool_choice,
    unsupported_media,
    with_newness,
)
from greenroom.models.openai.messages import (
    AUDIO_FORMATS,
    TOOL_CHOICES,
    is_reasoning_model,
    reasoning_effort,
    sampling,
    service_tier,
)
from greenroom.models.requests.turns import CONTINUE, NO_CONTENTS
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import Blob, Content, FileData, FunctionResponse, Part
from greenroom.records.generation import GenerateContentConfig
from greenroom.records.model_exchange import LlmRequest

PROVIDER = "openai"

_BUILT_IN: dict[str, JsonObject] = {
    "google_search": {"type": "web_search"},
    "google_search_retrieval": {"type": "web_search"},
    "enterprise_web_search": {"type": "web_search"},
    "code_execution": {"type": "code_interpreter", "container": {"type": "auto"}},
}
_TAKEN = frozenset({
    "system_instruction", "temperature", "top_p", "max_output_tokens", "response_logprobs", "logprobs",
    "response_mime_type", "response_schema", "response_json_schema", "tools", "tool_config", "thinking_config",
    "http_options", "service_tier", "labels", "effort",
})  # fmt: skip


def response_arguments(request: LlmRequest, *, model: str) -> JsonObject:
    """The keyword arguments of `responses.create`. model: the service's own name."""
    config = request.config
    check_settings(config, taken=_TAKEN, model=model)
    is_reasoning = is_reasoning_model(model)

    contents: Sequence[Content] = request.contents
    if request.previous_interaction_id:
        newest = next((at for at in range(len(contents) - 1, -1, -1) if is_model(contents[at])), -1)
        contents = contents[newest + 1 :]

    arguments: JsonObject = {
        "model": model,
        "input": items(contents, model=model),
        "instructions": config.system_text() or None,
        "previous_response_id": request.previous_interaction_id,
        "max_output_tokens": config.max_output_tokens,
        "top_logprobs": config.logprobs,
        "include": ["message.output_text.logprobs"] if config.response_logprobs or config.logprobs else None,
        "metadata": config.labels or None,
        "service_tier": service_tier(config, model=model),
        "text": _text_format(config),
        "reasoning": _reasoning(config) if is_reasoning else None,
        **_tools(request, model=model),
        **request_options(config),
        **sampling(config, model=model),
    }

    return {name: value for name, value in arguments.items() if value is not None}


def items(contents: Sequence[Content], *, model: str) -> list[JsonObject]:
    """Ends with the user's message, or with outputs of functions."""
    out: list[JsonObject] = []
    for content, is_new in with_newness(contents):
        if is_model(content):
            out.extend(_with_followed_reasoning(_assistant(content)))
        else:
            out.extend(_user(content, is_new=is_new, model=model))

    if not out or not (out[-1]["type"] == "function_call_output" or out[-1].get("role") == "user"):
        text = CONTINUE if out else NO_CONTENTS
        out.append({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]})

    return out


def _with_followed_reasoning(items: Iterable[JsonObject]) -> list[JsonObject]:
    """Drops reasoning at the end, as in a cut-off reply: the API refuses reasoning without the item after it."""
    out = list(items)
    while out and out[-1]["type"] == "reasoning":
        out.pop()
    return out


def _assistant(content: Content) -> Iterable[JsonObject]:
    for part in content.parts or ():
        own_fields = own(part, PROVIDER)
        if part.function_call is not None:
            call = part.function_call
            item = {"type": "function_call", "call_id": call.id, "name": call.name or ""}
            yield {**(own_fields or {}), **item, "arguments": json_text(call.args or {})}
        elif own_fields is not None:
            if own_fields:  # empty: sent with the item before
                yield _own_item(part, own_fields)
        elif not part.thought and (text := as_text(part)):  # without another provider's thoughts
            yield {"type": "message", "role": "assistant", "content": text}


def _own_item(part: Part, own_fields: JsonObject) -> JsonObject:
    """The item as the API sent it."""
    if own_fields.get("type") == "reasoning":
        return {**own_fields, "encrypted_content": (part.thought_signature or b"").decode()}
    if own_fields.get("type") == "message" and "content" not in own_fields:
        return {**own_fields, "content": [{"type": "output_text", "text": part.text or "", "annotations": []}]}
    if own_fields.get("type") == "image_generation_call" and part.inline_data is not None:
        return {**own_fields, "result": base64_of(part.inline_data)}
    return own_fields


def _user(content: Content, *, is_new: bool, model: str) -> Iterable[JsonObject]:
    """Outputs of functions come first: they belong to the calls before them."""
    pieces: list[JsonObject] = []
    for part in content.parts or ():
        if part.function_response is not None:
            response = part.function_response
            output = _output(response, is_new=is_new, model=model)
            yield {"type": "function_call_output", "call_id": response.id, "output": output}
        elif part.inline_data is not None or part.file_data is not None:
            pieces.append(_media(part.inline_data, part.file_data, is_new=is_new, model=model))
        elif text := part.text or code_as_text(part):
            pieces.append({"type": "input_text", "text": text})

    if pieces:
        yield {"type": "message", "role": "user", "content": pieces}


def _output(response: FunctionResponse, *, is_new: bool, model: str) -> JsonValue:
    text = json_text(response.response or {})
    if not response.parts:
        return text
    media = [_media(one.inline_data, one.file_data, is_new=is_new, model=model) for one in response.parts]
    return [{"type": "input_text", "text": text}, *media]


def _media(blob: Blob | None, file: FileData | None, *, is_new: bool, model: str) -> JsonObject:
    mime_type = mime_type_of(blob, file)
    if blob is None:
        uri = (file.file_uri if file else None) or ""
        is_image = mime_type.startswith("image/")
        if uri.startswith(("https://", "http://")) and not mime_type.startswith(("video/", "audio/")):
            image = {"type": "input_image", "image_url": uri, "detail": "auto"}
            if is_image or not mime_type:
                return image
            return {"type": "input_file", "file_url": uri}

        if uri.startswith("file-"):
            return {"type": "input_image" if is_image else "input_file", "file_id": uri}
    elif mime_type.startswith("image/"):
        return {"type": "input_image", "image_url": data_uri(blob), "detail": "auto"}
    elif mime_type.startswith("text/"):
        return {"type": "input_text", "text": (blob.data or b"").decode(errors="replace")}
    elif mime_type in AUDIO_FORMATS:
        audio = {"data": base64_of(blob), "format": AUDIO_FORMATS[mime_type]}
        return {"type": "input_audio", "input_audio": audio}
    elif mime_type.startswith("application/"):
        name = blob.display_name or f"file.{mime_type.rpartition('/')[2]}"
        return {"type": "input_file", "filename": name, "file_data": data_uri(blob)}

    return {"type": "input_text", "text": unsupported_media(blob, file, is_new=is_new, model=model)}


def _tools(request: LlmRequest, *, model: str) -> JsonObject:
    declarations, mode = tool_choice(request)

    tools: list[JsonObject] = [{"type": "function", **one, "strict": False} for one in functions(declarations)]
    for tool in built_in_of(request, _BUILT_IN, provider=PROVIDER, model=model):
        if tool not in tools:
            tools.append(tool)

    if tools:
        return {"tools": tools, "tool_choice": TOOL_CHOICES[mode]}

    return {}


def _text_format(config: GenerateContentConfig) -> JsonObject | None:
    schema = answer_schema(config)
    if schema is not None:
        return {"format": {"type": "json_schema", **schema}}
    if config.response_mime_type == "application/json":
        return {"format": {"type": "json_object"}}
    return None


def _reasoning(config: GenerateContentConfig) -> JsonObject | None:
    thinking = config.thinking_config
    effort = reasoning_effort(config)
    if thinking is None or thinking.include_thoughts is False:
        summary = {}
    else:
        summary = {"summary": "auto"}
    return {**({"effort": effort} if effort else {}), **summary} or None
