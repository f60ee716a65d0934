"""Cost of forks, lists and stored bytes of sessions in SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import statistics
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from benchmarks.bench import Bench
from benchmarks.report import Figure, Table, Target
from greenroom.postgres.connection import connect
from greenroom.records import wire
from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata
from greenroom.records.base import JsonObject
from greenroom.records.content import Content, Part
from greenroom.records.event import Event
from greenroom.sessions.from_uri import session_service_from_uri
from greenroom.sessions.service import BaseSessionService
from tests.postgres.postgres_server import PostgresServer, started_server

OWNER: JsonObject = {"app_name": "bench", "user_id": "ann"}
EVENTS = 100_000
FORKS = 100
SESSIONS = (100, 100_000)
AT_ONCE = 500
WORDS = ["the", "ferry", "to", "Oslo", "leaves", "at", "nine", "and", "a", "ticket", "costs", "forty", "crowns"]


def _event(number: int) -> Event:
    """A user's message or a model's answer, every other one with usage, every fourth with a change of the state."""
    is_answer = number % 2 == 1
    text = " ".join(itertools.islice(itertools.cycle(WORDS), 80 if is_answer else 20))
    content = Content(role="model" if is_answer else "user", parts=[Part(text=f"{number}: {text}")])
    event = Event(author="agent" if is_answer else "user", invocation_id=f"e-{number // 2}", content=content)
    if is_answer:
        event.usage_metadata = GenerateContentResponseUsageMetadata(
            prompt_token_count=number, candidates_token_count=100, total_token_count=number + 100
        )
    if number % 4 == 3:
        event.actions.state_delta = {"count": number, f"key-{number % 50}": {"at": number}}
    return event


async def _seconds(calls: int, call: Callable[[], Awaitable[object]]) -> float:
    """The median of single calls."""
    taken: list[float] = []
    for _ in range(calls):
        started = time.perf_counter()
        await call()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)


@dataclass(frozen=True)
class EmptyStore:
    """An empty database and how many bytes it holds."""

    uri: str
    size: Callable[[], Awaitable[int]]


def _in_file(path: Path) -> EmptyStore:
    async def size() -> int:
        with closing(sqlite3.connect(path)) as connection:
            (pages,), (size,) = (
                connection.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "page_size")
            )
            return pages * size

    return EmptyStore(f"sqlite:////{str(path).lstrip('/')}", size)


def _on_server(server: PostgresServer) -> EmptyStore:
    """Without what an empty database holds, and after the work that PostgreSQL otherwise does later."""
    uri = server.make_database(f"bench_{uuid4().hex}")
    empty = 0

    async def size() -> int:
        nonlocal empty
        connection = await connect(uri)
        await connection.execute("VACUUM")
        found: int = await connection.fetchval("SELECT pg_database_size(current_database())")
        await connection.close()
        empty = empty or found
        return found - empty

    return EmptyStore(uri, size)


async def _fill(service: BaseSessionService) -> int:
    """Stores a session of `EVENTS` events, and returns the length of their JSON."""
    session = await service.create_session(**OWNER, session_id="s")
    size = 0
    for first in range(0, EVENTS, AT_ONCE):
        events = [_event(first + number) for number in range(AT_ONCE)]
        size += sum(len(wire.encode(event)) for event in events)
        await service.append(session, *events)
    return size


async def _forks(store: EmptyStore) -> list[Figure]:
    service = session_service_from_uri(store.uri)
    try:
        await service.list_apps()  # makes the tables
        await store.size()
        json_bytes = await _fill(service)
        factor = await store.size() / json_bytes
        figures: list[Figure] = []
        for label, seq in (("the last event", None), ("the middle", EVENTS // 2)):
            before = await store.size()

            async def fork(seq: int | None = seq) -> None:
                await service.fork_session(**OWNER, session_id="s", seq=seq)

            milliseconds = await _seconds(FORKS, fork) * 1e3
            kilobytes = (await store.size() - before) / FORKS / 1000
            figures.append(Figure(f"fork after {label}", "ms", [], [milliseconds], target=Target(at_most=5)))
            figures.append(Figure(f"a fork after {label}", "kB", [], [kilobytes], target=Target(at_most=10)))
        return [*figures, Figure("stored bytes, of the events' JSON", "×", [], [factor], target=Target(at_most=1.3))]
    finally:
        await service.close()


async def _listing(store: EmptyStore, count: int) -> float:
    service = session_service_from_uri(store.uri)
    try:
        for first in range(0, count, AT_ONCE):
            numbers = range(first, min(first + AT_ONCE, count))
            state = {"kind": "chat"}
            await asyncio.gather(*(service.create_session(**OWNER, session_id=f"s-{n}", state=state) for n in numbers))
        return await _seconds(50, lambda: service.list_sessions(**OWNER, limit=50))
    finally:
        await service.close()


async def sqlite(bench: Bench) -> list[Table]:
    return [await _measure(bench, "SQLite", lambda: _in_file(bench.scratch / f"{uuid4().hex}.db"))]


async def postgres(bench: Bench) -> list[Table]:
    server = started_server()
    try:
        return [await _measure(bench, "PostgreSQL", lambda: _on_server(server))]
    finally:
        server.remove()


async def _measure(bench: Bench, name: str, empty: Callable[[], EmptyStore]) -> Table:
    rounds: list[list[Figure]] = []
    for _ in range(bench.scale.rounds):
        figures = await _forks(empty())
        few, many = [await _listing(empty(), count) * 1e3 for count in SESSIONS]
        label = f"page 1 of {SESSIONS[1]:,} sessions"
        figures.append(Figure(label, "ms", [], [many]))
        figures.append(Figure(f"{label} to {SESSIONS[0]:,}", "×", [], [many / few], target=Target(at_most=2)))
        rounds.append(figures)
    for figure, *others in zip(*rounds, strict=True):
        figure.ours = [value for one in (figure, *others) for value in one.ours]
    notes = [f"A session of {EVENTS:,} events; {FORKS} forks, one after another; pages of 50 sessions."]
    return Table(f"Session store, {name}", rounds[0], notes)
