"""Cost of requests on a server that holds many apps, sessions and events, beside the same on one that holds few."""

from __future__ import annotations

import sqlite3
import statistics
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from uuid import uuid4

from benchmarks import calls, servers
from benchmarks.bench import Bench, Tally
from benchmarks.connection import request_bytes
from benchmarks.load import Expected, RequestSeries, drive, prepare
from benchmarks.report import Figure, Table, Target
from benchmarks.scenarios.databases import PLACES, postgres_server
from benchmarks.servers import APPS, Server, session_service_uri
from greenroom.postgres.connection import Connection

APP = "echo"
TEMPLATE = "template"
"""The session whose rows are copied; its user is the one of all calls."""

TURNS = 5
"""Of the template: two events each."""

BLOCKS = 4
"""Of requests in a round, the two servers in turn."""

AT_MOST_TIMES = 1.5

CREATE, TURN, LIST, GET, DELETE = "create", "turn", "list, limit=20", "get", "delete"
EMPTY, BIG = "empty", "big"
MEDIAN, CPU = "latency p50", "server CPU"


@dataclass(frozen=True)
class Size:
    """own_sessions: of the user that makes the requests, in the measured app. The others are of other users."""

    apps: int
    sessions: int
    own_sessions: int


def _copied_into(table: str, columns: Sequence[str], changed: dict[str, str], source: str) -> str:
    """A statement that copies rows of the template; `changed` has the expressions of the columns that differ."""
    values = [changed.get(column, f"{table}.{column}") for column in columns]
    return f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(values)} FROM {source}"


def _statements(columns: Callable[[str], Sequence[str]], size: Size) -> Iterable[str]:
    """Copy the template's session with all its rows, in the SQL of both databases. `copies` has a row for each copy.

    columns: those of a table that are to be written; the databases number the others by themselves.
    """
    is_own = f"n < {size.own_sessions}"
    changed = {
        "app_name": f"CASE WHEN {is_own} THEN '{APP}' ELSE 'app_' || (n % {size.apps}) END",
        "user_id": f"CASE WHEN {is_own} THEN '{calls.USER}' ELSE 'user-' || (n / 20) END",
        "id": "'copy-' || n",
        "update_time": "update_time - n",
    }
    template = f"sessions.id = '{TEMPLATE}'"
    yield _copied_into("sessions", columns("sessions"), changed, f"sessions, copies WHERE {template} ORDER BY n")

    joined = f"JOIN sessions ON sessions.number = session AND {template} CROSS JOIN sessions AS copy"
    is_copy = "copy.id LIKE 'copy-%'"
    for table in ("events", "session_state", "state_changes"):
        source = f"{table} {joined} WHERE {is_copy} ORDER BY copy.number"
        yield _copied_into(table, columns(table), {"session": "copy.number"}, source)

    changed = {
        "app_name": "copy.app_name",
        "user_id": "copy.user_id",
        "session_id": "copy.id",
        "id": "runs.id || copy.id",
        "run_id": "model_usage.run_id || copy.id",
    }
    for table in ("runs", "model_usage"):
        source = f"{table} CROSS JOIN sessions AS copy WHERE session_id = '{TEMPLATE}' AND {is_copy}"
        yield _copied_into(table, columns(table), changed, source)


def _fill_sqlite(uri: str, size: Size) -> None:
    path = Path("/" + uri.removeprefix("sqlite:").lstrip("/"))
    with closing(sqlite3.connect(path)) as connection:

        def columns(table: str) -> list[str]:
            found = connection.execute(f"SELECT name FROM pragma_table_info('{table}') WHERE name <> 'number'")
            return [name for (name,) in found]

        connection.execute("CREATE TEMP TABLE copies (n INTEGER)")
        connection.executemany("INSERT INTO copies VALUES (?)", ((number,) for number in range(size.sessions)))
        for statement in _statements(columns, size):
            connection.execute(statement)
        # As the store does every few hundred events.
        connection.execute("UPDATE session_listing SET listed_to = (SELECT max(number) FROM events)")
        connection.commit()


async def _fill_postgres(uri: str, size: Size) -> None:
    # Not greenroom's, whose statements have a time limit.
    connection: Connection = await import_module("asyncpg").connect(uri)

    async def columns_of(table: str) -> list[str]:
        found = await connection.fetch(
            "SELECT column_name FROM information_schema.columns WHERE table_name = $1 AND is_identity = 'NO'", table
        )
        return [name for (name,) in found]

    try:
        tables = ("sessions", "events", "session_state", "state_changes", "runs", "model_usage")
        columns = {table: await columns_of(table) for table in tables}
        await connection.execute(f"CREATE TEMP TABLE copies AS SELECT generate_series(0, {size.sessions - 1}) AS n")
        for statement in _statements(columns.__getitem__, size):
            await connection.execute(statement)
        await connection.execute("VACUUM ANALYZE")
    finally:
        await connection.close()


def _make_apps(folder: Path, count: int) -> Path:
    """A folder for `Server` with the measured app, and so many others."""
    source = (APPS / "greenroom" / APP / "agent.py").read_text()
    for name in (APP, *(f"app_{number}" for number in range(count))):
        app = folder / "greenroom" / name
        app.mkdir(parents=True)
        (app / "agent.py").write_text(source.replace(f'name="{APP}"', f'name="{name}"'))
    return folder


async def _make_template(server: Server) -> None:
    await prepare(server.port, [calls.create_session(APP, TEMPLATE)])
    await prepare(server.port, [calls.run(APP, TEMPLATE)] * TURNS)


