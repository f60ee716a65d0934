"""Processes that append to the same sessions, whose database restarts, or that are killed, lose nothing.

GREENROOM_APPEND_KILLS says how many processes are killed. From 100 on, as in `make chaos`, Firestore's emulator takes
part, which needs minutes, and PostgreSQL also crashes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from greenroom.errors import StorageError
from greenroom.postgres.database import Database
from greenroom.records.content import UserContent
from greenroom.records.event import Event
from greenroom.records.session import Session
from greenroom.records.state import apply_delta
from greenroom.sessions.from_uri import session_service_from_uri
from greenroom.sessions.postgres import PostgresSessionService
from greenroom.sessions.service import BaseSessionService
from tests.postgres.postgres_server import PostgresServer, started_server
from tests.processes import END_WITH_PARENT

KILLS = int(os.environ.get("GREENROOM_APPEND_KILLS", "4"))
IS_CHAOS = KILLS >= 100

_APP: dict[str, Any] = {"app_name": "a", "user_id": "u"}


@pytest.fixture(params=["sqlite", "postgres", "firestore"] if IS_CHAOS else ["sqlite", "postgres"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "firestore":
        request.getfixturevalue("firestore_host")
        return f"firestore://test-{uuid4().hex}/chats"
    if request.param == "postgres":
        return request.getfixturevalue("postgres_uri")
    return f"sqlite:///{tmp_path / 'x.db'}"


@contextlib.contextmanager
def workers(uri: str, *names: str, sessions: int, appends: int) -> Generator[list[subprocess.Popen[str]]]:
    """Processes that wait for a line of input."""
    processes = [
        subprocess.Popen(
            [
                *END_WITH_PARENT,
                sys.executable,
                "-m",
                "tests.durability.append_worker",
                uri,
                name,
                str(sessions),
                str(appends),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in names
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                assert stream is not None
                stream.close()


def start(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


async def acknowledged_by(process: subprocess.Popen[str]) -> list[tuple[str, str, int]]:
    assert process.stdout is not None
    output = await asyncio.to_thread(process.stdout.read)
    assert await asyncio.to_thread(process.wait) in (0, -9)
    lines = [line.split() for line in output.splitlines(keepends=True) if line.endswith("\n")]
    return [(session, event, int(seq)) for session, event, seq in lines]


async def make_sessions(service: BaseSessionService, count: int) -> None:
    await asyncio.gather(*(service.create_session(**_APP, session_id=f"s-{number}") for number in range(count)))


async def check(service: BaseSessionService, count: int, acknowledged: list[tuple[str, str, int]]) -> None:
    """Checks that each acknowledged event is stored once, at its number, and that states are the sums of the deltas."""
    loaded: dict[str, Session] = {}
    for number in range(count):
        session = await service.get_session(**_APP, session_id=f"s-{number}")
        assert session is not None
        ids = [event.id for event in session.events]
        assert len(set(ids)) == len(ids)
        folded: dict[str, object] = {}
        for event in session.events:
            apply_delta(folded, event.actions.state_delta)  # pyright: ignore[reportArgumentType]
        own = {key: value for key, value in session.state.items() if ":" not in key}
        assert own == {key: value for key, value in folded.items() if ":" not in key}
        loaded[session.id] = session
    for session_id, event_id, seq in acknowledged:
        assert loaded[session_id].events[seq - 1].id == event_id


@pytest.mark.kill
async def test_four_processes_lose_no_append(uri: str) -> None:
    sessions = 50
    appends = 10
    service = session_service_from_uri(uri)
    await make_sessions(service, sessions)
    with workers(uri, "a", "b", "c", "d", sessions=sessions, appends=appends) as processes:
        for process in processes:
            start(process)
        answers = await asyncio.gather(*map(acknowledged_by, processes))
    acknowledged = [one for answer in answers for one in answer]
    assert len(acknowledged) == sessions * appends * 4
    await check(service, sessions, acknowledged)
    session = await service.get_session(**_APP, session_id="s-1")
    assert session is not None
    assert {session.state[f"user:{name}"] for name in "abcd"} <= set(range(appends))
    await service.close()


@pytest.mark.kill
async def test_killed_writers_lose_nothing_that_was_acknowledged(uri: str) -> None:
    chance = random.Random(KILLS)
    service = session_service_from_uri(uri)
    await make_sessions(service, 5)
    acknowledged: list[tuple[str, str, int]] = []
    for number in range(KILLS):
        with workers(uri, f"w{number}", sessions=5, appends=400) as (process,):
            start(process)
            await asyncio.sleep(chance.uniform(0.01, 0.5))
            process.kill()
            acknowledged += await acknowledged_by(process)
    await check(service, 5, acknowledged)
    await service.close()


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    server = started_server()
    yield server
    server.remove()


@pytest.mark.kill
@pytest.mark.parametrize("crash", [False, True] if IS_CHAOS else [False])
async def test_a_restart_of_postgresql_under_load_loses_nothing(own_server: PostgresServer, crash: bool) -> None:
    uri = own_server.make_database(f"restart_{crash}".lower())
    service = session_service_from_uri(uri)
    await make_sessions(service, 20)
    with workers(uri, "a", "b", sessions=20, appends=100) as processes:
        for process in processes:
            start(process)
        for _ in range(2):
            for process in processes:  # in the midst of their work
                assert process.stdout is not None
                await asyncio.to_thread(process.stdout.readline)
            await asyncio.to_thread(own_server.stop, crash=crash)
            await asyncio.to_thread(own_server.start)
        answers = await asyncio.gather(*map(acknowledged_by, processes))
    assert all(len(answer) >= 20 * 100 - 2 for answer in answers)  # two lines of each were read above
    await check(service, 20, [one for answer in answers for one in answer])
    assert sum(len(page.events) for page in [await service.list_events(**_APP, session_id="s-0")]) == 200
    await service.close()


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of 160 MB, in a folder that other users reach: PostgreSQL refuses to run as root."""
    folder = Path(tempfile.mkdtemp(prefix="greenroom-disk-"))
    command = ["mount", "-t", "tmpfs", "-o", "size=160m,mode=777", "tmpfs", folder]
    try:
        if os.geteuid() or subprocess.run(command, check=False, capture_output=True).returncode:
            pytest.skip("mounting a file system is not permitted")
        yield folder
        subprocess.run(["umount", "--lazy", folder], check=True)
    finally:
        folder.rmdir()


