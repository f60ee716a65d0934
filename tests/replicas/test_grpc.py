"""A2A over gRPC, which is not forwarded."""

from __future__ import annotations

import socket
from typing import Any
from uuid import uuid4

import a2a.types as a2a
import grpc
import pytest
from a2a.types import a2a_pb2_grpc

from greenroom.records.shard import shard_of
from tests.replicas.requests import path_of
from tests.replicas.servers import Servers


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return f"127.0.0.1:{listening.getsockname()[1]}"


async def test_a_context_of_another_server_is_unavailable_with_a_reason(servers: Servers) -> None:
    addresses = [free_address(), free_address()]
    owner, other = [await servers.start("--gates", "a2a", "--a2a-grpc", address) for address in addresses]
    await servers.wait_until_shared(owner, other)
    while True:
        key = await servers.key_of(owner)
        key = key._replace(user_id=f"A2A_USER_{key.session_id}")
        if (await servers.owners())[shard_of(key)] == owner.url:
            break

    parts = [a2a.Part(text="hello")]
    message = a2a.Message(message_id=uuid4().hex, role=a2a.Role.ROLE_USER, context_id=key.session_id, parts=parts)
    request = a2a.SendMessageRequest(message=message, tenant="desk")
    async with grpc.aio.insecure_channel(addresses[1]) as channel:
        stub: Any = a2a_pb2_grpc.A2AServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.SendMessage(request)
        with pytest.raises(grpc.aio.AioRpcError) as refused_stream:
            _ = [one async for one in stub.SendStreamingMessage(request)]
    for error in (refused.value, refused_stream.value):
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        assert key.session_id in (error.details() or "")
        assert "Use A2A over HTTP" in (error.details() or "")
    assert (await owner.http.get(path_of(key))).status_code == 404

    async with grpc.aio.insecure_channel(addresses[0]) as channel:
        stub = a2a_pb2_grpc.A2AServiceStub(channel)
        sent: Any = await stub.SendMessage(request)
    assert sent.task.status.state == a2a.TaskState.TASK_STATE_COMPLETED
