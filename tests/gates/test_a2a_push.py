"""Push notifications of A2A: configured with the official client, received by a server of the test."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import a2a.types as a2a
import httpx
import jwt
import pytest
from a2a.utils import errors
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from google.protobuf.json_format import ParseDict

from greenroom import FunctionTool, LlmAgent
from greenroom.errors import AgentConfigError
from greenroom.gates.a2a.push import Signer
from greenroom.records.content import FunctionCall
from tests.gates.test_a2a import WAYS, connected, message, remove, rpc, sent
from tests.server.agents import HeldModel, echo, scripted
from tests.server.conftest import Serve


class Receiver:
    """An HTTP server that keeps what it is sent. answer: its reply."""

    def __init__(self) -> None:
        self.url = ""
        self.answer = b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n"
        self.requests: list[tuple[httpx.Headers, Any]] = []
        self.bodies: list[bytes] = []
        self._changed = asyncio.Condition()

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").rstrip().split("\r\n")[1:]
        headers = httpx.Headers([tuple(line.split(": ", 1)) for line in head])  # pyright: ignore[reportArgumentType]
        self.bodies.append(await reader.readexactly(int(headers["content-length"])))
        body = json.loads(self.bodies[-1])
        async with self._changed:
            self.requests.append((headers, body))
            self._changed.notify_all()
        writer.write(self.answer)
        await writer.drain()
        writer.close()

    async def until(self, reached: Callable[[Any], bool]) -> None:
        """Until the newest body is as wanted."""
        async with asyncio.timeout(10), self._changed:
            await self._changed.wait_for(lambda: bool(self.requests) and reached(self.requests[-1][1]))

    def states(self) -> list[str]:
        return [body["statusUpdate"]["status"]["state"].removeprefix("TASK_STATE_") for _, body in self.requests]


@asynccontextmanager
async def receiving() -> AsyncGenerator[Receiver]:
    receiver = Receiver()
    async with await asyncio.start_server(receiver.take, "127.0.0.1", 0) as server:
        receiver.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
        yield receiver


def has_state(state: str) -> Callable[[Any], bool]:
    return lambda body: body.get("statusUpdate", body)["status"]["state"] == state


@pytest.mark.parametrize("way", WAYS)
async def test_the_end_of_a_task_is_posted_with_the_clients_secrets(serve: Serve, way: tuple[str, str]) -> None:
    model = HeldModel()
    server = await serve(LlmAgent(name="echo", model=model), gates=("a2a",), allow_private_webhooks=True)
    async with receiving() as receiver, connected(server, way, streaming=False) as client:
        request = message("Wait")
        request.configuration.return_immediately = True
        (task,) = await sent(client, request)
        given = a2a.TaskPushNotificationConfig(task_id=task.id, id="p", url=receiver.url, token="t-1")
        given.authentication.CopyFrom(a2a.AuthenticationInfo(scheme="Bearer", credentials="c-1"))
        made = await client.create_task_push_notification_config(given)
        assert (made.task_id, made.id, made.url, made.token) == (task.id, "p", receiver.url, "t-1")
        read = await client.get_task_push_notification_config(
            a2a.GetTaskPushNotificationConfigRequest(task_id=task.id, id="p")
        )
        assert (read.url, read.authentication.credentials) == (receiver.url, "c-1")
        await client.cancel_task(a2a.CancelTaskRequest(id=task.id))
        await receiver.until(has_state("TASK_STATE_CANCELED" if way[1] == "1.0" else "canceled"))
        headers, body = receiver.requests[-1]
        assert (headers["x-a2a-notification-token"], headers["authorization"]) == ("t-1", "Bearer c-1")
        if way[1] == "1.0":
            update = ParseDict(body, a2a.StreamResponse()).status_update
            assert (update.task_id, update.context_id) == (task.id, task.context_id)
        else:
            assert (body["kind"], body["id"], body["contextId"]) == ("task", task.id, task.context_id)


async def test_a_message_with_a_webhook_reports_each_state(serve: Serve) -> None:
    tool = FunctionTool(remove, require_confirmation=True)
    agent = scripted("echo", [FunctionCall(name="remove", args={"name": "x"}), "Done"], tools=[tool])
    server = await serve(agent, gates=("a2a",), allow_private_webhooks=True)
    async with receiving() as receiver, connected(server, streaming=False) as client:
        request = message("Remove x")
        request.configuration.task_push_notification_config.url = receiver.url
        (task,) = await sent(client, request)
        await receiver.until(has_state("TASK_STATE_INPUT_REQUIRED"))
        (asked,) = ParseDict(receiver.requests[-1][1], a2a.StreamResponse()).status_update.status.message.parts
        answer = a2a.Part()
        answer.data.struct_value.update({"id": asked.data.struct_value["id"], "response": {"confirmed": True}})
        answer.data.struct_value.update({"name": "adk_request_confirmation"})
        answer.metadata.update({"adk_type": "function_response"})
        await sent(client, message(answer, message_id="m2", task_id=task.id))
        await receiver.until(has_state("TASK_STATE_COMPLETED"))
        states = receiver.states()
        assert [one for one in states if one != "WORKING"] == ["INPUT_REQUIRED", "COMPLETED"]


async def test_configurations_are_listed_and_deleted(serve: Serve) -> None:
    model = HeldModel()
    server = await serve(LlmAgent(name="echo", model=model), gates=("a2a",), allow_private_webhooks=True)
    async with receiving() as receiver, connected(server, streaming=False) as client:
        request = message("Wait")
        request.configuration.return_immediately = True
        (task,) = await sent(client, request)

        for name in ("a", "b"):
            await client.create_task_push_notification_config(
                a2a.TaskPushNotificationConfig(task_id=task.id, id=name, url=f"{receiver.url}/{name}", token=name)
            )

        await client.delete_task_push_notification_config(
            a2a.DeleteTaskPushNotificationConfigRequest(task_id=task.id, id="a")
        )
        listed = await client.list_task_push_notification_configs(
            a2a.ListTaskPushNotificationConfigsRequest(task_id=task.id)
        )
        assert [one.id for one in listed.configs] == ["b"]

        with pytest.raises(errors.TaskNotFoundError):
            await client.get_task_push_notification_config(
                a2a.GetTaskPushNotificationConfigRequest(task_id=task.id, id="a")
            )

        await client.cancel_task(a2a.CancelTaskRequest(id=task.id))
        await receiver.until(has_state("TASK_STATE_CANCELED"))
        assert {headers["x-a2a-notification-token"] for headers, _ in receiver.requests} == {"b"}


async def test_what_must_not_be_called_is_refused_before_anything_runs(serve: Serve) -> None:
    server = await serve(echo(), gates=("a2a",))
    sends = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}]}}
    for config in (
        {"url": "http://127.0.0.1/"},
        {"url": "http://localhost:8000/"},
        {"url": "http://169.254.169.254/latest"},
        {"url": "http://[::1]/"},
        {"url": "file:///etc/passwd"},
        {"url": "https://"},
        {"url": "https://example.com/", "token": "a\r\nx-evil: 1"},
        {"url": "https://example.com/", "id": "\x00"},
        {"url": "https://example.com/" + "a" * 5000},
        {"url": "https://example.com/", "authentication": {"scheme": "Bearer", "credentials": "é"}},
    ):
        params = {**sends, "configuration": {"taskPushNotificationConfig": config}}
        assert (await rpc(server, "SendMessage", params))["error"]["code"] == -32602, config
    assert (await server.client.get("/runs")).json()["runs"] == []


KEYS = [ec.generate_private_key(ec.SECP256R1()), ed25519.Ed25519PrivateKey.generate()]


def pem(folder: Path, key: Any) -> str:
    file = folder / "key.pem"
    file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return str(file)


@pytest.mark.parametrize("key", KEYS, ids=["EC", "Ed25519"])
async def test_notifications_are_signed_by_the_key_that_the_server_shows(
    serve: Serve, tmp_path: Path, key: Any
) -> None:
    server = await serve(echo(), gates=("a2a",), allow_private_webhooks=True, webhook_key=pem(tmp_path, key))
    async with receiving() as receiver, connected(server, streaming=False) as client:
        request = message("Hi")
        request.configuration.task_push_notification_config.url = receiver.url
        (task,) = await sent(client, request)
        await receiver.until(has_state("TASK_STATE_COMPLETED"))
        (shown,) = (await server.client.get("/.well-known/jwks.json")).json()["keys"]
        assert "d" not in shown
        token = receiver.requests[-1][0]["authorization"].removeprefix("Bearer ")
        assert jwt.get_unverified_header(token)["kid"] == shown["kid"]
        claims = jwt.decode(token, jwt.PyJWK(shown), algorithms=[shown["alg"]], audience=receiver.url)
        assert (claims["iss"], claims["taskId"]) == (server.url, task.id)
        assert claims["request_body_sha256"] == hashlib.sha256(receiver.bodies[-1]).hexdigest()


async def test_without_a_key_there_is_none_to_show(serve: Serve) -> None:
    server = await serve(echo(), gates=("a2a",))
    assert (await server.client.get("/.well-known/jwks.json")).status_code == 404


@pytest.mark.parametrize("content", [None, b"nothing", ec.generate_private_key(ec.SECP384R1())])
def test_a_key_that_can_not_sign_is_refused(tmp_path: Path, content: Any) -> None:
    file = str(tmp_path / "key.pem")
    if isinstance(content, bytes):
        Path(file).write_bytes(content)
    elif content is not None:
        pem(tmp_path, content)
    with pytest.raises(AgentConfigError, match="webhook_key"):
        Signer(file)
