"""A person is asked before a tool runs: approves, refuses, or edits the arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from greenroom.agents.agent import BaseAgent
from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.workflows import LoopAgent, ParallelAgent, SequentialAgent
from greenroom.errors import ApprovalRefused
from greenroom.invocation.user_context import ReadonlyContext, ToolContext
from greenroom.records import wire
from greenroom.records.base import JsonObject
from greenroom.records.content import Content
from greenroom.testing.scripted_model import ScriptedModel, Turn
from greenroom.tools.builtin.run_control import request_input
from greenroom.tools.functions.function_tool import FunctionTool, LongRunningFunctionTool
from greenroom.tools.tool import BaseTool
from greenroom.tools.toolset import BaseToolset
from tests.agents.human_input.approvals import (
    REFUSED,
    WAITS,
    Asking,
    Till,
    decide,
    request_ids,
    requests,
    together,
)
from tests.agents.talk import Talk, call, lines_of, shown


def cashier(till: Till, *script: Turn, name: str = "desk", ask: Any = True, tools: Any = ()) -> LlmAgent:
    pay = FunctionTool(till.pay, require_confirmation=ask)
    return LlmAgent(name=name, model=ScriptedModel(script), tools=[pay, *tools])


def model_of(agent: LlmAgent) -> ScriptedModel:
    assert isinstance(agent.model, ScriptedModel)
    return agent.model


# what is sent


async def test_the_request_comes_before_the_placeholder_and_ends_the_run() -> None:
    till = Till()
    events = await Talk(cashier(till, call("pay", "adk-1", amount=5))).say("pay 5")
    plain: list[JsonObject] = [wire.to_plain(event) for event in events]
    request_id = plain[1]["content"]["parts"][0]["functionCall"]["id"]
    hint = plain[2]["actions"]["requestedToolConfirmations"]["adk-1"]["hint"]
    no_actions = {"stateDelta": {}, "artifactDelta": {}, "requestedAuthConfigs": {}, "requestedToolConfirmations": {}}
    for event in plain:
        assert event.pop("invocationId") == events[0].invocation_id
        del event["id"], event["timestamp"]
    assert plain == [
        {
            "author": "desk",
            "content": {
                "role": "model",
                "parts": [{"functionCall": {"id": "adk-1", "name": "pay", "args": {"amount": 5}}}],
            },
            "actions": no_actions,
            "finishReason": "STOP",
            "longRunningToolIds": [],
        },
        {
            "author": "desk",
            "content": {
                "role": "model",
                "parts": [
                    {
                        "functionCall": {
                            "id": request_id,
                            "name": "adk_request_confirmation",
                            "args": {
                                "originalFunctionCall": {"id": "adk-1", "name": "pay", "args": {"amount": 5}},
                                "toolConfirmation": {"hint": hint, "confirmed": False},
                            },
                        }
                    }
                ],
            },
            "actions": no_actions,
            "longRunningToolIds": [request_id],
        },
        {
            "author": "desk",
            "content": {
                "role": "user",
                "parts": [{"functionResponse": {"id": "adk-1", "name": "pay", "response": WAITS}}],
            },
            "actions": {
                **no_actions,
                "requestedToolConfirmations": {"adk-1": {"hint": hint, "confirmed": False}},
                "skipSummarization": True,
            },
        },
    ]
    assert request_id.startswith("adk-")
    assert request_id != "adk-1"
    assert "pay" in hint
    assert till.paid == []


async def test_beside_a_real_result_the_request_comes_last() -> None:
    till = Till()
    calls = [call("pay", "c-1", amount=5), call("look", "c-2"), call("pay", "c-3", amount=6)]

    def look() -> str:
        """Looks."""
        return "seen"

    events = await Talk(cashier(till, calls, tools=[look])).say("pay and look")
    responses, asking = events[1], events[2]
    assert [r.response for r in responses.get_function_responses()] == [WAITS, {"result": "seen"}, WAITS]
    assert not responses.is_final_response()
    assert sorted(responses.actions.requested_tool_confirmations) == ["c-1", "c-3"]
    assert len(events) == 3
    assert asking.long_running_tool_ids == sorted(request_ids(events))
    originals = [request.args["originalFunctionCall"] for request in requests(events) if request.args]
    assert [original["id"] for original in originals] == ["c-1", "c-3"]


async def test_several_requests_of_one_reply_come_in_one_event_before_their_placeholders() -> None:
    events = await Talk(cashier(Till(), [call("pay", "c-1", amount=5), call("pay", "c-2", amount=6)])).say("pay twice")
    assert [len(event.get_function_calls()) for event in events] == [2, 2, 0]
    assert [r.response for r in events[2].get_function_responses()] == [WAITS, WAITS]


def is_much(amount: int) -> bool:
    return amount > 100


async def is_much_when_asked(amount: int) -> bool:
    return amount > 100


def is_much_of_all(arguments: dict[str, int]) -> bool:
    return arguments["amount"] > 100


def is_much_of_any(**arguments: int) -> bool:
    return arguments["amount"] > 100


@pytest.mark.parametrize("predicate", [is_much, is_much_when_asked, is_much_of_all, is_much_of_any])
async def test_a_predicate_decides_by_the_arguments(predicate: Callable[..., Any]) -> None:
    till = Till()
    talk = Talk(cashier(till, call("pay", amount=100), "Paid.", call("pay", amount=101), ask=predicate))
    assert requests(await talk.say("100")) == []
    assert len(requests(await talk.say("101"))) == 1
    assert till.paid == [100]


async def test_a_tool_that_asks_in_its_body_says_why_and_what_it_wants_to_know() -> None:
    def book(days: int, tool_context: ToolContext) -> dict[str, Any]:
        """Books days off."""
        answer = tool_context.tool_confirmation
        if answer is None:
            tool_context.request_confirmation(hint=f"{days} days off?", payload={"approved_days": 0})
            return {"status": "waiting for the manager"}
        return {"booked": answer.payload["approved_days"], "asked_for": days}

    talk = Talk(LlmAgent(name="desk", model=ScriptedModel([call("book", days=9), "Three it is."]), tools=[book]))
    events = await talk.say("nine days off")
    (request,) = requests(events)
    assert request.args
    assert request.args["toolConfirmation"] == {
        "hint": "9 days off?",
        "confirmed": False,
        "payload": {"approved_days": 0},
    }
    assert lines_of(events)[2] == "desk: book -> {'status': 'waiting for the manager'}"
    answered = await talk.say(decide(request.id or "", payload={"approved_days": 3}))
    assert lines_of(answered) == ["desk: book -> {'booked': 3, 'asked_for': 9}", "desk: Three it is."]


# what is answered


@pytest.mark.parametrize("wrapped", [False, True])
async def test_an_approved_call_runs_once_in_the_same_run_and_the_model_continues(wrapped: bool) -> None:
    till = Till()
    agent = cashier(till, call("pay", "c-1", amount=5), "Paid 5.")
    talk = Talk(agent)
    asked = await talk.say("pay 5")
    answered = await talk.say(decide(*request_ids(asked), wrapped=wrapped))
    assert lines_of(answered) == ["desk: pay -> {'paid': 5}", "desk: Paid 5."]
    assert {event.invocation_id for event in await talk.log()} == {asked[0].invocation_id}
    assert shown(model_of(agent).requests[-1]) == ["user: pay 5", "model: pay(amount=5)", "user: pay -> {'paid': 5}"]
    assert till.paid == [5]


@pytest.mark.parametrize("wrapped", [False, True])
async def test_a_refused_call_does_not_run_and_the_model_gets_the_refusal(wrapped: bool) -> None:
    till = Till()
    agent = cashier(till, call("pay", "c-1", amount=5), "As you wish.")
    talk = Talk(agent)
    asked = await talk.say("pay 5")
    answered = await talk.say(decide(*request_ids(asked), confirmed=False, wrapped=wrapped))
    assert lines_of(answered) == [f"desk: pay -> {REFUSED}", "desk: As you wish."]
    assert shown(model_of(agent).requests[-1])[1:] == ["model: pay(amount=5)", f"user: pay -> {REFUSED}"]
    assert till.paid == []


async def test_a_person_may_edit_the_arguments() -> None:
    till = Till()
    talk = Talk(cashier(till, call("pay", amount=500), "Paid 50."))
    asked = await talk.say("pay 500")
    answered = await talk.say(decide(*request_ids(asked), payload={"amount": 50}))
    assert lines_of(answered) == ["desk: pay -> {'paid': 50}", "desk: Paid 50."]
    assert till.paid == [50]


async def test_edited_arguments_that_do_not_fit_are_reported_to_the_model_and_nothing_runs() -> None:
    till = Till()
    talk = Talk(cashier(till, call("pay", amount=500), "That went wrong."))
    asked = await talk.say("pay 500")
    answered = await talk.say(decide(*request_ids(asked), payload={"amount": "a lot"}))
    assert "pay was not called" in lines_of(answered)[0]
    assert till.paid == []


async def test_a_refusal_with_other_arguments_is_a_refusal() -> None:
    till = Till()
    talk = Talk(cashier(till, call("pay", amount=500), "No."))
    asked = await talk.say("pay 500")
    await talk.say(decide(*request_ids(asked), confirmed=False, payload={"amount": 1}))
    assert till.paid == []


@pytest.mark.parametrize("response", [{}, {"result": "yes"}, {"status": "approved"}, {"response": "{}"}])
async def test_an_answer_that_does_not_say_yes_is_a_refusal(response: JsonObject) -> None:
    till = Till()
    talk = Talk(cashier(till, call("pay", amount=5), "No."))
    (request_id,) = request_ids(await talk.say("pay 5"))
    answer = decide(request_id)
    assert answer.parts
    assert answer.parts[0].function_response
    answer.parts[0].function_response.response = response
    assert lines_of(await talk.say(answer))[0] == f"desk: pay -> {REFUSED}"
    assert till.paid == []


class SmallToolset(BaseToolset):
    """A toolset with one tool."""

    def __init__(self, tool: BaseTool) -> None:
        super().__init__()
        self._tool = tool

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        return [self._tool]


def _as_it_is(tool: BaseTool) -> BaseTool:
    return tool


def _long_running(till: Till) -> BaseTool:
    return LongRunningFunctionTool(till.pay, require_confirmation=True)


def _plain(till: Till) -> BaseTool:
    return FunctionTool(till.pay, require_confirmation=True)


def _own_class(till: Till) -> BaseTool:
    class Pay(Asking):
        async def run_async(self, *, args: JsonObject, tool_context: ToolContext) -> Any:
            first = await super().run_async(args=args, tool_context=tool_context)
            return till.pay(**args) if first["status"] == "done" else first

    return Pay("pay")


@pytest.mark.parametrize("kind", [_plain, _long_running, _own_class])
@pytest.mark.parametrize("wrap", [_as_it_is, SmallToolset])
@pytest.mark.parametrize("confirmed", [True, False])
async def test_an_answer_holds_for_every_kind_of_tool(
    kind: Callable[[Till], BaseTool], wrap: Callable[[BaseTool], Any], confirmed: bool
) -> None:
    till = Till()
    talk = Talk(
        LlmAgent(name="desk", model=ScriptedModel([call("pay", amount=5), "So be it."]), tools=[wrap(kind(till))])
    )
    asked = await talk.say("pay 5")
    assert till.paid == []
    answered = await talk.say(decide(*request_ids(asked), confirmed=confirmed))
    outcome = {"paid": 5} if confirmed else REFUSED
    assert lines_of(answered) == [f"desk: pay -> {outcome}", "desk: So be it."]
    assert till.paid == ([5] if confirmed else [])


async def test_a_long_running_call_that_was_approved_stays_open_until_its_result_comes() -> None:
    started: list[str] = []

    def export(table: str) -> None:
        """Starts an export."""
        started.append(table)

    tool = LongRunningFunctionTool(export, require_confirmation=True)
    talk = Talk(LlmAgent(name="desk", model=ScriptedModel([call("export", "c-1", table="t"), "Done."]), tools=[tool]))
    asked = await talk.say("export")
    assert await talk.say(decide(*request_ids(asked))) == []
    assert started == ["t"]
    result = decide("c-1")
    assert result.parts
    assert result.parts[0].function_response
    result.parts[0].function_response.name = "export"
    assert lines_of(await talk.say(result)) == ["desk: Done."]


async def test_a_callback_may_ask_for_any_tool() -> None:
    till = Till()

    def ask_first(tool: BaseTool, args: JsonObject, tool_context: ToolContext) -> JsonObject | None:
        if tool_context.tool_confirmation is None:
            tool_context.request_confirmation(hint=f"May {tool.name} run?")
            return {"status": "asked"}
        return None

    model = ScriptedModel([call("pay", amount=5), "Paid."])
    talk = Talk(LlmAgent(name="desk", model=model, tools=[till.pay], before_tool_callback=ask_first))
    asked = await talk.say("pay 5")
    assert till.paid == []
    assert lines_of(await talk.say(decide(*request_ids(asked)))) == ["desk: pay -> {'paid': 5}", "desk: Paid."]


# several requests


async def test_several_requests_may_be_answered_in_one_message_each_as_it_is() -> None:
    till = Till()
    calls = [call("pay", f"c-{n}", amount=n) for n in (1, 2, 3)]
    talk = Talk(cashier(till, calls, "Two of three."))
    first, second, third = request_ids(await talk.say("pay three times"))
    message = together(decide(third), decide(first, confirmed=False), decide(second, payload={"amount": 20}))
    answered = await talk.say(message)
    assert sorted(till.paid) == [3, 20]
    assert {r.id: r.response for r in answered[0].get_function_responses()} == {
        "c-1": REFUSED,
        "c-2": {"paid": 20},
        "c-3": {"paid": 3},
    }
    assert len(answered) == 2


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
async def test_requests_may_be_answered_one_by_one_in_any_order(order: tuple[int, ...]) -> None:
    till = Till()
    calls = [call("pay", f"c-{n}", amount=n) for n in (1, 2, 3)]
    agent = cashier(till, calls, "One.", "Two.", "Three.")
    talk = Talk(agent)
    ids = request_ids(await talk.say("pay three times"))
    for count, chosen in enumerate(order, 1):
        await talk.say(decide(ids[chosen]))
        assert till.paid == [n + 1 for n in order[:count]]
        results = [{"paid": n + 1} if n in order[:count] else WAITS for n in range(3)]
        assert shown(model_of(agent).requests[-1])[4:7] == [f"user: pay -> {result}" for result in results]


async def test_a_request_stays_open_while_the_conversation_continues() -> None:
    till = Till()
    agent = cashier(till, call("pay", amount=5), "It waits for you.", "Paid.")
    talk = Talk(agent)
    asked = await talk.say("pay 5")
    assert lines_of(await talk.say("and?")) == ["desk: It waits for you."]
    assert shown(model_of(agent).requests[-1]) == [
        "user: pay 5",
        "model: pay(amount=5)",
        f"user: pay -> {WAITS}",
        "user: and?",
    ]
    answered = await talk.say(decide(*request_ids(asked)))
    assert lines_of(answered) == ["desk: pay -> {'paid': 5}", "desk: Paid."]
    assert answered[0].invocation_id == asked[0].invocation_id


async def test_an_approval_beside_another_calls_answer_counts() -> None:
    till = Till()

    def export() -> None:
        """Starts an export."""

    calls = [call("pay", "c-1", amount=5), call("export", "c-2")]
    agent = cashier(till, calls, "Both done.", tools=[LongRunningFunctionTool(export)])
    talk = Talk(agent)
    asked = await talk.say("pay and export")
    export_result = decide("c-2")
    assert export_result.parts
    assert export_result.parts[0].function_response
    export_result.parts[0].function_response.name = "export"
    answered = await talk.say(together(export_result, decide(*request_ids(asked))))
    assert lines_of(answered) == ["desk: pay -> {'paid': 5}", "desk: Both done."]
    assert till.paid == [5]


async def test_a_tool_may_ask_a_second_time_after_an_approval() -> None:
    tool = Asking(times=2, payload={"level": 1})
    talk = Talk(LlmAgent(name="desk", model=ScriptedModel([call("ask", "c-1"), "Done."]), tools=[tool]))
    first = await talk.say("go")
    second = await talk.say(decide(*request_ids(first), payload={"level": 5}))
    (request,) = requests(second)
    assert request.args
    assert request.args["toolConfirmation"]["hint"] == "Question 2"
    with pytest.raises(ApprovalRefused, match="answered before"):
        await talk.say(decide(*request_ids(first)))
    last = await talk.say(decide(request.id or "", payload={"level": 7}))
    assert lines_of(last) == ["desk: ask -> {'status': 'done'}", "desk: Done."]
    assert tool.seen == [({}, None), ({}, {"level": 5}), ({}, {"level": 7})]


async def test_a_tool_that_asks_again_is_asked_about_the_edited_arguments() -> None:
    tool = Asking(times=2)
    talk = Talk(LlmAgent(name="desk", model=ScriptedModel([call("ask", "c-1", n=1), "Done."]), tools=[tool]))
    first = await talk.say("go")
    second = await talk.say(decide(*request_ids(first), payload={"n": 2}))
    (request,) = requests(second)
    assert request.args
    assert request.args["originalFunctionCall"]["args"] == {"n": 2}
    await talk.say(decide(request.id or ""))
    assert [args for args, _ in tool.seen] == [{"n": 1}, {"n": 2}, {"n": 2}]


# at any depth


def _speaker(name: str, *script: Turn) -> LlmAgent:
    return LlmAgent(name=name, model=ScriptedModel(script))


def in_a_sequence(payer: LlmAgent) -> BaseAgent:
    return SequentialAgent(name="seq", sub_agents=[_speaker("first", "1"), payer, _speaker("last", "3")])


def in_a_loop(payer: LlmAgent) -> BaseAgent:
    return LoopAgent(name="loop", max_iterations=1, sub_agents=[_speaker("first", "1"), payer, _speaker("last", "3")])


def beside_another(payer: LlmAgent) -> BaseAgent:
    both = ParallelAgent(name="both", sub_agents=[_speaker("first", "1"), payer])
    return SequentialAgent(name="seq", sub_agents=[both, _speaker("last", "3")])


def behind_a_handover(payer: LlmAgent) -> BaseAgent:
    desk = LlmAgent(
        name="desk", model=ScriptedModel([call("transfer_to_agent", agent_name="payer")]), sub_agents=[payer]
    )
    return SequentialAgent(name="seq", sub_agents=[_speaker("first", "1"), desk, _speaker("last", "3")])


def deep_down(payer: LlmAgent) -> BaseAgent:
    inner = SequentialAgent(name="inner", sub_agents=[_speaker("first", "1"), payer])
    loop = LoopAgent(name="loop", max_iterations=1, sub_agents=[inner])
    both = ParallelAgent(name="both", sub_agents=[loop, _speaker("other", "2")])
    return SequentialAgent(name="outer", sub_agents=[both, _speaker("last", "3")])


TREES = [in_a_sequence, in_a_loop, beside_another, behind_a_handover, deep_down]


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("confirmed", [True, False])
async def test_the_tree_halts_where_it_asks_and_continues_from_there(
    tree: Callable[[LlmAgent], BaseAgent], confirmed: bool
) -> None:
    till = Till()
    talk = Talk(tree(cashier(till, call("pay", "c-1", amount=5), "Settled.", name="payer")))
    asked = await talk.say("go")
    assert not any(event.author == "last" for event in asked)
    answered = await talk.say(decide(*request_ids(asked), confirmed=confirmed))
    outcome = {"paid": 5} if confirmed else REFUSED
    assert lines_of(answered) == [f"payer: pay -> {outcome}", "payer: Settled.", "last: 3"]
    assert till.paid == ([5] if confirmed else [])
    assert {event.invocation_id for event in await talk.log()} == {asked[0].invocation_id}


async def test_branches_that_both_ask_may_be_answered_apart_or_together() -> None:
    for at_once in (True, False):
        tills = {name: Till() for name in ("a", "b")}
        branches = [
            cashier(till, call("pay", "call_0", amount=n), f"{name} done", name=name)
            for n, (name, till) in enumerate(tills.items(), 1)
        ]
        both = ParallelAgent(name="both", sub_agents=branches)
        talk = Talk(SequentialAgent(name="seq", sub_agents=[both, _speaker("last", "the end")]))
        asked = await talk.say("go")
        ids = {event.author: request_ids([event]) for event in asked if request_ids([event])}
        if at_once:
            answered = await talk.say(decide(*ids["b"], *ids["a"]))
        else:
            halfway = await talk.say(decide(*ids["b"]))
            assert lines_of(halfway) == ["b: pay -> {'paid': 2}", "b: b done"]
            answered = await talk.say(decide(*ids["a"]))
        assert lines_of(answered)[-1] == "last: the end"
        assert (tills["a"].paid, tills["b"].paid) == ([1], [2])


async def test_a_handover_beside_a_call_that_needs_approval_waits_for_the_answer() -> None:
    till = Till()
    calls = [call("transfer_to_agent", "t-1", agent_name="clerk"), call("pay", "c-1", amount=5)]
    agent = LlmAgent(
        name="desk",
        model=ScriptedModel([calls, "Paid."]),
        tools=[FunctionTool(till.pay, require_confirmation=True)],
        sub_agents=[_speaker("clerk", "never")],
    )
    talk = Talk(agent)
    asked = await talk.say("go")
    assert lines_of(await talk.say(decide(*request_ids(asked)))) == ["desk: pay -> {'paid': 5}", "desk: Paid."]


async def test_a_loop_asks_again_in_each_round() -> None:
    till = Till()
    payer = cashier(till, call("pay", "c-1", amount=1), "once", call("pay", "c-2", amount=2), "twice", name="payer")
    talk = Talk(LoopAgent(name="loop", max_iterations=2, sub_agents=[payer]))
    first = await talk.say("go")
    second = await talk.say(decide(*request_ids(first)))
    assert till.paid == [1]
    last = await talk.say(decide(*request_ids(second)))
    assert lines_of(last) == ["payer: pay -> {'paid': 2}", "payer: twice"]
    assert till.paid == [1, 2]


async def test_a_person_is_asked_again_for_every_call() -> None:
    """Models may give the same id to every call."""
    till = Till()
    talk = Talk(cashier(till, call("pay", "call_0", amount=1), "once", call("pay", "call_0", amount=2), "twice"))
    first = await talk.say("pay 1")
    await talk.say(decide(*request_ids(first)))
    second = await talk.say("pay 2")
    assert till.paid == [1]
    await talk.say(decide(*request_ids(second)))
    assert till.paid == [1, 2]


async def test_free_input_is_asked_for_and_the_answer_reaches_the_model() -> None:
    asking = call("adk_request_input", "i-1", message="Which colour?", response_schema={"type": "object"})
    desk = LlmAgent(name="payer", model=ScriptedModel([asking, "Blue it is."]), tools=[request_input])
    talk = Talk(deep_down(desk))
    asked = await talk.say("paint it")
    (event,) = [event for event in asked if event.get_function_calls()]
    assert event.long_running_tool_ids == ["i-1"]
    assert not any(event.author == "last" for event in asked)
    message: Content = decide("i-1")
    assert message.parts
    assert message.parts[0].function_response
    message.parts[0].function_response.name = "adk_request_input"
    message.parts[0].function_response.response = {"colour": "blue"}
    assert lines_of(await talk.say(message)) == ["payer: Blue it is.", "last: 3"]
    assert shown(model_of(desk).requests[-1])[-1] == "user: adk_request_input -> {'colour': 'blue'}"
