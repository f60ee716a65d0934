"""Reads the operations of an OpenAPI document, each with everything needed to call it."""

from __future__ import annotations

import keyword
import re
from collections.abc import Container, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast
from urllib.parse import parse_qsl, urljoin

from greenroom.errors import AgentConfigError, InvalidRequest
from greenroom.records import wire
from greenroom.records.auth import AuthScheme
from greenroom.records.base import JsonObject, JsonValue
from greenroom.tools.openapi.document import ApiDocument, SchemaReader
from greenroom.tools.value_types.type_schema import REF, join_definitions, used_definitions

MAX_TOOL_NAME = 60


def snake_case(text: str) -> str:
    """Lower-case ASCII words joined by single underscores; empty when the text has none."""
    text = re.sub(r"[^A-Za-z0-9]+", "_", text)
    text = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", text)
    text = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", text)
    return re.sub(r"_+", "_", text).strip("_").lower()


def parameter_name(original: str, location: str, *, keep: bool = False) -> str:
    name = original if keep else snake_case(original)
    if not name:
        if location in _LOCATIONS:
            return f"{location}_param"
        if location == "body":
            return "body"
        return "value"

    return f"param_{name}" if keyword.iskeyword(name) else name


def tool_name(operation_id: str | None, method: str, path: str) -> str:
    name = snake_case(operation_id or "") or snake_case(f"{path}_{method}")
    if name[0].isdigit():
        name = f"_{name}"
    return name[:MAX_TOOL_NAME].rstrip("_")


def free_name(name: str, taken: Container[str], *, first: int, longest: int | None = None) -> str:
    """The name if it is free, else the first free one of `name_<first>`, `name_<first + 1>`, …"""
    candidate = name
    number = first
    while candidate in taken:
        ending = f"_{number}"
        candidate = (name if longest is None else name[: longest - len(ending)]) + ending
        number += 1
    return candidate


ParameterLocation = Literal["path", "query", "header", "cookie", "body"]

_LOCATIONS: dict[str, ParameterLocation] = {
    "path": "path",
    "query": "query",
    "header": "header",
    "cookie": "cookie",
}
_STYLES = {"path": "simple", "query": "form", "header": "simple", "cookie": "form", "body": "form"}
_NOT_FOR_PARAMETERS = frozenset({"accept", "content-type", "authorization"})


@dataclass(frozen=True, kw_only=True)
class ApiParameter:
    """A parameter of an operation, or a field of its body."""

    name: str
    """As the model sees it."""

    original: str
    """As the API does; empty for a whole body."""

    location: ParameterLocation
    schema: JsonObject
    is_required: bool = False
    is_json: bool = False
    """The value is encoded as JSON, whatever the style."""

    serialization: JsonObject = field(default_factory=dict[str, Any])
    """The object that holds `style`, `explode` and `allowReserved`: OpenAPI's parameter, or the
    encoding of a form's field.
    """

    @property
    def style(self) -> str:
        return self.serialization.get("style") or _STYLES[self.location]

    @property
    def explode(self) -> bool:
        return bool(self.serialization.get("explode", self.style == "form"))

    @property
    def is_nullable(self) -> bool:
        kinds: Any = self.schema.get("type")
        options: list[Any] = [*(self.schema.get("anyOf") or ()), *(self.schema.get("oneOf") or ())]
        return kinds == "null" or (isinstance(kinds, list) and "null" in kinds) or {"type": "null"} in options


@dataclass(frozen=True, kw_only=True)
class BodyFormat:
    media_type: str
    is_required: bool = False

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
    document: ApiDocument, schemas: SchemaReader, item: JsonObject, spec: JsonObject, *, path: str, keep_names: bool
) -> list[ApiParameter]:
    """Returns the operation's parameters, then those of its path item that it does not override."""
    parameters: dict[tuple[str, str], ApiParameter] = {}
    for node in [*(spec.get("parameters") or ()), *(item.get("parameters") or ())]:
        parameter = document.resolve(node)

        location = _LOCATIONS.get(str(parameter.get("in")))
        original = str(parameter.get("name") or "")
        is_ignored = location == "header" and original.lower() in _NOT_FOR_PARAMETERS
        if location is not None and not is_ignored and (original, location) not in parameters:
            content: JsonObject = parameter.get("content") or {}
            media_type: str = next(iter(content), "")
            schema = schemas.read(content[media_type].get("schema") if content else parameter.get("schema"))
            if parameter.get("description"):
                schema["description"] = parameter["description"]

            parameters[original, location] = ApiParameter(
                name=parameter_name(original, location, keep=keep_names),
                original=original,
                location=location,
                schema=schema,
                is_required=location == "path" or parameter.get("required") is True,
                is_json="json" in media_type,
                serialization=parameter,
            )

    for original in re.findall(r"{([^{}]+)}", path.partition("?")[0]):
        # Some documents declare no parameters for the variables of a path.
        name = parameter_name(original, "path", keep=keep_names)
        undeclared = ApiParameter(
            name=name, original=original, location="path", schema={"type": "string"}, is_required=True
        )
        parameters.setdefault((original, "path"), undeclared)

    return list(parameters.values())


