"""Tools from an OpenAPI document, and their requests: in real runs, against an API on a real port."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.responses import JSONResponse

from greenroom.errors import AgentConfigError
from greenroom.tools.openapi.operation import METHODS
from greenroom.tools.openapi.toolset import OpenAPIToolset
from tests.tools.one_call import call_once, calls_in_a_run, declaration, offered
from tests.tools.openapi.conftest import Api


def in_query(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "in": "query", **more}


def with_body(**formats: Any) -> dict[str, Any]:
    """formats: schemas by media type, with `_` for the slash."""
    content = {media_type.replace("_", "/"): {"schema": schema} for media_type, schema in formats.items()}
    return {"requestBody": {"required": True, "content": content}}


async def test_each_method_of_a_path_is_a_tool_that_makes_such_a_request(api: Api) -> None:
    toolset = api.toolset({"/a": {method: {} for method in METHODS}})
    names = [f"a_{method}" for method in ("get", "post", "put", "delete", "patch", "head", "options", "trace")]
    assert list(await offered(toolset)) == names
    await calls_in_a_run(toolset, *[(name, {}) for name in names])
    assert [seen.method for seen in api.seen] == [name[2:].upper() for name in names]
    assert {seen.path for seen in api.seen} == {"/a"}


async def test_tools_are_named_after_their_operation_or_path_and_numbered(api: Api) -> None:
    paths = {
        f"/{n}": {"get": {"operationId": operation_id}}
        for n, operation_id in enumerate(["listPets", "HTTPServerStatus", "do", "Do", "x" * 80, "x" * 70])
    }
    toolset = api.toolset({**paths, "/pets/{petId}": {"get": {}}})
    assert list(await offered(toolset)) == [
        "list_pets", "http_server_status", "do", "do_2", "x" * 60, "x" * 58 + "_2", "pets_pet_id_get",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("texts", "expected"),
    [({"description": "Long.", "summary": "Short."}, "Long."), ({"summary": "Short."}, "Short."), ({}, "")],
)
async def test_the_description_comes_before_the_summary(api: Api, texts: dict[str, str], expected: str) -> None:
    assert ((await declaration(api.tool(texts))).description or "") == expected


async def test_parameters_have_names_of_their_own_and_go_where_the_document_says(api: Api) -> None:
    path = {
        "parameters": [in_query("limit", description="of all"), {"name": "X-Trace", "in": "header"}],
        "get": {
            "operationId": "do_it",
            "parameters": [
                in_query("limit", description="of this"),
                {"name": "limit", "in": "header"},
                in_query("class"),
                in_query("$"),
                {"name": "$", "in": "cookie"},
                {"name": "maxAge", "in": "query", "required": True},
            ],
        },
    }
    toolset = api.toolset({"/a/{$}": path})
    schema = (await declaration(toolset)).json_schema()
    assert schema["title"] == "do_it_Arguments"
    assert list(schema["properties"]) == [
        "limit", "limit_0", "param_class", "query_param", "cookie_param", "max_age", "x_trace", "path_param",
    ]  # fmt: skip
    assert schema["properties"]["limit"]["description"] == "of this"
    assert schema["required"] == ["max_age", "path_param"]
    args = {name: f"v{number}" for number, name in enumerate(schema["properties"])}
    await call_once(toolset, "do_it", args)
    assert (api.last.path, api.last.query) == ("/a/v7", "limit=v0&class=v2&%24=v3&maxAge=v5")
    assert (api.last.headers["limit"], api.last.headers["x-trace"]) == ("v1", "v6")
    assert api.last.headers["cookie"] == "%24=v4"


async def test_the_apis_own_names_are_kept_on_demand(api: Api) -> None:
    toolset = api.toolset(
        {"/it": {"get": {"operationId": "doIt", "parameters": [in_query("maxAge")]}}}, preserve_property_names=True
    )
    assert list((await declaration(toolset)).json_schema()["properties"]) == ["maxAge"]
    await call_once(toolset, "do_it", {"maxAge": 3})
    assert api.last.query == "maxAge=3"


WHOLE = {"type": "object", "properties": {"a": {"type": "string"}}}


@pytest.mark.parametrize(
    ("schema", "name", "value", "sent"),
    [
        ({"type": "array", "items": {"type": "string"}}, "array", ["x"], b'["x"]'),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, "body", "x", b'"x"'),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "body", 3, b"3"),
        ({"allOf": [WHOLE]}, "body", {"a": "x"}, b'{"a":"x"}'),
        ({**WHOLE, "oneOf": [WHOLE]}, "body", {"a": "x"}, b'{"a":"x"}'),
        ({**WHOLE, "anyOf": [WHOLE]}, "body", {"a": "x"}, b'{"a":"x"}'),
        ({**WHOLE, "allOf": [WHOLE]}, "body", {"a": "x"}, b'{"a":"x"}'),
        ({}, "body", {"b": 1}, b'{"b":1}'),
        (WHOLE, "a", "x", b'{"a":"x"}'),
    ],
)
async def test_a_body_is_one_parameter_or_one_for_each_property(
    api: Api, schema: Any, name: str, value: Any, sent: bytes
) -> None:
    operation = with_body(application_json=schema)
    assert list((await declaration(api.tool(operation, method="post"))).json_schema()["properties"]) == [name]
    await api.call(operation, {name: value}, method="post")
    assert api.last.body == sent


async def test_only_the_first_media_type_of_a_body_counts(api: Api) -> None:
    operation = with_body(text_plain={"type": "string"}, application_json=WHOLE)
    await api.call(operation, {"body": "hi"}, method="post")
    assert (api.last.body, api.last.headers["content-type"]) == (b"hi", "text/plain")


async def test_the_first_server_of_the_document_is_called(api: Api) -> None:
    root = {"openapi": "3.0.3", "info": {}, "paths": {"/it": {"get": {"operationId": "do_it"}}}}
    servers = [{"url": f"{api.url}/v1"}, {"url": "http://127.0.0.1:9/other"}]
    toolset = OpenAPIToolset(spec_dict={**root, "servers": servers}, allow_private_network_access=True)
    await call_once(toolset, "do_it")
    assert api.last.path == "/v1/it"


async def test_references_within_the_document_are_followed_and_others_refused(api: Api) -> None:
    pet: dict[str, Any] = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "friend": {"$ref": "#/components/schemas/Pet"}},
    }
    toolset = api.toolset(
        {"/it": {"post": {"operationId": "do_it", **with_body(application_json={"$ref": "#/components/schemas/Pet"})}}},
        components={"schemas": {"Pet": pet}},
    )
    schema = (await declaration(toolset)).json_schema()
    defined = {**pet, "properties": {"name": {"type": "string"}, "friend": {"$ref": "#/$defs/Pet"}}}
    assert schema["properties"] == {"name": {"type": "string"}, "friend": defined}
    assert schema["$defs"] == {"Pet": defined}
    with pytest.raises(AgentConfigError, match="only references within the document are supported"):
        api.toolset({"/it": {"get": {"parameters": [{"$ref": "https://elsewhere.test/p.json"}]}}})


@pytest.mark.parametrize("kind", ["json", "yaml"])
async def test_a_document_may_be_a_text(api: Api, kind: Any) -> None:
    texts = {
        "json": f'{{"openapi": "3.0.3", "servers": [{{"url": "{api.url}"}}], "paths": {{"/it": {{"get": {{}}}}}}}}',
        "yaml": f"openapi: 3.0.3\nservers: [{{url: '{api.url}'}}]\npaths:\n  /it:\n    get: {{}}\n",
    }
    toolset = OpenAPIToolset(spec_str=texts[kind], spec_str_type=kind, allow_private_network_access=True)
    api.answers = [JSONResponse({"ok": True})]
    assert (await call_once(toolset, "it_get")).response == {"ok": True}
