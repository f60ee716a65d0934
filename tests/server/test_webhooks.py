"""Webhooks of runs and of apps, received by a server of the test and verified by another library."""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from standardwebhooks.webhooks import Webhook as Verifier
from standardwebhooks.webhooks import WebhookVerificationError

from greenroom import App, FunctionTool, LlmAgent, Webhook
from greenroom.errors import AgentConfigError, ConfigurationError
from greenroom.records.content import FunctionCall
from greenroom.records.run import RunStatus
from greenroom.server.webhook_sender import WebhookSender
from greenroom.testing import Says, ScriptedLiveModel
from greenroom.tools.builtin.sleep import wait
from tests.server.agents import HeldModel, echo, scripted
from tests.server.conftest import WEBHOOK_SECRET, Serve, Store
from tests.server.live_client import talking
from tests.server.replicas import Replicas
from tests.server.serving import Json, Serving, until
from tests.server.webhook_receiver import receiving, status

OTHER_SECRET = "whsec_" + base64.b64encode(b"b" * 24).decode()
TO_THE_END = ("run.running", "run.succeeded")


@pytest.fixture(params=["memory", "sqlite", "replicas"])
def store(request: pytest.FixtureRequest) -> Store:
    return request.param


@pytest.fixture
def start(serve: Serve) -> Callable[..., Any]:
    """Start a server whose webhooks may be on this machine."""

    async def started(*agents: Any, retry_seconds: tuple[float, ...] = (0.0, 0.0), **settings: Any) -> Serving:
        given = {"allow_private_webhooks": True, **settings}
        server = await serve(*agents, **given)
        for one in servers_of(server):
            one.app.engine.webhooks.retry_seconds = retry_seconds
        return server

    return started


def servers_of(server: Serving) -> list[Serving]:
    return server.servers if isinstance(server, Replicas) else [server]


async def run_with(server: Serving, *webhooks: Json, app: str = "echo", text: str = "hi", session: str = "s-1") -> Json:
    session = await server.new_session(app, session=session)
    message = {"role": "user", "parts": [{"text": text}]}
    reply = await server.client.post(f"{session}/runs", json={"newMessage": message, "webhooks": list(webhooks)})
    assert reply.status_code == 202, reply.text
    return reply.json()


async def deliveries(server: Serving, run: Json, webhook_id: str = "w") -> list[Json]:
    reply = await server.client.get(f"/runs/{run['id']}/webhooks/{webhook_id}/deliveries")
    assert reply.status_code == 200, reply.text
    return reply.json()["deliveries"]


async def until_delivered(server: Serving, run: Json, *wanted: str, webhook_id: str = "w") -> list[Json]:
    """Waits for deliveries with these states, newest first."""
    found: list[Json] = []

    async def reached() -> bool:
        found[:] = await deliveries(server, run, webhook_id)
        return [one["status"] for one in found] == list(wanted)

    await until(reached)
    return found


def write(file: Path, text: str) -> None:
    file.write_text(text)


def remove(name: str) -> str:
    return f"removed {name}"


async def test_chosen_states_are_sent_in_order_and_signed(start: Callable[..., Any]) -> None:
    server = await start()
    async with receiving() as receiver:
        webhook = {"url": receiver.url, "id": "w", "states": ["running", "succeeded"]}
        run = await run_with(server, webhook)
        await receiver.until_received(*TO_THE_END)
        found = await until_delivered(server, run, "delivered", "delivered")
        shown = await server.wait_for_status(run["id"], "succeeded")

    for message in receiver.messages:
        Verifier(WEBHOOK_SECRET).verify(message.body, dict(message.headers))
        with pytest.raises(WebhookVerificationError):
            Verifier(OTHER_SECRET).verify(message.body, dict(message.headers))
    first, last = receiver.messages
    assert first.id != last.id
    assert first.content["data"]["status"] == "running"
    assert last.content["data"] == shown
    assert [one["id"] for one in found] == [last.id, first.id]
    assert [attempt["statusCode"] for one in found for attempt in one["attempts"]] == [204, 204]
    assert "webhooks" not in shown


