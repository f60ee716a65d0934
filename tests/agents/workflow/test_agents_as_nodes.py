"""Agents as nodes (1.3.2, 1.3.3, 1.8, 1.14.3)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from pydantic import BaseModel

from greenroom.agents.agent import BaseAgent
from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.node import RetryConfig
from greenroom.agents.workflow.nodes import JoinNode
from greenroom.agents.workflow.workflow import Workflow
from greenroom.errors import ModelError
from greenroom.invocation.context import InvocationContext
from greenroom.records.content import FunctionCall, ModelContent
from greenroom.records.event import Event, NodeInfo
from greenroom.records.run import RunConfig, StreamingMode
from greenroom.testing.scripted_model import ScriptedModel
from tests.agents.talk import shown
from tests.agents.workflow.walks import Walk, lines_of, plain


def echo(node_input: Any) -> Any:
    return node_input


def brief(node_input: Any) -> str:
    return "the brief"


class Count(BaseModel):
    q: int


async def test_an_agent_sees_its_input_alone_and_its_text_is_the_output() -> None:
    """1.8.1, 1.14.3."""
    model = ScriptedModel(["first", "second"])
    agent = LlmAgent(name="ag", model=model, instruction="Do it.", output_key="kept")
    walk = Walk(Workflow(name="wf", edges=[("START", brief, agent, echo)]))
    events = await walk.go("hello")
    assert plain(events[1]) == {
        "author": "ag",
        "content": {"role": "model", "parts": [{"text": "first"}]},
        "actions": {"stateDelta": {"kept": "first"}},
        "nodeInfo": {"path": "wf@1/ag@1", "outputFor": ["wf@1/ag@1"], "messageAsOutput": True},
    }
    assert lines_of(events)[-1] == "echo@1 = 'first'"
    await walk.go("again")
    assert [shown(request) for request in model.requests] == [["user: the brief"]] * 2
    assert model.requests[0].config.system_instruction == "Do it."


async def test_an_agent_that_is_to_include_contents_sees_the_conversation_too() -> None:
    """1.3.2."""
    model = ScriptedModel(["first", "second"])
    agent = LlmAgent(name="ag", model=model, include_contents="default")
    walk = Walk(Workflow(name="wf", edges=[("START", agent, brief)]))
    await walk.go("hello")
    await walk.go("again")
    assert [shown(request) for request in model.requests] == [
        ["user: hello"],
        ["user: hello", "model: first", "user: again"],
    ]
    unlike, quiet = ScriptedModel(["first", "second"]), LlmAgent(name="ag", include_contents="none")
    walk = Walk(Workflow(name="wf", edges=[("START", brief, quiet.clone({"model": unlike}))]))
    await walk.go("hello")
    await walk.go("again")
    assert [shown(request) for request in unlike.requests] == [["user: the brief"]] * 2


async def test_an_agent_sees_its_own_tool_calls() -> None:
    """1.8.1."""

    def look(key: str) -> str:
        """Looks up."""
        return "found"

    model = ScriptedModel([FunctionCall(id="c-1", name="look", args={"key": "k"}), "done"])
    agent = LlmAgent(name="ag", model=model, tools=[look])
    events = await Walk(Workflow(name="wf", edges=[("START", agent, echo)])).go("hello")
    assert lines_of(events) == ["ag@1 look()", "ag@1 look()", "ag@1 'done'", "echo@1 = 'done'"]
    assert shown(model.requests[1]) == ["user: hello", "model: look(key='k')", "user: look -> {'result': 'found'}"]


async def test_with_an_output_schema_the_output_is_data() -> None:
    """1.14.3, 1.8.1."""
    agent = LlmAgent(name="ag", model=ScriptedModel(['{"q": 3}']), output_schema=Count)
    events = await Walk(Workflow(name="wf", edges=[("START", agent, echo)])).go("hello")
    assert (events[0].output, events[0].node_info) == (
        {"q": 3},
        NodeInfo(path="wf@1/ag@1", output_for=["wf@1/ag@1"]),
    )
    assert lines_of(events)[-1] == "echo@1 = {'q': 3}"


async def test_chunks_carry_the_same_node_info() -> None:
    """1.14.3."""
    agent = LlmAgent(name="ag", model=ScriptedModel(["one two"]))
    walk = Walk(Workflow(name="wf", edges=[("START", agent)]))
    events = await walk.go("hello", run_config=RunConfig(streaming_mode=StreamingMode.SSE))
    assert any(event.partial for event in events)
    assert len({str(event.node_info) for event in events}) == 1


async def test_agents_side_by_side_do_not_see_each_other() -> None:
    """1.6.7."""
    models = [ScriptedModel([name]) for name in ("a", "b")]
    agents = tuple(LlmAgent(name=f"ag{i}", model=model) for i, model in enumerate(models))
    events = await Walk(Workflow(name="wf", edges=[("START", agents, JoinNode(name="j"))])).go("hello")
    assert {event.branch for event in events[:2]} == {"ag0@1", "ag1@1"}
    assert events[-1].output == {"ag0": "a", "ag1": "b"}


async def test_a_chat_agent_sees_the_conversation_and_its_successors_do_not_run() -> None:
    """1.8.3, 1.1.4."""
    model = ScriptedModel(["hi", "hi again"])
    walk = Walk(Workflow(name="wf", edges=[("START", LlmAgent(name="ag", model=model, mode="chat"), echo)]))
    assert lines_of(await walk.go("one")) == ["ag@1 'hi'"]
    assert lines_of(await walk.go("two")) == ["ag@1 'hi again'"]
    assert shown(model.requests[1]) == ["user: one", "model: hi", "user: two"]


class Custom(BaseAgent):
    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncIterator[Event]:
        yield Event(author=self.name, content=ModelContent("custom"))


async def test_other_agents_have_no_output() -> None:
    """1.3.3."""

    def shows(node_input: Any) -> str:
        return repr(node_input)

    events = await Walk(Workflow(name="wf", edges=[("START", Custom(name="custom"), shows)])).go()
    assert lines_of(events) == ["custom@1 'custom'", "shows@1 = 'None'"]


async def test_an_agent_that_fails_is_retried() -> None:
    """1.11.1, 1.3.2."""
    attempts = 0

    def reply(request: Any) -> str:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise ModelError("overloaded", model="m")
        return "done"

    agent = LlmAgent(name="ag", model=ScriptedModel(reply), retry_config=RetryConfig(initial_delay=0.001))
    events = await Walk(Workflow(name="wf", edges=[("START", agent, echo)])).go()
    assert lines_of(events) == ["ag@1 ! ModelError", "ag@1 'done'", "echo@1 = 'done'"]
