"""The work of a request is the same however much the server holds: apps, sessions, users, runs, artifacts, memories.

Counted are statements, rows and file system calls, at two sizes of a server, for every endpoint of the table. Of the
WebSocket `/run_live` are not: a live conversation stores its run and its events as `/run` does.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import asyncpg
import pytest

from greenroom.apps.load_directory import DirectoryAppLoader
from greenroom.artifacts.files import FileArtifactService
from greenroom.memory.postgres import PostgresMemoryService
from greenroom.memory.sqlite import SqliteMemoryService
from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata
from greenroom.records.auth import AuthConfig, AuthCredential, AuthCredentialTypes, CredentialRequest, to_auth_scheme
from greenroom.records.content import Content, Part
from greenroom.records.event import Event
from greenroom.records.listings import MemoryEntry
from greenroom.records.run import PushConfig, Run, RunFilter, RunStatus
from greenroom.records.session import SessionKey
from greenroom.runs.in_process import InProcessRunEngine
from greenroom.server.endpoint import Endpoint
from greenroom.server.endpoints import ENDPOINTS
from greenroom.usage.store import ModelDay, ModelUsage
from tests.file_system_calls import FileSystemCall, file_system_calls
from tests.postgres import work as postgres_work
from tests.server.conftest import Serve, Store
from tests.server.serving import Serving
from tests.server.test_endpoint_table import HEADERS, body_for, filled, prepared
from tests.sqlite import work as sqlite_work

SMALL = 250
LARGE = 1250
"""Sessions of others, each with a run, a memory and a credential. A fifth as many artifacts, a fiftieth as many apps."""

TABLES = ("events", "sessions", "runs", "memories", "memory_words", "model_usage", "spans", "idempotency_keys",
    "credentials", "credential_requests", "webhooks", "session_state", "user_state", "session_ancestors")  # fmt: skip

GROWS = {
    "get_version_scores": "compares the newest 10,000 runs of the app, here all of them",
    "list_apps": "returns all apps",
    "list_budgets": "sums the usage that a budget limits, here that of all runs of the app",
    "list_usage": "sums the usage that it is asked for, here that of all runs of the app",
    "metrics": "returns the metrics of all apps",
    "retry_runs": "retries all failed runs, here those of all users",
}
"""Handlers whose work grows, and why it may."""

READ_IN_ORDER = "SCAN runs USING INDEX runs_by_time"
"""So SQLite calls it when a list begins at the end of the index, and ends with the page."""

NOT_KEPT = ("access", "audit")
"""Tags of endpoints that this server doesn't offer: it has no keys and no audit trail."""

IN_FILES = ("evaluation", "editing", "web page", "server")
"""Tags of endpoints that use no database, or in one way; they are tried with SQLite only."""

QUERIES = {
    "list_sessions": ("limit=20", "limit=20&state=kind%3Dchat", "limit=20&updated_from=1", "text=hello"),
    "list_runs": (
        "limit=20",
        "limit=20&app_name=echo",
        "limit=20&user_id=ann",
        "limit=20&app_name=echo&user_id=ann",
        "limit=20&app_name=echo&user_id=ann&session_id=s-1",
        "limit=20&status=running",
        "limit=20&status=failed",
        "limit=20&status=succeeded&user_id=ann",
        "limit=20&app_name=echo&feedback=helpful&max_score=0",
    ),
    "list_usage": ("session_id=s-1&user_id=ann", "group_by=model&user_id=ann"),
}
"""Requests of list endpoints besides the one without parameters."""

_NOBODY = RunFilter(app_names=["nobody"], user_id="nobody", session_id="nobody")

_AGENT = """
from tests.server.agents import asking_echo
root_agent = asking_echo()
"""


class Cost(NamedTuple):
    """rows: or what SQLite's machine does for them. in_loop: file system calls in the thread of the event loop."""

    statements: int
    rows: int
    calls: int
    in_loop: int
    scans: list[str]

    def exceeds(self, other: Cost) -> bool:
        """By more than a deeper index, or another order of the same steps, explains."""
        return (
            self.statements > other.statements + 1
            or self.rows > 1.5 * other.rows + 600
            or self.calls > other.calls + 1
            or self.in_loop > other.in_loop
            or self.scans != []
        )


class Work(Protocol):
    def reset(self) -> None: ...

    async def count(self) -> tuple[int, int, list[str]]:
        """Statements, rows, and whole tables that were read, since `reset`."""
        ...


