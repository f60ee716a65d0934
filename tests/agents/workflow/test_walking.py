"""Order and inputs of the nodes that run, and the events that they leave (1.4, 1.6, 1.7, 1.14)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import BaseModel

from greenroom.agents.node import RetryConfig
from greenroom.agents.workflow.edges import DEFAULT_ROUTE, Edge
from greenroom.agents.workflow.errors import (
    NodeTimeoutError,
    StateSchemaError,
    WorkflowConfigurationError,
    WorkflowDataError,
)
from greenroom.agents.workflow.function_node import FunctionNode
from greenroom.agents.workflow.nodes import JoinNode, Node, node
from greenroom.agents.workflow.workflow import Workflow
from greenroom.invocation.user_context import Context
from greenroom.records.content import Content, ModelContent
from greenroom.records.event import Event, EventActions, NodeInfo
from tests.agents.workflow.walks import Walk, lines_of, plain


def upper(node_input: str) -> str:
    return node_input.upper()


def echo(node_input: Any) -> Any:
    return node_input


def one(node_input: Any) -> str:
    return "one"


def two(node_input: Any) -> str:
    return "two"


def routed(route: Any) -> FunctionNode:
    def choose() -> Event:
        return Event(author="", output="chosen", actions=EventActions(route=route))

    return FunctionNode(func=choose)


async def test_a_chain_gives_each_output_to_the_next_node_and_ends_with_the_last() -> None:
    """1.4.1, 1.14.1, 1.14.2, 1.14.8, 1.7.1."""
    events = await Walk(Workflow(name="wf", edges=[("START", upper, echo)])).go("hi")
    assert [plain(event) for event in events] == [
        {"author": "wf", "output": "HI", "nodeInfo": {"path": "wf@1/upper@1", "outputFor": ["wf@1/upper@1"]}},
        {"author": "wf", "output": "HI", "nodeInfo": {"path": "wf@1/echo@1", "outputFor": ["wf@1/echo@1", "wf@1"]}},
    ]


async def test_checkpoints_are_stored_and_not_yielded() -> None:
    """R1, W1: one before the code of a node whose effect can't be known after a crash, and one at the end."""
    walk = Walk(Workflow(name="wf", edges=[("START", upper)]))
    assert not any(event.is_checkpoint() for event in await walk.go("hi"))
    log = await walk.log()
    assert [event.is_checkpoint() for event in log] == [False, True, True, False, True]
    assert log[2].actions.agent_state == {"nodes": {"upper": {"status": 2}}}
    assert log[-1].actions.end_of_agent


async def test_a_fan_out_runs_in_branches_and_a_join_gathers_in_the_order_of_the_edges() -> None:
    """1.4.2, 1.6.3, 1.6.7, 1.2.4."""
    workflow = Workflow(name="wf", edges=[("START", (one, two), JoinNode(name="both"), echo)])
    events = await Walk(workflow).go()
    assert lines_of(events) == [
        "one@1 [one@1] = 'one'",
        "two@1 [two@1] = 'two'",
        "both@1 = {'one': 'one', 'two': 'two'}",
        "echo@1 = {'one': 'one', 'two': 'two'}",
    ]
    assert list(events[2].output) == ["one", "two"]


@pytest.mark.parametrize(
    ("route", "reached"),
    [
        ("x", ["one"]),
        ("other", ["two"]),
        (None, ["two"]),
        (["x", "y"], ["one", "echo"]),
        (True, ["two"]),
        (1, ["echo"]),
    ],
)
async def test_routes_choose_edges(route: Any, reached: list[str]) -> None:
    """1.4.3, 1.4.6, 1.6.1, 1.6.2, 1.17.4: routes are compared with their type."""
    workflow = Workflow(name="wf", edges=[("START", routed(route), {"x": one, "y": echo, 1: echo, DEFAULT_ROUTE: two})])
    if route == ["x", "y"]:
        workflow = Workflow(name="wf", edges=[("START", routed(route), {"x": one, "y": echo}, JoinNode(name="j"))])
        reached = [*reached, "j"]
    events = await Walk(workflow).go()
    assert [lines_of([event])[0].partition("@")[0] for event in events[1:]] == reached


