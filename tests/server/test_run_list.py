"""Runs can be listed, as far as the caller may see them."""

from __future__ import annotations

import time
from typing import Any

import pytest

from greenroom.client.async_client import AsyncClient
from greenroom.records.run import Run, RunStatus
from tests.server.agents import Gate, echo, gated
from tests.server.conftest import Serve
from tests.server.security.conftest import keys as keys
from tests.server.security.keys import Keys, bearer
from tests.server.serving import Frame, RawConnection, frames_of, run_body, until


async def test_runs_are_listed_by_app_user_session_status_and_time(serve: Serve) -> None:
    gate = Gate()
    server = await serve(echo(), gated(gate))
    for app, user, session in (("echo", "ann", "s-1"), ("echo", "bob", "s-2"), ("gated", "ann", "s-3")):
        await server.new_session(app, user, session)

    ids = {}
    for user, session in (("ann", "s-1"), ("bob", "s-2")):
        ids[session] = (await server.run("echo", userId=user, sessionId=session)).headers["x-run-id"]

    middle = time.time()
    path = "/apps/gated/users/ann/sessions/s-3/runs"
    ids["s-3"] = (await server.client.post(path, json={"newMessage": {"parts": [{"text": "a"}]}})).json()["id"]
    await until(lambda: gate.entered)

    for query, expected in (
        ({}, ["s-3", "s-2", "s-1"]),
        ({"app_name": "echo"}, ["s-2", "s-1"]),
        ({"user_id": "ann"}, ["s-3", "s-1"]),
        ({"session_id": "s-2"}, ["s-2"]),
        ({"status": "running"}, ["s-3"]),
        ({"status": ["running", "succeeded"]}, ["s-3", "s-2", "s-1"]),
        ({"created_before": str(middle)}, ["s-2", "s-1"]),
        ({"created_from": str(middle)}, ["s-3"]),
    ):
        found = (await server.client.get("/runs", params=query)).json()
        assert [run["id"] for run in found["runs"]] == [ids[session] for session in expected], query
        assert all("request" not in run and "caller" not in run for run in found["runs"])

    async with AsyncClient(server.url) as client:
        first = await client.list_runs(limit=2)
        rest = await client.list_runs(limit=2, page_token=first.next_page_token)
        assert [run.session_id for run in (*first.runs, *rest.runs)] == ["s-3", "s-2", "s-1"]
        assert rest.next_page_token is None
        assert [run.id for run in (await client.list_runs(status=[RunStatus.RUNNING])).runs] == [ids["s-3"]]

    gate.open()
    for query in ({"status": "done"}, {"limit": "0"}, {"page_token": "x"}, {"created_from": "soon"}):
        refused = await server.client.get("/runs", params=query)
        assert refused.status_code == 422, query
        assert refused.json()["errors"][0]["loc"] == ["query", *query]


async def test_callers_see_the_runs_that_they_may_read(serve: Serve, keys: Keys) -> None:
    server = await serve(echo(), echo("other"), auth=keys.auth)
    server.client.headers.update(bearer(keys("root", "admin")))
    for app, user in (("echo", "ann"), ("echo", "bob"), ("other", "ann"), ("other", "bob")):
        await server.new_session(app, user, f"{app}-{user}")
        reply = await server.run(app, userId=user, sessionId=f"{app}-{user}")
        assert reply.status_code == 200

    everything = {"echo-ann", "echo-bob", "other-ann", "other-bob"}
    for key, query, expected in (
        (keys("root", "admin"), "", everything),
        (keys("ann", "read"), "", {"echo-ann", "other-ann"}),
        (keys("ann", "read"), "?app_name=echo", {"echo-ann"}),
        (keys("ann", "read"), "?user_id=bob", None),
        (keys("ann", "read", apps=["other"]), "", {"other-ann"}),
        (keys("ann", "read", apps=["other"]), "?app_name=echo", None),
        (keys("carl", "read", "app:echo"), "?app_name=echo", {"echo-ann", "echo-bob"}),
        (keys("carl", "read", "app:echo"), "", set[str]()),
        (keys("boss", "admin", apps=["other"]), "", {"other-ann", "other-bob"}),
        (keys("ann", "run"), "", None),
    ):
        reply = await server.client.get(f"/runs{query}", headers=bearer(key))
        if expected is None:
            assert reply.status_code == 403, query
        else:
            assert {run["sessionId"] for run in reply.json()["runs"]} == expected, query


