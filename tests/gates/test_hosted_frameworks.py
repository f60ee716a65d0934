"""Agents of other frameworks behind each gate: their question to a person is answered by the next server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from greenroom.cli.http_protocol import DEFAULT_LIMITS
from greenroom.records import wire
from greenroom.records.event import Event
from greenroom.server.application import create_app
from greenroom.server.settings import ServerSettings
from greenroom.sessions.sqlite import SqliteSessionService
from tests.agents.frameworks.contract import Step
from tests.agents.talk import call
from tests.durability.hosted_server import framework_named
from tests.durability.test_hosted_frameworks import FRAMEWORKS
from tests.server.serving import Serving, serving

Json = dict[str, Any]
Serve: TypeAlias = Callable[[], AbstractAsyncContextManager[Serving]]

_SESSIONS = {
    "ag_ui": ("anonymous", "t"),
    "openai": ("anonymous", "c"),
    "a2a": ("A2A_USER_a", "a"),
    "run_sse": ("u", "s"),
}


@pytest.fixture(params=FRAMEWORKS)
def framework(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def serve(framework: str, tmp_path: Path) -> Serve:
    """Servers on the same database, one after the other."""
    paid = tmp_path / "paid.txt"

    async def pay(amount: int) -> str:
        """Pays."""
        with paid.open("a") as file:
            file.write("paid\n")
        return "paid"

    def reply(texts: Any) -> Step:
        return "It is done." if "paid" in texts else call("pay", "c-1", amount=5)

    @asynccontextmanager
    async def start() -> AsyncGenerator[Serving]:
        agent = framework_named(framework).agent(reply, tools=[pay], asks={"pay"})
        sessions = SqliteSessionService(tmp_path / "sessions.db")
        settings = ServerSettings(gates=("a2a", "ag_ui", "openai"))
        app = create_app(agents=[agent], session_service=sessions, settings=settings)
        async with serving(app, DEFAULT_LIMITS) as server:
            yield server

    return start


async def session_of(server: Serving, gate: str) -> list[Json]:
    user_id, session_id = _SESSIONS[gate]
    reply = await server.client.get(f"/apps/desk/users/{user_id}/sessions/{session_id}")
    events: list[Json] = reply.json()["events"]
    return events


async def answer_for(server: Serving, gate: str, framework: str) -> Json:
    """The function response of a person who approves what the session's newest run asks for."""
    asked = next(event for event in reversed(await session_of(server, gate)) if event.get("longRunningToolIds"))
    message: Json = wire.to_plain(framework_named(framework).answer(wire.from_plain(asked, Event), approved=True))
    response: Json = message["parts"][0]["functionResponse"]
    return response


async def check_log(server: Serving, gate: str, tmp_path: Path) -> None:
    texts = [part["text"] for event in await session_of(server, gate)
             for part in event.get("content", {}).get("parts", []) if "text" in part]  # fmt: skip
    assert texts == ["Pay 5", "It is done."]
    assert (tmp_path / "paid.txt").read_text() == "paid\n"


def frames(text: str) -> list[Json]:
    lines = (line for line in text.split("\n") if line.startswith("data: {"))
    return [json.loads(line.removeprefix("data: ")) for line in lines]


async def test_over_run_sse(serve: Serve, framework: str, tmp_path: Path) -> None:
    body: Json = {"appName": "desk", "userId": "u", "sessionId": "s", "streaming": True}
    async with serve() as server:
        await server.client.post("/apps/desk/users/u/sessions/s")
        reply = await server.client.post("/run_sse", json={**body, "newMessage": {"parts": [{"text": "Pay 5"}]}})
        assert any(frame.get("longRunningToolIds") for frame in frames(reply.text))

    async with serve() as server:
        answer = {"role": "user", "parts": [{"functionResponse": await answer_for(server, "run_sse", framework)}]}
        reply = await server.client.post("/run_sse", json={**body, "newMessage": answer})
        chunks = [frame for frame in frames(reply.text) if frame.get("partial")]
        assert "".join(frame["content"]["parts"][0]["text"] for frame in chunks) == "It is done."
        await check_log(server, "run_sse", tmp_path)


async def test_over_ag_ui(serve: Serve, framework: str, tmp_path: Path) -> None:
    messages = [{"id": "1", "role": "user", "content": "Pay 5"}]
    body: Json = {"threadId": "t", "runId": "r", "messages": messages}
    async with serve() as server:
        reply = await server.client.post("/ag-ui/desk", json=body)
        [interrupt] = frames(reply.text)[-1]["outcome"]["interrupts"]

    async with serve() as server:
        answer = await answer_for(server, "ag_ui", framework)
        assert answer["id"] == interrupt["id"]
        resume = [{"interruptId": interrupt["id"], "status": "resolved", "payload": answer["response"]}]
        asked = {"id": "2", "role": "assistant", "content": "May I?"}
        again = {**body, "runId": "r2", "messages": [*messages, asked], "resume": resume}
        reply = await server.client.post("/ag-ui/desk", json=again)
        said = "".join(one["delta"] for one in frames(reply.text) if one["type"] == "TEXT_MESSAGE_CONTENT")
        assert said == "It is done."
        await check_log(server, "ag_ui", tmp_path)


