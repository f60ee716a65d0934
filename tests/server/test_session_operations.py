"""Forks, past states, searches, titles and erasure over HTTP."""

from __future__ import annotations

import time
from typing import Any

import pytest

from greenroom.apps.app import App
from greenroom.memory.in_memory import InMemoryMemoryService
from greenroom.memory.service import BaseMemoryService
from greenroom.records.auth import AuthCredential, AuthCredentialTypes
from tests.server.agents import echo
from tests.server.conftest import Serve, Store
from tests.server.serving import Serving

USER = "/apps/echo/users/ann"
SESSIONS = USER + "/sessions"


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest) -> Store:
    return request.param


async def _say(server: Serving, session: str, *texts: str) -> None:
    for text in texts:
        body = {"appName": "echo", "userId": "ann", "sessionId": session, "newMessage": {"parts": [{"text": text}]}}
        reply = await server.client.post("/run", json=body)
        assert reply.status_code == 200, reply.text


async def _get(server: Serving, session: str, **query: Any) -> dict[str, Any]:
    reply = await server.client.get(f"{SESSIONS}/{session}", params=query)
    assert reply.status_code == 200, reply.text
    return reply.json()


def _texts(session: dict[str, Any]) -> list[str]:
    return [event["content"]["parts"][0]["text"] for event in session["events"] if event.get("content")]


async def test_a_session_is_forked_and_read_as_it_was(server: Serving) -> None:
    await server.client.post(SESSIONS, json={"sessionId": "s-1", "state": {"mood": "good"}})
    await _say(server, "s-1", "one")
    await server.client.patch(f"{SESSIONS}/s-1", json={"stateDelta": {"mood": "bad"}})
    await _say(server, "s-1", "two")
    past = await _get(server, "s-1", until_seq=2)
    assert (len(past["events"]), past["state"]) == (2, {"mood": "good"})
    third = (await _get(server, "s-1"))["events"][2]["id"]
    for body, count, mood in (
        ({"sessionId": "f-1", "seq": 2}, 2, "good"),
        ({"sessionId": "f-2", "eventId": third}, 3, "bad"),
        (None, 5, "bad"),
    ):
        fork = (await server.client.post(f"{SESSIONS}/s-1/fork", json=body)).json()
        assert (fork["events"], fork["state"]) == ([], {"mood": mood})
        assert len((await _get(server, fork["id"]))["events"]) == count
    await server.client.delete(f"{SESSIONS}/s-1")
    await _say(server, "f-1", "three")
    assert len((await _get(server, "f-1"))["events"]) == 4


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("s-1/fork", {"seq": 9}, 422),
        ("s-1/fork", {"seq": 0, "eventId": "x"}, 422),
        ("s-1/fork", {"eventId": "x"}, 404),
        ("s-1/fork", {"sessionId": "s-1"}, 409),
        ("nope/fork", {}, 404),
        ("s-1/events/x/edit", {}, 404),
    ],
)
async def test_a_fork_that_can_not_be_made_is_refused(server: Serving, path: str, body: Any, status: int) -> None:
    await server.client.post(SESSIONS, json={"sessionId": "s-1"})
    assert (await server.client.post(f"{SESSIONS}/{path}", json=body)).status_code == status
    assert len((await server.client.get(SESSIONS)).json()) == 1


async def test_an_event_is_edited_and_what_follows_is_run_again(server: Serving) -> None:
    await server.client.post(SESSIONS, json={"sessionId": "s-1"})
    await _say(server, "s-1", "one", "two")
    before = _texts(await _get(server, "s-1"))
    events = (await _get(server, "s-1"))["events"]
    for message, expected in (({"parts": [{"text": "2"}]}, "2"), (None, "two")):
        reply = await server.client.post(
            f"{SESSIONS}/s-1/events/{events[2]['id']}/edit", json={"newMessage": message} if message else None
        )
        assert reply.status_code == 202, reply.text
        run = reply.json()
        async with server.client.stream(
            "GET", f"/runs/{run['id']}/events", headers={"accept": "text/event-stream"}
        ) as s:
            [_ async for _ in s.aiter_lines()]
        again = _texts(await _get(server, run["sessionId"]))
        assert again[:3] == [*before[:2], expected]
        assert len(again) == 4
    assert _texts(await _get(server, "s-1")) == before


