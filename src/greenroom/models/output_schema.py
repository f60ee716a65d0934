"""The JSON Schema that a request wants its answer to follow, in whichever of the allowed ways it was given."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from greenroom.errors import AgentConfigError
from greenroom.records.base import JsonObject
from greenroom.records.generation import GenerateContentConfig
from greenroom.records.tool_declaration import FunctionDeclaration, Schema


def output_schema(config: GenerateContentConfig) -> JsonObject | None:
    """None when the request asks for no particular shape. Raises AgentConfigError for a type that has no schema."""
    wanted: Any = config.response_json_schema if config.response_json_schema is not None else config.response_schema
    if wanted is None:
        return None
    if isinstance(wanted, dict):
        plain = cast("JsonObject", wanted)
        # A Gemini schema that came as JSON: its type names are upper case, which plain JSON Schema's never are.
        if isinstance(plain.get("type"), str) and plain["type"].isupper():
            return output_schema(GenerateContentConfig(response_schema=msgspec.convert(plain, Schema)))
        return plain
    if isinstance(wanted, Schema):
        return FunctionDeclaration(parameters=wanted).json_schema()
    model_json_schema = getattr(wanted, "model_json_schema", None)
    if model_json_schema is not None:  # a pydantic model, without importing pydantic
        return model_json_schema()
    try:
        return msgspec.json.schema(wanted)
    except TypeError as error:
        raise AgentConfigError(f"The output schema {wanted!r} can't be written as JSON Schema: {error}") from error
