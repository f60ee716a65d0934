"""Requests to a server that doesn't run the session, which forwards them to the one that does."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from uuid import uuid4

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from greenroom.records.session import SessionKey
from greenroom.records.shard import shard_of
from tests.replicas.conftest import Pair
from tests.replicas.requests import Json, frames, log_of, message, path_of, run_of, sse, text_of, texts
from tests.replicas.servers import Server

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def new_session(pair: Pair, *, app: str = "desk") -> SessionKey:
    """Of the owner, made by way of the other server."""
    key = await pair.servers.key_of(pair.owner, app=app)
    created = await pair.other.http.post(path_of(key))
    assert created.status_code == 200, created.text
    return key


def approval_of(events: list[Json]) -> Json:
    """The message that approves the call that the events ask for."""
    parts = [part for event in events for part in event["content"]["parts"]]
    calls = [part["functionCall"] for part in parts if "functionCall" in part]
    (call,) = [call for call in calls if call["name"] == "adk_request_confirmation"]
    response = {"id": call["id"], "name": call["name"], "response": {"confirmed": True}}
    return {"role": "user", "parts": [{"functionResponse": response}]}


async def stamp_of(pair: Pair, server: Server) -> str:
    """The begin of the header of requests that the server forwards."""
    (row,) = await pair.servers.database.fetch("SELECT id, token FROM replicas WHERE address = ?", server.url)
    return f"id={row[0]}&token={row[1]}&scheme=http"


async def test_a_session_is_created_run_and_read_on_any_server(pair: Pair) -> None:
    key = await pair.servers.key_of(pair.owner)
    created = await pair.other.http.post(path_of(key), json={"state": {"a": 1}})
    assert created.status_code == 200, created.text
    assert (await pair.other.http.post(path_of(key), json={})).status_code == 409

    ran = await pair.other.http.post("/run", json=run_of(key, "hello"))
    assert ran.status_code == 200, ran.text
    assert texts(ran.json()) == ["You said hello"]
    assert "x-run-id" in ran.headers
    await pair.owner.http.post("/run", json=run_of(key, "again"))
    for server in (pair.other, pair.owner):
        session = (await server.http.get(path_of(key))).json()
        assert texts(session["events"]) == ["hello", "You said hello", "again", "You said again"]
        assert session["state"] == {"a": 1}


async def test_each_answer_is_seen_at_once_on_the_other_server(pair: Pair) -> None:
    """The other server has the session in its cache since the first read."""
    key = await new_session(pair)
    for turn in range(5):
        await pair.owner.http.post("/run", json=run_of(key, str(turn)))
        session = (await pair.other.http.get(path_of(key))).json()
        assert texts(session["events"])[-1] == f"You said {turn}"
        assert len(await log_of(pair.other.http, key)) == 2 * turn + 2


async def test_a_stream_is_that_of_the_owner(pair: Pair) -> None:
    key = await new_session(pair)
    body = run_of(key, "slow 5", streaming=True)
    async with pair.other.http.stream("POST", "/run_sse", json=body) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["cache-control"] == "no-cache"
        run_id = response.headers["x-run-id"]
        got = [frame async for frame in frames(response)]
    assert [text_of(frame.data) for frame in got[:-1]] == [f"word{number} " for number in range(5)]
    assert [frame.seq for frame in got] == [None] * 5 + [2]
    assert got[-1].data == (await log_of(pair.owner.http, key))[-1]
    assert (await pair.other.http.get(f"/runs/{run_id}")).json()["status"] == "succeeded"


async def test_a_background_run_is_followed_and_cancelled_on_the_other_server(pair: Pair) -> None:
    key = await new_session(pair)
    started = await pair.other.http.post(path_of(key) + "/runs", json={"newMessage": message("slow 3")})
    assert started.status_code == 202, started.text
    run_id = started.json()["id"]
    assert started.headers["location"] == f"/runs/{run_id}"
    followed = await sse(pair.other.http, "GET", f"/runs/{run_id}/events")
    assert [frame.kind for frame in followed] == ["message", "message", "end"]
    assert [frame.seq for frame in followed] == [1, 2, None]
    assert followed[-1].data["status"] == "succeeded"

    started = await pair.owner.http.post(path_of(key) + "/runs", json={"newMessage": message("slow 2000")})
    run_id = started.json()["id"]
    cancelled = await pair.other.http.post(f"/runs/{run_id}/cancel")
    assert cancelled.status_code == 200, cancelled.text
    assert cancelled.json()["status"] == "cancelled"
    assert (await pair.owner.http.get(f"/runs/{run_id}")).json()["status"] == "cancelled"


async def test_a_session_is_followed_on_the_other_server(pair: Pair) -> None:
    key = await new_session(pair)
    got: list[Any] = []
    async with pair.other.http.stream(
        "GET", path_of(key) + "/events", headers={"accept": "text/event-stream"}
    ) as response:
        await pair.other.http.post("/run", json=run_of(key, "hello"))
        async for frame in frames(response):
            got.append((frame.kind, frame.seq))
            if frame.kind == "end":
                break
    assert got == [("message", 1), ("message", 2), ("end", None)]


async def test_an_approval_is_answered_on_the_other_server(pair: Pair) -> None:
    key = await new_session(pair)
    answer = approval_of((await pair.owner.http.post("/run", json=run_of(key, "pay"))).json())
    answered = await pair.other.http.post("/run", json=run_of(key, "", newMessage=answer))
    assert texts(answered.json()) == ["done: {'paid': 7}"]
    again = await pair.other.http.post("/run", json=run_of(key, "", newMessage=answer))
    assert "paid" not in again.text


async def test_sessions_are_changed_forked_edited_and_deleted_on_the_other_server(pair: Pair) -> None:
    key = await new_session(pair)
    await pair.owner.http.post("/run", json=run_of(key, "hello"))
    patched = await pair.other.http.patch(path_of(key), json={"stateDelta": {"b": 2}, "title": "Talk"})
    assert patched.status_code == 200, patched.text
    assert (await pair.owner.http.get(path_of(key))).json()["state"]["b"] == 2

    named = await pair.servers.key_of(pair.owner)
    forked = await pair.other.http.post(path_of(key) + "/fork", json={"sessionId": named.session_id})
    assert forked.status_code == 200, forked.text
    assert texts(await log_of(pair.owner.http, named)) == ["hello", "You said hello"]

    event_id = (await log_of(pair.other.http, key))[0]["id"]
    edited = await pair.other.http.post(f"{path_of(key)}/events/{event_id}/edit", json={"newMessage": message("hi")})
    assert edited.status_code == 202, edited.text
    await sse(pair.other.http, "GET", f"/runs/{edited.json()['id']}/events")
    new_key = key._replace(session_id=edited.json()["sessionId"])
    assert texts(await log_of(pair.owner.http, new_key)) == ["hi", "You said hi"]

    assert (await pair.other.http.delete(path_of(key))).status_code == 200
    for server in (pair.owner, pair.other):
        assert (await server.http.get(path_of(key))).status_code == 404


async def test_all_data_of_a_user_is_deleted_on_all_servers(pair: Pair) -> None:
    user = uuid4().hex
    keys: list[SessionKey] = []
    for server in (pair.owner, pair.other, pair.owner, pair.other):
        created = await server.http.post(f"/apps/desk/users/{user}/sessions")
        keys.append(SessionKey("desk", user, created.json()["id"]))
    started = await pair.owner.http.post(path_of(keys[0]) + "/runs", json={"newMessage": message("slow 2000")})
    deleted = await pair.other.http.delete(f"/apps/desk/users/{user}")
    assert deleted.status_code == 200, deleted.text
    assert deleted.json()["isComplete"], deleted.text
    found = {one["kind"]: (one["found"], one["deleted"]) for one in deleted.json()["data"]}
    assert (found["sessions"], found["runs"]) == ((4, 4), (1, 1))
    for server in (pair.owner, pair.other):
        assert (await server.http.get(f"/apps/desk/users/{user}/sessions")).json() == []
        assert (await server.http.get(f"/runs/{started.json()['id']}")).status_code == 404


async def test_ids_that_a_server_makes_belong_to_it(pair: Pair) -> None:
    owners = await pair.servers.owners()
    for server in (pair.owner, pair.other):
        for _ in range(10):
            session_id = (await server.http.post("/apps/desk/users/ann/sessions")).json()["id"]
            assert owners[shard_of(SessionKey("desk", "ann", session_id))] == server.url


async def test_a_live_conversation_is_forwarded(pair: Pair) -> None:
    key = await new_session(pair, app="talk")
    query = f"app_name=talk&user_id={key.user_id}&session_id={key.session_id}&modalities=TEXT"
    async with connect(f"ws{pair.other.url.removeprefix('http')}/run_live?{query}") as socket:
        assert socket.response is not None
        assert socket.response.headers["x-run-id"]
        for text in ("hello", "again"):
            await socket.send(json.dumps({"content": message(text)}))
            heard: list[Json] = []
            async with asyncio.timeout(10):
                while not heard or not heard[-1].get("turnComplete"):
                    heard.append(json.loads(await socket.recv()))
            assert f"You said {text}" in texts(heard), heard
        await socket.send(json.dumps({"close": True}))
        with pytest.raises(ConnectionClosed):
            async with asyncio.timeout(10):
                while True:
                    await socket.recv()
        assert socket.close_code == 1000
    assert len(await log_of(pair.owner.http, key)) >= 4


async def test_a_live_conversation_with_an_unknown_session_is_refused_as_by_the_owner(pair: Pair) -> None:
    key = await pair.servers.key_of(pair.owner, app="talk")
    query = f"app_name=talk&user_id={key.user_id}&session_id={key.session_id}"
    ends: list[Any] = []
    for server in (pair.owner, pair.other):
        async with connect(f"ws{server.url.removeprefix('http')}/run_live?{query}") as socket:
            with pytest.raises(ConnectionClosed):
                await socket.recv()
            ends.append((socket.close_code, socket.close_reason))
    assert ends[0] == ends[1]
    assert ends[0][0] == 1002


async def test_a2a(pair: Pair) -> None:
    key = await pair.servers.key_of(pair.owner)
    while (await pair.servers.owners())[shard_of(_a2a_key(key.session_id))] != pair.owner.url:
        key = await pair.servers.key_of(pair.owner)
    sent = {
        "messageId": uuid4().hex,
        "role": "ROLE_USER",
        "contextId": key.session_id,
        "parts": [{"text": "hello"}],
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": sent}}
    headers = {"a2a-version": "1.0"}
    answer = await pair.other.http.post("/a2a/desk", json=body, headers=headers)
    assert "You said hello" in answer.text
    task_key = _a2a_key(key.session_id)
    assert texts(await log_of(pair.owner.http, task_key)) == ["hello", "You said hello"]

    body = {**body, "method": "SendStreamingMessage", "params": {"message": {**sent, "messageId": uuid4().hex}}}
    async with pair.other.http.stream("POST", "/a2a/desk", json=body, headers=headers) as response:
        results = [frame.data async for frame in frames(response)]
    assert results[0]["result"]["task"]["contextId"] == key.session_id
    assert results[-1]["result"]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    task_id = results[0]["result"]["task"]["id"]
    body = {**body, "method": "GetTask", "params": {"id": task_id}}
    got = (await pair.other.http.post("/a2a/desk", json=body, headers=headers)).json()
    assert got["result"]["status"]["state"] == "TASK_STATE_COMPLETED"


def _a2a_key(context_id: str) -> SessionKey:
    return SessionKey("desk", f"A2A_USER_{context_id}", context_id)


async def test_ag_ui(pair: Pair) -> None:
    for _ in range(4):  # threads of both servers
        body = {
            "threadId": uuid4().hex,
            "runId": uuid4().hex,
            "messages": [{"id": "m", "role": "user", "content": "hello"}],
            "state": {},
            "tools": [],
            "context": [],
            "forwardedProps": {},
        }
        async with pair.other.http.stream("POST", "/ag-ui/desk", json=body) as response:
            events = [frame.data async for frame in frames(response)]
        assert events[0]["type"] == "RUN_STARTED"
        assert events[-1]["type"] == "RUN_FINISHED"
        assert "You said hello" in "".join(event.get("delta", "") for event in events)


async def test_openai(pair: Pair) -> None:
    for _ in range(4):
        body: Json = {"model": "desk", "input": "hello"}
        first = (await pair.owner.http.post("/v1/responses", json=body)).json()
        body = {"model": "desk", "input": "again", "previous_response_id": first["id"]}
        second = await pair.other.http.post("/v1/responses", json=body)
        assert "You said again" in second.text
        got = await pair.other.http.get(f"/v1/responses/{second.json()['id']}")
        assert "You said again" in got.text

    chat = {"model": "desk", "messages": [{"role": "user", "content": "hello"}]}
    assert "You said hello" in (await pair.other.http.post("/v1/chat/completions", json=chat)).text


async def test_a_client_that_leaves_cancels_its_run_at_the_owner(pair: Pair) -> None:
    key = await new_session(pair)
    body = run_of(key, "slow 2000", streaming=True, onDisconnect="cancel")
    async with pair.other.http.stream("POST", "/run_sse", json=body) as response:
        run_id = response.headers["x-run-id"]
        async for _ in frames(response):
            break
    async with asyncio.timeout(10):
        while (await pair.owner.http.get(f"/runs/{run_id}")).json()["status"] == "running":
            await asyncio.sleep(0.05)
    assert (await pair.owner.http.get(f"/runs/{run_id}")).json()["status"] == "cancelled"


async def test_a_forwarded_request_is_not_forwarded_again(pair: Pair) -> None:
    key = await new_session(pair)
    stamp = f"{await stamp_of(pair, pair.owner)}&run=e-{uuid4()}"
    headers = {"greenroom-forwarded": stamp}
    refused = await pair.other.http.post("/run", json=run_of(key, "hello"), headers=headers)
    assert refused.status_code == 503
    assert refused.headers["retry-after"] == "1"
    assert refused.json()["code"] == "OwnershipLost"
    assert "greenroom-refused" in refused.headers
    assert await log_of(pair.owner.http, key) == []


async def test_a_forged_stamp_is_ignored(pair: Pair) -> None:
    key = await new_session(pair)
    (row,) = await pair.servers.database.fetch("SELECT id FROM replicas WHERE address = ?", pair.owner.url)
    for stamp in (f"id={row[0]}&token=x&scheme=http", "id=x&token=y&client=10.0.0.1", "%%%", ""):
        answer = await pair.other.http.post("/run", json=run_of(key, "hi"), headers={"greenroom-forwarded": stamp})
        assert answer.status_code == 200
        assert texts(answer.json()) == ["You said hi"]


async def test_errors_of_the_owner_are_passed_on(pair: Pair) -> None:
    key = await pair.servers.key_of(pair.owner)
    answers = [await server.http.post("/run", json=run_of(key, "hello")) for server in (pair.owner, pair.other)]
    assert [answer.status_code for answer in answers] == [404, 404]
    assert answers[0].json() == answers[1].json()
    assert answers[0].headers["content-type"] == answers[1].headers["content-type"]


async def test_a_request_that_is_sent_again_has_one_effect(pair: Pair) -> None:
    key = await new_session(pair)
    stamp = await stamp_of(pair, pair.other)
    run_id = f"e-{uuid4()}"

    async def send(*, again: str, **fields: Any) -> httpx.Response:
        headers = {"greenroom-forwarded": f"{stamp}&run={run_id}{again}"}
        return await pair.owner.http.post("/run", json=run_of(key, "slow 4", **fields), headers=headers)

    first, second = await asyncio.gather(send(again=""), send(again="&again=1"))
    third = await send(again="&again=1")
    assert first.headers["x-run-id"] == second.headers["x-run-id"] == third.headers["x-run-id"] == run_id
    assert first.json() == second.json() == third.json()
    assert len(await log_of(pair.owner.http, key)) == 2


async def test_an_approval_that_is_sent_again_has_one_effect(pair: Pair) -> None:
    key = await new_session(pair)
    answer = run_of(
        key, "", newMessage=approval_of((await pair.owner.http.post("/run", json=run_of(key, "pay"))).json())
    )
    stamp = await stamp_of(pair, pair.other)
    run_id = f"e-{uuid4()}"
    answers = [
        await pair.owner.http.post("/run", json=answer, headers={"greenroom-forwarded": f"{stamp}&run={run_id}{again}"})
        for again in ("", "&again=1")
    ]
    assert answers[0].headers["x-run-id"] == answers[1].headers["x-run-id"] != run_id
    assert texts(answers[0].json()) == ["done: {'paid': 7}"]
    assert answers[0].json() == answers[1].json()
    assert texts(await log_of(pair.owner.http, key)).count("done: {'paid': 7}") == 1


async def test_a_client_cannot_name_a_run(pair: Pair) -> None:
    key = await new_session(pair)
    headers = {"greenroom-forwarded": f"id=x&token=y&run=e-{uuid4()}&again=1"}
    runs = [await pair.owner.http.post("/run", json=run_of(key, "hi"), headers=headers) for _ in range(2)]
    assert runs[0].headers["x-run-id"] != runs[1].headers["x-run-id"]
    assert runs[0].headers["x-run-id"] not in headers["greenroom-forwarded"]