async def test_an_approval_is_reported_each_time_that_the_run_waits(start: Callable[..., Any]) -> None:
    calls = [FunctionCall(id=f"c-{name}", name="remove", args={"name": name}) for name in ("x", "y")]
    agent = scripted("echo", [calls[0], calls[1], "Done"], tools=[FunctionTool(remove, require_confirmation=True)])
    server = await start(agent)
    async with receiving() as receiver:
        run = await run_with(server, {"url": receiver.url, "id": "w"})
        for number in (1, 2):
            await receiver.until_received(*["run.waiting"] * number)
            page = (await server.client.get(f"/runs/{run['id']}/events")).json()
            ids = [
                part["functionCall"]["id"]
                for event in page["events"]
                for part in event.get("content", {}).get("parts", [])
                if part.get("functionCall", {}).get("name") == "adk_request_confirmation"
            ]
            response = {"id": ids[-1], "name": "adk_request_confirmation", "response": {"confirmed": True}}
            answer = {"role": "user", "parts": [{"functionResponse": response}]}
            path = "/apps/echo/users/ann/sessions/s-1/runs"
            assert (await server.client.post(path, json={"newMessage": answer})).status_code == 202
        await receiver.until_received("run.waiting", "run.waiting", "run.succeeded")
    assert len({message.id for message in receiver.messages}) == 3


async def test_a_run_that_sleeps_reports_that_it_waits_and_ends(start: Callable[..., Any]) -> None:
    server = await start(scripted("echo", [FunctionCall(name="wait", args={"seconds": 0.2}), "Done"], tools=[wait]))
    async with receiving() as receiver:
        states = ["running", "waiting", "succeeded"]
        await run_with(server, {"url": receiver.url, "id": "w", "states": states})
        await receiver.until(lambda: "run.succeeded" in receiver.types)
    assert receiver.types == ["run.running", "run.waiting", "run.running", "run.succeeded"]


@pytest.mark.parametrize("store", ["sqlite"])
async def test_an_apps_webhook_receives_the_states_of_live_runs(start: Callable[..., Any]) -> None:
    async with receiving() as receiver:
        model = ScriptedLiveModel([[Says("Hello")]])
        agent = LlmAgent(name="desk", model=model)
        app = App(name="desk", root_agent=agent, webhooks=[Webhook(url=receiver.url, states=list(RunStatus))])
        server = await start(app)
        await server.new_session("desk")
        async with talking(server.port) as client:
            await client.say("hi")
            await client.turn()
        await receiver.until_received("run.running", "run.succeeded")


async def test_a_webhook_that_is_added_later_receives_the_present_state(start: Callable[..., Any]) -> None:
    model = HeldModel()
    server = await start(LlmAgent(name="echo", model=model))
    async with receiving() as receiver:
        run = await run_with(server)
        await server.wait_for_status(run["id"], "running")
        path = f"/runs/{run['id']}/webhooks"
        given = {"url": receiver.url, "states": ["running", "succeeded"]}
        reply = await server.client.post(path, json=given)
        assert reply.status_code == 201, reply.text
        await receiver.until_received("run.running")
        model.let_go()
        await receiver.until_received(*TO_THE_END)
        await server.wait_for_status(run["id"], "succeeded")

        late = await server.client.post(path, json={"url": receiver.url, "id": "late"})
        await receiver.until_received(*TO_THE_END, "run.succeeded")
        listed = (await server.client.get(path)).json()["webhooks"]
        assert [one["id"] for one in listed] == [reply.json()["id"], late.json()["id"]]
        assert (await server.client.get(f"/runs/{run['id']}")).json()["status"] == "succeeded"


