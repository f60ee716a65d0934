"""Errors of requests are reported to the client, and the server continues."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import quote

import pytest

from tests.server.agents import scripted
from tests.server.conftest import Serve
from tests.server.serving import Serving, run_body

JSON = {"content-type": "application/json"}
RUNS = ["/run", "/run_sse"]


def assert_problem(reply: Any, status: int, code: str | None = None) -> dict[str, Any]:
    assert reply.status_code == status, reply.text
    assert reply.headers["content-type"] == "application/problem+json"
    problem = reply.json()
    assert problem["status"] == status
    assert isinstance(problem["detail"], str)
    assert problem["detail"]
    assert "Traceback" not in reply.text
    assert "/greenroom/" not in reply.text
    if code is not None:
        assert problem["code"] == code
    return problem


@pytest.mark.parametrize("path", RUNS)
@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"nope", b'{"appName":"echo",}', b"\xff\xfe", b'{"appName":"\xff"}', b"[" * 100_000, b'{"a":' * 50_000,
     b'{"appName": 1e999999}', b"NaN", b'{"appName":"\\ud800"}', b"{}{}", b"\x00"],
)  # fmt: skip
async def test_what_is_no_json_is_said_to_be_none(server: Serving, path: str, body: bytes) -> None:
    problem = assert_problem(await server.client.post(path, content=body, headers=JSON), 422, "InvalidRequest")
    assert problem["errors"][0]["loc"][0] == "body"
    assert problem["errors"][0]["type"] == "json_invalid"


@pytest.mark.parametrize("body", ["null", "[]", "5", '"text"', "true"])
async def test_what_is_no_object_is_refused(server: Serving, body: str) -> None:
    for path in (*RUNS, "/apps/echo/users/ann/memory"):
        method = "PATCH" if path.endswith("memory") else "POST"
        reply = await server.client.request(method, path, content=body, headers=JSON)
        assert_problem(reply, 422, "InvalidRequest")
    if body != "null":
        assert_problem(await server.client.post("/apps/echo/users/ann/sessions", content=body, headers=JSON), 422)


@pytest.mark.parametrize(
    ("changes", "location"),
    [
        ({"userId": ...}, ["body", "userId"]),
        ({"sessionId": ...}, ["body", "sessionId"]),
        ({"appName": 5}, ["body", "appName"]),
        ({"userId": 5}, ["body", "userId"]),
        ({"sessionId": {}}, ["body", "sessionId"]),
        ({"streaming": "yes"}, ["body", "streaming"]),
        ({"stateDelta": []}, ["body", "stateDelta"]),
        ({"newMessage": "hi"}, ["body", "newMessage"]),
        ({"newMessage": {"parts": "hi"}}, ["body", "newMessage", "parts"]),
        ({"newMessage": {"parts": [{"text": "a"}, {"text": 5}]}}, ["body", "newMessage", "parts", 1, "text"]),
        ({"newMessage": {"parts": [{"functionCall": {"name": "f"}}]}}, ["body", "newMessage", "parts"]),
        ({"multitaskStrategy": "maybe"}, ["body", "multitaskStrategy"]),
        ({"deadlineSeconds": 0}, ["body", "deadlineSeconds"]),
        ({"deadlineSeconds": "soon"}, ["body", "deadlineSeconds"]),
        ({"startAt": "tomorrow"}, ["body", "startAt"]),
        ({"startAt": 1e12}, ["body", "startAt"]),
        ({"delaySeconds": -1}, ["body", "delaySeconds"]),
        ({"delaySeconds": 5, "startAt": 2e9}, ["body", "delaySeconds"]),
        ({"delaySeconds": 5, "invocationId": "e-1"}, ["body", "delaySeconds"]),
        ({"onDisconnect": "explode"}, ["body", "onDisconnect"]),
    ],
)
async def test_the_place_of_a_fault_is_reported(
    server: Serving, changes: dict[str, Any], location: list[str | int]
) -> None:
    await server.new_session("echo")
    body = {key: value for key, value in run_body("echo", **changes).items() if value is not ...}
    for path in RUNS:
        problem = assert_problem(await server.client.post(path, json=body), 422, "InvalidRequest")
        (cause,) = problem["errors"]
        assert cause["loc"] == location
        assert set(cause) == {"type", "loc", "msg"}


async def test_a_missing_field_is_of_its_own_kind(server: Serving) -> None:
    problem = assert_problem(await server.client.post("/run", json={"appName": "echo", "sessionId": "s"}), 422)
    assert problem["errors"][0]["type"] == "missing"
    assert problem["errors"][0]["loc"] == ["body", "userId"]


async def test_all_faults_of_a_body_are_listed(server: Serving) -> None:
    body = {
        "streaming": "yes",
        "user_id": 5,
        "newMessage": {"parts": [{"text": "a"}, {"text": 5}]},
        "deadlineSeconds": "x",
    }
    problem = assert_problem(await server.client.post("/run", json=body), 422, "InvalidRequest")
    assert [cause["loc"] for cause in problem["errors"]] == [
        ["body", "newMessage", "parts", 1, "text"],
        ["body", "streaming"],
        ["body", "deadlineSeconds"],
        ["body", "userId"],
        ["body", "sessionId"],
    ]
    assert [cause["type"] for cause in problem["errors"]] == ["type_error"] * 4 + ["missing"]
    many = {**run_body("echo"), "newMessage": {"parts": [{"text": 5, "thought": 6}] * 1000}}
    assert_problem(await server.client.post("/run", json=many), 422)


async def test_both_spellings_nulls_and_unknown_keys_are_taken(server: Serving) -> None:
    await server.new_session("echo")
    nulls = dict.fromkeys(
        ["streaming", "stateDelta", "functionCallEventId", "invocationId", "customMetadata", "serviceTier",
         "multitaskStrategy", "onDisconnect", "deadlineSeconds", "unknown"]
    )  # fmt: skip
    parts = [{"text": "hi", "inlineData": None, "thoughtSignature": None, "newKind": {"a": 1}}]
    camel = {"appName": "echo", "userId": "ann", "sessionId": "s-1", "newMessage": {"parts": parts}, **nulls}
    snake = {
        "app_name": "echo", "user_id": "ann", "session_id": "s-1", "state_delta": None,
        "new_message": {"role": "user", "parts": [{"text": "hi", "inline_data": None}]}, "function_call_event_id": "x",
    }  # fmt: skip
    for body in (camel, snake):
        reply = await server.client.post("/run", json=body)
        assert reply.status_code == 200, reply.text
        assert reply.json()[0]["content"]["parts"] == [{"text": "You said hi"}]


async def test_unknown_app_session_run(server: Serving) -> None:
    await server.new_session("echo")
    for path in RUNS:
        app = assert_problem(await server.client.post(path, json=run_body("nope")), 404, "AppNotFound")
        assert "nope" in app["detail"]
        assert_problem(await server.client.post(path, json=run_body("echo", sessionId="nope")), 404, "SessionNotFound")
        assert_problem(await server.client.post(path, json=run_body("echo", userId="bob")), 404, "SessionNotFound")
    for method, path in (("GET", ""), ("GET", "/events"), ("POST", "/cancel")):
        reply = await server.client.request(method, f"/runs/nope{path}")
        assert_problem(reply, 404, "RunNotFound")
        reply = await server.client.request(method, f"/runs/nope{path}", headers={"accept": "text/event-stream"})
        assert_problem(reply, 404, "RunNotFound")
    events = "/apps/echo/users/ann/sessions/nope/events"
    assert_problem(await server.client.get(events), 404, "SessionNotFound")
    assert_problem(await server.client.get(events, headers={"accept": "text/event-stream"}), 404, "SessionNotFound")


@pytest.mark.parametrize("value", ["a\x00b", "x" * 10_000, "..", "../..", "💥", "a/b", "", " ", "\u2028"])
@pytest.mark.parametrize("name", ["appName", "userId", "sessionId", "invocationId", "functionCallEventId"])
async def test_odd_names_in_a_body_never_break_the_server(server: Serving, name: str, value: str) -> None:
    await server.new_session("echo")
    for path in RUNS:
        reply = await server.client.post(path, json=run_body("echo", **{name: value}))
        assert reply.status_code < 500, reply.text
        if reply.status_code >= 400:
            assert_problem(reply, reply.status_code)


async def test_an_invocation_id_cannot_write_headers(server: Serving) -> None:
    session = await server.new_session("echo")
    evil = "e-1\r\nset-cookie: a=b\r\n\r\n<script>"
    for path, body in (("/run", run_body("echo", invocationId=evil)), (f"{session}/runs", {"invocationId": evil})):
        reply = await server.client.post(path, json=body)
        assert "set-cookie" not in reply.headers
        assert_problem(reply, 422, "InvalidRequest")


async def test_an_invocation_of_another_session_is_answered_as_one_that_is_not_there(server: Serving) -> None:
    await server.new_session("echo")
    theirs = await server.new_session("echo", user="bob")
    run_id = (await server.run("echo", "mine")).headers["x-run-id"]
    for name in (run_id, "e-unknown"):
        for path in RUNS:
            reply = await server.client.post(path, json=run_body("echo", "yours", userId="bob", invocationId=name))
            assert_problem(reply, 404, "RunNotFound")
            assert reply.json()["detail"] == f"Run not found: {name!r}"
        reply = await server.client.post(f"{theirs}/runs", json={"invocationId": name})
        assert_problem(reply, 404, "RunNotFound")
    assert (await server.client.get(theirs)).json()["events"] == []
    record = (await server.client.get(f"/runs/{run_id}")).json()
    assert record["userId"] == "ann"


@pytest.mark.parametrize("name", ["a/b", "..", "å", "a%2Fb"])
async def test_ids_with_encoded_slashes_reach_their_session(server: Serving, name: str) -> None:
    at = f"/apps/echo/users/ann/sessions/{quote(name, safe='')}"
    if name == "..":
        at = "/apps/echo/users/ann/sessions/%2E%2E"
        connection = await server.connect()
        await connection.request("POST", at)
        status, _ = await connection.head()
        assert status == 200
        connection.drop()
    else:
        assert (await server.client.post(at)).status_code == 200
    assert (await server.run("echo", sessionId=name)).status_code == 200


async def test_a_body_announced_as_too_large_is_refused_at_once(server: Serving) -> None:
    connection = await server.connect()
    await connection.request("POST", "/run", {**JSON, "content-length": str(100 * 2**20)})
    status, headers = await connection.head()
    assert (status, headers["content-type"]) == (413, "application/problem+json")
    connection.drop()
    assert (await server.client.get("/health")).status_code == 200


@pytest.mark.parametrize("announced", [True, False])
async def test_a_body_of_100_megabytes_is_refused(server: Serving, announced: bool) -> None:
    piece = b" " * 2**20

    async def pieces() -> AsyncGenerator[bytes]:
        for _ in range(100):
            yield piece

    headers = {**JSON, "content-length": str(100 * 2**20)} if announced else JSON
    reply = await server.client.post("/run", content=pieces(), headers=headers)
    problem = assert_problem(reply, 413, "TooLarge")
    assert str(64 * 2**20) in problem["detail"]
    assert (await server.client.get("/health")).status_code == 200
    await server.new_session("echo")
    assert (await server.run("echo")).status_code == 200


async def test_the_limit_of_a_body_can_be_set(serve: Serve) -> None:
    server = await serve(max_body_bytes=1000)
    path = "/apps/echo/users/ann/sessions/s-1"
    exact = json.dumps({"state": {"a": "x" * (1000 - len('{"state": {"a": ""}}'))}}).encode()
    assert len(exact) == 1000
    assert (await server.client.post(path, content=exact, headers=JSON)).status_code == 200
    assert_problem(await server.client.post(path, content=exact + b" ", headers=JSON), 413)


async def test_a_client_that_leaves_amid_its_body_leaves_nothing(server: Serving) -> None:
    connection = await server.connect()
    await connection.request("POST", "/apps/echo/users/ann/sessions/s-1", {**JSON, "content-length": "100"})
    connection.writer.write(b'{"a":')
    await connection.writer.drain()
    connection.drop()
    assert (await server.client.get("/apps/echo/users/ann/sessions")).json() == []


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/xml"]
)
async def test_another_content_type_is_refused(server: Serving, kind: str) -> None:
    await server.new_session("echo")
    body = json.dumps(run_body("echo"))
    for path in RUNS:
        problem = assert_problem(await server.client.post(path, content=body, headers={"content-type": kind}), 422)
        assert problem["errors"][0]["loc"] == ["header", "content-type"]


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON", "application/vnd.x+json", ""])
async def test_any_spelling_of_json_will_do(server: Serving, kind: str) -> None:
    await server.new_session("echo")
    headers = {"content-type": kind} if kind else {}
    reply = await server.client.post("/run", content=json.dumps(run_body("echo")), headers=headers)
    assert reply.status_code == 200


@pytest.mark.parametrize(
    "path", ["/nope", "/apps", "/apps/echo", "/apps//users/ann/sessions", "/RUN", "/dev-uix", "/%2e"]
)
async def test_an_unknown_path(server: Serving, path: str) -> None:
    for method in ("GET", "POST", "DELETE", "OPTIONS"):
        problem = assert_problem(await server.client.request(method, server.url + path), 404)
        assert problem["detail"] == "Not Found"
    assert (await server.client.head(path)).status_code == 404


async def test_a_wrong_method_is_answered_with_the_right_ones(server: Serving) -> None:
    reply = await server.client.get("/run")
    assert_problem(reply, 405)
    assert reply.headers["allow"] == "POST"
    reply = await server.client.put("/apps/echo/users/ann/sessions/s")
    assert reply.headers["allow"] == "DELETE, GET, HEAD, PATCH, POST"
    reply = await server.client.request("BREW", "/run")
    assert reply.status_code in (400, 405)


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=-1", "limit=x", "limit=", "limit=null", "limit=1.5", "limit=" + "9" * 5000]
)
async def test_a_bad_query_is_refused(server: Serving, query: str) -> None:
    problem = assert_problem(await server.client.get(f"/apps/echo/users/ann/sessions?{query}"), 422)
    assert problem["errors"][0]["loc"] == ["query", "limit"]


@pytest.mark.parametrize("query", ["?", "?&&&", "?=", "?%ff=%00", "?a=b=c", "?limit=5&limit=6"])
async def test_an_odd_query_is_no_matter(server: Serving, query: str) -> None:
    assert (await server.client.get(f"/apps/echo/users/ann/sessions{query}")).status_code == 200


async def test_a_bug_in_an_agent_shows_no_traceback(serve: Serve) -> None:
    secret = "the path /home/secret/agent.py"
    server = await serve(scripted("bad", [KeyError(secret), KeyError(secret)]))
    await server.new_session("bad")
    reply = await server.run("bad")
    assert reply.status_code == 500
    assert "Traceback" not in reply.text
    frames = await server.sse("bad")
    assert all("Traceback" not in json.dumps(frame.data) for frame in frames)


@pytest.mark.parametrize(
    "head", [b"GET / HTTP/9.9\r\n\r\n", b"nonsense\r\n\r\n", b"GET /" + b"a" * 100_000, b"\x16\x03\x01"]
)
async def test_what_is_no_http_does_no_harm(server: Serving, head: bytes) -> None:
    connection = await server.connect()
    connection.writer.write(head)
    async with asyncio.timeout(5):
        await connection.writer.drain()
    connection.drop()
    assert (await server.client.get("/health")).status_code == 200


async def test_nothing_is_stored_for_an_app_that_is_not_served(serve: Serve) -> None:
    for settings, status in (({}, 404), ({"allow_unknown_apps": True}, 200)):
        server = await serve(**settings)
        sessions = "/apps/nope/users/ann/sessions"
        artifact = {"filename": "a.txt", "artifact": {"text": "x"}}
        for path, body in (
            (sessions, {}),
            (f"{sessions}/s-1", {}),
            (f"{sessions}/s-1/artifacts", artifact),
        ):
            reply = await server.client.post(path, json=body)
            assert reply.status_code == status, path
            if status == 404:
                assert reply.json()["code"] == "AppNotFound"


async def test_the_root_redirects_any_method(server: Serving) -> None:
    for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
        reply = await server.client.request(method, "/")
        assert (reply.status_code, reply.headers["location"]) == (307, "/dev-ui/"), method
