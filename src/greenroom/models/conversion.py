"""Conversion of requests for all providers: tool choice, media, schemas, and refusals of unsupported content.

Data that only one provider understands is stored in `Part.part_metadata` under that provider's name: thoughts'
signatures are marked there with their origin, and content blocks without a field of their own are kept unchanged.
"""

from __future__ import annotations

import base64
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import cast

import msgspec

from greenroom.errors import MessageConversionError, ModelErrorCategory
from greenroom.models.model import output_schema
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import Blob, Content, FileData, Part
from greenroom.records.generation import GenerateContentConfig
from greenroom.records.model_exchange import LlmRequest
from greenroom.records.tool_declaration import FunctionDeclaration, Tool

_log = logging.getLogger("greenroom.models")

_WITHOUT_EFFECT = {
    "automatic_function_calling", "should_return_http_response", "enable_enhanced_civic_answers", "model_armor_config",
    "audio_transcription_config",
}  # fmt: skip
_NEEDED = {"cached_content", "response_modalities", "image_config", "speech_config"}
"""Settings without which the answer would be another one."""

_warned: set[tuple[str, str]] = set()


def refused(detail: str, *, model: str) -> MessageConversionError:
    return MessageConversionError(detail, model=model, category=ModelErrorCategory.CLIENT_ERROR)


def is_model(content: Content) -> bool:
    return content.role in ("model", "assistant")


def with_newness(contents: Sequence[Content]) -> Iterator[tuple[Content, bool]]:
    """Yields each content, and whether the model is to answer it now.

    Media that a model can't read are an error in new contents, and a placeholder in older ones, so that a conversation
    can continue with another model.
    """
    newest = next((i for i in range(len(contents) - 1, -1, -1) if is_model(contents[i])), -1) + 1
    for index, content in enumerate(contents):
        yield content, index >= newest


def mime_type_of(blob: Blob | None, file: FileData | None) -> str:
    """The type of a part's media; empty if the part doesn't say."""
    media = blob if blob is not None else file
    if media is None:
        return ""
    return media.mime_type or ""


def unsupported_media(blob: Blob | None, file: FileData | None, *, is_new: bool, model: str) -> str:
    """A placeholder for older media. Raises MessageConversionError for new ones."""
    kind = mime_type_of(blob, file) or "file"
    name = ""
    if blob is not None:
        name = blob.display_name or ""
    elif file is not None:
        name = file.file_uri or ""

    if is_new:
        raise refused(f"{model} takes no {kind} {name}".rstrip(), model=model)
    return f"[{kind} {name}]".replace(" ]", "]")


def tool_choice(request: LlmRequest) -> tuple[list[FunctionDeclaration], str]:
    """The functions that may be called, and the mode: AUTO, ANY or NONE."""
    tool_config = request.config.tool_config
    calling = tool_config.function_calling_config if tool_config else None
    allowed = calling.allowed_function_names if calling else None
    mode = ((calling.mode if calling else None) or "AUTO").upper()
    declarations = [d for d in request.function_declarations() if d.name and (not allowed or d.name in allowed)]
    return declarations, mode if mode in ("ANY", "NONE") else "AUTO"


def functions(declarations: Iterable[FunctionDeclaration], *, schema: str = "parameters") -> list[JsonObject]:
    """Converts declarations to the vendor's functions.

    schema: the vendor's name of the field for the parameters' JSON Schema.
    """
    return [{"name": d.name, "description": d.description or "", schema: d.json_schema()} for d in declarations]


def answer_schema(config: GenerateContentConfig) -> JsonObject | None:
    """The schema of the wanted answer, as the vendors of `strict` schemas take it."""
    schema = output_schema(config)
    if schema is None:
        return None
    name = re.sub(r"[^A-Za-z0-9_-]", "_", str(schema.get("title") or "response"))[:64]
    return {"name": name, "strict": True, "schema": strict_schema(schema)}


def response_format(config: GenerateContentConfig) -> JsonObject | None:
    """The response format as chat completions has it."""
    schema = answer_schema(config)
    if schema is not None:
        return {"type": "json_schema", "json_schema": schema}
    if config.response_mime_type == "application/json":
        return {"type": "json_object"}
    return None


def built_in_tools(request: LlmRequest) -> Iterator[tuple[str, JsonObject]]:
    """Names of the fields of `Tool`, and their options."""
    for tool in request.config.tools or ():
        for name in Tool.__struct_fields__:
            options = getattr(tool, name)
            if name != "function_declarations" and options is not None:
                yield name, options


