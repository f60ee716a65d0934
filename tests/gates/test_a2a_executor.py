"""`to_a2a` and the executor under the SDK's own server, as the official client sees them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import a2a.types as a2a
import httpx
import pytest
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.server.agent_execution import RequestContext
from a2a.server.tasks import InMemoryPushNotificationConfigStore
from google.protobuf.json_format import MessageToDict
from starlette.applications import Starlette

from greenroom import (
    A2aAgentExecutor,
    A2aAgentExecutorConfig,
    ExecuteInterceptor,
    FunctionTool,
    InMemoryRunner,
    LlmAgent,
    to_a2a,
)
from greenroom.a2a.part_metadata import AggregationMode
from greenroom.a2a.parts import to_a2a_part
from greenroom.gates.a2a.executor import ExecutorContext
from greenroom.gates.a2a.handler import NO_ANSWER
from greenroom.gates.a2a.task_events import TaskEvent
from greenroom.records.content import FunctionCall, FunctionResponse, Part
from greenroom.records.event import Event
from greenroom.records.model_exchange import LlmRequest
from greenroom.testing.scripted_model import ScriptedModel
from tests.agents.talk import call
from tests.gates.test_a2a import WAYS, message, sent, texts
from tests.server.agents import HeldModel, echo, scripted

State = a2a.TaskState


@asynccontextmanager
async def connected(app: Starlette, way: tuple[str, str] = WAYS[0], *, path: str = "") -> AsyncGenerator[Client]:
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost:8000") as http,
    ):
        card = await A2ACardResolver(http, f"http://localhost:8000{path}").get_agent_card()
        chosen = [one for one in card.supported_interfaces if (one.protocol_binding, one.protocol_version) == way]
        del card.supported_interfaces[:]
        card.supported_interfaces.extend(chosen)
        config = ClientConfig(httpx_client=http, streaming=True, supported_protocol_bindings=[way[0]])
        async with ClientFactory(config).create(card) as client:
            yield client


@pytest.mark.parametrize("way", WAYS)
async def test_a_message_is_a_run_and_a_context_a_session(way: tuple[str, str]) -> None:
    agent = scripted("echo", lambda request: " | ".join(content.text() for content in request.contents))
    async with connected(to_a2a(agent), way) as client:
        begun, *_, end = await sent(client, message("one two"))
        assert begun.history[0].parts[0].text == "one two"
        assert end.status.state == State.TASK_STATE_COMPLETED
        task = await client.get_task(a2a.GetTaskRequest(id=begun.id))
        assert texts(task) == ["one two"]
        assert task.metadata["adk_agent_executor_v2"] is True
        second, *_ = await sent(client, message("three", message_id="m2", context_id=begun.context_id))
        task = await client.get_task(a2a.GetTaskRequest(id=second.id))
        assert texts(task) == ["one two | one two | three"]


def till(paid: list[int]) -> LlmAgent:
    def pay(amount: int) -> str:
        paid.append(amount)
        return f"paid {amount}"

    def script(request: LlmRequest) -> Any:
        answer = request.contents[-1].parts[-1].function_response if request.contents[-1].parts else None
        return FunctionCall(name="pay", args={"amount": 7}) if answer is None else json.dumps(answer.response)

    return scripted("till", script, tools=[FunctionTool(pay, require_confirmation=True)])


async def test_an_approval_is_input_that_the_task_requires() -> None:
    paid: list[int] = []
    async with connected(to_a2a(till(paid))) as client:
        begun, *_, waiting = await sent(client, message("pay"))
        assert waiting.status.state == State.TASK_STATE_INPUT_REQUIRED
        [call] = waiting.status.message.parts
        of_task = {"task_id": begun.id, "context_id": begun.context_id}
        *_, again = await sent(client, message("yes", message_id="m2", **of_task))
        assert again.status.state == State.TASK_STATE_INPUT_REQUIRED
        assert [part.text for part in again.status.message.parts] == ["", NO_ANSWER]
        assert paid == []
        call_id = MessageToDict(call)["data"]["id"]
        answer = FunctionResponse(id=call_id, name="adk_request_confirmation", response={"confirmed": True})
        part = to_a2a_part(Part(function_response=answer))
        assert part is not None
        *_, end = await sent(client, message(part, message_id="m3", **of_task))
        assert end.status.state == State.TASK_STATE_COMPLETED
        assert paid == [7]


async def test_interceptors_see_the_message_each_update_and_the_end() -> None:
    seen: list[Any] = []

    async def before_agent(request: RequestContext) -> RequestContext:
        assert request.message is not None
        received = request.message
        seen.append((received.message_id, received.parts[0].text, received.metadata["tag"], request.metadata["of"]))
        return request

    async def after_event(context: ExecutorContext, update: TaskEvent, event: Event) -> Any:
        seen.append((context.app_name, event.partial))
        if isinstance(update, a2a.TaskArtifactUpdateEvent) and event.partial:
            return None
        return [update, a2a.TaskArtifactUpdateEvent(
            task_id=context.request.task_id or "", context_id=context.session_id, last_chunk=True,
            artifact=a2a.Artifact(artifact_id="more", parts=[a2a.Part(text="and more")]),
        )]  # fmt: skip

    def named(name: str) -> Any:
        async def after_agent(_: ExecutorContext, status: a2a.TaskStatusUpdateEvent) -> a2a.TaskStatusUpdateEvent:
            seen.append(name)
            status.metadata["by"] = name
            return status

        return after_agent

    config = A2aAgentExecutorConfig(
        execute_interceptors=[
            ExecuteInterceptor(before_agent=before_agent, after_agent=named("first")),
            ExecuteInterceptor(after_event=after_event, after_agent=named("second")),
        ]
    )

    async def make_runner() -> InMemoryRunner:
        return InMemoryRunner(echo(), app_name="echo")

    app = to_a2a(echo(), agent_executor_factory=lambda _: A2aAgentExecutor(runner=make_runner, config=config))

    async with connected(app) as client:
        request = message("hi", metadata={"tag": "a"})
        request.metadata["of"] = "b"
        begun, *updates, end = await sent(client, request)
        task = await client.get_task(a2a.GetTaskRequest(id=begun.id))

    assert seen[0] == ("m1", "hi", "a", "b")
    assert seen[-2:] == ["second", "first"]
    assert {entry[0] for entry in seen[1:-2]} == {"echo"}
    assert all(one.last_chunk for one in updates if isinstance(one, a2a.TaskArtifactUpdateEvent))
    assert texts(task) == ["You said hi", "and more"]
    assert end.metadata["by"] == "first"


async def test_converters_replace_the_built_in_ones() -> None:
    def incoming(part: a2a.Part) -> list[Part]:
        return [Part(text=part.text.upper()), Part(text="!")]

    def outgoing(part: Part) -> a2a.Part | None:
        return a2a.Part(text=f"<{part.text}>")

    def updates(event: Event, kept: dict[str, str], task_id: str, context_id: str, convert: Any) -> list[TaskEvent]:
        if event.partial:
            return []
        kept["count"] = str(len(kept))
        artifact = a2a.Artifact(
            artifact_id=event.id, parts=[convert(Part(text=event.content.text() if event.content else ""))]
        )
        return [a2a.TaskArtifactUpdateEvent(task_id=task_id, context_id=context_id, artifact=artifact)]

    config = A2aAgentExecutorConfig(
        a2a_part_converter=incoming, gen_ai_part_converter=outgoing, adk_event_converter=updates
    )
    agent = scripted("echo", lambda request: request.contents[-1].text())
    app = to_a2a(agent, agent_executor_factory=lambda runner: A2aAgentExecutor(runner=runner, config=config))
    async with connected(app) as client:
        begun, *_ = await sent(client, message("hi"))
        assert texts(await client.get_task(a2a.GetTaskRequest(id=begun.id))) == ["<HI!>"]


@pytest.mark.parametrize(
    ("mode", "kinds"),
    [
        (AggregationMode.AS_IS, ["data", "data", "text"]),
        (AggregationMode.EXTERNAL_HANDOFF, ["text", "text"]),
    ],
)
async def test_parts_are_sent_as_the_mode_says(mode: AggregationMode, kinds: list[str]) -> None:
    def add(a: int, b: int) -> int:
        """Adds."""
        return a + b

    agent = LlmAgent(name="echo", model=ScriptedModel([call("add", a=1, b=2), "three"]), tools=[add])
    config = A2aAgentExecutorConfig(aggregation_mode=mode)
    app = to_a2a(agent, agent_executor_factory=lambda runner: A2aAgentExecutor(runner=runner, config=config))
    async with connected(app) as client:
        begun, *_ = await sent(client, message("add"))
        task = await client.get_task(a2a.GetTaskRequest(id=begun.id))
    parts = [part for artifact in task.artifacts for part in artifact.parts]
    assert [part.WhichOneof("content") for part in parts] == kinds


async def test_a_failure_is_the_tasks_end() -> None:
    def fails(_: LlmRequest) -> str:
        raise RuntimeError("the model is broken")

    async with connected(to_a2a(scripted("echo", fails))) as client:
        *_, end = await sent(client, message("hi"))
    assert end.status.state == State.TASK_STATE_FAILED
    assert "the model is broken" in end.status.message.parts[0].text


async def test_cancelling_a_task_ends_its_run() -> None:
    model = HeldModel("one two three")
    async with connected(to_a2a(LlmAgent(name="echo", model=model))) as client:
        request = message("go")
        request.configuration.return_immediately = True
        stream = asyncio.create_task(sent(client, request))
        async with asyncio.timeout(10):
            while not (model.calls and (tasks := (await client.list_tasks(a2a.ListTasksRequest())).tasks)):
                await asyncio.sleep(0.01)
        [task] = tasks
        cancelled = await client.cancel_task(a2a.CancelTaskRequest(id=task.id))
        assert cancelled.status.state == State.TASK_STATE_CANCELED
        async with asyncio.timeout(10):
            await stream
            while model.closed == 0:
                await asyncio.sleep(0.01)


async def test_the_card_the_path_and_the_lifespan_are_as_given(tmp_path: Path) -> None:
    entered: list[str] = []

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        entered.append("begun")
        yield
        entered.append("ended")

    app = to_a2a(echo(), rpc_path="/agents/echo/", lifespan=lifespan, port=8000)
    async with connected(app, path="/agents/echo") as client:
        *_, end = await sent(client, message("hi"))
        assert end.status.state == State.TASK_STATE_COMPLETED

    assert entered == ["begun", "ended"]

    card = {"name": "other", "description": "Another.", "version": "1", "url": "http://localhost:8000", "skills": [],
        "capabilities": {}, "defaultInputModes": [], "defaultOutputModes": [], "protocolVersion": "0.3.0"}  # fmt: skip
    (tmp_path / "card.json").write_text(json.dumps(card))
    app = to_a2a(echo(), agent_card=tmp_path / "card.json", push_config_store=InMemoryPushNotificationConfigStore())

    async with app.router.lifespan_context(app):
        http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost:8000")
        async with http:
            assert (await http.get("/.well-known/agent-card.json")).json()["name"] == "other"
