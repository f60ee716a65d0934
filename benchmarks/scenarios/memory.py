"""Memory of idle sessions and waiting runs, with and without their clients."""

from __future__ import annotations

import asyncio
import os

from benchmarks import calls
from benchmarks.bench import Bench, Tally
from benchmarks.connection import connect, connect_many
from benchmarks.load import Expected, RequestSeries, drive, prepare
from benchmarks.report import Figure, Table, Target
from benchmarks.servers import STORES, Server

SETTLING_TURNS = 100
TURNS_AT_ONCE = 2
IDLE_SHARE = 0.05
LOOK_SECONDS = 0.5
SETTLE_SECONDS = 90.0
WAIT_SECONDS = 600
PER_RUN = "run"
AFTER_TURNS = "after their turns"
AFTER_RESTART = "read after a restart"
TURNS_PER_SESSION = 5
SESSIONS_MEGABYTES = 30.0
RUN_KILOBYTES = 20.0
ACCEPTED = 202
RUNS_PER_SESSION = 10
LASTING_CONCURRENCY = 16
STOPS = 5
GROWTH_MEGABYTES = 5.0


async def _echo_sessions(server: Server, count: int, *, turns: int = 1) -> list[str]:
    """Makes sessions with so many turns each; returns their ids."""
    sessions = [calls.new_session_id() for _ in range(count)]
    await prepare(server.port, [calls.create_session("echo", session) for session in sessions])
    series = [RequestSeries(calls.run("echo", session), turns) for session in sessions]
    outcome = await drive(server.port, series, concurrency=TURNS_AT_ONCE, expected=Expected(calls.MESSAGE.encode()))
    if outcome.errors:
        raise RuntimeError(f"{server.name}: {dict(outcome.errors)}")
    return sessions


async def _until_idle(server: Server) -> None:
    """The server has taken in all it was sent."""
    async with asyncio.timeout(SETTLE_SECONDS):
        while True:
            before = server.cpu_seconds()
            await asyncio.sleep(LOOK_SECONDS)
            if server.cpu_seconds() - before < LOOK_SECONDS * IDLE_SHARE:
                return


async def sessions(bench: Bench) -> list[Table]:
    tally, pair, count = Tally(), bench.against_adk, bench.scale.sessions
    for _ in range(bench.scale.rounds):
        for store in STORES:
            for contender in pair.present():
                async with bench.server(contender, store) as server:
                    await _echo_sessions(server, SETTLING_TURNS)
                    await _until_idle(server)
                    before = server.memory_bytes()
                    await _echo_sessions(server, count)
                    await _until_idle(server)
                    tally.add(server, store, (server.memory_bytes() - before) / count * 1_000 / 1e6)
    figures = [
        Figure(label, "MB", tally.of(pair.peer, store), tally.of(pair.ours, store))
        for store, label in zip(STORES, ("in memory", "SQLite"), strict=True)
    ]
    note = f"Growth of the proportional set size by {count:,} sessions of one echo turn each, scaled to 1,000."
    return [Table("Memory per 1,000 sessions", figures, [note])]


async def cached_sessions(bench: Bench) -> list[Table]:
    """Sessions of several turns that a server on SQLite keeps in memory."""
    ours = bench.against_adk.ours
    if ours is None:
        return []

    count = bench.scale.sessions
    tally = Tally()
    for _ in range(bench.scale.rounds):
        server = bench.server(ours, "sqlite")
        async with server:
            await _echo_sessions(server, SETTLING_TURNS)
            await _until_idle(server)
            before = server.memory_bytes()
            sessions = await _echo_sessions(server, count, turns=TURNS_PER_SESSION)
            await _until_idle(server)
            tally.add(server, AFTER_TURNS, (server.memory_bytes() - before) / count * 1_000 / 1e6)
            await server.end()

        async with server:
            await _echo_sessions(server, SETTLING_TURNS)
            await _until_idle(server)
            before = server.memory_bytes()
            await prepare(server.port, [calls.get_session("echo", session) for session in sessions])
            await _until_idle(server)
            tally.add(server, AFTER_RESTART, (server.memory_bytes() - before) / count * 1_000 / 1e6)

    target = Target(at_most=SESSIONS_MEGABYTES)
    figures = [Figure(label, "MB", (), tally.of(ours, label), target=target) for label in (AFTER_TURNS, AFTER_RESTART)]
    note = (
        f"Growth of the proportional set size by {count:,} sessions of {TURNS_PER_SESSION} echo turns, which are "
        f"{2 * TURNS_PER_SESSION} events, each, scaled to 1,000. SQLite's page cache, which fills meanwhile, included."
    )
    return [Table("Memory per 1,000 cached sessions of 10 events, SQLite", figures, [note])]


