"""Values on their way between nodes: into their stored form, and to the types that nodes declare."""

from __future__ import annotations

import functools
import json
from typing import Any, cast

import msgspec

from greenroom.records.base import JsonValue
from greenroom.records.content import Content, Part
from greenroom.tools.result import to_plain
from greenroom.tools.value_types.plain_types import InvalidValue, TypeSchema
from greenroom.tools.value_types.type_schema import type_schema as new_type_schema

_PLAIN = (str, int, bool, type(None))


def output_value(value: Any, schema: Any) -> JsonValue:
    """Converts an output to the form in which it is stored.

    schema: a type to which it is converted; a JSON Schema is not enforced.

    Raises InvalidValue, and ToolError for values that JSON can't hold.
    """
    if schema is None or not is_type(schema):
        return value if type(value) in _PLAIN else _dumped(value)
    converted = type_schema(schema).convert(_dumped(value))
    return _dumped(converted, without_nulls=True)


def input_value(value: Any, schema: Any) -> Any:
    """The input of a node with an input schema: converted to it, and plain again. A content is
    taken by its text.

    Raises InvalidValue.
    """
    if schema is None or not is_type(schema):
        return value
    return output_value(_content_as(schema, value), schema)


def is_type(schema: Any) -> bool:
    """Whether values are converted to it: a JSON Schema or an API schema only describes them."""
    return not isinstance(schema, dict) and type(schema).__name__ != "Schema"


def _dumped(value: Any, *, without_nulls: bool = False) -> JsonValue:
    if isinstance(value, list):
        return [_dumped(item, without_nulls=without_nulls) for item in cast("list[Any]", value)]
    if without_nulls and hasattr(value, "model_dump"):
        return value.model_dump(mode="json", exclude_none=True)
    return value if type(value) in _PLAIN else to_plain(value)


@functools.lru_cache(maxsize=1024)
def _cached_schema(schema: Any) -> TypeSchema:
    return new_type_schema(schema)


def type_schema(schema: Any) -> TypeSchema:
    try:
        return _cached_schema(schema)
    except TypeError:  # not hashable
        return new_type_schema(schema)


def as_text(value: Any) -> str | None:
    """The text of a content without other parts; None for anything else."""
    if not isinstance(value, Content):
        return None
    texts = [part.text for part in value.parts or ()]
    if all(text is not None for text in texts):
        return "".join(text or "" for text in texts)
    return None


def converted(value: Any, schema: TypeSchema, hint: Any) -> Any:
    """A node's input, or a value of the state, as the type that a parameter has. A content is taken
    by its text: as it is for a string, as JSON for other types. Raises InvalidValue.
    """
    if value is None or hint in (Any, object):
        return value
    if isinstance(hint, type) and not hasattr(hint, "__args__") and isinstance(value, hint):
        return value

    value = _content_as(hint, value)
    if hint is str and isinstance(value, str):
        return value

    return schema.convert(value if type(value) in _PLAIN else to_plain(value))


def _content_as(hint: Any, value: Any) -> Any:
    """A content's text for a string, its JSON for other types; other values, and media, stay as
    they are.
    """
    text = as_text(value)
    if text is None or hint is str:
        return value if text is None else text
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise InvalidValue(f"The message is not JSON: {error}") from None


def as_content(value: Any) -> Content:
    """A node's input as a user's message, for an agent."""
    if isinstance(value, Content):
        return value

    plain = to_plain(value)
    if isinstance(plain, (dict, list)):
        text = json.dumps(plain, ensure_ascii=False)  # with blanks, as ADK writes it
    else:
        text = "" if plain is None else str(plain)

    return Content(role="user", parts=[Part(text=text)])