def query_in(path: str) -> list[tuple[str, str]]:
    """Query parameters that some documents write into the path."""
    return parse_qsl(path.partition("#")[0].partition("?")[2], keep_blank_values=True)


def read_body(
    document: ApiDocument, schemas: SchemaReader, spec: JsonObject, *, keep_names: bool
) -> tuple[BodyFormat | None, list[ApiParameter]]:
    """The body's first media type, and its parameters: the properties of an object, or the whole
    body as one.
    """
    if not spec.get("requestBody"):
        return None, []

    body = document.resolve(spec["requestBody"])

    content: JsonObject = body.get("content") or {}
    if not content:
        return None, []

    media_type = next(iter(content))
    entry: JsonObject = content[media_type] or {}

    form = BodyFormat(media_type=media_type, is_required=body.get("required") is True)
    # Documents that don't say usually mean a required body, though the standard's default is optional.
    is_needed = body.get("required") is not False
    schema = _without_null(schemas.read(entry.get("schema")))
    if not _is_plain_object(schema):
        name = "array" if schema.get("type") == "array" else "body"
        if "description" not in schema and body.get("description"):
            schema["description"] = body["description"]

        body_parameter = ApiParameter(
            name=name,
            original="",
            location="body",
            schema=schema,
            is_required=is_needed,
        )
        return form, [body_parameter]

    encodings: JsonObject = entry.get("encoding") or {}

    required: list[str]
    if is_needed:
        required = schema.get("required") or []
    else:
        required = []

    fields: list[ApiParameter] = []
    for original, property_schema in cast("JsonObject", schema["properties"]).items():
        encoding: JsonObject = encodings.get(original) or {}
        fields.append(
            ApiParameter(
                name=parameter_name(original, "body", keep=keep_names),
                original=original,
                location="body",
                schema=_with_definitions(property_schema, schema.get("$defs") or {}),
                is_required=original in required,
                is_json="json" in str(encoding.get("contentType") or ""),
                serialization=encoding,
            )
        )

    return form, fields


def _with_definitions(field: JsonObject, definitions: JsonObject) -> JsonObject:
    """The schema of a body's field, which can be used without that of the body."""
    name = str(field.get("$ref") or "").removeprefix(REF)
    if name in definitions:
        beside = {key: value for key, value in field.items() if key != "$ref"}
        field = {**definitions[name], **beside}
    used = used_definitions(field, definitions)
    return {**field, "$defs": used} if used else field


def _without_null(schema: JsonObject) -> JsonObject:
    """The schema of a body without null, since such a body may be left out."""
    definitions: JsonObject = schema.get("$defs") or {}
    if len(schema.keys() - {"$defs"}) != 1:
        return schema

    for key in ("anyOf", "oneOf"):
        options = [option for option in schema.get(key) or () if option != {"type": "null"}]
        if len(options) == 1 < len(schema.get(key) or ()):
            return _with_definitions(options[0], definitions)

    return schema


def _is_plain_object(schema: JsonObject) -> bool:
    if any(key in schema for key in ("oneOf", "anyOf", "allOf")):
        return False
    kind: Any = schema.get("type")
    is_object = kind in ("object", None) or (isinstance(kind, list) and "object" in kind)
    return is_object and bool(schema.get("properties"))


METHODS = ("get", "post", "put", "delete", "patch", "head", "options", "trace")


