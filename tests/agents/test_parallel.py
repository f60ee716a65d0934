"""Parallel agents: what each sees, whose state wins, cancellation, and where a run resumes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from greenroom.agents.agent import BaseAgent
from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.workflows import LoopAgent, ParallelAgent, Reducer, SequentialAgent
from greenroom.errors import AgentConfigError, BranchFailed, ModelError
from greenroom.invocation.context import InvocationContext
from greenroom.invocation.user_context import ToolContext
from greenroom.models.model import BaseLlm
from greenroom.records.base import JsonValue
from greenroom.records.content import QUOTED_IS_DATA, Content, Part
from greenroom.records.event import Event, EventActions
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.records.run import RunStatus
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.builtin.run_control import exit_loop
from greenroom.tools.functions.function_tool import LongRunningFunctionTool
from tests.agents.talk import STREAMED, Talk, answer, call, checkpoints, lines_of, shown
from tests.durability.engines import asking, ended, engine_over, start, stores_in


def export() -> None:
    """Starts an export that answers later."""


WAITING = [LongRunningFunctionTool(export)]


def speaker(name: str, *turns: object, **options: object) -> LlmAgent:
    return LlmAgent(name=name, model=ScriptedModel(turns), **options)  # pyright: ignore


def requests_of(agent: LlmAgent) -> list[LlmRequest]:
    assert isinstance(agent.model, ScriptedModel)
    return agent.model.requests


def waiter(name: str, call_id: str, *turns: str) -> LlmAgent:
    """Waits for the answer to a call, then says what is left."""
    return speaker(name, call("export", call_id), *turns, tools=WAITING)


class Writer(BaseAgent):
    """Writes each of its values to the state, an event each."""

    key: str = "key"
    values: tuple[JsonValue, ...] = ()

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncIterator[Event]:
        for value in self.values:
            yield Event(author=self.name, branch=ctx.branch, actions=EventActions(state_delta={self.key: value}))


# side by side


async def test_branches_run_at_the_same_time_and_their_events_come_as_they_are_made() -> None:
    begun = {"a": asyncio.Event(), "b": asyncio.Event()}

    async def meet(name: str, other: str) -> str:
        begun[name].set()
        await begun[other].wait()
        return "met"

    team = ParallelAgent(
        name="team",
        sub_agents=[
            speaker("a", call("meet", name="a", other="b"), "a done", tools=[meet]),
            speaker("b", call("meet", name="b", other="a"), "b done", tools=[meet]),
        ],
    )
    events = await Talk(team).say("go")
    assert sorted(line for line in lines_of(events) if "done" in line) == ["a: a done", "b: b done"]
    for name in ("a", "b"):
        assert [line for line in lines_of(events) if line.startswith(name)] == [
            f"{name}: meet(name={name!r}, other={'b' if name == 'a' else 'a'!r})",
            f"{name}: meet -> {{'result': 'met'}}",
            f"{name}: {name} done",
        ]


async def test_it_writes_that_it_has_begun_and_that_it_is_done() -> None:
    events = await Talk(ParallelAgent(name="team", sub_agents=[speaker("a", "1"), speaker("b", "2")])).say("go")
    assert checkpoints(events) == [("team", None, {}), ("team", None, "done")]
    assert events[0].actions.agent_state == {}
    assert events[-1].actions.end_of_agent


async def test_without_agents_nothing_happens() -> None:
    assert await Talk(ParallelAgent(name="team")).say("go") == []


async def test_a_branch_continues_when_its_event_has_been_taken() -> None:
    looked: list[str] = []

    async def look(name: str) -> str:
        looked.append(name)
        return name

    agents = [speaker(name, call("look", name=name), f"{name} done", tools=[look]) for name in ("a", "b")]
    talk = Talk(ParallelAgent(name="team", sub_agents=agents))
    seen: list[str] = []
    async with aclosing(talk.events("go")) as events:
        async for event in events:
            for _ in range(50):
                await asyncio.sleep(0)  # lets the other tasks run
            seen.append(event.author)
            for agent in agents:
                done = sum(author == agent.name for author in seen)
                assert len(requests_of(agent)) + looked.count(agent.name) <= done + 1
    assert sorted(seen) == sorted(["team", *["a", "b"] * 3, "team"])


# what an agent sees


async def test_a_branch_sees_what_was_before_it_and_its_own_and_not_its_siblings() -> None:
    a = speaker("a", call("look"), "a done", tools=[look])
    b = speaker("b", "b done")
    flow = SequentialAgent(
        name="flow", sub_agents=[speaker("first", "before"), ParallelAgent(name="team", sub_agents=[a, b])]
    )
    events = await Talk(flow).say("go")
    before = ["user: go", f"user: {QUOTED_IS_DATA}", "user: [first] said: <quoted>before</quoted>"]
    assert shown(requests_of(a)[0]) == before
    assert shown(requests_of(a)[1]) == [*before, "model: look()", "user: look -> {'result': 'seen'}"]
    assert shown(requests_of(b)[0]) == before
    assert {(event.author, event.branch) for event in events} >= {("a", "team.a"), ("b", "team.b"), ("team", None)}


def look() -> str:
    return "seen"


async def test_in_the_next_run_a_branch_still_does_not_see_its_siblings() -> None:
    a, b = speaker("a", "a one", "a two"), speaker("b", "b one", "b two")
    talk = Talk(ParallelAgent(name="team", sub_agents=[a, b]))
    await talk.say("go")
    await talk.say("again")
    assert shown(requests_of(a)[1]) == ["user: go", "model: a one", "user: again"]
    assert shown(requests_of(b)[1]) == ["user: go", "model: b one", "user: again"]


async def test_the_agent_after_the_branches_sees_them_all() -> None:
    writer = speaker("writer", "all of it")
    team = ParallelAgent(name="team", sub_agents=[speaker("a", "1"), speaker("b", "2")])
    await Talk(SequentialAgent(name="flow", sub_agents=[team, writer])).say("go")
    lines = shown(requests_of(writer)[0])
    assert lines[0] == "user: go"
    assert sorted(line for line in lines if "said" in line) == [
        "user: [a] said: <quoted>1</quoted>",
        "user: [b] said: <quoted>2</quoted>",
    ]


async def test_an_agent_after_nested_branches_does_not_see_into_them_and_reads_the_state() -> None:
    inner = ParallelAgent(name="inner", sub_agents=[speaker("a", "1", output_key="from_a"), speaker("b", "2")])
    writer = speaker("writer", "written", instruction="Use {from_a}.")
    outer = ParallelAgent(name="outer", sub_agents=[SequentialAgent(name="s", sub_agents=[inner, writer])])
    events = await Talk(outer).say("go")
    assert shown(requests_of(writer)[0]) == ["user: go"]
    assert "Use 1." in requests_of(writer)[0].config.system_text()
    assert {event.author: event.branch for event in events if event.author in "ab"} == {
        "a": "outer.s.inner.a",
        "b": "outer.s.inner.b",
    }
    assert {event.branch for event in events if event.author in ("writer", "inner", "s")} == {"outer.s"}


async def test_an_agent_that_is_transferred_to_stays_in_the_branch() -> None:
    helper = speaker("helper", "helped")
    a = speaker("a", call("transfer_to_agent", agent_name="helper"), sub_agents=[helper])
    b = speaker("b", "2")
    events = await Talk(ParallelAgent(name="team", sub_agents=[a, b])).say("go")
    assert {event.branch for event in events if event.author in ("a", "helper")} == {"team.a"}
    assert any("[a] called the tool" in line for line in shown(requests_of(helper)[0]))
    assert shown(requests_of(b)[0]) == ["user: go"]


async def test_a_branch_whose_name_begins_like_another_one_is_apart_from_it() -> None:
    a = speaker("a", call("look"), "1", tools=[look])
    ab = speaker("ab", call("look"), "2", tools=[look])
    await Talk(ParallelAgent(name="team", sub_agents=[a, ab])).say("go")
    own = ["user: go", "model: look()", "user: look -> {'result': 'seen'}"]
    assert shown(requests_of(a)[1]) == shown(requests_of(ab)[1]) == own


def test_a_branch_can_not_lie_in_its_siblings() -> None:
    with pytest.raises(AgentConfigError, match=r"the branch of 'a\.b' would lie in that of 'a'"):
        ParallelAgent(name="team", sub_agents=[speaker("a"), speaker("a.b")])


# state


@pytest.mark.parametrize(
    ("reducer", "left", "right", "result"),
    [
        ("append", [1], [2, 3], [1, 2, 3]),
        ("merge", {"x": 1, "y": 1}, {"y": 2}, {"x": 1, "y": 2}),
        ("sum", 2, 0.5, 2.5),
        (max, 3, 7, 7),
        (" + ".join, "l", "r", "l + r"),
    ],
)
async def test_what_several_branches_wrote_is_reduced_in_the_order_of_the_agents(
    reducer: Reducer, left: JsonValue, right: JsonValue, result: JsonValue
) -> None:
    team = ParallelAgent(
        name="team",
        # The one on the left writes its last value after the other one has.
        sub_agents=[Writer(name="l", values=("old", "older", left)), Writer(name="r", values=(right,))],
        state_reducers={"key": reducer},
    )
    talk = Talk(team)
    events = await talk.say("go")
    assert events[-1].actions.state_delta == {"key": result}
    assert (await talk.state())["key"] == result


async def test_without_a_reducer_the_last_in_the_log_wins_and_no_event_is_lost() -> None:
    team = ParallelAgent(name="team", sub_agents=[Writer(name="l", values=(1, 2, 3)), Writer(name="r", values=(4,))])
    talk = Talk(team)
    await talk.say("go")
    written = [event.actions.state_delta["key"] for event in await talk.log() if event.actions.state_delta]
    assert sorted(written) == [1, 2, 3, 4]
    assert await talk.state() == {"key": written[-1]}


async def test_what_one_branch_wrote_stays_as_it_is() -> None:
    team = ParallelAgent(
        name="team",
        sub_agents=[Writer(name="l", values=([1], [2])), Writer(name="r", key="other", values=(1,))],
        state_reducers={"key": "append"},
    )
    talk = Talk(team)
    events = await talk.say("go")
    assert events[-1].actions.state_delta == {}
    assert await talk.state() == {"key": [2], "other": 1}


async def test_what_was_in_the_state_before_and_in_an_earlier_run_is_not_reduced_again() -> None:
    team = ParallelAgent(
        name="team",
        sub_agents=[Writer(name="l", values=(1,)), Writer(name="r", values=(2,))],
        state_reducers={"key": "sum"},
    )
    talk = Talk(team, state={"key": 100})
    await talk.say("go")
    await talk.say("go")
    assert await talk.state() == {"key": 3}


async def test_nested_branches_are_reduced_first() -> None:
    inner = ParallelAgent(
        name="inner",
        sub_agents=[Writer(name="a", values=(1,)), Writer(name="b", values=(2,))],
        state_reducers={"key": "sum"},
    )
    outer = ParallelAgent(
        name="outer", sub_agents=[inner, Writer(name="c", values=(10,))], state_reducers={"key": "sum"}
    )
    talk = Talk(outer)
    await talk.say("go")
    assert await talk.state() == {"key": 13}


async def test_in_a_loop_each_round_is_reduced_by_itself() -> None:
    team = ParallelAgent(
        name="team",
        sub_agents=[Writer(name="a", values=(1,)), Writer(name="b", values=(2,))],
        state_reducers={"key": "sum"},
    )
    talk = Talk(LoopAgent(name="loop", sub_agents=[team], max_iterations=2))
    await talk.say("go")
    assert await talk.state() == {"key": 3}


async def test_values_that_do_not_fit_the_reducer_fail_the_run_and_are_named() -> None:
    team = ParallelAgent(
        name="team",
        sub_agents=[Writer(name="a", values=(1,)), Writer(name="b", values=("x",))],
        state_reducers={"key": "sum"},
    )
    with pytest.raises(AgentConfigError, match="'team' can't reduce what its branches wrote to 'key'"):
        await Talk(team).say("go")


def test_an_unknown_reducer_is_refused() -> None:
    reducers: Any = {"key": "multiply"}
    with pytest.raises(AgentConfigError, match="the reducer of 'key' must be"):
        ParallelAgent(name="team", state_reducers=reducers)


# failing and stopping


async def test_a_branch_that_fails_ends_the_others_and_is_named() -> None:
    holding, let_go = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        holding.set()
        try:
            await asyncio.Event().wait()
        finally:
            let_go.set()

    async def fail(request: LlmRequest) -> str:
        await holding.wait()
        raise ModelError("overloaded", model="scripted")

    talk = Talk(
        ParallelAgent(
            name="team",
            sub_agents=[speaker("a", call("hold"), "never said", tools=[hold]), speaker("b", fail)],
        )
    )
    with pytest.raises(BranchFailed, match=r"Branch 'team\.b' failed: ModelError: .*overloaded") as failure:
        await talk.say("go")
    assert failure.value.branch == "team.b"
    assert isinstance(failure.value.__cause__, ModelError)
    assert let_go.is_set()
    log = await talk.log()
    assert lines_of(log) == ["user: go", "a: hold()", "team ! BranchFailed"]
    assert not any(event.actions.end_of_agent for event in log)


class HalfSaid(BaseLlm):
    """Sends half a text, sets an event, and then waits for ever, or fails when it may."""

    def __init__(self, text: str, *, fails_after: asyncio.Event | None = None) -> None:
        super().__init__(model="half")
        self.text = text
        self.heard = asyncio.Event()
        self.fails_after = fails_after

    async def generate_content_async(self, llm_request: LlmRequest, stream: bool = False) -> AsyncIterator[LlmResponse]:
        yield LlmResponse(content=Content(role="model", parts=[Part(text=self.text)]), partial=True)
        self.heard.set()
        await (self.fails_after or asyncio.Event()).wait()
        raise ModelError("overloaded", model="half")


async def test_what_several_branches_were_saying_when_one_failed_is_kept_apart() -> None:
    sibling = HalfSaid("half of it")
    models = {"a": sibling, "b": HalfSaid("the rest", fails_after=sibling.heard)}
    team = [LlmAgent(name=name, model=model) for name, model in models.items()]
    seen: list[Event] = []
    talk = Talk(ParallelAgent(name="team", sub_agents=team))
    with pytest.raises(BranchFailed):
        async for event in talk.events("go", run_config=STREAMED):
            seen.append(event)
    chunks = {event.author: event.id for event in seen if event.partial}
    half, end = (await talk.log())[-2:]
    assert [(e.id, e.branch, e.interrupted) for e in (half, end)] == [
        (chunks["a"], "team.a", True),
        (chunks["b"], "team.b", True),
    ]
    assert lines_of([half, end]) == ["a: half of it", "b: the rest", "b ! BranchFailed"]
    assert [event for event in seen if not event.partial][-2:] == [half, end]


async def test_a_branch_that_fails_in_silence_does_not_speak_for_its_siblings() -> None:
    half = HalfSaid("half of it")

    async def fail(request: LlmRequest) -> str:
        await half.heard.wait()
        raise ModelError("overloaded", model="scripted")

    talk = Talk(ParallelAgent(name="team", sub_agents=[LlmAgent(name="a", model=half), speaker("b", fail)]))
    with pytest.raises(BranchFailed):
        await talk.say("go", run_config=STREAMED)
    *_, kept, end = await talk.log()
    assert lines_of([kept, end]) == ["a: half of it", "team ! BranchFailed"]
    assert (kept.error_code, end.content, end.branch) == (None, None, None)


async def _settle() -> None:
    """Lets all that is ready run."""
    for _ in range(50):
        await asyncio.sleep(0)


async def test_an_event_of_a_sibling_does_not_part_a_response_from_the_error_of_its_tool() -> None:
    """It may be stored before the others are stopped; were the response stored with it, a crash would lose the error."""
    is_held = asyncio.Event()

    async def speak(request: LlmRequest) -> str:
        await is_held.wait()
        return "said"

    async def stumble() -> None:
        await is_held.wait()
        await _settle()
        raise RuntimeError("hard")

    team = [speaker("a", call("stumble"), tools=[stumble]), speaker("b", speak), speaker("c", "first")]
    talk = Talk(ParallelAgent(name="team", sub_agents=team))
    with pytest.raises(BranchFailed):
        async for event in talk.events("go"):
            if event.author == "c":  # the others act while this reader holds their channel
                is_held.set()
                await _settle()
                await _settle()
    spoken, end = (await talk.log())[-2:]
    assert lines_of([spoken]) == ["b: said"]
    assert (end.author, end.branch, end.error_code) == ("a", "team.a", "BranchFailed")
    assert [response.name for response in end.get_function_responses()] == ["stumble"]


async def test_of_two_tools_that_fail_at_once_only_the_one_that_is_named_ends_the_run() -> None:
    may_fail = asyncio.Event()

    async def stumble() -> None:
        await may_fail.wait()
        raise RuntimeError("hard")

    async def begin(request: LlmRequest) -> str:
        await _settle()
        may_fail.set()
        await asyncio.Event().wait()
        return "never said"

    team = [speaker(name, call("stumble"), tools=[stumble]) for name in "ab"]
    talk = Talk(ParallelAgent(name="team", sub_agents=[*team, speaker("c", begin)]))
    with pytest.raises(BranchFailed) as failure:
        await talk.say("go")
    other, end = (await talk.log())[-2:]
    assert (end.branch, end.error_code) == (failure.value.branch, "BranchFailed")
    assert {other.branch, end.branch} == {"team.a", "team.b"}
    assert len(other.get_function_responses()) == 1
    assert other.error_code is None


class Forgiving(BaseAgent):
    """Speaks after its sub-agent, whatever becomes of that."""

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncIterator[Event]:
        try:
            async with aclosing(self.sub_agents[0].run_async(ctx)) as events:
                async for event in events:
                    yield event
        except RuntimeError:
            yield Event(
                author=self.name, branch=ctx.branch, content=Content(role="model", parts=[Part(text="so be it")])
            )


async def test_an_error_that_an_agent_in_a_branch_handles_leaves_the_response_before_its_next_event() -> None:
    def stumble() -> None:
        raise RuntimeError("hard")

    broken = speaker("a", call("stumble"), tools=[stumble])
    talk = Talk(ParallelAgent(name="team", sub_agents=[Forgiving(name="f", sub_agents=[broken])]))
    await talk.say("go")
    response, said = [event for event in await talk.log() if event.content is not None][-2:]
    assert [one.name for one in response.get_function_responses()] == ["stumble"]
    assert response.error_code is None
    assert lines_of([said]) == ["f: so be it"]


async def test_a_message_that_a_branch_finished_is_not_kept_twice() -> None:
    """Though another branch was still speaking when it was stored."""
    slow = HalfSaid("half of it")

    async def fail(request: LlmRequest) -> str:
        await slow.heard.wait()
        await asyncio.sleep(0)
        raise ModelError("overloaded", model="scripted")

    quick = SequentialAgent(name="quick", sub_agents=[speaker("q", "all of it"), speaker("b", fail)])
    talk = Talk(ParallelAgent(name="team", sub_agents=[LlmAgent(name="a", model=slow), quick]))
    with pytest.raises(BranchFailed):
        await talk.say("go", run_config=STREAMED)
    lines = lines_of(await talk.log())
    assert sorted(lines[1:-1]) == ["a: half of it", "q: all of it"]
    assert lines[-1] == "team ! BranchFailed"


async def test_of_nested_branches_the_innermost_that_failed_is_named() -> None:
    broken = speaker("c", ModelError("overloaded", model="scripted"))
    inner = ParallelAgent(name="inner", sub_agents=[broken])
    outer = ParallelAgent(name="outer", sub_agents=[SequentialAgent(name="s", sub_agents=[inner]), speaker("a", "1")])
    with pytest.raises(BranchFailed) as failure:
        await Talk(outer).say("go")
    assert failure.value.branch == "outer.s.inner.c"


async def test_what_was_finished_before_another_branch_failed_is_in_the_log() -> None:
    said = asyncio.Event()

    async def fail(request: LlmRequest) -> str:
        await said.wait()
        raise ModelError("overloaded", model="scripted")

    talk = Talk(ParallelAgent(name="team", sub_agents=[speaker("a", "finished"), speaker("b", fail)]))

    async def read() -> None:
        async for event in talk.events("go"):
            if event.author == "a":
                said.set()

    with pytest.raises(BranchFailed):
        await read()
    assert "a: finished" in lines_of(await talk.log())


async def test_an_escalation_does_not_cut_the_siblings() -> None:
    a = speaker("a", call("exit_loop"), tools=[exit_loop])
    b = speaker("b", call("look"), call("look"), "b done", tools=[look])
    events = await Talk(ParallelAgent(name="team", sub_agents=[a, b])).say("go")
    assert "b: b done" in lines_of(events)
    assert events[-1].actions.end_of_agent


async def test_a_reader_that_stops_early_ends_the_branches() -> None:
    let_go: list[str] = []

    class Patient(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> AsyncIterator[Event]:
            try:
                yield Event(author=self.name, branch=ctx.branch, content=Content(parts=[Part(text="here")]))
                await asyncio.Event().wait()
            finally:
                let_go.append(self.name)

    talk = Talk(ParallelAgent(name="team", sub_agents=[Patient(name="a"), Patient(name="b")]))
    async with aclosing(talk.events("go")) as events:
        async for event in events:
            if event.author == "a":
                break
    assert sorted(let_go) == ["a", "b"]


async def test_a_cancelled_run_ends_its_branches_and_answers_their_calls() -> None:
    holding: list[str] = []
    all_hold, let_go = asyncio.Event(), list[str]()

    async def hold(name: str) -> None:
        holding.append(name)
        if len(holding) == 2:
            all_hold.set()
        try:
            await asyncio.Event().wait()
        finally:
            let_go.append(name)

    team = ParallelAgent(
        name="team",
        sub_agents=[speaker(name, call("hold", f"{name}-1", name=name), tools=[hold]) for name in ("a", "b")],
    )
    async with stores_in(None) as stores, engine_over(stores, team) as engine:
        run, reader = await start(engine, asking("go"))
        async with asyncio.timeout(5):
            await all_hold.wait()
        assert (await engine.cancel(run.id, reason="asked by a test")).status is RunStatus.CANCELLED
        await ended(reader)
        assert sorted(let_go) == ["a", "b"]
        log = await stores.log()
        assert sorted(response.id or "" for event in log for response in event.get_function_responses()) == [
            "a-1",
            "b-1",
        ]
        assert log[-1].error_code == "INVOCATION_ABORTED"


# waiting


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
async def test_branches_that_wait_are_answered_in_any_order_and_then_come_together(order: tuple[str, str]) -> None:
    team = ParallelAgent(
        name="team", sub_agents=[waiter("a", "x-a", "a done"), waiter("b", "x-b", "b done"), speaker("c", "c done")]
    )
    writer = speaker("writer", "written")
    talk = Talk(SequentialAgent(name="flow", sub_agents=[team, writer]))
    assert sorted(lines_of(await talk.say("go"))) == ["a: export()", "b: export()", "c: c done"]
    first, second = order
    assert lines_of(await talk.say(answer("export", f"x-{first}", {}))) == [f"{first}: {first} done"]
    assert lines_of(await talk.say(answer("export", f"x-{second}", {}))) == [
        f"{second}: {second} done",
        "writer: written",
    ]
    log = await talk.log()
    assert checkpoints(log)[-3:] == [
        ("team", None, "done"),
        ("flow", None, {"current_sub_agent": "writer"}),
        ("flow", None, "done"),
    ]
    assert len({event.invocation_id for event in log}) == 1


async def test_both_answers_may_come_in_one_message() -> None:
    talk = Talk(ParallelAgent(name="team", sub_agents=[waiter("a", "x-a", "a done"), waiter("b", "x-b", "b done")]))
    await talk.say("go")
    parts = [*(answer("export", "x-a", {}).parts or ()), *(answer("export", "x-b", {}).parts or ())]
    assert sorted(lines_of(await talk.say(Content(role="user", parts=parts)))) == ["a: a done", "b: b done"]


async def test_the_siblings_of_a_branch_that_waits_run_to_their_end_first() -> None:
    sequence = SequentialAgent(name="s", sub_agents=[speaker("b", "1"), speaker("c", "2"), speaker("d", "3")])
    talk = Talk(ParallelAgent(name="team", sub_agents=[waiter("a", "x-a", "a done"), sequence]))
    assert set(lines_of(await talk.say("go"))) == {"a: export()", "b: 1", "c: 2", "d: 3"}
    assert lines_of(await talk.say(answer("export", "x-a", {}))) == ["a: a done"]


async def test_a_branch_that_waits_says_so_in_the_log_once() -> None:
    talk = Talk(ParallelAgent(name="team", sub_agents=[waiter("a", "x-a", "a done"), waiter("b", "x-b", "b done")]))
    halted = checkpoints(await talk.say("go"))
    assert sorted(halted[1:]) == [
        ("team", "team.a", {"waiting_sub_agent": "a"}),
        ("team", "team.b", {"waiting_sub_agent": "b"}),
    ]
    assert checkpoints(await talk.say(answer("export", "x-a", {}))) == []
    assert checkpoints(await talk.say(answer("export", "x-b", {}))) == [("team", None, "done")]


async def test_a_sibling_that_was_handed_over_to_is_not_asked_again() -> None:
    helper = speaker("helper", "helped")
    b = speaker("b", call("transfer_to_agent", agent_name="helper"), sub_agents=[helper])
    talk = Talk(ParallelAgent(name="team", sub_agents=[waiter("a", "x-a", "a done"), b]))
    await talk.say("go")
    assert lines_of(await talk.say(answer("export", "x-a", {}))) == ["a: a done"]


async def test_a_custom_agent_beside_one_that_waits_is_asked_again_and_decides_itself() -> None:
    """Writes no checkpoints, and keeps its progress to itself."""

    class Once(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> AsyncIterator[Event]:
            if "done" not in ctx.session.state:
                yield Event(author=self.name, branch=ctx.branch, actions=EventActions(state_delta={"done": True}))

    talk = Talk(ParallelAgent(name="team", sub_agents=[waiter("a", "x-a", "a done"), Once(name="b")]))
    await talk.say("go")
    assert lines_of(await talk.say(answer("export", "x-a", {}))) == ["a: a done"]


async def test_branches_within_branches_wait_and_continue() -> None:
    inner = ParallelAgent(name="inner", sub_agents=[waiter("a", "x-a", "a done"), speaker("b", "b done")])
    deep = SequentialAgent(name="deep", sub_agents=[speaker("c", "c done"), inner, speaker("d", "d done")])
    loop = LoopAgent(name="loop", sub_agents=[waiter("e", "x-e", "e done")], max_iterations=1)
    outer = ParallelAgent(name="outer", sub_agents=[deep, loop])
    talk = Talk(SequentialAgent(name="flow", sub_agents=[outer, speaker("last", "over")]))
    assert set(lines_of(await talk.say("go"))) == {"c: c done", "a: export()", "b: b done", "e: export()"}
    assert lines_of(await talk.say(answer("export", "x-a", {}))) == ["a: a done", "d: d done"]
    assert lines_of(await talk.say(answer("export", "x-e", {}))) == ["e: e done", "last: over"]


async def test_a_branch_whose_name_begins_like_one_that_waits_does_not_wait_with_it() -> None:
    ab = SequentialAgent(name="ab", sub_agents=[waiter("w", "x-w", "w done"), speaker("y", "y done")])
    a = SequentialAgent(name="a", sub_agents=[speaker("u", "u done"), speaker("v", "v done")])
    talk = Talk(ParallelAgent(name="team", sub_agents=[a, ab]))
    halted = await talk.say("go")
    assert set(lines_of(halted)) == {"u: u done", "v: v done", "w: export()"}
    assert ("a", "team.a", "done") in checkpoints(halted)
    assert lines_of(await talk.say(answer("export", "x-w", {}))) == ["w: w done", "y: y done"]


async def test_state_of_branches_that_waited_is_reduced_when_the_last_has_come() -> None:
    def note(number: int, tool_context: ToolContext) -> str:
        tool_context.state["key"] = [number]
        return "noted"

    def noting(name: str, number: int) -> LlmAgent:
        turns = [call("export", f"x-{name}"), call("note", number=number), f"{name} done"]
        return speaker(name, *turns, tools=[*WAITING, note])

    team = ParallelAgent(name="team", sub_agents=[noting("a", 1), noting("b", 2)], state_reducers={"key": "append"})
    talk = Talk(team)
    await talk.say("go")
    await talk.say(answer("export", "x-b", {}))
    await talk.say(answer("export", "x-a", {}))
    assert await talk.state() == {"key": [1, 2]}
