"""Loop agents: how a loop ends, which loop an escalation ends, and where a run resumes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from greenroom.agents.agent import BaseAgent
from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.workflows import LoopAgent, ParallelAgent, SequentialAgent
from greenroom.errors import AgentConfigError, ModelError
from greenroom.invocation.context import InvocationContext
from greenroom.invocation.user_context import ToolContext
from greenroom.records.content import Content, Part
from greenroom.records.event import Event, EventActions
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.builtin.run_control import exit_loop
from greenroom.tools.functions.function_tool import LongRunningFunctionTool
from tests.agents.talk import Talk, answer, call, checkpoints, lines_of


def export() -> None:
    """Starts an export that answers later."""


WAITING = [LongRunningFunctionTool(export)]


class Counter(BaseAgent):
    """Says how often it was asked, and escalates at last; then says one thing more."""

    last: int = 3

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncIterator[Event]:
        number = int(ctx.session.state.get(self.name, 0)) + 1
        actions = EventActions(state_delta={self.name: number}, escalate=True if number == self.last else None)
        yield Event(author=self.name, branch=ctx.branch, content=_text(f"{number}"), actions=actions)
        yield Event(author=self.name, branch=ctx.branch, content=_text(f"{number} done"))


def _text(text: str) -> Content:
    return Content(role="model", parts=[Part(text=text)])


def speaker(name: str, *turns: object, **options: object) -> LlmAgent:
    return LlmAgent(name=name, model=ScriptedModel(turns, loop=True), **options)  # pyright: ignore


def said(events: list[Event]) -> list[str]:
    return [line for line in lines_of(events) if " sets " not in line]


async def test_it_ends_after_its_rounds() -> None:
    loop = LoopAgent(name="loop", sub_agents=[speaker("a", "1"), speaker("b", "2")], max_iterations=2)
    events = await Talk(loop).say("go")
    assert lines_of(events) == ["a: 1", "b: 2", "a: 1", "b: 2"]
    assert checkpoints(events) == [
        ("loop", None, {"current_sub_agent": "a", "times_looped": 0}),
        ("loop", None, {"current_sub_agent": "b", "times_looped": 0}),
        ("loop", None, {"current_sub_agent": "a", "times_looped": 1}),
        ("loop", None, {"current_sub_agent": "b", "times_looped": 1}),
        ("loop", None, "done"),
    ]


@pytest.mark.parametrize("rounds", [0, -1])
async def test_with_no_rounds_left_nobody_is_asked(rounds: int) -> None:
    events = await Talk(LoopAgent(name="loop", sub_agents=[speaker("a", "never")], max_iterations=rounds)).say("go")
    assert (lines_of(events), checkpoints(events)) == ([], [("loop", None, "done")])


async def test_without_agents_it_is_done_at_once() -> None:
    assert checkpoints(await Talk(LoopAgent(name="loop")).say("go")) == [("loop", None, "done")]


async def test_without_a_limit_it_ends_when_an_agent_escalates_which_finishes_first() -> None:
    loop = LoopAgent(name="loop", sub_agents=[Counter(name="c"), speaker("b", "again")])
    events = await Talk(loop).say("go")
    assert said(events) == ["c: 1", "c: 1 done", "b: again", "c: 2", "c: 2 done", "b: again", "c: 3", "c: 3 done"]
    assert events[-1].actions.end_of_agent


async def test_without_a_limit_it_continues_for_as_long_as_it_takes() -> None:
    events = await Talk(LoopAgent(name="loop", sub_agents=[Counter(name="c", last=40)])).say("go")
    assert said(events)[-1] == "c: 40 done"


async def test_a_model_leaves_it_with_exit_loop_and_the_agents_behind_are_not_asked() -> None:
    critic = speaker("critic", "worse", call("exit_loop"), tools=[exit_loop])
    loop = LoopAgent(name="loop", sub_agents=[critic, speaker("writer", "draft")], max_iterations=9)
    events = await Talk(loop).say("go")
    assert lines_of(events) == [
        "critic: worse",
        "writer: draft",
        "critic: exit_loop()",
        "critic: exit_loop -> {'result': None}",
    ]
    assert events[-1].actions.end_of_agent


async def test_the_agent_that_leaves_it_does_its_other_calls() -> None:
    done: list[str] = []

    def publish(tool_context: ToolContext) -> str:
        done.append("published")
        return "ok"

    critic = speaker("critic", [call("exit_loop"), call("publish")], tools=[exit_loop, publish])
    await Talk(LoopAgent(name="loop", sub_agents=[critic])).say("go")
    assert done == ["published"]


async def test_a_sequence_in_it_is_finished_before_it_ends() -> None:
    sequence = SequentialAgent(name="s", sub_agents=[Counter(name="c", last=1), speaker("b", "still said")])
    loop = LoopAgent(name="loop", sub_agents=[sequence, speaker("d", "never said")])
    assert said(await Talk(loop).say("go")) == ["c: 1", "c: 1 done", "b: still said"]


async def test_branches_in_it_are_finished_before_it_ends() -> None:
    team = ParallelAgent(name="p", sub_agents=[Counter(name="c", last=1), speaker("b", "still said")])
    loop = LoopAgent(name="loop", sub_agents=[team, speaker("d", "never said")])
    lines = said(await Talk(loop).say("go"))
    assert sorted(lines) == ["b: still said", "c: 1", "c: 1 done"]


async def test_an_escalation_is_spent_by_the_nearest_loop() -> None:
    inner = LoopAgent(name="inner", sub_agents=[Counter(name="c", last=1), speaker("x", "never said")])
    outer = LoopAgent(name="outer", sub_agents=[inner, speaker("b", "round over")], max_iterations=1)
    assert said(await Talk(outer).say("go")) == ["c: 1", "c: 1 done", "b: round over"]


async def test_an_escalation_below_a_sequence_below_an_inner_loop_leaves_the_outer_one_running() -> None:
    sequence = SequentialAgent(name="s", sub_agents=[speaker("a", call("exit_loop"), tools=[exit_loop])])
    inner = LoopAgent(name="inner", sub_agents=[sequence])
    outer = LoopAgent(name="outer", sub_agents=[inner, speaker("b", "round over")], max_iterations=2)
    lines = [line for line in lines_of(await Talk(outer).say("go")) if line.startswith("b")]
    assert lines == ["b: round over", "b: round over"]


async def test_an_escalation_of_a_branch_beside_it_is_not_its_own() -> None:
    """Though it comes while the loop's first round is going on."""
    escalated = asyncio.Event()

    async def speak(_: object) -> str:
        await escalated.wait()
        return "turn"

    def note(**_: object) -> None:
        escalated.set()

    loop = LoopAgent(name="loop", sub_agents=[LlmAgent(name="b", model=ScriptedModel(speak))], max_iterations=3)
    beside = speaker("a", call("exit_loop"), tools=[exit_loop], after_agent_callback=note)
    lines = lines_of(await Talk(ParallelAgent(name="p", sub_agents=[beside, loop])).say("go"))
    assert lines.count("b: turn") == 3


