"""A store that runs out of space: writes get errors, reads still work, and when there is space again all works."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import resource
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.errors import StorageError
from greenroom.records.run import RunFilter, RunStatus
from greenroom.runs.sqlite_store import SqliteRunStore
from greenroom.server.application import create_app
from greenroom.sessions.sqlite import SqliteSessionService
from greenroom.sqlite.database import Database
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.functions.function_tool import FunctionTool
from tests.durability.engines import WHERE, Stores, asking, engine_over, finish
from tests.durability.invariants import Json, check_log, check_state, responses_of
from tests.durability.scripts import call, model_of
from tests.durability.server_app import APP
from tests.durability.server_process import ServerProcess, server_in
from tests.durability.sse_client import RunReader
from tests.server.serving import Serving, frames_of, run_body, serving, until

_LARGE = "too large for what is left of the pages " * 2000
_ALL_PAGES = 0xFFFFFFFE


@contextlib.asynccontextmanager
async def full(path: Path) -> AsyncGenerator[None]:
    """Keeps a database from growing."""
    database = Database.open(path)
    await database.submit(
        lambda cursor: cursor.execute(
            f"PRAGMA max_page_count = {cursor.execute('PRAGMA page_count').fetchone()[0]}"
        ).fetchone()
    )
    try:
        yield
    finally:
        await database.submit(lambda cursor: cursor.execute(f"PRAGMA max_page_count = {_ALL_PAGES}").fetchone())
        await database.close()


@dataclass
class Small:
    """A server whose database can be kept from growing. In the agent's tool a test has time to do so."""

    serving: Serving
    model: ScriptedModel
    begun: asyncio.Event
    go_on: asyncio.Event
    path: Path

    async def log(self) -> list[Json]:
        reply = await self.serving.client.get("/apps/desk/users/ann/sessions/s-1/events")
        assert reply.status_code == 200, reply.text
        return reply.json()["events"]

    async def can_be_read(self) -> None:
        log = await self.log()
        for path in ("/apps/desk/users/ann/sessions/s-1", "/health", "/list-apps"):
            assert (await self.serving.client.get(path)).status_code == 200
        state = (await self.serving.client.get("/apps/desk/users/ann/sessions/s-1")).json()["state"]
        check_state(log, state)


@pytest.fixture
async def small(tmp_path: Path) -> AsyncIterator[Small]:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def lookup() -> str:
        """Looks something up."""
        begun.set()
        await go_on.wait()
        return _LARGE

    model = model_of(lambda message: call("lookup", "c-1") if message == "look" else "Good day.", "Found.")
    agent = LlmAgent(name="desk", model=model, tools=[FunctionTool(lookup)])
    path = tmp_path / "greenroom.db"
    app = create_app(agents=[agent], session_service=SqliteSessionService(path))
    async with serving(app) as server:
        await server.new_session("desk")
        yield Small(server, model, begun, go_on, path)


@pytest.mark.parametrize("way", ["/run", "/run_sse", "background"])
async def test_a_run_that_finds_no_space_fails_and_says_so(small: Small, way: str) -> None:
    client = small.serving.client
    run_id = ""
    if way == "background":
        body = {"newMessage": run_body("desk", "look")["newMessage"]}
        run_id = (await client.post("/apps/desk/users/ann/sessions/s-1/runs", json=body)).json()["id"]
        asking = asyncio.ensure_future(client.get(f"/runs/{run_id}/events", headers={"accept": "text/event-stream"}))
    else:
        asking = asyncio.ensure_future(client.post(way, json=run_body("desk", "look", streaming=True)))
    await asyncio.wait_for(small.begun.wait(), 10)
    async with full(small.path):
        small.go_on.set()
        reply = await asyncio.wait_for(asking, 10)
        if way == "/run":
            assert reply.status_code == 503
            assert reply.json()["code"] == "StorageError"
        elif way == "/run_sse":
            last = frames_of(reply.content)[-1]
            assert last.data["error"].startswith("StorageError: ")
            assert last.data["error_details"]["error_type"] == "StorageError"
        else:
            last = frames_of(reply.content)[-1]
            assert (last.event, last.data["status"], last.data["error"]["code"]) == ("end", "failed", "StorageError")
            run = await client.get(f"/runs/{run_id}")
            assert run.json()["status"] == "failed"
        await small.can_be_read()
    await _no_run_is_left(small.path)
    assert (await small.serving.run("desk", "hello")).status_code == 200
    log = await small.log()
    assert not any(responses_of(event) for event in log)
    contents = small.model.requests[-1].contents
    made, answered = contents[1].parts or [], contents[2].parts or []
    assert [part.function_call and part.function_call.id for part in made] == ["c-1"]
    assert [part.function_response and part.function_response.id for part in answered] == ["c-1"]


