"""A2A, as the official client sees it: both bindings over HTTP, both versions of the protocol."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import a2a.types as a2a
import grpc.aio
import httpx
import pytest
from a2a.client import A2ACardResolver, A2AClientError, Client, ClientConfig, ClientFactory
from a2a.utils import errors
from google.protobuf.json_format import MessageToDict

from greenroom import ApprovalPolicy, BaseAgent, BaseTool, BaseToolset, FunctionTool, LlmAgent, LongRunningFunctionTool
from greenroom.gates.a2a.task_events import TaskEvents
from greenroom.invocation.context import InvocationContext
from greenroom.invocation.user_context import ReadonlyContext
from greenroom.records.content import Blob, Content, FunctionCall, Part
from greenroom.records.event import Event, EventActions
from greenroom.records.run import Run, RunStatus
from tests.server.agents import HeldModel, echo, scripted
from tests.server.conftest import Serve
from tests.server.serving import Serving

GRPC = ("GRPC", "1.0")
WAYS = [("JSONRPC", "1.0"), ("JSONRPC", "0.3"), ("HTTP+JSON", "1.0"), ("HTTP+JSON", "0.3")]


@asynccontextmanager
async def connected(
    server: Serving, way: tuple[str, str] = WAYS[0], *, streaming: bool = True
) -> AsyncGenerator[Client]:
    """The SDK's client, made from the app's card, by one of its interfaces."""
    async with httpx.AsyncClient() as http:
        card = await A2ACardResolver(http, f"{server.url}/a2a/echo").get_agent_card()
        chosen = [one for one in card.supported_interfaces if (one.protocol_binding, one.protocol_version) == way]
        del card.supported_interfaces[:]
        card.supported_interfaces.extend(chosen)
        config = ClientConfig(
            httpx_client=http,
            streaming=streaming,
            supported_protocol_bindings=[way[0]],
            grpc_channel_factory=grpc.aio.insecure_channel,
        )
        async with ClientFactory(config).create(card) as client:
            yield client


def message(*parts: a2a.Part | str, message_id: str = "m1", **fields: Any) -> a2a.SendMessageRequest:
    made = [a2a.Part(text=part) if isinstance(part, str) else part for part in parts]
    return a2a.SendMessageRequest(
        message=a2a.Message(message_id=message_id, role=a2a.Role.ROLE_USER, parts=made, **fields)
    )


def refused(kind: type[errors.A2AError], way: tuple[str, str]) -> Any:
    """The SDK's REST client of version 0.3 doesn't know the kinds of errors that the SDK's server names."""
    return pytest.raises((errors.A2AError, A2AClientError) if way == ("HTTP+JSON", "0.3") else kind)


async def sent(client: Client, request: a2a.SendMessageRequest) -> list[Any]:
    return [getattr(one, one.WhichOneof("payload")) async for one in client.send_message(request)]


def texts(task: a2a.Task) -> list[str]:
    return [part.text for artifact in task.artifacts for part in artifact.parts]


@pytest.mark.parametrize("way", WAYS)
async def test_a_stream_is_the_task_that_is_read_afterwards(serve: Serve, way: tuple[str, str]) -> None:
    async with connected(await serve(echo(), gates=("a2a",)), way) as client:
        begun, *updates, end = await sent(client, message("one two three"))
        assert isinstance(begun, a2a.Task)
        assert begun.history[0].parts[0].text == "one two three"
        whole = [one for one in updates if isinstance(one, a2a.TaskArtifactUpdateEvent) and one.last_chunk]
        pieces = [one for one in updates if isinstance(one, a2a.TaskArtifactUpdateEvent) and not one.last_chunk]
        assert "".join(one.artifact.parts[0].text for one in pieces) == whole[0].artifact.parts[0].text
        assert {one.artifact.artifact_id for one in pieces} == {whole[0].artifact.artifact_id}
        assert [one.append for one in pieces] == [False] + [True] * (len(pieces) - 1)
        assert end.status.state == a2a.TaskState.TASK_STATE_COMPLETED
        task = await client.get_task(a2a.GetTaskRequest(id=begun.id))
        assert task.status.state == a2a.TaskState.TASK_STATE_COMPLETED
        assert texts(task) == [whole[0].artifact.parts[0].text]
        assert task.history[0].message_id == "m1"
        if way[1] == "1.0":  # in version 0.3, the SDK's client leaves out a zero
            none = await client.get_task(a2a.GetTaskRequest(id=begun.id, history_length=0))
            assert not none.history
        with refused(errors.TaskNotCancelableError, way):
            await client.cancel_task(a2a.CancelTaskRequest(id=begun.id))
        with refused(errors.TaskNotFoundError, way):
            await client.get_task(a2a.GetTaskRequest(id="nobody"))