async def test_a_removed_webhook_receives_nothing_more(start: Callable[..., Any]) -> None:
    model = HeldModel()
    server = await start(LlmAgent(name="echo", model=model), retry_seconds=(60.0,))
    async with receiving(status(500)) as receiver:
        states = ["running", "succeeded"]
        run = await run_with(
            server, {"url": receiver.url, "id": "w", "states": states}, {"url": receiver.url, "id": "kept"}
        )
        await receiver.until_received("run.running")
        assert (await server.client.delete(f"/runs/{run['id']}/webhooks/w")).status_code == 200
        assert (await server.client.get(f"/runs/{run['id']}/webhooks/w/deliveries")).status_code == 404
        model.let_go()
        await until_delivered(server, run, "delivered", webhook_id="kept")
        await receiver.until_received("run.running", "run.succeeded")


async def test_a_webhook_of_an_app_is_stored_by_clients(start: Callable[..., Any]) -> None:
    server = await start(echo(), echo("other"))
    path = "/apps/echo/webhooks/pager"
    async with receiving() as receiver:
        given = {"url": receiver.url, "states": ["succeeded"]}
        stored = await server.client.put(path, json={"url": receiver.url + "old"})
        assert stored.status_code == 200
        stored = await server.client.put(path, json=given)
        assert stored.json() == {"id": "pager", **given}
        for one in servers_of(server):
            assert (await one.client.get("/apps/echo/webhooks")).json()["webhooks"] == [stored.json()]
            assert (await one.client.get(path)).json() == stored.json()

        run = await run_with(server)
        await run_with(server, app="other")
        await receiver.until_received("run.succeeded")
        assert [message.content["data"]["id"] for message in receiver.messages] == [run["id"]]
        [webhook] = (await server.client.get(f"/runs/{run['id']}/webhooks")).json()["webhooks"]
        assert webhook["isOfApp"]

        assert (await server.client.delete(path)).status_code == 200
        for method in ("GET", "DELETE"):
            assert (await server.client.request(method, path)).status_code == 404
        for one in servers_of(server):
            assert (await one.client.get("/apps/echo/webhooks")).json()["webhooks"] == []
        run = await run_with(server, session="s-2")
        await server.wait_for_status(run["id"], "succeeded")
        assert len(receiver.messages) == 1


async def test_servers_read_the_webhooks_of_apps_again(start: Callable[..., Any], store: Store) -> None:
    server = await start(echo())
    await server.client.put("/apps/echo/webhooks/pager", json={"url": "https://127.0.0.1:9/"})
    for one in servers_of(server):
        await until(partial(one.app.engine.app_webhooks.of, "echo", ()))


async def test_webhooks_of_apps_are_kept_over_a_restart(start: Callable[..., Any], store: Store) -> None:
    if store != "sqlite":
        pytest.skip("a store that a second server can open")
    given = {"url": "https://127.0.0.1:9/", "id": "pager"}
    first = await start(echo())
    await first.client.put("/apps/echo/webhooks/pager", json=given)
    await first.app.engine.close()
    second = await start(echo())
    run = await run_with(second)
    [webhook] = (await second.client.get(f"/runs/{run['id']}/webhooks")).json()["webhooks"]
    assert webhook["id"] == "pager"


async def test_webhooks_of_an_apps_code_are_changed_there(start: Callable[..., Any]) -> None:
    of_code = Webhook(url="https://127.0.0.1:9/code", id="code")
    server = await start(App(name="echo", root_agent=echo(), webhooks=[of_code]))
    put = await server.client.put("/apps/echo/webhooks/code", json={"url": "https://127.0.0.1:9/"})
    deleted = await server.client.delete("/apps/echo/webhooks/code")
    for refused in (put, deleted):
        assert (refused.status_code, refused.json()["code"]) == (409, "WebhookConflict")
    await server.client.put("/apps/echo/webhooks/stored", json={"url": "https://127.0.0.1:9/"})
    listed = (await server.client.get("/apps/echo/webhooks")).json()["webhooks"]
    assert [(one["id"], one.get("isOfCode", False)) for one in listed] == [("code", True), ("stored", False)]


