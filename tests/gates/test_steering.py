"""Messages into a running turn through the gates: each shows what followed them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from a2a.client import Client, ClientConfig, ClientFactory
from a2a.types import Message, Role, SendMessageRequest, Task, TaskState
from a2a.types import Part as A2aPart
from openai import AsyncOpenAI

from greenroom.invocation.user_context import ToolContext
from greenroom.records.content import FunctionCall
from greenroom.records.model_exchange import LlmRequest
from tests.server.agents import Gate, scripted
from tests.server.conftest import Serve
from tests.server.serving import Serving, until

A2A = {"a2a-version": "1.0"}


def _agent(gate: Gate) -> Any:
    """Calls the gate's tool once, and then repeats what it was told since."""

    def answer(request: LlmRequest) -> str | FunctionCall:
        contents = request.contents
        called = [i for i, one in enumerate(contents) if any(part.function_call for part in one.parts or ())]
        if not called:
            return FunctionCall(name="wait_at_gate", args={})
        return "told " + ", ".join(content.text() for content in contents[called[-1] + 2 :])

    return scripted("gated", answer, tools=[gate.wait_at_gate])


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
async def server(serve: Serve, gate: Gate) -> Serving:
    return await serve(_agent(gate), gates=("a2a", "ag_ui", "openai"))


async def _unread(server: Serving, count: int) -> None:
    async def is_reached() -> bool:
        listed = (await server.client.get("/runs", params={"status": "queued"})).json()["runs"]
        return len(listed) == count

    await until(is_reached)


def _frames(text: str) -> list[dict[str, Any]]:
    lines = (line for line in text.split("\n") if line.startswith("data: {"))
    return [json.loads(line.removeprefix("data: ")) for line in lines]


# AG-UI


_CALL = {"id": "c-1", "type": "function", "function": {"name": "wait_at_gate", "arguments": "{}"}}


def _input(run_id: str, *words: str, **props: Any) -> dict[str, Any]:
    """All messages that the client has: the agent calls its tool after the first one."""
    messages: list[Any] = [{"id": word, "role": "user", "content": word} for word in words]
    messages[1:1] = [{"id": "called", "role": "assistant", "toolCalls": [_CALL]}] if len(words) > 1 else []
    return {"threadId": "t", "runId": run_id, "messages": messages, "forwardedProps": props}


async def test_ag_ui_steers_by_forwarded_props(server: Serving, gate: Gate) -> None:
    first = asyncio.create_task(server.client.post("/ag-ui/gated", json=_input("r-1", "go")))
    await until(lambda: gate.entered)
    replies = [first]
    for count, said in enumerate((["go", "one"], ["go", "one", "two"]), 1):
        body = _input(f"s-{count}", *said, multitaskStrategy="steer")
        replies.append(asyncio.create_task(server.client.post("/ag-ui/gated", json=body)))
        await _unread(server, count)
    gate.open()
    for reply in replies:
        events = _frames((await reply).text)
        assert "".join(one["delta"] for one in events if one["type"] == "TEXT_MESSAGE_CONTENT") == "told one, two"
        assert events[-1]["type"] == "RUN_FINISHED"
    again = await server.client.post("/ag-ui/gated", json=_input("s-1", "go", "one", multitaskStrategy="steer"))
    assert [one["delta"] for one in _frames(again.text) if one["type"] == "TEXT_MESSAGE_CONTENT"] == ["told one, two"]


async def test_ag_ui_refuses_an_unknown_strategy(server: Serving) -> None:
    reply = await server.client.post("/ag-ui/gated", json=_input("r-1", "go", multitaskStrategy="maybe"))
    assert reply.status_code == 422
    assert reply.json()["errors"][0]["loc"] == ["body", "forwardedProps", "multitaskStrategy"]


# OpenAI


@pytest.fixture
async def openai(server: Serving) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


async def test_openai_steers_by_metadata(server: Serving, gate: Gate, openai: AsyncOpenAI) -> None:
    started = await openai.responses.create(model="gated", input="go", background=True)
    await until(lambda: gate.entered)
    steer: dict[str, Any] = {"model": "gated", "metadata": {"multitask_strategy": "steer"}}
    one = await openai.responses.create(**steer, input="one", previous_response_id=started.id, background=True)
    assert one.status == "queued"
    two = asyncio.create_task(openai.responses.create(**steer, input="two", previous_response_id=started.id))
    await _unread(server, 2)
    gate.open()
    assert (await two).output_text == "told one, two"

    for response_id in (started.id, one.id, (await two).id):
        found = await openai.responses.retrieve(response_id)
        assert (found.id, found.status, found.output_text) == (response_id, "completed", "told one, two")
        events = [event async for event in await openai.responses.retrieve(response_id, stream=True)]
        assert events[-1].type == "response.completed"
        assert events[-1].response.output_text == "told one, two"