async def test_what_follows_a_map_is_reached_from_all_its_targets() -> None:
    """1.4.3."""
    for route in ("x", "y"):
        workflow = Workflow(name="wf", edges=[("START", routed(route), {"x": one, "y": two}, echo)])
        assert lines_of(await Walk(workflow).go())[-1] == f"echo@1 = {'one' if route == 'x' else 'two'!r}"


async def test_an_edge_may_have_several_routes() -> None:
    """1.4.5."""
    start = routed("b")
    edges = [("START", start), Edge(from_node=start, to_node=one, route=["a", "b"])]
    assert lines_of(await Walk(Workflow(name="wf", edges=edges)).go())[-1] == "one@1 = 'one'"


async def test_a_route_that_no_edge_has_leaves_an_error_event_that_names_the_node() -> None:
    """1.6.1, 1.17.2."""
    walk = Walk(Workflow(name="wf", edges=[("START", routed("z"), {"x": one})]))
    events = await walk.go()
    assert walk.error is None
    assert lines_of(events) == ["choose@1 = 'chosen' -> z", "choose@1 ! RouteNotFound"]
    assert "'choose'" in (events[-1].error_message or "")
    assert "'z'" in (events[-1].error_message or "")


async def test_a_join_that_can_not_run_fails_the_workflow_and_names_what_did_not_run() -> None:
    """1.6.3, 1.17.2."""
    choice = routed("x")
    both = JoinNode(name="both")
    walk = Walk(Workflow(name="wf", edges=[("START", choice, {"x": one, "y": two}, both)]))
    events = await walk.go()
    assert isinstance(walk.error, WorkflowDataError)
    assert "'both'" in str(walk.error)
    assert "two" in str(walk.error)
    assert events[-1].error_code == "WorkflowDataError"


async def test_without_a_join_the_target_runs_once_per_trigger() -> None:
    """1.6.4."""
    events = await Walk(Workflow(name="wf", edges=[("START", (one, two), echo)])).go()
    assert lines_of(events)[2:] == ["echo@1 [one@1] = 'one'", "echo@2 [two@1] = 'two'"]


async def test_a_loop_numbers_its_passes() -> None:
    """1.6.5, 1.7.10."""

    def loop(ctx: Context) -> Event:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        return Event(
            author="", output=ctx.state["n"], actions=EventActions(route="again" if ctx.state["n"] < 3 else "on")
        )

    events = await Walk(Workflow(name="wf", edges=[("START", loop, {"again": loop, "on": echo})])).go()
    assert lines_of(events) == [
        "loop@1 = 1 sets {'n': 1} -> again",
        "loop@2 = 2 sets {'n': 2} -> again",
        "loop@3 = 3 sets {'n': 3} -> on",
        "echo@1 = 3",
    ]


async def test_max_concurrency_limits_the_nodes_that_run_at_a_time() -> None:
    """1.6.6."""
    running = peak = 0

    def worker(name: str) -> FunctionNode:
        async def work() -> str:
            nonlocal running, peak
            running += 1
            peak = max(peak, running)
            await asyncio.sleep(0.001)
            running -= 1
            return name

        return FunctionNode(func=work, name=name)

    nodes = tuple(worker(f"w{number}") for number in range(6))
    events = await Walk(Workflow(name="wf", max_concurrency=2, edges=[("START", nodes, JoinNode(name="j"))])).go()
    assert peak == 2
    assert len(events) == 7


