"""Random workflows, each cut off after a random stored event, end as if they had not been (1.13, 1.17)."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from greenroom.records import wire
from greenroom.records.base import JsonObject
from greenroom.records.content import FunctionResponse, Part
from greenroom.records.event import Event
from greenroom.records.run import AgentRunRequest, Run, RunStatus
from greenroom.records.session import Session
from greenroom.runs.engine import run_store_beside
from greenroom.sessions.in_memory import InMemorySessionService
from greenroom.sessions.service import StoredEvent
from tests.durability.engines import WHERE, Stores, asking, end_of, engine_over, finish
from tests.durability.random_graphs import Builder, Plan, graphs, has_parallel

GRAPHS = int(os.environ.get("GREENROOM_GRAPHS", "60"))
"""How many graphs are cut in all."""

MOST_ANSWERS = 8

_of_graphs = settings(
    max_examples=-(-GRAPHS // 4),
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


@dataclass(frozen=True)
class Cut:
    """place: share of the commits that are stored."""

    place: float
    seed: int


CUTS = st.builds(Cut, st.integers(1, 99).map(lambda percent: percent / 100), st.integers(0, 999))


class CommittingSessions(InMemorySessionService):
    """Notes the length of the log behind each commit: a process dies between two of them."""

    def __init__(self) -> None:
        super().__init__()
        self.commits: list[int] = []

    async def append(self, session: Session, *events: Event) -> list[StoredEvent]:
        stored = await super().append(session, *events)
        self.commits.append(len(session.events))
        return stored


@dataclass(frozen=True)
class Segment:
    """One message, and the run at its end. Its events are the log's from `begin` to `end`."""

    run: Run
    begin: int
    end: int


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    log = logging.getLogger("greenroom")
    before = log.level
    log.setLevel(logging.CRITICAL)
    yield
    log.setLevel(before)


@_of_graphs
@given(plan=graphs(), cut=CUTS)
def test_a_graph_cut_off_anywhere_ends_as_if_it_had_not_been(plan: Plan, cut: Cut) -> None:
    asyncio.run(asyncio.wait_for(_cut_and_compare(plan, cut), 20))


@_of_graphs
@given(plan=graphs("asks", "asks twice", "asks below"), cut=CUTS)
def test_a_graph_that_waits_for_people_and_is_cut_off_anywhere_ends_the_same(plan: Plan, cut: Cut) -> None:
    asyncio.run(asyncio.wait_for(_cut_and_compare(plan, cut), 20))


@_of_graphs
@given(plan=graphs("breaks"), cut=CUTS)
def test_a_graph_that_breaks_and_is_cut_off_anywhere_breaks_the_same(plan: Plan, cut: Cut) -> None:
    asyncio.run(asyncio.wait_for(_cut_and_compare(plan, cut), 20))


@_of_graphs
@given(plan=graphs("asks"), cut=CUTS)
def test_an_interrupted_report_node_has_run_once_and_fails(plan: Plan, cut: Cut) -> None:
    asyncio.run(asyncio.wait_for(_cut_with_report_nodes(plan, cut), 20))


async def _new_stores() -> Stores:
    sessions = CommittingSessions()
    await sessions.create_session(**WHERE)
    return Stores(sessions, run_store_beside(sessions))


async def _whole(stores: Stores, builder: Builder, plan: Plan, chance: random.Random) -> list[Segment]:
    segments: list[Segment] = []
    asked: list[str] = []
    async with engine_over(stores, builder.workflow(plan)) as engine:
        request: AgentRunRequest | None = asking("go")
        while request is not None:
            begin = len(await stores.log())
            run = await finish(engine, request)
            log = await stores.log()
            segments.append(Segment(msgspec.structs.replace(run, request=request), begin, len(log)))
            request = _next_answer(run, log, chance, asked)
    return segments


async def _cut_log(plan: Plan, cut: Cut, *, reported: bool) -> tuple[list[Event], list[Segment], int, int, JsonObject]:
    """The log of an uncut run, its segments, which of them is cut, and where."""
    chance = random.Random(cut.seed)
    stores = await _new_stores()
    segments = await _whole(stores, Builder(chance.random(), reported=reported), plan, chance)
    whole, commits = await stores.log(), stores.sessions.commits  # type: ignore
    cut_at = commits[min(int(cut.place * len(commits)), len(commits) - 1)]
    at = next(i for i, segment in enumerate(segments) if segment.begin < cut_at <= segment.end)
    event(f"ends {segments[-1].run.status}, {'parallel' if has_parallel(plan) else 'in line'}")
    return whole, segments, at, cut_at, (await stores.session()).state


