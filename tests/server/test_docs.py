"""The OpenAPI document says what the server does."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import pytest

import greenroom
from greenroom import App, ApprovalPolicy, FunctionTool
from greenroom.apps.load_directory import DirectoryAppLoader
from greenroom.audit.signing import new_key_pair
from greenroom.errors import error_classes
from greenroom.records.base import Record
from greenroom.records.content import FunctionCall
from greenroom.server.access.api_key_file import ApiKeyFile
from greenroom.server.application import GATES
from greenroom.server.endpoints import ENDPOINTS, SOCKETS
from greenroom.server.openapi import build_openapi
from greenroom.server.settings import AuditSettings, AuthSettings
from greenroom.server.signal_urls import SignalUrls
from greenroom.tools.builtin.sleep import wait_for
from tests.server.agents import asking_echo, scripted
from tests.server.conftest import Serve
from tests.server.json_schema import check
from tests.server.serving import Serving
from tests.server.test_endpoint_table import with_request, with_webhook

DOCUMENT = build_openapi(ENDPOINTS, SOCKETS)
_TRACE = "/dev/apps/{app_name}/debug/trace"


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in DOCUMENT["paths"].items():
        for method, operation in item.items():
            yield path, method, operation


async def test_the_document_is_served(server: Serving) -> None:
    reply = await server.client.get("/openapi.json")
    assert reply.headers["content-type"] == "application/json"
    assert reply.json() == DOCUMENT
    assert DOCUMENT["openapi"] == "3.1.0"
    assert DOCUMENT["info"]["version"] == greenroom.__version__


def test_every_endpoint_and_alias_is_described() -> None:
    described = {(method.upper(), path) for path, method, _ in operations()}
    plain = {
        (endpoint.method, path.replace(":path}", "}"))
        for endpoint in ENDPOINTS
        for path in (endpoint.path, *endpoint.aliases)
    }
    assert described == plain


def test_every_socket_is_described() -> None:
    described = {(path, *one["aliases"]): one for one in DOCUMENT["x-websockets"] for path in [one["path"]]}
    assert described.keys() == {(endpoint.path, *endpoint.aliases) for endpoint in SOCKETS}
    names = [parameter["name"] for parameter in described["/run_live", "/run-live"]["parameters"]]
    assert names[:4] == ["app_name", "user_id", "session_id", "modalities"]


def test_operation_ids_are_unique_and_aliases_point_back() -> None:
    ids = [operation["operationId"] for _, _, operation in operations() if "operationId" in operation]
    assert len(ids) == len(set(ids)) == len(ENDPOINTS)
    assert all(re.fullmatch(r"[a-z_]+", one) for one in ids)
    aliases = {path: operation["x-alias-of"] for path, _, operation in operations() if "x-alias-of" in operation}
    assert aliases.items() >= {"/run-sse": "/run_sse", "/livez": "/health", "/dev-ui": "/"}.items()
    assert aliases["/builder/save"] == "/dev/apps/{app_name}/builder/save"
    assert aliases["/debug/trace/{event_id}"] == _TRACE + "/{event_id}"
    assert aliases["/debug/trace/session/{session_id}"] == _TRACE + "/session/{session_id}"


@pytest.mark.parametrize(("path", "method", "operation"), list(operations()))
def test_an_operation_is_well_formed(path: str, method: str, operation: dict[str, Any]) -> None:
    assert operation["summary"]
    assert operation["tags"][0] in {tag["name"] for tag in DOCUMENT["tags"]}
    in_path = [parameter["name"] for parameter in operation["parameters"] if parameter["in"] == "path"]
    assert in_path == re.findall(r"{(\w+)}", path)
    for parameter in operation["parameters"]:
        assert set(parameter) <= {"name", "in", "required", "schema", "description"}
        schema = parameter["schema"]
        assert schema.get("type") in ("string", "integer", "number", "boolean", "array") or all(
            isinstance(v, str) for v in schema["enum"]
        )
    assert "default" in operation["responses"]
    for status, reply in operation["responses"].items():
        assert status == "default" or 200 <= int(status) < 600
        if status == "default" or int(status) >= 400:
            reply = DOCUMENT["components"]["responses"][reply["$ref"].rpartition("/")[2]]
        assert reply["description"]
    if path.startswith(("/run", "/apps/{app_name}/users")):
        without_body = ("/cancel", "/redeliver", "/test")
        assert ("requestBody" in operation) == (method in ("post", "patch", "put") and not path.endswith(without_body))


def test_every_property_is_described() -> None:
    tables = [import_module(module).ENDPOINTS for module in GATES.values()]
    document = build_openapi([*ENDPOINTS, *itertools.chain(*tables)], SOCKETS)
    undescribed = [
        f"{name}.{field}"
        for name, schema in document["components"]["schemas"].items()
        for field, one in schema.get("properties", {}).items()
        if len(one.get("description", "")) < 5
    ]
    assert not undescribed, "add docstrings below the fields"


def test_descriptions_are_those_of_the_docstrings() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    body = schemas["AgentRunRequest"]
    assert body["description"] == "Body of `/run` and `/run_sse`."
    assert (
        body["properties"]["deadlineSeconds"]["description"]
        == "The run is failed after this time, which counts from its start."
    )
    assert body["properties"]["appName"]["description"] == "Empty if the server is to take its default app."
    assert schemas["Event"]["properties"]["author"]["description"] == '"user" or the name of an agent.'
    assert schemas["Event"]["properties"]["errorCode"]["description"].startswith("A finish reason"), "inherited"


def test_structs_of_gates_may_share_names_with_records() -> None:
    class Part(Record):
        """Of a gate."""

        source: str = ""

    table = [replace(ENDPOINTS[0], method="POST", path="/gate", aliases=(), body=Part)]
    document = build_openapi([*ENDPOINTS, *table], SOCKETS)
    assert sum(name.endswith(".Part") for name in document["components"]["schemas"]) == 2


def test_every_reference_is_there() -> None:
    def references(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            if isinstance(value.get("$ref"), str):
                yield value["$ref"]
            for inner in value.values():
                yield from references(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from references(inner)

    found = set(references(DOCUMENT))
    components = DOCUMENT["components"]
    there = {f"#/components/{kind}/{name}" for kind in ("schemas", "responses") for name in components[kind]}
    errors = {f"#/components/responses/{error.__name__}" for error in error_classes()}
    assert found <= there
    assert there - found <= errors <= there, "a schema that nothing uses, or an error that isn't described"


def test_an_endpoint_says_what_its_callers_need() -> None:
    schemes = DOCUMENT["components"]["securitySchemes"]
    by_path = {(endpoint.method, endpoint.path.replace(":path}", "}")): endpoint for endpoint in ENDPOINTS}
    for path, method, operation in operations():
        endpoint = by_path[method.upper(), operation.get("x-alias-of", path)]
        named = {name: scopes for way in operation.get("security", ()) for name, scopes in way.items()}
        scopes = [] if endpoint.access == "any" else [endpoint.access]
        expected = {} if endpoint.access == "open" else dict.fromkeys(schemes, scopes)
        assert named == expected


async def test_a_server_that_asks_for_keys_says_that_they_are_required(serve: Serve, tmp_path: Path) -> None:
    keys = ApiKeyFile(tmp_path / "keys.db")
    keys.create(name="test", subject="ann", scopes=("run",))
    for auth, needs in ((AuthSettings(), False), (AuthSettings(keys=str(keys.path)), True)):
        server = await serve(auth=auth)
        document = (await server.client.get("/openapi.json")).json()
        ways = [op["security"] for path in document["paths"].values() for op in path.values() if "security" in op]
        assert {({} in way) for way in [*ways, document["x-websockets"][0]["security"]]} == {not needs}


def test_answers_that_ask_for_patience_or_a_key_say_so_in_a_header() -> None:
    wanted = {"401": ["WWW-Authenticate"], "429": ["Retry-After"], "503": ["Retry-After"]}
    responses = DOCUMENT["components"]["responses"]
    for _, _, operation in operations():
        for status, reference in operation["responses"].items():
            response = responses[reference["$ref"].rpartition("/")[2]] if "$ref" in reference else reference
            needed = [name for name, header in response.get("headers", {}).items() if header.get("required")]
            assert needed == wanted.get(status, []), (operation["summary"], status)


def schema_of(path: str, method: str, status: str = "200", kind: str = "application/json") -> Any:
    return DOCUMENT["paths"][path][method]["responses"][status]["content"][kind]["schema"]


async def _webhook_calls(server: Serving, run_id: str) -> list[tuple[str, str, httpx.Response]]:
    values = {"app_name": "echo", "run_id": run_id, "webhook_id": "w"}
    values["delivery_id"] = await with_webhook(server, run_id)

    async def call(method: str, path: str, body: Any = None) -> tuple[str, str, httpx.Response]:
        return path, method, await server.client.request(method, path.format(**values), json=body)

    calls = [await call("post", "/runs/{run_id}/webhooks", {"url": "https://127.0.0.1:9/", "id": "x"})]
    for owner in ("/runs/{run_id}/webhooks", "/apps/{app_name}/webhooks"):
        of_webhook = owner + "/{webhook_id}"
        calls.append(await call("get", owner))
        calls.append(await call("get", of_webhook + "/deliveries"))
        calls.append(await call("post", of_webhook + "/deliveries/{delivery_id}/redeliver"))
        calls.append(await call("post", of_webhook + "/test"))
    calls.append(await call("delete", "/runs/{run_id}/webhooks/{webhook_id}"))
    of_app = "/apps/{app_name}/webhooks/{webhook_id}"
    calls.append(await call("get", of_app))
    values["webhook_id"] = "stored"
    calls.append(await call("put", of_app, {"url": "https://127.0.0.1:9/"}))
    calls.append(await call("delete", of_app))
    return calls


_AGENT = """
from greenroom import LlmAgent
from greenroom.testing import ScriptedModel
root_agent = LlmAgent(name="desk", instruction="{}\\n.", tools=[{}], model=ScriptedModel(lambda request: "hi"))
"""


def _loader_of(folder: Path) -> DirectoryAppLoader:
    (folder / "desk").mkdir()
    (folder / "desk" / "agent.py").write_text(_AGENT.format("Help", ""))
    return DirectoryAppLoader(folder)


async def _version_calls(server: Serving) -> list[tuple[str, str, httpx.Response]]:
    """Publishes two versions of an app, the files of which are in the folder of its loader."""
    versions = "/apps/{app_name}/versions"

    async def call(method: str, path: str, body: Any = None, **names: str) -> tuple[str, str, httpx.Response]:
        url = path.format(app_name="desk", **names)
        return path, method, await server.client.request(method, url, json=body)

    calls = [await call("post", versions, {"message": "first"})]
    agent = server.app._server.apps.folder("desk")
    assert agent is not None
    (agent / "agent.py").write_text("def add(a: int) -> int:\n    return a\n" + _AGENT.format("Help a lot", "add"))
    calls.append(await call("post", versions))
    calls.append(await call("put", "/apps/{app_name}/traffic", {"shares": {"v2": 100, "source": 0}}))
    run = (await server.run("desk")).json()
    rated = f"/apps/desk/users/ann/sessions/s-1/events/{run[-1]['id']}/feedback"
    assert (await server.client.post(rated, json={"name": "helpful", "score": True})).is_success
    one = versions + "/{version_name}"
    return [
        *calls,
        await call("get", versions),
        await call("get", versions + "/scores"),
        await call("get", one, version_name="v2"),
        await call("get", one + "/compare/{other_version_name}", version_name="v1", other_version_name="v2"),
        await call("delete", one, version_name="v1"),
    ]


async def _schedule_calls(server: Serving) -> list[tuple[str, str, httpx.Response]]:
    schedules = "/apps/{app_name}/schedules"
    one = schedules + "/{schedule_id}"
    values = {"app_name": "echo", "schedule_id": "daily"}
    body = {"id": "daily", "userId": "ann", "cron": "0 9 * * *", "request": {"newMessage": {"parts": [{"text": "x"}]}}}

    async def call(method: str, path: str, body: Any = None) -> tuple[str, str, httpx.Response]:
        return path, method, await server.client.request(method, path.format(**values), json=body)

    return [
        await call("post", schedules + "/preview", body),
        await call("post", schedules, body),
        await call("get", schedules),
        await call("put", one, body),
        await call("post", one + "/pause"),
        await call("post", one + "/resume"),
        await call("post", one + "/run"),
        await call("get", one),
        await call("get", one + "/runs"),
        await call("delete", one),
    ]


async def _evaluation_calls(server: Serving) -> list[tuple[str, str, httpx.Response]]:
    where = "/dev/apps/{app_name}"
    of_set = where + "/eval-sets/{eval_set_id}"
    of_case = where + "/eval_sets/{eval_set_id}/evals/{eval_id}"
    values = {"app_name": "echo", "eval_set_id": "s", "eval_id": "c", "test_name": "t"}

    async def call(method: str, path: str, body: Any = None) -> tuple[str, str, httpx.Response]:
        return path, method, await server.client.request(method, path.format(**values), json=body)

    turn = {"userContent": {"parts": [{"text": "x"}]}, "finalResponse": {"parts": [{"text": "x"}]}}
    case = {"evalId": "c", "conversation": [turn]}
    metrics = {"evalMetrics": [{"metricName": "response_match_score", "threshold": 0.5}]}
    added = {"evalId": "c2", "sessionId": "s-1", "userId": "ann"}
    old = where + "/eval_sets/{eval_set_id}"
    calls = [
        await call("post", where + "/eval-sets", {"evalSet": {"eval_set_id": "s", "eval_cases": [case]}}),
        await call("post", old + "/add_session", added),
        await call("get", where + "/eval_sets"),
        await call("get", where + "/eval-sets"),
        await call("post", of_set + "/add-feedback", {"name": "helpful"}),
        await call("get", of_set),
        await call("get", of_set + "/versions"),
        await call("get", old + "/evals"),
        await call("get", of_case),
        await call("put", of_case, case),
        await call("post", of_set + "/run", metrics),
        await call("post", old + "/run_eval", metrics),
        await call("get", where + "/eval_results"),
        await call("get", where + "/eval-results"),
        await call("get", where + "/metrics-info"),
    ]
    (values["eval_result_id"], _) = calls[-3][2].json()
    calls.append(await call("get", where + "/eval_results/{eval_result_id}"))
    test = where + "/tests/{test_name}"
    calls.append(await call("put", test, {"sessionData": {"id": "x", "appName": "echo", "userId": "ann"}}))
    calls += [await call("get", where + "/tests"), await call("get", test)]
    calls += [await call("post", where + "/tests/rebuild"), await call("delete", test)]
    calls.append(await call("delete", of_case))
    calls.append(await call("delete", of_set))
    calls.append(await call("post", old))
    return calls


def asking_bob() -> App:
    """Asks bob for an approval, who may delegate it."""

    def shout() -> str:
        """Shout."""
        return "HO"

    shouting = FunctionTool(shout, require_confirmation=True)
    agent = scripted("asking", [FunctionCall(name="shout", args={})], tools=[shouting])
    return App(name="asking", root_agent=agent, approvals=ApprovalPolicy(users=["bob"], may_delegate=True))


async def _delegated(server: Serving) -> httpx.Response:
    await server.new_session("asking")
    run = (await server.client.get(f"/runs/{(await server.run('asking')).headers['x-run-id']}")).json()
    [request_id] = run["requests"].values()
    body = {"userId": "carl", "fromUserId": "bob"}
    return await server.client.post(f"/requests/{request_id}/delegate", json=body)


async def _access_calls(serve: Serve, file: Path) -> list[tuple[str, str, httpx.Response]]:
    made, key = ApiKeyFile(file).create(name="test", subject="root", scopes=("admin",), expires_at=5e9)
    server = await serve(auth=AuthSettings(keys=str(file)))
    account = {"scopes": ["run"], "roles": ["viewer"], "apps": ["echo"], "description": "builds"}
    calls = [
        ("/me", "get", "/me", None),
        ("/service-accounts/{account_name}", "put", "/service-accounts/ci", account),
        ("/service-accounts/{account_name}", "get", "/service-accounts/ci", None),
        ("/service-accounts", "get", "/service-accounts", None),
        ("/roles/{role_name}", "put", "/roles/support", {"scopes": ["read"]}),
        ("/roles", "get", "/roles", None),
        ("/keys", "post", "/keys", {"serviceAccount": "ci"}),
        ("/keys", "get", "/keys", None),
        ("/keys/{key_id}", "get", f"/keys/{made.id}", None),
        ("/roles/{role_name}", "delete", "/roles/support", None),
        ("/service-accounts/{account_name}", "delete", "/service-accounts/ci", None),
        ("/keys/{key_id}", "delete", f"/keys/{made.id}?force=true", None),
    ]
    headers = {"x-api-key": key}
    return [
        (path, method, await server.client.request(method, address, json=body, headers=headers))
        for path, method, address, body in calls
    ]


async def test_replies_are_as_described(serve: Serve, tmp_path: Path) -> None:
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    waiting = FunctionCall(name="wait_for", args={"signal": "go"})
    sleeper = scripted("sleeper", [waiting, waiting, "awake", "awake"], tools=[wait_for])
    adder = scripted("adder", ["hi"], tools=[add])
    failing = scripted("failing", [ValueError("no"), "fine"])
    audit = AuditSettings(key=new_key_pair()[0].decode())
    server = await serve(asking_echo(), asking_bob(), adder, sleeper, failing, allow_private_webhooks=True, audit=audit)
    get = server.client.get
    post = server.client.post
    session = await server.new_session("echo", state={"a": 1})
    run = await server.run("echo", stateDelta={"b": [1, None]})
    request = f"/requests/{await with_request(server)}"
    run_id = run.headers["x-run-id"]
    await server.new_session("failing")
    failed = (await server.run("failing")).headers["x-run-id"]
    await server.new_session("sleeper")
    sleeping = (await server.run("sleeper")).headers["x-run-id"]
    await server.new_session("sleeper", session="s-14")
    linked = (await server.run("sleeper", sessionId="s-14")).headers["x-run-id"]
    urls = SignalUrls("http://greenroom", server.app._server.webhook_sender.signers)
    link = urls.make(app_name="sleeper", run_id=linked, signal="go", value=1, place="", expires_seconds=60)
    waiting_runs = await get("/apps/sleeper/waiting-runs")
    sessions = "/apps/{app_name}/users/{user_id}/sessions"
    one = sessions + "/{session_id}"
    artifacts = one + "/artifacts"
    dev = "/dev/apps/{app_name}"
    artifact = artifacts + "/{artifact_name}"
    event_graph = "/dev" + one + "/events/{event_id}/graph"
    feedback = f"{session}/events/{run.json()[0]['id']}/feedback"
    part = {"filename": "a/b", "artifact": {"inlineData": {"mimeType": "x/y", "data": "AAA="}}}
    await server.new_session("echo", session="s-12")
    first_of_two = (await server.run("echo", sessionId="s-12")).headers["x-run-id"]
    background = await post(f"{session}/runs", json={"newMessage": {"parts": [{"text": "x"}]}})
    calls = [
        ("/run", "post", run),
        (one + "/runs", "post", background),
        ("/runs", "get", await get("/runs")),
        ("/apps/{app_name}/usage", "get", await get("/apps/echo/usage?group_by=user")),
        ("/apps/{app_name}/budgets", "put",
         await server.client.put("/apps/echo/budgets", json={"per": "user", "tokens": 1_000_000})),
        ("/apps/{app_name}/budgets", "get", await get("/apps/echo/budgets")),
        ("/apps/{app_name}/budgets", "delete", await server.client.delete("/apps/echo/budgets?per=user")),
        ("/apps/{app_name}/logs", "get", await get("/apps/echo/logs")),
        ("/apps/{app_name}/users/{user_id}/credentials", "get", await get("/apps/echo/users/ann/credentials")),
        (
            "/apps/{app_name}/users/{user_id}/credentials/{credential_key}",
            "delete",
            await server.client.delete("/apps/echo/users/ann/credentials/k"),
        ),
        ("/apps/{app_name}/waiting-runs", "get", waiting_runs),
        ("/apps/{app_name}/retention", "get", await get("/apps/echo/retention")),
        ("/runs/{run_id}", "get", await get(f"/runs/{run_id}")),
        ("/runs/{run_id}/events", "get", await get(f"/runs/{run_id}/events")),
        ("/runs/{run_id}/cancel", "post", await post(f"/runs/{run_id}/cancel")),
        ("/runs/{run_id}/retry", "post", await post(f"/runs/{failed}/retry")),
        ("/runs/retry", "post", await post("/runs/retry", json={"appName": "failing"})),
        (one + "/rewind", "post", await post(f"{session}2/rewind", json={"rewindBeforeInvocationId": first_of_two})),
        ("/signals/{token}", "post", await post(link.removeprefix("http://greenroom"))),
        ("/runs/{run_id}/signals/{signal_name}", "post", await post(f"/runs/{sleeping}/signals/go", json={"a": 1})),
        ("/requests", "get", await get("/requests")),
        ("/requests/{request_id}", "get", await get(request)),
        ("/requests/{request_id}/session", "get", await get(f"{request}/session")),
        ("/requests/{request_id}/delegate", "post", await _delegated(server)),
        ("/requests/{request_id}/answer", "post", await post(f"{request}/answer", json={"response": "this"})),
        (sessions, "get", await get("/apps/echo/users/ann/sessions")),
        (sessions, "post", await post("/apps/echo/users/ann/sessions")),
        (one, "get", await get(session)),
        (one, "post", await post("/apps/echo/users/ann/sessions/s-2")),
        (one, "patch", await server.client.patch(session, json={"stateDelta": {}})),
        (one, "delete", await server.client.delete("/apps/echo/users/ann/sessions/s-2")),
        (one + "/fork", "post", await post(f"{session}/fork")),
        (one + "/events/{event_id}/edit", "post", await post(f"{session}/events/{run.json()[0]['id']}/edit")),
        ("/apps/{app_name}/users/{user_id}", "delete", await server.client.delete("/apps/echo/users/bob")),
        (one + "/events", "get", await get(f"{session}/events")),
        (one + "/events/{event_id}/feedback", "post", await post(feedback, json={"name": "helpful", "score": False})),
        (
            one + "/events/{event_id}/case",
            "post",
            await post(f"{feedback.removesuffix('/feedback')}/case", json={"evalSetId": "complaints"}),
        ),
        (one + "/feedback", "get", await get(f"{session}/feedback")),
        ("/apps/{app_name}/feedback", "get", await get("/apps/echo/feedback")),
        (one + "/events/{event_id}/feedback", "delete", await server.client.delete(feedback)),
        (artifacts, "post", await post(f"{session}/artifacts", json=part)),
        (artifacts, "get", await get(f"{session}/artifacts")),
        (artifact, "put", await server.client.put(f"{session}/artifacts/c", content=b"c")),
        (artifact, "get", await get(f"{session}/artifacts/a/b")),
        (artifact + "/versions", "get", await get(f"{session}/artifacts/a/b/versions")),
        (artifact + "/versions/metadata", "get", await get(f"{session}/artifacts/a/b/versions/metadata")),
        (artifact + "/versions/{version}", "get", await get(f"{session}/artifacts/a/b/versions/0")),
        (artifact + "/versions/{version}/metadata", "get", await get(f"{session}/artifacts/a/b/versions/0/metadata")),
        (artifact, "delete", await server.client.delete(f"{session}/artifacts/a/b")),
        ("/apps/{app_name}/users/{user_id}/memory", "patch",
         await server.client.patch("/apps/echo/users/ann/memory", json={"sessionId": "s-1"})),
        ("/apps/{app_name}/users/{user_id}/memories", "get", listed := await get("/apps/echo/users/ann/memories")),
        ("/apps/{app_name}/users/{user_id}/memories/{memory_id}", "put",
         await server.client.put(
             f"/apps/echo/users/ann/memories/{listed.json()['memories'][0]['id']}",
             json={"content": {"parts": [{"text": "likes tea"}]}},
         )),
        ("/apps/{app_name}/users/{user_id}/memories/{memory_id}", "delete",
         await server.client.delete("/apps/echo/users/ann/memories/x")),
        ("/settings", "get", await get("/settings")),
        ("/list-apps", "get", await get("/list-apps")),
        ("/list-apps", "get", await get("/list-apps?detailed=true")),
        ("/apps/{app_name}/app-info", "get", await get("/apps/adder/app-info")),
        (_TRACE + "/{event_id}", "get", await get(f"/dev/apps/echo/debug/trace/{run.json()[0]['id']}")),
        (_TRACE + "/session/{session_id}", "get", await get("/dev/apps/echo/debug/trace/session/s-1")),
        (dev + "/build_graph", "get", await get("/dev/apps/adder/build_graph")),
        (dev + "/build_graph_image", "get", await get("/dev/apps/adder/build_graph_image")),
        (dev + "/graph", "get", await get("/dev/apps/adder/graph")),
        (event_graph, "get", await get(f"/dev{session}/events/{run.json()[0]['id']}/graph")),
        ("/health", "get", await get("/health")),
        ("/version", "get", await get("/version")),
        ("/openapi.json", "get", await get("/openapi.json")),
        ("/readyz", "get", await get("/readyz")),
        ("/replicas", "get", await get("/replicas")),
        ("/audit", "get", await get("/audit")),
        ("/statistics", "get", await get("/statistics?group_by=app")),
        ("/statistics/load", "get", await get("/statistics/load")),
        ("/config/telemetry", "get", await get("/config/telemetry")),
        ("/config/telemetry", "post",
         await post("/config/telemetry", json={"telemetry": True}, headers={"x-adk-telemetry-request": "true"})),
        ("/dev-ui/config", "get", await get("/dev-ui/config")),
        (runtime := "/dev-ui/assets/config/runtime-config.json", "get", await get(runtime)),
        *(await _access_calls(serve, tmp_path / "keys.db")),
        *(await _webhook_calls(server, run_id)),
        *(await _schedule_calls(server)),
        *(await _version_calls(await serve(services={"app_loader": _loader_of(tmp_path)}, auto_create_session=True))),
        *(await _evaluation_calls(server)),
        ("/sign-in", "post", await post("/sign-in", json={"key": "x"})),
    ]  # fmt: skip
    for path, method, reply in calls:
        assert reply.is_success, (path, reply.text)
        check(reply.json(), schema_of(path, method, str(reply.status_code)), DOCUMENT)

    json_endpoints = {
        (path, method)
        for path, method, operation in operations()
        if "x-alias-of" not in operation
        and operation["tags"] != ["editing"]  # see test_editing.py
        and any("application/json" in reply.get("content", {}) for reply in operation["responses"].values())
    }
    assert json_endpoints == {(path, method) for path, method, _ in calls}


async def test_errors_are_as_described(server: Serving) -> None:
    problem = DOCUMENT["components"]["schemas"]["Problem"]
    for reply in (
        await server.client.get("/runs/nope"),
        await server.client.post("/run", json={}),
        await server.client.get("/nope"),
        await server.client.put("/run"),
        await server.client.post("/run", content=b"{"),
    ):
        assert reply.headers["content-type"] == "application/problem+json"
        check(reply.json(), problem, DOCUMENT)


async def test_frames_are_as_described(server: Serving) -> None:
    await server.new_session("echo")
    stream = DOCUMENT["paths"]["/run_sse"]["post"]["responses"]["200"]["content"]["text/event-stream"]
    frames = await server.sse("echo", streaming=True)
    assert len(frames) > 1
    for frame in frames:
        check(frame.data, stream["x-event-schema"], DOCUMENT)
