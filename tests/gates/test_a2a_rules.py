"""The protocol's rules for tasks, parts, errors and cards, over its transports and versions."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable
from typing import Any

import a2a.types as a2a
import pytest
from a2a.utils import errors

from greenroom import BaseAgent, FunctionTool, LongRunningFunctionTool
from greenroom.invocation.context import InvocationContext
from greenroom.records.content import Content, FunctionCall, Part
from greenroom.records.event import Event
from greenroom.records.model_exchange import LlmResponse
from tests.gates.test_a2a import GRPC, WAYS, connected, message, refused, rpc, sent, texts
from tests.server.agents import echo, scripted
from tests.server.conftest import Serve
from tests.server.serving import Serving

ALL_WAYS = [*WAYS, GRPC]


@pytest.fixture
def serving(serve: Serve) -> Callable[..., Any]:
    async def start(agent: Any, **more: Any) -> Serving:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            address = f"127.0.0.1:{listening.getsockname()[1]}"
        return await serve(agent, gates=("a2a",), a2a_grpc=address, **more)

    return start


def ask(question: str) -> None:
    """Asks the user."""


def asking(*answers: Any) -> Any:
    script = [FunctionCall(name="ask", args={"question": "?"}), *answers]
    return scripted("echo", script, tools=[LongRunningFunctionTool(ask)])


async def test_words_that_answer_a_call_stay_in_the_history(serving: Any) -> None:
    server = await serving(asking("Thanks"))
    async with connected(server, streaming=False) as client:
        (task,) = await sent(client, message("Go"))
        assert task.status.state == a2a.TaskState.TASK_STATE_INPUT_REQUIRED
        reply = message("Blue", a2a.Part(raw=b"x", media_type="image/png"), message_id="m2", task_id=task.id)
        (done,) = await sent(client, reply)
        read = await client.get_task(a2a.GetTaskRequest(id=task.id))
    for one in (done, read):
        assert [entry.message_id for entry in one.history] == ["m1", "m2"]
        assert [part.WhichOneof("content") for part in one.history[1].parts] == ["text", "raw"]
        assert one.history[1].parts[0].text == "Blue"
    session = (
        await server.client.get(f"/apps/echo/users/A2A_USER_{task.context_id}/sessions/{task.context_id}")
    ).json()
    [*_, answered] = [event for event in session["events"] if event["author"] == "user"]
    assert answered["content"]["parts"][0]["functionResponse"]["response"] == {"result": "Blue"}


async def test_a_response_and_words_in_one_message(serving: Any) -> None:
    def last_parts(request: Any) -> str:
        return " | ".join(part.text or "?" for content in request.contents[1:] for part in content.parts or ())

    server = await serving(asking(last_parts))
    async with connected(server, streaming=False) as client:
        (task,) = await sent(client, message("Go"))
        answer = a2a.Part()
        call = task.status.message.parts[0].data.struct_value
        answer.data.struct_value.update({"id": call["id"], "name": "ask", "response": {"color": "blue"}})
        answer.metadata.update({"adk_type": "function_response"})
        (done,) = await sent(client, message("And hurry", answer, message_id="m2", task_id=task.id))
        assert (done.status.state, texts(done)) == (a2a.TaskState.TASK_STATE_COMPLETED, ["? | ? | And hurry"])


@pytest.mark.parametrize("way", ALL_WAYS)
async def test_a_subscription_lasts_until_the_task_ends(serving: Any, way: tuple[str, str]) -> None:
    server = await serving(asking("Hm", FunctionCall(name="ask", args={"question": "?"}), "Thanks"))
    async with connected(server, way, streaming=False) as sender, connected(server, way) as client:
        (task,) = await sent(sender, message("Go"))
        stream = client.subscribe(a2a.SubscribeToTaskRequest(id=task.id))
        first = await anext(stream)
        assert first.task.status.state == a2a.TaskState.TASK_STATE_INPUT_REQUIRED

        async def read() -> list[Any]:
            return [getattr(one, one.WhichOneof("payload")) async for one in stream]

        reading = asyncio.create_task(read())
        await sent(sender, message("Other", message_id="o", context_id=task.context_id))
        for number in (2, 3):
            await sent(sender, message("Blue", message_id=f"m{number}", task_id=task.id))
        async with asyncio.timeout(10):
            updates = await reading
    assert {one.task_id for one in updates} == {task.id}
    states = [one.status.state for one in updates if isinstance(one, a2a.TaskStatusUpdateEvent)]
    working = a2a.TaskState.TASK_STATE_WORKING
    waiting = a2a.TaskState.TASK_STATE_INPUT_REQUIRED
    done = a2a.TaskState.TASK_STATE_COMPLETED
    assert states == [working, waiting, working, done]
    artifacts = [one.artifact.parts[0].text for one in updates if isinstance(one, a2a.TaskArtifactUpdateEvent)]
    assert artifacts[-1] == "Thanks"


@pytest.mark.parametrize("way", ALL_WAYS)
async def test_a_subscription_ends_when_a_waiting_task_is_cancelled(serving: Any, way: tuple[str, str]) -> None:
    async with connected(server := await serving(asking()), way, streaming=False) as sender:
        (task,) = await sent(sender, message("Go"))
        async with connected(server, way) as client:
            stream = client.subscribe(a2a.SubscribeToTaskRequest(id=task.id))
            await anext(stream)
            await sender.cancel_task(a2a.CancelTaskRequest(id=task.id))
            async with asyncio.timeout(10):
                [end] = [one async for one in stream]
    assert end.status_update.status.state == a2a.TaskState.TASK_STATE_CANCELED


# media types


@pytest.mark.parametrize("way", ALL_WAYS)
async def test_a_media_type_that_the_card_does_not_list_is_refused(serving: Any, way: tuple[str, str]) -> None:
    server = await serving(echo())
    for streaming in (False, True):
        async with connected(server, way, streaming=streaming) as client:
            with refused(errors.ContentTypeNotSupportedError, way):
                await sent(client, message("x", a2a.Part(raw=b"x", media_type="application/x-nothing")))
    async with connected(server, way, streaming=False) as client:
        await sent(client, message("x", a2a.Part(raw=b"x", media_type="image/png")))
    assert len((await server.client.get("/runs")).json()["runs"]) == 1


async def test_the_codes_of_a_refused_media_type(serving: Any) -> None:
    server = await serving(echo())
    parts = [{"url": "https://a.example/b", "mediaType": "model/stl"}]
    params = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": parts}}
    assert (await rpc(server, "SendMessage", params))["error"]["code"] == -32005
    reply = await server.client.post("/a2a/echo/message:send", json=params, headers={"a2a-version": "1.0"})
    assert reply.status_code == 400
    assert reply.json()["error"]["details"][0]["reason"] == "CONTENT_TYPE_NOT_SUPPORTED"


# rejections and bare messages


class Replies(BaseAgent):
    """Replies with one event that has this metadata, and then with others that have none."""

    def __init__(self, reply: str, *later: str) -> None:
        super().__init__(name="echo")
        self.metadata = {"a2a:reply": reply}
        self.later = later

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event]:
        content = Content(role="model", parts=[Part(text="Not today")])
        yield Event(author=self.name, content=content, custom_metadata=self.metadata)
        for text in self.later:
            yield Event(author=self.name, content=Content(role="model", parts=[Part(text=text)]))


@pytest.mark.parametrize("way", ALL_WAYS)
async def test_an_agent_rejects_a_task(serving: Any, way: tuple[str, str]) -> None:
    server = await serving(Replies("rejected"))
    rejected = a2a.TaskState.TASK_STATE_REJECTED
    async with connected(server, way, streaming=False) as client:
        (task,) = await sent(client, message("x"))
        assert (task.status.state, task.status.message.parts[0].text) == (rejected, "Not today")
        assert not task.artifacts
        assert (await client.get_task(a2a.GetTaskRequest(id=task.id))).status.state == rejected
        if way[1] == "1.0":
            listed = await client.list_tasks(a2a.ListTasksRequest(status=rejected))
            assert [one.id for one in listed.tasks] == [task.id]
        with refused(errors.TaskNotCancelableError, way):
            await client.cancel_task(a2a.CancelTaskRequest(id=task.id))
    async with connected(server, way) as client:
        *_, end = await sent(client, message("x", message_id="m2"))
        assert (end.status.state, end.status.message.parts[0].text) == (rejected, "Not today")


@pytest.mark.parametrize("way", ALL_WAYS)
async def test_an_agent_replies_with_a_bare_message(serving: Any, way: tuple[str, str]) -> None:
    server = await serving(Replies("message"))
    async with connected(server, way, streaming=False) as client:
        (reply,) = await sent(client, message("x", context_id="c"))
    assert isinstance(reply, a2a.Message)
    assert (reply.role, reply.context_id, reply.task_id) == (a2a.Role.ROLE_AGENT, "c", "")
    assert [part.text for part in reply.parts] == ["Not today"]
    async with connected(server, way) as client:
        begun, *_, end = await sent(client, message("x", message_id="m2"))
        assert isinstance(begun, a2a.Task)
        assert end.status.state == a2a.TaskState.TASK_STATE_COMPLETED


async def test_a_model_callback_rejects_a_streamed_reply(serving: Any) -> None:
    def reject(callback_context: Any, llm_response: LlmResponse) -> LlmResponse:
        llm_response.custom_metadata = {"a2a:reply": "rejected"}
        return llm_response

    agent = scripted("echo", ["I will not do that"])
    agent.after_model_callback = reject
    async with connected(await serving(agent)) as client:
        begun, *updates, end = await sent(client, message("x"))
    assert isinstance(begun, a2a.Task)
    assert updates == []
    assert end.status.message.parts[0].text == "I will not do that"


async def test_a_marked_message_before_the_last_is_not_the_reply(serving: Any) -> None:
    async with connected(await serving(Replies("message", "Well")), streaming=False) as client:
        (task,) = await sent(client, message("x"))
    assert texts(task) == ["Not today", "Well"]


# errors of the transport


@pytest.mark.parametrize("path", ["", "/message:send", "/message:stream", "/v1/message:send", "/v1/message:stream"])
@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
async def test_another_content_type_is_a_415(serving: Any, path: str, media_type: str) -> None:
    server = await serving(echo())
    reply = await server.client.post(f"/a2a/echo{path}", content=b"{}", headers={"content-type": media_type})
    assert (reply.status_code, reply.json()["code"]) == (415, "UnsupportedMediaType")


@pytest.mark.parametrize("prefix", ["", "/v1"])
@pytest.mark.parametrize("value", ["abc", "1.5", "99999999999", "-1", "٣", "1_0", " 1"])
async def test_a_history_length_that_is_no_number(serving: Any, prefix: str, value: str) -> None:
    server = await serving(echo())
    version = {"a2a-version": "0.3" if prefix else "1.0"}
    async with connected(server, streaming=False) as client:
        (task,) = await sent(client, message("x"))
    reply = await server.client.get(
        f"/a2a/echo{prefix}/tasks/{task.id}", params={"historyLength": value}, headers=version
    )
    assert reply.status_code == 400
    assert reply.json()["error"]["details"][0]["reason"] == "INVALID_PARAMS"


@pytest.mark.parametrize("value", ["abc", "0", "999", "99999999999"])
async def test_a_page_size_that_is_no_number(serving: Any, value: str) -> None:
    server = await serving(echo())
    reply = await server.client.get("/a2a/echo/tasks", params={"pageSize": value}, headers={"a2a-version": "1.0"})
    assert (reply.status_code, reply.json()["error"]["status"]) == (400, "INVALID_ARGUMENT")


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("prefix", ["", "/v1"])
async def test_a_subscription_to_no_task_is_a_404(serving: Any, method: str, prefix: str, caplog: Any) -> None:
    server = await serving(echo())
    version = {"a2a-version": "0.3" if prefix else "1.0"}
    reply = await server.client.request(method, f"/a2a/echo{prefix}/tasks/nope:subscribe", headers=version)
    assert (reply.status_code, reply.json()["error"]["status"]) == (404, "NOT_FOUND")
    assert "Traceback" not in caplog.text


async def test_a_stream_that_is_refused_at_once_has_a_status(serving: Any) -> None:
    server = await serving(echo())
    said = {"messageId": "m", "role": "ROLE_USER", "taskId": "nope", "content": [{"text": "x"}]}
    reply = await server.client.post("/a2a/echo/v1/message:stream", json={"message": said})
    assert (reply.status_code, reply.json()["error"]["status"]) == (404, "NOT_FOUND")


# cards


async def test_a_card_may_be_kept_and_is_checked_by_its_tag(serving: Any) -> None:
    server = await serving(scripted("echo", ["x"], tools=[FunctionTool(ask)]))
    path = "/a2a/echo/.well-known/agent-card.json"
    first = await server.client.get(path)
    assert first.headers["cache-control"] == "public, max-age=60"
    tag = first.headers["etag"]
    for given in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        again = await server.client.get(path, headers={"if-none-match": given})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    for given in ('"other"', tag[:-2]):
        assert (await server.client.get(path, headers={"if-none-match": given})).json() == first.json()
    elsewhere = await server.client.get(path, headers={"host": "a.example", "if-none-match": tag})
    assert (elsewhere.status_code, elsewhere.headers["etag"] != tag) == (200, True)