async def _resumed(stores: Stores, engine: Any, segments: list[Segment], at: int) -> Run:
    assert await engine.recover() == 1
    run = await end_of(engine, segments[at].run.id)
    for later in segments[at + 1 :]:
        if run.status is not RunStatus.WAITING:
            return run
        assert later.run.request is not None
        run = await finish(engine, later.run.request)
    return run


async def _stores_of(log: list[Event], run: Run) -> Stores:
    stores = await _new_stores()
    session = await stores.session()
    for stored in log:
        await stores.sessions.append(session, wire.decoder(Event)(wire.encode(stored)))
    record = msgspec.structs.replace(run, status=RunStatus.RUNNING, ended_at=None, error=None, usage=None, attempts=1)
    await stores.runs.save(record)
    return stores


async def _cut_and_compare(plan: Plan, cut: Cut) -> None:
    whole, segments, at, cut_at, state = await _cut_log(plan, cut, reported=False)
    stores = await _stores_of(whole[:cut_at], segments[at].run)
    builder = Builder(random.Random(cut.seed).random(), reported=False)
    async with engine_over(stores, builder.workflow(plan)) as engine:
        run = await _resumed(stores, engine, segments, at)
    log = await stores.log()
    assert run.status == segments[-1].run.status, _told(log)
    if run.status is RunStatus.FAILED and has_parallel(plan):
        assert log[-1].error_code == whole[-1].error_code
        return
    mine, theirs = _by_path(log), _by_path(whole)
    assert mine == theirs, _told(log) + "\n\nwanted\n\n" + _told(whole)
    assert (await stores.session()).state == state


async def _cut_with_report_nodes(plan: Plan, cut: Cut) -> None:
    whole, segments, at, cut_at, _ = await _cut_log(plan, cut, reported=True)
    before = whole[:cut_at]
    stores = await _stores_of(before, segments[at].run)
    builder = Builder(random.Random(cut.seed).random(), reported=True)
    async with engine_over(stores, builder.workflow(plan)) as engine:
        run = await _resumed(stores, engine, segments, at)
    log = await stores.log()
    begun = _begun(before)
    for path in begun:
        assert builder.bodies.get(path, 0) == 0, f"{path} ran again\n{_told(log)}"
    if not begun:
        assert run.status == segments[-1].run.status, _told(log)
    else:
        event("interrupted")
        # a node that catches the failure of another may have gone on
        assert any(one.error_code == "NodeInterrupted" for one in log), _told(log)


def _begun(log: list[Event]) -> set[str]:
    """Paths of the report nodes that had begun, and have left nothing since."""
    begun: set[str] = set()
    for stored in log:
        path = (stored.node_info or {}).get("path")
        if path is None:
            continue
        nodes = (stored.actions.agent_state or {}).get("nodes") or {}
        is_start = any(entry["status"] == 2 for entry in nodes.values())
        if is_start and "/" in path:
            begun.add(path)
        elif stored.content is None or stored.long_running_tool_ids:
            begun.discard(path)
    return {path for path in begun if "agent" not in path.rpartition("/")[2] and "inner" not in path.rpartition("/")[2]}


def _next_answer(run: Run, log: list[Event], chance: random.Random, asked: list[str]) -> AgentRunRequest | None:
    if run.status is not RunStatus.WAITING or len(asked) == MOST_ANSWERS:
        return None
    answered = {response.id for stored in log for response in stored.get_function_responses()}
    open_calls = sorted({i for stored in log for i in stored.long_running_tool_ids or () if i not in answered})
    chosen = chance.choice(open_calls)
    asked.append(chosen)
    response = FunctionResponse(id=chosen, name="adk_request_input", response={"done": chosen})
    return asking(Part(function_response=response))


def _by_path(log: list[Event]) -> dict[str, list[JsonObject]]:
    """Nodes run side by side, so only within one is there an order. What a node says before it is cut off it says again
    when it runs again: repetitions are left out."""
    paths: dict[str, list[JsonObject]] = defaultdict(list)
    for stored in log:
        plain: JsonObject = wire.to_plain(stored)
        for name in ("id", "timestamp", "usageMetadata"):
            plain.pop(name, None)
        events = paths[(stored.node_info or {}).get("path") or stored.author]
        if plain not in events:
            events.append(plain)
    return dict(paths)


def _told(log: list[Event]) -> str:
    return "\n".join(wire.encode(stored).decode() for stored in log)
