from __future__ import annotations

import asyncio
import email
import json
from email import policy
from typing import Any

import httpx
import pytest
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response

from greenroom.invocation.user_context import ReadonlyContext, ToolContext
from greenroom.tools.openapi.rest_api_tool import MAX_ERROR_CHARACTERS
from greenroom.tools.web import http_client
from greenroom.version import __version__
from tests.tools.openapi.conftest import Api, Seen


def parameters(*given: tuple[str, str] | dict[str, Any]) -> dict[str, Any]:
    return {"parameters": [one if isinstance(one, dict) else {"name": one[0], "in": one[1]} for one in given]}


def body(schema: Any, media_type: str = "application/json", **entry: Any) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {media_type: {"schema": schema, **entry}}}}


def fields(**schemas: Any) -> dict[str, Any]:
    return {"type": "object", "properties": schemas}


async def test_each_parameter_goes_to_its_place(api: Api) -> None:
    operation = parameters(
        ("petId", "path"),
        ("maxAge", "query"),
        ("X-Trace", "header"),
        ("session", "cookie"),
        {"name": "filter", "in": "query", "content": {"application/json": {"schema": {"type": "object"}}}},
    ) | body(fields(petName={"type": "string"}, tags={"type": "array"}))
    args = {
        "pet_id": "a/b",
        "max_age": 3,
        "x_trace": "t é",
        "session": "s;1",
        "filter": {"a": 1},
        "pet_name": "Rex",
        "tags": ["x"],
        "unknown": "dropped",
    }
    assert await api.call(operation, args, method="post", path="/pets/{petId}/x") == {}
    seen = api.last
    assert (seen.method, seen.path) == ("POST", "/pets/a%2Fb/x")
    assert seen.query == "maxAge=3&filter=%7B%22a%22%3A1%7D"
    assert seen.headers["x-trace"].encode("latin-1").decode() == "t é"
    assert seen.headers["cookie"] == "session=s%3B1"
    assert seen.headers["content-type"] == "application/json"
    assert json.loads(seen.body) == {"petName": "Rex", "tags": ["x"]}
    assert seen.headers["user-agent"] == f"greenroom/{__version__} (tool: do_it)"


async def test_a_query_in_the_path_is_sent_too(api: Api) -> None:
    await api.call(parameters(("b", "query")), {"b": "2"}, path="/it?a=1%2F&c=#list")
    assert (api.last.path, api.last.query) == ("/it", "a=1%2F&c=&b=2")


async def test_only_required_parameters_get_their_default(api: Api) -> None:
    operation = parameters(
        {"name": "a", "in": "query", "required": True, "schema": {"type": "integer", "default": 5}},
        {"name": "b", "in": "query", "schema": {"type": "integer", "default": 6}},
    )
    await api.call(operation, {})
    assert api.last.query == "a=5"
    await api.call(operation, {"a": None, "b": 7.0})
    assert api.last.query == "a=5&b=7"


async def test_null_is_only_sent_where_it_means_something(api: Api) -> None:
    operation = body(fields(a={"type": "string"}, b={"type": "string", "nullable": True}))
    await api.call(operation, {"a": None, "b": None}, method="post")
    assert json.loads(api.last.body) == {"b": None}


async def test_missing_mandatory_arguments_are_reported(api: Api) -> None:
    operation = parameters({"name": "petId", "in": "query", "required": True}, ("b", "query"))
    answer = await api.call(operation, {"b": 1})
    assert answer == {
        "error": "do_it was not called, because these mandatory arguments are missing:\npet_id\n"
        "Call it again with all of them."
    }
    assert api.seen == []


async def test_dot_segments_are_refused(api: Api) -> None:
    answer = await api.call({}, {"p": "../admin"}, path="/it/{p}")
    assert answer["error"].startswith("do_it was not called")
    assert api.seen == []


async def test_a_required_json_body_without_fields_is_an_empty_object(api: Api) -> None:
    await api.call(body(fields(a={})), {}, method="post")
    assert api.last.body == b"{}"


@pytest.mark.parametrize(
    ("schema", "media_type", "args", "sent"),
    [
        ({"type": "array", "items": {"type": "integer"}}, "application/json", {"array": [1, 2.0]}, b"[1,2]"),
        ({"oneOf": [{"type": "string"}]}, "application/json; charset=utf-8", {"body": "x"}, b'"x"'),
        ({"type": "object", "additionalProperties": {}}, "application/vnd.x+json", {"body": {"a": 1}}, b'{"a":1}'),
        (fields(a={}), "application/merge-patch+json", {"a": 1}, b'{"a":1}'),
        (fields(a={}, b={}), "application/x-www-form-urlencoded", {"a": "x y&z", "b": [1, 2]}, b"a=x+y%26z&b=1&b=2"),
        ({"type": "object"}, "application/x-www-form-urlencoded", {"body": {"a": 1, "b": "é"}}, b"a=1&b=%C3%A9"),
        ({"type": "string"}, "text/plain", {"body": "naïve"}, "naïve".encode()),
        ({"type": "string"}, "application/xml", {"body": "<a/>"}, b"<a/>"),
        ({"type": "string", "format": "binary"}, "application/octet-stream", {"body": "raw"}, b"raw"),
        ({"type": "string", "format": "byte"}, "application/octet-stream", {"body": "AAEC"}, b"\0\1\2"),
    ],
)
async def test_bodies_of_each_kind(api: Api, schema: Any, media_type: str, args: Any, sent: bytes) -> None:
    await api.call(body(schema, media_type), args, method="post")
    assert (api.last.body, api.last.headers["content-type"]) == (sent, media_type)


