"""Messages of Pub/Sub and events of Eventarc run apps, once each."""

from __future__ import annotations

import asyncio
import json
import time
from base64 import b64encode
from typing import Any

import httpx
import pytest

from greenroom import LlmAgent
from greenroom.records.model_exchange import LlmRequest
from greenroom.testing import ScriptedModel
from tests.server.agents import HeldModel, last_text, scripted
from tests.server.conftest import Serve
from tests.server.security.conftest import keys
from tests.server.security.keys import Keys, bearer
from tests.server.serving import Serving

__all__ = ["keys"]

SUBSCRIPTION = "projects/p/subscriptions/s"
USER = "projects--p--subscriptions--s"


def message(data: str | None = '{"city": "Oslo"}', message_id: str | None = "7", **attributes: str) -> dict[str, Any]:
    encoded = None if data is None else b64encode(data.encode()).decode()
    return {
        "message": {
            "data": encoded,
            "messageId": message_id,
            "publishTime": "2026-11-23T10:00:00Z",
            "attributes": attributes,
        },
        "subscription": SUBSCRIPTION,
    }


async def post(server: Serving, source: str, body: Any, headers: dict[str, str] | None = None) -> httpx.Response:
    return await server.client.post(f"/apps/echo/trigger/{source}", json=body, headers=headers)


async def sessions(server: Serving, user: str = USER) -> list[Any]:
    listed = (await server.client.get(f"/apps/echo/users/{user}/sessions")).json()
    return [(await server.client.get(f"/apps/echo/users/{user}/sessions/{one['id']}")).json() for one in listed]


def text(session: Any) -> Any:
    return json.loads(session["events"][0]["content"]["parts"][0]["text"])


async def test_a_message_runs_in_a_session_of_its_own(serve: Serve) -> None:
    server = await serve(scripted("echo", last_text), gates=("triggers",))
    reply = await post(server, "pubsub", message(kind="order"))
    assert (reply.status_code, reply.json()) == (200, {"status": "success"})
    assert (await post(server, "pubsub", message("plain text", message_id="8"))).status_code == 200
    assert (await post(server, "pubsub", message(None, message_id=None))).status_code == 200
    assert (await post(server, "pubsub", message(None, message_id=None))).status_code == 200
    found = await sessions(server)
    assert sorted(json.dumps(text(one), sort_keys=True) for one in found) == [
        '{"attributes": {"kind": "order"}, "data": {"city": "Oslo"}}',
        '{"attributes": {}, "data": "plain text"}',
        '{"attributes": {}, "data": null}',
        '{"attributes": {}, "data": null}',
    ]
    [first] = [one for one in found if one["state"]["trigger_delivery"].get("id") == "7"]
    assert first["state"]["trigger_delivery"] == {
        "source": "pubsub", "id": "7", "subscription": SUBSCRIPTION, "publish_time": "2026-11-23T10:00:00Z",
    }  # fmt: skip


async def test_a_message_that_is_delivered_again_runs_once(serve: Serve) -> None:
    model = HeldModel("one")
    server = await serve(LlmAgent(name="echo", model=model), gates=("triggers",))
    first = asyncio.create_task(post(server, "pubsub", message()))
    while not model.calls:
        await asyncio.sleep(0.01)
    second = asyncio.create_task(post(server, "pubsub", message()))
    await asyncio.sleep(0.05)
    assert not second.done()
    model.let_go()
    assert [one.status_code for one in await asyncio.gather(first, second)] == [200, 200]
    assert (await post(server, "pubsub", message())).status_code == 200
    [session] = await sessions(server)
    assert [event["author"] for event in session["events"]] == ["user", "echo"]


@pytest.mark.parametrize("source", ["pubsub", "eventarc", "eventarc-message"])
async def test_a_message_starts_its_run_later(serve: Serve, source: str) -> None:
    server = await serve(scripted("echo", last_text), gates=("triggers",))
    at = time.time() + 0.4
    body = message(**{"greenroom:startAt": str(at)})
    headers: dict[str, str] = {}
    if source == "eventarc":
        headers = {"ce-id": "1", "ce-source": "s", "ce-greenroomstartat": str(at)}
        body = {"city": "Oslo"}
    for _ in range(2):
        reply = await post(server, source.removesuffix("-message"), body, headers)
        assert (reply.status_code, reply.json()) == (200, {"status": "success"})
    [run] = (await server.client.get("/runs")).json()["runs"]
    assert (run["status"], run["startAt"]) == ("queued", at)
    ended = await server.wait_for_status(run["id"], "succeeded")
    assert ended["startedAt"] >= at


async def test_a_message_with_a_time_that_is_none_is_refused(serve: Serve) -> None:
    server = await serve(scripted("echo", last_text), gates=("triggers",))
    refused = await post(server, "pubsub", message(**{"greenroom:delaySeconds": "soon"}))
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["loc"] == ["body", "message", "attributes", "greenroom:delaySeconds"]
    event = {"id": "1", "source": "s", "data": {}, "greenroomdelay": True}
    refused = await post(server, "eventarc", event)
    assert refused.json()["errors"][0]["loc"] == ["body", "greenroomdelay"]
    assert (await server.client.get("/runs")).json()["runs"] == []


async def test_deliveries_side_by_side_run_once(serve: Serve) -> None:
    model = ScriptedModel(lambda request: "done")
    server = await serve(LlmAgent(name="echo", model=model), gates=("triggers",))
    replies = await asyncio.gather(*(post(server, "pubsub", message()) for _ in range(8)))
    assert {one.status_code for one in replies} == {200}
    assert len(model.requests) == 1