class _SqliteWork:
    def __init__(self, counted: sqlite_work.SqliteWork, path: Path) -> None:
        self._counted = counted
        self._path = path

    def reset(self) -> None:
        self._counted.reset()

    async def count(self) -> tuple[int, int, list[str]]:
        statements = [one for one in self._counted.statements if not _is_of_the_server(one.text)]
        with contextlib.closing(sqlite3.connect(self._path)) as connection:
            scans = sqlite_work.scans(connection, statements, TABLES)
        return len(statements), sum(one.instructions for one in statements), scans


class _PostgresWork:
    def __init__(self, counted: postgres_work.PostgresWork, connection: asyncpg.Connection) -> None:
        self._counted = counted
        self._connection = connection

    def reset(self) -> None:
        self._counted.reset()

    async def count(self) -> tuple[int, int, list[str]]:
        statements = [one for one in self._counted.statements if not _is_of_the_server(one.text)]
        rows, scans = await postgres_work.plans(self._connection, statements, TABLES)
        return len(statements), rows, scans


def _is_of_the_server(statement: str) -> bool:
    """Not the request's own: transactions may be shared, traces are written a second after their runs, and a server
    shows once a second that it is alive."""
    if "nobody" in statement or statement.startswith(("BEGIN", "COMMIT", "ROLLBACK", "PRAGMA")):
        return True
    if "replicas" in statement or "pg_locks" in statement:
        return True
    return "spans" in statement and statement.lstrip().startswith(
        ("INSERT INTO spans", "DELETE FROM spans WHERE number")
    )


class Filling:
    """Data of other users on the server; each call of `fill` adds more."""

    def __init__(self, engine: InProcessRunEngine, folder: Path) -> None:
        self._engine = engine
        self._folder = folder
        self._sessions = 0

    async def fill(self, sessions: int) -> None:
        for first in range(self._sessions, sessions, 100):
            numbers = range(first, min(first + 100, sessions))
            await asyncio.gather(*(self._add(number) for number in numbers))
        for number in range(self._sessions // 50, sessions // 50):
            app = self._folder / f"other_{number}"
            app.mkdir()
            (app / "agent.py").write_text(_AGENT)
        self._sessions = sessions

    async def _add(self, number: int) -> None:
        """A session of one of many users, every other one in the app of the test."""
        engine = self._engine
        app_name = "echo" if number % 2 else f"other_{number % 7}"
        key = SessionKey(app_name, f"user-{number // 4}", f"session-{number}")
        owner = {"app_name": key.app_name, "user_id": key.user_id}
        content = Content(role="user", parts=[Part(text=f"hello {number}")])
        events = [Event(author="user", content=content, invocation_id=f"run-{number}") for _ in range(3)]
        await engine.session_service.create_session(**key._asdict(), events=events, state={"kind": "chat", "user:n": 1})

        status = RunStatus.SUCCEEDED if number % 5 else RunStatus.FAILED
        run = Run(
            id=f"run-{number}", **key._asdict(), status=status, created_at=time.time(), idempotency_key=f"once-{number}"
        )
        await engine.run_store.save(run)
        await engine.run_store.save_push_config(PushConfig(run_id=run.id, id="w", config={}, is_over=True))
        reported = GenerateContentResponseUsageMetadata(prompt_token_count=3, total_token_count=3)
        await engine.session_service.usage.record(run, {ModelDay("m", 20_000): ModelUsage(1, reported)})

        memory = MemoryEntry(content=content)
        assert engine.memory_service is not None
        await engine.memory_service.add_memories(**owner, memories=[memory])
        assert engine.artifact_service is not None
        if number % 5 == 0:
            await engine.artifact_service.save_artifact(**key._asdict(), filename="a.txt", artifact=Part(text="x"))
        credential = AuthCredential(auth_type=AuthCredentialTypes.API_KEY, api_key="k")
        scheme = {"type": "apiKey", "in": "header", "name": "X-Key"}
        config = AuthConfig(auth_scheme=to_auth_scheme(scheme), raw_auth_credential=credential)
        await engine.credential_service.save_credential(**owner, credential_key="login", credential=credential)
        asked = CredentialRequest(id=f"call-{number}", session_id=key.session_id, auth_config=config)
        await engine.credential_service.save_request(**owner, request=asked)


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest) -> Store:
    return request.param


