"""Whether a turn and GET session cost more as the stored conversation grows."""

from __future__ import annotations

import math
from dataclasses import dataclass

from benchmarks import calls
from benchmarks.bench import Bench, Pair, Tally
from benchmarks.load import Expected, RequestSeries, drive, prepare
from benchmarks.report import Figure, Table, Target, median
from benchmarks.servers import Server, Store

BUDGET_SECONDS = 4.0
FEWEST = 3
ANSWERED = Expected(calls.MESSAGE.encode())
TURN, WHOLE_PROMPT_TURN, GET = "turn", "turn, history in the prompt", "GET session"
APPS = {TURN: "forgetful", WHOLE_PROMPT_TURN: "echo"}
KINDS: dict[Store, tuple[str, ...]] = {"memory": (TURN, WHOLE_PROMPT_TURN), "sqlite": (TURN,)}


@dataclass(frozen=True)
class Filled:
    """Sessions of one app with so many stored events each, few turns of which change the number but little."""

    app: str
    sessions: list[str]
    turns_each: int


async def _fill(server: Server, app: str, stored_events: int, turns: int) -> Filled:
    """One turn in each session follows the import, so that no first turn of a session is measured."""
    turns_each = min(turns, max(1, stored_events // 50))
    sessions = [calls.new_session_id() for _ in range(math.ceil(turns / turns_each))]
    await prepare(server.port, (calls.create_session(app, name, stored_events) for name in sessions))
    await prepare(server.port, (calls.run(app, name) for name in sessions))
    return Filled(app, sessions, turns_each)


async def _median_seconds(tally: Tally, server: Server, series: list[RequestSeries], expected: Expected) -> float:
    """One after another; no more than fit in the budget, judging by the first, which is left out of the median."""
    first = await drive(server.port, [RequestSeries(series[0].request)], concurrency=1, expected=expected)
    tally.count_errors(server, first)
    affordable = max(FEWEST, int(BUDGET_SECONDS / max(first.seconds, 1e-6)))
    chosen: list[RequestSeries] = []
    for one in series:
        if affordable > 0:
            chosen.append(RequestSeries(one.request, min(one.repeats, affordable)))
            affordable -= one.repeats
    outcome = await drive(server.port, chosen, concurrency=1, expected=expected)
    tally.count_errors(server, outcome)
    return outcome.percentile(50)


async def _measure(tally: Tally, server: Server, stored_events: int, filled: dict[str, Filled]) -> None:
    for kind, its in filled.items():
        series = [RequestSeries(calls.run(its.app, session), its.turns_each) for session in its.sessions]
        tally.add(server, f"{kind} {stored_events}", await _median_seconds(tally, server, series, ANSWERED))
    its = filled[TURN]
    series = [RequestSeries(calls.get_session(its.app, session), its.turns_each) for session in its.sessions]
    expected = Expected(b'"invocationId"', stored_events)
    tally.add(server, f"{GET} {stored_events}", await _median_seconds(tally, server, series, expected))


async def history(bench: Bench, store: Store) -> list[Table]:
    scale, pair, tally = bench.scale, bench.against_adk, Tally()
    kinds = KINDS[store]
    async with bench.both(pair, store) as servers:
        filled: dict[tuple[str, int], dict[str, Filled]] = {}
        for server in servers:
            is_peer = pair.peer is not None and server.name == pair.peer.name
            turns = scale.peer_history_turns if is_peer else scale.history_turns
            for stored in scale.stored_events:
                if not is_peer or stored <= scale.peer_events:
                    filled[server.name, stored] = {
                        kind: await _fill(server, APPS[kind], stored, turns) for kind in kinds
                    }
        for _ in range(scale.rounds):
            for stored in scale.stored_events:
                for server in servers:
                    if (server.name, stored) in filled:
                        await _measure(tally, server, stored, filled[server.name, stored])
        for server in servers:
            tally.count_locks(server)
    where = "in memory" if store == "memory" else "SQLite"
    notes = [
        "One request at a time; median latency.",
        'In the plain turn the agent has `include_contents="none"`: the cost is the server\'s. '
        "In the other one the model is given the whole history.",
        f"ADK stops at {scale.peer_events:,} events: more would take it minutes to store.",
        *tally.notes(),
    ]
    return [Table(f"Stored events, {where}", _figures(tally, pair, kinds, scale.stored_events), notes)]


def _figures(tally: Tally, pair: Pair, kinds: tuple[str, ...], sizes: tuple[int, ...]) -> list[Figure]:
    figures: list[Figure] = []
    for kind in (*kinds, GET):
        for stored in sizes:
            target = Target(times_better=20) if (kind, stored) == (GET, 5_000) else None
            peer, ours = (_milliseconds(tally.of(side, f"{kind} {stored}")) for side in (pair.peer, pair.ours))
            figures.append(Figure(f"{kind}, {stored:,} events", "ms", peer, ours, target=target))
        if kind != GET:
            figures.append(_growth(tally, pair, kind, sizes))
    return figures


def _growth(tally: Tally, pair: Pair, kind: str, sizes: tuple[int, ...]) -> Figure:
    """Ratio of a turn's cost at the largest size to that at the smallest."""
    smallest, largest = (median(tally.of(pair.ours, f"{kind} {stored}")) for stored in (sizes[0], sizes[-1]))
    ratio = [] if math.isnan(largest) else [largest / smallest]
    target = Target(at_most=1.2) if kind == TURN else None
    return Figure(f"{kind}: {sizes[-1]:,} events to {sizes[0]:,}", "×", [], ratio, target=target)


def _milliseconds(values: list[float]) -> list[float]:
    return [value * 1e3 for value in values]