async def test_webhooks_of_apps_that_are_refused(start: Callable[..., Any]) -> None:
    server = await start(echo())
    for path, body in (
        ("w", {"url": "ftp://host/"}),
        ("w", {"url": "https://host/", "id": "v"}),
        ("a%20b", {"url": "https://host/"}),
        ("w", {"url": "https://host/", "states": []}),
        ("w", {}),
    ):
        assert (await server.client.put(f"/apps/echo/webhooks/{path}", json=body)).status_code == 422, body
    for number in range(10):
        stored = await server.client.put(f"/apps/echo/webhooks/w{number}", json={"url": "https://127.0.0.1:9/"})
        assert stored.status_code == 200
    full = await server.client.put("/apps/echo/webhooks/more", json={"url": "https://127.0.0.1:9/"})
    assert full.status_code == 422
    assert "may have 10 webhooks" in full.json()["detail"]
    assert (await server.client.put("/apps/echo/webhooks/w1", json={"url": "https://127.0.0.1:8/"})).status_code == 200
    assert (await server.client.put("/apps/none/webhooks/w", json={"url": "https://host/"})).status_code == 404


async def test_an_apps_webhooks_receive_the_states_of_all_its_runs(start: Callable[..., Any]) -> None:
    async with receiving() as receiver:
        app = App(name="echo", root_agent=echo(), webhooks=[Webhook(url=receiver.url, states=[RunStatus.SUCCEEDED])])
        server = await start(app, echo("other"))
        for number in range(3):
            session = await server.new_session("echo", session=f"s-{number}")
            message = {"role": "user", "parts": [{"text": "hi"}]}
            await server.client.post(f"{session}/runs", json={"newMessage": message})
        await run_with(server, app="other")
        await receiver.until_received(*["run.succeeded"] * 3)

        (webhook,) = (await server.client.get("/apps/echo/webhooks")).json()["webhooks"]
        assert webhook["url"] == receiver.url
        path = f"/apps/echo/webhooks/{webhook['id']}"

        async def logged() -> bool:
            listed = (await server.client.get(f"{path}/deliveries")).json()["deliveries"]
            return [one["status"] for one in listed] == ["delivered"] * 3

        await until(logged)
        tested = (await server.client.post(f"{path}/test")).json()
        assert (tested["status"], tested["type"], tested["attempts"][0]["statusCode"]) == (
            "delivered",
            "webhook.test",
            204,
        )
        newest = (await server.client.get(f"{path}/deliveries", params={"limit": 1})).json()["deliveries"]
        assert newest == [tested]
        again = await server.client.post(f"{path}/deliveries/{tested['id']}/redeliver")
        assert len(again.json()["attempts"]) == 2
        assert [message.id for message in receiver.messages[-2:]] == [tested["id"]] * 2


async def test_a_failed_message_is_sent_again_with_its_id_before_the_next_one(start: Callable[..., Any]) -> None:
    server = await start()
    async with receiving(status(500), status(503)) as receiver:
        run = await run_with(server, {"url": receiver.url, "id": "w", "states": ["running", "succeeded"]})
        await receiver.until_received("run.running", "run.running", "run.running", "run.succeeded")
        _, first = await until_delivered(server, run, "delivered", "delivered")
    assert len({message.id for message in receiver.messages[:3]}) == 1
    assert len({message.body for message in receiver.messages[:3]}) == 1
    assert [attempt["statusCode"] for attempt in first["attempts"]] == [500, 503, 204]
    assert first["attempts"][0]["error"] == "the receiver answered 500"


async def test_a_message_is_given_up_after_the_last_retry_and_can_be_redelivered(start: Callable[..., Any]) -> None:
    server = await start(retry_seconds=(0.0,))
    async with receiving(status(500), status(500)) as receiver:
        run = await run_with(server, {"url": receiver.url, "id": "w"})
        (failed,) = await until_delivered(server, run, "failed")
        assert failed["failures"] == 2
        path = f"/runs/{run['id']}/webhooks/w/deliveries/{failed['id']}/redeliver"
        again = (await server.client.post(path)).json()
        assert (again["status"], len(again["attempts"])) == ("delivered", 3)
        assert await deliveries(server, run) == [again]
        assert [message.id for message in receiver.messages] == [failed["id"]] * 3


