"""The audit trail of a server: who called, decided, changed, read another's data, and was refused."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from greenroom import AllowedTools, App, ApprovalPolicy, GuardrailPlugin, LlmAgent, PatternCheck
from greenroom.audit.export import all_rows
from greenroom.audit.signing import HeadVerifier, new_key_pair
from greenroom.audit.verify import verify_rows
from greenroom.errors import AgentConfigError
from greenroom.invocation.user_context import CallbackContext
from greenroom.records.model_exchange import LlmResponse
from greenroom.runs.audit import digest_of
from greenroom.server.access.api_key_file import ApiKeyFile
from greenroom.server.access.audit import REFUSALS_AT_ONCE
from greenroom.server.settings import AuditSettings, AuthSettings
from greenroom.testing.scripted_model import ScriptedModel
from tests.agents.talk import call
from tests.server.conftest import Serve, Store
from tests.server.serving import Json, Serving
from tests.server.test_approval_policies import app_with, ask, ended
from tests.server.test_requests import answer

SESSION = "/apps/desk/users/ann/sessions/s-1"


class People:
    """A server with keys and an audit trail, and clients of users."""

    def __init__(self, server: Serving, keys: ApiKeyFile, private_key: str, public_key: str) -> None:
        self.server = server
        self.private_key = private_key
        self.public_key = public_key
        self._keys = keys
        self.clients: list[httpx.AsyncClient] = []

    def client(self, user: str, *scopes: str, apps: list[str] | None = None) -> httpx.AsyncClient:
        _, key = self._keys.create(name="", subject=user, scopes=scopes, apps=apps)
        headers = {"authorization": f"Bearer {key}"}
        self.clients.append(httpx.AsyncClient(base_url=self.server.url, headers=headers, timeout=30))
        return self.clients[-1]

    async def entries(self, **query: Any) -> list[Json]:
        """Entries of the trail, oldest first."""
        reply = await self.client("auditor", "audit").get("/audit", params=query)
        assert reply.status_code == 200, reply.text
        return list(reversed(reply.json()["entries"]))


@pytest.fixture
def store(request: pytest.FixtureRequest) -> Store:
    return getattr(request, "param", "sqlite")


@pytest.fixture
async def start(serve: Serve, tmp_path: Path) -> AsyncIterator[Callable[..., Any]]:
    started: list[People] = []

    async def begin(app: App) -> People:
        keys = ApiKeyFile(tmp_path / "keys.db")
        keys.create(name="", subject="nobody", scopes=[])
        private, public = (key.decode() for key in new_key_pair())
        server = await serve(app, auth=AuthSettings(keys=str(keys.path)), audit=AuditSettings(key=private))
        started.append(People(server, keys, private, public))
        return started[-1]

    yield begin
    for people in started:
        for client in people.clients:
            await client.aclose()


def name_version(callback_context: CallbackContext, llm_response: LlmResponse) -> None:
    """Sets the version of the model, as providers do."""
    llm_response.model_version = "scripted-2026-11"


def some(entry: Json, *names: str) -> list[Any]:
    return [entry.get(name) for name in names]


@pytest.mark.parametrize("store", ["memory", "sqlite", "replicas"], indirect=True)
async def test_approval_is_recorded_with_its_person_digest_version_and_model(start: Callable[..., Any]) -> None:
    app = app_with(ApprovalPolicy(users=["bob", "carol"], required=2, may_delegate=True))
    app.root_agent.after_model_callback = name_version  # pyright: ignore[reportAttributeAccessIssue]
    people: People = await start(app)
    ann = people.client("ann", "run", "read")
    bob = people.client("bob", "run", "read")
    carol = people.client("carol", "run", "read")
    dave = people.client("dave", "run", "read")
    request = await ask(ann)
    await answer(bob, request["id"], confirmed=True)
    delegated = await carol.post(f"/requests/{request['id']}/delegate", json={"userId": "dave"})
    assert delegated.status_code == 200, delegated.text
    await answer(dave, request["id"], confirmed=True)
    assert "removed" in await ended(ann, request)

    [started] = await people.entries(action="run.started")
    assert some(started, "subject", "userId", "appName", "sessionId", "runId") == [
        "ann",
        "ann",
        "desk",
        "s-1",
        request["runId"],
    ]
    first, second = await people.entries(action="request.answered")
    assert some(first, "subject", "answeredBy", "decision") == ["bob", "bob", "counted as an approval"]
    assert some(second, "subject", "answeredBy", "decision") == ["dave", "dave", "approved"]
    for entry in (first, second):
        assert entry["requestId"] == request["id"]
        assert entry["tool"] == "remove"
        assert entry["argumentsDigest"] == digest_of({"name": "x"})
        assert entry["keyId"]
        assert entry["httpRequestId"]
        assert entry["model"] == "scripted"
        assert entry["modelVersion"] == "scripted-2026-11"
    [delegation] = await people.entries(action="request.delegated")
    assert some(delegation, "subject", "decision") == ["carol", "dave"]
    [continued] = await people.entries(action="run.continued")
    assert continued["httpRequestId"] == second["httpRequestId"]


async def test_decisions_of_guardrails_are_recorded_and_clients_can_not_forge_them(start: Callable[..., Any]) -> None:
    def fetch(url: str) -> str:
        """Fetches."""
        return f"{url}: ada@example.com"

    model = ScriptedModel([call("fetch", "c-1", url="https://example.com"), "Write to bob@example.com."])
    checks = [PatternCheck("email", on_violation="redact"), AllowedTools(["fetch"]), PatternCheck("iban")]
    agent = LlmAgent(name="desk", model=model, tools=[fetch])
    people: People = await start(App(name="desk", root_agent=agent, plugins=[GuardrailPlugin(checks)]))
    ann = people.client("ann", "run", "read", "debug")
    await ann.post("/apps/desk/users/ann/sessions", json={"sessionId": "s-1"})
    forged = {"greenroom:guardrails": [{"check": "forged"}], "mine": 1}
    message = {"role": "user", "parts": [{"text": "I am eve@example.com"}]}
    body = {"appName": "desk", "userId": "ann", "sessionId": "s-1", "newMessage": message, "customMetadata": forged}
    first = (await ann.post("/run", json=body)).json()
    message["parts"] = [{"text": "DE89 3704 0044 0532 0130 00"}]
    blocked = await ann.post("/run", json=body)

    entries = await people.entries(action=["guardrail.redacted", "guardrail.blocked"])
    assert [some(entry, "action", "outcome", "check", "where", "callId", "tool") for entry in entries] == [
        ["guardrail.redacted", "success", "email", "user_message", None, None],
        ["guardrail.redacted", "success", "email", "tool_results", "c-1", "fetch"],
        ["guardrail.redacted", "success", "email", "model_output", None, None],
        ["guardrail.blocked", "refused", "iban", "user_message", None, None],
    ]
    run_ids = [first[0]["invocationId"]] * 3 + [blocked.headers["x-run-id"]]
    assert [entry["runId"] for entry in entries] == run_ids
    assert {(entry["subject"], entry["userId"], entry["sessionId"]) for entry in entries} == {("ann", "ann", "s-1")}
    assert "@" not in repr(entries)

    events = (await ann.get(SESSION)).json()["events"]
    noted = [event["customMetadata"].get("greenroom:guardrails", ()) for event in events]
    ids = [decision["id"] for decisions in noted for decision in decisions]
    assert ids == [entry["decisionId"] for entry in entries]
    assert {event["customMetadata"]["mine"] for event in events} == {1}
    trace = (await ann.get("/dev/apps/desk/debug/trace/session/s-1")).text
    assert all(entry["decisionId"] in trace for entry in entries)


async def test_refusals_are_recorded(start: Callable[..., Any]) -> None:
    people: People = await start(app_with())
    ann = people.client("ann", "run", "read")
    assert (await ann.post("/apps/desk/users/bob/sessions", json={})).status_code == 403
    assert (await ann.get("/metrics", headers={"x-request-id": "mine"})).status_code == 403
    nobody = await people.server.client.get("/list-apps")
    assert nobody.status_code == 401

    others, scope, unknown = await people.entries(action="access.refused")
    assert some(others, "subject", "status", "userId", "target") == [
        "ann",
        403,
        "bob",
        "POST /apps/desk/users/bob/sessions",
    ]
    assert some(scope, "subject", "status", "httpRequestId", "outcome") == ["ann", 403, "mine", "refused"]
    assert some(unknown, "subject", "status") == [None, 401]


async def test_run_of_another_user_is_recorded_as_a_refusal_though_it_looks_unknown(start: Callable[..., Any]) -> None:
    people: People = await start(app_with())
    request = await ask(people.client("ann", "run", "read"))
    eve = people.client("eve", "run", "read")
    assert (await eve.get(f"/runs/{request['runId']}")).status_code == 404
    [entry] = await people.entries(action="access.refused")
    assert some(entry, "subject", "status", "runId") == ["eve", 403, request["runId"]]


async def test_reading_another_users_session_is_recorded_and_reading_ones_own_is_not(start: Callable[..., Any]) -> None:
    people: People = await start(app_with())
    ann = people.client("ann", "run", "read")
    await ann.post("/apps/desk/users/ann/sessions", json={"sessionId": "s-1"})
    assert (await ann.get(SESSION)).status_code == 200
    operator = people.client("op", "read", "app:desk")
    assert (await operator.get(SESSION)).status_code == 200
    [entry] = await people.entries(action="data.read")
    assert some(entry, "subject", "userId", "sessionId", "target") == ["op", "ann", "s-1", f"GET {SESSION}"]


async def test_reading_anothers_feedback_is_recorded_and_giving_ones_own_is_not(start: Callable[..., Any]) -> None:
    people: People = await start(app_with())
    ann = people.client("ann", "run", "read")
    await ask(ann)
    event = (await ann.get(SESSION)).json()["events"][-1]["id"]
    path = f"{SESSION}/events/{event}/feedback"
    assert (await ann.post(path, json={"name": "helpful", "score": False})).status_code == 200
    operator = people.client("op", "read", "app:desk")
    assert len((await operator.get(f"{SESSION}/feedback")).json()["feedback"]) == 1
    assert (await operator.get("/apps/desk/feedback")).status_code == 200
    assert (await ann.delete(path)).status_code in (200, 204)
    assert [entry["action"] for entry in await people.entries(subject="op")] == ["data.read", "data.read"]
    actions = {entry["action"] for entry in await people.entries(subject="ann")}
    assert actions == {"session.created", "run.started"}


async def test_changes_are_recorded(start: Callable[..., Any]) -> None:
    people: People = await start(app_with())
    ann = people.client("ann", "run", "read")
    manager = people.client("ann", "manage")
    request = await ask(ann)
    for reply in (
        await ann.patch(SESSION, json={"stateDelta": {"x": 1}}),
        await ann.post(f"{SESSION}/fork", json={"sessionId": "s-2"}),
        await ann.post("/apps/desk/schedules", json={"id": "daily", "userId": "ann", "cron": "0 9 * * *"}),
        await ann.post("/apps/desk/schedules/daily/pause"),
        await ann.delete("/apps/desk/schedules/daily"),
        await ann.post(f"/runs/{request['runId']}/cancel"),
        await ann.delete(SESSION),
        await ann.get("/apps/desk/users/ann/export"),
        await manager.delete("/apps/desk/users/ann"),
    ):
        assert reply.status_code in (200, 201, 204), reply.text

    actions = [entry["action"] for entry in await people.entries(subject="ann")]
    assert actions == [
        "session.created",
        "run.started",
        "session.changed",
        "session.forked",
        "schedule.created",
        "schedule.paused",
        "schedule.deleted",
        "run.cancelled",
        "session.deleted",
        "user.exported",
        "user.deleted",
    ]


async def test_expired_sessions_are_recorded(start: Callable[..., Any]) -> None:
    app = app_with()
    app.session_ttl_seconds = 3600.0
    people: People = await start(app)
    old = {"sessionId": "old", "events": [{"author": "user", "timestamp": time.time() - 7200.0}]}
    assert (await people.client("ann", "run").post("/apps/desk/users/ann/sessions", json=old)).status_code == 200
    assert [key async for key in people.server.app.engine.delete_expired_sessions()]
    [entry] = await people.entries(action="session.expired")
    assert some(entry, "subject", "appName", "userId", "sessionId") == [None, "desk", "ann", "old"]


async def test_auditor_sees_the_apps_that_it_may_access(start: Callable[..., Any]) -> None:
    people: People = await start(app_with())
    await ask(people.client("ann", "run", "read"))
    limited = people.client("auditor", "audit", apps=["other"])
    assert (await limited.get("/audit")).json()["entries"] == []
    assert (await limited.get("/audit", params={"app_name": "desk"})).status_code == 403
    assert (await people.client("ann", "run", "read", "manage", "debug").get("/audit")).status_code == 403
    assert (await people.client("root", "admin").get("/audit", params={"limit": 1})).json()["nextPageToken"]


async def test_trail_of_a_stopped_server_is_signed_to_its_end(start: Callable[..., Any]) -> None:
    people: People = await start(app_with())
    await ask(people.client("ann", "run", "read"))
    app = people.server.apps[0]
    trail = app._server.audit
    assert trail is not None
    await trail.close()
    report = await verify_rows(all_rows(trail.store), keys=HeadVerifier.load([people.public_key]))
    assert not report.faults
    assert report.uncovered == 0
    assert report.signed_heads >= 2


async def test_trail_of_a_running_server_is_cut_by_another_process(start: Callable[..., Any], tmp_path: Path) -> None:
    people: People = await start(app_with())
    trail = people.server.apps[0]._server.audit
    assert trail is not None
    (tmp_path / "audit.pem").write_text(people.private_key)
    (tmp_path / "greenroom.toml").write_text('[audit]\nkey = "audit.pem"\n')
    ann = people.client("ann", "run", "read")
    answers = 0

    async def work() -> None:
        nonlocal answers
        while not cutting.done() or answers < 30:
            await ann.post("/apps/desk/users/ann/sessions", json={})
            answers += 1
            if answers % 10 == 0:
                await trail.store.sign(trail._signer)

    database = f"sqlite:///{tmp_path / 'sessions.db'}"
    command = [sys.executable, "-m", "greenroom", "audit", "cut", "old.jsonl", ".", "--before", "2999-01-01"]
    process = await asyncio.create_subprocess_exec(*command, "--session-service", database, cwd=tmp_path)
    cutting = asyncio.create_task(process.wait())
    await work()
    assert await cutting == 0

    await trail.close()
    keys = HeadVerifier.load([people.public_key])
    report = await verify_rows(all_rows(trail.store), keys=keys)
    assert not report.faults
    assert report.cut_before is not None
    assert (report.uncovered, (await trail.store.state()).broken) == (0, None)


async def test_flood_without_credentials_is_counted_rather_than_stored(start: Callable[..., Any]) -> None:
    people: People = await start(app_with())
    for _ in range(REFUSALS_AT_ONCE + 50):
        await people.server.client.get("/list-apps")
    recorded = await people.entries(action="access.refused", limit=1000)
    assert len(recorded) < REFUSALS_AT_ONCE + 50


async def test_server_without_a_trail_says_so(serve: Serve) -> None:
    server = await serve(app_with())
    reply = await server.client.get("/audit")
    assert reply.status_code == 501
    assert "audit_key" in reply.json()["detail"]


def test_unreadable_key_is_refused_at_the_start(tmp_path: Path) -> None:
    from greenroom.server.application import create_app
    from greenroom.server.settings import ServerSettings

    for key in (tmp_path / "missing.pem", "-----BEGIN PRIVATE KEY-----\nx\n-----END PRIVATE KEY-----"):
        with pytest.raises(AgentConfigError, match="key of the audit trail"):
            create_app(agents=[app_with()], settings=ServerSettings(audit=AuditSettings(key=str(key))))
