"""Nodes that ask a person, and go on with the answer (1.12, 1.13)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import BaseModel

from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.workflow.function_node import FunctionNode
from greenroom.agents.workflow.nodes import JoinNode, node
from greenroom.agents.workflow.workflow import Workflow
from greenroom.errors import ApprovalRefused, InvalidRequest
from greenroom.invocation.user_context import Context, ToolContext
from greenroom.records.auth import AuthConfig, AuthCredential, AuthCredentialTypes, AuthScheme
from greenroom.records.content import Content, FunctionCall, FunctionResponse, Part
from greenroom.records.event import Event
from greenroom.records.human_requests import RequestInput
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.functions.function_tool import FunctionTool
from tests.agents.workflow.walks import Walk, lines_of, plain


class Party(BaseModel):
    guests: int
    note: str = ""


def ask(node_input: Any) -> RequestInput:
    return RequestInput(interrupt_id="q-1", message="How many?", response_schema=int)


def echo(node_input: Any) -> Any:
    return node_input


async def test_a_request_is_a_long_running_call() -> None:
    """1.12.1, 1.12.2, 1.14.5."""
    (event,) = await Walk(Workflow(name="wf", edges=[("START", ask, echo)])).go()
    arguments = {
        "interruptId": "q-1",
        "payload": None,
        "message": "How many?",
        "response_schema": {"type": "integer"},
    }
    assert plain(event) == {
        "author": "wf",
        "content": {
            "role": "model",
            "parts": [{"functionCall": {"id": "q-1", "name": "adk_request_input", "args": arguments}}],
        },
        "longRunningToolIds": ["q-1"],
        "nodeInfo": {"path": "wf@1/ask@1"},
    }


@pytest.mark.parametrize(("given", "output"), [({"result": "5"}, 5), ({"result": 5}, 5), ({"response": "5"}, 5)])
async def test_the_answer_is_the_nodes_output(given: Any, output: Any) -> None:
    """1.12.3, 1.12.5, 1.13.6."""
    walk = Walk(Workflow(name="wf", edges=[("START", ask, echo)]))
    asked = await walk.go()
    answered = await walk.answer("q-1", given)
    assert lines_of(answered) == [f"echo@1 = {output!r}"]
    assert answered[0].invocation_id == asked[0].invocation_id


async def test_a_wrong_answer_is_refused_before_it_is_stored_and_a_right_one_continues() -> None:
    """1.12.4, 1.17.1."""
    walk = Walk(Workflow(name="wf", edges=[("START", ask, echo)]))
    await walk.go()
    before = await walk.log()
    for wrong in ("many", {"result": None}, {"x": 1, "y": 2}, {"result": True}):
        await walk.answer("q-1", wrong)
        assert isinstance(walk.error, InvalidRequest)
    assert await walk.log() == before
    assert lines_of(await walk.answer("q-1", 3)) == ["echo@1 = 3"]
    await walk.answer("q-1", 4)
    assert isinstance(walk.error, ApprovalRefused)


async def test_the_properties_of_an_answer_are_checked_one_level_deep() -> None:
    """1.12.4."""

    def ask_party() -> RequestInput:
        return RequestInput(interrupt_id="p", response_schema=Party)

    walk = Walk(Workflow(name="wf", edges=[("START", ask_party, echo)]))
    await walk.go()
    for wrong in ({"note": "x"}, {"guests": "many"}, [1]):
        await walk.answer("p", wrong)
        assert isinstance(walk.error, InvalidRequest)
    assert lines_of(await walk.answer("p", {"guests": 2}))[-1] == "echo@1 = {'guests': 2}"


async def test_a_node_that_reruns_gets_its_answers_and_asks_again_for_the_rest() -> None:
    """1.1.3, 1.12.5, 1.13.4, 1.13.5."""

    @node(rerun_on_resume=True)
    async def both(ctx: Context) -> AsyncIterator[Any]:
        for one in ("a", "b"):
            if one not in ctx.resume_inputs:
                yield RequestInput(interrupt_id=one)
        if len(ctx.resume_inputs) == 2:
            yield dict(ctx.resume_inputs)

    walk = Walk(Workflow(name="wf", edges=[("START", both, echo)]))
    assert [event.long_running_tool_ids for event in await walk.go()] == [["a"], ["b"]]
    assert [event.long_running_tool_ids for event in await walk.answer("a", {"x": 1})] == [["b"]]
    assert lines_of(await walk.answer("b", '{"k": 2}'))[0] == "both@1 = {'a': {'x': 1}, 'b': {'k': 2}}"


async def test_other_branches_continue_while_one_waits() -> None:
    """1.6.10."""
    walk = Walk(Workflow(name="wf", edges=[("START", (ask, FunctionNode(func=echo, name="side")), JoinNode(name="j"))]))
    assert len(await walk.go("go")) == 2
    (joined,) = await walk.answer("q-1", 5)
    assert joined.output["ask"] == 5


async def test_a_new_message_begins_again_and_leaves_the_request_open() -> None:
    """1.12.6."""
    walk = Walk(Workflow(name="wf", edges=[("START", ask, echo)]))
    first = await walk.go("one")
    second = await walk.go("two")
    assert lines_of(second) == lines_of(first)
    assert second[0].invocation_id != first[0].invocation_id


async def test_answers_that_fit_no_request_are_refused() -> None:
    """1.12.7."""
    walk = Walk(Workflow(name="wf", edges=[("START", ask, echo)]))
    await walk.go()
    await walk.answer("unknown", 1)
    assert isinstance(walk.error, ValueError)
    response = FunctionResponse(id="q-1", name="adk_request_input", response={"result": 1})
    await walk.go(Content(role="user", parts=[Part(function_response=response), Part(text="and more")]))
    assert isinstance(walk.error, ValueError)


@pytest.mark.parametrize("confirmed", [True, False])
async def test_a_function_can_need_a_confirmation(confirmed: bool) -> None:
    """1.12.8, 1.2.2."""

    def pay(amount: int) -> str:
        return f"paid {amount}"

    walk = Walk(Workflow(name="wf", edges=[("START", node(pay, require_confirmation=True), echo)]), state={"amount": 3})
    (asked,) = await walk.go()
    (call,) = asked.get_function_calls()
    assert call.id == "wf_tool_confirmation:wf@1/pay@1"
    assert (call.args or {})["payload"] == {"tool_name": "pay", "args": {"amount": 3}}
    events = await walk.answer(call.id, {"confirmed": confirmed})
    if confirmed:
        assert lines_of(events)[0] == "pay@1 = 'paid 3'"
    else:
        assert list(events[0].output) == ["error"]
    assert walk.error is None


async def test_a_tool_is_a_node_and_can_need_a_confirmation() -> None:
    """1.3.4, 1.12.8."""

    def add(a: int, b: int = 2) -> int:
        """Adds."""
        return a + b

    def pair(node_input: Any) -> dict[str, int]:
        return {"a": 1, "b": 9}

    assert lines_of(await Walk(Workflow(name="wf", edges=[("START", FunctionTool(add))])).go("5")) == ["add@1 = 7"]
    assert (
        lines_of(await Walk(Workflow(name="wf", edges=[("START", pair, FunctionTool(add))])).go())[-1] == "add@1 = 10"
    )

    def two(a: int, b: int) -> int:
        """Adds."""
        return a + b

    with_state = Walk(Workflow(name="wf", edges=[("START", pair, FunctionTool(two))]), state={"b": 1})
    assert lines_of(await with_state.go())[-1] == "two@1 = 10"
    lacking = Walk(Workflow(name="wf", edges=[("START", FunctionTool(two))]))
    await lacking.go("5")
    assert isinstance(lacking.error, TypeError)

    walk = Walk(Workflow(name="wf", edges=[("START", FunctionTool(add, require_confirmation=True))]))
    (asked,) = await walk.go("5")
    assert asked.long_running_tool_ids == ["wf_tool_confirmation:wf@1/add@1"]
    assert lines_of(await walk.answer("wf_tool_confirmation:wf@1/add@1", {"confirmed": True})) == ["add@1 = 7"]


async def test_a_confirmation_inside_an_agent_suspends_the_workflow() -> None:
    """1.12.10."""

    def pay(amount: int) -> str:
        """Pays."""
        return f"paid {amount}"

    call = FunctionCall(id="c-1", name="pay", args={"amount": 5})
    payer = LlmAgent(
        name="payer", model=ScriptedModel([call, "Paid."]), tools=[FunctionTool(pay, require_confirmation=True)]
    )
    walk = Walk(Workflow(name="wf", edges=[("START", payer, echo)]))
    asked = await walk.go("pay 5")
    request = next(call for event in asked for call in event.get_function_calls() if "confirm" in (call.name or ""))
    response = FunctionResponse(id=request.id, name=request.name, response={"confirmed": True})
    events = await walk.go(Content(role="user", parts=[Part(function_response=response)]))
    assert lines_of(events) == ["payer@1 pay()", "payer@1 'Paid.'", "echo@1 = 'Paid.'"]


KEY = AuthConfig(
    auth_scheme=AuthScheme(type="apiKey", name="X-Key", in_="header"),
    raw_auth_credential=AuthCredential(auth_type=AuthCredentialTypes.API_KEY),
    credential_key="desk",
)


@node(auth_config=KEY, rerun_on_resume=True)
def by_function(ctx: Context) -> str:
    credential = ctx.get_auth_response(KEY)
    return str(credential.api_key if credential is not None else None)


def by_tool(tool_context: ToolContext) -> str:
    """Needs a key."""
    credential = tool_context.get_auth_response(KEY)
    if credential is None:
        tool_context.request_credential(KEY)
        return "not yet"
    return str(credential.api_key)


async def _log_in(walk: Walk, call_id: str, answer: dict[str, Any]) -> list[Event]:
    response = FunctionResponse(id=call_id, name="adk_request_credential", response=answer)
    return await walk.go(Content(role="user", parts=[Part(function_response=response)]))


@pytest.mark.parametrize("asks", [by_function, FunctionTool(by_tool)])
@pytest.mark.parametrize(
    ("answer", "output"),
    [({"auth_type": "apiKey", "api_key": "k-1"}, "K-1"), ({"error": "access_denied"}, None)],
)
async def test_a_node_waits_for_a_login(asks: Any, answer: dict[str, Any], output: str | None) -> None:
    """1.12.9."""

    def after(node_input: Any) -> str:
        return node_input.upper() if isinstance(node_input, str) else "refused"

    walk = Walk(Workflow(name="wf", edges=[("START", asks, after)]))
    events = await walk.go()
    request_id = f"wf_auth:wf@1/{asks.name}@1"
    (call,) = events[-1].get_function_calls()
    assert (call.name, call.id, events[-1].long_running_tool_ids) == (
        "adk_request_credential",
        request_id,
        [request_id],
    )
    assert sorted(call.args or {}) == ["authConfig", "functionCallId", "message"]
    assert isinstance((await _wrong(walk, request_id)), InvalidRequest | ApprovalRefused)
    events = await _log_in(walk, request_id, answer)
    assert events[-1].output == (output or "refused")
    assert "k-1" not in str([event for event in await walk.log() if event.author == "user"])
    if output is not None and asks is by_function:  # the credential of an earlier run is used
        assert (await walk.go("again"))[-1].output == output


async def _wrong(walk: Walk, request_id: str) -> BaseException | None:
    """Sends an answer without a credential, which is not stored, and returns its error."""
    before = len(await walk.log())
    await _log_in(walk, request_id, {"auth_type": "http"})
    assert len(await walk.log()) == before
    return walk.error
