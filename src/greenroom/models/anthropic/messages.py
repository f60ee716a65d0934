"""Converts requests to the arguments of Anthropic's Messages API; no SDK, no network.

Source: https://docs.anthropic.com/en/api/messages
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import cast

from greenroom.models.conversion import (
    base64_of,
    built_in_call_as_text,
    built_in_of,
    check_settings,
    code_as_text,
    functions,
    is_model,
    json_text,
    mime_type_of,
    own,
    refused,
    request_options,
    tool_choice,
    unsupported_media,
    warn_once,
    with_newness,
)
from greenroom.models.model import effort_of, output_schema
from greenroom.models.reply import nested
from greenroom.models.requests.turns import BEGINNING, CONTINUE, NO_CONTENTS
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import Blob, Content, FileData, FunctionResponse, Part
from greenroom.records.generation import GenerateContentConfig
from greenroom.records.model_exchange import LlmRequest

PROVIDER = "anthropic"
STRUCTURED_OUTPUT = "structured_output"
"""The tool by which models without JSON schemas give their answer, and the field of one that is no
object.
"""

_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_BUILT_IN: dict[str, JsonObject] = {
    "google_search": {"type": "web_search_20250305", "name": "web_search"},
    "google_search_retrieval": {"type": "web_search_20250305", "name": "web_search"},
    "enterprise_web_search": {"type": "web_search_20250305", "name": "web_search"},
    "url_context": {"type": "web_fetch_20250910", "name": "web_fetch"},
    "code_execution": {"type": "code_execution_20250825", "name": "code_execution"},
}
_TIERS = {
    "auto": "auto",
    "priority": "auto",
    "standard": "standard_only",
    "standard_only": "standard_only",
}
_EFFORTS = {"MINIMAL": "low", "LOW": "low", "MEDIUM": "medium", "HIGH": "high"}
_MIN_THINKING_TOKENS = 1024
_TAKEN = frozenset({
    "system_instruction", "temperature", "top_p", "top_k", "max_output_tokens", "stop_sequences", "response_mime_type",
    "response_schema", "response_json_schema", "tools", "tool_config", "thinking_config", "http_options",
    "service_tier", "effort",
})  # fmt: skip
_WITHOUT_SCHEMAS = re.compile(r".*claude-([123]|instant|(opus|sonnet)-4($|-0|[-@]20)).*")
_SAMPLED = re.compile(r".*claude-([123]|instant|[a-z]+-[1-3]|(opus|sonnet|haiku)-4($|-[0-6]|[-@]20)).*")
"""Later models refuse sampling settings, and the SDK has no parameters for them any more."""
_JSON_ONLY = "Answer with JSON only, without any other text."


def message_arguments(
    request: LlmRequest, *, model: str, max_tokens: int, transform_schema: Callable[[JsonObject], JsonObject]
) -> JsonObject:
    """The keyword arguments of `messages.create`.

    model: the service's own name.
    transform_schema: the SDK's.
    """
    config = request.config
    check_settings(config, taken=_TAKEN, model=model)
    system = config.system_text()
    schema = output_schema(config)
    if schema is None and config.response_mime_type == "application/json":
        system = f"{system}\n\n{_JSON_ONLY}".lstrip()

    arguments: JsonObject = {
        "model": model,
        "messages": messages(request, model=model),
        "system": system if system.strip() else None,
        "max_tokens": config.max_output_tokens or max_tokens,
        **_sampling(config, model=model),
        "stop_sequences": config.stop_sequences or None,
        "service_tier": _service_tier(config, model=model),
        **_tools(request, model=model),
        **request_options(config),
    }
    _add_thinking(arguments, config)

    if schema is not None:
        if _WITHOUT_SCHEMAS.fullmatch(model):
            _answer_by_tool(arguments, schema, model=model)
        else:
            output = {"format": {"type": "json_schema", "schema": transform_schema(schema)}}
            arguments["output_config"] = {**arguments.get("output_config", {}), **output}

    cache = request.cache_config
    prompt_tokens = request.cacheable_contents_token_count or 0
    if cache is not None and prompt_tokens >= cache.min_tokens:
        _mark_prefix(
            arguments,
            {"type": "ephemeral"} | ({"ttl": "1h"} if cache.ttl_seconds >= 3600 else {}),
        )

    return {name: value for name, value in arguments.items() if value is not None}


def _mark_prefix(arguments: JsonObject, mark: JsonObject) -> None:
    """Ends the prefixes to cache: after the tools, the system text, and the newest message that may
    be marked.
    """
    control = {"cache_control": mark}
    if arguments.get("tools"):
        *others, last = arguments["tools"]
        arguments["tools"] = [*others, {**last, **control}]

    if arguments["system"]:
        arguments["system"] = [{"type": "text", "text": arguments["system"], **control}]

    blocks: list[JsonObject] = arguments["messages"][-1]["content"]
    if blocks[-1]["type"] not in ("thinking", "redacted_thinking"):
        blocks[-1] = {**blocks[-1], **control}


def messages(request: LlmRequest, *, model: str) -> list[JsonObject]:
    """Merges consecutive contents of one role to a message, with tool results first. The first and the last message are
    the user's.
    """
    unchecked: list[JsonObject] = []
    for content, is_new in with_newness(request.contents):
        if is_model(content):
            unchecked.append({"role": "assistant", "content": assistant_blocks(content, model=model)})
        else:
            unchecked.append({"role": "user", "content": list(_user(content, is_new=is_new, model=model))})

    out: list[JsonObject] = []
    for message in _without_cut_off_tools(unchecked):
        _append(out, message["role"], message["content"])

    _end_assistant(out)

    if not out:
        return [_user_text(NO_CONTENTS)]

    if out[0]["role"] != "user":
        out.insert(0, _user_text(BEGINNING))

    if out[-1]["role"] != "user":
        out.append(_user_text(CONTINUE))

    return out


def assistant_blocks(content: Content, *, model: str) -> list[JsonObject]:
    """The blocks of one message of the model."""
    return list(_assistant(content, model=model))


def _user_text(text: str) -> JsonObject:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def _append(out: list[JsonObject], role: str, blocks: list[JsonObject]) -> None:
    """Adds blocks, to the last message if that has their role."""
    if not blocks:
        return

    if role == "user":
        _end_assistant(out)

    if out and out[-1]["role"] == role:
        blocks = out.pop()["content"] + blocks

    if role == "user":
        blocks = sorted(blocks, key=lambda block: block["type"] != "tool_result")

    out.append({"role": role, "content": blocks})


def _end_assistant(out: list[JsonObject]) -> None:
    """Leaves out thoughts at the end of the assistant's message, which the API refuses, as of a
    reply that was cut off.
    """
    if not out or out[-1]["role"] != "assistant":
        return

    blocks: list[JsonObject] = out[-1]["content"]
    while blocks and blocks[-1]["type"] in ("thinking", "redacted_thinking"):
        blocks = blocks[:-1]

    if blocks:
        out[-1]["content"] = blocks
    else:
        out.pop()


def _without_cut_off_tools(sent: list[JsonObject]) -> list[JsonObject]:
    """Leaves out calls of the service's own tools without result, of replies that were cut off, and
    results without call: the API refuses both. Code that waits for the client's tools has its
    result later.
    """
    begun: set[str | None] = set()
    paired: set[str | None] = set()
    for block in (block for message in sent for block in message["content"]):
        kind: str = block["type"]
        if kind == "tool_use":
            paired.add(nested(block, "caller").get("tool_id"))
        elif kind.endswith("_tool_use"):
            begun.add(block.get("id"))
        elif kind.endswith("_tool_result"):
            paired.add(block.get("tool_use_id") if block.get("tool_use_id") in begun else None)

    paired &= begun

    out: list[JsonObject] = []
    shown: set[str | None] = set()
    for message in sent:
        blocks: list[JsonObject] = []
        for block in message["content"]:
            if block["type"].endswith("_tool_use"):
                if block.get("id") not in paired:
                    continue
                shown.add(block.get("id"))
            elif block["type"].endswith("_tool_result") and block.get("tool_use_id") not in shown:
                continue
            blocks.append(block)

        out.append({**message, "content": blocks})

    return out


def _assistant(content: Content, *, model: str) -> Iterable[JsonObject]:
    for part in content.parts or ():
        own_fields = own(part, PROVIDER)
        if own_fields is not None and part.function_call is None:
            block = _own_block(part, own_fields)
            if block is not None:
                yield block
        elif part.thought:
            continue  # its signature is another provider's, or missing: the API would refuse it
        elif part.function_call is not None:
            call = part.function_call
            block = {
                "type": "tool_use",
                "id": call.id,
                "name": call.name or "",
                "input": call.args or {},
            }
            yield {**(own_fields or {}), **block}
        elif text := _as_text(part):
            yield {"type": "text", "text": text}
        elif part.inline_data is not None or part.file_data is not None:
            text = unsupported_media(part.inline_data, part.file_data, is_new=False, model=model)
            yield {"type": "text", "text": text}


def _own_block(part: Part, own_fields: JsonObject) -> JsonObject | None:
    """The block as the API sent it; None for a thought without its signature, and for blank text."""
    signature = (part.thought_signature or b"").decode()
    if own_fields.get("type") == "thinking":
        if signature:
            return {"type": "thinking", "thinking": part.text or "", "signature": signature}
        return None

    if own_fields.get("type") == "redacted_thinking":
        if signature:
            return {"type": "redacted_thinking", "data": signature}
        return None

    if part.text is not None:
        if part.text.strip():
            return {"type": "text", "text": part.text, **own_fields}
        return None

    if part.tool_response is not None:
        return {**own_fields, "content": (part.tool_response.response or {}).get("content")}

    return own_fields


def _user(content: Content, *, is_new: bool, model: str) -> Iterable[JsonObject]:
    for part in content.parts or ():
        if part.function_response is not None:
            yield _tool_result(part.function_response, is_new=is_new, model=model)
        elif part.inline_data is not None or part.file_data is not None:
            yield _media(part.inline_data, part.file_data, is_new=is_new, model=model)
        elif not part.thought and (text := _as_text(part)):
            yield {"type": "text", "text": text}


def _tool_result(response: FunctionResponse, *, is_new: bool, model: str) -> JsonObject:
    answer = response.response or {}

    text = _result_text(answer)
    content: JsonValue = text
    if response.parts:
        media = [
            _media(media_part.inline_data, media_part.file_data, is_new=is_new, model=model)
            for media_part in response.parts
        ]
        content = [*([{"type": "text", "text": text}] if text.strip() else []), *media]

    block: JsonObject = {"type": "tool_result", "tool_use_id": response.id, "content": content}

    if list(answer) == ["error"]:
        return {**block, "is_error": True}

    return block


def _result_text(answer: JsonObject) -> str:
    """The texts of an MCP result, a lone text, or JSON."""
    if isinstance(answer.get("content"), list):
        texts: list[JsonValue] = [
            item.get("text") for item in cast("list[JsonObject]", answer["content"]) if item.get("type") == "text"
        ]
        if texts and len(texts) == len(answer["content"]):
            return "\n".join(map(str, texts))

    if list(answer) in (["result"], ["content"]):
        value: JsonValue = next(iter(answer.values()))
        return value if isinstance(value, str) else json_text(value)

    return json_text(answer)


def _as_text(part: Part) -> str:
    if part.text:
        return part.text if part.text.strip() else ""  # the API refuses blank text
    return code_as_text(part, output="code_output") or built_in_call_as_text(part) or ""


def _media(blob: Blob | None, file: FileData | None, *, is_new: bool, model: str) -> JsonObject:
    mime_type = mime_type_of(blob, file)
    uri = (file.file_uri if file else None) or ""
    source: JsonObject | None = None
    if blob is not None:
        if mime_type.startswith("text/"):
            source = {
                "type": "text",
                "media_type": "text/plain",
                "data": (blob.data or b"").decode(errors="replace"),
            }
        elif mime_type in (*_IMAGES, "application/pdf"):
            source = {"type": "base64", "media_type": mime_type, "data": base64_of(blob)}
    elif uri.startswith(("https://", "http://")):
        if mime_type in (*_IMAGES, "image/*", "application/pdf", ""):
            source = {"type": "url", "url": uri}
    elif uri.startswith("file_"):
        source = {"type": "file", "file_id": uri}

    if source is None:
        return {"type": "text", "text": unsupported_media(blob, file, is_new=is_new, model=model)}

    is_document = mime_type.startswith(("text/", "application/")) or uri.endswith(".pdf")

    return {"type": "document" if is_document else "image", "source": source}


def _tools(request: LlmRequest, *, model: str) -> JsonObject:
    declarations, mode = tool_choice(request)

    tools = functions(declarations, schema="input_schema")
    for tool in built_in_of(request, _BUILT_IN, provider=PROVIDER, model=model, excluded_domains="blocked_domains"):
        if tool not in tools:
            tools.append(tool)

    if not tools:
        return {}

    choice: JsonObject = {"type": {"ANY": "any", "NONE": "none"}.get(mode, "auto")}
    if mode == "ANY" and len(declarations) == 1:
        choice = {"type": "tool", "name": declarations[0].name}

    return {"tools": tools, "tool_choice": choice}


def _add_thinking(arguments: JsonObject, config: GenerateContentConfig) -> None:
    """Enables thinking. The API then accepts no sampling settings and no forced tools. An invalid budget is replaced by
    the nearest valid one.
    """
    thinking = config.thinking_config
    effort = effort_of(config)
    if effort is not None:
        arguments["output_config"] = {"effort": effort}

    if thinking is None:
        return

    budget = thinking.thinking_budget
    level = (thinking.thinking_level or "").upper()

    if budget == 0:
        arguments["thinking"] = {"type": "disabled"}
        return

    if budget is not None and budget > 0:
        budget = max(budget, _MIN_THINKING_TOKENS)
        arguments["thinking"] = {"type": "enabled", "budget_tokens": budget}
        if arguments["max_tokens"] <= budget:
            arguments["max_tokens"] += budget
    else:
        arguments["thinking"] = {"type": "adaptive", "display": "summarized"}
        if thinking.include_thoughts is False:
            arguments["thinking"]["display"] = "omitted"
        if level:
            arguments["output_config"] = {"effort": _EFFORTS.get(level, level.lower())}

    if _answers_calls_without_thoughts(arguments["messages"]):
        del arguments["thinking"]
        return

    for name in ("temperature", "top_p", "top_k"):
        if arguments.pop(name, None) is not None:
            warn_once(f"{arguments['model']} while thinking", name)

    if arguments.get("tool_choice", {}).get("type") in ("any", "tool"):
        arguments["tool_choice"] = {"type": "auto"}


def _answers_calls_without_thoughts(sent: list[JsonObject]) -> bool:
    """Whether another model made the calls that are being answered: the API wants its own thoughts
    before them.
    """
    if len(sent) < 2 or not any(block["type"] == "tool_result" for block in sent[-1]["content"]):
        return False
    return not any(block["type"] in ("thinking", "redacted_thinking") for block in sent[-2]["content"])


def _answer_by_tool(arguments: JsonObject, schema: JsonObject, *, model: str) -> None:
    if arguments.get("tools") and arguments["tool_choice"]["type"] != "none":
        raise refused(f"{model} takes no output schema together with tools", model=model)

    if schema.get("type") != "object":
        inner = {key: value for key, value in schema.items() if key != "$defs"}
        schema = {"type": "object", "properties": {STRUCTURED_OUTPUT: inner}, "required": [STRUCTURED_OUTPUT]} | {
            key: value for key, value in schema.items() if key == "$defs"
        }

    description = "Gives the answer in the form that is asked for."
    answer: JsonObject = {
        "name": STRUCTURED_OUTPUT,
        "description": description,
        "input_schema": schema,
    }
    arguments["tools"] = [*arguments.get("tools", ()), answer]

    is_thinking = arguments.get("thinking", {}).get("type") in ("enabled", "adaptive")
    if is_thinking:
        arguments["tool_choice"] = {"type": "auto"}
    else:
        arguments["tool_choice"] = {"type": "tool", "name": STRUCTURED_OUTPUT}


def _sampling(config: GenerateContentConfig, *, model: str) -> JsonObject:
    top_k = None if config.top_k is None else int(config.top_k)
    settings = {"temperature": config.temperature, "top_p": config.top_p, "top_k": top_k}
    sampling = {name: value for name, value in settings.items() if value is not None}

    if _SAMPLED.fullmatch(model):
        return sampling

    for name in sampling:
        warn_once(model, name)

    return {}


def _service_tier(config: GenerateContentConfig, *, model: str) -> str | None:
    if config.service_tier is None:
        return None
    tier = _TIERS.get(config.service_tier.lower())
    if tier is None:
        raise refused(f"{model} has no service tier {config.service_tier!r}", model=model)
    return tier
