"""The operations of an OpenAPI document, each with all that a call of it needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import urljoin

from greenroom.errors import AgentConfigError, InvalidRequest
from greenroom.records import wire
from greenroom.records.auth import AuthScheme
from greenroom.records.base import JsonObject, JsonValue
from greenroom.tools.openapi.document import ApiDocument
from greenroom.tools.openapi.json_schema import SchemaReader
from greenroom.tools.openapi.naming import MAX_TOOL_NAME, free_name, tool_name
from greenroom.tools.openapi.parameters import ApiParameter, BodyFormat, read_body, read_parameters

METHODS = ("get", "post", "put", "delete", "patch", "head", "options", "trace")


@dataclass(frozen=True, kw_only=True)
class Operation:
    """base_url: where `path` begins. returns: schema of the smallest 2xx reply.

    auth_is_optional: a call without a credential is allowed too. extensions: its `x-…` keys.
    """

    name: str
    operation_id: str
    description: str
    method: str
    base_url: str
    path: str
    parameters: tuple[ApiParameter, ...] = ()
    body: BodyFormat | None = None
    returns: JsonObject | None = None
    auth_scheme: AuthScheme | None = None
    auth_is_optional: bool = False
    extensions: JsonObject = field(default_factory=dict[str, Any])

    def arguments_schema(self) -> JsonObject:
        """What a model has to give."""
        schema: JsonObject = {
            "type": "object",
            "title": f"{self.operation_id}_Arguments",
            "properties": {parameter.name: parameter.schema for parameter in self.parameters},
        }
        required = [parameter.name for parameter in self.parameters if parameter.is_required]
        return {**schema, "required": required} if required else schema


def read_operations(document: ApiDocument, *, base_url: str | None = None, keep_names: bool = False) -> list[Operation]:
    """In the order of the document. Raises AgentConfigError for what can't be made sense of.

    base_url: in place of the document's servers. keep_names: parameters are called what the API calls them.
    """
    taken: set[str] = set()
    found: list[Operation] = []
    for path, item, method, spec in _operations(document):
        name = free_name(tool_name(spec.get("operationId"), method, path), taken, first=2, longest=MAX_TOOL_NAME)
        taken.add(name)
        schemas = SchemaReader(document)
        parameters = read_parameters(document, schemas, item, spec, path=path, keep_names=keep_names)
        body, fields = read_body(document, schemas, spec, keep_names=keep_names)
        scheme, is_optional = _security(document, spec)
        servers = spec.get("servers") or item.get("servers") or document.root.get("servers")
        found.append(
            Operation(
                name=name,
                operation_id=spec.get("operationId") or name,
                description=spec.get("description") or spec.get("summary") or item.get("summary") or "",
                method=method.upper(),
                base_url=(base_url or _server_url(document, servers)).rstrip("/"),
                path=path,
                parameters=_with_unique_names([*parameters, *fields]),
                body=body,
                returns=_returned(document, spec),
                auth_scheme=scheme,
                auth_is_optional=is_optional,
                extensions={key: value for key, value in spec.items() if key.startswith("x-")},
            )
        )
    return found


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
        unique.append(parameter.renamed(name))
    return tuple(unique)


def _server_url(document: ApiDocument, servers: JsonValue) -> str:
    first: JsonObject = cast("list[JsonObject]", servers)[0] if servers else {}
    url: str = first.get("url") or "/"
    variables: JsonObject = first.get("variables") or {}
    for name, variable in variables.items():
        url = url.replace(f"{{{name}}}", str(variable.get("default", "")))
    if document.url is not None:
        url = urljoin(document.url, url)
    if not url.lower().startswith(("http://", "https://")):
        raise AgentConfigError(
            f"The OpenAPI document names no server that can be called (its server is {url!r}); give base_url"
        )
    return url


def _returned(document: ApiDocument, spec: JsonObject) -> JsonObject | None:
    responses: JsonObject = spec.get("responses") or {}
    successes = sorted(code for code in responses if len(code) == 3 and code.startswith("2"))
    if not successes:
        return None
    content: JsonObject = document.resolve(responses[successes[0]]).get("content") or {}
    first = cast("JsonObject", next(iter(content.values()), None) or {})
    return SchemaReader(document).read(first["schema"]) if "schema" in first else None


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
        raise AgentConfigError(f"The OpenAPI document asks for security scheme {name!r}, which it does not have")
    try:
        scheme = wire.from_plain(document.resolve(schemes[name]), AuthScheme)
    except InvalidRequest as error:
        raise AgentConfigError(f"Security scheme {name!r} can't be read: {error.detail}") from None
    return scheme, len(named) < len(cast("list[JsonObject]", requirements))