async def open_runs(bench: Bench) -> list[Table]:
    """Runs that wait for their model, without a client that reads their events."""
    ours = bench.against_adk.ours
    if ours is None:
        return []

    count = bench.scale.waiting_runs
    tally = Tally()
    slow = {"BENCH_SLOW_SECONDS": str(WAIT_SECONDS)}
    for _ in range(bench.scale.rounds):
        async with bench.server(ours, "memory", slow) as server:
            await _echo_sessions(server, SETTLING_TURNS)
            sessions = [calls.new_session_id() for _ in range(count)]
            await prepare(server.port, [calls.create_session("slow", session) for session in sessions])
            await _until_idle(server)
            before = server.memory_bytes()
            await _start_in_background(server, sessions)
            await _until_idle(server)
            tally.add(server, PER_RUN, (server.memory_bytes() - before) / count / 1e3)

    figure = Figure("per open run", "kB", (), tally.of(ours, PER_RUN), target=Target(at_most=RUN_KILOBYTES))
    note = (
        f"Growth of the proportional set size by {count:,} runs in the background whose model doesn't answer, "
        "connections and sessions not included."
    )
    return [Table("Memory of open runs without a client", [figure], [note])]


async def _start_in_background(server: Server, sessions: list[str]) -> None:
    connection = await connect(server.port)
    try:
        for session in sessions:
            reply = await connection.exchange(calls.run_in_background("slow", session))
            if reply.status != ACCEPTED:
                raise RuntimeError(f"{server.name}: a run was not started: HTTP {reply.status}")
    finally:
        connection.close()


async def waiting_runs(bench: Bench) -> list[Table]:
    tally, pair, count = Tally(), bench.against_adk, bench.scale.waiting_runs
    slow = {"BENCH_SLOW_SECONDS": str(WAIT_SECONDS)}
    for _ in range(bench.scale.rounds):
        for contender in pair.present():
            async with bench.server(contender, "memory", slow) as server:
                await _echo_sessions(server, SETTLING_TURNS)
                tally.add(server, PER_RUN, await _growth_by_waiting(server, count) / count / 1e3)
    figure = Figure(
        "per waiting run",
        "kB",
        tally.of(pair.peer, PER_RUN),
        tally.of(pair.ours, PER_RUN),
        target=Target(times_better=4),
    )
    thousand = Figure("per 1,000 waiting runs", "MB", tally.of(pair.peer, PER_RUN), tally.of(pair.ours, PER_RUN))
    note = (
        f"Growth of the proportional set size by {count:,} open /run_sse requests whose model doesn't answer, "
        "connections included, sessions not."
    )
    return [Table("Memory of waiting runs", [figure, thousand], [note])]


async def lasting(bench: Bench) -> list[Table]:
    """Whether a server that has been running for long holds more than one that has just warmed up."""
    ours, count = bench.against_adk.ours, bench.scale.lasting_runs
    if ours is None:
        return []
    sizes: list[float] = []
    async with bench.server(ours, "sqlite") as server:
        for _ in range(STOPS):
            await _sessions_that_come_and_go(server, count // STOPS)
            await _until_idle(server)
            sizes.append(server.memory_bytes() / 1e6)
    done = [count // STOPS * stop for stop in range(1, STOPS + 1)]
    figures = [Figure(f"after {runs:,} runs", "MB", (), [size]) for runs, size in zip(done, sizes, strict=True)]
    growth = Figure(
        f"growth from {done[0]:,} runs on", "MB", (), [sizes[-1] - sizes[0]], target=Target(at_most=GROWTH_MEGABYTES)
    )
    note = f"/run on SQLite; sessions have {RUNS_PER_SESSION} runs each and are deleted then. Proportional set size."
    return [Table(f"Memory over {count:,} runs", [*figures, growth], [note])]


async def _sessions_that_come_and_go(server: Server, runs: int) -> None:
    sessions = [calls.new_session_id() for _ in range(runs // RUNS_PER_SESSION)]
    await prepare(server.port, [calls.create_session("echo", session) for session in sessions])
    series = [RequestSeries(calls.run("echo", session), RUNS_PER_SESSION) for session in sessions]
    expected = Expected(calls.MESSAGE.encode())
    outcome = await drive(server.port, series, concurrency=LASTING_CONCURRENCY, expected=expected, deadline_seconds=600)
    if outcome.errors:
        raise RuntimeError(f"{server.name}: {dict(outcome.errors)}")
    await prepare(server.port, [calls.delete_session("echo", session) for session in sessions])


async def _growth_by_waiting(server: Server, count: int) -> float:
    """Bytes. Raises RuntimeError if a run came to an end."""
    names = [calls.new_session_id() for _ in range(count)]
    await prepare(server.port, [calls.create_session("slow", name) for name in names])
    await _until_idle(server)
    before = server.memory_bytes()
    connections = await connect_many(server.port, count)
    runs = [
        asyncio.ensure_future(connection.exchange(calls.run_sse("slow", name)))
        for connection, name in zip(connections, names, strict=True)
    ]
    try:
        await _until_idle(server)
        grown = server.memory_bytes() - before
        ended = sum(run.done() for run in runs)
        if ended:
            raise RuntimeError(f"{server.name}: {ended} of {count} runs did not wait{os.linesep}{server.log_tail()}")
        return grown
    finally:
        for run in runs:
            run.cancel()
        await asyncio.gather(*runs, return_exceptions=True)
        for connection in connections:
            connection.close()
