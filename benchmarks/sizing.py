"""Computes the servers and databases that a number of users needs, from the measured costs of turns.

`python -m benchmarks.turn_costs` measures, and writes `turn_costs.json`. `python -m benchmarks.sizing` prints the
tables of docs/scaling.md, for other users and habits, too: `python -m benchmarks.sizing --users 50000 --turns 20`.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

COSTS = Path(__file__).with_name("turn_costs.json")
USERS = (1_000, 100_000, 10_000_000)
DAY_SECONDS = 86_400


class TurnCost(msgspec.Struct, kw_only=True, rename="camel"):
    """Measured costs of one turn of an app that answers at once, on PostgreSQL with `fsync`."""

    name: str
    statements: float
    """Round trips to PostgreSQL, when turns follow one another."""
    commits: float
    """Of those, transactions that write."""
    notifies: float
    stored_bytes: float
    """Growth of tables and indexes, without traces, of which the newest 50,000 rows are kept."""
    wal_bytes: float
    server_ms: float
    """CPU time of the server, with many turns at once."""
    postgres_ms: float
    commits_at_once: float
    """Transactions that write, with many turns at once: they share commits."""


class TurnCosts(msgspec.Struct, kw_only=True, rename="camel"):
    date: str
    machine: str
    postgres: str
    concurrency: int
    """Turns at once, where many are measured."""
    idle_statements_per_second: float
    """Of a server that does nothing."""
    forwarding_ms: float
    """CPU time of both servers for a forwarded turn, beyond that of a turn at its owner."""
    turns: list[TurnCost]


@dataclass(frozen=True, kw_only=True)
class Habits:
    """Assumptions on the use of the service and of its machines."""

    active_share: float = 0.2
    """Of the users, those who come on a day."""
    turns_per_day: float = 10
    """Of an active user."""
    tool_share: float = 0.5
    """Of the turns, those with a tool call; the others are streamed."""
    turn_seconds: float = 8
    """Mostly the model's time."""
    text_bytes: float = 3_000
    """Of a turn's messages and tool responses, beyond the measured ones, which are short."""
    page_hours: float = 0.5
    """Time for which an active user's page is open on a day."""
    peak: float = 3
    """The busiest hour, relative to the mean of the day."""
    busy_share: float = 0.6
    """Utilization of a core at the peak."""
    connections_per_server: int = 13
    """To PostgreSQL, at most."""
    cores_per_database: int = 16
    bytes_per_database: float = 10e12


@dataclass(frozen=True, kw_only=True)
class Needs:
    """Needs of a number of users, at the peak where it is a rate."""

    users: int
    turns_per_day: float
    turns: float
    runs: float
    """At the same time."""
    client_connections: float
    server_cores: float
    servers: int
    postgres_connections: int
    commits: float
    """At most: what is written at the same moment shares one."""
    notifies: float
    wal_bytes: float
    postgres_cores: float
    stored_bytes_per_year: float
    databases: int


def needs_of(users: int, costs: TurnCosts, habits: Habits) -> Needs:
    by_name = {turn.name: turn for turn in costs.turns}

    def mean(field: str) -> float:
        tool: float = getattr(by_name["tool"], field)
        stream: float = getattr(by_name["stream"], field)
        return habits.tool_share * tool + (1 - habits.tool_share) * stream

    active = users * habits.active_share
    turns_per_day = active * habits.turns_per_day
    turns = turns_per_day / DAY_SECONDS * habits.peak
    pages = active * habits.page_hours / 24 * habits.peak
    runs = turns * habits.turn_seconds

    # With many servers, nearly every request meets another one than the owner of its session.
    server_cores = turns * (mean("server_ms") + costs.forwarding_ms) / 1000
    servers = max(2, math.ceil(server_cores / habits.busy_share))
    postgres_cores = turns * mean("postgres_ms") / 1000
    stored_bytes_per_year = turns_per_day * 365 * (mean("stored_bytes") + habits.text_bytes)
    databases = max(
        1,
        math.ceil(postgres_cores / habits.busy_share / habits.cores_per_database),
        math.ceil(stored_bytes_per_year / habits.bytes_per_database),
    )
    return Needs(
        users=users,
        turns_per_day=turns_per_day,
        turns=turns,
        runs=runs,
        client_connections=pages + runs,
        server_cores=server_cores,
        servers=servers,
        postgres_connections=servers * habits.connections_per_server,
        commits=turns * mean("commits"),
        notifies=turns * mean("notifies"),
        wal_bytes=turns * (mean("wal_bytes") + habits.text_bytes),
        postgres_cores=postgres_cores,
        stored_bytes_per_year=stored_bytes_per_year,
        databases=databases,
    )


