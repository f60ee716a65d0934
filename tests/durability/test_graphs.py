"""Random workflows, each killed after a random stored event and resumed by another process, end as if nothing had
happened (1.13, 1.17).

What is compared, ids and times aside: the status and error of the run, the session's state, and the log. Nodes side by
side are in branches of their own, and between branches there is no order, so the log is compared branch by branch, and
within each branch completely. A node that was cut off runs again and repeats what it had stored, from the start of
the attempt: such repetitions, and only those, are taken out. When a failure ends the run while other branches are busy,
these are cancelled at a moment that isn't determined: of each branch, one log must then be the beginning of the other.
Where branches meet without a join, it isn't determined which of them triggers which run of the next node: such logs are
compared without branches, order and outputs. If a failure ends them, or if a join follows, which takes the newest output
of each branch, only the outcome is compared.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Coroutine, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st

from greenroom.agents.workflow.position import NodeStatus
from greenroom.records import wire
from greenroom.records.base import JsonObject
from greenroom.records.event import Event
from greenroom.records.run import Run, RunStatus
from tests.durability.engines import Stores, asking, end_of, engine_over, finish, stores_in
from tests.durability.killed_graphs import DEADLINE_SECONDS, DIARY, answering, run_until_killed
from tests.durability.random_graphs import Builder, Plan, graphs, kinds

GRAPHS = int(os.environ.get("GREENROOM_GRAPHS", "40"))
"""Number of graphs of `retry` nodes that are killed; a fifth as many more have `report` nodes."""

MAX_ANSWERS = 8
MEMORY = Path("/dev/shm")
"""Databases are put here where it exists: a killed process loses nothing there, and the tests don't wait for a disk."""

T = TypeVar("T")


def _of_graphs(number: int) -> settings:
    return settings(
        max_examples=number,
        deadline=None,
        print_blob=True,
        phases=[Phase.reuse, Phase.generate]
        if os.environ.get("NOSHRINK")
        else [Phase.reuse, Phase.generate, Phase.shrink],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )


@dataclass(frozen=True)
class Cut:
    """place: which event is the last to be stored, as a share of all that may be it."""

    place: float
    seed: int


CUTS = st.builds(Cut, st.integers(0, 100).map(lambda percent: percent / 100), st.integers(0, 999))


@dataclass(frozen=True)
class Outcome:
    """answers: ids of the requests that were answered, in order. stored_before: events of an earlier process."""

    log: list[Event]
    state: JsonObject
    run: Run
    answers: list[str]
    stored_before: int = 0


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    log = logging.getLogger("greenroom")
    before = log.level
    log.setLevel(logging.CRITICAL)
    yield
    log.setLevel(before)


