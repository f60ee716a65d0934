"""The context of nodes, callbacks and tools (2.1, 2.2)."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.node import RetryConfig
from greenroom.agents.workflow.nodes import node
from greenroom.agents.workflow.workflow import Workflow
from greenroom.invocation.context import InvocationContext
from greenroom.invocation.user_context import CallbackContext, Context, ReadonlyContext, ToolContext
from greenroom.records.auth import AuthConfig, AuthCredential, AuthCredentialTypes, AuthScheme
from greenroom.records.content import FunctionCall, Part
from greenroom.records.event import EventActions, ToolConfirmation
from greenroom.records.human_requests import RequestInput
from greenroom.records.run import RunConfig, ToolThreadPoolConfig
from greenroom.sessions.in_memory import InMemorySessionService
from greenroom.testing.scripted_model import ScriptedModel
from tests.agents.workflow.walks import Walk, lines_of


def by_context(any_name: Context) -> str:
    """Says where it is."""
    return any_name.invocation_id


def by_callback_context(any_name: CallbackContext) -> str:
    """Says where it is."""
    return any_name.invocation_id


def by_tool_context(any_name: ToolContext) -> str:
    """Says where it is."""
    return any_name.invocation_id


@pytest.mark.parametrize("function", [by_context, by_callback_context, by_tool_context])
async def test_each_annotation_marks_the_parameter_of_the_context(function: Any) -> None:
    """2.1.1: in function tools and in function nodes."""
    assert issubclass(Context, ReadonlyContext)
    call = FunctionCall(id="c-1", name=function.__name__, args={})
    agent = LlmAgent(name="ag", model=ScriptedModel([call, "done"]), tools=[function])
    events = await Walk(agent).go()
    assert events[1].get_function_responses()[0].response == {"result": events[0].invocation_id}
    (event,) = await Walk(Workflow(name="wf", edges=[("START", function)])).go()
    assert event.output == event.invocation_id


async def invocation(agent: Any = None) -> InvocationContext:
    sessions = InMemorySessionService()
    session = await sessions.create_session(app_name="app", user_id="ada", state={"guests": 2})
    return InvocationContext(session_service=sessions, session=session, invocation_id="e-1", agent=agent)


async def test_a_test_of_ones_own_makes_a_context() -> None:
    """2.1.2, 2.2.1: a user's function is called without a run."""
    ctx, actions = await invocation(), EventActions()
    ask = node(by_context, name="ask")
    parent = Context(ctx)
    confirmation = ToolConfirmation(confirmed=True)
    context = Context(
        ctx,
        event_actions=actions,
        function_call_id="c-1",
        tool_confirmation=confirmation,
        parent_ctx=parent,
        node=ask,
        node_path="wf@1/ask@2",
        run_id="2",
        resume_inputs={"q-1": 5},
        attempt_count=3,
    )
    assert (context.node, context.node_path, context.run_id, context.parent_ctx) == (ask, "wf@1/ask@2", "2", parent)
    assert (context.function_call_id, context.tool_confirmation) == ("c-1", confirmation)
    assert (context.resume_inputs, context.attempt_count) == ({"q-1": 5}, 3)
    child = Context(ctx, node=node(echo), parent_ctx=context)
    assert (child.node_path, child.run_id) == ("wf@1/ask@2/echo@1", "1")
    assert (by_context(context), context.agent_name, context.state["guests"]) == ("e-1", "unknown", 2)
    context.state["guests"] = 4
    context.actions.escalate = True
    assert (actions.state_delta, actions.escalate) == ({"guests": 4}, True)
    with pytest.raises(TypeError):
        ReadonlyContext(ctx).state["guests"] = 5  # type: ignore


async def test_the_actions_of_a_context_are_those_of_its_event() -> None:
    """2.2.4, 2.2.6."""

    def sets(ctx: Context) -> str:
        ctx.actions.state_delta["guests"] = 2
        ctx.actions.route = "small"
        copied = ctx.get_invocation_context()
        copied.branch = "other"
        assert copied.session is ctx.session
        return f"{ctx.branch}"

    assert lines_of(await Walk(Workflow(name="wf", edges=[("START", sets, {"small": echo})])).go()) == [
        "sets@1 = 'None' sets {'guests': 2} -> small",
        "echo@1 = 'None'",
    ]


def echo(node_input: Any) -> Any:
    return node_input


async def test_a_tools_call_and_its_confirmation_are_known_and_can_be_set() -> None:
    """2.2.5, 2.2.7: outside of a workflow the path is empty."""
    seen: list[Any] = []

    def look(tool_context: ToolContext) -> None:
        """Looks."""
        seen.append((tool_context.function_call_id, tool_context.tool_confirmation))
        tool_context.function_call_id = "other"
        tool_context.tool_confirmation = ToolConfirmation(confirmed=True)
        seen.append((tool_context.function_call_id, tool_context.tool_confirmation.confirmed))
        seen.append((tool_context.node, tool_context.node_path, tool_context.run_id, tool_context.parent_ctx))
        seen.append((tool_context.attempt_count, tool_context.resume_inputs, tool_context.interrupt_ids))

    call = FunctionCall(id="c-1", name="look", args={})
    events = await Walk(LlmAgent(name="ag", model=ScriptedModel([call, "done"]), tools=[look])).go()
    assert seen == [("c-1", None), ("other", True), (None, "", "", None), (1, {}, set())]
    assert events[1].get_function_responses()[0].id == "c-1"


