from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.errors import AgentConfigError
from greenroom.records.auth import AuthScheme
from greenroom.tools.openapi.document import ApiDocument
from greenroom.tools.openapi.operation import (
    METHODS,
    ApiOperation,
    free_name,
    parameter_name,
    read_operations,
    tool_name,
)

URL = "https://api.test/v1"


def operations(
    paths: dict[str, Any], *, base_url: str | None = URL, url: str | None = None, **root: Any
) -> list[ApiOperation]:
    return read_operations(ApiDocument({"openapi": "3.0.3", "paths": paths, **root}, url=url), base_url=base_url)


def one(operation: dict[str, Any], *, path: str = "/it", **root: Any) -> ApiOperation:
    (found,) = operations({path: {"post": {"operationId": "do_it", **operation}}}, **root)
    return found


def with_body(schema: Any, *, media_type: str = "application/json", **body: Any) -> dict[str, Any]:
    return {"requestBody": {"content": {media_type: {"schema": schema}}, **body}}


def names(operation: ApiOperation) -> list[tuple[str, str, str]]:
    return [(p.name, p.original, p.location) for p in operation.parameters]


def test_each_method_of_a_path_is_an_operation() -> None:
    found = operations({"/a": {method: {} for method in METHODS}})
    assert [operation.method for operation in found] == [method.upper() for method in METHODS]
    assert [operation.name for operation in found] == [f"a_{method}" for method in METHODS]


@pytest.mark.parametrize(
    ("operation_id", "name"),
    [
        ("listPets", "list_pets"),
        ("HTTPServerStatus", "http_server_status"),
        ("list-all.pets", "list_all_pets"),
        ("a" * 80, "a" * 60),
        ("2fa", "_2fa"),
        (None, "pets_pet_id_get"),
        ("寿司", "pets_pet_id_get"),
    ],
)
def test_tools_are_named_after_the_operation_or_its_path(operation_id: str | None, name: str) -> None:
    assert tool_name(operation_id, "get", "/pets/{petId}") == name


def test_operations_of_one_name_are_numbered() -> None:
    found = operations(
        {
            f"/{n}": {"get": {"operationId": operation_id}}
            for n, operation_id in enumerate(["do", "Do", "do_2", "x" * 60, "x" * 70])
        }
    )
    assert [operation.name for operation in found] == ["do", "do_2", "do_2_2", "x" * 60, "x" * 58 + "_2"]


def test_parameters_of_the_path_count_unless_the_operation_has_them() -> None:
    path = {
        "parameters": [
            {"name": "limit", "in": "query", "description": "of all"},
            {"name": "trace", "in": "header"},
        ],
        "get": {
            "parameters": [
                {"name": "limit", "in": "query", "description": "of this"},
                {"name": "limit", "in": "header"},
            ]
        },
    }
    (found,) = operations({"/a": path})
    assert names(found) == [("limit", "limit", "query"), ("limit_0", "limit", "header"), ("trace", "trace", "header")]
    assert found.parameters[0].schema["description"] == "of this"


@pytest.mark.parametrize(
    ("original", "place", "name"),
    [
        ("petId", "path", "pet_id"),
        ("X-Request-ID", "header", "x_request_id"),
        ("class", "query", "param_class"),
        ("", "body", "body"),
        ("$", "query", "query_param"),
        ("$", "path", "path_param"),
        ("$", "header", "header_param"),
        ("$", "cookie", "cookie_param"),
        ("$", "elsewhere", "value"),
    ],
)
def test_parameters_have_names_that_python_could_use(original: str, place: str, name: str) -> None:
    assert parameter_name(original, place) == name


def test_original_names_are_kept_on_demand() -> None:
    document = ApiDocument({"openapi": "3.0.3", "paths": {"/a/{petId}": {"get": {}}}})
    (found,) = read_operations(document, base_url=URL, keep_names=True)
    assert names(found) == [("petId", "petId", "path")]


def test_names_that_clash_are_numbered() -> None:
    parameters = [
        {"name": name, "in": place}
        for name, place in [("id", "query"), ("id", "header"), ("Id", "cookie"), ("id_0", "query")]
    ]
    found = one({"parameters": parameters, **with_body({"type": "object", "properties": {"id": {}}})})
    assert [p.name for p in found.parameters] == ["id", "id_0", "id_1", "id_0_0", "id_2"]


@given(st.lists(st.text(max_size=8)), st.sampled_from(["path", "query", "header", "cookie", "body"]))
def test_names_are_always_unique_words(originals: list[str], place: str) -> None:
    taken: set[str] = set()
    for original in originals:
        name = free_name(parameter_name(original, place), taken, first=0)
        assert re.fullmatch(r"[a-z0-9_]+", name)
        assert name not in taken
        taken.add(name)


def test_the_fields_of_a_body_become_parameters() -> None:
    schema = {
        "type": "object",
        "required": ["petName"],
        "properties": {"petName": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}}},
    }
    found = one(with_body(schema))
    assert names(found) == [("pet_name", "petName", "body"), ("tags", "tags", "body")]
    assert [p.is_required for p in found.parameters] == [True, False]


@pytest.mark.parametrize(
    ("schema", "name"),
    [
        ({"type": "array", "items": {"type": "string"}}, "array"),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, "body"),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "body"),
        ({"allOf": [{"type": "object", "properties": {"a": {}}}]}, "body"),
        ({"type": "object", "additionalProperties": True}, "body"),
        ({"type": "string"}, "body"),
        ({}, "body"),
    ],
)
def test_other_bodies_are_one_parameter(schema: dict[str, Any], name: str) -> None:
    found = one(with_body(schema))
    assert names(found) == [(name, "", "body")]
    assert found.arguments_schema()["properties"] == {name: schema}