@pytest.mark.parametrize("way", WAYS)
async def test_a_conversation_of_blocking_messages(serve: Serve, way: tuple[str, str]) -> None:
    server = await serve(echo(), gates=("a2a",))
    async with connected(server, way, streaming=False) as client:
        (first,) = await sent(client, message("Hello"))
        (second,) = await sent(client, message("Again", message_id="m2", context_id=first.context_id))
        assert (first.context_id, first.id != second.id) == (second.context_id, True)
        with refused(errors.UnsupportedOperationError, way):
            await sent(client, message("More", message_id="m3", task_id=first.id))
        if way[1] == "1.0":
            listed = await client.list_tasks(a2a.ListTasksRequest(context_id=first.context_id, include_artifacts=True))
            assert [task.id for task in listed.tasks] == [second.id, first.id]
            assert (listed.total_size, texts(listed.tasks[1])) == (2, texts(first))


@pytest.mark.parametrize("way", WAYS)
async def test_cancel_and_subscribe(serve: Serve, way: tuple[str, str]) -> None:
    model = HeldModel()
    server = await serve(LlmAgent(name="echo", model=model), gates=("a2a",))
    async with connected(server, way, streaming=False) as sender, connected(server, way) as client:
        request = message("Wait")
        request.configuration.return_immediately = True
        (task,) = await sent(sender, request)
        assert task.status.state in (a2a.TaskState.TASK_STATE_SUBMITTED, a2a.TaskState.TASK_STATE_WORKING)
        stream = client.subscribe(a2a.SubscribeToTaskRequest(id=task.id))
        first = await anext(stream)
        assert first.task.id == task.id
        cancelled = await client.cancel_task(a2a.CancelTaskRequest(id=task.id))
        assert cancelled.status.state == a2a.TaskState.TASK_STATE_CANCELED
        last = [one async for one in stream][-1]
        assert last.status_update.status.state == a2a.TaskState.TASK_STATE_CANCELED
        with refused(errors.UnsupportedOperationError, way):
            await anext(client.subscribe(a2a.SubscribeToTaskRequest(id=task.id)))


async def remove(name: str) -> str:
    return f"{name} is gone"


@pytest.mark.parametrize("way", WAYS)
async def test_an_approval_is_answered_in_the_same_task(serve: Serve, way: tuple[str, str]) -> None:
    tool = FunctionTool(remove, require_confirmation=True)
    server = await serve(scripted("echo", [FunctionCall(name="remove", args={"name": "x"}), "Done"], tools=[tool]),
        gates=("a2a",))  # fmt: skip
    async with connected(server, way, streaming=False) as client:
        (task,) = await sent(client, message("Remove x"))
        assert task.status.state == a2a.TaskState.TASK_STATE_INPUT_REQUIRED
        (asked,) = task.status.message.parts
        plain = MessageToDict(asked)
        assert plain["metadata"] == {"adk_type": "function_call", "adk_is_long_running": True}
        assert plain["data"]["name"] == "adk_request_confirmation"
        (same,) = await sent(client, message("yes", message_id="m2", task_id=task.id))
        assert same.status.state == a2a.TaskState.TASK_STATE_INPUT_REQUIRED
        assert "function response" in same.status.message.parts[-1].text
        answer = a2a.Part()
        answer.data.struct_value.update({"id": plain["data"]["id"], "name": plain["data"]["name"]})
        answer.data.struct_value.update({"response": {"confirmed": True}})
        answer.metadata.update({"adk_type": "function_response"})
        (done,) = await sent(client, message(answer, message_id="m3", task_id=task.id))
        assert (done.id, done.status.state) == (task.id, a2a.TaskState.TASK_STATE_COMPLETED)
        assert "Done" in texts(done)
        assert [one.message_id for one in done.history] == ["m1", "m3"]


