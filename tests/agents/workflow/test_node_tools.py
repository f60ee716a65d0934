"""Workflows and function nodes as tools (1.16.2, 1.16.3)."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.workflow.errors import DynamicNodeFailError
from greenroom.agents.workflow.function_node import FunctionNode
from greenroom.agents.workflow.workflow import Workflow
from greenroom.errors import AgentConfigError
from greenroom.invocation.user_context import Context
from greenroom.records.content import FunctionCall
from greenroom.records.human_requests import RequestInput
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.functions.function_tool import FunctionTool
from tests.agents.workflow.walks import Walk, lines_of


class Query(BaseModel):
    q: str


def upper(node_input: Query) -> str:
    return node_input.q.upper()


def lower(node_input: str) -> str:
    return node_input.lower()


def ask(node_input: Any) -> RequestInput:
    return RequestInput(interrupt_id="q1")


def _agent(tool: Any, name: str = "wf", **args: Any) -> LlmAgent:
    call = FunctionCall(id="c1", name=name, args=args or {"q": "Hi"})
    return LlmAgent(name="ag", model=ScriptedModel([call, "after"]), tools=[tool])


async def test_a_workflow_is_a_tool_that_runs_below_its_call() -> None:
    """1.1.2, 1.16.2."""
    workflow = Workflow(name="wf", description="Does it.", edges=[("START", upper, lower)])
    model = ScriptedModel([FunctionCall(id="c1", name="wf", args={"q": "Hi"}), "after"])
    events = await Walk(LlmAgent(name="ag", model=model, tools=[workflow])).go()
    declared = (model.requests[0].config.tools or [])[0].function_declarations or []
    assert [(one.name, one.description) for one in declared] == [("wf", "Does it.")]
    assert lines_of(events) == [
        "ag wf()",
        "wf@c1/upper@1 [wf@c1] = 'HI'",
        "wf@c1/lower@1 [wf@c1] = 'hi'",
        "ag wf()",
        "ag 'after'",
    ]
    assert events[2].model_dump(by_alias=True)["nodeInfo"]["outputFor"] == ["ag@1/wf@c1/lower@1", "ag@1/wf@c1"]
    assert events[3].get_function_responses()[0].response == {"result": "hi"}


async def test_a_workflow_that_waits_keeps_its_call_open() -> None:
    workflow = Workflow(name="wf", edges=[("START", ask, lower)], input_schema=Query)
    walk = Walk(_agent(workflow))
    assert lines_of(await walk.go()) == ["ag wf()", "wf@c1/ask@1 [wf@c1] adk_request_input()"]
    assert lines_of(await walk.answer("q1", "YES")) == ["wf@c1/lower@1 [wf@c1] = 'yes'", "ag wf()", "ag 'after'"]


async def test_a_function_node_is_a_tool_of_its_parameters() -> None:
    def add(a: int, b: int = 2) -> int:
        """Adds."""
        return a + b

    events = await Walk(_agent(FunctionNode(func=add), "add", a=1)).go()
    assert lines_of(events)[1:3] == ["add@c1 [add@c1] = 3", "ag add()"]


async def test_a_failing_workflow_is_a_failing_tool() -> None:
    def fails(node_input: Query) -> None:
        raise KeyError("boom")

    agent = _agent(Workflow(name="wf", edges=[("START", fails)]))
    agent.on_tool_error_callback = lambda **_: {"error": "softened"}
    events = await Walk(agent).go()
    assert lines_of(events) == ["ag wf()", "wf@c1/fails@1 [wf@c1] ! KeyError", "ag wf()", "ag 'after'"]


def test_what_can_not_be_a_tool_is_refused() -> None:
    with pytest.raises(ValueError, match="AgentTool"):
        LlmAgent(name="a", model="local/x", tools=[LlmAgent(name="b", model="local/x")])
    with pytest.raises(AgentConfigError, match="input_schema"):
        LlmAgent(name="a", model="local/x", tools=[Workflow(name="wf", edges=[("START", ask)])])


@pytest.mark.parametrize("is_in_workflow", [False, True])
async def test_a_tool_runs_a_node(is_in_workflow: bool) -> None:
    """2.2.9."""

    async def tool(x: int, tool_context: Context) -> str:
        """Runs a node."""
        return await tool_context.run_node(lower, "ABC")

    agent: Any = _agent(tool, "tool", x=1)
    walk = Walk(Workflow(name="wf", edges=[("START", agent)]) if is_in_workflow else agent)
    events = await walk.go()
    assert walk.error is None
    path = "wf@1/ag@1" if is_in_workflow else "ag@1"
    assert [event.node_path for event in events if event.output] == [f"{path}/lower@c1-1"]
    assert events[-1].content is not None
    assert events[-1].content.text() == "after"


async def test_a_tool_whose_child_waits_is_called_again() -> None:
    """2.2.9, 1.9.4."""

    async def tool(x: int, tool_context: Context) -> list[Any]:
        """Runs a node."""
        return [await tool_context.run_node(lower, "ABC"), await tool_context.run_node(ask)]

    walk = Walk(_agent(FunctionTool(tool, on_interrupt="retry"), "tool", x=1))
    assert len(await walk.go()) == 3
    events = await walk.answer("q1", "YES")
    assert events[0].get_function_responses()[0].response == {"result": ["abc", "YES"]}


async def test_a_tool_can_handle_the_failure_of_a_node() -> None:
    """2.2.9, 1.9.5."""

    def fails() -> None:
        raise KeyError("boom")

    async def tool(x: int, tool_context: Context) -> str:
        """Runs a node."""
        try:
            await tool_context.run_node(fails)
        except DynamicNodeFailError as error:
            return str(error.error)
        return ""

    events = await Walk(_agent(tool, "tool", x=1)).go()
    assert [event.error_code for event in events] == [None, "KeyError", None, None]