def test_a_body_that_may_be_null_has_fields_too() -> None:
    schema = {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"a": {}}}]}
    assert names(one(with_body(schema))) == [("a", "a", "body")]


def test_an_optional_body_has_no_required_fields() -> None:
    schema = {"type": "object", "required": ["a"], "properties": {"a": {}}}
    assert "required" not in one(with_body(schema, required=False)).arguments_schema()
    assert one(with_body(schema)).arguments_schema()["required"] == ["a"]
    assert one(with_body(schema, required=True)).arguments_schema()["required"] == ["a"]


def test_only_the_first_media_type_counts() -> None:
    content = {
        "text/plain": {"schema": {"type": "string"}},
        "application/json": {"schema": {"type": "object", "properties": {"a": {}}}},
    }
    found = one({"requestBody": {"content": content}})
    assert names(found) == [("body", "", "body")]
    assert found.body is not None
    assert found.body.media_type == "text/plain"


def test_path_parameters_are_required_even_when_nobody_says_so() -> None:
    found = one({"parameters": [{"name": "a", "in": "path", "schema": {"type": "integer"}}]}, path="/x/{a}/{b}")
    assert names(found) == [("a", "a", "path"), ("b", "b", "path")]
    assert found.arguments_schema()["required"] == ["a", "b"]


def test_headers_that_the_standard_reserves_are_no_parameters() -> None:
    reserved = [
        {"name": name, "in": "header"} for name in ("Accept", "Content-Type", "Authorization", "Accept-Language")
    ]
    assert names(one({"parameters": reserved})) == [("accept_language", "Accept-Language", "header")]


def test_the_declared_schema_is_titled_after_the_operation() -> None:
    parameter = {
        "name": "max",
        "in": "query",
        "description": "How many.",
        "required": True,
        "schema": {"type": "integer", "default": 3},
    }
    assert one({"operationId": "listPets", "parameters": [parameter]}).arguments_schema() == {
        "type": "object",
        "title": "listPets_Arguments",
        "properties": {"max": {"type": "integer", "default": 3, "description": "How many."}},
        "required": ["max"],
    }


@pytest.mark.parametrize(
    ("texts", "description"),
    [({"description": "Long.", "summary": "Short."}, "Long."), ({"summary": "Short."}, "Short."), ({}, "")],
)
def test_the_description_comes_before_the_summary(texts: dict[str, str], description: str) -> None:
    assert one(texts).description == description


@pytest.mark.parametrize(
    ("servers", "url", "base"),
    [
        ([{"url": "https://a.test/v1/"}, {"url": "https://b.test"}], None, "https://a.test/v1"),
        ([{"url": "https://{region}.a.test", "variables": {"region": {"default": "eu"}}}], None, "https://eu.a.test"),
        ([{"url": "/v2"}], "https://a.test/docs/openapi.json", "https://a.test/v2"),
        ([{"url": "v2"}], "https://a.test/docs/openapi.json", "https://a.test/docs/v2"),
        (None, "https://a.test/docs/openapi.json", "https://a.test"),
    ],
)
def test_the_first_server_is_called(servers: Any, url: str | None, base: str) -> None:
    assert one({}, base_url=None, url=url, servers=servers).base_url == base


def test_a_path_or_an_operation_may_have_its_own_server() -> None:
    paths = {"/a": {"servers": [{"url": "https://a.test"}], "get": {}, "put": {"servers": [{"url": "https://b.test"}]}}}
    found = operations(paths, base_url=None, servers=[{"url": "https://c.test"}])
    assert [operation.base_url for operation in found] == ["https://a.test", "https://b.test"]


@pytest.mark.parametrize("server", ["/v1", "ftp://a.test", "file:///etc"])
def test_a_document_without_a_server_to_call_is_refused(server: str) -> None:
    with pytest.raises(AgentConfigError, match="base_url"):
        one({}, base_url=None, servers=[{"url": server}])


SCHEMES = {
    "securitySchemes": {
        "key": {"type": "apiKey", "in": "header", "name": "X-Key"},
        "login": {"type": "http", "scheme": "basic"},
    }
}
KEY = AuthScheme(type="apiKey", in_="header", name="X-Key")
LOGIN = AuthScheme(type="http", scheme="basic")


@pytest.mark.parametrize(
    ("operation", "root", "expected"),
    [
        (None, None, (None, False)),
        (None, [{"key": []}], (KEY, False)),
        ([{"login": []}, {"key": []}], [{"key": []}], (LOGIN, False)),
        ([], [{"key": []}], (None, False)),
        ([{}], [{"key": []}], (None, False)),
        ([{}, {"key": []}], None, (KEY, True)),
        ([{"key": [], "login": []}], None, (KEY, False)),
    ],
)
def test_the_first_scheme_of_the_operation_or_the_document_counts(operation: Any, root: Any, expected: Any) -> None:
    spec = {} if operation is None else {"security": operation}
    (found,) = operations({"/it": {"get": spec}}, components=SCHEMES, security=root)
    assert (found.auth_scheme, found.auth_is_optional) == expected


def test_a_scheme_that_is_not_there_is_refused() -> None:
    with pytest.raises(AgentConfigError, match="'key'"):
        one({"security": [{"key": []}]})