async def test_an_approval_by_others_is_refused_and_the_task_still_waits(serve: Serve) -> None:
    tool = FunctionTool(remove, require_confirmation=ApprovalPolicy(users=["bob"]))
    server = await serve(
        scripted("echo", [FunctionCall(name="remove", args={"name": "x"}), "Done"], tools=[tool]), gates=("a2a",)
    )
    async with connected(server, streaming=False) as client:
        (task,) = await sent(client, message("Remove x"))
        data = MessageToDict(task.status.message.parts[0])["data"]
        assert data["args"]["approvals"]["users"] == ["bob"]
        answer = a2a.Part()
        answer.data.struct_value.update({"id": data["id"], "name": data["name"], "response": {"confirmed": True}})
        answer.metadata.update({"adk_type": "function_response"})
        with pytest.raises(errors.InvalidParamsError, match="it waits for 'bob'"):
            await sent(client, message(answer, message_id="m2", task_id=task.id))
        [request] = (await server.client.get("/requests")).json()["requests"]
        body = {"confirmed": True, "userId": "bob"}
        assert (await server.client.post(f"/requests/{request['id']}/answer", json=body)).status_code == 200
        await server.wait_for_status(task.id, "succeeded")


async def test_a_text_answers_a_long_running_tool(serve: Serve) -> None:
    def ask(question: str) -> None:
        """Asks the user."""

    agent = scripted("echo", [FunctionCall(name="ask", args={"question": "?"}), "Thanks"], tools=[LongRunningFunctionTool(ask)])  # fmt: skip
    server = await serve(agent, gates=("a2a",))
    async with connected(server) as client:
        *_, end = await sent(client, message("Go"))
        assert end.status.state == a2a.TaskState.TASK_STATE_INPUT_REQUIRED
        *_, end = await sent(client, message("Blue", message_id="m2", task_id=end.task_id))
        assert end.status.state == a2a.TaskState.TASK_STATE_COMPLETED


async def test_files_and_data_both_ways(serve: Serve) -> None:
    blob = Part(inline_data=Blob(data=b"\x01", mime_type="image/png", display_name="a.png"))
    server = await serve(scripted("echo", [[blob]]), gates=("a2a",))
    async with connected(server, streaming=False) as client:
        data = a2a.Part()
        data.data.struct_value.update({"n": 5})
        given = (a2a.Part(raw=b"\x02", media_type="image/png"), a2a.Part(url="https://h/f.pdf"), data)
        (task,) = await sent(client, message(*given))
        assert [part.WhichOneof("content") for part in task.history[0].parts] == ["raw", "url", "data"]
        (part,) = task.artifacts[0].parts
        assert (part.raw, part.media_type, part.filename) == (b"\x01", "image/png", "a.png")


async def rpc(server: Serving, method: str, params: Any = None, **headers: str) -> Any:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}
    headers = {"a2a-version": "1.0", **{name.replace("_", "-"): value for name, value in headers.items()}}
    return (await server.client.post("/a2a/echo", json=body, headers=headers)).json()


async def test_codes_of_errors(serve: Serve) -> None:
    server = await serve(echo(), gates=("a2a",))
    sends = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}]}}
    for method, params, headers, code in (
        ("GetTask", {"id": "none"}, {}, -32001),
        ("CancelTask", {"id": "none"}, {}, -32001),
        ("SubscribeToTask", {"id": "none"}, {}, -32001),
        ("SendMessage", {"message": {**sends["message"], "taskId": "none"}}, {}, -32001),
        ("SendMessage", {}, {}, -32602),
        ("SendMessage", {"message": {**sends["message"], "parts": []}}, {}, -32602),
        ("SendMessage", {"message": 5}, {}, -32602),
        ("ListTasks", {"pageSize": 0}, {}, -32602),
        ("ListTasks", {"pageToken": "?"}, {}, -32602),
        ("ListTasks", {"historyLength": -1}, {}, -32602),
        ("GetExtendedAgentCard", {}, {}, -32004),
        ("CreateTaskPushNotificationConfig", {"taskId": "t", "url": "https://h"}, {}, -32001),
        ("SendMessage", sends, {"a2a_version": "7.0"}, -32009),
        ("Nothing", {}, {}, -32601),
    ):  # fmt: skip
        assert (await rpc(server, method, params, **headers))["error"]["code"] == code, (method, params)
    broken = await server.client.post("/a2a/echo", content=b"{", headers={"content-type": "application/json"})
    assert broken.json()["error"]["code"] == -32700


