"""The errors that an endpoint declares are those that it answers with: each is brought about, and no other comes."""

from __future__ import annotations

import textwrap
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from greenroom import errors
from greenroom.apps.load_directory import DirectoryAppLoader
from greenroom.audit.signing import new_key_pair
from greenroom.feedback.store import MAX_PER_EVENT
from greenroom.server.endpoint import Endpoint
from greenroom.server.endpoints import ENDPOINTS
from greenroom.server.settings import AuditSettings, LimitSettings
from tests.server.conftest import Serve
from tests.server.serving import Serving, run_body
from tests.server.test_endpoint_table import body_for, filled, prepared

AGENTS = {
    "echo": """
        from greenroom import LlmAgent
        from greenroom.testing import ScriptedModel
        root_agent = LlmAgent(name="echo", model=ScriptedModel(lambda request: "You said it"))
    """,
    "fails": """
        from greenroom import LlmAgent, errors
        from greenroom.testing import ScriptedModel
        def fail(request):
            raise errors.ModelError("The model is on fire", model="m")
        root_agent = LlmAgent(name="fails", model=ScriptedModel(fail))
    """,
    "waits": """
        import asyncio
        from greenroom import BaseLlm, LlmAgent
        class Waiting(BaseLlm):
            async def generate_content_async(self, llm_request, stream=False):
                await asyncio.Event().wait()
                yield
        root_agent = LlmAgent(name="waits", model=Waiting(model="waiting"))
    """,
    "pair": """
        from greenroom import App, SequentialAgent, Webhook
        agent = SequentialAgent(name="pair", sub_agents=[])
        app = App(name="pair", root_agent=agent, webhooks=[Webhook(id="w", url="https://example.com/")])
    """,
    "broken": "1 / 0",
}

# Shown elsewhere: who may do what, each endpoint's; a store or a server that can't go on, or lacks a package; limits.
ELSEWHERE = {
    errors.Unauthenticated, errors.Forbidden, errors.Unavailable, errors.StorageError, errors.MissingExtra,
    errors.TooManyRequests, errors.TooManyRuns, errors.SessionFull, errors.SignalsFull,
}  # fmt: skip


@pytest.fixture
async def many_apps(serve: Serve, tmp_path: Path) -> Serving:
    for name, text in AGENTS.items():
        file = tmp_path / "agents" / name / "agent.py"
        file.parent.mkdir(parents=True)
        file.write_text(textwrap.dedent(text))
    loader = DirectoryAppLoader(tmp_path / "agents", hot_reload=False)
    limits = LimitSettings(artifact_bytes=5000)
    audit = AuditSettings(key=new_key_pair()[0].decode())
    return await serve(
        services={"app_loader": loader}, max_body_bytes=5000, limits=limits, grace_seconds=0, audit=audit
    )


def requests_to(endpoint: Endpoint, values: dict[str, str]) -> list[dict[str, Any]]:
    """Requests with one thing wrong each."""
    path = endpoint.path
    body = body_for(endpoint)
    right: dict[str, Any] = {} if body is None else {"json": body}
    made = [{"url": filled(path, values), **right}]
    for name in values:
        if "{" + name + "}" in path:
            for value in ("nope", "99", "pair", "broken", "x" * 2000, "s-1"):
                made.append({"url": filled(path, {**values, name: value}), **right})
    for query in endpoint.query:
        made += [{"url": filled(path, values), "params": {query.name: value}, **right} for value in ("-1", "x", "")]
    for header in endpoint.headers:
        made.append({"url": filled(path, values), "headers": {header.name: "x" * 300}, **right})
    if body is not None:
        url = filled(path, values)
        kind = {"content-type": "application/json"}
        made += [{"url": url, "content": content, "headers": kind} for content in (b"{", b" " * 6000, b"[]")]
        made.append({"url": url, "content": b"\x1f\x8b", "headers": {**kind, "content-encoding": "gzip"}})
        made += [{"url": url, "json": {**body, **wrong}} for wrong in WRONG]
    return made


ANSWER = {"functionResponse": {"id": "adk-9", "name": "adk_request_confirmation", "response": {"confirmed": True}}}
WRONG: list[dict[str, Any]] = [
    {"sessionId": "nope"},
    {"sessionId": "s-1"},
    {"appName": "nope"},
    {"appName": ""},
    {"appName": "broken"},
    {"appName": "fails"},
    {"options": {"ttl": 5}},
    {"artifact": {"thought": True}},
    {"filename": "../../x"},
    {"newMessage": {"parts": [ANSWER]}},
    {"invocationId": "e-unknown"},
    {"eventId": "e-unknown"},
]


