"""AG-UI, as its own client for JavaScript sees it: it verifies the order of events, and builds messages and state."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from greenroom import FunctionTool, LlmAgent, ParallelAgent
from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata
from greenroom.records.content import Content, FunctionCall, Part
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.tools.functions.function_tool import ToolContext
from tests.processes import END_WITH_PARENT
from tests.requirements import skip_or_fail
from tests.server.agents import Gate, HeldModel, scripted
from tests.server.conftest import Serve
from tests.server.serving import Serving, until

_CALL = {"id": "c-1", "type": "function", "function": {"name": "wait_at_gate", "arguments": "{}"}}
_FOLDER = Path(__file__).parents[1] / "node"
_NODE = shutil.which("node")
Run = Callable[..., Awaitable[dict[str, Any]]]


@pytest.fixture(autouse=True, scope="module")
def client_of_ag_ui() -> None:
    if _NODE is None or not (_FOLDER / "node_modules/@ag-ui/client").exists():
        skip_or_fail("needs node and AG-UI's client: make node-servers")


def user(text: str) -> dict[str, Any]:
    return {"id": text, "role": "user", "content": text}


async def run(server: Serving, *messages: dict[str, Any], **asked: Any) -> dict[str, Any]:
    """Result of a run in the client: `messages`, `state`, `events` and `error`."""
    body = {"threadId": "t", "messages": messages, "state": {}, **asked}
    assert _NODE is not None
    command = (*END_WITH_PARENT, _NODE, str(_FOLDER / "ag_ui_client.mjs"), f"{server.url}/ag-ui/echo", json.dumps(body))
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    return json.loads(output)


def types(made: dict[str, Any]) -> list[str]:
    return [event["type"] for event in made["events"]]


async def test_text_thoughts_and_usage(serve: Serve) -> None:
    usage = GenerateContentResponseUsageMetadata(prompt_token_count=5, candidates_token_count=3, total_token_count=8)
    parts = [Part(text="Hm, hm", thought=True), Part(text="one two")]
    reply = LlmResponse(content=Content(role="model", parts=parts), usage_metadata=usage)
    made = await run(await serve(scripted("echo", [reply]), gates=("ag_ui",)), user("Count"))
    assert made["error"] is None
    assert [(message["role"], message["content"]) for message in made["messages"]] == [
        ("user", "Count"),
        ("reasoning", "Hm, hm"),
        ("assistant", "one two"),
    ]
    assert types(made)[:3] == ["RUN_STARTED", "STATE_SNAPSHOT", "STEP_STARTED"]
    assert made["events"][-1]["outcome"] == {"type": "success"}
    assert made["events"][-1]["usage"][0]["totalTokens"] == 8


async def test_a_tool_of_the_agent_and_state_of_both_sides(serve: Serve) -> None:
    async def move(city: str, tool_context: ToolContext) -> dict[str, str]:
        tool_context.state["city"] = city
        tool_context.state["none"] = None
        del tool_context.state["old"]
        return {"from": tool_context.state["home"]}

    agent = scripted("echo", [FunctionCall(name="move", args={"city": "Bergen"}), "Moved"], tools=[FunctionTool(move)])
    server = await serve(agent, gates=("ag_ui",))
    made = await run(server, user("Move"), state={"home": "Oslo", "old": 1}, runId="r")
    assert made["error"] is None
    assert made["state"] == {"home": "Oslo", "city": "Bergen", "none": None}
    _, called, result, text = made["messages"]
    assert called["toolCalls"][0]["function"] == {"name": "move", "arguments": '{"city":"Bergen"}'}
    assert (result["role"], result["content"], text["content"]) == ("tool", '{"from":"Oslo"}', "Moved")
    again = await run(server, user("Move"), state={"home": "Oslo", "old": 1}, runId="r")
    assert (again["error"], again["state"]) == (None, made["state"])


def locates(request: LlmRequest) -> Any:
    responses = [part.function_response for part in request.contents[-1].parts or () if part.function_response]
    if not responses:
        return FunctionCall(name="locate", args={})
    return f"In {(responses[0].response or {})['city']}"


async def test_a_function_of_the_front_end(serve: Serve) -> None:
    server = await serve(scripted("echo", locates), gates=("ag_ui",))
    tools = [{"name": "locate", "description": "Where?", "parameters": {"type": "object", "properties": {}}}]
    first = await run(server, user("Where am I?"), tools=tools)
    call = first["messages"][-1]["toolCalls"][0]
    assert first["events"][-1]["outcome"] == {"type": "success", "pendingToolCallIds": [call["id"]]}
    answer = {"id": "a", "role": "tool", "toolCallId": call["id"], "content": '{"city": "Oslo"}'}
    second = await run(server, *first["messages"], answer, tools=tools, runId="second")
    assert second["error"] is None
    assert second["messages"][-1]["content"] == "In Oslo"
    again = await run(server, *first["messages"], answer, tools=tools, runId="second")
    assert (again["messages"], again["error"]) == (second["messages"], None)
    session = (await server.client.get("/apps/echo/users/anonymous/sessions/t")).json()
    assert len(session["events"]) == 4


@pytest.mark.parametrize(
    ("entry", "result"), [({"status": "resolved", "payload": True}, [3]), ({"status": "cancelled"}, [])]
)
async def test_an_interrupt_is_resumed(serve: Serve, entry: dict[str, Any], result: list[int]) -> None:
    paid: list[int] = []

    async def pay(amount: int) -> str:
        paid.append(amount)
        return "paid"

    script = [FunctionCall(name="pay", args={"amount": 3}), "Done"]
    server = await serve(
        scripted("echo", script, tools=[FunctionTool(pay, require_confirmation=True)]), gates=("ag_ui",)
    )
    first = await run(server, user("Pay"))
    [interrupt] = first["events"][-1]["outcome"]["interrupts"]
    assert interrupt["reason"] == "adk_request_confirmation"
    second = await run(server, *first["messages"], resume=[{"interruptId": interrupt["id"], **entry}])
    assert (second["error"], second["messages"][-1]["content"], paid) == (None, "Done", result)


async def test_parallel_agents_are_steps(serve: Serve) -> None:
    agents = [scripted(name, [f"{name} says"]) for name in ("a", "b", "c")]
    made = await run(await serve(ParallelAgent(name="echo", sub_agents=agents), gates=("ag_ui",)), user("Go"))
    assert made["error"] is None
    assert sorted(message["content"] for message in made["messages"][1:]) == ["a says", "b says", "c says"]


async def test_the_same_request_attaches_to_its_run(serve: Serve) -> None:
    held = HeldModel("one two")
    server = await serve(LlmAgent(name="echo", model=held), gates=("ag_ui",))
    first = asyncio.create_task(run(server, user("Count"), runId="r"))
    while not held.calls:
        await asyncio.sleep(0.01)
    second = asyncio.create_task(run(server, user("Count"), runId="r"))
    await asyncio.sleep(0.1)
    held.let_go()
    texts = [(await one)["messages"][-1]["content"] for one in (first, second)]
    assert texts == ["one two ", "one two "]
    assert held.calls == 1


async def test_an_error_ends_the_run(serve: Serve) -> None:
    made = await run(await serve(scripted("echo", [RuntimeError("no")]), gates=("ag_ui",)), user("x"))
    assert types(made)[-1] == "RUN_ERROR"


@pytest.mark.parametrize(
    "wrong",
    [
        {"messages": []},
        {"messages": [{"id": "1", "role": "user", "content": [{"type": "image"}]}]},
        {"messages": [{"id": "1", "role": "tool", "toolCallId": "c", "content": "x"}]},
        {"resume": [{"interruptId": "i", "status": "resolved"}]},
        {"messages": [{"id": "1", "role": "wizard", "content": "x"}]},
        {"threadId": 5},
    ],
)
async def test_wrong_input_is_refused(serve: Serve, wrong: dict[str, Any]) -> None:
    server = await serve(gates=("ag_ui",))
    body = {"threadId": "t", "runId": "r", "messages": [user("x")], **wrong}
    assert (await server.client.post("/ag-ui/echo", json=body)).status_code == 422
    assert (await server.client.get("/runs")).json()["runs"] == []


async def test_a_message_reaches_the_active_run(serve: Serve) -> None:
    gate = Gate()

    def answer(request: LlmRequest) -> str | FunctionCall:
        is_first = not any(content.role == "model" for content in request.contents)
        return FunctionCall(name="wait_at_gate", args={}) if is_first else f"told {request.contents[-1].text()}"

    server = await serve(scripted("echo", answer, tools=[gate.wait_at_gate]), gates=("ag_ui",))
    first = asyncio.create_task(run(server, user("go")))
    await until(lambda: gate.entered)
    called = {"id": "c", "role": "assistant", "toolCalls": [_CALL]}
    steer = {"multitaskStrategy": "steer"}
    second = asyncio.create_task(run(server, user("go"), called, user("be brief"), forwardedProps=steer))

    async def is_queued() -> bool:
        return bool((await server.client.get("/runs?status=queued")).json()["runs"])

    await until(is_queued)
    gate.open()
    for made in (await first, await second):
        assert made["error"] is None
        assert made["messages"][-1]["content"] == "told be brief"
        assert types(made)[-1] == "RUN_FINISHED"