async def test_a_media_type_with_a_star_is_made_definite(api: Api) -> None:
    for offered, sent in [
        ("*/*", "application/json"),
        ("text/*", "text/plain"),
        ("image/*", "application/octet-stream"),
    ]:
        await api.call(body({"type": "string"}, offered), {"body": "x"}, method="post")
        assert api.last.headers["content-type"] == sent


async def test_fields_of_a_form_have_their_own_encoding(api: Api) -> None:
    encoding = {"a": {"explode": False}, "b": {"style": "deepObject"}, "c": {"contentType": "application/json"}}
    operation = body(fields(a={}, b={}, c={}), "application/x-www-form-urlencoded", encoding=encoding)
    await api.call(operation, {"a": [1, 2], "b": {"k": 3}, "c": {"z": 4}}, method="post")
    assert api.last.body == b"a=1,2&b[k]=3&c=%7B%22z%22%3A4%7D"


def parts_of(seen: Seen) -> list[tuple[str, str | None, str, bytes]]:
    head = f"Content-Type: {seen.headers['content-type']}\r\n\r\n".encode()
    message = email.message_from_bytes(head + seen.body, policy=policy.HTTP)
    found: list[tuple[str, str | None, str, bytes]] = []
    for part in message.iter_parts():  # pyright: ignore[reportAttributeAccessIssue]
        name = part.get_param("name", header="content-disposition")
        payload = part.get_payload(decode=True)
        assert isinstance(name, str)
        assert isinstance(payload, bytes)
        found.append((name, part.get_filename(), part.get_content_type(), payload))
    return found


async def test_multipart_bodies_hold_texts_files_and_json(api: Api) -> None:
    schema = fields(
        title={"type": "string"},
        file={"type": "string", "format": "binary"},
        picture={"type": "string", "contentEncoding": "base64", "contentMediaType": "image/png"},
        tags={"type": "array", "items": {"type": "string"}},
        meta={"type": "object"},
    )
    args = {"title": "T", "file": "hello", "picture": "AAE=", "tags": ["x", "y"], "meta": {"a": 1}}
    await api.call(body(schema, "multipart/form-data"), args, method="post")
    assert parts_of(api.last) == [
        ("title", None, "text/plain", b"T"),
        ("file", "file", "application/octet-stream", b"hello"),
        ("picture", "picture", "image/png", b"\0\1"),
        ("tags", None, "text/plain", b"x"),
        ("tags", None, "text/plain", b"y"),
        ("meta", None, "application/json", b'{"a":1}'),
    ]


async def test_a_file_that_is_not_base64_is_reported(api: Api) -> None:
    schema = fields(picture={"type": "string", "format": "byte"})
    answer = await api.call(body(schema, "multipart/form-data"), {"picture": "?"}, method="post")
    assert "base64" in answer["error"]


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (JSONResponse({"a": [1]}), {"a": [1]}),
        (JSONResponse([1, 2], status_code=201), {"result": [1, 2]}),
        (PlainTextResponse('{"a": 1}'), {"a": 1}),
        (PlainTextResponse("12"), {"text": "12"}),
        (Response("grüß".encode("latin-1"), media_type="text/plain; charset=latin-1"), {"text": "grüß"}),
        (Response("x", media_type="text/plain; charset=none-such"), {"text": "x"}),
        (Response(b"{broken", media_type="application/json"), {"text": "{broken"}),
        (Response(status_code=204), {"text": ""}),
    ],
)
async def test_replies_are_json_or_text(api: Api, reply: Response, expected: Any) -> None:
    api.answers = [reply]
    assert await api.call({}, {}) == expected


async def test_errors_are_reported_with_status_and_body(api: Api) -> None:
    api.answers = [JSONResponse({"detail": "no such pet"}, status_code=404)]
    assert await api.call({}, {}) == {
        "error": 'do_it failed with status 404 Not Found: {"detail":"no such pet"}\n'
        "If other arguments would help, call it again with those, at most three times; otherwise continue without it."
    }


async def test_long_errors_are_cut(api: Api) -> None:
    api.answers = [PlainTextResponse("x" * 5000, status_code=500)]
    answer = await api.call({}, {})
    assert answer["error"].count("x") == MAX_ERROR_CHARACTERS
    assert "5000 characters" in answer["error"]


