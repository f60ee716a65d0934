"""Modes of LLM agents: as nodes, as delegates of another agent, and as the root (1.8)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import BaseModel

from greenroom.agents.agent import BaseAgent
from greenroom.agents.agent_tool import AgentTool
from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.transfer import transfer_targets
from greenroom.agents.workflow.workflow import Workflow
from greenroom.agents.workflows import SequentialAgent
from greenroom.errors import ModelError
from greenroom.invocation.context import InvocationContext
from greenroom.records.content import Content, FunctionResponse, ModelContent, Part
from greenroom.records.event import Event, NodeInfo
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.functions.function_tool import FunctionTool
from tests.agents.talk import call, shown
from tests.agents.workflow.walks import Walk, lines_of, plain


class Table(BaseModel):
    guests: int


class Order(BaseModel):
    dish: str


def done(call_id: str = "f-1", **result: Any):
    return call("finish_task", call_id, **(result or {"result": "booked"}))


def desk(model: ScriptedModel, **options: Any) -> LlmAgent:
    booker = LlmAgent(name="booker", description="Books tables.", mode="task", **options)
    return LlmAgent(name="desk", model=model, sub_agents=[booker])


def _texts(events: list[Event]) -> list[str | None]:
    return [event.content.text() for event in events if event.content is not None and event.content.text()]


async def test_a_task_talks_with_the_user_in_one_run_until_it_has_finished() -> None:
    """1.8.2, 1.8.4 as a delegate."""
    model = ScriptedModel([call("booker", "c-1", request="a table"), "How many?", done(result="4"), "Done.", "Bye."])
    walk = Walk(desk(model))
    events = await walk.go("Book")
    assert [event.isolation_scope for event in events] == [None, "c-1"]
    assert plain(events[1]) == {
        "author": "booker",
        "content": {"role": "model", "parts": [{"text": "How many?"}]},
        "branch": "booker@c-1",
        "isolationScope": "c-1",
        "nodeInfo": {"path": "desk@1/booker@c-1"},
    }
    run_id = events[0].invocation_id
    assert not events[1].is_internal()
    events = await walk.go("four")
    assert {event.invocation_id for event in events} == {run_id}
    assert [event.author for event in events] == ["booker", "booker", "user", "desk"]
    assert (events[1].output, events[1].node_info) == (
        {"result": "4"},
        NodeInfo(path="desk@1/booker@c-1", output_for=["desk@1/booker@c-1"]),
    )
    assert events[1].get_function_responses()[0].response == {"result": "Task completed."}
    assert events[2].get_function_responses()[0] == FunctionResponse(id="c-1", name="booker", response={"result": "4"})
    assert _texts(await walk.go("thanks")) == ["Bye."]
    assert walk.invocation_id != run_id
    assert shown(model.requests[2]) == ['user: {"request": "a table"}', "model: How many?", "user: four"]
    assert shown(model.requests[3]) == [
        "user: Book",
        "model: booker(request='a table')",
        "user: booker -> {'result': '4'}",
    ]
    log = await walk.log()
    assert [event.isolation_scope for event in log if event.author == "user" and event.node_info is None] == [
        None,
        "c-1",
        None,
    ]


async def test_the_arguments_of_finish_task_are_checked_and_kept() -> None:
    """1.8.2, 1.8.4: schemas of a task's input and output, and its output key."""
    model = ScriptedModel([
        call("booker", "c-1", dish=3, more=[]),
        call("booker", "c-2", dish="soup"),
        done("f-1", guests="many"),
        done("f-2", guests=4),
        "Done.",
    ])  # fmt: skip
    walk = Walk(desk(model, input_schema=Order, output_schema=Table, output_key="table"))
    events = await walk.go("Book")
    assert [event.author for event in events] == ["desk", "user", "desk", *["booker"] * 4, "user", "desk"]
    assert "was not asked" in str(events[1].get_function_responses()[0].response)
    assert "error" in (events[4].get_function_responses()[0].response or {})
    assert (events[6].output, events[6].actions.state_delta) == ({"guests": 4}, {"table": {"guests": 4}})
    assert events[7].get_function_responses()[0].response == {"guests": 4}
    declared = {one.name: one.json_schema() for one in model.requests[2].config.tools[0].function_declarations}  # type: ignore
    assert list(declared["finish_task"]["properties"]) == ["guests"]
    assert model.requests[2].config.response_schema is None
    assert shown(model.requests[2]) == ['user: {"dish": "soup"}']