@dataclass(frozen=True, kw_only=True)
class ApiOperation:
    """An operation of an API, as a tool calls it."""

    name: str
    operation_id: str
    description: str
    method: str
    base_url: str
    """`path` is relative to it."""

    path: str
    parameters: tuple[ApiParameter, ...] = ()
    body: BodyFormat | None = None
    auth_scheme: AuthScheme | None = None
    auth_is_optional: bool = False
    """Calls without a credential are allowed too."""

    def arguments_schema(self) -> JsonObject:
        """The schema of the arguments that a model gives."""
        definitions: JsonObject = {}
        schema: JsonObject = {
            "type": "object",
            "title": f"{self.operation_id}_Arguments",
            "properties": {
                parameter.name: join_definitions(definitions, parameter.schema) for parameter in self.parameters
            },
        }
        required = [parameter.name for parameter in self.parameters if parameter.is_required]
        if required:
            schema["required"] = required

        if definitions:
            schema["$defs"] = definitions

        return schema


def read_operations(
    document: ApiDocument,
    *,
    base_url: str | None = None,
    keep_names: bool = False,
) -> list[ApiOperation]:
    """Reads the operations in the order of the document. Raises AgentConfigError for an invalid document.

    base_url: replaces the document's servers.
    keep_names: parameters keep the names that the API gives them.
    """
    taken: set[str] = set()
    operations: list[ApiOperation] = []
    for path, item, method, spec in _operations(document):
        name = free_name(
            tool_name(spec.get("operationId"), method, path),
            taken,
            first=2,
            longest=MAX_TOOL_NAME,
        )
        taken.add(name)
        schemas = SchemaReader(document)
        parameters = read_parameters(
            document,
            schemas,
            item,
            spec,
            path=path,
            keep_names=keep_names,
        )
        body, fields = read_body(document, schemas, spec, keep_names=keep_names)
        scheme, is_optional = _security(document, spec)
        servers = spec.get("servers") or item.get("servers") or document.root.get("servers")
        operations.append(
            ApiOperation(
                name=name,
                operation_id=spec.get("operationId") or name,
                description=spec.get("description") or spec.get("summary") or item.get("summary") or "",
                method=method.upper(),
                base_url=(base_url or _server_url(document, servers)).rstrip("/"),
                path=path,
                parameters=_with_unique_names([*parameters, *fields]),
                body=body,
                auth_scheme=scheme,
                auth_is_optional=is_optional,
            )
        )

    return operations


def _operations(document: ApiDocument) -> Iterator[tuple[str, JsonObject, str, JsonObject]]:
    paths: JsonObject = document.root.get("paths") or {}
    for path, node in paths.items():
        item = document.resolve(node)
        for method in METHODS:
            if isinstance(item.get(method), dict):
                yield path, item, method, item[method]


def _with_unique_names(parameters: list[ApiParameter]) -> tuple[ApiParameter, ...]:
    taken: set[str] = set()
    unique: list[ApiParameter] = []
    for parameter in parameters:
        name = free_name(parameter.name, taken, first=0)
        taken.add(name)
        unique.append(replace(parameter, name=name))
    return tuple(unique)


def _server_url(document: ApiDocument, servers: JsonValue) -> str:
    first: JsonObject
    if servers:
        first = cast("list[JsonObject]", servers)[0]
    else:
        first = {}

    url: str = first.get("url") or "/"
    variables: JsonObject = first.get("variables") or {}
    for name, variable in variables.items():
        url = url.replace(f"{{{name}}}", str(variable.get("default", "")))

    if document.url is not None:
        url = urljoin(document.url, url)

    if not url.lower().startswith(("http://", "https://")):
        raise AgentConfigError(f"The OpenAPI document has no HTTP server URL (its server is {url!r}); pass base_url")

    return url


def _security(document: ApiDocument, spec: JsonObject) -> tuple[AuthScheme | None, bool]:
    requirements: Any = spec.get("security")
    if requirements is None:
        requirements = document.root.get("security") or []

    named = [requirement for requirement in cast("list[JsonObject]", requirements) if requirement]
    if not named:
        return None, False

    name = next(iter(named[0]))
    components: JsonObject = document.root.get("components") or {}

    schemes: JsonObject = components.get("securitySchemes") or {}
    if name not in schemes:
        raise AgentConfigError(f"The OpenAPI document requires security scheme {name!r}, which it does not define")

    try:
        scheme = wire.from_plain(document.resolve(schemes[name]), AuthScheme)
    except InvalidRequest as error:
        raise AgentConfigError(f"Security scheme {name!r} can't be read: {error.detail}") from None

    return scheme, len(named) < len(cast("list[JsonObject]", requirements))
