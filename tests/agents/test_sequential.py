"""Sequential agents: order, what the next one sees, waiting, and where a run resumes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from greenroom.agents.agent import BaseAgent
from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.workflows import SequentialAgent
from greenroom.errors import AgentConfigError, ModelError
from greenroom.invocation.context import InvocationContext
from greenroom.invocation.user_context import CallbackContext, ToolContext
from greenroom.records.content import QUOTED_IS_DATA, Content, Part
from greenroom.records.event import Event, EventActions
from greenroom.runner.in_memory import InMemoryRunner
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.builtin.run_control import exit_loop
from greenroom.tools.functions.function_tool import LongRunningFunctionTool
from tests.agents.talk import Talk, answer, call, checkpoints, lines_of, shown


def export() -> None:
    """Starts an export that answers later."""


def order() -> dict[str, str]:
    """Orders something that comes later."""
    return {"status": "under way"}


WAITING = [LongRunningFunctionTool(export), LongRunningFunctionTool(order)]


class Clerk(BaseAgent):
    """Says what it finds in the state."""

    key: str = "draft"

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncIterator[Event]:
        content = Content(role="model", parts=[Part(text=f"filed {ctx.session.state.get(self.key)}")])
        yield Event(author=self.name, branch=ctx.branch, content=content, actions=EventActions(state_delta={"f": 1}))


def speaker(name: str, *turns: object, **options: object) -> LlmAgent:
    return LlmAgent(name=name, model=ScriptedModel(turns), **options)  # pyright: ignore


async def test_each_agent_runs_to_its_end_before_the_next_begins() -> None:
    def look_up(key: str) -> str:
        return key.upper()

    flow = SequentialAgent(
        name="flow",
        sub_agents=[speaker("a", call("look_up", key="x"), "a done", tools=[look_up]), speaker("b", "b done")],
    )
    assert lines_of(await Talk(flow).say("go")) == [
        "a: look_up(key='x')",
        "a: look_up -> {'result': 'X'}",
        "a: a done",
        "b: b done",
    ]


async def test_it_writes_where_it_is_before_each_agent_and_that_it_is_done() -> None:
    talk = Talk(SequentialAgent(name="flow", sub_agents=[speaker("a", "one"), speaker("b", "two")]))
    events = await talk.say("go")
    assert checkpoints(events) == [
        ("flow", None, {"current_sub_agent": "a"}),
        ("flow", None, {"current_sub_agent": "b"}),
        ("flow", None, "done"),
    ]
    assert [event.author for event in events] == ["flow", "a", "flow", "b", "flow"]
    assert {event.branch for event in await talk.log()} == {None}
    assert all(event.content is None for event in events if event.author == "flow")


async def test_without_agents_it_is_done_at_once() -> None:
    assert checkpoints(await Talk(SequentialAgent(name="flow")).say("go")) == [("flow", None, "done")]


async def test_the_next_agent_sees_what_the_one_before_said_as_context() -> None:
    second = speaker("b", "two")
    await Talk(SequentialAgent(name="flow", sub_agents=[speaker("a", "one"), second])).say("go")
    assert isinstance(second.model, ScriptedModel)
    assert shown(second.model.requests[0]) == [
        "user: go",
        f"user: {QUOTED_IS_DATA}",
        "user: [a] said: <quoted>one</quoted>",
    ]


async def test_an_output_key_hands_a_result_to_the_next_agents_instruction() -> None:
    second = speaker("b", "two", instruction="Improve: {draft}")
    await Talk(SequentialAgent(name="flow", sub_agents=[speaker("a", "one", output_key="draft"), second])).say("go")
    assert isinstance(second.model, ScriptedModel)
    assert "Improve: one" in second.model.requests[0].config.system_text()


async def test_an_escalation_does_not_end_it() -> None:
    first = speaker("a", call("exit_loop"), tools=[exit_loop])
    events = await Talk(SequentialAgent(name="flow", sub_agents=[first, speaker("b", "two")])).say("go")
    assert any(event.actions.escalate for event in events)
    assert lines_of(events)[-1] == "b: two"


async def test_an_agent_that_fails_ends_it_with_its_error() -> None:
    later = speaker("b", "never said")
    broken = ModelError("overloaded", model="scripted")
    talk = Talk(SequentialAgent(name="flow", sub_agents=[speaker("a", broken), later]))
    with pytest.raises(ModelError):
        await talk.say("go")
    assert isinstance(later.model, ScriptedModel)
    assert later.model.requests == []
    log = await talk.log()
    assert lines_of(log) == ["user: go", "flow ! ModelError"]
    assert checkpoints(log) == [("flow", None, {"current_sub_agent": "a"})]


async def test_a_reply_in_which_the_model_says_nothing_does_not_end_it() -> None:
    events = await Talk(SequentialAgent(name="flow", sub_agents=[speaker("a", ""), speaker("b", "two")])).say("go")
    assert lines_of(events) == ["a: ", "a ! MODEL_RETURNED_NO_CONTENT", "b: two"]


async def test_the_next_message_runs_all_of_it_again() -> None:
    talk = Talk(SequentialAgent(name="flow", sub_agents=[speaker("a", "1", "3"), speaker("b", "2", "4")]))
    first, second = await talk.say("go"), await talk.say("again")
    assert lines_of(first) == ["a: 1", "b: 2"]
    assert lines_of(second) == ["a: 3", "b: 4"]
    assert first[0].invocation_id != second[0].invocation_id


async def test_a_custom_agent_is_one_of_the_steps() -> None:
    flow = SequentialAgent(
        name="flow", sub_agents=[speaker("a", "one", output_key="draft"), Clerk(name="clerk"), speaker("b", "two")]
    )
    talk = Talk(flow)
    assert lines_of(await talk.say("go")) == [
        "a: one",
        "a sets {'draft': 'one'}",
        "clerk: filed one",
        "clerk sets {'f': 1}",
        "b: two",
    ]
    assert await talk.state() == {"draft": "one", "f": 1}


async def test_an_agent_that_hands_over_is_over_when_the_other_one_is() -> None:
    helper = speaker("helper", "helped")
    first = speaker("a", call("transfer_to_agent", agent_name="helper"), "never said", sub_agents=[helper])
    events = await Talk(SequentialAgent(name="flow", sub_agents=[first, speaker("b", "two")])).say("go")
    assert [line for line in lines_of(events) if "transfer" not in line] == ["helper: helped", "b: two"]


async def test_an_llm_agent_can_hand_over_to_a_sequence_and_the_next_message_is_the_llm_agents_again() -> None:
    flow = SequentialAgent(name="flow", sub_agents=[speaker("a", "one"), speaker("b", "two")])
    root = speaker("root", call("transfer_to_agent", agent_name="flow"), "Welcome back.", sub_agents=[flow])
    talk = Talk(root)
    assert lines_of(await talk.say("go"))[-2:] == ["a: one", "b: two"]
    assert lines_of(await talk.say("thanks")) == ["root: Welcome back."]


# waiting


async def test_an_agent_that_waits_halts_it_until_the_answer_comes() -> None:
    flow = SequentialAgent(
        name="flow",
        sub_agents=[
            speaker("a", "one"),
            speaker("b", call("export", "x-1"), "exported", tools=WAITING),
            speaker("c", "three"),
        ],
    )
    talk = Talk(flow)
    halted = await talk.say("go")
    assert lines_of(halted) == ["a: one", "b: export()"]
    assert checkpoints(halted)[-1] == ("flow", None, {"current_sub_agent": "b"})

    went_on = await talk.say(answer("export", "x-1", {"rows": 7}))
    assert lines_of(went_on) == ["b: exported", "c: three"]
    assert checkpoints(went_on) == [("flow", None, {"current_sub_agent": "c"}), ("flow", None, "done")]
    assert len({event.invocation_id for event in await talk.log()}) == 1


async def test_first_words_of_a_long_running_call_do_not_let_the_next_agent_begin() -> None:
    first = speaker("a", call("order", "o-1"), "ordered", "It is here.", tools=WAITING)
    talk = Talk(SequentialAgent(name="flow", sub_agents=[first, speaker("b", "two")]))
    assert lines_of(await talk.say("go"))[-1] == "a: ordered"
    assert lines_of(await talk.say(answer("order", "o-1", {"status": "here"}))) == ["a: It is here.", "b: two"]


async def test_of_two_open_calls_the_first_answer_does_not_let_the_next_agent_begin() -> None:
    first = speaker("a", [call("export", "x-1"), call("export", "x-2")], "one to go", "both", tools=WAITING)
    talk = Talk(SequentialAgent(name="flow", sub_agents=[first, speaker("b", "two")]))
    await talk.say("go")
    assert lines_of(await talk.say(answer("export", "x-2", {}))) == ["a: one to go"]
    assert lines_of(await talk.say(answer("export", "x-1", {}))) == ["a: both", "b: two"]


async def test_it_continues_below_an_llm_agent_and_two_sequences() -> None:
    inner = SequentialAgent(
        name="inner",
        sub_agents=[
            speaker("a", "one"),
            speaker("b", call("transfer_to_agent", agent_name="helper"), sub_agents=[
                speaker("helper", call("export", "x-1"), "exported", tools=WAITING)
            ]),
            speaker("c", "three"),
        ],
    )  # fmt: skip
    outer = SequentialAgent(name="outer", sub_agents=[speaker("first", "zero"), inner, speaker("last", "four")])
    talk = Talk(speaker("root", call("transfer_to_agent", agent_name="outer"), "never said", sub_agents=[outer]))
    assert lines_of(await talk.say("go"))[-1] == "helper: export()"
    assert lines_of(await talk.say(answer("export", "x-1", {}))) == ["helper: exported", "c: three", "last: four"]


async def test_another_message_while_it_waits_is_a_run_of_its_own() -> None:
    first = speaker("a", call("export", "x-1"), "still busy", "exported", tools=WAITING)
    talk = Talk(SequentialAgent(name="flow", sub_agents=[first, speaker("b", "two", "three")]))
    waiting = await talk.say("go")
    chat = await talk.say("how far?")
    assert lines_of(chat) == ["a: still busy", "b: two"]
    assert chat[0].invocation_id != waiting[0].invocation_id
    assert lines_of(await talk.say(answer("export", "x-1", {}))) == ["a: exported", "b: three"]


async def test_an_agent_that_was_at_a_step_that_is_gone_says_so() -> None:
    talk = Talk(SequentialAgent(name="flow", sub_agents=[speaker("a", call("export", "x-1"), tools=WAITING)]))
    await talk.say("go")
    talk.runner.agent = SequentialAgent(
        name="flow", sub_agents=[SequentialAgent(name="new", sub_agents=[speaker("a")])]
    )
    with pytest.raises(AgentConfigError, match="was at 'a', which is no sub-agent any more"):
        await talk.say(answer("export", "x-1", {}))


# its callbacks


async def test_its_callbacks_run_once_though_it_was_halted() -> None:
    asked: list[str] = []

    def before(callback_context: CallbackContext) -> None:
        asked.append("before")
        callback_context.state["before"] = callback_context.state.get("before", 0) + 1

    def after(callback_context: CallbackContext) -> None:
        asked.append("after")

    def note(tool_context: ToolContext) -> str:
        return "noted"

    flow = SequentialAgent(
        name="flow",
        sub_agents=[
            speaker("a", call("export", "x-1"), call("note"), "exported", tools=[*WAITING, note]),
            speaker("b", "two"),
        ],
        before_agent_callback=before,
        after_agent_callback=after,
    )
    talk = Talk(flow)
    await talk.say("go")
    await talk.say(answer("export", "x-1", {}))
    assert (await talk.state())["before"] == 1
    assert asked.count("before") == 1
    assert asked[-1] == "after"


async def test_a_callback_that_answers_in_its_place_is_one_step_of_the_sequence_above() -> None:
    def skip(callback_context: CallbackContext) -> Content:
        return Content(role="model", parts=[Part(text="skipped")])

    inner = SequentialAgent(name="inner", sub_agents=[speaker("a", "never said")], before_agent_callback=skip)
    flow = SequentialAgent(name="flow", sub_agents=[inner, speaker("b", "two")])
    assert lines_of(await Talk(flow).say("go")) == ["inner: skipped", "b: two"]


async def test_an_app_that_is_not_resumable_yields_no_checkpoints_and_the_log_has_them() -> None:
    agent = SequentialAgent(name="flow", sub_agents=[LlmAgent(name="a", model=ScriptedModel(["one"]))])
    runner = InMemoryRunner(agent, app_name="app")
    session = await runner.session_service.create_session(app_name="app", user_id="ada")
    message = Content(role="user", parts=[Part(text="go")])
    seen = [event async for event in runner.run_async(user_id="ada", session_id=session.id, new_message=message)]
    assert [event.content.text() for event in seen if event.is_final_response() and event.content] == ["one"]
    assert len(seen) == 1
    stored = await runner.session_service.list_events(app_name="app", user_id="ada", session_id=session.id)
    inner = [event for event in stored.events if event.is_checkpoint()]
    assert len(inner) == 2
    assert [event.is_internal() for event in stored.events] == [False, True, False, True]
    assert not any(event.is_final_response() for event in inner)
