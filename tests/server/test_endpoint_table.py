"""Every endpoint of the table answers, whatever is put into its path."""

from __future__ import annotations

import json
import re
from fnmatch import fnmatch
from typing import Any
from urllib.parse import quote

import pytest

from greenroom.records.content import Content, Part
from greenroom.records.run import RunStatus, SessionRunRequest, Webhook
from greenroom.records.schedule import Schedule
from greenroom.server.endpoint import Endpoint
from greenroom.server.endpoints import ENDPOINTS
from greenroom.server.request_context import is_path_without_app
from greenroom.server.router import Router
from tests.server.agents import asking_echo
from tests.server.conftest import Serve
from tests.server.security.rules import status_of
from tests.server.serving import Serving

VALUES = {
    "app_name": "echo",
    "user_id": "ann",
    "session_id": "s-1",
    "artifact_name:path": "dir/a.png",
    "credential_key:path": "login",
    "file:path": "runs",
    "version": "0",
    "version_name": "v1",
    "other_version_name": "v2",
    "eval_set_id": "set_a",
    "eval_id": "c1",
    "test_name": "t1.json",
    "eval_result_id": "echo_set_a_1",
    "run_id": "r",
    "signal_name": "go",
    "token": "e30.e30",
    "schedule_id": "daily",
    "request_id": "q",
    "event_id": "e",
    "webhook_id": "w",
    "key_id": "0123456789",
    "memory_id": "m",
    "account_name": "ci",
    "role_name": "support",
    "delivery_id": "msg_1",
}

MESSAGE = {"parts": [{"text": "x"}]}
RUN = {"appName": "echo", "userId": "ann", "sessionId": "s-1", "newMessage": MESSAGE}
SCHEDULE = {"userId": "ann", "cron": "0 9 * * *", "request": {"newMessage": MESSAGE}}
BODIES: dict[tuple[str, str], Any] = {
    ("POST", "/run"): RUN,
    ("POST", "/run_sse"): RUN,
    ("POST", "runs"): {"newMessage": MESSAGE},
    ("PATCH", "{session_id}"): {"stateDelta": {"a": 1}},
    ("POST", "feedback"): {"name": "helpful", "score": True},
    ("POST", "case"): {"evalSetId": "set_a"},
    ("POST", "schedules"): SCHEDULE,
    ("POST", "preview"): SCHEDULE,
    ("PUT", "{schedule_id}"): SCHEDULE,
    ("POST", "webhooks"): {"url": "https://127.0.0.1:9/", "states": ["waiting"]},
    ("POST", "/keys"): {"userId": "ann", "apps": ["echo"]},
    ("PUT", "{memory_id}"): {"content": {"parts": [{"text": "likes tea"}]}},
    ("PUT", "budgets"): {"per": "user", "tokens": 1_000_000},
    ("PUT", "{account_name}"): {"scopes": ["run"], "apps": ["echo"]},
    ("PUT", "{role_name}"): {"scopes": ["read"]},
    ("PUT", "{webhook_id}"): {"url": "https://receiver.invalid/"},
    ("POST", "rewind"): {"rewindBeforeInvocationId": "missing"},
    ("POST", "delegate"): {"userId": "carl"},
    ("POST", "answer"): {"response": "this"},
    ("PATCH", "memory"): {"sessionId": "s-1"},
    ("POST", "/config/telemetry"): {"telemetry": True},
    ("POST", "/sign-in"): {"key": "x"},
    ("POST", "artifacts"): {"filename": "x", "artifact": {"text": "x"}},
    ("POST", "eval-sets"): {"evalSet": {"eval_set_id": "set_b"}},
    ("POST", "add_session"): {"evalId": "c2", "sessionId": "s-1", "userId": "ann"},
    ("PUT", "{test_name}"): {"sessionData": {"id": "s-1", "appName": "echo", "userId": "ann"}},
    ("PUT", "traffic"): {"shares": {}},
    ("PUT", "{eval_id}"): {"evalId": "c1", "conversation": []},
}

HEADERS = {"x-adk-telemetry-request": "true"}

HOSTILE = [
    "..", "../../etc/passwd", "\x00", "a\x00b", "x" * 10_000, "\n\r", "%", "%00", "\ud800", "💥" * 300, " ", "'; --",
    "{}", "a/b", "\\", "\u2028", "latest", "-1", "9" * 400, "__proto__", "user", "\x85",
]  # fmt: skip