async def test_redirects_are_refused_and_410_is_not_retried(start: Callable[..., Any]) -> None:
    server = await start(retry_seconds=(0.0,))
    async with receiving() as other, receiving() as receiver:
        receiver.answers = [status(302, f"location: {other.url}")] * 2
        run = await run_with(server, {"url": receiver.url, "id": "w"})
        (failed,) = await until_delivered(server, run, "failed")
        assert [attempt["statusCode"] for attempt in failed["attempts"]] == [302, 302]
        receiver.answers = [status(410)]
        await server.client.post(f"/runs/{run['id']}/webhooks", json={"url": receiver.url, "id": "gone"})
        (gone,) = await until_delivered(server, run, "failed", webhook_id="gone")
        assert [attempt["statusCode"] for attempt in gone["attempts"]] == [410]
    assert other.messages == []


async def test_a_receiver_that_hangs_or_answers_at_length_holds_up_no_other(start: Callable[..., Any]) -> None:
    server = await start(retry_seconds=(60.0,))
    for one in servers_of(server):
        one.app._server.webhook_sender.timeout_seconds = 0.3
    async with receiving(None) as hanging, receiving(status(200, body=b"x" * 100_000)) as talkative:
        run = await run_with(server, {"url": hanging.url, "id": "w"}, {"url": talkative.url, "id": "long"})
        (delivered,) = await until_delivered(server, run, "delivered", webhook_id="long")
        assert delivered["attempts"][0]["statusCode"] == 200

        async def has_failed() -> bool:
            return bool((await deliveries(server, run))[0].get("attempts"))

        await until(has_failed)
        (pending,) = await deliveries(server, run)
        assert (pending["status"], pending["attempts"][0]["error"]) == ("pending", "no response within 0.3 seconds")


async def test_all_secrets_of_an_app_sign_until_the_file_has_them_no_more(
    start: Callable[..., Any],
) -> None:
    private = Ed25519PrivateKey.generate()
    asymmetric = "whsk_" + base64.b64encode(private.private_bytes_raw()).decode()
    server = await start(retry_seconds=())
    secrets = Path(server.app.settings.webhook_secrets or "")
    async with receiving() as receiver:
        run = await run_with(server, {"url": receiver.url, "id": "w"})
        await receiver.until_received("run.succeeded")
        write(
            secrets,
            f'"*" = ["{WEBHOOK_SECRET}"]\necho = ["{OTHER_SECRET}", "{WEBHOOK_SECRET}", "{asymmetric}"]\n',
        )
        test = f"/runs/{run['id']}/webhooks/w/test"
        await server.client.post(test)
        message = receiver.messages[-1]
        for secret in (WEBHOOK_SECRET, OTHER_SECRET):
            Verifier(secret).verify(message.body, dict(message.headers))
        signature = message.headers["webhook-signature"].split(" ")[2].removeprefix("v1a,")
        signed = f"{message.id}.{message.headers['webhook-timestamp']}.".encode() + message.body
        private.public_key().verify(base64.b64decode(signature), signed)

        write(secrets, f'echo = ["{OTHER_SECRET}"]\n')
        await server.client.post(test)
        message = receiver.messages[-1]
        Verifier(OTHER_SECRET).verify(message.body, dict(message.headers))
        with pytest.raises(WebhookVerificationError):
            Verifier(WEBHOOK_SECRET).verify(message.body, dict(message.headers))

        write(secrets, "echo = [")
        assert (await server.client.post(test)).json()["status"] == "delivered"
        write(secrets, "")
        tested = (await server.client.post(test)).json()
        assert (tested["status"], "No secret" in tested["attempts"][0]["error"]) == ("failed", True)