@asynccontextmanager
async def _server(bench: Bench, name: str, uri: str, size: Size) -> AsyncGenerator[Server]:
    """A server on a new database at the URI, which is filled before."""
    directory = bench.scratch / uuid4().hex
    apps = _make_apps(directory / "apps", size.apps)
    contender = servers.greenroom_on(uri, name)
    async with Server(contender, directory, apps=apps) as server:
        await _make_template(server)
        await server.end()
    if uri.startswith("sqlite:"):
        _fill_sqlite(uri, size)
    else:
        await _fill_postgres(uri, size)
    async with Server(contender, directory, apps=apps) as server:
        yield server


class _Requests:
    """The requests of one server, each made once."""

    def __init__(self) -> None:
        self._created: list[str] = []
        self._stored = 0

    def take(self, kind: str, count: int) -> list[bytes]:
        match kind:
            case "create":
                created = [calls.new_session_id() for _ in range(count)]
                self._created += created
                return [calls.create_session(APP, session) for session in created]
            case "turn":
                return [calls.run(APP, session) for session in self._created[-count:]]
            case "get":
                return [calls.get_session(APP, session) for session in self._next_stored(count)]
            case "delete":
                return [calls.delete_session(APP, session) for session in self._next_stored(count)]
            case _:
                return [request_bytes("GET", f"{calls.sessions_path(APP)}?limit=20")] * count

    def _next_stored(self, count: int) -> list[str]:
        """Sessions that the server has not loaded yet."""
        first = self._stored
        self._stored += count
        return [f"copy-{number}" for number in range(first, first + count)]


EXPECTED = {
    CREATE: Expected(b'"id"'),
    TURN: Expected(calls.MESSAGE.encode()),
    LIST: Expected(b'"id"', 20),
    GET: Expected(b'"invocationId"', 2 * TURNS),
    DELETE: Expected(b""),
}


async def _measure_kind(
    tally: Tally, kind: str, both: Sequence[Server], requests: Mapping[str, _Requests], count: int
) -> None:
    """One round. The two servers take turns in blocks, so that other load on the machine meets both."""
    latencies: dict[str, list[float]] = {server.name: [] for server in both}
    cpu_seconds: dict[str, float] = {server.name: 0.0 for server in both}
    for _ in range(BLOCKS):
        for server in both:
            series = [RequestSeries(request) for request in requests[server.name].take(kind, count // BLOCKS)]
            before = server.process_seconds()
            outcome = await drive(server.port, series, concurrency=1, expected=EXPECTED[kind])
            cpu_seconds[server.name] += server.process_seconds() - before
            latencies[server.name] += outcome.latencies
            tally.count_errors(server, outcome)

    for server in both:
        answered = latencies[server.name]
        if answered:
            tally.add(server, f"{kind}, {MEDIAN}", statistics.median(answered))
            tally.add(server, f"{kind}, {CPU}", cpu_seconds[server.name] / len(answered))


def _figure(tally: Tally, name: str, unit: str, factor: float, target: Target | None) -> Figure:
    empty = [value * factor for value in tally.values[EMPTY, name]]
    big = [value * factor for value in tally.values[BIG, name]]
    return Figure(name, unit, empty, big, target=target)


async def _measure(bench: Bench, where: str, uris: dict[str, str]) -> Table:
    scale = bench.scale
    own = 2 * (scale.rounds + 1) * scale.requests
    sizes = {EMPTY: Size(0, own, own), BIG: Size(scale.big_apps, scale.big_sessions, own)}
    tally = Tally()
    async with AsyncExitStack() as running:
        both = [
            await running.enter_async_context(_server(bench, name, uris[name], size)) for name, size in sizes.items()
        ]
        requests = {server.name: _Requests() for server in both}
        for number in range(-1, scale.rounds):
            for kind in EXPECTED:
                await _measure_kind(tally if number >= 0 else Tally(), kind, both, requests, scale.requests)
    figures: list[Figure] = []
    for kind in EXPECTED:
        figures.append(_figure(tally, f"{kind}, {MEDIAN}", "ms", 1e3, Target(times_better=1 / AT_MOST_TIMES)))
        figures.append(_figure(tally, f"{kind}, {CPU}", "µs", 1e6, None))
    big = sizes[BIG]
    notes = [
        f"{big.sessions:,} sessions with {2 * TURNS} events and {TURNS} runs each, {big.sessions * 2 * TURNS:,} events "
        f"together, and {big.apps:,} apps, beside one app with the {own:,} sessions of the measured user, whom the big "
        f"database has as well. One request at a time; the sessions of get and delete are not in memory.",
        f"Wanted: at most {AT_MOST_TIMES:g} times as long. The server's CPU includes what it does meanwhile apart from "
        "requests, such as looking for changed apps.",
        *tally.notes(),
    ]
    return Table(f"A big database, {where}", figures, notes, peer_name=EMPTY, ours_name=BIG)


async def sqlite(bench: Bench) -> list[Table]:
    uris = {name: session_service_uri("sqlite", bench.scratch / f"{name}-{uuid4().hex}") for name in (EMPTY, BIG)}
    return [await _measure(bench, PLACES["sqlite"], uris)]


async def postgres(bench: Bench) -> list[Table]:
    with postgres_server() as database:
        uris = {name: database.make_database(f"{name}_{uuid4().hex}") for name in (EMPTY, BIG)}
        return [await _measure(bench, PLACES["postgres"], uris)]