@_of_graphs(-(-GRAPHS // 3))
@given(plan=graphs(), cut=CUTS)
def test_a_graph_killed_anywhere_ends_as_if_it_had_not_been(plan: Plan, cut: Cut) -> None:
    _kill_and_compare(plan, cut)


@_of_graphs(-(-GRAPHS // 3))
@given(plan=graphs("asks", "asks twice", "asks below"), cut=CUTS)
def test_a_graph_that_waits_for_people_and_is_killed_anywhere_ends_the_same(plan: Plan, cut: Cut) -> None:
    _kill_and_compare(plan, cut)


@_of_graphs(-(-GRAPHS // 3))
@given(plan=graphs("breaks"), cut=CUTS)
def test_a_graph_that_breaks_and_is_killed_anywhere_breaks_the_same(plan: Plan, cut: Cut) -> None:
    _kill_and_compare(plan, cut)


@_of_graphs(-(-GRAPHS // 5))
@given(plan=graphs("asks"), cut=CUTS)
def test_an_interrupted_report_node_has_run_once_and_fails(plan: Plan, cut: Cut) -> None:
    whole = _in_time(_undisturbed(plan, cut, reported=True))
    starts = [number for number, one in enumerate(whole.log, 1) if _is_start(one)]
    with _folder() as folder:
        resumed = _kill_and_resume(folder, plan, cut, whole, reported=True, places=starts)
        diary = folder / DIARY
        bodies = Counter(diary.read_text().splitlines() if diary.exists() else ())
    log, run = resumed.log, resumed.run
    interrupted = _begun(log[: resumed.stored_before])
    if not interrupted:
        assert run.status is whole.run.status, _as_text(log)
        return
    event("interrupted")
    for path in interrupted:
        assert bodies[path] <= 1, f"{path} ran again\n{_as_text(log)}"
    failed = {_path(one) for one in log if one.error_code == "NodeInterrupted"}
    assert failed & interrupted, _as_text(log)
    # A node that catches the failures of nodes that it runs continues, and others wait for answers in the meantime.
    if not any(re.search(r"/(catches|dynamic|asks_below)\d+@", path.rpartition("/")[0]) for path in failed):
        assert run.status is RunStatus.FAILED, _as_text(log)
        assert run.error is not None
        assert run.error.code == "NodeInterrupted"


def _kill_and_compare(plan: Plan, cut: Cut) -> None:
    whole = _in_time(_undisturbed(plan, cut, reported=False))
    is_parallel = not kinds(plan).isdisjoint(("fan", "fork", "worker"))
    event(f"ends {whole.run.status}, {'parallel' if is_parallel else 'in line'}")
    with _folder() as folder:
        resumed = _kill_and_resume(folder, plan, cut, whole, reported=False)
    if resumed.stored_before < len(resumed.log):
        event("killed before its last event")
    assert resumed.run.status is whole.run.status, _as_text(resumed.log)
    mine, theirs = resumed.run.error, whole.run.error
    assert (mine and (mine.code, mine.message)) == (theirs and (theirs.code, theirs.message))
    is_cancelled = whole.run.status is RunStatus.FAILED and is_parallel
    if not is_cancelled:
        assert resumed.state == whole.state
    if "fork" not in kinds(plan):
        _compare(resumed, whole, is_cancelled=is_cancelled)
    elif not is_cancelled and "fan" not in kinds(plan):
        assert _without_order(resumed, whole) == _without_order(whole, whole), _both_logs(resumed, whole)


async def _undisturbed(plan: Plan, cut: Cut, *, reported: bool) -> Outcome:
    chance, answers = random.Random(cut.seed), list[str]()
    workflow = Builder(cut.seed, reported=reported).workflow(plan)
    async with stores_in(None) as stores, engine_over(stores, workflow) as engine:
        run = await finish(engine, asking("go"))
        while run.status is RunStatus.WAITING and len(answers) < MAX_ANSWERS:
            answers.append(chance.choice(sorted(_asked(await stores.log()))))
            run = await finish(engine, answering(answers[-1]))
        return await _outcome(stores, run, answers)


def _kill_and_resume(
    folder: Path, plan: Plan, cut: Cut, whole: Outcome, *, reported: bool, places: Sequence[int] = ()
) -> Outcome:
    """places: numbers of the events behind which it may be killed; none means all."""
    _in_time(_create_session(folder))
    places = places or range(1, len(whole.log) + 1)
    events = places[int(cut.place * (len(places) - 1))]
    run_until_killed(folder, plan, whole.answers, seed=cut.seed, reported=reported, events=events)
    return _in_time(_resumed(folder, plan, cut, whole, reported=reported))


async def _create_session(folder: Path) -> None:
    async with stores_in(folder):
        pass


async def _resumed(folder: Path, plan: Plan, cut: Cut, whole: Outcome, *, reported: bool) -> Outcome:
    workflow = Builder(cut.seed, reported=reported, diary=folder / DIARY).workflow(plan)
    async with stores_in(folder) as stores, engine_over(stores, workflow) as engine:
        before = await stores.log()
        run_id = before[0].invocation_id
        await engine.recover()
        run = await end_of(engine, run_id)
        answered = sum(bool(one.get_function_responses()) and one.author == "user" for one in before)
        for answer in whole.answers[answered:]:
            if run.status is not RunStatus.WAITING or answer not in _asked(await stores.log()):
                break  # an interrupted node has failed in between
            run = await finish(engine, answering(answer))
        return await _outcome(stores, run, whole.answers, len(before))


async def _outcome(stores: Stores, run: Run, answers: list[str], stored_before: int = 0) -> Outcome:
    return Outcome(await stores.log(), (await stores.session()).state, run, answers, stored_before)


def _asked(log: list[Event]) -> set[str]:
    """Requests that are not answered."""
    answered = {response.id for one in log for response in one.get_function_responses()}
    return {request for one in log for request in one.long_running_tool_ids or () if request not in answered}


def _compare(resumed: Outcome, whole: Outcome, *, is_cancelled: bool) -> None:
    before, after = resumed.log[: resumed.stored_before], resumed.log[resumed.stored_before :]
    earlier, later, wanted = _by_branch(before), _by_branch(after), _by_branch(whole.log)
    for branch in earlier.keys() | later.keys() | wanted.keys():
        theirs = wanted[branch]
        complete = [] if is_cancelled else theirs
        mine = earlier[branch] + _without_repetitions(earlier[branch], later[branch], complete)
        if is_cancelled:
            common = min(len(mine), len(theirs))
            mine, theirs = mine[:common], theirs[:common]
        assert mine == theirs, f"branch {branch}:\n{_both_logs(resumed, whole)}"


def _without_order(outcome: Outcome, whole: Outcome) -> Counter[str]:
    before, after = outcome.log[: outcome.stored_before], outcome.log[outcome.stored_before :]
    earlier, later = [_plain(one) for one in before], [_plain(one) for one in after]
    events = earlier + _without_repetitions(earlier, later, [_plain(one) for one in whole.log])
    return Counter(repr({**one, "branch": None, "output": None}) for one in events)


def _by_branch(log: list[Event]) -> defaultdict[str | None, list[JsonObject]]:
    branches: defaultdict[str | None, list[JsonObject]] = defaultdict(list)
    for stored in log:
        branches[stored.branch].append(_plain(stored))
    return branches


def _plain(stored: Event) -> JsonObject:
    plain: JsonObject = wire.to_plain(stored)
    return {name: value for name, value in plain.items() if name not in ("id", "timestamp", "invocationId")}


def _without_repetitions(
    before: list[JsonObject], after: list[JsonObject], complete: list[JsonObject]
) -> list[JsonObject]:
    """Takes out, for each run of a node that was not complete, the events with which it repeats the last ones that it
    stored before. Checkpoints are never repeated."""
    stored, resumed, all_events = _by_path(before), _by_path(after), _by_path(complete)
    repeated: Counter[str] = Counter()
    for path, events in resumed.items():
        if stored[path] == all_events[path]:
            continue
        newest = list(takewhile(lambda one: "agentState" not in one["actions"], reversed(stored[path])))[::-1]
        ends = range(min(len(events), len(newest)), 0, -1)
        repeated[path] = next((n for n in ends if events[:n] == newest[-n:]), 0)
    kept: list[JsonObject] = []
    for one in after:
        path = _path_in(one)
        if repeated[path]:
            repeated[path] -= 1
        else:
            kept.append(one)
    return kept


def _by_path(events: list[JsonObject]) -> defaultdict[str, list[JsonObject]]:
    paths: defaultdict[str, list[JsonObject]] = defaultdict(list)
    for one in events:
        paths[_path_in(one)].append(one)
    return paths


def _path_in(plain: JsonObject) -> str:
    return (plain.get("nodeInfo") or {}).get("path") or plain["author"]


def _path(stored: Event) -> str:
    return stored.node_path or stored.author


def _is_start(stored: Event) -> bool:
    nodes = (stored.actions.agent_state or {}).get("nodes") or {}
    return "/" in _path(stored) and any(entry["status"] == NodeStatus.RUNNING for entry in nodes.values())


def _begun(log: list[Event]) -> set[str]:
    """Paths of the report nodes that had begun, and have left nothing since."""
    begun: set[str] = set()
    for stored in log:
        if _is_start(stored):
            begun.add(_path(stored))
        elif stored.content is None or stored.long_running_tool_ids:
            begun.discard(_path(stored))
    return {path for path in begun if "agent" not in path.rpartition("/")[2] and "inner" not in path.rpartition("/")[2]}


@contextmanager
def _folder() -> Generator[Path]:
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        yield Path(folder)


def _in_time(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, DEADLINE_SECONDS))


def _as_text(log: list[Event]) -> str:
    return "\n".join(wire.encode(stored).decode() for stored in log)


def _both_logs(resumed: Outcome, whole: Outcome) -> str:
    return f"{_as_text(resumed.log)}\n\nafter {resumed.stored_before} events, wanted\n\n{_as_text(whole.log)}"