class Fails:
    """A model's script that raises some errors first."""

    def __init__(self, *errors: str) -> None:
        self.errors = list(errors)
        self.calls = 0

    def __call__(self, request: LlmRequest) -> str:
        self.calls += 1
        if self.errors:
            raise RuntimeError(self.errors.pop(0))
        return "done"


async def test_rate_limits_are_waited_for(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADK_TRIGGER_RETRY_BASE_DELAY", "0.001")
    script = Fails("429 RESOURCE_EXHAUSTED", "quota exceeded")
    server = await serve(scripted("echo", script), gates=("triggers",))
    assert (await post(server, "pubsub", message())).status_code == 200
    assert script.calls == 3
    script = Fails(*["rate limit"] * 9)
    server = await serve(scripted("echo", script), gates=("triggers",))
    monkeypatch.setenv("ADK_TRIGGER_MAX_RETRIES", "1")
    reply = await post(server, "pubsub", message())
    assert (reply.status_code, script.calls) == (500, 2)
    assert "rate limit" in reply.json()["detail"]


async def test_a_failed_delivery_runs_again_when_it_is_repeated(serve: Serve) -> None:
    script = Fails("broken")
    server = await serve(scripted("echo", script), gates=("triggers",))
    assert (await post(server, "pubsub", message())).status_code == 500
    assert script.calls == 1
    assert (await post(server, "pubsub", message())).status_code == 200
    assert (await post(server, "pubsub", message())).status_code == 200
    assert script.calls == 2


async def test_a_run_that_is_late_has_the_status_of_its_error(serve: Serve) -> None:
    agent = LlmAgent(name="echo", model=HeldModel("never"))
    server = await serve(agent, gates=("triggers",), run_deadline_seconds=0.05)
    reply = await post(server, "pubsub", message())
    assert (reply.status_code, reply.json()["code"]) == (504, "DeadlineExceeded")


async def test_so_many_run_at_once(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADK_TRIGGER_MAX_CONCURRENT", "2")
    model = HeldModel("one")
    server = await serve(LlmAgent(name="echo", model=model), gates=("triggers",))
    posts = [asyncio.create_task(post(server, "pubsub", message(message_id=str(number)))) for number in range(5)]
    while model.calls < 2:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
    assert model.calls == 2
    for _ in posts:
        model.let_go()
    assert [one.status_code for one in await asyncio.gather(*posts)] == [200] * 5


EVENT = {"specversion": "1.0", "id": "9", "type": "made", "source": "//storage/b"}
HEADERS = {f"ce-{name}": value for name, value in EVENT.items()}
ATTRIBUTES = {f"ce-{name}": value for name, value in EVENT.items()}


@pytest.mark.parametrize(
    ("body", "headers", "expected"),
    [
        ({**EVENT, "data": {"name": "f"}}, {}, {"data": {"name": "f"}, "attributes": ATTRIBUTES}),
        ({"name": "f"}, HEADERS, {"data": {"name": "f"}, "attributes": ATTRIBUTES}),
        (message("hi", a="b"), HEADERS, {"data": "hi", "attributes": {"a": "b"}}),
        ({**EVENT, "data": message("hi", a="b")}, {}, {"data": "hi", "attributes": {"a": "b"}}),
    ],
)
async def test_events_in_each_mode(serve: Serve, body: Any, headers: dict[str, str], expected: Any) -> None:
    server = await serve(scripted("echo", last_text), gates=("triggers",))
    for _ in range(2):
        reply = await post(server, "eventarc", body, headers)
        assert (reply.status_code, reply.json()) == (200, {"status": "success"})
    [session] = await sessions(server, "storage--b")
    assert text(session) == expected
    assert session["state"]["trigger_delivery"] == {
        "source": "eventarc", "id": "9", "event_source": "//storage/b", "type": "made",
    }  # fmt: skip


async def test_a_key_without_other_users_runs_for_its_own(serve: Serve, keys: Keys) -> None:
    server = await serve(scripted("echo", last_text), gates=("triggers",), auth=keys.auth)
    ann = bearer(keys("ann", "run", "read"))
    assert (await post(server, "pubsub", message(), headers=ann)).status_code == 200
    listed = await server.client.get("/apps/echo/users/ann/sessions", headers=ann)
    assert len(listed.json()) == 1
    assert (await post(server, "pubsub", message())).status_code == 401


@pytest.mark.parametrize(
    ("source", "body", "status"),
    [
        ("pubsub", {}, 422),
        ("pubsub", {"message": {"data": "not base64!"}}, 422),
        ("pubsub", {"message": {"data": b64encode(b"\xff").decode()}}, 422),
        ("eventarc", {"message": {"data": 5}}, 422),
        ("eventarc", [], 422),
    ],
)
async def test_wrong_messages_are_refused(serve: Serve, source: str, body: Any, status: int) -> None:
    server = await serve(scripted("echo", last_text), gates=("triggers",))
    reply = await post(server, source, body)
    assert (reply.status_code, bool(reply.json()["detail"])) == (status, True)
    assert (await server.client.post(f"/apps/nobody/trigger/{source}", json=message())).status_code == 404


async def test_wrong_numbers_in_variables_are_named(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADK_TRIGGER_MAX_RETRIES", "many")
    server = await serve(scripted("echo", last_text), gates=("triggers",))
    reply = await post(server, "pubsub", message())
    assert (reply.status_code, "ADK_TRIGGER_MAX_RETRIES" in reply.json()["detail"]) == (503, True)
