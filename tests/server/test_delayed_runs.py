"""Runs that start later, over HTTP: `startAt` and `delaySeconds` on every way to start a run."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from tests.server.conftest import Serve, Store
from tests.server.serving import Json, Serving, frames_of, run_body
from tests.server.webhook_receiver import receiving

MESSAGE = {"parts": [{"text": "hi"}]}
SOON = 0.3
LATER = 3600


@pytest.fixture(params=["memory", "sqlite", "replicas"])
def store(request: pytest.FixtureRequest) -> Store:
    return request.param


async def start(server: Serving, session: str, *, headers: dict[str, str] | None = None, **fields: Any) -> Json:
    reply = await server.client.post(f"{session}/runs", json={"newMessage": MESSAGE, **fields}, headers=headers)
    assert reply.status_code == 202, reply.text
    return reply.json()


async def texts(server: Serving, session: str) -> list[str]:
    events = (await server.client.get(session)).json()["events"]
    return [event["content"]["parts"][0]["text"] for event in events]


async def test_a_background_run_starts_at_its_time(server: Serving) -> None:
    session = await server.new_session("echo")
    at = time.time() + SOON
    run = await start(server, session, startAt=at)
    assert (run["status"], run["startAt"]) == ("queued", at)
    assert "startedAt" not in run
    assert (await server.client.get(f"/runs/{run['id']}")).json() == run
    listed = await server.client.get("/runs", params={"status": "queued"})
    assert listed.json()["runs"] == [run]

    ended = await server.wait_for_status(run["id"], "succeeded")
    assert at <= ended["startedAt"]
    assert "startAt" not in ended
    assert await texts(server, session) == ["hi", "You said hi"]


async def test_run_waits_for_its_time_and_its_end(server: Serving) -> None:
    await server.new_session("echo")
    asked_at = time.monotonic()
    reply = await server.run("echo", delaySeconds=SOON)
    assert time.monotonic() - asked_at >= SOON
    assert [event["content"]["parts"][0]["text"] for event in reply.json()] == ["You said hi"]


async def test_a_stream_is_kept_alive_until_the_run_starts(serve: Serve) -> None:
    server = await serve(keep_alive_seconds=0.05)
    await server.new_session("echo")
    async with server.client.stream("POST", "/run_sse", json=run_body("echo", delaySeconds=SOON)) as reply:
        assert (await server.client.get(f"/runs/{reply.headers['x-run-id']}")).json()["status"] == "queued"
        content = await reply.aread()
    assert content.startswith(b": keep-alive\n\n")
    (frame,) = frames_of(content)
    assert frame.data["content"]["parts"][0]["text"] == "You said hi"


async def test_a_run_is_read_before_it_starts(server: Serving) -> None:
    session = await server.new_session("echo")
    run = await start(server, session, delaySeconds=SOON)
    await start(server, session)
    headers = {"accept": "text/event-stream"}
    reply = await server.client.get(f"/runs/{run['id']}/events", headers=headers)
    *events, end = frames_of(reply.content)
    assert [event.id for event in events] == [3, 4]
    assert end.data["status"] == "succeeded"


async def test_a_cancelled_run_ends_its_stream(server: Serving) -> None:
    session = await server.new_session("echo")
    run = await start(server, session, delaySeconds=LATER)
    headers = {"accept": "text/event-stream"}
    async with server.client.stream("GET", f"/runs/{run['id']}/events", headers=headers) as reply:
        cancelled = (await server.client.post(f"/runs/{run['id']}/cancel")).json()
        assert (cancelled["status"], cancelled["error"]["code"]) == ("cancelled", "RunCancelled")
        (end,) = frames_of(await reply.aread())
    assert end.data.pop("problem")["code"] == "RunCancelled"
    assert end.data == cancelled
    assert await texts(server, session) == []


async def test_a_client_that_leaves_may_cancel_it(server: Serving) -> None:
    await server.new_session("echo")
    body = run_body("echo", delaySeconds=LATER, onDisconnect="cancel")
    async with server.client.stream("POST", "/run_sse", json=body) as reply:
        run_id = reply.headers["x-run-id"]
    await server.wait_for_status(run_id, "cancelled")


async def test_a_deleted_session_has_no_delayed_run(server: Serving) -> None:
    session = await server.new_session("echo")
    run = await start(server, session, delaySeconds=LATER)
    assert (await server.client.delete(session)).status_code == 200
    assert (await server.client.get(f"/runs/{run['id']}")).status_code == 404


async def test_a_repeated_request_is_one_delayed_run(server: Serving) -> None:
    session = await server.new_session("echo")
    starting = [start(server, session, delaySeconds=SOON, headers={"idempotency-key": "k"}) for _ in range(5)]
    runs = await asyncio.gather(*starting)
    assert len({run["id"] for run in runs}) == 1
    await server.wait_for_status(runs[0]["id"], "succeeded")
    assert await texts(server, session) == ["hi", "You said hi"]


async def test_an_edited_message_may_start_later(server: Serving) -> None:
    session = await server.new_session("echo")
    await server.run("echo", "first")
    events = (await server.client.get(session)).json()["events"]
    body = {"delaySeconds": LATER}
    reply = await server.client.post(f"{session}/events/{events[0]['id']}/edit", json=body)
    assert (reply.status_code, reply.json()["status"]) == (202, "queued")
    assert reply.json()["startAt"] > time.time()


async def test_webhooks_are_told_of_each_state(serve: Serve) -> None:
    server = await serve(allow_private_webhooks=True)
    session = await server.new_session("echo")
    async with receiving() as receiver:
        webhook = {"url": receiver.url, "states": ["queued", "running", "succeeded", "cancelled"]}
        run = await start(server, session, delaySeconds=LATER, webhooks=[webhook])
        await receiver.until_received("run.queued")
        await server.client.post(f"/runs/{run['id']}/cancel")
        await receiver.until_received("run.queued", "run.cancelled")
        await start(server, session, delaySeconds=SOON, webhooks=[webhook])
        states = ["run.queued", "run.cancelled", "run.queued", "run.running", "run.succeeded"]
        await receiver.until_received(*states)