def paths_of(endpoint: Endpoint) -> list[str]:
    """All that lead to it, those that leave the app to the server included."""
    paths = [endpoint.path, *endpoint.aliases]
    without_app = [path.removeprefix("/apps/{app_name}") for path in paths]
    return [*paths, *filter(is_path_without_app, without_app)]


def each_path() -> list[Any]:
    """Endpoints with each of their paths."""
    return [_parameter(endpoint, path) for endpoint in ENDPOINTS for path in paths_of(endpoint)]


def each() -> list[Any]:
    """Endpoints with their first path: its aliases lead to the same handler, as a test below shows."""
    return [_parameter(endpoint, endpoint.path) for endpoint in ENDPOINTS]


def each_with_and_without_app() -> list[Any]:
    """Endpoints with their first path, and with the one that leaves the app to the server."""
    without_app = [
        _parameter(endpoint, path) for endpoint in ENDPOINTS for path in paths_of(endpoint) if is_path_without_app(path)
    ]
    return each() + without_app


def _parameter(endpoint: Endpoint, path: str) -> Any:
    return pytest.param(endpoint, path, id=f"{endpoint.method} {path}")


def filled(path: str, values: dict[str, str]) -> str:
    return re.sub(r"{([\w:]+)}", lambda match: values[match[1]], path)


def body_for(endpoint: Endpoint) -> Any:
    if endpoint.body is None:
        return None
    last = endpoint.path.rpartition("/")[2]
    return BODIES.get((endpoint.method, endpoint.path)) or BODIES.get((endpoint.method, last)) or {}


async def prepared(server: Serving, endpoint: Endpoint) -> dict[str, str]:
    session = await server.new_session("echo")
    part = {"filename": VALUES["artifact_name:path"], "artifact": {"text": "x"}}
    await server.client.post(f"{session}/artifacts", json=part)
    run = await server.run("echo")
    values = {**VALUES, "run_id": run.headers["x-run-id"], "event_id": run.json()[0]["id"]}
    if endpoint.handler.__name__ == "create_session_with_id":
        values["session_id"] = "s-2"
    if endpoint.tag == "webhooks":
        values["delivery_id"] = await with_webhook(server, values["run_id"])
    await with_schedule(server, endpoint)
    if endpoint.tag == "requests":
        values["request_id"] = await with_request(server)
    return await with_evaluations(server, endpoint, values)


async def with_request(server: Serving, text: str = "ask") -> str:
    """Has `asking_echo` ask ann for input. Returns the request's id."""
    asking = await server.run("echo", text)
    run = (await server.client.get(f"/runs/{asking.headers['x-run-id']}")).json()
    [request_id] = run["requests"].values()
    return request_id


async def with_webhook(server: Serving, run_id: str) -> str:
    """Gives the app and the run a webhook with one delivery. Returns the delivery's id."""
    webhook = Webhook(url="https://127.0.0.1:9/", id="w", states=[RunStatus.WAITING])
    await server.app.engine.app_webhooks.put("echo", webhook, ())
    added = await server.app.engine.add_webhook(run_id, webhook)
    run = await server.app.engine.get(run_id)
    return (await server.app.engine.webhooks.test("echo", added, run)).id


async def with_schedule(server: Serving, endpoint: Endpoint, text: str = "x") -> None:
    """Gives ann a schedule with a message, where the endpoint is of schedules."""
    if endpoint.tag != "schedules":
        return
    await server.app.engine.schedules.run_store.schedules.delete("echo", "daily")
    message = Content(role="user", parts=[Part(text=text)])
    schedule = Schedule(id="daily", user_id="ann", cron="0 9 * * *", request=SessionRunRequest(new_message=message))
    await server.app.engine.schedules.create(schedule, app_name="echo", caller=None)