def fill(ballast: Path) -> None:
    """Until not a page is left."""
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


@pytest.mark.kill
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_a_full_disk_under_load_loses_nothing(small_disk: Path, store: str) -> None:
    async with contextlib.AsyncExitStack() as stack:
        server = None
        uri = f"sqlite:///{small_disk / 'x.db'}"
        if store == "postgres":
            server = started_server(folder=small_disk / "server")
            stack.callback(server.remove)
            uri = server.uri()
        service = session_service_from_uri(uri)
        await make_sessions(service, 20)
        processes = stack.enter_context(workers(uri, "a", "b", sessions=20, appends=100))
        for process in processes:
            start(process)
        for process in processes:  # so that they append while the disk fills up
            assert process.stdout is not None
            await asyncio.to_thread(process.stdout.readline)
        await asyncio.to_thread(fill, small_disk / "ballast")
        session = await service.get_session(**_APP, session_id="s-0")
        assert session is not None
        if server is not None:
            database = Database.open(uri)
            stack.push_async_callback(database.close)
            database.retry_seconds = 0.2
        acknowledged: list[tuple[str, str, int]] = []
        with pytest.raises(StorageError):
            for number in range(1000):
                event = Event(id=f"large-{number}", author="u", content=UserContent(str(number) * 20_000))
                event.actions.state_delta = {"large": number}
                [stored] = await service.append(session, event)
                acknowledged.append(("s-0", event.id, stored.seq))
        (small_disk / "ballast").unlink()
        if server is not None:
            server.restart_if_stopped()
            Database.open(uri).retry_seconds = 10.0
        answers = await asyncio.gather(*map(acknowledged_by, processes))
        assert all(len(answer) == 20 * 100 - 1 for answer in answers)  # a line of each was read above
        await check(service, 20, [*acknowledged, *(one for answer in answers for one in answer)])
        await service.close()


async def test_an_exhausted_pool_is_a_storage_error_until_a_connection_is_free(postgres_uri: str) -> None:
    service = PostgresSessionService(postgres_uri, pool_size=1)
    await make_sessions(service, 1)
    database = Database.open(postgres_uri)
    database.retry_seconds = 0.2
    taken = asyncio.Event()
    release = asyncio.Event()

    async def hold(connection: object) -> None:
        taken.set()
        await release.wait()

    holding = asyncio.create_task(database.read(hold))
    await taken.wait()
    with pytest.raises(StorageError):
        await service.list_sessions(**_APP)
    release.set()
    await holding
    assert len((await service.list_sessions(**_APP)).sessions) == 1
    await database.close()
    await service.close()


async def test_a_stopped_postgresql_is_a_storage_error_without_the_password(own_server: PostgresServer) -> None:
    uri = own_server.make_database("stopped").replace("postgres@", "postgres:secret@")
    service = session_service_from_uri(uri)
    await make_sessions(service, 1)
    own_server.stop()
    Database.open(uri).retry_seconds = 0.1
    try:
        with pytest.raises(StorageError) as caught:
            await service.create_session(**_APP)
        assert "secret" not in str(caught.value)
        with pytest.raises(StorageError):
            await service.list_sessions(**_APP)
    finally:
        own_server.start()
    await service.create_session(**_APP)
    assert len((await service.list_sessions(**_APP)).sessions) == 2
    await Database.open(uri).close()
    await Database.open(uri).close()
    await service.close()