async def test_a_nested_workflow_is_a_node_with_its_own_author() -> None:
    """1.2.1, 1.3.5, 1.14.1, 1.14.2."""
    inner = Workflow(name="inner", edges=[("START", upper, echo)])
    events = await Walk(Workflow(name="wf", edges=[("START", inner, one)])).go("hi")
    assert [(event.author, event.node_path) for event in events] == [
        ("inner", "wf@1/inner@1/upper@1"),
        ("inner", "wf@1/inner@1/echo@1"),
        ("wf", "wf@1/one@1"),
    ]
    last = Workflow(name="wf", edges=[("START", Workflow(name="inner", edges=[("START", upper)]))])
    (event,) = await Walk(last).go("hi")
    assert event.node_info == NodeInfo(
        path="wf@1/inner@1/upper@1", output_for=["wf@1/inner@1/upper@1", "wf@1/inner@1", "wf@1"]
    )


async def test_two_ends_with_an_output_are_an_error() -> None:
    """1.6.8, 1.17.3: found when the graph is built where annotations tell, else in the run."""
    with pytest.raises(WorkflowConfigurationError, match="one and two both end it"):
        Workflow(name="wf", edges=[("START", (one, two))])
    walk = Walk(Workflow(name="wf", edges=[("START", (lambda_named("a"), lambda_named("b")))]))
    events = await walk.go()
    assert isinstance(walk.error, WorkflowConfigurationError)
    assert events[-1].node_path == "wf@1"


def lambda_named(name: str) -> FunctionNode:
    return FunctionNode(func=lambda: name, name=name)


async def test_the_first_failure_ends_the_workflow_with_the_nodes_own_error() -> None:
    """1.6.9, 1.14.6, 1.15.6."""
    was_cancelled = False

    async def slow() -> None:
        nonlocal was_cancelled
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            was_cancelled = True
            raise

    async def bad() -> None:
        await asyncio.sleep(0)
        raise KeyError("boom")

    walk = Walk(Workflow(name="wf", edges=[("START", (slow, bad), JoinNode(name="j"))]))
    events = await walk.go()
    assert isinstance(walk.error, KeyError)
    assert was_cancelled
    assert plain(events[-1]) == {
        "author": "wf",
        "branch": "bad@1",
        "errorCode": "KeyError",
        "errorMessage": "'boom'",
        "nodeInfo": {"path": "wf@1/bad@1"},
    }


async def test_a_failed_workflow_resumes_by_its_invocation_id() -> None:
    """1.13.3, 1.13.10."""
    fails = True

    def sometimes(node_input: str) -> str:
        if fails:
            raise ConnectionError("down")
        return node_input

    walk = Walk(Workflow(name="wf", edges=[("START", upper, sometimes)]))
    await walk.go("hi")
    assert isinstance(walk.error, ConnectionError)
    fails = False
    assert lines_of(await walk.go(None, invocation_id=walk.invocation_id)) == ["sometimes@1 = 'HI'"]
    assert walk.error is None


# function nodes


class Party(BaseModel):
    guests: int
    note: str | None = None


async def test_parameters_come_from_the_input_the_context_and_the_state() -> None:
    """1.7.3, 1.7.5, 1.7.6, 1.15.2."""

    def book(party: Party, node_input: str, context: Context, size: int = 3) -> list[Any]:
        return [party.guests, node_input, context.node_path, size]

    def model(node_input: Any) -> Party:
        return Party(guests=4)

    walk = Walk(Workflow(name="wf", edges=[("START", book, model)]), state={"party": {"guests": "2"}})
    assert lines_of(await walk.go("hi")) == ["book@1 = [2, 'hi', 'wf@1/book@1', 3]", "model@1 = {'guests': 4}"]
    lacking = Walk(Workflow(name="wf", edges=[("START", book)]))
    await lacking.go()
    assert isinstance(lacking.error, WorkflowDataError)
    assert "'party'" in str(lacking.error)
    wrong = Walk(Workflow(name="wf", edges=[("START", book)]), state={"party": {"guests": "many"}})
    await wrong.go()
    assert isinstance(wrong.error, WorkflowDataError)