async def test_changes_of_runs_are_streamed_as_far_as_the_caller_may_see_them(serve: Serve, keys: Keys) -> None:
    gate = Gate()
    server = await serve(echo(), gated(gate), auth=keys.auth)
    server.client.headers.update(bearer(keys("root", "admin")))
    for app, user in (("echo", "ann"), ("echo", "bob"), ("gated", "ann")):
        await server.new_session(app, user)

    ended = (await server.run("echo", userId="ann")).headers["x-run-id"]

    async def watching(key: str, query: str = "") -> tuple[RawConnection, Frame]:
        connection = await server.connect()
        await connection.request("GET", f"/runs?{query}", {"accept": "text/event-stream", **bearer(key)})
        status, headers = await connection.head()
        assert (status, headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
        [snapshot] = frames_of(await connection.chunk())
        assert snapshot.event == "snapshot"
        return connection, snapshot

    ann, snapshot = await watching(keys("ann", "read"), "status=running")
    assert snapshot.data == {"runs": [], "nextPageToken": None}
    every, snapshot = await watching(keys("root", "admin"), "created_from=0")
    assert [run["id"] for run in snapshot.data["runs"]] == [ended]
    assert (await server.run("echo", userId="bob")).status_code == 200
    path = "/apps/gated/users/ann/sessions/s-1/runs"
    held = (await server.client.post(path, json={"newMessage": {"parts": [{"text": "a"}]}})).json()["id"]
    await until(lambda: gate.entered)
    gate.open()

    for connection, expected in ((ann, {"ann"}), (every, {"ann", "bob"})):
        seen: list[dict[str, Any]] = []
        while not seen or (seen[-1]["id"], seen[-1]["status"]) != (held, "succeeded"):
            seen += [frame.data for frame in frames_of(await connection.chunk())]
        assert {run["userId"] for run in seen} == expected
        assert all("request" not in run and "caller" not in run for run in seen)

    for key, query in ((keys("ann", "read"), "?user_id=bob"), (keys("ann", "run"), "")):
        reply = await server.client.get(f"/runs{query}", headers={"accept": "text/event-stream", **bearer(key)})
        assert reply.status_code == 403


async def test_a_reader_that_missed_changes_gets_the_list_again(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("greenroom.runs.watch.MAX_PENDING", 1)
    monkeypatch.setattr("greenroom.server.routes.run.CHANGES_SECONDS", 0.0)
    server = await serve(echo())
    connection = await server.connect()
    await connection.request("GET", "/runs", {"accept": "text/event-stream"})
    assert (await connection.head())[0] == 200
    assert frames_of(await connection.chunk())[0].data["runs"] == []
    engine: Any = server.app.engine
    [watch] = engine._watches._watches
    for name in ("a", "b"):
        watch.add(Run(id=name, app_name="x", user_id="u", session_id="s", status=RunStatus.QUEUED, created_at=1.0))
    [again] = frames_of(await connection.chunk())
    assert again.event == "snapshot"
    connection.drop()
    await until(lambda: not engine._watches._watches)


async def test_the_variable_limits_model_calls_where_the_server_has_no_setting(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADK_MAX_LLM_CALLS", "1")
    for setting, status in ((None, "LlmCallsLimitExceeded"), (2, None)):
        gate = Gate()
        gate.open()
        server = await serve(gated(gate), max_llm_calls=setting)  # it calls its model twice
        await server.new_session("gated")
        reply = await server.client.post("/run", json=run_body("gated"))
        assert (reply.json()["code"] if reply.status_code != 200 else None) == status


async def test_requests_and_the_server_limit_the_model_calls_of_a_run(serve: Serve) -> None:
    for setting, request, allowed in ((None, 1, 1), (1, None, 1), (1, 5, 1), (5, 1, 1), (2, None, 2), (0, None, 2)):
        gate = Gate()
        gate.open()
        server = await serve(gated(gate), max_llm_calls=setting)  # it calls its model twice
        await server.new_session("gated")
        more: dict[str, Any] = {} if request is None else {"maxLlmCalls": request}
        reply = await server.client.post("/run", json=run_body("gated", **more))
        if allowed == 2:
            assert reply.status_code == 200, (setting, request)
        else:
            assert reply.json()["code"] == "LlmCallsLimitExceeded", (setting, request)
