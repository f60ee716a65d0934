"""Converts API discovery documents to OpenAPI 3.

Source of the format: the reference of Google's API Discovery Service, `RestDescription`, v1. Names and shapes of the
result are those of ADK 2.13, so that models see the same tools:

    {"rootUrl": "https://x.googleapis.com/", "servicePath": "v1/", "resources": {"notes": {"methods": {"get": {
        "id": "x.notes.get", "httpMethod": "GET", "path": "notes/{noteId}", "parameters": {…}}}}}}

becomes the server `https://x.googleapis.com/v1` and the operation `x.notes.get` at `GET /notes/{noteId}`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from greenroom.errors import AgentConfigError
from greenroom.records.base import JsonObject

_ANY_TYPE = ("object", "array", "string", "number", "boolean", "null")
_KEPT_OF_SCHEMAS = ("format", "enum", "description", "pattern", "default")
_KEPT_OF_PARAMETERS = ("enum", "format", "default", "pattern")


def to_openapi(discovery: JsonObject) -> JsonObject:
    """Raises AgentConfigError for anything but a discovery document of a REST API."""
    root_url = discovery.get("rootUrl")
    if not isinstance(root_url, str) or not root_url:
        raise AgentConfigError("Not a discovery document of a REST API: it has no rootUrl")

    server = root_url + (discovery.get("servicePath") or "")
    return {
        "openapi": "3.0.0",
        "info": {"title": discovery.get("title") or "", "version": discovery.get("version") or ""},
        "servers": [{"url": server.rstrip("/")}],
        "paths": _paths(discovery),
        "components": {"schemas": {name: _schema(schema) for name, schema in _objects(discovery, "schemas")}},
    }


def scopes_of(discovery: JsonObject) -> list[str]:
    """The OAuth scopes of the API, in the order of the document."""
    return list(_object(_object(_object(discovery, "auth"), "oauth2"), "scopes"))


def _paths(discovery: JsonObject) -> JsonObject:
    methods = [method for _, resource in _objects(discovery, "resources") for method in _methods(resource)]
    methods += [method for _, method in _objects(discovery, "methods")]

    paths: JsonObject = {}
    for method in methods:
        path: str = method.get("flatPath") or method.get("path") or "/"
        if not path.startswith("/"):
            path = f"/{path}"
        verb: str = method.get("httpMethod") or "GET"
        paths.setdefault(path, {})[verb.lower()] = _operation(method, path)
    return paths


def _methods(resource: JsonObject) -> Iterator[JsonObject]:
    """Yields the resource's own methods, then those of nested resources."""
    for _, method in _objects(resource, "methods"):
        yield method
    for _, nested in _objects(resource, "resources"):
        yield from _methods(nested)


def _operation(method: JsonObject, path: str) -> JsonObject:
    in_path = [segment[1:-1] for segment in path.split("/") if segment.startswith("{") and segment.endswith("}")]
    parameters: list[JsonObject] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in in_path
    ]
    for name, parameter in _objects(method, "parameters"):
        if name not in in_path:
            parameters.append(_parameter(name, parameter))

    operation: JsonObject = {
        "operationId": method.get("id") or "",
        "description": method.get("description") or "",
        "parameters": parameters,
    }
    body = _object(method, "request").get("$ref")
    if body:
        schema = {"$ref": _reference(body)}
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return operation


def _parameter(name: str, parameter: JsonObject) -> JsonObject:
    schema: JsonObject = {"type": parameter.get("type") or "string"}
    schema |= {key: parameter[key] for key in _KEPT_OF_PARAMETERS if key in parameter}
    return {
        "name": name,
        "in": parameter.get("location") or "query",
        "description": parameter.get("description") or "",
        "required": parameter.get("required") is True,
        "schema": schema,
    }


def _schema(schema: JsonObject) -> JsonObject:
    converted: JsonObject = {}
    kind = schema.get("type")
    if kind == "any":
        converted["oneOf"] = [{"type": name} for name in _ANY_TYPE]
    elif kind is not None:
        converted["type"] = kind

    if kind == "object" and "properties" in schema:
        properties = list(_objects(schema, "properties"))
        converted["properties"] = {name: _schema(field) for name, field in properties}
        required = [name for name, field in properties if field.get("required") is True]
        if required:
            converted["required"] = required
    elif kind == "array" and "items" in schema:
        converted["items"] = _schema(_object(schema, "items"))

    if "$ref" in schema:
        converted["$ref"] = _reference(schema["$ref"])
    return converted | {key: schema[key] for key in _KEPT_OF_SCHEMAS if key in schema}


def _object(node: JsonObject, key: str) -> JsonObject:
    """The object at a key, empty when there is none. Raises AgentConfigError for a value of another type."""
    value = node.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise AgentConfigError(f"The discovery document can't be read: {key!r} is not an object")
    return cast("JsonObject", value)


def _objects(node: JsonObject, key: str) -> Iterator[tuple[str, JsonObject]]:
    """The objects in the object at a key, by their names."""
    named = _object(node, key)
    for name in named:
        yield name, _object(named, name)


def _reference(name: str) -> str:
    return f"#/components/schemas/{name.removeprefix('#')}"
