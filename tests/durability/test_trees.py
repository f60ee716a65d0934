"""Random trees of agents, each cut off after a random stored event, end as if they had not been."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import defaultdict
from dataclasses import dataclass

import msgspec
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st

from greenroom.agents.turn.history import INTERRUPTED
from greenroom.records import wire
from greenroom.records.base import JsonObject
from greenroom.records.content import FunctionResponse, Part
from greenroom.records.event import Event
from greenroom.records.run import AgentRunRequest, Run, RunStatus
from tests.durability.engines import Stores, asking, end_of, engine_over, finish, stores_in
from tests.durability.random_trees import (
    CHARGED,
    HITS,
    REPORTED_TOOL,
    Plan,
    built,
    has_parallel,
    plans,
)

TREES = int(os.environ.get("GREENROOM_TREES", "60"))
"""How many trees are cut in all."""

_of_trees = settings(
    max_examples=TREES // 3,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


@dataclass(frozen=True)
class Stretch:
    """One message and what the run did with it: its events are the log's up to `end`."""

    run: Run
    begin: int
    end: int


@_of_trees
@given(plan=plans(), data=st.data())
def test_a_tree_cut_off_anywhere_ends_as_if_it_had_not_been(plan: Plan, data: st.DataObject) -> None:
    asyncio.run(_cut_and_compare(plan, data))


@_of_trees
@given(plan=plans("exports", "orders"), data=st.data())
def test_a_tree_that_waits_for_answers_and_is_cut_off_anywhere_ends_as_if_it_had_not_been(
    plan: Plan, data: st.DataObject
) -> None:
    asyncio.run(_cut_and_compare(plan, data))


@_of_trees
@given(plan=plans("breaks"), data=st.data())
def test_a_tree_that_breaks_and_is_cut_off_anywhere_breaks_all_the_same(plan: Plan, data: st.DataObject) -> None:
    asyncio.run(_cut_and_compare(plan, data))


async def _cut_and_compare(plan: Plan, data: st.DataObject) -> None:
    logging.getLogger("greenroom").setLevel(logging.CRITICAL)
    order = data.draw(st.randoms(use_true_random=False), "order of answers")
    seeds = data.draw(st.tuples(st.integers(0, 99), st.integers(0, 99)), "seeds of pauses")
    async with stores_in(None) as stores, engine_over(stores, built(plan, seeds[0])) as engine:
        stretches: list[Stretch] = []
        asked: list[str] = []
        request: AgentRunRequest | None = asking("go")
        while request is not None:
            begin = len(stores_log := await stores.log())
            run = await finish(engine, request)
            stores_log = await stores.log()
            stretches.append(Stretch(msgspec.structs.replace(run), begin, len(stores_log)))
            request = _next_answer(run, stores_log, order, asked)
        whole, state = stores_log, (await stores.session()).state
    cut_at = data.draw(st.integers(0, len(whole)), "events before the cut")
    event(f"ends {stretches[-1].run.status}, {'parallel' if has_parallel(plan) else 'in line'}")
    at = next(i for i, stretch in enumerate(stretches) if cut_at <= stretch.end)
    if _breaks_anyway(whole, cut_at):
        return
    async with stores_in(None) as stores:
        session = await stores.session()
        for stored in whole[:cut_at]:
            await stores.sessions.append(session, _copy(stored))
        await stores.runs.save(_as_it_was(stretches[at].run))
        async with engine_over(stores, built(plan, seeds[1])) as engine:
            assert await engine.recover() == 1
            run = await end_of(engine, stretches[at].run.id)
            assert run.status == stretches[at].run.status, _told(await stores.log())
            for later in stretches[at + 1 :]:
                assert later.run.request is not None
                run = await finish(engine, later.run.request)
                assert run.status == later.run.status, _told(await stores.log())
            log, expected = await stores.log(), _with_interruptions(whole, cut_at)
            if run.status is RunStatus.FAILED and has_parallel(plan):
                _check_broken(log, expected)
                return
            assert _by_branch(log) == _by_branch(expected)
            assert _kept(log, (await stores.session()).state) == _kept(expected, state)
            if run.status is RunStatus.SUCCEEDED:
                assert (await stores.session()).state.get(HITS) == state.get(HITS)


