"""The table of endpoints as an OpenAPI 3.1 document."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any, cast

import msgspec

from greenroom.errors import GreenroomError, error_classes
from greenroom.records.base import JsonObject, OpenRecord
from greenroom.records.copy_on_write import CopyOnWriteList
from greenroom.records.event import Event
from greenroom.server.access.identity import COOKIE
from greenroom.server.endpoint import MAX_ID_BYTES, Endpoint
from greenroom.server.field_docstrings import field_docstrings
from greenroom.server.replies import MEDIA_TYPE, problem, title
from greenroom.version import __version__

_REF = "#/components/schemas/{name}"
_PROBLEM = {"$ref": _REF.format(name="Problem")}

_SECURITY: JsonObject = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "An API key, or a token of an identity provider."},
    "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    "cookie": {"type": "apiKey", "in": "cookie", "name": COOKIE, "description": "Set by `/sign-in`."},
}

_FRAME: JsonObject = {
    "type": "object",
    "description": "Each of the Server-Sent Events. The data is JSON of `x-event-schema`, unless `event` is `end` or "
    "`snapshot`.",
    "required": ["data"],
    "properties": {
        "data": {"type": "string", "contentMediaType": "application/json"},
        "id": {"type": "string"},
        "event": {"type": "string"},
    },
}

_BASE64 = "^(?:[A-Za-z0-9+/_-]{4})*(?:[A-Za-z0-9+/_-]{2}(?:==)?|[A-Za-z0-9+/_-]{3}=?)?$"
_BINARY: JsonObject = {"type": "string", "format": "binary"}
"""Either alphabet, with or without padding."""

_PATH_PATTERNS: dict[str, JsonObject] = {"version": {"pattern": "^(latest|[0-9]{1,18})$"}}

TAGS = {
    "runs": "Start, read and cancel runs of agents. A run continues when its connection drops.",
    "webhooks": "Signed HTTP requests about the states of runs, and the log of their deliveries.",
    "feedback": "Scores, labels and comments of users and services on events.",
    "versions": "Published versions of apps, their comparison, and their shares of the sessions.",
    "schedules": "Runs that the server starts by the clock, and the history of each schedule.",
    "requests": "Approvals, logins and input that waiting runs ask people for: the inbox.",
    "sessions": "Conversations, with their state and their logs.",
    "users": "All data of a user in an app: export and erasure.",
    "artifacts": "Files of a session or of a user, in versions.",
    "credentials": "Logins that users granted to tools.",
    "memory": "Long-term memory across sessions.",
    "apps": "The apps of this server.",
    "evaluation": "Evaluation sets, their cases, runs, results and metrics.",
    "editing": "The YAML files of agents, where the setting `edit` allows it.",
    "debug": "Traces of runs and graphs of agents.",
    "access": "API keys, service accounts, roles, and the permissions of the caller.",
    "budgets": "Limits of the models' tokens and cost, and their use.",
    "statistics": "Figures of runs and calls, and the load of servers, over time.",
    "audit": "The audit trail, where the setting `audit_key` switches it on.",
    "server": "The server itself.",
    "web page": "Endpoints of ADK's web page.",
    "A2A": "The protocol Agent2Agent, where the setting `gates` names it.",
    "AG-UI": "The protocol AG-UI, where the setting `gates` names it.",
    "Agent Engine": "Vertex AI Agent Engine's endpoints, where the setting `gates` names them.",
    "MCP": "The Model Context Protocol, where the setting `gates` names it.",
    "OpenAI": "OpenAI's interfaces, where the setting `gates` names them.",
    "Triggers": "Messages of Pub/Sub and events of Eventarc, where the setting `gates` names `triggers`.",
}


_RETRY_AFTER: JsonObject = {
    "Retry-After": {"description": "Seconds.", "required": True, "schema": {"type": "integer", "minimum": 1}}
}
_ERROR_HEADERS: dict[HTTPStatus, JsonObject] = {
    HTTPStatus.UNAUTHORIZED: {"WWW-Authenticate": {"required": True, "schema": {"type": "string"}}},
    HTTPStatus.TOO_MANY_REQUESTS: _RETRY_AFTER,
    HTTPStatus.SERVICE_UNAVAILABLE: _RETRY_AFTER,
}


class ProblemCause(msgspec.Struct):
    """A fault in a request."""

    type: str
    """The kind of fault."""
    loc: list[str | int]
    """The path to the fault."""
    msg: str
    """A description of the fault."""


class Problem(msgspec.Struct):
    """A problem document (RFC 9457)."""

    type: str
    """A URI that identifies the kind of problem."""
    title: str
    """The kind of problem in words."""
    status: int
    """The HTTP status."""
    detail: str
    """A description of this request's fault."""
    code: str | msgspec.UnsetType = msgspec.UNSET
    """The name of the error, to match on."""
    errors: list[ProblemCause] | msgspec.UnsetType = msgspec.UNSET
    """The single faults."""


