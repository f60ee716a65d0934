"""The spans of workflows and nodes (row 1.16.7 of ADK's sheet)."""

from __future__ import annotations

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.node import RetryConfig
from greenroom.agents.workflow.nodes import node
from greenroom.agents.workflow.workflow import Workflow
from greenroom.records.content import FunctionCall
from greenroom.records.human_requests import RequestInput
from greenroom.telemetry.span import current_traceparent
from greenroom.testing.scripted_model import ScriptedModel
from tests.server.agents import scripted
from tests.server.conftest import Serve, Store
from tests.server.test_traces import answers_calls, named, spans_of, tree


@pytest.fixture
def store() -> Store:
    return "memory"


async def test_each_node_is_a_span_under_its_workflow(serve: Serve) -> None:
    seen: list[str | None] = []

    def read_order(node_input: str) -> str:
        seen.append(current_traceparent())
        return node_input

    def pack(node_input: str) -> str:
        return node_input

    inner = Workflow(name="packing", edges=[("START", pack)])
    agent = LlmAgent(name="greeter", model=ScriptedModel("Packed."))
    server = await serve(Workflow(name="desk", edges=[("START", read_order, inner, agent)]))
    await server.new_session("desk")
    assert (await server.run("desk", "tea")).status_code == 200
    spans = await spans_of(server, "desk")
    assert tree(spans) == [
        ("invocation", None),
        ("invoke_workflow desk", "invocation"),
        ("invoke_node read_order", "invoke_workflow desk"),
        ("invoke_workflow packing", "invoke_workflow desk"),
        ("invoke_node pack", "invoke_workflow packing"),
        ("invoke_agent greeter", "invoke_workflow desk"),
        ("call_llm", "invoke_agent greeter"),
    ]
    assert [span["attributes"] for span in spans[1:3]] == [
        {
            "gen_ai.operation.name": "invoke_workflow",
            "gen_ai.workflow.name": "desk",
            "gen_ai.conversation.id": "s-1",
        },
        {"gen_ai.operation.name": "invoke_node", "gen_ai.conversation.id": "s-1"},
    ]
    assert seen == [f"00-{spans[2]['trace_id']}-{spans[2]['span_id']}-01"]


async def test_each_attempt_at_a_node_is_a_span(serve: Serve) -> None:
    attempts: list[int] = []

    @node(retry_config=RetryConfig(max_attempts=2, initial_delay=0))
    def flaky() -> str:
        attempts.append(1)
        if len(attempts) == 1:
            raise KeyError("secret words")
        return "ok"

    def ask() -> RequestInput:
        return RequestInput(message="How many?")

    server = await serve(Workflow(name="desk", edges=[("START", flaky, ask)]))
    await server.new_session("desk")
    assert (await server.run("desk")).status_code == 200
    spans = await spans_of(server, "desk")
    assert [(span["name"], span["attributes"].get("error.type")) for span in spans[1:]] == [
        ("invoke_workflow desk", None),
        ("invoke_node flaky", "KeyError"),
        ("invoke_node flaky", None),
        ("invoke_node ask", None),
    ]


async def test_what_fails_marks_its_node_and_its_workflows(serve: Serve) -> None:
    def fail() -> str:
        raise KeyError("secret words")

    inner = Workflow(name="inner", edges=[("START", fail)])
    server = await serve(Workflow(name="outer", edges=[("START", inner)]))
    await server.new_session("outer")
    assert (await server.run("outer")).status_code == 500
    errors = {span["name"]: span["attributes"].get("error.type") for span in await spans_of(server, "outer")}
    assert errors == dict.fromkeys(
        ("invocation", "invoke_workflow outer", "invoke_workflow inner", "invoke_node fail"), "KeyError"
    )


async def test_a_workflow_as_a_tool_is_below_the_call(serve: Serve) -> None:
    def book(node_input: str) -> str:
        return node_input

    booking = Workflow(name="booking", description="Books", input_schema=str, edges=[("START", book)])
    call = FunctionCall(id="c1", name="booking", args={"request": "a table"})
    server = await serve(scripted("host", answers_calls(call), tools=[booking]))
    await server.new_session("host")
    assert (await server.run("host")).status_code == 200
    spans = await spans_of(server, "host")
    assert tree(spans)[3:6] == [
        ("execute_tool booking", "invoke_agent host"),
        ("invoke_workflow booking", "execute_tool booking"),
        ("invoke_node book", "invoke_workflow booking"),
    ]
    assert len(named(spans, "call_llm")) == 2
