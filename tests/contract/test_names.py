"""Each name of the service's contract is found where names.toml says, so that none is lost."""

from __future__ import annotations

import dataclasses
import inspect
import re
import tomllib
from collections.abc import Callable, Iterator
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

import greenroom
from greenroom.apps.yaml_config.schema import config_schema
from greenroom.errors import GreenroomError
from greenroom.records.base import JsonObject
from greenroom.server.configuration import all_settings
from greenroom.server.endpoints import ENDPOINTS, SOCKETS
from greenroom.server.openapi import build_openapi
from tests.server.conftest import Serve
from tests.server.conftest import connection_limits as connection_limits
from tests.server.conftest import serve as serve
from tests.server.conftest import store as store

TABLE = Path(__file__).with_name("names.toml")


class Named(NamedTuple):
    section: str
    name: str
    place: str


def named() -> Iterator[Named]:
    for section, names in tomllib.loads(TABLE.read_text()).items():
        for name, places in names.items():
            yield from (Named(section, name, place) for place in places)


@pytest.mark.parametrize("section", sorted({one.section for one in named()}))
def test_every_name_is_found(section: str) -> None:
    missing = [f"{one.name}: {one.place}" for one in named() if one.section == section and not is_found(one.place)]
    assert missing == []


@pytest.mark.parametrize(
    "place",
    [
        "NoSuchName", "Session.no_such_field", "RunConfig(no_such_parameter)", "BasePlugin.close(no_such_parameter)",
        "StreamingMode.NO_SUCH_MEMBER", "State.NO_PREFIX", "errors.NoSuchError", "errors.annotations",
        "wire Session.noSuchField", "wire NoSuchSchema.id", "endpoint PATCH /run", "endpoint POST /no_such_path",
        "query POST /run no_such_parameter", "yaml LlmAgentConfig.noSuchKey", "setting no.such.setting",
        "module greenroom.version.no_such_name", "module greenroom.no_such_module.Name", "ManagedAgent",
    ],
)  # fmt: skip
def test_a_name_that_is_not_there_is_not_found(place: str) -> None:
    assert not is_found(place)


def is_found(place: str) -> bool:
    first, _, after = place.partition(" ")
    finders: dict[str, Callable[[str], bool]] = {
        "wire": partial(_in_schemas, _openapi()["components"]["schemas"]),
        "yaml": partial(_in_schemas, _yaml()["$defs"]),
        "endpoint": _is_endpoint,
        "query": _is_query,
        "setting": lambda name: name in {setting.key for setting in all_settings()},
        "module": _in_module,
    }
    if first in finders:
        return finders[first](after)
    if place.startswith("errors."):
        return _is_error(place.removeprefix("errors."))
    return _is_public(place)


def _is_public(place: str) -> bool:
    path, parameters = _split(place)
    name, *members = path.split(".")
    if name not in greenroom.__all__:
        return False
    return _has(getattr(greenroom, name), members, parameters)


def _in_module(place: str) -> bool:
    path, parameters = _split(place)
    steps = path.split(".")
    for count in range(len(steps) - 1, 0, -1):
        try:
            module = import_module(".".join(steps[:count]))
        except ImportError:
            continue
        return _has(module, steps[count:], parameters)
    return False


def _is_error(name: str) -> bool:
    found = getattr(greenroom.errors, name, None)
    return isinstance(found, type) and issubclass(found, GreenroomError)


def _split(place: str) -> tuple[str, list[str] | None]:
    """A path, and the names in its parentheses, if it has any."""
    match = re.fullmatch(r"([\w.]+)(?:\(([\w, ]*)\))?", place)
    assert match is not None, place
    path, parameters = match.groups()
    return path, None if parameters is None else [name for name in parameters.split(", ") if name]


def _has(value: Any, members: list[str], parameters: list[str] | None) -> bool:
    for position, member in enumerate(members):
        is_last = position == len(members) - 1
        if is_last and member in _fields(value):
            return parameters is None
        if not hasattr(value, member):
            return False
        value = getattr(value, member)
    if parameters is None:
        return True
    known = inspect.signature(value).parameters
    return callable(value) and all(name in known or name in _fields(value) for name in parameters)


def _fields(value: Any) -> set[str]:
    """Fields of a record, or of a class that declares them."""
    if not isinstance(value, type):
        return set()
    if issubclass(value, msgspec.Struct):
        return {field.name for field in msgspec.structs.fields(value)}
    return {field.name for field in dataclasses.fields(value)} if dataclasses.is_dataclass(value) else set()


@cache
def _openapi() -> JsonObject:
    return build_openapi(ENDPOINTS, SOCKETS, with_auth=True)


@cache
def _yaml() -> JsonObject:
    return config_schema()


def _in_schemas(schemas: JsonObject, place: str) -> bool:
    schema, _, name = place.partition(".")
    return schema in schemas and name in schemas[schema].get("properties", {})


def _is_endpoint(place: str) -> bool:
    return any(place in _routes(endpoint) for endpoint in (*ENDPOINTS, *SOCKETS))


def _is_query(place: str) -> bool:
    route, _, name = place.rpartition(" ")
    return any(
        route in _routes(endpoint) and name in {query.name for query in endpoint.query}
        for endpoint in (*ENDPOINTS, *SOCKETS)
    )


def _routes(endpoint: Any) -> set[str]:
    return {f"{endpoint.method} {path.replace(':path}', '}')}" for path in (endpoint.path, *endpoint.aliases)}


async def test_the_root_leads_to_the_development_ui(serve: Serve) -> None:
    """The rows of the contract that are no endpoints of the table."""
    server = await serve()
    for method in ("GET", "HEAD"):
        reply = await server.client.request(method, "/")
        assert (reply.status_code // 100, reply.headers["location"]) == (3, "/dev-ui/")
    page = await server.client.get("/dev-ui", follow_redirects=True)
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