# A2A


@pytest.fixture
async def a2a(server: Serving) -> AsyncIterator[Client]:
    async with httpx.AsyncClient(timeout=30) as http:
        config = ClientConfig(httpx_client=http, streaming=False)
        yield await ClientFactory(config).create_from_url(f"{server.url}/a2a/gated")


def _message(text: str, task: Task | None = None) -> SendMessageRequest:
    message = Message(message_id=f"m-{text}", role=Role.ROLE_USER, parts=[A2aPart(text=text)])
    if task is not None:
        message.task_id = task.id
        message.context_id = task.context_id
    return SendMessageRequest(message=message)


async def _start_task(client: Client) -> Task:
    request = _message("go")
    request.configuration.return_immediately = True
    return await _task(client, request)


async def _task(client: Client, request: SendMessageRequest) -> Task:
    *_, last = [response async for response in client.send_message(request)]
    return last.task


def _said(task: Task) -> list[str]:
    return [part.text for artifact in task.artifacts for part in artifact.parts if part.text]


async def test_a_message_to_a_working_task_is_read_by_it(server: Serving, gate: Gate, a2a: Client) -> None:
    task = await _start_task(a2a)
    await until(lambda: gate.entered)
    at_once = _message("one", task)
    at_once.configuration.return_immediately = True
    working = await _task(a2a, at_once)
    assert (working.id, working.status.state) == (task.id, TaskState.TASK_STATE_WORKING)
    blocking = asyncio.create_task(_task(a2a, _message("two", task)))
    body = {"message": {"messageId": "m-3", "role": "ROLE_USER", "parts": [{"text": "three"}], "taskId": task.id}}
    await _unread(server, 2)
    stream = asyncio.create_task(server.client.post("/a2a/gated/message:stream", json=body, headers=A2A))
    await _unread(server, 3)
    gate.open()

    ended = await blocking
    assert (ended.id, ended.status.state) == (task.id, TaskState.TASK_STATE_COMPLETED)
    assert _said(ended)[-1] == "told one, two, three"
    history = [message.parts[0].text for message in ended.history if message.role == Role.ROLE_USER]
    assert history == ["go", "one", "two", "three"]

    updates = _frames((await stream).text)
    assert updates[0]["task"]["id"] == task.id
    assert updates[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    texts = [
        part.get("text")
        for one in updates
        for part in one.get("artifactUpdate", {}).get("artifact", {}).get("parts", ())
    ]
    assert "told one, two, three" in "".join(text or "" for text in texts)
    listed = (await server.client.get("/a2a/gated/tasks", headers=A2A)).json()["tasks"]
    assert [one["id"] for one in listed] == [task.id]


async def test_a_message_to_a_task_that_has_ended_is_refused(server: Serving, gate: Gate, a2a: Client) -> None:
    gate.open()
    task = await _task(a2a, _message("go"))
    body = {"message": {"messageId": "m-3", "role": "ROLE_USER", "parts": [{"text": "late"}], "taskId": task.id}}
    reply = await server.client.post("/a2a/gated/message:send", json=body, headers=A2A)
    assert reply.status_code == 400
    assert "has ended" in reply.text


async def test_a_message_that_comes_too_late_starts_a_new_task(serve: Serve, gate: Gate) -> None:
    async def last(tool_context: ToolContext) -> dict[str, str]:
        """Waits, and ends the turn."""
        tool_context.actions.skip_summarization = True
        return await gate.wait_at_gate()

    agent = scripted("gated", [FunctionCall(name="last", args={}), "hello"], tools=[last])
    server = await serve(agent, gates=("a2a",))
    async with httpx.AsyncClient(timeout=30) as http:
        config = ClientConfig(httpx_client=http, streaming=False)
        client = await ClientFactory(config).create_from_url(f"{server.url}/a2a/gated")
        task = await _start_task(client)
        await until(lambda: gate.entered)
        late = asyncio.create_task(_task(client, _message("late", task)))
        await _unread(server, 1)
        gate.open()
        answered = await late
        assert answered.id != task.id
        assert (answered.context_id, _said(answered)) == (task.context_id, ["hello"])