async def test_sessions_are_searched(server: Serving) -> None:
    for number in range(3):
        state = {"n": number, "even": number % 2 == 0, "kind": "chat"}
        await server.client.post(SESSIONS, json={"sessionId": f"s-{number}", "state": state})
        await _say(server, f"s-{number}", f"message {number}")
    before = time.time()
    await server.client.patch(f"{SESSIONS}/s-0", json={"title": "Trip to Oslo"})

    async def found(**query: Any) -> list[str]:
        reply = await server.client.get(SESSIONS, params=query)
        assert reply.status_code == 200, reply.text
        return [session["id"] for session in reply.json()]

    assert await found(text="MESSAGE 1") == ["s-1"]
    assert await found(text="oslo") == ["s-0"]
    assert await found(state=["even=true", "kind=chat"]) == ["s-2", "s-0"]
    assert await found(state="n=1") == ["s-1"]
    assert await found(updated_from=before) == ["s-0"]
    assert await found(updated_before=before, text="message", limit=1) == ["s-2"]
    assert (await server.client.get(SESSIONS, params={"state": "n"})).status_code == 422


async def test_a_title_is_set_and_removed(server: Serving) -> None:
    await server.client.post(SESSIONS, json={"sessionId": "s-1", "state": {"a": 1}})
    changed = (await server.client.patch(f"{SESSIONS}/s-1", json={"title": "Mine", "stateDelta": {"a": 2}})).json()
    assert changed["state"] == {"a": 2, "__session_metadata__": {"displayName": "Mine"}}
    assert (await server.client.patch(f"{SESSIONS}/s-1", json={"title": ""})).json()["state"] == {"a": 2}
    assert (await server.client.patch(f"{SESSIONS}/s-1", json={})).status_code == 422


async def test_all_of_a_user_is_deleted(server: Serving) -> None:
    client = server.client
    artifact = {"filename": "user:a.txt", "artifact": {"text": "hello"}}
    for user in ("ann", "bob"):
        path = f"/apps/echo/users/{user}"
        await client.post(f"{path}/sessions", json={"sessionId": "s-1", "state": {"user:name": user, "app:motto": "x"}})
        body = {"appName": "echo", "userId": user, "sessionId": "s-1", "newMessage": {"parts": [{"text": "hello"}]}}
        assert (await client.post("/run", json=body)).status_code == 200
        assert (await client.post(f"{path}/sessions/s-1/artifacts", json=artifact)).status_code == 200
        assert (await client.patch(f"{path}/memory", json={"sessionId": "s-1"})).status_code == 200
        await server.app._server.credentials.save_credential(  # pyright: ignore[reportPrivateUsage]
            app_name="echo",
            user_id=user,
            credential_key="k",
            credential=AuthCredential(auth_type=AuthCredentialTypes.API_KEY, api_key="x"),
        )

    assert (await client.delete(USER)).json()["isComplete"]
    for user, count in (("ann", 0), ("bob", 1)):
        path = f"/apps/echo/users/{user}"
        assert len((await client.get(f"{path}/sessions")).json()) == count
        assert len((await client.get(f"{path}/sessions/s-1/artifacts")).json()) == count
        assert len((await client.get("/runs", params={"user_id": user})).json()["runs"]) == count
        services = server.app._server  # pyright: ignore[reportPrivateUsage]
        owner: dict[str, Any] = {"app_name": "echo", "user_id": user}
        assert len((await services.memory.search_memory(**owner, query="hello")).memories) == 2 * count
        assert len(await services.credentials.list_credentials(**owner)) == count
        traces = await services.traces.of_session("s-1", **owner)
        assert bool(traces) is bool(count)
        state = (await client.post(f"{path}/sessions")).json()["state"]
        assert state == {"app:motto": "x"} | ({"user:name": user} if count else {})


class _WithoutDeletion(InMemoryMemoryService):
    delete_user = BaseMemoryService.delete_user


async def test_a_store_that_can_not_delete_a_user_says_so(serve: Serve) -> None:
    server = await serve(echo(), services={"memory_service": _WithoutDeletion()})
    reply = await server.client.delete(USER)
    assert (reply.status_code, reply.json()["code"]) == (501, "NotOffered")


async def test_sessions_expire_by_the_ttl_of_their_app(serve: Serve) -> None:
    agent = echo("short")
    server = await serve(App(name="short", root_agent=agent, session_ttl_seconds=3600.0), echo("long"))
    for app in ("short", "long"):
        event = {"author": "user", "timestamp": time.time() - 7200.0}
        for session_id, events in (("old", [event]), ("new", [])):
            body = {"sessionId": session_id, "events": events}
            await server.client.post(f"/apps/{app}/users/ann/sessions", json=body)
    await server.client.post("/apps/short/users/ann/sessions/old/fork", json={"sessionId": "fork"})
    expired = [key.session_id async for key in server.app.engine.delete_expired_sessions()]
    assert expired == ["old"]
    left = (await server.client.get("/apps/short/users/ann/sessions")).json()
    assert sorted(session["id"] for session in left) == ["fork", "new"]
    assert len((await server.client.get("/apps/short/users/ann/sessions/fork")).json()["events"]) == 1
    assert len((await server.client.get("/apps/long/users/ann/sessions")).json()) == 2