@pytest.fixture
async def work(request: pytest.FixtureRequest, store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Counts what the server's stores do, from before it starts."""
    if store == "sqlite":
        with sqlite_work.counting(monkeypatch) as counted:
            yield _SqliteWork(counted, tmp_path / "sessions.db")
    else:
        connection = await asyncpg.connect(request.getfixturevalue("postgres_uri"))
        with postgres_work.counting(monkeypatch) as counted:
            yield _PostgresWork(counted, connection)
        await connection.close()


async def test_requests_cost_the_same_whatever_the_server_holds(
    request: pytest.FixtureRequest,
    store: Store,
    serve: Serve,
    work: Work,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    folder = tmp_path / "apps"
    (folder / "echo").mkdir(parents=True)
    (folder / "echo" / "agent.py").write_text(_AGENT)
    if store == "sqlite":
        memory = SqliteMemoryService(tmp_path / "sessions.db")
    else:
        memory = PostgresMemoryService(request.getfixturevalue("postgres_uri"))
    services = {
        "app_loader": DirectoryAppLoader(folder),
        "artifact_service": FileArtifactService(tmp_path / "artifacts"),
        "memory_service": memory,
    }
    server = await serve(services=services, edit=True)
    assert isinstance(server.app.engine, InProcessRunEngine)
    filling = Filling(server.app.engine, folder)

    endpoints = [one for one in ENDPOINTS if (store == "sqlite" or one.tag not in IN_FILES) and one.tag not in NOT_KEPT]
    costs: list[dict[str, Cost]] = []
    with file_system_calls(monkeypatch) as calls:
        for size in (1, SMALL, LARGE):  # the first time, modules are imported
            await filling.fill(size)
            if store == "postgres":
                await _analyze(request.getfixturevalue("postgres_uri"))
            costs.append(await _costs(server, work, calls, endpoints))

        _, small, large = costs
        grown = _grown(small, large)
        if grown:  # or the server did something of its own meanwhile
            handlers = {name.partition("?")[0] for name in grown}
            again = [endpoint for endpoint in endpoints if endpoint.handler.__name__ in handlers]
            grown = _grown(small, await _costs(server, work, calls, again))
    assert not grown


def _grown(small: Mapping[str, Cost], large: Mapping[str, Cost]) -> dict[str, tuple[Cost, Cost]]:
    grown = {name: (small[name], cost) for name, cost in large.items() if cost.exceeds(small[name])}
    return {name: costs for name, costs in grown.items() if name.partition("?")[0] not in GROWS}


async def _costs(
    server: Serving, work: Work, calls: list[FileSystemCall], endpoints: Sequence[Endpoint]
) -> dict[str, Cost]:
    costs: dict[str, Cost] = {}
    for endpoint in endpoints:
        handler = endpoint.handler.__name__
        for query in ("", *QUERIES.get(handler, ())):
            name = f"{handler}?{query}" if query else handler
            assert name not in costs, "two endpoints have handlers of one name"
            values = await prepared(server, endpoint)
            costs[name] = await _cost(server, work, calls, endpoint, values, query)
            for session_id in ("s-1", "s-2"):
                await server.client.delete(f"/apps/echo/users/ann/sessions/{session_id}")
    return costs


async def _cost(
    server: Serving, work: Work, calls: list[FileSystemCall], endpoint: Endpoint, values: Mapping[str, str], query: str
) -> Cost:
    body = body_for(endpoint)
    sent = {} if body is None else {"json": body}
    path = filled(endpoint.path, dict(values))
    await _settled(server)
    work.reset()
    calls.clear()

    reply = await server.client.request(endpoint.method, f"{path}?{query}", headers=HEADERS, **sent)
    assert reply.status_code < 500 or reply.status_code == endpoint.status, reply.text
    await _settled(server)

    made = list(calls)
    statements, rows, scans = await work.count()
    scans = [scan for scan in scans if not scan.startswith(READ_IN_ORDER)]
    return Cost(statements, rows, len(made), sum(call.is_on_this_thread for call in made), scans)


async def _settled(server: Serving) -> None:
    """Waits for the ends of runs, and until what they wrote is stored."""
    engine = server.app.engine
    assert isinstance(engine, InProcessRunEngine)
    async with asyncio.timeout(10):
        while engine.load():
            await asyncio.sleep(0.001)
    await engine.run_store.list_runs(_NOBODY, limit=1)


async def _analyze(uri: str) -> None:
    """Updates the statistics, as PostgreSQL itself does some time after many changes."""
    connection = await asyncpg.connect(uri)
    await connection.execute("ANALYZE")
    await connection.close()