async def test_parameters_may_come_from_the_keys_of_the_input() -> None:
    """1.7.4."""

    def pair(node_input: Any) -> dict[str, int]:
        return {"a": 1, "b": 2}

    def add(a: int, b: int, c: int = 10) -> int:
        return a + b + c

    adding = FunctionNode(func=add, parameter_binding="node_input")
    assert lines_of(await Walk(Workflow(name="wf", edges=[("START", pair, adding)])).go())[-1] == "add@1 = 13"


async def test_what_is_yielded_becomes_events() -> None:
    """1.7.7, 1.7.8, 1.7.10, 1.7.11."""

    async def generator(ctx: Context) -> AsyncIterator[Any]:
        yield ModelContent("working")
        ctx.state["k"] = 1
        yield Event(author="", actions=EventActions(state_delta={"m": 2}))
        yield 7
        yield Content(role="model", parts=[])

    assert lines_of(await Walk(Workflow(name="wf", edges=[("START", generator)])).go()) == [
        "generator@1 'working'",
        "generator@1 sets {'m': 2, 'k': 1}",
        "generator@1 = 7",
        "generator@1",
    ]

    async def twice() -> AsyncIterator[int]:
        yield 1
        yield 2

    walk = Walk(Workflow(name="wf", edges=[("START", twice)]))
    await walk.go()
    assert isinstance(walk.error, ValueError)
    assert "second output" in str(walk.error)


async def test_output_and_route_may_be_set_on_the_context() -> None:
    """1.7.9, 1.6.2, 1.7.10, 1.14.4."""

    def sets(ctx: Context) -> None:
        ctx.output, ctx.route, ctx.state["k"] = "out", "x", 1

    def writes(ctx: Context) -> None:
        ctx.state["m"] = 2

    assert lines_of(await Walk(Workflow(name="wf", edges=[("START", sets, {"x": writes}, echo)])).go()) == [
        "sets@1 = 'out' sets {'k': 1} -> x",
        "writes@1 sets {'m': 2}",
    ]


async def test_a_node_without_output_gives_none_to_the_next() -> None:
    """1.7.2, 1.13.1."""

    def silent() -> None:
        pass

    def shows(node_input: Any) -> str:
        return repr(node_input)

    walk = Walk(Workflow(name="wf", edges=[("START", silent, shows)]))
    assert lines_of(await walk.go()) == ["shows@1 = 'None'"]


async def test_an_output_is_independent_of_what_later_nodes_do_with_it() -> None:
    def first() -> list[int]:
        return [1]

    def changes(node_input: list[int]) -> str:
        node_input.append(2)
        return "changed"

    walk = Walk(Workflow(name="wf", edges=[("START", first, changes)]))
    await walk.go()
    assert [event.output for event in await walk.log() if event.output is not None] == [[1], "changed"]


# schemas, retries, timeouts


async def test_schemas_convert_outputs_and_state() -> None:
    """1.1.7, 1.1.8, 1.15.4."""

    class Seen(BaseModel):
        guests: int = 0

    def typed(ctx: Context) -> Any:
        ctx.state["guests"] = 3
        return {"guests": "5"}

    checked = FunctionNode(func=typed, output_schema=Party)
    workflow = Workflow(name="wf", edges=[("START", checked)], state_schema=Seen)
    assert lines_of(await Walk(workflow).go()) == ["typed@1 = {'guests': 5} sets {'guests': 3}"]

    def writes(ctx: Context) -> None:
        ctx.state["other"] = 1

    walk = Walk(Workflow(name="wf", edges=[("START", writes)], state_schema=Seen))
    events = await walk.go()
    assert isinstance(walk.error, StateSchemaError)
    assert events[-1].error_code == "StateSchemaError"
    assert "other" not in await walk.state()