def build_openapi(
    endpoints: Iterable[Endpoint], sockets: Iterable[Endpoint] = (), *, with_auth: bool = False
) -> JsonObject:
    """The OpenAPI document. sockets: listed under `x-websockets`, since OpenAPI can't describe
    them. with_auth: whether credentials are required; else they are optional."""
    table = tuple(endpoints)
    socket_table = tuple(sockets)
    schemas = _Schemas((*table, *socket_table))
    ids = _operation_ids(table)

    paths: JsonObject = {}
    for endpoint in table:
        method = endpoint.method.lower()
        operation = _operation(endpoint, ids[endpoint], schemas, with_auth=with_auth)
        canonical = _plain_path(endpoint.path)
        paths.setdefault(canonical, {})[method] = operation

        for alias in endpoint.aliases:
            alias_path = _plain_path(alias)
            same = {key: value for key, value in operation.items() if key != "operationId"}
            same["parameters"] = [
                parameter
                for parameter in operation["parameters"]
                if parameter["in"] != "path" or f"{{{parameter['name']}}}" in alias_path
            ]
            paths.setdefault(alias_path, {})[method] = {**same, "x-alias-of": canonical}

    return {
        "openapi": "3.1.0",
        "info": {
            "title": "greenroom",
            "version": __version__,
            "description": "Hosts agents. Compatible with clients of ADK servers; accepts camelCase and snake_case. "
            "With a default app, `/users/…` and `/app-info` are short for `/apps/{default}/users/…` and "
            "`/apps/{default}/app-info`, and runs may leave out `appName`.",
        },
        "tags": [{"name": name, "description": text} for name, text in TAGS.items()],
        "paths": paths,
        "x-websockets": [_socket(endpoint, schemas, with_auth=with_auth) for endpoint in socket_table],
        "components": {
            "schemas": schemas.components,
            "responses": _error_components(table),
            "securitySchemes": _SECURITY,
        },
    }


class _Schemas:
    """JSON Schemas of all types in the table, named ones under `components`."""

    def __init__(self, table: tuple[Endpoint, ...]) -> None:
        types: dict[str, Any] = {}
        for endpoint in table:
            for wanted in (
                endpoint.body,
                endpoint.replies,
                endpoint.streams,
                *(query.type for query in endpoint.query),
            ):
                types.setdefault(repr(wanted), wanted)

        types[repr(Problem)] = Problem
        types[repr(Event)] = Event
        structs = list(_structs(types.values()))
        schemas, self.components = msgspec.json.schema_components(
            [*types.values(), *structs], schema_hook=_schema_of_other, ref_template=_REF
        )
        self._found = dict(zip(types, schemas[: len(types)], strict=True))
        for wanted in types.values():
            if (extra := getattr(wanted, "schema_extra", None)) is not None:
                self.components[wanted.__name__] |= extra

        for struct, reference in zip(structs, schemas[len(types) :], strict=True):  # structs may share a name
            _describe(self.components[reference["$ref"].rpartition("/")[2]], struct)
        for schema in self.components.values():
            _add_base64_pattern(schema)

    def of(self, wanted: Any) -> Mapping[str, Any]:
        return _BINARY if wanted is bytes else self._found[repr(wanted)]