async def test_over_openais_responses(serve: Serve, framework: str, tmp_path: Path) -> None:
    async with serve() as server:
        asked = {"model": "desk", "input": "Pay 5", "conversation": "c"}
        first = (await server.client.post("/v1/responses", json=asked)).json()
        request = next(item for item in first["output"] if item.get("name", "").startswith("adk_request_"))

    async with serve() as server:
        answer = await answer_for(server, "openai", framework)
        output = json.dumps(answer["response"])
        item = {"type": "function_call_output", "call_id": request["call_id"], "output": output}
        second = {"model": "desk", "conversation": "c", "input": [item]}
        reply = (await server.client.post("/v1/responses", json=second)).json()
        assert [item["content"][0]["text"] for item in reply["output"]] == ["It is done."]
        await check_log(server, "openai", tmp_path)


async def test_over_openais_chat_completions(serve: Serve) -> None:
    async with serve() as server:
        messages: list[Json] = [{"role": "user", "content": "Pay 5"}]
        first = (await server.client.post("/v1/chat/completions", json={"model": "desk", "messages": messages})).json()
        [choice] = first["choices"]
        assert choice["finish_reason"] == "tool_calls"
        assert choice["message"]["tool_calls"][-1]["function"]["name"].startswith("adk_request_")


async def test_over_a2a(serve: Serve, framework: str, tmp_path: Path) -> None:
    async def send(server: Serving, **message: Any) -> Json:
        params = {"message": {"role": "ROLE_USER", "contextId": "a", **message}}
        request = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
        reply = await server.client.post("/a2a/desk", json=request, headers={"a2a-version": "1.0"})
        task: Json = reply.json()["result"]["task"]
        return task

    async with serve() as server:
        task = await send(server, messageId="m1", parts=[{"text": "Pay 5"}])
        assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"

    async with serve() as server:
        answer = await answer_for(server, "a2a", framework)
        part = {"data": answer, "metadata": {"adk_type": "function_response"}}
        task = await send(server, messageId="m2", taskId=task["id"], parts=[part])
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"
        said = [part["text"] for artifact in task["artifacts"] for part in artifact["parts"] if "text" in part]
        assert said == ["It is done."]
        await check_log(server, "a2a", tmp_path)


async def test_over_the_inbox(serve: Serve, framework: str, tmp_path: Path) -> None:
    async with serve() as server:
        await server.client.post("/apps/desk/users/u/sessions/s")
        body = {"newMessage": {"parts": [{"text": "Pay 5"}]}}
        reply = await server.client.post("/run", json={"appName": "desk", "userId": "u", "sessionId": "s", **body})
        assert reply.status_code == 200

    async with serve() as server:
        [entry] = (await server.client.get("/requests")).json()["requests"]
        answer = await answer_for(server, "run_sse", framework)
        assert entry["callId"] == answer["id"]
        given = answer["response"]
        body = {"response": given} if entry["kind"] == "input" else {"confirmed": given["confirmed"]}
        reply = await server.client.post(f"/requests/{entry['id']}/answer", json=body)
        run_id = reply.json()["run"]["id"]
        async with asyncio.timeout(10):
            await server.client.get(f"/runs/{run_id}/events", headers={"accept": "text/event-stream"})
        await check_log(server, "run_sse", tmp_path)


async def test_a_failed_run_is_retried_from_its_last_step(framework: str) -> None:
    ran: list[str] = []

    async def work(label: str) -> str:
        """Does some work."""
        ran.append(label)
        if ran == ["one", "two"]:
            raise ConnectionError("away")
        return f"worked {label}"

    def reply(texts: Any) -> Step:
        labels = ("one", "two")
        done = sum(text.startswith("worked") for text in texts)
        return "Done." if done == len(labels) else call("work", f"c-{done}", label=labels[done])

    agent = framework_named(framework).agent(reply, tools=[work])
    async with serving(create_app(agents=[agent]), DEFAULT_LIMITS) as server:
        await server.client.post("/apps/desk/users/u/sessions/s")
        body = {"appName": "desk", "userId": "u", "sessionId": "s", "newMessage": {"parts": [{"text": "Work"}]}}
        failed = await server.client.post("/run", json=body)
        run_id = failed.headers["x-run-id"]
        assert (await server.client.get(f"/runs/{run_id}")).json()["status"] == "failed"

        reply_to_retry = await server.client.post(f"/runs/{run_id}/retry")
        assert reply_to_retry.status_code < 300, reply_to_retry.text
        async with asyncio.timeout(10):
            await server.client.get(f"/runs/{run_id}/events", headers={"accept": "text/event-stream"})

        assert (await server.client.get(f"/runs/{run_id}")).json()["status"] == "succeeded"
        assert ran == ["one", "two", "two"]
        events = await session_of(server, "run_sse")
        texts = [
            part["text"] for event in events for part in event.get("content", {}).get("parts", []) if "text" in part
        ]
        assert texts == ["Work", "Done."]