async def test_failed_attempts_are_events_and_counted() -> None:
    """1.1.5, 1.11.1, 1.11.3, 1.16.10: the number of the next attempt is stored."""

    def flaky(ctx: Context) -> str:
        if ctx.attempt_count < 3:
            raise ValueError(f"attempt {ctx.attempt_count}")
        return "ok"

    retried = node(flaky, retry_config=RetryConfig(max_attempts=3, initial_delay=0.001))
    walk = Walk(Workflow(name="wf", edges=[("START", retried)]))
    assert lines_of(await walk.go()) == ["flaky@1 ! ValueError", "flaky@1 ! ValueError", "flaky@1 = 'ok'"]
    states = [event.actions.agent_state for event in await walk.log() if event.is_checkpoint()]
    assert {"nodes": {"flaky": {"status": 1, "attempt": 2}}} in states


@pytest.mark.parametrize(
    ("exceptions", "attempts"), [(None, 2), ([ValueError], 2), (["ValueError"], 2), ([Exception], 2), ([KeyError], 1)]
)
async def test_only_named_errors_are_retried(exceptions: Any, attempts: int) -> None:
    """1.11.1."""

    def fails() -> None:
        raise ValueError("no")

    config = RetryConfig(max_attempts=2, initial_delay=0.0, exceptions=exceptions)
    walk = Walk(Workflow(name="wf", edges=[("START", node(fails, retry_config=config))]))
    assert lines_of(await walk.go()) == ["fails@1 ! ValueError"] * attempts
    assert isinstance(walk.error, ValueError)


def test_delays_grow_and_are_bounded() -> None:
    """1.11.2."""
    config = RetryConfig(initial_delay=1, backoff_factor=3, max_delay=20, jitter=0)
    assert [config.delay_seconds(attempt) for attempt in (1, 2, 3, 4, 5000)] == [1, 3, 9, 20, 20]
    jittered = [RetryConfig(initial_delay=8, max_delay=10, jitter=0.25).delay_seconds(1) for _ in range(200)]
    assert 6 <= min(jittered) < max(jittered) <= 10
    assert RetryConfig().attempts == 5
    assert RetryConfig(max_attempts=0).attempts == 1


async def test_an_attempt_that_takes_too_long_fails() -> None:
    """1.11.4, 1.1.6."""

    async def slow() -> None:
        await asyncio.sleep(10)

    walk = Walk(Workflow(name="wf", edges=[("START", node(slow, timeout=0.01))]))
    assert lines_of(await walk.go()) == ["slow@1 ! NodeTimeoutError"]
    assert isinstance(walk.error, NodeTimeoutError)
    assert walk.error.timeout == 0.01


async def test_a_retried_workflow_does_not_repeat_what_was_done() -> None:
    """1.11.5."""
    calls: list[str] = []

    def first(node_input: Any) -> str:
        calls.append("first")
        return "first"

    def flaky(node_input: Any) -> str:
        calls.append("flaky")
        if calls.count("flaky") < 2:
            raise ValueError("no")
        return "ok"

    inner = Workflow(name="inner", edges=[("START", first, flaky)], retry_config=RetryConfig(initial_delay=0.001))
    events = await Walk(Workflow(name="wf", edges=[("START", inner, echo)])).go()
    assert calls == ["first", "flaky", "flaky"]
    assert lines_of(events)[-1] == "echo@1 = 'ok'"


async def test_a_subclass_writes_its_own_implementation() -> None:
    """1.2.5, 1.2.6."""

    class Doubles(Node):
        by: int = 2

        async def run_node_impl(self, *, ctx: Context, node_input: Any) -> AsyncIterator[Any]:
            yield self.by * len(node_input)

    def word() -> str:
        return "abc"

    assert lines_of(await Walk(Workflow(name="wf", edges=[("START", word, Doubles(name="d"))])).go())[-1] == "d@1 = 6"


async def test_a_callables_cancellation_fails_its_node_only() -> None:
    async def cancels() -> None:
        raise asyncio.CancelledError

    walk = Walk(Workflow(name="wf", edges=[("START", cancels)]))
    assert lines_of(await walk.go()) == ["cancels@1 ! RunFailed"]
