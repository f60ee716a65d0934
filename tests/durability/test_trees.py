"""Random trees of agents, each cut off after a random stored event, end as if they had not been."""

from __future__ import annotations

import asyncio
import difflib
import logging
import os
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import HealthCheck, event, example, given, settings
from hypothesis import strategies as st

from greenroom.log.calls import INTERRUPTED
from greenroom.records import wire
from greenroom.records.base import JsonObject
from greenroom.records.content import FunctionResponse, Part
from greenroom.records.event import Event
from greenroom.records.run import AgentRunRequest, Run, RunStatus
from tests.durability.engines import asking, end_of, engine_over, finish, stores_in
from tests.durability.random_trees import (
    CHARGED,
    HITS,
    REPORTED_TOOL,
    Flow,
    Plan,
    Speaker,
    built,
    has_parallel,
    plans,
)

TREES = int(os.environ.get("GREENROOM_TREES", "60"))
"""Number of trees that are cut."""

MAX_ANSWERS = 8

_of_trees = settings(
    max_examples=-(-TREES // 3),
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


@dataclass(frozen=True)
class Cut:
    """The point at which a run is cut off, and further random choices. place: share of the log that is stored.

    Drawn before the run, which is not the same each time: tools run in threads.
    """

    place: float
    seed: int


@dataclass(frozen=True)
class Segment:
    """One message and what the run did with it: its events are the log's up to `end`."""

    run: Run
    begin: int
    end: int


CUTS = st.builds(Cut, st.integers(1, 99).map(lambda percent: percent / 100), st.integers(0, 999))


_TWO_SPEAKERS = (Speaker(("says",), ()), Speaker(("says",), ()))


@_of_trees
@given(plan=plans(), cut=CUTS)
@example(  # one workflow has ended, another goes on
    plan=Speaker(
        ("lends", "hands over", "says"), (Flow("sequence", _TWO_SPEAKERS, 1), Flow("sequence", _TWO_SPEAKERS, 1))
    ),
    cut=Cut(0.77, 0),
)
def test_a_tree_cut_off_anywhere_ends_as_if_it_had_not_been(plan: Plan, cut: Cut) -> None:
    asyncio.run(asyncio.wait_for(_cut_and_compare(plan, cut), 20))


@_of_trees
@given(plan=plans("exports", "orders"), cut=CUTS)
def test_a_tree_that_waits_for_answers_and_is_cut_off_anywhere_ends_as_if_it_had_not_been(plan: Plan, cut: Cut) -> None:
    asyncio.run(asyncio.wait_for(_cut_and_compare(plan, cut), 20))


@_of_trees
@given(plan=plans("breaks"), cut=CUTS)
@example(  # the interrupted call is one of an agent that runs as a tool
    plan=Flow("sequence", (Speaker(("consults", "charges", "says"), ()), Speaker(("breaks", "says"), ())), 1),
    cut=Cut(0.27, 0),
)
def test_a_tree_that_breaks_and_is_cut_off_anywhere_breaks_all_the_same(plan: Plan, cut: Cut) -> None:
    asyncio.run(asyncio.wait_for(_cut_and_compare(plan, cut), 20))


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Trees that break log each error; nobody reads them."""
    log = logging.getLogger("greenroom")
    before = log.level
    log.setLevel(logging.CRITICAL)
    yield
    log.setLevel(before)


async def _cut_and_compare(plan: Plan, cut: Cut) -> None:
    chance = random.Random(cut.seed)
    async with stores_in(None) as stores, engine_over(stores, built(plan, chance.random())) as engine:
        segments: list[Segment] = []
        asked: list[str] = []
        stores_log: list[Event] = []
        request: AgentRunRequest | None = asking("go")
        while request is not None:
            stores_log = await stores.log()
            begin = len(stores_log)
            run = await finish(engine, request)
            stores_log = await stores.log()
            segments.append(Segment(msgspec.structs.replace(run, request=request), begin, len(stores_log)))
            request = _next_answer(run, stores_log, chance, asked)
        whole, state = stores_log, (await stores.session()).state
    cut_at = round(cut.place * len(whole))
    event(f"{len(whole) // 20 * 20:3}+ events")
    event(f"ends {segments[-1].run.status}, {'parallel' if has_parallel(plan) else 'in line'}")
    at = chance.choice([i for i, segment in enumerate(segments) if segment.begin <= cut_at <= segment.end])
    async with stores_in(None) as stores:
        session = await stores.session()
        for stored in whole[:cut_at]:
            await stores.sessions.append(session, _copy(stored))
        await stores.runs.save(_as_it_was(segments[at].run))
        async with engine_over(stores, built(plan, chance.random())) as engine:
            assert await engine.recover() == 1
            run = await end_of(engine, segments[at].run.id)
            assert run.status == segments[at].run.status, _as_text(await stores.log())
            for later in segments[at + 1 :]:
                assert later.run.request is not None
                run = await finish(engine, later.run.request)
                assert run.status == later.run.status, _as_text(await stores.log())
            log, expected = await stores.log(), _with_interruptions(whole, cut_at)
            if run.status is RunStatus.FAILED and has_parallel(plan):
                _check_broken(log, expected)
                return
            mine, theirs = _by_branch(log), _by_branch(expected)
            assert mine == theirs, _difference(mine, theirs)
            assert _kept(log, (await stores.session()).state) == _kept(expected, state)
            if run.status is RunStatus.SUCCEEDED:
                assert (await stores.session()).state.get(HITS) == state.get(HITS)


# answering


def _next_answer(run: Run, log: list[Event], chance: random.Random, asked: list[str]) -> AgentRunRequest | None:
    """The answer to one of the open calls, whichever."""
    if run.status is not RunStatus.WAITING or len(asked) == MAX_ANSWERS:
        return None
    open_calls = {
        call.id or "": call
        for stored in log
        for call in stored.get_function_calls()
        if call.id in (stored.long_running_tool_ids or ()) and call.id not in asked
    }
    chosen = open_calls[chance.choice(sorted(open_calls))]
    asked.append(chosen.id or "")
    response = FunctionResponse(id=chosen.id, name=chosen.name, response={"done": chosen.id})
    return asking(Part(function_response=response))


def _as_it_was(run: Run) -> Run:
    """The record as it was while the run was going on."""
    return msgspec.structs.replace(run, status=RunStatus.RUNNING, ended_at=None, error=None, usage=None, attempts=1)


# what is to come of it


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

        # The changes of an agent that runs as a tool stand in the event of its response, too.
        stored.actions.state_delta = {
            key: value
            for key, value in stored.actions.state_delta.items()
            if not (key.startswith(CHARGED) and value in interrupted)
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
    """Of the branches beside the one that broke, one run may have got further than the other; the event that ends the
    run is in the branch that broke first."""
    assert log[-1].error_code == expected[-1].error_code
    mine, theirs = _by_branch(log[:-1]), _by_branch(expected[:-1])
    for branch in {*mine, *theirs}:
        shorter, longer = sorted((mine.get(branch, []), theirs.get(branch, [])), key=len)
        assert longer[: len(shorter)] == shorter
    assert mine.get("") == theirs.get("")


def _difference(mine: dict[str, list[JsonObject]], theirs: dict[str, list[JsonObject]]) -> str:
    """The differences, a line per event."""
    lines: list[str] = []
    for branch in sorted({*mine, *theirs}):
        got = [wire.encode(plain).decode() for plain in mine.get(branch, [])]
        wanted = [wire.encode(plain).decode() for plain in theirs.get(branch, [])]
        lines += difflib.ndiff(wanted, got)
    return "\n".join(line for line in lines if not line.startswith("?"))


def _as_text(log: list[Event]) -> str:
    return "\n".join(wire.encode(stored).decode() for stored in log)


def _copy(stored: Event) -> Event:
    return wire.decoder(Event)(wire.encode(stored))