async def with_evaluations(server: Serving, endpoint: Endpoint, values: dict[str, str]) -> dict[str, str]:
    """Makes a set with a case, and a result of it, where the endpoint is of evaluation."""
    if endpoint.tag != "evaluation":
        return values
    turn = {"userContent": {"parts": [{"text": "x"}]}}
    eval_set = {"eval_set_id": "set_a", "eval_cases": [{"evalId": "c1", "conversation": [turn]}]}
    dev = "/dev/apps/echo"
    for name in ("set_a", "set_b"):
        await server.client.delete(f"{dev}/eval-sets/{name}")
    assert (await server.client.post(f"{dev}/eval-sets", json={"eval_set": eval_set})).status_code == 200
    assert (await server.client.post(f"{dev}/eval-sets/set_a/run", json={})).status_code == 200
    assert (await server.client.put(f"{dev}/tests/t1", json=BODIES["PUT", "{test_name}"])).status_code == 200
    results = (await server.client.get(f"{dev}/eval_results")).json()
    is_new = endpoint.handler.__name__ == "create_empty_eval_set"
    return {**values, "eval_result_id": results[-1], "eval_set_id": "set_b" if is_new else "set_a"}


@pytest.fixture
async def server(serve: Serve) -> Serving:
    return await serve(asking_echo(), allow_private_webhooks=True)


def test_aliases_lead_to_the_handler_of_their_endpoint(server: Serving) -> None:
    """The other tests of all endpoints ask for the first path only."""
    router = Router(ENDPOINTS, server.app._server)
    for endpoint in ENDPOINTS:
        first, _ = router._find(filled(endpoint.path, VALUES))
        assert first is not None
        app = first.apps[endpoint.method]
        for path in paths_of(endpoint):
            route, _ = router._find(filled(path, VALUES))
            assert route is not None, path
            assert route.apps[endpoint.method] is app, path


@pytest.mark.parametrize(("endpoint", "path"), each_path())
async def test_every_endpoint_answers(server: Serving, endpoint: Endpoint, path: str) -> None:
    values = await prepared(server, endpoint)
    body = body_for(endpoint)
    sent = {} if body is None else {"json": body}
    reply = await server.client.request(endpoint.method, filled(path, values), headers=HEADERS, **sent)
    assert reply.status_code == status_of(endpoint), reply.text
    kind = reply.headers["content-type"].partition(";")[0]
    if endpoint.is_stream:
        assert kind == "text/event-stream"
    elif reply.is_success:
        assert fnmatch(kind, endpoint.media_type)


@pytest.mark.parametrize(("endpoint", "path"), [one for one in each_path() if not one.values[0].takes_any_method])
async def test_another_method_is_refused_with_those_allowed(server: Serving, endpoint: Endpoint, path: str) -> None:
    taken = {one.method for one, path_ in (each_.values for each_ in each_path()) if path_ == path}
    other = next(method for method in ("PUT", "PATCH", "POST") if method not in taken)
    reply = await server.client.request(other, filled(path, VALUES), json={})
    assert reply.status_code == 405
    assert endpoint.method in reply.headers["allow"].split(", ")
    assert reply.json()["detail"] == "Method Not Allowed"


@pytest.mark.parametrize(
    ("endpoint", "path"),
    [each_ for each_ in each_path() if each_.values[0].method == "GET" and "{" not in each_.values[1]],
)
async def test_head_answers_like_get_without_a_body(server: Serving, endpoint: Endpoint, path: str) -> None:
    get = await server.client.get(path)
    head = await server.client.head(path)
    assert head.status_code == get.status_code
    assert head.content == b""
    for name in ("content-type", "content-length"):
        assert head.headers.get(name) == get.headers.get(name)


@pytest.mark.parametrize(("endpoint", "path"), [each_ for each_ in each() if "{" in each_.values[1]])
async def test_hostile_path_values_never_break_the_server(server: Serving, endpoint: Endpoint, path: str) -> None:
    body = body_for(endpoint)
    for name in re.findall(r"{([\w:]+)}", path):
        for value in HOSTILE:
            data = value.encode("utf-8", "surrogatepass")
            values = {**VALUES, name: quote(data, safe="")}
            connection = await server.connect()
            sent = b"" if body is None else json.dumps(body).encode()
            headers = {"content-type": "application/json", "connection": "close"}
            await connection.request(endpoint.method, filled(path, values), headers, sent)
            status, _ = await connection.head()
            text = await connection.reader.read(4000)
            assert status < 500 or status == status_of(endpoint), (name, value, text)
            assert b"Traceback" not in text
            connection.drop()
    assert (await server.client.get("/health")).json() == {"status": "ok"}