CALL = {"id": "adk-9", "name": "adk_request_confirmation", "args": {"originalFunctionCall": {"name": "pay", "id": "c"}}}
BROUGHT = {
    "author": "echo",
    "invocationId": "e-1",
    "content": {"role": "model", "parts": [{"functionCall": CALL}]},
    "longRunningToolIds": ["adk-9"],
}


async def after_other_requests(server: Serving, endpoint: Endpoint) -> list[Any]:
    """A session in use, one key for two things, and an approval that only a log brought along asks for."""
    if endpoint.body is None or not any(header.name == "Idempotency-Key" for header in endpoint.headers):
        return []

    def url(app: str, session: str = "s-1") -> str:
        at = f"/apps/{app}/users/ann/sessions/{session}/runs"
        return at if endpoint.path.endswith("/runs") else endpoint.path

    waiting = await server.new_session("waits")
    await server.client.post(f"{waiting}/runs", json={})
    key = {"idempotency-key": "k"}
    await server.client.post("/run", json=run_body("echo"), headers=key)
    sessions = "/apps/echo/users/ann/sessions"
    brought = await server.client.post(sessions, json={"sessionId": "s-3", "events": [BROUGHT]})
    assert brought.status_code == 200
    answer = run_body("echo", None, sessionId="s-3", newMessage={"parts": [ANSWER]})
    return [
        await server.client.post(url("waits"), json=run_body("waits", multitaskStrategy="reject")),
        await server.client.post(url("echo"), json=run_body("echo", "else"), headers=key),
        await server.client.post(url("echo", "s-3"), json=answer),
    ]


# Their errors need more than one wrong thing: see test_administration, test_budgets, test_requests,
# test_approval_policies, test_schedules, test_versions, test_signal_links and test_retry.
TESTED_ELSEWHERE = ("access", "budgets", "editing", "requests", "schedules", "versions")
PATHS_TESTED_ELSEWHERE = (
    "/signals/{token}",
    "/runs/{run_id}/retry",
    "/apps/{app_name}/users/{user_id}/sessions/{session_id}/rewind",
)


@pytest.mark.parametrize(
    "endpoint",
    [one for one in ENDPOINTS if one.tag not in TESTED_ELSEWHERE and one.path not in PATHS_TESTED_ELSEWHERE],
    ids=lambda one: f"{one.method} {one.path}",
)
async def test_an_endpoint_answers_with_the_errors_it_declares(many_apps: Serving, endpoint: Endpoint) -> None:
    server = many_apps
    values = await prepared(server, endpoint)
    for app in ("pair", "fails", "broken"):
        await server.new_session(app)
    replies = [await server.client.request(endpoint.method, **request) for request in requests_to(endpoint, values)]
    replies += await after_other_requests(server, endpoint)
    if endpoint.tag == "sessions" and errors.AppLoadError in endpoint.errors:
        # The rules of an app that can't be loaded aren't known: nothing is stored.
        url = filled(endpoint.path, {**values, "app_name": "broken", "session_id": "s-1"})
        state = {"state": {"a": 1}, "stateDelta": {"a": 1}}
        replies.append(await server.client.request(endpoint.method, url, json=state))
    if endpoint.path.endswith("/feedback") and endpoint.method == "POST":
        url = filled(endpoint.path, values)
        replies += [await server.client.post(url, json={"name": f"n{n}", "score": n}) for n in range(MAX_PER_EVENT)]
    classes = {error.__name__: error for error in errors.error_classes()}
    found: defaultdict[type[errors.GreenroomError], list[str]] = defaultdict(list)
    for reply in replies:
        if reply.status_code >= 400:
            assert "code" in reply.json(), f"{reply.status_code} without a code: {reply.text}"
            found[classes[reply.json()["code"]]].append(reply.json()["detail"])
    # Stores that lack an operation are shown elsewhere, too; what no server offers is shown here.
    elsewhere = ELSEWHERE if endpoint.status == 501 else ELSEWHERE | {errors.NotOffered}
    declared = {error for error in endpoint.all_errors if error not in elsewhere}
    undeclared = {
        error: texts for error, texts in found.items() if not issubclass(error, tuple(declared or {type(None)}))
    }
    assert not undeclared
    never = {error for error in declared if not any(issubclass(one, error) for one in found)}
    assert not never, "declared, and never answered"
