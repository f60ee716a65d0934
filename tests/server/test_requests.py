"""The inbox: requests to people of all sessions, answered by id."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from greenroom import FunctionTool, LlmAgent, get_user_choice, request_input
from greenroom.records.content import FunctionCall
from greenroom.server.access.api_key_file import ApiKeyFile
from greenroom.server.settings import AuthSettings
from tests.server.agents import scripted
from tests.server.conftest import Serve, Store
from tests.server.serving import Json, Serving, until


@pytest.fixture(params=["memory", "sqlite", "replicas"])
def store(request: pytest.FixtureRequest) -> Store:
    return request.param


def remove(name: str) -> str:
    return f"removed {name}"


def order_report(month: str) -> None:
    """Orders a report."""


def desk(*calls: FunctionCall, **options: Any) -> LlmAgent:
    """Makes the calls one after the other, each once it has the response to the one before, and then is done."""
    tools = [
        FunctionTool(remove, require_confirmation=True),
        FunctionTool(order_report, is_long_running=True),
        request_input,
        get_user_choice,
    ]

    def answer(request: Any) -> Any:
        responses = [
            part.function_response
            for content in request.contents
            for part in content.parts or ()
            if part.function_response is not None
        ]
        answered = {response.id for response in responses}
        for call in calls:
            if call.id not in answered:
                return call
        return f"Done: {responses[-1].response}"

    return scripted("desk", answer, tools=tools, **options)


def call(name: str = "x", call_id: str = "c-1") -> FunctionCall:
    return FunctionCall(id=call_id, name="remove", args={"name": name})


async def ask(server: Serving, *, user: str = "ann", session: str = "s-1", **more: Any) -> str:
    """Runs until the run waits; returns its id."""
    await server.new_session("desk", user, session)
    reply = await server.run("desk", "go", user_id=user, session_id=session, **more)
    assert reply.status_code == 200, reply.text
    return reply.headers["x-run-id"]


async def listed(client: httpx.AsyncClient, **query: Any) -> list[Json]:
    reply = await client.get("/requests", params=query)
    assert reply.status_code == 200, reply.text
    return reply.json()["requests"]


async def until_listed(client: httpx.AsyncClient, count: int, **query: Any) -> list[Json]:
    """Waits for a number of requests: the end of a run is sent before other servers can read its record."""
    found: list[Json] = []

    async def reached() -> bool:
        found[:] = await listed(client, **query)
        return len(found) == count

    await until(reached)
    return found


async def only(client: httpx.AsyncClient, **query: Any) -> Json:
    [request] = await until_listed(client, 1, **query)
    return request


async def answer(client: httpx.AsyncClient, request_id: str, **body: Any) -> httpx.Response:
    return await client.post(f"/requests/{request_id}/answer", json=body)


async def test_an_approval_is_not_listed_after_30_days(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    server = await serve(desk(call()))
    await ask(server)
    request = await only(server.client)
    real_time = time.time
    monkeypatch.setattr(time, "time", lambda: real_time() + 30 * 24 * 3600 + 1)
    assert await listed(server.client) == []
    expired = (await server.client.get(f"/requests/{request['id']}")).json()
    assert expired["status"] == "expired"
    assert "mayAnswer" not in expired
    refused = await answer(server.client, request["id"], confirmed=True)
    assert (refused.status_code, refused.json()["code"]) == (409, "RequestClosed")
    assert "it was not answered within 30 days" in refused.json()["detail"]


async def test_an_approval_is_listed_and_answered_by_id(serve: Serve) -> None:
    server = await serve(desk(call()))
    assert await listed(server.client) == []
    run_id = await ask(server)

    request = await only(server.client)
    run = (await server.client.get(f"/runs/{run_id}")).json()
    assert list(run["requests"].values()) == [request["id"]]
    assert (await server.client.get(f"/requests/{request['id']}")).json() == request
    shown = {key: request[key] for key in ("kind", "status", "appName", "userId", "sessionId", "runId", "agent")}
    assert shown == {
        "kind": "approval", "status": "open", "appName": "desk", "userId": "ann", "sessionId": "s-1",
        "runId": run_id, "agent": "desk",
    }  # fmt: skip
    assert request["tool"] == "remove"
    assert request["arguments"] == {"name": "x"}
    assert request["message"].startswith("remove wants to run")
    assert request["approvers"] == ["ann"]
    assert request["callId"] in run["requests"]

    reply = await answer(server.client, request["id"], confirmed=True, comment="of course")
    assert reply.status_code == 200, reply.text
    assert reply.json()["run"]["id"] == run_id
    assert reply.json()["request"]["confirmed"] is True
    ended = await server.wait_for_status(run_id, "succeeded")
    assert "requests" not in ended
    events = (await server.client.get(f"/runs/{run_id}/events")).json()["events"]
    assert events[-1]["content"]["parts"][0]["text"] == "Done: {'result': 'removed x'}"
    assert await listed(server.client) == []

    closed = (await server.client.get(f"/requests/{request['id']}")).json()
    assert closed["status"] == "answered"
    assert [(one["userId"], one["confirmed"], one["comment"]) for one in closed["answers"]] == [
        ("ann", True, "of course")
    ]
    second = await answer(server.client, request["id"], confirmed=False)
    assert second.status_code == 409
    assert second.json()["code"] == "RequestClosed"
    assert "it was approved by user 'ann'" in second.json()["detail"]


async def test_arguments_are_edited_and_calls_refused(serve: Serve) -> None:
    server = await serve(desk(call("x"), call("y", "c-2")))
    run_id = await ask(server)
    first = await only(server.client)
    assert (await answer(server.client, first["id"], confirmed=True, payload={"name": "z"})).status_code == 200
    await server.wait_for_status(run_id, "waiting")
    second = await only(server.client)
    assert (second["id"], second["arguments"]) != (first["id"], first["arguments"])
    assert (await answer(server.client, second["id"], confirmed=False)).json()["request"]["confirmed"] is False
    await server.wait_for_status(run_id, "succeeded")
    events = (await server.client.get(f"/runs/{run_id}/events")).json()["events"]
    responses = [part.get("functionResponse") for event in events for part in event["content"]["parts"]]
    results = [one["response"] for one in responses if one and one["name"] == "remove"]
    assert {"result": "removed z"} in results
    assert results[-1] == {"error": "A person refused this call; it was not made."}


async def test_answers_through_run_close_the_request(serve: Serve) -> None:
    server = await serve(desk(call()))
    run_id = await ask(server)
    request = await only(server.client)
    response = {"id": request["callId"], "name": "adk_request_confirmation", "response": {"confirmed": True}}
    reply = await server.run("desk", None, newMessage={"parts": [{"functionResponse": response}]})
    assert reply.headers["x-run-id"] == run_id
    closed = (await server.client.get(f"/requests/{request['id']}")).json()
    assert (closed["status"], closed["confirmed"], closed["answers"][0]["userId"]) == ("answered", True, "ann")
    assert await listed(server.client) == []


async def test_one_of_two_requests_stays_open(serve: Serve) -> None:
    agent = scripted(
        "desk",
        [[call("x"), call("y", "c-2")], "One is done", "Done"],
        tools=[FunctionTool(remove, require_confirmation=True)],
    )
    server = await serve(agent)
    run_id = await ask(server)
    one, other = await until_listed(server.client, 2)
    assert (await answer(server.client, one["id"], confirmed=True)).status_code == 200
    await server.wait_for_status(run_id, "waiting")
    assert await only(server.client) == other
    assert (await answer(server.client, other["id"], confirmed=True)).status_code == 200
    await server.wait_for_status(run_id, "succeeded")


async def test_input_is_asked_for_and_given(serve: Serve) -> None:
    asked = FunctionCall(id="c-1", name="adk_request_input", args={"message": "How many?"})
    chosen = FunctionCall(id="c-2", name="get_user_choice", args={"options": ["red", "blue"]})
    server = await serve(desk(asked, chosen))
    run_id = await ask(server)
    request = await only(server.client, kind="input")
    assert (request["message"], request["tool"], request["callId"]) == ("How many?", "adk_request_input", "c-1")
    missing = await answer(server.client, request["id"], confirmed=True)
    assert missing.status_code == 422
    assert (await answer(server.client, request["id"], response={"count": 5})).status_code == 200
    await server.wait_for_status(run_id, "waiting")
    request = await only(server.client)
    assert (request["tool"], request["arguments"]) == ("get_user_choice", {"options": ["red", "blue"]})
    assert (await answer(server.client, request["id"], response="blue")).status_code == 200
    await server.wait_for_status(run_id, "succeeded")
    events = (await server.client.get(f"/runs/{run_id}/events")).json()["events"]
    assert events[-1]["content"]["parts"][0]["text"] == "Done: {'result': 'blue'}"


async def test_calls_that_programs_answer_are_not_listed(serve: Serve) -> None:
    server = await serve(desk(FunctionCall(id="c-1", name="order_report", args={"month": "May"})))
    run_id = await ask(server)
    assert (await server.wait_for_status(run_id, "waiting")).get("requests") is None
    assert await listed(server.client) == []


async def test_requests_end_with_their_run_or_session(serve: Serve) -> None:
    server = await serve(desk(call()))
    run_id = await ask(server)
    await ask(server, session="s-2")
    cancelled, deleted = sorted(await until_listed(server.client, 2), key=lambda one: one["sessionId"])
    await server.client.post(f"/runs/{run_id}/cancel")
    await server.client.delete("/apps/desk/users/ann/sessions/s-2")
    assert await listed(server.client) == []
    assert (await server.client.get(f"/requests/{cancelled['id']}")).json()["status"] == "cancelled"
    assert (await server.client.get(f"/requests/{deleted['id']}")).status_code == 404
    refused = await answer(server.client, cancelled["id"], confirmed=True)
    assert (refused.status_code, refused.json()["code"]) == (409, "RequestClosed")
    gone = await answer(server.client, deleted["id"], confirmed=True)
    assert (gone.status_code, gone.json()["code"]) == (404, "RequestNotFound")


async def test_answers_at_once_count_once(serve: Serve) -> None:
    server = await serve(desk(call()))
    run_id = await ask(server)
    request = await only(server.client)
    replies = await asyncio.gather(*(answer(server.client, request["id"], confirmed=True) for _ in range(8)))
    assert sorted(reply.status_code for reply in replies) == [200] + [409] * 7
    await server.wait_for_status(run_id, "succeeded")
    events = (await server.client.get(f"/runs/{run_id}/events")).json()["events"]
    assert sum(event["author"] == "user" for event in events) == 2


async def test_lists_are_filtered_and_paged(serve: Serve) -> None:
    server = await serve(desk(call()))
    for user, session in (("ann", "s-1"), ("ann", "s-2"), ("bob", "s-1")):
        await ask(server, user=user, session=session)
    found = await until_listed(server.client, 3)
    assert found == sorted(found, key=lambda one: (one["createdAt"], one["id"]), reverse=True)
    assert [one["userId"] for one in await listed(server.client, user_id="bob")] == ["bob"]
    assert len(await listed(server.client, app_name="desk", kind="approval", tool="remove")) == 3
    assert await listed(server.client, app_name="other") == []
    assert await listed(server.client, kind="login") == []
    assert await listed(server.client, tool="other") == []
    assert len(await listed(server.client, approver="ann")) == 2
    assert await listed(server.client, mine=True) == []

    first = (await server.client.get("/requests", params={"limit": 2})).json()
    rest = (await server.client.get("/requests", params={"limit": 2, "page_token": first["nextPageToken"]})).json()
    assert first["requests"] + rest["requests"] == found
    assert rest["nextPageToken"] is None
    assert (await server.client.get("/requests", params={"page_token": "x"})).status_code == 422


async def test_others_requests_are_not_found(serve: Serve, tmp_path: Path) -> None:
    file = ApiKeyFile(tmp_path / "keys.db")

    def key(subject: str, *scopes: str, **more: Any) -> str:
        return file.create(name="", subject=subject, scopes=scopes or ("run", "read"), **more)[1]

    ann, bob = key("ann"), key("bob")
    support = key("support", "run", "read", "app:desk")
    other_app = key("support", "run", "read", "admin", apps=["shop"])
    reader = key("ann", "read")
    server = await serve(desk(call()), auth=AuthSettings(keys=str(file.path)))

    def client(api_key: str) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=server.url, headers={"authorization": f"Bearer {api_key}"}, timeout=30)

    async with (
        client(ann) as of_ann,
        client(bob) as of_bob,
        client(support) as of_support,
        client(other_app) as of_other_app,
        client(reader) as of_reader,
    ):
        await of_ann.post("/apps/desk/users/ann/sessions", json={"sessionId": "s-1"})
        body = {"appName": "desk", "userId": "ann", "sessionId": "s-1", "newMessage": {"parts": [{"text": "go"}]}}
        assert (await of_ann.post("/run", json=body)).status_code == 200
        request = await only(of_ann, mine=True)
        assert request["mayAnswer"] is True
        assert await only(of_support) == {key: value for key, value in request.items() if key != "mayAnswer"}
        for stranger in (of_bob, of_other_app):
            assert await listed(stranger) == []
            assert (await stranger.get(f"/requests/{request['id']}")).status_code == 404
            assert (await answer(stranger, request["id"], confirmed=True)).status_code == 404
        assert (await of_bob.get("/requests", params={"approver": "ann"})).status_code == 403
        assert (await of_other_app.get("/requests", params={"app_name": "desk"})).status_code == 403
        assert (await answer(of_reader, request["id"], confirmed=True)).status_code == 403
        assert (await answer(of_ann, request["id"], confirmed=True, userId="bob")).status_code == 403
        assert (await answer(of_support, request["id"], confirmed=True)).status_code == 200
        closed = (await of_ann.get(f"/requests/{request['id']}")).json()
        assert closed["answers"][0]["userId"] == "support"


async def test_a_stream_sends_what_is_asked_and_answered(serve: Serve) -> None:
    server = await serve(desk(call()), keep_alive_seconds=1)
    await ask(server)
    [first] = await until_listed(server.client, 1)
    headers = {"accept": "text/event-stream"}
    async with server.client.stream("GET", "/requests", headers=headers, timeout=30) as reply, asyncio.timeout(20):
        frames = frames_in(reply)
        name, snapshot = await anext(frames)
        assert (name, [one["id"] for one in snapshot["requests"]]) == ("snapshot", [first["id"]])
        await ask(server, session="s-2")
        second = await shown_in(frames, sessionId="s-2", status="open")
        assert (await answer(server.client, first["id"], confirmed=True)).status_code == 200
        await shown_in(frames, id=first["id"], status="answered", confirmed=True)
        await server.client.post(f"/runs/{second['runId']}/cancel")
        await shown_in(frames, id=second["id"], status="cancelled")


async def shown_in(frames: AsyncIterator[tuple[str, Json]], **fields: Any) -> Json:
    """The next request with these fields. Where servers begin to notify each other, the snapshot comes again."""
    async for name, data in frames:
        for request in data["requests"] if name == "snapshot" else [data]:
            if fields.items() <= request.items():
                return request
    raise AssertionError("the stream has ended")


async def frames_in(reply: httpx.Response) -> AsyncIterator[tuple[str, Json]]:
    name = ""
    async for line in reply.aiter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))
            name = ""