def _structs(types: Iterable[Any]) -> set[type[msgspec.Struct]]:
    """Collects all structs that the types contain."""
    structs: set[type[msgspec.Struct]] = set()
    pending: list[Any] = list(msgspec.inspect.multi_type_info(types))
    while pending:
        info = pending.pop()
        if isinstance(info, tuple):
            pending.extend(cast("tuple[Any, ...]", info))
        elif isinstance(info, msgspec.inspect.StructType):
            if info.cls not in structs:
                structs.add(info.cls)
                pending.extend(field.type for field in info.fields)
        elif isinstance(info, msgspec.inspect.Type):
            pending.extend(msgspec.structs.astuple(info))

    return structs


def _describe(schema: JsonObject, struct: type[msgspec.Struct]) -> None:
    """Describes a schema by the docstring of its struct, and the properties by the docstrings below the fields."""
    for base in reversed(struct.__mro__):
        descriptions = field_docstrings(base)
        for field in msgspec.structs.fields(struct):
            if field.name in descriptions:
                schema["properties"][field.encode_name]["description"] = descriptions[field.name]

    own = inspect.cleandoc(struct.__dict__.get("__doc__") or "")
    if own:
        schema["description"] = re.sub(r"(?<!\n)\n(?!\n)", " ", own)
    else:
        schema.pop("description", None)  # msgspec takes the docstring of a base


def _add_base64_pattern(schema: Any) -> None:
    if isinstance(schema, list):
        for each in cast("list[Any]", schema):
            _add_base64_pattern(each)
    elif isinstance(schema, dict):
        inner = cast("JsonObject", schema)
        if inner.get("contentEncoding") == "base64":
            inner["pattern"] = _BASE64
        for each in inner.values():
            _add_base64_pattern(each)


def _schema_of_other(wanted: Any) -> JsonObject:
    if wanted is CopyOnWriteList:  # msgspec omits the type argument; in our records it is always Event
        return {"type": "array", "items": {"$ref": _REF.format(name="Event")}}
    if issubclass(wanted, OpenRecord):
        return {"type": "object"}
    raise NotImplementedError


def _operation(endpoint: Endpoint, operation_id: str, schemas: _Schemas, *, with_auth: bool) -> JsonObject:
    operation: JsonObject = {
        "operationId": operation_id,
        "summary": endpoint.summary,
        "tags": [endpoint.tag],
        "parameters": _parameters(endpoint, schemas),
        "responses": {str(endpoint.status): _success(endpoint, schemas), **_errors(endpoint)},
    }
    if endpoint.access != "open":
        operation["security"] = _security(endpoint, with_auth=with_auth)
    if endpoint.body is not None:
        media_type = "application/octet-stream" if endpoint.body is bytes else "application/json"
        content = {media_type: {"schema": schemas.of(endpoint.body)}}
        operation["requestBody"] = {"required": not endpoint.body_is_optional, "content": content}

    return operation


def _socket(endpoint: Endpoint, schemas: _Schemas, *, with_auth: bool) -> JsonObject:
    return {
        "path": endpoint.path,
        "aliases": list(endpoint.aliases),
        "summary": endpoint.summary,
        "security": _security(endpoint, with_auth=with_auth),
        "parameters": _parameters(endpoint, schemas),
    }


def _security(endpoint: Endpoint, *, with_auth: bool) -> list[JsonObject]:
    """The alternative security schemes; without authentication, none is required."""
    schemes: list[JsonObject] = [{name: [] if endpoint.access == "any" else [endpoint.access]} for name in _SECURITY]
    return schemes if with_auth else [*schemes, {}]


def _parameters(endpoint: Endpoint, schemas: _Schemas) -> list[JsonObject]:
    parameters: list[JsonObject] = []
    for name, kind in re.findall(r"{(\w+)(:path)?}", endpoint.path):
        schema: JsonObject = {"type": "string", "maxLength": MAX_ID_BYTES, **_PATH_PATTERNS.get(name, {})}
        parameter: JsonObject = {"name": name, "in": "path", "required": True, "schema": schema}
        if kind:
            parameter["description"] = "May contain slashes."
        parameters.append(parameter)

    for query in endpoint.query:
        schema = dict(schemas.of(query.type))
        if query.default is not None:
            schema["default"] = query.default
        parameters.append({"name": query.name, "in": "query", "description": query.description, "schema": schema})

    for header in endpoint.headers:
        schema = {"type": "string"}
        if header.pattern is not None:
            schema["pattern"] = header.pattern
        parameter = {"name": header.name, "in": "header", "description": header.description, "schema": schema}
        if header.is_required:
            parameter["required"] = True
        parameters.append(parameter)

    return parameters