async def test_a_task_can_not_be_finished_beside_a_delegation() -> None:
    """1.8.4."""
    inner = LlmAgent(name="inner", mode="single_turn")
    model = ScriptedModel({
        "booker": [[call("inner", "i-1", request="x"), done("f-1")], done("f-2")],
        "": ["seen"],
    })  # fmt: skip
    task = LlmAgent(name="booker", model=model, mode="task", sub_agents=[inner])
    events = await Walk(task).go("Book")
    responses = {one.id: one.response for event in events for one in event.get_function_responses()}
    assert responses["i-1"] == {"result": "seen"}
    assert "another agent" in (responses["f-1"] or {})["error"]
    assert events[-1].output == {"result": "booked"}


async def test_the_root_can_be_a_task() -> None:
    """1.8.4."""
    walk = Walk(LlmAgent(name="booker", model=ScriptedModel(["How many?", done(), "Again?"]), mode="task"))
    first = await walk.go("Book")
    assert (first[0].isolation_scope, first[0].node_info) == ("booker@1", NodeInfo(path="booker@1"))
    second = await walk.go("four")
    assert second[-1].node_info == NodeInfo(path="booker@1", output_for=["booker@1"])
    assert first[0].invocation_id == second[-1].invocation_id
    third = await walk.go("once more")
    assert third[0].invocation_id != first[0].invocation_id


def test_a_single_turn_agent_can_not_be_the_root() -> None:
    """1.8.4."""
    with pytest.raises(ValueError, match="single_turn"):
        Walk(LlmAgent(name="a", model="local/x", mode="single_turn"))


async def test_a_waiting_task_stops_the_other_nodes_of_its_workflow() -> None:
    """1.8.2 as a node, 1.6.10."""

    async def slow(node_input: Any) -> str:
        return "slow"

    def after(node_input: Any) -> Any:
        return node_input

    model = ScriptedModel(["Which size?", done(result="large")])
    task = LlmAgent(name="collect", model=model, mode="task")
    walk = Walk(Workflow(name="wf", edges=[("START", task, after)], max_concurrency=1))
    assert lines_of(await walk.go("a pizza")) == ["collect@1 'Which size?'"]
    events = await walk.go("large")
    assert lines_of(events) == [
        "collect@1 finish_task()",
        "collect@1 = {'result': 'large'} finish_task()",
        "after@1 = {'result': 'large'}",
    ]
    assert {event.isolation_scope for event in events[:2]} == {"wf@1/collect@1"}
    assert shown(model.requests[1]) == ["user: a pizza", "model: Which size?", "user: large"]

    model = ScriptedModel(["Which size?", done(result="large")])
    task = LlmAgent(name="collect", model=model, mode="task")
    edges = [("START", (task, slow)), (slow, after)]
    walk = Walk(Workflow(name="wf", edges=edges, max_concurrency=1))
    assert lines_of(await walk.go("a pizza")) == ["collect@1 [collect@1] 'Which size?'"]
    lines = lines_of(await walk.go("large"))
    assert [line for line in lines if line.startswith(("slow", "after"))] == [
        "slow@1 [slow@1] = 'slow'",
        "after@1 [slow@1] = 'slow'",
    ]


async def test_a_confirmation_inside_a_task_is_answered_there() -> None:
    """1.8.2, 1.12.10."""

    def pay(amount: int) -> str:
        """Pays."""
        return "paid"

    model = ScriptedModel([call("booker", "c-1", request="x"), call("pay", "p-1", amount=3), done(), "Done."])
    walk = Walk(desk(model, tools=[FunctionTool(pay, require_confirmation=True)]))
    events = await walk.go("Book")
    request = next(one for event in events for one in event.get_function_calls() if event.long_running_tool_ids)
    part = Part(function_response=FunctionResponse(id=request.id, name=request.name, response={"confirmed": True}))
    events = await walk.go(Content(role="user", parts=[part]))
    assert [event.author for event in events] == ["booker", "booker", "booker", "user", "desk"]


async def test_the_error_of_a_task_is_its_result() -> None:
    """1.8.2."""

    def fails(request: Any) -> str:
        raise ModelError("overloaded", model="m")

    model = ScriptedModel({"desk": [call("booker", "c-1", request="x"), "Sorry."], "booker": [fails]})
    events = await Walk(desk(model)).go("Book")
    assert [event.error_code for event in events] == [None, "ModelError", None, None]
    assert events[2].get_function_responses()[0].response == {"result": "booker failed: overloaded"}


