"""A2A over gRPC, as the official client sees it."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import a2a.types as a2a
import grpc
import pytest
from a2a.types import a2a_pb2_grpc
from a2a.utils import errors

from greenroom import LlmAgent
from greenroom.audit.signing import new_key_pair
from greenroom.server.settings import AuditSettings
from tests.gates.test_a2a import GRPC, connected, message, sent, texts
from tests.gates.test_a2a_push import has_state, receiving
from tests.server.agents import HeldModel, echo
from tests.server.conftest import Serve
from tests.server.security.conftest import keys
from tests.server.security.keys import Keys

__all__ = ["keys"]


@pytest.fixture
def address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return f"127.0.0.1:{listening.getsockname()[1]}"


async def test_a_task_by_its_card(serve: Serve, address: str) -> None:
    server = await serve(echo(), gates=("a2a",), a2a_grpc=address)
    async with connected(server, GRPC) as client:
        begun, *updates, end = await sent(client, message("one two three"))
        pieces = [one for one in updates if isinstance(one, a2a.TaskArtifactUpdateEvent) and not one.last_chunk]
        assert len(pieces) > 1
        assert end.status.state == a2a.TaskState.TASK_STATE_COMPLETED
        task = await client.get_task(a2a.GetTaskRequest(id=begun.id))
        assert texts(task) == ["".join(one.artifact.parts[0].text for one in pieces)]
        listed = await client.list_tasks(a2a.ListTasksRequest(context_id=begun.context_id))
        assert [one.id for one in listed.tasks] == [begun.id]
        with pytest.raises(errors.TaskNotCancelableError):
            await client.cancel_task(a2a.CancelTaskRequest(id=begun.id))
        with pytest.raises(errors.TaskNotFoundError):
            await client.get_task(a2a.GetTaskRequest(id="nobody"))


async def test_cancel_subscribe_and_push(serve: Serve, address: str) -> None:
    agent = LlmAgent(name="echo", model=HeldModel())
    server = await serve(agent, gates=("a2a",), a2a_grpc=address, allow_private_webhooks=True)
    async with (
        receiving() as receiver,
        connected(server, GRPC, streaming=False) as sender,
        connected(server, GRPC) as client,
    ):
        request = message("Wait")
        request.configuration.return_immediately = True
        request.configuration.task_push_notification_config.url = receiver.url
        (task,) = await sent(sender, request)
        stream = client.subscribe(a2a.SubscribeToTaskRequest(id=task.id))
        assert (await anext(stream)).task.id == task.id
        await client.cancel_task(a2a.CancelTaskRequest(id=task.id))
        last = [one async for one in stream][-1]
        assert last.status_update.status.state == a2a.TaskState.TASK_STATE_CANCELED
        await receiver.until(has_state("TASK_STATE_CANCELED"))


async def test_a_stop_ends_open_calls(serve: Serve, address: str) -> None:
    model = HeldModel()
    server = await serve(LlmAgent(name="echo", model=model), gates=("a2a",), a2a_grpc=address, grace_seconds=0.1)
    async with connected(server, GRPC) as client:
        stream = client.send_message(message("Wait"))
        await anext(stream)
        server.stop()
        with pytest.raises(Exception, match=r"CANCELLED|UNAVAILABLE"):
            async with asyncio.timeout(10):
                [one async for one in stream]


async def _code(stub: Any, request: Any, **metadata: str) -> grpc.StatusCode | None:
    given = [(name.replace("_", "-"), value) for name, value in metadata.items()]
    try:
        if isinstance(request, a2a.SubscribeToTaskRequest):
            [one async for one in stub.SubscribeToTask(request, metadata=given)]
        else:
            method = stub.SendMessage if isinstance(request, a2a.SendMessageRequest) else stub.GetTask
            await method(request, metadata=given)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return None


async def test_callers_and_requests_are_checked_as_over_http(serve: Serve, keys: Keys, address: str) -> None:
    code = grpc.StatusCode
    await serve(echo(), echo("other"), auth=keys.auth, gates=("a2a",), a2a_grpc=address, max_body_bytes=200_000)
    ann = keys("ann", "run", "read")
    bob = keys("bob", "run", "read")
    reader = keys("ann", "read")
    elsewhere = keys("ann", "run", "read", apps=["other"])

    async with grpc.aio.insecure_channel(address) as channel:
        stub: Any = a2a_pb2_grpc.A2AServiceStub(channel)  # pyright: ignore[reportUnknownVariableType]
        hello = message("x")
        hello.tenant = "echo"
        made = await stub.SendMessage(hello, metadata=[("authorization", f"Bearer {ann}")])
        read = a2a.GetTaskRequest(id=made.task.id, tenant="echo")
        subscribe = a2a.SubscribeToTaskRequest(id=made.task.id, tenant="echo")
        assert await _code(stub, read, x_api_key=ann) is None
        assert await _code(stub, read, authorization=f"Bearer {reader}") is None

        for request in (read, subscribe, hello):
            assert await _code(stub, request) == code.UNAUTHENTICATED
            assert await _code(stub, request, x_api_key="gr_wrong") == code.UNAUTHENTICATED
            assert await _code(stub, request, x_api_key=elsewhere) == code.PERMISSION_DENIED

        assert await _code(stub, hello, x_api_key=reader) == code.PERMISSION_DENIED
        assert await _code(stub, read, x_api_key=bob) == code.NOT_FOUND
        assert await _code(stub, subscribe, x_api_key=bob) == code.NOT_FOUND
        assert await _code(stub, a2a.GetTaskRequest(id=made.task.id, tenant="none"), x_api_key=ann) == code.NOT_FOUND
        many = message(*["x"] * 20_001)
        many.tenant = "echo"
        assert await _code(stub, many, x_api_key=ann) == code.INVALID_ARGUMENT
        large = message("x" * 300_000)
        large.tenant = "echo"
        assert await _code(stub, large, x_api_key=ann) == code.RESOURCE_EXHAUSTED


async def test_refusals_and_reads_are_in_the_audit_trail(serve: Serve, keys: Keys, address: str) -> None:
    audit = AuditSettings(key=new_key_pair()[0].decode())
    server = await serve(echo(), auth=keys.auth, gates=("a2a",), a2a_grpc=address, audit=audit)
    ann, bob = keys("ann", "run", "read"), keys("bob", "run", "read")
    operator = keys("op", "read", "app:echo")

    async with grpc.aio.insecure_channel(address) as channel:
        stub: Any = a2a_pb2_grpc.A2AServiceStub(channel)  # pyright: ignore[reportUnknownVariableType]
        hello = message("x")
        hello.tenant = "echo"
        made = await stub.SendMessage(hello, metadata=[("x-api-key", ann), ("x-request-id", "mine")])
        read = a2a.GetTaskRequest(id=made.task.id, tenant="echo")
        subscribe = a2a.SubscribeToTaskRequest(id=made.task.id, tenant="echo")
        assert await _code(stub, read, x_api_key=ann) is None
        assert await _code(stub, read, x_api_key=operator) is None
        assert await _code(stub, read, x_api_key=bob) is grpc.StatusCode.NOT_FOUND
        assert await _code(stub, subscribe, x_api_key=bob) is grpc.StatusCode.NOT_FOUND
        assert await _code(stub, hello, x_api_key=operator) is grpc.StatusCode.PERMISSION_DENIED
        assert await _code(stub, read) is grpc.StatusCode.UNAUTHENTICATED

    auditor = {"x-api-key": keys("auditor", "audit")}
    entries = (await server.client.get("/audit", headers=auditor)).json()["entries"]
    recorded = [
        (entry["action"], entry.get("subject"), entry.get("status"), entry.get("target"))
        for entry in reversed(entries)
        if entry["action"] not in ("server.started", "head.signed")
    ]
    assert recorded == [
        ("session.created", "ann", None, None),
        ("run.started", "ann", None, None),
        ("data.read", "op", None, "GRPC GetTask"),
        ("access.refused", "bob", 403, "GRPC GetTask"),
        ("access.refused", "bob", 403, "GRPC SubscribeToTask"),
        ("access.refused", "op", 403, "GRPC SendMessage"),
        ("access.refused", None, 401, "GRPC GetTask"),
    ]
    started = next(entry for entry in entries if entry["action"] == "run.started")
    assert started["httpRequestId"] == "mine"
