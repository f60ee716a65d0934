"""Handing a conversation over, and who has it on the next message."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from greenroom.agents.agent import BaseAgent
from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.transfer import TransferToAgentTool, transfer_targets, transfer_to_agent
from greenroom.errors import ModelError
from greenroom.invocation.context import InvocationContext
from greenroom.invocation.user_context import ToolContext
from greenroom.records.content import QUOTED_IS_DATA
from greenroom.records.event import Event
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.functions.function_tool import LongRunningFunctionTool
from tests.agents.talk import Talk, answer, call, lines_of, shown


def to(agent: str):
    return call("transfer_to_agent", agent_name=agent)


def names(agents: list[BaseAgent]) -> list[str]:
    return [agent.name for agent in agents]


class Workflow(BaseAgent):
    """Runs its first child, as a workflow agent does."""

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncIterator[Event]:
        async for event in self.sub_agents[0].run_async(ctx):
            yield event


def family(model: ScriptedModel, *, to_parent: bool = True, to_peers: bool = True) -> LlmAgent:
    left = LlmAgent(
        name="left",
        description="The left one.",
        disallow_transfer_to_parent=not to_parent,
        disallow_transfer_to_peers=not to_peers,
        sub_agents=[LlmAgent(name="child")],
    )
    right = LlmAgent(name="right", description="The right one.")
    return LlmAgent(name="root", model=model, sub_agents=[left, right])


@pytest.mark.parametrize(
    ("to_parent", "to_peers", "targets"),
    [
        (True, True, ["child", "root", "right"]),
        (False, True, ["child", "right"]),
        (True, False, ["child", "root"]),
        (False, False, ["child"]),
    ],
)
def test_the_flags_of_an_agent_say_to_whom_it_can_hand_over(
    to_parent: bool, to_peers: bool, targets: list[str]
) -> None:
    root = family(ScriptedModel([]), to_parent=to_parent, to_peers=to_peers)
    left = root.find_agent("left")
    assert isinstance(left, LlmAgent)
    assert names(transfer_targets(left)) == targets
    assert names(transfer_targets(root)) == ["left", "right"]


def test_below_a_workflow_agent_there_is_nobody_to_hand_over_to() -> None:
    inner, peer = LlmAgent(name="inner"), LlmAgent(name="peer")
    Workflow(name="flow", sub_agents=[inner, peer])
    assert transfer_targets(inner) == []


async def test_the_target_continues_in_the_same_run_and_sees_what_was_said() -> None:
    model = ScriptedModel({"root": [to("left")], "left": ["I am left"]})
    talk = Talk(family(model))
    events = await talk.say("left, please")
    assert lines_of(events) == [
        "root: transfer_to_agent(agent_name='left')",
        "root: transfer_to_agent -> {'result': None}",
        "left: I am left",
    ]
    assert len({event.invocation_id for event in events}) == 1
    assert events[1].actions.transfer_to_agent == "left"
    assert shown(model.requests[1]) == [
        "user: left, please",
        f"user: {QUOTED_IS_DATA}",
        'user: [root] called the tool `transfer_to_agent` with <quoted>{"agent_name":"left"}</quoted>',
        f"user: {QUOTED_IS_DATA}",
        'user: [root] got from `transfer_to_agent`: <quoted>{"result":null}</quoted>',
    ]


async def test_the_instructions_name_the_agents_to_transfer_to() -> None:
    model = ScriptedModel({"root": [to("left")], "left": ["hi"]})
    await Talk(family(model)).say("left, please")
    asked_root, asked_left = model.requests
    text = asked_root.config.system_text()
    assert "- left: The left one.\n- right: The right one." in text
    assert "If none of them fits" not in text
    assert "If none of them fits, transfer to root." in asked_left.config.system_text()
    (declaration,) = asked_left.function_declarations()
    schema = declaration.json_schema()
    assert declaration.name == "transfer_to_agent"
    assert schema["properties"]["agent_name"]["type"] == "string"
    assert schema["properties"]["agent_name"]["enum"] == ["child", "right", "root"]
    assert schema["required"] == ["agent_name"]


async def test_an_agent_without_targets_has_neither_the_tool_nor_the_instruction() -> None:
    model = ScriptedModel(["hi"])
    await Talk(LlmAgent(name="alone", model=model)).say("hi")
    assert model.requests[0].function_declarations() == []
    assert model.requests[0].config.system_text() == 'You are the agent "alone".'


async def test_a_conversation_can_go_down_across_and_up_in_one_run() -> None:
    model = ScriptedModel({"root": [to("left"), "back at root"], "left": [to("right")], "right": [to("root")]})
    lines = lines_of(await Talk(family(model)).say("go round"))
    assert [line for line in lines if "->" not in line] == [
        "root: transfer_to_agent(agent_name='left')",
        "left: transfer_to_agent(agent_name='right')",
        "right: transfer_to_agent(agent_name='root')",
        "root: back at root",
    ]


async def test_a_name_that_is_no_target_is_reported_to_the_model() -> None:
    model = ScriptedModel({"root": [to("child"), to("root"), to("nobody"), "then I answer"]})
    lines = lines_of(await Talk(family(model)).say("child, please"))
    assert lines[1] == (
        "root: transfer_to_agent -> {'error': \"There is no agent 'child' to transfer to. Choose one of: left, right\"}"
    )
    assert lines[-1] == "root: then I answer"


async def test_a_tool_can_hand_over_to_the_agents_targets_and_to_nobody_else() -> None:
    def send(to: str, tool_context: ToolContext) -> None:
        tool_context.actions.transfer_to_agent = to

    model = ScriptedModel(
        {"root": [call("send", to="child"), call("send", to="left")], "child": ["never"], "left": ["I am left."]}
    )
    root = family(model)
    root.tools = [send]
    assert lines_of(await Talk(root).say("go")) == [
        "root: send(to='child')",
        "root: send -> {'result': None}",
        "root: send(to='left')",
        "root: send -> {'result': None}",
        "left: I am left.",
    ]


async def test_calls_beside_a_hand_over_are_carried_out_first() -> None:
    def note(word: str) -> str:
        return word

    model = ScriptedModel({"root": [[to("leaf"), call("note", word="x")]], "leaf": ["hello"]})
    root = LlmAgent(name="root", model=model, tools=[note], sub_agents=[LlmAgent(name="leaf")])
    assert lines_of(await Talk(root).say("hi"))[2:] == [
        "root: transfer_to_agent -> {'result': None}",
        "root: note -> {'result': 'x'}",
        "leaf: hello",
    ]


# control that comes back


def lend(agent: str):
    return call("transfer_to_agent", agent_name=agent, **{"return": True})


@pytest.mark.parametrize("offers", [True, False])
async def test_models_see_the_argument_for_it_only_where_an_agent_offers_it(offers: bool) -> None:
    model = ScriptedModel(["hello"])
    root = LlmAgent(name="root", model=model, offers_transfer_return=offers, sub_agents=[LlmAgent(name="leaf")])
    await Talk(root).say("hi")
    (transfer,) = model.requests[0].function_declarations()
    assert ("return" in transfer.json_schema()["properties"]) is offers


async def test_control_comes_back_when_it_was_asked_for_and_the_next_message_with_it() -> None:
    model = ScriptedModel({"root": [lend("left"), "Left says so.", "Still here."], "left": ["I am left."]})
    talk = Talk(family(model))
    events = await talk.say("ask left")
    assert lines_of(events) == [
        "root: transfer_to_agent(agent_name='left', return=True)",
        "root: transfer_to_agent -> {'return': True}",
        "left: I am left.",
        "root: Left says so.",
    ]
    assert len({event.invocation_id for event in events}) == 1
    assert shown(model.requests[-1])[-2:] == [
        f"user: {QUOTED_IS_DATA}",
        "user: [left] said: <quoted>I am left.</quoted>",
    ]
    assert lines_of(await talk.say("and?")) == ["root: Still here."]


async def test_control_can_be_lent_one_after_another_and_by_those_who_have_it() -> None:
    model = ScriptedModel(
        {
            "root": [lend("left"), lend("right"), "All asked."],
            "left": [lend("child"), "The child and I agree."],
            "child": ["Yes."],
            "right": ["No."],
        }
    )
    lines = lines_of(await Talk(family(model)).say("ask all"))
    assert [line for line in lines if "transfer" not in line] == [
        "child: Yes.",
        "left: The child and I agree.",
        "right: No.",
        "root: All asked.",
    ]


async def test_an_agent_that_was_handed_back_to_by_itself_has_the_last_word_once() -> None:
    model = ScriptedModel({"root": [lend("left"), "Thanks.", "Never said."], "left": [to("root")]})
    assert lines_of(await Talk(family(model)).say("ask left"))[-1] == "root: Thanks."
    assert len(model.requests) == 3


async def test_control_comes_back_after_the_other_agent_has_waited() -> None:
    def export() -> None:
        """Starts an export."""

    model = ScriptedModel(
        {
            "root": [lend("left"), "The export is done."],
            "left": [lend("child"), "The child is done."],
            "child": [call("export", "c-1"), "Exported."],
        }
    )
    root = family(model)
    child = root.find_agent("child")
    assert isinstance(child, LlmAgent)
    child.tools = [LongRunningFunctionTool(export)]
    talk = Talk(root)
    waiting = await talk.say("export, please")
    assert lines_of(waiting)[-1] == "child: export()"
    events = await talk.say(answer("export", "c-1", {"rows": 3}))
    assert lines_of(events) == ["child: Exported.", "left: The child is done.", "root: The export is done."]
    assert {event.invocation_id for event in events} == {waiting[0].invocation_id}


async def test_an_answer_that_comes_when_control_has_come_back_goes_to_who_made_the_call() -> None:
    def order() -> str:
        """Orders."""
        return "under way"

    model = ScriptedModel(
        {"root": [lend("left"), "Is it?"], "left": [call("order", "c-1"), "Ordered.", "Chat.", "It is here."]}
    )
    root = family(model)
    left = root.find_agent("left")
    assert isinstance(left, LlmAgent)
    left.tools = [LongRunningFunctionTool(order)]
    talk = Talk(root)
    await talk.say("order, please")
    shipped = await talk.say(answer("order", "c-1", {"status": "shipped"}))
    assert lines_of(shipped) == ["left: Chat.", "root: Is it?"]
    assert lines_of(await talk.say(answer("order", "c-1", {"status": "here"}))) == ["left: It is here."]


# who has the next message


async def answers_next(root: LlmAgent, model: ScriptedModel) -> str:
    """The agent that answers the second message, the model being asked for one answer."""
    talk = Talk(root)
    await talk.say("first")
    model.requests.clear()
    events = await talk.say("second")
    return events[-1].author


async def test_the_agent_that_spoke_last_keeps_the_conversation() -> None:
    model = ScriptedModel({"root": [to("left")], "left": ["one", "two"]})
    assert await answers_next(family(model), model) == "left"


async def test_an_agent_two_levels_down_keeps_the_conversation() -> None:
    model = ScriptedModel({"root": [to("left")], "left": [to("child")], "child": ["one", "two"]})
    assert await answers_next(family(model), model) == "child"


async def test_an_agent_that_may_not_hand_back_does_not_keep_the_conversation() -> None:
    model = ScriptedModel({"root": [to("left"), "two"], "left": ["one"]})
    assert await answers_next(family(model, to_parent=False), model) == "root"


async def test_an_agent_below_one_that_may_not_hand_back_does_not_keep_it_either() -> None:
    model = ScriptedModel({"root": [to("left"), "two"], "left": [to("child")], "child": ["one"]})
    assert await answers_next(family(model, to_parent=False), model) == "root"


async def test_an_agent_below_a_workflow_agent_does_not_keep_the_conversation() -> None:
    model = ScriptedModel({"root": [to("flow"), "two"], "inner": ["one"]})
    inner = LlmAgent(name="inner", model=model)
    root = LlmAgent(name="root", model=model, sub_agents=[Workflow(name="flow", sub_agents=[inner])])
    assert await answers_next(root, model) == "root"


async def test_the_root_keeps_what_the_root_answered() -> None:
    model = ScriptedModel({"root": [to("left"), "one", "two"], "left": [to("root")]})
    assert await answers_next(family(model), model) == "root"


async def test_an_agent_that_is_no_longer_in_the_tree_is_passed_over() -> None:
    model = ScriptedModel({"root": [to("left")], "left": [to("right"), "I still have it"], "right": ["one"]})
    talk = Talk(family(model))
    await talk.say("first")
    smaller = LlmAgent(name="root", model=model, sub_agents=[LlmAgent(name="left", model=model)])
    talk.runner.agent = smaller
    assert lines_of(await talk.say("second")) == ["left: I still have it"]
    talk.runner.agent = LlmAgent(name="root", model=ScriptedModel(["I do it alone now"]))
    assert lines_of(await talk.say("third")) == ["root: I do it alone now"]


async def test_an_agent_that_failed_before_it_said_anything_keeps_what_was_handed_to_it() -> None:
    model = ScriptedModel({"root": [to("left")], "left": [ModelError("down", model="m"), "here I am"]})
    talk = Talk(family(model))
    with pytest.raises(ModelError):
        await talk.say("first")
    assert lines_of(await talk.log())[-1] == "root ! ModelError"
    assert lines_of(await talk.say("second")) == ["left: here I am"]


def team(*tools: Any, script: list[Any]) -> Talk:
    """A desk with two agents to hand over to, whose model follows the script; the others say their name."""
    model = ScriptedModel({"desk": script, "billing": ["I am billing"], "sales": ["I am sales"]})
    children = [LlmAgent(name="billing", description="Bills."), LlmAgent(name="sales")]
    return Talk(LlmAgent(name="desk", model=model, tools=list(tools), sub_agents=children))


async def test_a_tool_for_some_agents_takes_the_place_of_the_built_in_one() -> None:
    """Rows 0.9 and 7.6."""
    tool = TransferToAgentTool(["billing"], include_transfer_reason=True)
    to_billing = call("transfer_to_agent", agent_name="billing", transfer_reason="a wrong bill")
    talk = team(tool, script=[to("sales"), to_billing])
    events = await talk.say("help")
    assert lines_of(events)[1] == (
        "desk: transfer_to_agent -> {'error': \"There is no agent 'sales' to transfer to. Choose one of: billing\"}"
    )
    assert lines_of(events)[-1] == "billing: I am billing"
    actions = events[3].actions
    assert (actions.transfer_to_agent, actions.transfer_reason) == ("billing", "a wrong bill")


async def test_its_declaration_lists_the_agents() -> None:
    plain, with_reason = TransferToAgentTool(["b", "a"]), TransferToAgentTool(["a"], include_transfer_reason=True)
    schema = plain._get_declaration().json_schema()
    assert schema["properties"]["agent_name"]["enum"] == ["b", "a"]
    assert list(schema["properties"]) == schema["required"] == ["agent_name"]
    assert list(with_reason._get_declaration().json_schema()["properties"]) == ["agent_name", "transfer_reason"]


async def test_the_function_hands_over_as_the_tool_does() -> None:
    talk = team(transfer_to_agent, script=[to("sales")])
    assert lines_of(await talk.say("help"))[-1] == "sales: I am sales"