async def test_an_api_that_is_not_there_is_reported(api: Api, tool_context: ToolContext) -> None:
    tool = api.tool({}, path="/it")
    object.__setattr__(tool.operation, "base_url", "http://127.0.0.1:1")
    answer = await tool.run_async(args={}, tool_context=tool_context)
    assert answer == {"error": "do_it failed: it could not be reached (ConnectError)."}


async def test_an_api_that_does_not_answer_is_reported(api: Api) -> None:
    asked = asyncio.Event()

    class Silent(Response):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            asked.set()
            await receive()

    api.answers = [Silent()]
    answer = await api.call({}, {}, read_timeout_seconds=0.1)
    assert asked.is_set()
    assert answer == {"error": "do_it failed: it did not answer in time (ReadTimeout)."}


async def test_the_time_limits_are_those_of_the_contract(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[Any] = []
    send = httpx.AsyncHTTPTransport.handle_async_request

    async def noting(self: httpx.AsyncHTTPTransport, request: httpx.Request) -> httpx.Response:
        limits.append(request.extensions["timeout"])
        return await send(self, request)

    monkeypatch.setattr(httpx.AsyncHTTPTransport, "handle_async_request", noting)
    await api.call({}, {})
    assert limits == [{"connect": 10.0, "read": 600.0, "write": 600.0, "pool": 10.0}]


async def test_a_reply_that_is_too_large_is_reported(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "MAX_REPLY_BYTES", 1000)
    api.answers = [PlainTextResponse("x" * 1001)]
    answer = await api.call({}, {})
    assert answer == {"error": "do_it failed: its reply is larger than 1000 bytes."}


async def test_redirects_of_the_same_host_are_followed(api: Api) -> None:
    api.answers = [RedirectResponse("/other?x=1", status_code=307), JSONResponse({"ok": True})]
    assert await api.call(body(fields(a={})), {"a": 1}, method="post") == {"ok": True}
    assert (api.last.method, api.last.path, api.last.query, api.last.body) == ("POST", "/other", "x=1", b'{"a":1}')


async def test_a_see_other_is_read(api: Api) -> None:
    api.answers = [RedirectResponse("/other", status_code=303), JSONResponse({"ok": True})]
    assert await api.call(body(fields(a={})), {"a": 1}, method="post") == {"ok": True}
    assert (api.last.method, api.last.body) == ("GET", b"")


@pytest.mark.parametrize("target", ["ftp://example.com/x", "file:///etc/passwd", "gopher://example.com/"])
async def test_redirects_to_other_schemes_are_refused(api: Api, target: str) -> None:
    api.answers = [RedirectResponse(target)]
    answer = await api.call({}, {})
    assert "it redirects from http to" in answer["error"]


async def test_endless_redirects_are_reported(api: Api) -> None:
    api.answers = [RedirectResponse("/it")]
    answer = await api.call({}, {})
    assert "redirects more than 5 times" in answer["error"]
    assert len(api.seen) == 6


async def test_another_host_is_only_read_from_and_gets_no_secrets(api: Api) -> None:
    elsewhere = api.url.replace("127.0.0.1", "localhost")
    operation = parameters(("Cookie", "header"), ("X-Mine", "header"))
    given: dict[str, Any] = {
        "header_provider": lambda context: {"Authorization": "Bearer secret"},  # pyright: ignore[reportUnknownLambdaType]
    }
    api.answers = [RedirectResponse(f"{elsewhere}/x"), JSONResponse({})]
    await api.call(operation, {"x_mine": "1"}, **given)
    assert api.seen[0].headers["authorization"] == "Bearer secret"
    assert api.last.headers["x-mine"] == "1"
    assert "authorization" not in api.last.headers

    api.answers = [RedirectResponse(f"{elsewhere}/x", status_code=307), JSONResponse({})]
    answer = await api.call(operation, {}, method="post")
    assert "was redirected to another host" in answer["error"]


async def test_headers_may_come_from_the_context(api: Api) -> None:
    async def provide(context: ReadonlyContext) -> dict[str, str]:
        return {"X-User": context.user_id, "user-agent": "mine"}

    await api.call(parameters(("x-user", "header")), {"x_user": "other"}, header_provider=provide)
    assert api.last.headers["x-user"] == "ada"
    assert api.last.headers["user-agent"] == "mine"


@pytest.mark.parametrize(
    ("method", "policy"),
    [("get", "retry"), ("put", "retry"), ("delete", "retry"), ("post", "report"), ("patch", "report")],
)
def test_only_calls_without_a_second_effect_are_repeated_after_a_crash(method: str, policy: str) -> None:
    assert Api(url="https://api.test").tool({}, method=method).on_interrupt == policy


async def test_arguments_that_json_cannot_say_twice_are_sent_once(api: Api) -> None:
    """The same name in two places is two parameters."""
    operation = parameters(("id", "query"), ("id", "header"))
    await api.call(operation, {"id": "q", "id_0": "h"})
    assert (api.last.query, api.last.headers["id"]) == ("id=q", "h")