async def test_an_escalation_before_it_began_is_not_its_own() -> None:
    loop = LoopAgent(name="loop", sub_agents=[speaker("b", "turn")], max_iterations=2)
    before = speaker("a", call("exit_loop"), tools=[exit_loop])
    lines = lines_of(await Talk(SequentialAgent(name="s", sub_agents=[before, loop])).say("go"))
    assert lines.count("b: turn") == 2


async def test_an_agent_that_was_handed_over_to_can_leave_it() -> None:
    judge = speaker("judge", call("exit_loop"), tools=[exit_loop])
    critic = speaker("critic", call("transfer_to_agent", agent_name="judge"), sub_agents=[judge])
    loop = LoopAgent(name="loop", sub_agents=[critic, speaker("writer", "never said")])
    assert lines_of(await Talk(loop).say("go"))[-1] == "judge: exit_loop -> {'result': None}"


async def test_a_sequence_inside_begins_again_in_each_round() -> None:
    sequence = SequentialAgent(name="s", sub_agents=[speaker("a", "1"), speaker("b", "2")])
    events = await Talk(LoopAgent(name="loop", sub_agents=[sequence], max_iterations=2)).say("go")
    assert lines_of(events) == ["a: 1", "b: 2", "a: 1", "b: 2"]
    assert checkpoints(events).count(("s", None, "done")) == 2