def built_in_of(
    request: LlmRequest,
    kinds: Mapping[str, JsonObject],
    *,
    provider: str,
    model: str,
    excluded_domains: str | None = None,
) -> Iterator[JsonObject]:
    """The request's built-in tools as the provider takes them.

    kinds: its tools by Gemini's names. Options under the provider's name are sent as they are.
        Without them, Gemini's options count: `exclude_domains` under the name given here; others
        raise MessageConversionError.
    """
    for name, options in built_in_tools(request):
        own_options: JsonObject | None = options.get(provider)
        if own_options is None:
            if name not in kinds:
                raise refused(f"{model} has no built-in tool {name!r}", model=model)

            own_options = {}
            for option, value in options.items():
                if option in ("exclude_domains", "excludeDomains") and excluded_domains:
                    own_options[excluded_domains] = value
                elif option not in ("anthropic", "openai") and value not in (None, False, [], {}):
                    raise refused(f"{model} has no option {option!r} of the built-in tool {name!r}", model=model)

            if request.config.tool_config is not None and request.config.tool_config.retrieval_config:
                raise refused(f"{model} has no option 'retrieval_config' of built-in tools", model=model)

        yield {**kinds.get(name, {"type": name}), **own_options}


def code_as_text(part: Part, *, output: str = "output") -> str | None:
    """Code and its output as fenced text; None for other parts."""
    if part.executable_code is not None:
        language = (part.executable_code.language or "").lower()
        return f"```{language}\n{part.executable_code.code or ''}\n```\n"
    if part.code_execution_result is not None:
        return f"```{output}\n{part.code_execution_result.output or ''}\n```\n"
    return None


def built_in_call_as_text(part: Part) -> str | None:
    """Describes a tool that another provider ran, and its result; None for other parts."""
    if part.tool_call is not None:
        return f"[called {part.tool_call.tool_type} with {json_text(part.tool_call.args or {})}]"
    if part.tool_response is not None:
        return f"[{part.tool_response.tool_type} answered {json_text(part.tool_response.response or {})}]"
    return None


def as_text(part: Part) -> str:
    """A part of a model's answer as text, of media the type; empty for other parts."""
    media = part.inline_data or part.file_data
    text = part.text or code_as_text(part) or built_in_call_as_text(part)
    return text or (f"[{media.mime_type}]" if media is not None else "")


def base64_of(blob: Blob) -> str:
    return base64.b64encode(blob.data or b"").decode()


def base64_bytes(text: str) -> bytes:
    return base64.b64decode(text)


def data_uri(blob: Blob) -> str:
    return f"data:{blob.mime_type or 'application/octet-stream'};base64,{base64_of(blob)}"


def json_text(value: JsonValue) -> str:
    return msgspec.json.encode(value).decode()


def own(part: Part, provider: str) -> JsonObject | None:
    """Returns this provider's metadata of the part; None for parts of other providers, whose
    signatures it would refuse.
    """
    return (part.part_metadata or {}).get(provider)


def check_settings(config: GenerateContentConfig, *, taken: frozenset[str], model: str) -> None:
    """Refuses settings that the provider doesn't have and the answer depends on; warns once of the
    others.
    """
    for name in config.__struct_fields__:
        if name in taken or name in _WITHOUT_EFFECT or getattr(config, name) in (None, [], {}):
            continue
        if name == "response_modalities" and [m.upper() for m in config.response_modalities or ()] == ["TEXT"]:
            continue
        if name == "candidate_count" and config.candidate_count == 1:
            continue
        if name in _NEEDED:
            raise refused(f"{model} has no setting {name!r}", model=model)

        warn_once(model, name)


def warn_once(model: str, setting: str) -> None:
    if (model, setting) not in _warned:
        _warned.add((model, setting))
        _log.warning("%s has no setting %r: it is ignored", model, setting)


def request_options(config: GenerateContentConfig) -> JsonObject:
    """`extra_headers` and `timeout` in seconds, as the SDKs of OpenAI and Anthropic call them."""
    options = config.http_options or {}
    timeout = options.get("timeout")  # in the Gemini SDK's unit, the millisecond
    given = {"extra_headers": options.get("headers"), "timeout": timeout / 1000 if timeout is not None else None}
    return {name: value for name, value in given.items() if value is not None}


def strict_schema(schema: JsonObject) -> JsonObject:
    """The schema as `strict` wants it: closed objects whose properties are all required, nothing
    beside a `$ref`.
    """
    if "$ref" in schema:
        return {"$ref": schema["$ref"]}

    out: JsonObject = {}
    for key, value in schema.items():
        if key in ("properties", "$defs", "definitions"):  # maps of names, which may be those of keywords
            inner = cast("JsonObject", value)
            out[key] = {name: _strict(item) for name, item in inner.items()}
        elif key in ("enum", "const", "required"):
            out[key] = value
        elif key != "default":
            out[key] = _strict(value)

    if out.get("type") == "object" or "properties" in out:
        out["properties"] = out.get("properties", {})
        out["additionalProperties"] = False
        out["required"] = sorted(out["properties"])

    return out


def _strict(node: JsonValue) -> JsonValue:
    if isinstance(node, list):
        return [_strict(item) for item in cast("list[JsonValue]", node)]
    if isinstance(node, dict):
        return strict_schema(cast("JsonObject", node))
    return node
