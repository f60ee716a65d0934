"""Several requests for one session or with one key, and runs that take too long."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.server.agents import Gate, HeldModel, echo, gated, scripted
from tests.server.conftest import Serve, Store
from tests.server.serving import Serving, run_body, until

MESSAGE = {"newMessage": {"parts": [{"text": "hi"}]}}


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest) -> Store:
    return request.param


async def test_runs_of_one_session_wait_for_each_other(serve: Serve) -> None:
    agent = echo()
    server = await serve(agent)
    session = await server.new_session("echo")
    replies = await asyncio.gather(*(server.run("echo", f"m{n}") for n in range(20)))
    assert all(reply.status_code == 200 for reply in replies)
    assert [reply.json()[0]["content"]["parts"][0]["text"] for reply in replies] == [
        f"You said m{n}" for n in range(20)
    ]
    events = (await server.client.get(session)).json()["events"]
    for user, answer in zip(events[::2], events[1::2], strict=True):
        assert (user["author"], answer["author"]) == ("user", "echo")
        assert user["invocationId"] == answer["invocationId"]


async def test_reject_answers_409_while_a_run_is_active(serve: Serve) -> None:
    gate = Gate()
    server = await serve(gated(gate))
    session = await server.new_session("gated")
    first = (await server.client.post(f"{session}/runs", json=MESSAGE)).json()["id"]
    await until(lambda: gate.entered)
    for path in ("/run", "/run_sse"):
        reply = await server.client.post(path, json=run_body("gated", multitaskStrategy="reject"))
        assert (reply.status_code, reply.json()["code"]) == (409, "SessionBusy")
        assert first in reply.json()["detail"]
    gate.open()
    await server.wait_for_status(first, "succeeded")
    assert (await server.run("gated", multitaskStrategy="reject")).status_code == 200


async def test_interrupt_replaces_the_active_and_the_queued_runs(serve: Serve) -> None:
    gate = Gate()
    server = await serve(gated(gate))
    session = await server.new_session("gated")
    first = (await server.client.post(f"{session}/runs", json=MESSAGE)).json()["id"]
    await until(lambda: gate.entered)
    queued = (await server.client.post(f"{session}/runs", json=MESSAGE)).json()["id"]
    gate.open()
    reply = await server.run("gated", multitaskStrategy="interrupt")
    assert reply.status_code == 200
    assert reply.json()[-1]["content"]["parts"] == [{"text": "through"}]
    assert (await server.client.get(f"/runs/{first}")).json()["status"] in ("cancelled", "succeeded")
    assert (await server.client.get(f"/runs/{queued}")).json()["status"] == "cancelled"


async def test_a_run_that_was_interrupted_is_answered_with_409(serve: Serve) -> None:
    gate = Gate()
    server = await serve(gated(gate))
    await server.new_session("gated")
    first = asyncio.ensure_future(server.run("gated"))
    await until(lambda: gate.entered)
    second = asyncio.ensure_future(server.run("gated", multitaskStrategy="interrupt"))
    reply = await first
    assert (reply.status_code, reply.json()["code"]) == (409, "RunCancelled")
    gate.open()
    assert (await second).status_code == 200


@pytest.mark.parametrize("path", ["/run", "/run_sse", "background"])
async def test_one_key_starts_one_run(server: Serving, path: str) -> None:
    session = await server.new_session("echo")
    headers = {"idempotency-key": "k-1"}

    async def send(text: str = "hi", **more: str) -> Any:
        if path == "background":
            body: dict[str, Any] = {"newMessage": {"parts": [{"text": text}]}}
            return await server.client.post(f"{session}/runs", json=body, headers={**headers, **more})
        return await server.client.post(path, json=run_body("echo", text), headers={**headers, **more})

    first = await send()
    assert first.is_success
    if path == "background":
        await server.wait_for_status(first.json()["id"], "succeeded")
    again = await send()
    assert again.status_code == first.status_code
    if path == "background":
        assert again.json()["id"] == first.json()["id"]
    else:
        assert again.headers["x-run-id"] == first.headers["x-run-id"]
        assert again.content == first.content

    other_body = await send("something else")
    assert (other_body.status_code, other_body.json()["code"]) == (422, "IdempotencyConflict")
    other_key = await send(**{"idempotency-key": "k-2"})
    assert other_key.is_success
    if path == "background":
        await server.wait_for_status(other_key.json()["id"], "succeeded")
    assert len((await server.client.get(session)).json()["events"]) == 4


async def test_one_key_sent_many_times_at_once_starts_one_run(serve: Serve) -> None:
    gate = Gate()
    server = await serve(gated(gate))
    session = await server.new_session("gated")
    sent = [asyncio.ensure_future(server.run("gated", headers={"idempotency-key": "k"})) for _ in range(10)]
    other = asyncio.ensure_future(server.run("gated", "another", headers={"idempotency-key": "k"}))
    await until(lambda: gate.entered)
    gate.open()
    replies = await asyncio.gather(*sent)
    assert len({reply.headers["x-run-id"] for reply in replies}) == 1
    assert len({reply.content for reply in replies}) == 1
    assert (await other).status_code == 422
    assert len((await server.client.get(session)).json()["events"]) == 4
    assert gate.entered == 1


async def test_a_key_belongs_to_its_user(server: Serving) -> None:
    await server.new_session("echo")
    await server.new_session("echo", user="bob")
    headers = {"idempotency-key": "k"}
    ann = await server.run("echo", "same", headers=headers)
    bob = await server.run("echo", "same", headers=headers, userId="bob")
    assert bob.status_code == 200
    assert ann.headers["x-run-id"] != bob.headers["x-run-id"]


async def test_a_failed_run_fails_again_for_the_same_key(serve: Serve) -> None:
    server = await serve(scripted("bad", [ValueError("bad city")]))
    await server.new_session("bad")
    headers = {"idempotency-key": "k"}
    first = await server.run("bad", headers=headers)
    again = await server.run("bad", headers=headers)
    assert (first.status_code, again.status_code) == (500, 500)
    assert first.json() == again.json()
    frames = [frame.data for frame in await server.sse("bad", headers=headers)]
    assert frames[-1]["error"] == "ValueError: bad city"


async def test_a_request_that_was_refused_leaves_its_key_free(server: Serving) -> None:
    headers = {"idempotency-key": "k"}
    assert (await server.run("echo", headers=headers)).status_code == 404
    await server.new_session("echo")
    assert (await server.run("echo", headers=headers)).status_code == 200


async def test_a_run_past_its_deadline_is_failed(serve: Serve) -> None:
    gate = Gate()
    server = await serve(gated(gate))
    session = await server.new_session("gated")
    reply = await server.run("gated", deadlineSeconds=0.05)
    assert (reply.status_code, reply.json()["code"]) == (504, "DeadlineExceeded")
    frames = await server.sse("gated", deadlineSeconds=0.5)
    assert frames[-1].data["error"].startswith("DeadlineExceeded: ")
    run_id = frames[0].data["invocationId"]
    record = (await server.client.get(f"/runs/{run_id}")).json()
    assert (record["status"], record["error"]["code"]) == ("failed", "DeadlineExceeded")
    events = (await server.client.get(session)).json()["events"]
    answered = {
        part["functionResponse"]["id"]
        for event in events for part in event.get("content", {}).get("parts", ()) if "functionResponse" in part
    }  # fmt: skip
    called = {
        part["functionCall"]["id"]
        for event in events for part in event.get("content", {}).get("parts", ()) if "functionCall" in part
    }  # fmt: skip
    assert called == answered


async def test_the_server_may_have_a_deadline_for_all(serve: Serve) -> None:
    server = await serve(gated(Gate()), run_deadline_seconds=0.05)
    await server.new_session("gated")
    assert (await server.run("gated")).status_code == 504
    assert (await server.run("gated", deadlineSeconds=0.02)).status_code == 504


async def test_sessions_do_not_wait_for_each_other(serve: Serve) -> None:
    gate = Gate()
    server = await serve(gated(gate), echo())
    await server.new_session("gated")
    held = asyncio.ensure_future(server.run("gated"))
    await until(lambda: gate.entered)
    await server.new_session("echo")
    assert (await server.run("echo")).status_code == 200
    assert not held.done()
    gate.open()
    assert (await held).status_code == 200


async def test_a_stopped_server_lets_runs_end(serve: Serve) -> None:
    agent = echo("held")
    agent.model = model = HeldModel()
    server = await serve(agent, grace_seconds=5.0)
    session = await server.new_session("held")
    run_id = (await server.client.post(f"{session}/runs", json=MESSAGE)).json()["id"]
    await until(lambda: model.calls)
    closing = asyncio.ensure_future(server.app.engine.close(grace_seconds=5.0))
    await asyncio.sleep(0)
    assert (await server.run("held")).status_code == 503
    model.let_go()
    await closing
    assert (await server.client.get(session)).json()["events"][-1]["content"]["parts"] == [
        {"text": "one two three four "}
    ]
    assert run_id


async def test_an_empty_key_is_no_key(serve: Serve) -> None:
    server = await serve()
    await server.new_session("echo")
    first, second = [await server.run("echo", text, headers={"idempotency-key": ""}) for text in ("one", "two")]
    assert first.headers["x-run-id"] != second.headers["x-run-id"]
    assert "You said two" in second.text