async def test_a_message_for_which_there_is_no_space_is_refused(small: Small) -> None:
    client = small.serving.client
    body = run_body("desk", _LARGE)
    async with full(small.path):
        before = await small.log()
        plain = await client.post("/run", json=body)
        assert (plain.status_code, plain.json()["code"]) == (503, "StorageError"), plain.text
        streamed = await client.post("/run_sse", json=body)
        assert (streamed.status_code, streamed.json()["code"]) == (503, "StorageError"), streamed.text
        later = await client.post("/apps/desk/users/ann/sessions/s-1/runs", json={"newMessage": body["newMessage"]})
        assert later.status_code == 503, later.text
        assert await small.log() == before
        await small.can_be_read()
    await _no_run_is_left(small.path)
    assert await small.log() == before
    assert (await client.post("/run", json=body)).status_code == 200
    assert len(await small.log()) == len(before) + 2


async def test_a_run_in_line_whose_record_finds_no_space_does_not_block_the_line(small: Small) -> None:
    client = small.serving.client
    first = asyncio.ensure_future(small.serving.run("desk", "look"))
    await asyncio.wait_for(small.begun.wait(), 10)
    async with full(small.path):
        second = await client.post("/run", json=run_body("desk", _LARGE))
        assert second.status_code == 503
    small.go_on.set()
    assert (await first).status_code == 200
    assert (await small.serving.run("desk", "hello")).status_code == 200
    await _no_run_is_left(small.path)
    check_log(await small.log())


@pytest.mark.kill
async def test_a_server_on_a_full_disk_works_again_when_there_is_space(tmp_path: Path) -> None:
    async with server_in(tmp_path) as server, httpx.AsyncClient(base_url=server.url, timeout=30) as http:
        await server.start()
        where = {"appName": APP, "userId": "ann", "sessionId": "s-1"}
        path = f"/apps/{APP}/users/ann/sessions"
        assert (await http.post(path, json={"sessionId": "s-1"})).status_code == 200
        wal = tmp_path / "greenroom.db-wal"
        failures = 0
        for number in range(12):
            # A little more space each time, so that it ends at another event; some for each run that can't be stored.
            limits = itertools.count(wal.stat().st_size + 4096 * 2 * number, 4096)
            _limit_files(server, next(limits))
            reader = RunReader(http, where, message=str(number * 4 + 3), way="sse")
            reader.on_refusal = lambda limits=limits: _limit_files(server, next(limits))
            async with asyncio.timeout(20):
                await reader.read_to_the_end()
            assert reader.end is not None
            failures += reader.end["status"] == RunStatus.FAILED
            assert (await http.get(f"{path}/s-1")).status_code == 200
            _limit_files(server, resource.RLIM_INFINITY)
        assert failures > 0
        reader = RunReader(http, where, message="3")
        async with asyncio.timeout(20):
            await reader.read_to_the_end()
        assert reader.end is not None
        assert reader.end["status"] == RunStatus.SUCCEEDED
        log = (await http.get(f"{path}/s-1/events")).json()["events"]
        check_state(log, (await http.get(f"{path}/s-1")).json()["state"])
        await _no_run_is_left(tmp_path / "greenroom.db")
        await server.kill()
        await server.start()
        assert (await http.get(f"{path}/s-1/events")).json()["events"] == log


def _limit_files(server: ServerProcess, max_bytes: int) -> None:
    resource.prlimit(server.process_id, resource.RLIMIT_FSIZE, (max_bytes, resource.RLIM_INFINITY))


async def _no_run_is_left(path: Path) -> None:
    """For a next process to take up: the ends of those that failed are written as soon as there is space."""
    store = SqliteRunStore(path)

    async def is_settled() -> bool:
        return not await store.list_unfinished()

    await until(is_settled)
    await store.close()


async def test_refused_runs_leave_nothing_behind(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sessions = SqliteSessionService(tmp_path / "x.db")
    runs = SqliteRunStore(tmp_path / "x.db")
    await sessions.create_session(**WHERE)
    stores = Stores(sessions, runs)
    async with engine_over(stores, LlmAgent(name="desk", model=model_of("Good day."))) as engine:
        await finish(engine, asking("hello"))
        async with full(tmp_path / "x.db"):
            for _ in range(50):
                with pytest.raises(StorageError):
                    await engine.start(asking(_LARGE))

            async def is_idle() -> bool:
                return engine.load() == {}

            await until(is_idle)
            kept = (await runs.list_runs(RunFilter())).runs
            assert [run.status for run in kept] == [RunStatus.SUCCEEDED]
            assert len([record for record in caplog.records if record.name == "greenroom.runs"]) == 1
        assert (await finish(engine, asking("hello"))).status is RunStatus.SUCCEEDED
        assert len(await stores.log()) == 4
    await runs.close()
    await sessions.close()