async def test_a_node_knows_its_place_its_attempt_and_its_requests() -> None:
    """2.2.7."""
    seen: list[Any] = []

    @node(rerun_on_resume=True, retry_config=RetryConfig(max_attempts=2, initial_delay=0.0))
    async def child(ctx: Context) -> Any:
        seen.append((ctx.node_path, ctx.run_id, ctx.attempt_count, dict(ctx.resume_inputs), ctx.event_author))
        assert ctx.node is child
        assert ctx.parent_ctx is not None
        assert ctx.parent_ctx.node_path == "wf@1/parent@1"
        if ctx.attempt_count == 1:
            raise ValueError("again")
        yield RequestInput(interrupt_id="q-1") if not ctx.resume_inputs else "done"
        ctx.interrupt_ids.add("mine")  # a copy
        seen.append(ctx.interrupt_ids)

    @node(rerun_on_resume=True)
    async def parent(ctx: Context) -> Any:
        return await ctx.run_node(child)

    walk = Walk(Workflow(name="wf", edges=[("START", parent)]))
    await walk.go()
    assert walk.error is None
    assert lines_of(await walk.answer("q-1", 5))[-1] == "parent@1 = 'done'"
    place = ("wf@1/parent@1/child@1", "1")
    assert seen == [
        (*place, 1, {}, "wf"),
        (*place, 2, {}, "wf"),
        {"q-1"},
        (*place, 2, {"q-1": 5}, "wf"),
        set(),
    ]


async def test_a_context_has_the_output_the_route_and_the_failure_of_its_node() -> None:
    """2.2.8."""
    contexts: list[Context] = []

    def fails(ctx: Context) -> None:
        contexts.append(ctx)
        raise KeyError("boom")

    @node(rerun_on_resume=True)
    async def parent(ctx: Context) -> None:
        contexts.append(ctx)
        ctx.output, ctx.route = [1], "x"
        assert (ctx.output, ctx.route, ctx.error, ctx.error_node_path) == ([1], "x", None, "")
        await ctx.run_node(fails)

    await Walk(Workflow(name="wf", edges=[("START", parent, {"x": echo})])).go()
    assert [type(context.error) for context in contexts] == [KeyError, KeyError]
    assert [context.error_node_path for context in contexts] == ["wf@1/parent@1/fails@1"] * 2


async def test_a_context_takes_one_output() -> None:
    """2.2.8."""

    def twice(ctx: Context) -> None:
        ctx.output = 1
        ctx.output = 2

    walk = Walk(Workflow(name="wf", edges=[("START", twice)]))
    await walk.go()
    assert isinstance(walk.error, ValueError)


async def test_nodes_keep_artifacts() -> None:
    """2.2.10."""

    async def keeps(ctx: Context) -> list[Any]:
        first = await ctx.save_artifact("note", Part(text="first"), custom_metadata={"by": "ada"})
        second = await ctx.save_artifact("note", Part(text="second"))
        texts = [part.text for version in (0, None) if (part := await ctx.load_artifact("note", version)) is not None]
        found = await ctx.get_artifact_version("note", 0)
        assert found is not None
        assert await ctx.get_artifact_version("note", 7) is None
        return [first, second, *texts, await ctx.list_artifacts(), found.custom_metadata]

    (event,) = await Walk(Workflow(name="wf", edges=[("START", keeps)])).go()
    assert event.output == [0, 1, "first", "second", ["note"], {"by": "ada"}]
    assert event.actions.artifact_delta == {"note": 1}
    with pytest.raises(ValueError, match="artifact service"):
        await Context(await invocation()).list_artifacts()


KEY = AuthConfig(
    auth_scheme=AuthScheme(type="apiKey", name="X-Key", in_="header"),
    exchanged_auth_credential=AuthCredential(auth_type=AuthCredentialTypes.API_KEY, api_key="k-1"),
    credential_key="desk",
)


async def test_nodes_save_credentials_and_only_tool_calls_ask_for_them() -> None:
    """2.2.12."""

    async def keeps(ctx: Context) -> list[Any]:
        none_yet = await ctx.load_credential(KEY)
        await ctx.save_credential(KEY)
        loaded, granted = await ctx.load_credential(KEY), ctx.get_auth_response(KEY)
        return [none_yet, loaded is not None and loaded.api_key, granted is not None and granted.api_key]

    walk = Walk(Workflow(name="wf", edges=[("START", keeps)]))
    assert (await walk.go())[-1].output == [None, "k-1", "k-1"]
    assert "k-1" not in str(await walk.state())
    context = Context(await invocation())
    for asks in (context.request_confirmation, lambda: context.request_credential(KEY)):
        with pytest.raises(ValueError, match="that a model called"):
            asks()

    def pay(tool_context: ToolContext) -> str:
        """Pays."""
        tool_context.request_confirmation(hint="Sure?", payload={"amount": 5})
        return "waits"

    call = FunctionCall(id="c-1", name="pay", args={})
    events = await Walk(LlmAgent(name="ag", model=ScriptedModel([call]), tools=[pay])).go()
    asked = next(call for event in events for call in event.get_function_calls() if call.name != "pay")
    assert (asked.args or {})["toolConfirmation"] == {"hint": "Sure?", "payload": {"amount": 5}, "confirmed": False}


@pytest.mark.parametrize("threads", [None, 2])
async def test_a_synchronous_function_runs_on_the_loop_or_on_the_runs_threads(threads: int | None) -> None:
    """1.7.12."""

    def where() -> bool:
        return threading.current_thread() is threading.main_thread()

    pool = ToolThreadPoolConfig(max_workers=threads) if threads is not None else None
    config = RunConfig(tool_thread_pool_config=pool)
    (event,) = await Walk(Workflow(name="wf", edges=[("START", where)])).go(run_config=config)
    assert event.output is (threads is None)