def read_costs() -> TurnCosts:
    return msgspec.json.decode(COSTS.read_bytes(), type=TurnCosts)


Rows = list[tuple[str, ...]]


def cost_rows(costs: TurnCosts) -> Rows:
    """The measured costs, a column for each kind of turn."""
    names = {"echo": "answer", "tool": "with a tool call", "stream": "streamed in 200 chunks"}
    turns = [next(turn for turn in costs.turns if turn.name == name) for name in names]

    def row(label: str, field: str, unit: str = "", digits: int = 1) -> tuple[str, ...]:
        return (label, *(f"{getattr(turn, field):.{digits}f}{unit}" for turn in turns))

    return [
        ("", *names.values()),
        row("statements (round trips) one turn at a time", "statements"),
        row("commits, one turn at a time", "commits"),
        row(f"commits, {costs.concurrency} turns at once", "commits_at_once", digits=2),
        row("NOTIFYs", "notifies"),
        ("stored", *(f"{turn.stored_bytes / 1000:.1f} kB" for turn in turns)),
        ("written to the WAL", *(f"{turn.wal_bytes / 1000:.1f} kB" for turn in turns)),
        row("CPU of the server", "server_ms", " ms", 2),
        row("CPU of PostgreSQL", "postgres_ms", " ms", 2),
    ]


def need_rows(costs: TurnCosts, habits: Habits, users: Sequence[int] = USERS) -> Rows:
    """The needs, a column for each number of users."""
    needs = [needs_of(count, costs, habits) for count in users]
    return [
        ("users", *(_count(need.users) for need in needs)),
        ("turns per day", *(_count(need.turns_per_day) for need in needs)),
        ("turns per second, at the peak", *(_count(need.turns) for need in needs)),
        ("runs at the same time", *(_count(need.runs) for need in needs)),
        ("connections of clients", *(_count(need.client_connections) for need in needs)),
        ("cores that servers use", *(_count(need.server_cores) for need in needs)),
        ("servers of one core, at least two", *(_count(need.servers) for need in needs)),
        ("connections to PostgreSQL, at most", *(_count(need.postgres_connections) for need in needs)),
        ("cores that PostgreSQL uses", *(_count(need.postgres_cores) for need in needs)),
        ("commits per second, at most", *(_count(need.commits) for need in needs)),
        ("NOTIFYs per second", *(_count(need.notifies) for need in needs)),
        ("WAL per second", *(_bytes(need.wal_bytes) for need in needs)),
        ("stored in a year", *(_bytes(need.stored_bytes_per_year) for need in needs)),
        ("databases", *(_count(need.databases) for need in needs)),
    ]


def _count(number: float) -> str:
    if number >= 1_000_000:
        return f"{number / 1_000_000:,.3g} M"
    if number >= 100:
        return f"{number:,.0f}"
    if 0 < number < 0.01:
        return "< 0.01"
    return f"{number:.2g}"


def _bytes(number: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:,.3g} TB"


def markdown(rows: Rows) -> str:
    head, *rest = rows
    lines = [head, ("---", *("--:" for _ in head[1:])), *rest]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def main() -> None:
    default = Habits()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sizing", description="Print what users need.")
    parser.add_argument("--users", type=int, nargs="+", default=USERS)
    parser.add_argument("--turns", type=float, default=default.turns_per_day, help="turns of an active user per day")
    parser.add_argument("--active", type=float, default=default.active_share, help="share of users active on a day")
    parser.add_argument("--seconds", type=float, default=default.turn_seconds, help="time of a turn")
    parser.add_argument("--text", type=float, default=default.text_bytes, help="bytes of a turn's texts")
    parser.add_argument("--peak", type=float, default=default.peak, help="busiest hour, relative to the mean")
    given = parser.parse_args()
    habits = Habits(active_share=given.active, turns_per_day=given.turns, turn_seconds=given.seconds, peak=given.peak)
    costs = read_costs()
    print(f"Measured {costs.date} on {costs.machine}, PostgreSQL {costs.postgres}:\n")
    print(markdown(cost_rows(costs)))
    print(markdown(need_rows(costs, habits, given.users)))


if __name__ == "__main__":
    main()
