"""Sessions over HTTP, in memory and on a file."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from greenroom.records.state import REMOVED
from tests.server.agents import echo
from tests.server.conftest import Serve, Store
from tests.server.serving import Serving

SESSIONS = "/apps/echo/users/ann/sessions"

ACTIONS = {"stateDelta": {}, "artifactDelta": {}, "requestedAuthConfigs": {}, "requestedToolConfirmations": {}}


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest) -> Store:
    return request.param


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"content": b"null", "headers": {"content-type": "application/json"}},
        {"json": {}},
        {"json": {"sessionId": "   ", "state": None, "events": None, "options": None, "unknownKey": 1}},
        {"content": b"", "headers": {"content-type": "text/plain"}},
    ],
    ids=["nothing", "null", "empty", "nulls", "empty text"],
)
async def test_a_session_needs_no_body(server: Serving, request_: dict[str, Any]) -> None:
    reply = await server.client.post(SESSIONS, **request_)
    assert reply.status_code == 200, reply.text
    session = reply.json()
    assert set(session) == {"id", "appName", "userId", "state", "events", "lastUpdateTime"}
    assert re.fullmatch(r"[0-9a-f-]{36}", session["id"])
    assert (session["appName"], session["userId"], session["state"], session["events"]) == ("echo", "ann", {}, [])
    assert (await server.client.get(f"{SESSIONS}/{session['id']}")).json() == session


async def test_state_is_kept_by_its_scopes(serve: Serve) -> None:
    server = await serve(echo(), echo("other"))
    state = {"here": 1, "user:tier": "gold", "app:motd": "hi", "temp:secret": 2, "__session_metadata__": {"n": None}}
    body = {"session_id": " s-1 ", "state": state}
    first = (await server.client.post(SESSIONS, json=body)).json()
    assert first["id"] == "s-1"
    kept = {"here": 1, "user:tier": "gold", "app:motd": "hi", "__session_metadata__": {"n": None}}
    assert first["state"] == kept
    second = (await server.client.post(SESSIONS, json={"sessionId": "s-2"})).json()
    assert second["state"] == {"user:tier": "gold", "app:motd": "hi"}
    other_user = (await server.client.post("/apps/echo/users/bob/sessions")).json()
    assert other_user["state"] == {"app:motd": "hi"}
    other_app = (await server.client.post("/apps/other/users/ann/sessions")).json()
    assert other_app["state"] == {}


async def test_an_id_is_taken_once(server: Serving) -> None:
    assert (await server.client.post(SESSIONS, json={"sessionId": "s"})).status_code == 200
    again = await server.client.post(SESSIONS, json={"sessionId": "s"})
    assert (again.status_code, again.json()["code"]) == (409, "SessionExists")
    assert (await server.client.post(f"{SESSIONS}/s", json={})).status_code == 409
    replies = await asyncio.gather(*(server.client.post(f"{SESSIONS}/race") for _ in range(8)))
    assert sorted(reply.status_code for reply in replies) == [200] + [409] * 7


@pytest.mark.parametrize(
    ("body", "state"),
    [
        ({"a": 1}, {"a": 1}),
        ({"state": {"a": 1}}, {"a": 1}),
        ({"state": {"a": 1}, "b": 2}, {"state": {"a": 1}, "b": 2}),
        ({"state": 5}, {"state": 5}),
        ({}, {}),
        (None, {}),
    ],
)
async def test_with_an_id_in_the_path_the_body_is_the_state(server: Serving, body: object, state: object) -> None:
    reply = await server.client.post(f"{SESSIONS}/s-7", json=body)
    assert reply.status_code == 200, reply.text
    assert (reply.json()["id"], reply.json()["state"]) == ("s-7", state)


async def test_an_exported_session_can_be_imported(server: Serving) -> None:
    path = await server.new_session("echo", state={"lang": "no"})
    assert (await server.run("echo", stateDelta={"city": "Oslo", "gone": 1})).status_code == 200
    await server.client.patch(path, json={"stateDelta": {"gone": REMOVED}})
    exported = (await server.client.get(path)).json()
    assert exported["state"] == {"lang": "no", "city": "Oslo"}
    body = {"events": exported["events"], "state": exported["state"]}
    imported = (await server.client.post(SESSIONS, json=body)).json()
    assert imported["id"] != exported["id"]
    assert imported["events"] == exported["events"]
    assert imported["state"] == exported["state"]
    assert (await server.client.get(f"{SESSIONS}/{imported['id']}")).json() == imported


async def test_imported_events_get_what_they_lack(server: Serving) -> None:
    events = [
        {"author": "user", "content": {"parts": [{"text": "a"}]}},
        {"id": "e2", "author": "echo", "invocation_id": "i2", "timestamp": 1771000002400, "actions": None},
        {"id": "e3", "author": "echo", "timestamp": 3.5, "longRunningToolIds": ["x"], "custom_metadata": [
            {"key": "k", "stringValue": "v"}
        ], "actions": {"stateDelta": {"n": 1, "temp:t": 2}, "deletedArtifactIds": ["z"]}},
        {"id": "e4", "author": "echo", "partial": True},
    ]  # fmt: skip
    session = (await server.client.post(SESSIONS, json={"events": events})).json()
    first, second, third = session["events"]
    assert first["id"]
    assert first["invocationId"].startswith("e-")
    assert first["timestamp"] > 1.7e9
    assert first["actions"] == ACTIONS
    assert (second["id"], second["invocationId"], second["timestamp"]) == ("e2", "i2", 1771000002.4)
    assert third["customMetadata"] == {"k": "v"}
    assert third["actions"]["stateDelta"] == {"n": 1}
    assert session["state"] == {"n": 1}


async def test_a_bad_event_leaves_no_session_behind(server: Serving) -> None:
    body = {"sessionId": "s", "events": [{"author": "user"}, {"content": {}}]}
    reply = await server.client.post(SESSIONS, json=body)
    assert reply.status_code == 422
    assert reply.json()["errors"][0]["loc"] == ["body", "events", 1, "author"]
    assert (await server.client.get(f"{SESSIONS}/s")).status_code == 404


async def test_options_are_refused(server: Serving) -> None:
    reply = await server.client.post(SESSIONS, json={"sessionId": "s", "options": {"ttl": 1}})
    assert reply.status_code == 400
    assert (await server.client.get(f"{SESSIONS}/s")).status_code == 404


async def test_listing_leaves_out_events_and_evaluations(server: Serving) -> None:
    for session in ("one", "two", "adk-eval-session-1", "___eval___session___1", "ADK_EVAL_1"):
        await server.new_session("echo", session=session, state={"n": session})
    await server.run("echo", sessionId="one")
    listed = (await server.client.get(SESSIONS)).json()
    assert [(found["id"], found["state"], found["events"]) for found in listed] == [
        ("two", {"n": "two"}, []),
        ("one", {"n": "one"}, []),
    ]
    assert (await server.client.get(f"{SESSIONS}/adk-eval-session-1")).status_code == 200
    assert (await server.client.get("/apps/nope/users/ann/sessions")).json() == []
    assert (await server.client.get("/apps/echo/users/nobody/sessions")).json() == []


async def test_listing_goes_page_by_page(server: Serving) -> None:
    ids = [f"s-{number}" for number in range(7)]
    for session in ids:
        await server.new_session("echo", session=session)
    found: list[str] = []
    parameters = {"limit": "3"}
    while True:
        reply = await server.client.get(SESSIONS, params=parameters)
        assert len(reply.json()) <= 3
        found += [session["id"] for session in reply.json()]
        token = reply.headers.get("x-next-page-token")
        if token is None:
            break
        parameters["page_token"] = token
    assert sorted(found) == ids
    assert (await server.client.get(SESSIONS, params={"page_token": "rubbish"})).status_code == 422


async def test_patch_is_an_event_of_the_history(server: Serving) -> None:
    path = await server.new_session("echo", state={"a": 1, "b": 2})
    patched = await server.client.patch(
        path, json={"state_delta": {"a": REMOVED, "b": None, "c": {"d": None}, "temp:x": 1}}
    )
    assert patched.status_code == 200
    session = patched.json()
    assert session["state"] == {"b": None, "c": {"d": None}}
    (event,) = session["events"]
    assert event["author"] == "user"
    assert event["invocationId"].startswith("p-")
    assert "content" not in event
    assert event["actions"] == {**ACTIONS, "stateDelta": {"a": REMOVED, "b": None, "c": {"d": None}}}
    stored = (await server.client.get(path)).json()
    assert stored["state"] == {"b": None, "c": {"d": None}}
    assert stored["lastUpdateTime"] == event["timestamp"]


async def test_patch_needs_a_session_and_a_delta(server: Serving) -> None:
    path = await server.new_session("echo")
    assert (await server.client.patch(f"{SESSIONS}/nope", json={"stateDelta": {}})).status_code == 404
    for body in ({}, {"stateDelta": 5}, {"stateDelta": None}):
        reply = await server.client.patch(path, json=body)
        assert reply.status_code == 422, body
    assert (await server.client.patch(path)).status_code == 422


async def test_delete_takes_artifacts_and_run_records_along(server: Serving) -> None:
    await server.new_session("echo")
    await server.run("echo", "hello")
    artifacts = f"{SESSIONS}/s-1/artifacts"
    for name in ("own.txt", "user:shared.txt"):
        body = {"filename": name, "artifact": {"text": "words"}}
        assert (await server.client.post(artifacts, json=body)).status_code == 200
    run_id = (await server.client.get(f"{SESSIONS}/s-1")).json()["events"][0]["invocationId"]
    assert (await server.client.get(f"/runs/{run_id}")).status_code == 200
    assert (await server.client.delete(f"{SESSIONS}/s-1")).status_code == 200
    assert (await server.client.get(f"/runs/{run_id}")).status_code == 404
    await server.new_session("echo")
    assert (await server.client.get(artifacts)).json() == ["user:shared.txt"]


async def test_delete_cancels_the_runs_of_the_session(server: Serving) -> None:
    await server.new_session("echo")
    started = await server.client.post(f"{SESSIONS}/s-1/runs", json={"newMessage": {"parts": [{"text": "hello"}]}})
    assert (await server.client.delete(f"{SESSIONS}/s-1")).status_code == 200
    assert (await server.client.get(f"/runs/{started.json()['id']}")).status_code == 404
    assert (await server.client.get(f"{SESSIONS}/s-1")).status_code == 404


async def test_delete_answers_null_each_time(server: Serving) -> None:
    path = await server.new_session("echo", state={"user:tier": 1})
    for _ in range(2):
        reply = await server.client.delete(path)
        assert (reply.status_code, reply.json()) == (200, None)
    assert (await server.client.get(path)).json()["code"] == "SessionNotFound"
    assert (await server.client.post(SESSIONS)).json()["state"] == {"user:tier": 1}


async def test_a_session_is_seen_by_its_user_only(server: Serving) -> None:
    await server.new_session("echo", user="ann")
    assert (await server.client.get("/apps/echo/users/bob/sessions/s-1")).status_code == 404
    assert (await server.client.get("/apps/other/users/ann/sessions/s-1")).status_code == 404


@pytest.mark.parametrize("name", ["a/b", "å ∂/ß", "..", ".", "a%2Fb", "a?b#c", "a b+c", "'\"<>", "x" * 1000])
async def test_ids_may_hold_anything_when_encoded(server: Serving, name: str) -> None:
    from urllib.parse import quote

    segment = quote(name, safe="")
    created = await server.client.post(f"/apps/echo/users/{segment}/sessions/{segment}")
    if name in (".", ".."):  # a client takes these away before it sends them
        return
    assert created.status_code == 200, created.text
    assert (created.json()["userId"], created.json()["id"]) == (name, name)
    got = await server.client.get(f"/apps/echo/users/{segment}/sessions/{segment}")
    assert got.json() == created.json()


async def test_many_writers_of_one_session_all_arrive(server: Serving) -> None:
    path = await server.new_session("echo")
    await asyncio.gather(*(server.client.patch(path, json={"stateDelta": {f"k{n}": n}}) for n in range(30)))
    session = (await server.client.get(path)).json()
    assert session["state"] == {f"k{n}": n for n in range(30)}
    assert len(session["events"]) == 30