def test_chunks_of_text_are_the_same_without_protobuf() -> None:
    run = Run(id="r", app_name="echo", user_id="u", session_id="s", status=RunStatus.RUNNING, created_at=1.0)
    plain = TaskEvents(run, keeps_artifacts=False)
    slow = TaskEvents(run, keeps_artifacts=False)
    parts = [Part(text="a"), Part(text='"b\u2028')]
    known = {"a2a:request": {"messageId": "m"}, "__adk_internal_x": 1}
    kinds: list[dict[str, Any]] = [
        {"id": "e-1"},
        {"id": "e-1"},
        {"id": "e-2", "branch": "x.y"},
        {"id": "e-2", "custom_metadata": known},
    ]

    for fields in kinds:
        event = Event(
            author="echo", invocation_id="r", partial=True, content=Content(role="model", parts=parts), **fields
        )
        chunk = plain.text_chunk(event)
        (update,) = slow.read(event)
        assert chunk is not None
        assert json.loads(chunk) == update

    for other in (
        Event(author="echo", partial=True, content=Content(role="model", parts=[Part(text="a", thought=True)])),
        Event(author="echo", partial=True, content=Content(role="model", parts=[Part(inline_data=Blob(data=b"x"))])),
        Event(author="echo", partial=True, content=Content(parts=parts), actions=EventActions(state_delta={"a": 1})),
        Event(author="echo", partial=True, content=Content(parts=parts), error_code="STOP"),
        Event(author="user", partial=True, content=Content(parts=parts)),
        Event(author="echo", content=Content(parts=parts)),
    ):
        assert plain.text_chunk(other) is None


async def test_an_agent_sees_the_message(serve: Serve) -> None:
    class Looks(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> AsyncIterator[Event]:
            known = (ctx.run_config.custom_metadata or {}) if ctx.run_config else {}
            text = f"{known['a2a:request']['messageId']} {known['a2a_metadata']} {known['a2a:request']['metadata']}"
            yield Event(author=self.name, content=Content(role="model", parts=[Part(text=text)]))

    server = await serve(Looks(name="echo"), gates=("a2a",))
    async with connected(server, streaming=False) as client:
        request = message("x", message_id="tck-7", metadata={"k": 1, "__adk_internal_x": 2})
        request.metadata.update({"r": 2})
        (task,) = await sent(client, request)
        assert texts(task) == ["tck-7 {'r': 2} {'k': 1}"]


async def test_the_card_says_what_the_agent_can_do(serve: Serve) -> None:
    server = await serve(scripted("echo", ["x"], tools=[FunctionTool(remove)]), gates=("a2a",))
    card = (await server.client.get("/a2a/echo/.well-known/agent-card.json")).json()
    assert [skill["id"] for skill in card["skills"]] == ["echo", "echo-remove"]
    assert card["capabilities"]["streaming"] is True
    assert card["capabilities"]["pushNotifications"] is True
    assert {one["url"] for one in card["supportedInterfaces"]} == {f"{server.url}/a2a/echo"}


async def test_the_tools_in_a_card_are_not_listed_for_each_request(serve: Serve) -> None:
    class SmallToolset(BaseToolset):
        listed = 0

        async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
            self.listed += 1
            return [FunctionTool(remove)]

    shelf = SmallToolset()
    server = await serve(scripted("echo", ["x"], tools=[shelf]), gates=("a2a",))
    for host in ("a.example", "b.example"):
        reply = await server.client.get("/a2a/echo/.well-known/agent-card.json", headers={"host": host})
        assert {one["url"] for one in reply.json()["supportedInterfaces"]} == {f"http://{host}/a2a/echo"}
    assert shelf.listed == 1


async def test_a_repeated_message_starts_no_second_run(serve: Serve) -> None:
    server = await serve(echo(), gates=("a2a",))
    async with connected(server, streaming=False) as client:
        replies = await asyncio.gather(*(sent(client, message("x", context_id="c")) for _ in range(3)))
        assert len({task.id for (task,) in replies}) == 1
