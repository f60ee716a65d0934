"""What an operation takes: its parameters, and its body taken apart into more of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast
from urllib.parse import parse_qsl

from greenroom.records.base import JsonObject
from greenroom.tools.openapi.document import ApiDocument
from greenroom.tools.openapi.json_schema import SchemaReader
from greenroom.tools.openapi.naming import parameter_name

Place = Literal["path", "query", "header", "cookie", "body"]

_PLACES: dict[str, Place] = {"path": "path", "query": "query", "header": "header", "cookie": "cookie"}
_STYLES = {"path": "simple", "query": "form", "header": "simple", "cookie": "form", "body": "form"}
_NOT_FOR_PARAMETERS = frozenset({"accept", "content-type", "authorization"})


@dataclass(frozen=True, kw_only=True)
class ApiParameter:
    """name: the model's word for it. original: the API's; empty for a whole body.

    is_json: the value is written as JSON, whatever the style.
    """

    name: str
    original: str
    place: Place
    schema: JsonObject
    is_required: bool = False
    style: str = "form"
    explode: bool = True
    allow_reserved: bool = False
    is_json: bool = False

    def renamed(self, name: str) -> ApiParameter:
        return self if name == self.name else replace(self, name=name)

    @property
    def is_nullable(self) -> bool:
        kinds: Any = self.schema.get("type")
        options: list[Any] = [*(self.schema.get("anyOf") or ()), *(self.schema.get("oneOf") or ())]
        return kinds == "null" or (isinstance(kinds, list) and "null" in kinds) or {"type": "null"} in options


@dataclass(frozen=True, kw_only=True)
class BodyFormat:
    """encodings: how single fields of a form are written, by their name in the API."""

    media_type: str
    is_required: bool = False
    encodings: JsonObject = field(default_factory=dict[str, Any])

    @property
    def kind(self) -> Literal["json", "form", "multipart", "raw"]:
        plain = self.media_type.partition(";")[0].strip().lower()
        if plain == "application/x-www-form-urlencoded":
            return "form"
        if plain.startswith("multipart/"):
            return "multipart"
        is_json = plain.endswith(("/json", "+json")) or plain in ("*/*", "application/*", "")
        return "json" if is_json else "raw"


def read_parameters(
    document: ApiDocument,
    schemas: SchemaReader,
    item: JsonObject,
    spec: JsonObject,
    *,
    path: str,
    keep_names: bool,
) -> list[ApiParameter]:
    """The operation's, then those of its path that it does not have itself."""
    found: dict[tuple[str, str], ApiParameter] = {}
    for node in [*(spec.get("parameters") or ()), *(item.get("parameters") or ())]:
        one = document.resolve(node)
        place = _PLACES.get(str(one.get("in")))
        original = str(one.get("name") or "")
        is_ignored = place == "header" and original.lower() in _NOT_FOR_PARAMETERS
        if place is not None and not is_ignored and (original, place) not in found:
            found[original, place] = _parameter(one, original, place, schemas, keep_names)
    for original in re.findall(r"{([^{}]+)}", path.partition("?")[0]):
        # some documents leave out what the path says anyway
        if (original, "path") not in found:
            declared: JsonObject = {"schema": {"type": "string"}}
            found[original, "path"] = _parameter(declared, original, "path", schemas, keep_names)
    return list(found.values())


def query_in(path: str) -> list[tuple[str, str]]:
    """The parameters that some documents write into the path itself."""
    return parse_qsl(path.partition("#")[0].partition("?")[2], keep_blank_values=True)


def _parameter(one: JsonObject, original: str, place: Place, schemas: SchemaReader, keep_names: bool) -> ApiParameter:
    content: JsonObject = one.get("content") or {}
    media_type: str = next(iter(content), "")
    schema = schemas.read(content[media_type].get("schema") if content else one.get("schema"))
    description = one.get("description") or schema.get("description")
    style: str = one.get("style") or _STYLES[place]
    return ApiParameter(
        name=parameter_name(original, place, keep=keep_names),
        original=original,
        place=place,
        schema={**schema, "description": description} if description else schema,
        is_required=place == "path" or one.get("required") is True,
        style=style,
        explode=bool(one.get("explode", style == "form")),
        allow_reserved=one.get("allowReserved") is True,
        is_json="json" in media_type,
    )


def read_body(
    document: ApiDocument, schemas: SchemaReader, spec: JsonObject, *, keep_names: bool
) -> tuple[BodyFormat | None, list[ApiParameter]]:
    """The body's first format, and its fields: properties of an object, or the whole body as one parameter."""
    if not spec.get("requestBody"):
        return None, []
    body = document.resolve(spec["requestBody"])
    content: JsonObject = body.get("content") or {}
    if not content:
        return None, []
    media_type = next(iter(content))
    entry: JsonObject = content[media_type] or {}
    form = BodyFormat(
        media_type=media_type, is_required=body.get("required") is True, encodings=entry.get("encoding") or {}
    )
    # a document that says nothing usually means a body that is needed, though the standard has it otherwise
    is_needed = body.get("required") is not False
    schema = _without_null(schemas.read(entry.get("schema")))
    if not _is_plain_object(schema):
        name = "array" if schema.get("type") == "array" else "body"
        if "description" not in schema and body.get("description"):
            schema["description"] = body["description"]
        whole = ApiParameter(name=name, original="", place="body", schema=schema, is_required=is_needed)
        return form, [whole]
    return form, list(_fields(schema, form, is_needed, keep_names))


def _without_null(schema: JsonObject) -> JsonObject:
    """A body that may be null is one that may be left out."""
    for key in ("anyOf", "oneOf"):
        options = [option for option in schema.get(key) or () if option != {"type": "null"}]
        if len(options) == 1 < len(schema[key]) and len(schema) == 1:
            return options[0]
    return schema


def _is_plain_object(schema: JsonObject) -> bool:
    if any(key in schema for key in ("oneOf", "anyOf", "allOf")):
        return False
    kind: Any = schema.get("type")
    is_object = kind in ("object", None) or (isinstance(kind, list) and "object" in kind)
    return is_object and bool(schema.get("properties"))


def _fields(schema: JsonObject, form: BodyFormat, is_needed: bool, keep_names: bool) -> Iterator[ApiParameter]:
    required: list[str] = schema.get("required") or []
    for original, one in cast("JsonObject", schema["properties"]).items():
        encoding: JsonObject = form.encodings.get(original) or {}
        style = encoding.get("style") or "form"
        yield ApiParameter(
            name=parameter_name(original, "body", keep=keep_names),
            original=original,
            place="body",
            schema=one,
            is_required=is_needed and original in required,
            style=style,
            explode=bool(encoding.get("explode", style == "form")),
            allow_reserved=encoding.get("allowReserved") is True,
            is_json="json" in str(encoding.get("contentType") or ""),
        )