# answering


def _next_answer(run: Run, log: list[Event], order: object, asked: list[str]) -> AgentRunRequest | None:
    """The answer to one of the open calls, whichever."""
    if run.status is not RunStatus.WAITING:
        return None
    open_calls = {
        call.id: call
        for stored in log
        for call in stored.get_function_calls()
        if call.id in (stored.long_running_tool_ids or ()) and call.id not in asked
    }
    chosen = open_calls[order.choice(sorted(open_calls))]  # pyright: ignore
    asked.append(chosen.id or "")
    response = FunctionResponse(id=chosen.id, name=chosen.name, response={"done": chosen.id})
    return asking(Part(function_response=response))


def _as_it_was(run: Run) -> Run:
    """The record as it was while the run was going on."""
    return msgspec.structs.replace(run, status=RunStatus.RUNNING, ended_at=None, error=None, usage=None, attempts=1)


# what is to come of it


def _breaks_anyway(whole: list[Event], cut_at: int) -> bool:
    """Whether the cut lies between a tool's failure and the end of the run: the model is then told of the failure."""
    failed_at = [
        index
        for index, stored in enumerate(whole)
        for response in stored.get_function_responses()
        if "hard" in str((response.response or {}).get("error"))
    ]
    return any(index < cut_at for index in failed_at) and cut_at < len(whole)


def _with_interruptions(whole: list[Event], cut_at: int) -> list[Event]:
    """The log as it has to be: calls that were begun and may not be repeated are answered as interrupted."""
    answered = {response.id for stored in whole[:cut_at] for response in stored.get_function_responses()}
    interrupted = {
        call.id
        for stored in whole[:cut_at]
        for call in stored.get_function_calls()
        if call.name == REPORTED_TOOL and call.id not in answered
    }
    if not interrupted:
        return whole
    log = [_copy(stored) for stored in whole]
    for stored in log:
        for response in stored.get_function_responses():
            if response.id in interrupted:
                response.response = dict(INTERRUPTED)
                stored.actions.state_delta = {
                    key: value
                    for key, value in stored.actions.state_delta.items()
                    if not (key.startswith(CHARGED) and value == response.id)
                }
    return log


def _by_branch(log: list[Event]) -> dict[str, list[JsonObject]]:
    """Branches go on side by side, so only within one is there an order."""
    branches: dict[str, list[JsonObject]] = defaultdict(list)
    for stored in log:
        plain: JsonObject = wire.to_plain(stored)
        for name in ("id", "timestamp"):
            del plain[name]
        branches[stored.branch or ""].append(plain)
    return dict(branches)


def _kept(log: list[Event], state: JsonObject) -> JsonObject:
    """The state of the keys that one agent writes; checked to be what the log says."""
    folded: JsonObject = {}
    for stored in log:
        folded |= stored.actions.state_delta
    kept = {key: value for key, value in state.items() if not key.startswith((CHARGED, HITS))}
    assert kept == {key: value for key, value in folded.items() if not key.startswith((CHARGED, HITS))}
    return kept


def _check_broken(log: list[Event], expected: list[Event]) -> None:
    """Of the branches beside the one that broke, one run may have got further than the other."""
    mine, theirs = _by_branch(log), _by_branch(expected)
    for branch in {*mine, *theirs} - {""}:
        shorter, longer = sorted((mine.get(branch, []), theirs.get(branch, [])), key=len)
        assert longer[: len(shorter)] == shorter
    assert mine[""][:-1] == theirs[""][:-1]
    assert log[-1].error_code == expected[-1].error_code


def _told(log: list[Event]) -> str:
    return "\n".join(wire.encode(stored).decode() for stored in log)


def _copy(stored: Event) -> Event:
    return wire.decoder(Event)(wire.encode(stored))