@pytest.mark.parametrize("is_first", [True, False])
async def test_a_sequence_waits_for_its_task(is_first: bool) -> None:
    class Other(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> AsyncIterator[Event]:
            yield Event(author=self.name, content=ModelContent("other"))

    model = ScriptedModel(["How many?", done()])
    children: list[BaseAgent] = [LlmAgent(name="task", model=model, mode="task"), Other(name="other")]
    walk = Walk(SequentialAgent(name="seq", sub_agents=children if is_first else children[::-1]))
    assert [event.author for event in await walk.go("Book")] == ["task"] if is_first else ["other", "task"]
    assert [event.author for event in await walk.go("4")] == ["task", "task", "other"] if is_first else ["task", "task"]


async def test_a_single_turn_delegate_sees_its_request_alone_and_answers_its_parent() -> None:
    """1.8.1 as a delegate."""

    def look(key: str) -> str:
        """Looks up."""
        return "found"

    model = ScriptedModel({
        "desk": [call("clerk", "c-1", request="one"), call("clerk", "c-2", request="two"), "Done.", "Bye."],
        "": [call("look", "l-1", key="k"), "first", "second"],
    })  # fmt: skip
    clerk = LlmAgent(name="clerk", mode="single_turn", tools=[look], output_key="said", instruction="Look.")
    walk = Walk(LlmAgent(name="desk", model=model, sub_agents=[clerk]))
    events = await walk.go("go")
    assert plain(events[3]) == {
        "author": "clerk",
        "branch": "clerk@c-1",
        "content": {"role": "model", "parts": [{"text": "first"}]},
        "actions": {"stateDelta": {"said": "first"}},
        "nodeInfo": {"path": "desk@1/clerk@1", "outputFor": ["desk@1/clerk@1"], "messageAsOutput": True},
    }
    assert events[6].node_path == "desk@1/clerk@2"
    assert events[4].get_function_responses()[0].response == {"result": "first"}
    assert shown(model.requests[2]) == ["user: one", "model: look(key='k')", "user: look -> {'result': 'found'}"]
    assert str(model.requests[2].config.system_instruction).startswith("Look.")
    assert [line for line in shown(model.requests[5]) if "first" in line] == ["user: clerk -> {'result': 'first'}"]
    assert (await walk.go("more"))[0].author == "desk"


async def test_a_single_turn_delegates_output_has_its_schema_and_its_error_is_a_text() -> None:
    """1.8.1 as a delegate."""

    def fails(request: Any) -> str:
        raise KeyError("boom")

    model = ScriptedModel(
        [call("clerk", "c-1", request="a"), '{"guests": 3}', call("clerk", "c-2", request="b"), fails, "Done."]
    )
    clerk = LlmAgent(name="clerk", mode="single_turn", output_schema=Table)
    events = await Walk(LlmAgent(name="desk", model=model, sub_agents=[clerk])).go("go")
    assert (events[1].output, events[2].get_function_responses()[0].response) == ({"guests": 3}, {"guests": 3})
    assert events[4].error_code == "KeyError"
    assert "clerk failed" in str(events[5].get_function_responses()[0].response)
    assert _texts(events)[-1] == "Done."


def test_delegates_are_called_and_may_transfer_but_not_be_transferred_to() -> None:
    """1.8.1, 1.8.2, 1.8.3."""
    agents = [LlmAgent(name=str(mode), model="local/x", mode=mode) for mode in ("task", "single_turn", "chat")]
    root = LlmAgent(name="root", model="local/x", sub_agents=agents)
    assert [target.name for target in transfer_targets(root)] == ["chat"]
    assert [target.name for target in transfer_targets(agents[2])] == ["root"]
    assert [target.name for target in transfer_targets(agents[0])] == ["root", "chat"]


async def test_a_task_in_an_agent_tool_waits_for_the_user() -> None:
    """1.8.2."""
    model = ScriptedModel({
        "front": [call("desk", "d-1", request="book"), "All done."],
        "desk": [call("booker", "c-1", request="a table"), "It is booked."],
        "booker": ["How many?", done(result="4")],
    })  # fmt: skip
    walk = Walk(LlmAgent(name="front", model=model, tools=[AgentTool(desk(model))]))
    assert _texts(await walk.go("go"))[-1] == "How many?"
    assert _texts(await walk.go("four"))[-1:] == ["All done."]
    assert "It is booked." in _texts(await walk.log())  # a step of an agent tool is stored, not yielded