@pytest.mark.parametrize("store", ["memory"])
@pytest.mark.parametrize(
    "webhook",
    [
        {"url": "http://127.0.0.1/"},
        {"url": "http://localhost:8000/"},
        {"url": "http://169.254.169.254/latest"},
        {"url": "http://[::1]/"},
        {"url": "file:///etc/passwd"},
        {"url": "https://"},
        {"url": "https://a:b@example.com/"},
        {"url": "https://example.com:99999/"},
        {"url": "https://example.com/é"},
        {"url": "https://example.com/" + "a" * 5000},
        {"url": "https://example.com/", "id": "a b"},
        {"url": "https://example.com/", "states": []},
        {"url": "https://example.com/", "states": ["done"]},
        {"states": ["failed"]},
    ],
)
async def test_what_must_not_be_called_is_refused_before_anything_runs(
    start: Callable[..., Any], webhook: Json
) -> None:
    server = await start(allow_private_webhooks=False)
    session = await server.new_session("echo")
    message = {"role": "user", "parts": [{"text": "hi"}]}
    for path, body in (
        (f"{session}/runs", {"newMessage": message, "webhooks": [webhook]}),
        (
            "/run",
            {"appName": "echo", "userId": "ann", "sessionId": "s-1", "newMessage": message, "webhooks": [webhook]},
        ),
    ):
        reply = await server.client.post(path, json=body)
        assert reply.status_code == 422, reply.text
    assert (await server.client.get("/runs")).json()["runs"] == []


@pytest.mark.parametrize("store", ["memory"])
async def test_a_name_that_leads_to_this_machine_is_not_called(
    start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def addresses(host: str, port: int) -> list[str]:
        from greenroom.tools.web.address_guard import AddressRefused

        raise AddressRefused(host)

    monkeypatch.setattr("greenroom.tools.web.address_guard.public_addresses", addresses)
    server = await start(allow_private_webhooks=False, retry_seconds=())
    run = await run_with(server, {"url": "http://rebinding.example.com/", "id": "w"})
    (failed,) = await until_delivered(server, run, "failed")
    assert failed["attempts"][0]["error"].startswith("AddressRefused")


@pytest.mark.parametrize("store", ["memory"])
async def test_a_server_without_secrets_takes_no_webhooks(serve: Serve) -> None:
    server = await serve(webhook_secrets=None)
    session = await server.new_session("echo")
    reply = await server.client.post(f"{session}/runs", json={"webhooks": [{"url": "https://example.com"}]})
    assert (reply.status_code, reply.json()["code"]) == (501, "NotOffered")
    assert "webhook_secrets" in reply.json()["detail"]


@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_webhooks_of_a_run_are_limited(start: Callable[..., Any]) -> None:
    server = await start()
    async with receiving() as receiver:
        run = await run_with(server, *({"url": receiver.url, "id": f"w{number}"} for number in range(10)))
        path = f"/runs/{run['id']}/webhooks"
        assert (await server.client.post(path, json={"url": receiver.url, "id": "w0"})).status_code == 201
        assert (await server.client.post(path, json={"url": receiver.url})).status_code == 422


def test_faults_of_secrets_name_the_app_but_not_the_secret(tmp_path: Path) -> None:
    file = tmp_path / "secrets.toml"
    for secret in ("whsec_c2hvcnQ=", "plain-text", "whsk_c2hvcnQ="):
        file.write_text(f'weather = ["{secret}"]\n')
        with pytest.raises(ConfigurationError, match="'weather'") as raised:
            WebhookSender(secrets=str(file), allows_private=False)
        assert secret not in str(raised.value)
    with pytest.raises(ConfigurationError, match="can't be read"):
        WebhookSender(secrets=str(tmp_path / "missing.toml"), allows_private=False)


def test_an_app_refuses_webhooks_that_can_not_be_called() -> None:
    with pytest.raises(AgentConfigError, match="https://"):
        App(name="echo", root_agent=echo(), webhooks=[Webhook(url="example.com")])
    with pytest.raises(AgentConfigError, match="same id"):
        App(name="echo", root_agent=echo(), webhooks=[Webhook(url="https://a.b/"), Webhook(url="https://a.b/")])
