"""Converts requests to the arguments of Gemini's `generateContent`, as the SDK's constructors take
them; no SDK.

Source: https://ai.google.dev/api/generate-content
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from greenroom.models.conversion import as_text, is_model, warn_once
from greenroom.models.gemini.rules import OWN_IDS, SCHEMAS
from greenroom.models.model import output_schema
from greenroom.models.requests.rules import fitted_value
from greenroom.models.requests.turns import BEGINNING, CONTINUE, NO_CONTENTS
from greenroom.records.base import JsonObject
from greenroom.records.content import Content, Part
from greenroom.records.generation import GenerateContentConfig
from greenroom.records.model_exchange import LlmRequest

_OTHERS = frozenset({"anthropic", "openai", "openai_chat", "langchain"})
"""Keys of `part_metadata` that mark parts of other providers."""

_NO_SIGNATURE = b"skip_thought_signature_validator"
"""Taken by Gemini 3 in place of the signature of a call that another model made. Source: Gemini's
documentation.
"""

_CONVERTED = {"response_schema", "response_json_schema", "tools", "system_instruction"}
"""Settings that are not sent as they are."""

_NOT_ON_VERTEX = ("tool_call", "tool_response", "part_metadata")

UNCHECKED = "ADK_DISABLE_GEMINI_MODEL_ID_CHECK"
"""Environment variable that makes every name count as a Gemini's. Source: ADK."""

_GEMINI = re.compile(r"gemini-(?:live-)?(?:(\d+)(?:[.-]|$))?.*")
_LATEST = 1_000_000


def gemini_version(model: str | None) -> int | None:
    """Major version of a Gemini model: 2 for `gemini-2.5-flash`, also with a path before it; None
    for other models.

    Names without a number, as `gemini-flash-latest`, count as newest. With
    `ADK_DISABLE_GEMINI_MODEL_ID_CHECK` set, so does every name.
    """
    match = _GEMINI.fullmatch((model or "").rsplit("/", 1)[-1])
    if match is not None:
        return int(match[1]) if match[1] else _LATEST
    if os.environ.get(UNCHECKED, "").lower() in ("1", "true"):
        return _LATEST
    return None


def generate_arguments(request: LlmRequest, *, model: str, is_vertex: bool) -> JsonObject:
    """The keyword arguments of `models.generate_content`, of plain dicts."""
    return {
        "model": model,
        "contents": contents(request, model=model, is_vertex=is_vertex),
        "config": _config(request.config, model=model, is_vertex=is_vertex),
    }


def contents(request: LlmRequest, *, model: str, is_vertex: bool) -> list[JsonObject]:
    """Begins and ends with the user's turn."""
    out = turns(request.contents, model=model, is_vertex=is_vertex)
    if out and out[0]["role"] != "user":
        out.insert(0, {"role": "user", "parts": [{"text": BEGINNING}]})
    if not out or out[-1]["role"] != "user":
        out.append({"role": "user", "parts": [{"text": CONTINUE if out else NO_CONTENTS}]})
    return out


def turns(contents: Iterable[Content], *, model: str, is_vertex: bool) -> list[JsonObject]:
    """Converts contents to dicts, without those that have nothing to send. Successive contents of the model are merged:
    the service refuses calls right after the model's own words.
    """
    needs_signatures = (gemini_version(model) or 0) >= 3
    out: list[JsonObject] = []
    for content in contents:
        parts = [converted for part in content.parts or () if (converted := _part(part, is_vertex=is_vertex))]
        if not parts:
            continue

        if is_model(content) and needs_signatures:
            first = next((part for part in parts if "function_call" in part), None)
            if first is not None and "thought_signature" not in first:
                first["thought_signature"] = _NO_SIGNATURE

        if is_model(content) and out and out[-1]["role"] == "model":
            out[-1]["parts"] += parts
        else:
            out.append({"role": "model" if is_model(content) else "user", "parts": parts})

    return out


def _part(part: Part, *, is_vertex: bool) -> JsonObject:
    """Converts a part. Empty if it isn't sent: thoughts of other providers, and parts that only they understand."""
    if part.part_metadata is not None and not _OTHERS.isdisjoint(part.part_metadata):
        return _foreign(part)

    out = {name: value for name, value in part.model_dump(exclude_none=True).items() if value != ""}
    if part.text == "" and part.thought_signature is not None:
        out["text"] = ""

    for name in ("function_call", "function_response"):
        if str(out.get(name, {}).get("id") or "").startswith(OWN_IDS):
            del out[name]["id"]

    if is_vertex:
        for name in _NOT_ON_VERTEX:
            out.pop(name, None)
    else:
        for holder in (out, *out.get("function_response", {}).get("parts", ())):
            for name in ("inline_data", "file_data"):
                holder.get(name, {}).pop("display_name", None)

    return {} if set(out) <= {"thought", "part_metadata"} else out


def _foreign(part: Part) -> JsonObject:
    if part.thought:
        return {}
    if part.function_call is not None:
        return {"function_call": part.function_call.model_dump(include={"id", "name", "args"}, exclude_none=True)}
    if part.inline_data is not None or part.file_data is not None:
        return {name: value for name, value in part.model_dump(exclude_none=True).items() if name.endswith("_data")}

    text = as_text(part)

    return {"text": text} if text else {}


def _config(config: GenerateContentConfig, *, model: str, is_vertex: bool) -> JsonObject:
    out = config.model_dump(exclude=_CONVERTED, exclude_none=True) | system_and_tools(config, is_vertex=is_vertex)
    schema = output_schema(config)
    if schema is not None:
        out["response_json_schema"] = fitted_value(SCHEMAS, schema)
        out.setdefault("response_mime_type", "application/json")

    if config.http_options:  # retries are ours
        out["http_options"] = {name: value for name, value in config.http_options.items() if name != "retry_options"}

    for name in ("effort",) if is_vertex else ("effort", "labels"):
        if out.pop(name, None):
            warn_once(model, name)

    if config.tools:
        out["automatic_function_calling"] = {"disable": True}

    return out


def system_and_tools(config: GenerateContentConfig, *, is_vertex: bool) -> JsonObject:
    out: JsonObject = {}
    if isinstance(config.system_instruction, Content):
        parts = [_part(part, is_vertex=is_vertex) for part in config.system_instruction.parts or ()]
        out["system_instruction"] = {"role": "system", "parts": parts}
    elif config.system_instruction:
        out["system_instruction"] = config.system_instruction

    if config.tools:
        out["tools"] = [tool.model_dump(exclude_none=True) for tool in config.tools]

    return out