def _success(endpoint: Endpoint, schemas: _Schemas) -> JsonObject:
    status = HTTPStatus(endpoint.status)
    if 300 <= status < 400:
        return {"description": status.phrase, "headers": {"Location": {"schema": {"type": "string"}}}}
    schema = {"type": "string"} if endpoint.media_type == "text/html" else schemas.of(endpoint.replies)
    content: JsonObject = {} if endpoint.is_stream else {endpoint.media_type: {"schema": schema}}
    if endpoint.is_stream or endpoint.streams is not None:
        content["text/event-stream"] = {"schema": _FRAME, "x-event-schema": schemas.of(endpoint.streams or Event)}
    return {"description": status.phrase, "content": content}


def _by_status(endpoint: Endpoint) -> dict[int, list[type[GreenroomError]]]:
    by_status: dict[int, list[type[GreenroomError]]] = {}
    for error in endpoint.all_errors:
        by_status.setdefault(int(error.status), []).append(error)
    return dict(sorted(by_status.items()))


def _errors(endpoint: Endpoint) -> JsonObject:
    groups: dict[str, list[type[GreenroomError]]] = {}
    for status, errors in _by_status(endpoint).items():
        groups[str(status)] = errors
    groups["default"] = [GreenroomError]

    described: JsonObject = {}
    for status, errors in groups.items():
        if endpoint.protocol_errors is None:
            described[status] = _response_ref(_response_name(errors))
        else:
            response = _error_response(errors)
            response["content"][endpoint.protocol_errors] = {}
            described[status] = response
    return described


def _error_components(table: Iterable[Endpoint]) -> JsonObject:
    """A response for each error, and for each group of errors that share a status at an endpoint."""
    groups = [[error] for error in error_classes()]
    groups += [errors for endpoint in table for errors in _by_status(endpoint).values() if len(errors) > 1]
    return {_response_name(errors): _error_response(errors) for errors in groups}


def _error_response(errors: list[type[GreenroomError]]) -> JsonObject:
    examples = {
        error.__name__: {"value": problem(error.__name__, error.status, error.status.phrase)} for error in errors
    }
    titles = ["Any other error" if error is GreenroomError else title(error.__name__) for error in errors]
    response: JsonObject = {
        "description": " or ".join(titles),
        "content": {MEDIA_TYPE: {"schema": _PROBLEM, "examples": examples}},
    }
    headers = _ERROR_HEADERS.get(errors[0].status)
    if headers is not None and GreenroomError not in errors:
        response["headers"] = headers
    return response


def _response_name(errors: list[type[GreenroomError]]) -> str:
    return "Or".join(error.__name__ for error in errors)


def _response_ref(name: str) -> JsonObject:
    return {"$ref": f"#/components/responses/{name}"}


def _operation_ids(table: tuple[Endpoint, ...]) -> dict[Endpoint, str]:
    """Operation ids: the handler's name, with its module if the name is used twice, with the path if it has several."""
    uses = Counter(endpoint.handler.__name__ for endpoint in table)
    paths_of = Counter(endpoint.handler for endpoint in table)

    ids: dict[Endpoint, str] = {}
    for endpoint in table:
        handler = endpoint.handler
        module = handler.__module__.rpartition(".")[2]
        name = handler.__name__
        if uses[name] > 1:
            name = f"{module}_{name}"
        if paths_of[handler] > 1:
            name = re.sub(r"\W+", "_", f"{name}_{endpoint.method}{endpoint.path}").strip("_").lower()
        ids[endpoint] = name

    return ids


def _plain_path(path: str) -> str:
    return path.replace(":path}", "}")