async def test_an_agent_that_fails_ends_the_run() -> None:
    talk = Talk(LoopAgent(name="loop", sub_agents=[speaker("a", "1", ModelError("overloaded", model="scripted"))]))
    with pytest.raises(ModelError):
        await talk.say("go")
    assert lines_of(await talk.log()) == ["user: go", "a: 1", "loop ! ModelError"]


# waiting


async def test_it_is_halted_by_an_agent_that_waits_and_continues_in_the_same_round() -> None:
    waiting = speaker("b", "2", call("export", "x-1"), "exported", tools=WAITING)
    loop = LoopAgent(name="loop", sub_agents=[speaker("a", "1"), waiting, speaker("c", "3")], max_iterations=2)
    talk = Talk(loop)
    halted = await talk.say("go")
    assert lines_of(halted) == ["a: 1", "b: 2", "c: 3", "a: 1", "b: export()"]
    went_on = await talk.say(answer("export", "x-1", {}))
    assert lines_of(went_on) == ["b: exported", "c: 3"]
    assert checkpoints(went_on) == [
        ("loop", None, {"current_sub_agent": "c", "times_looped": 1}),
        ("loop", None, "done"),
    ]


async def test_the_same_agent_may_wait_in_every_round() -> None:
    waiting = speaker("a", call("export", "x-1"), "first", call("export", "x-2"), "second", tools=WAITING)
    talk = Talk(LoopAgent(name="loop", sub_agents=[waiting, speaker("b", "b")], max_iterations=2))
    assert lines_of(await talk.say("go")) == ["a: export()"]
    assert lines_of(await talk.say(answer("export", "x-1", {}))) == ["a: first", "b: b", "a: export()"]
    assert lines_of(await talk.say(answer("export", "x-2", {}))) == ["a: second", "b: b"]


async def test_an_escalation_beside_a_call_that_waits_counts_when_the_answer_has_come() -> None:
    critic = speaker("a", [call("exit_loop"), call("export", "x-1")], "exported", tools=[exit_loop, *WAITING])
    talk = Talk(LoopAgent(name="loop", sub_agents=[critic, speaker("b", "never said")]))
    halted = await talk.say("go")
    assert not any(event.actions.end_of_agent for event in halted)
    went_on = await talk.say(answer("export", "x-1", {}))
    assert checkpoints(went_on) == [("loop", None, "done")]
    assert not any(event.author == "b" for event in went_on)


async def test_an_inner_loop_continues_where_it_was() -> None:
    waiting = speaker("b", "2", call("export", "x-1"), "exported", tools=WAITING)
    inner = LoopAgent(name="inner", sub_agents=[speaker("a", "1"), waiting], max_iterations=2)
    outer = LoopAgent(name="outer", sub_agents=[inner, speaker("c", "3")], max_iterations=1)
    talk = Talk(outer)
    assert lines_of(await talk.say("go")) == ["a: 1", "b: 2", "a: 1", "b: export()"]
    assert lines_of(await talk.say(answer("export", "x-1", {}))) == ["b: exported", "c: 3"]


async def test_an_agent_that_was_at_a_step_that_is_gone_says_so() -> None:
    talk = Talk(LoopAgent(name="loop", sub_agents=[speaker("a", call("export", "x-1"), tools=WAITING)]))
    await talk.say("go")
    new = SequentialAgent(name="new", sub_agents=[speaker("a", "1")])
    talk.runner.agent = LoopAgent(name="loop", sub_agents=[new])
    with pytest.raises(AgentConfigError, match="was at 'a', which is no sub-agent any more"):
        await talk.say(answer("export", "x-1", {}))
