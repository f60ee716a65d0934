"""A server that serves conversations while its data is encrypted again, and the rotation is killed."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest

from tests.durability.server_process import ServerProcess, server_in
from tests.encryption.rotate_app import rotate
from tests.encryption.server_app import APP
from tests.processes import END_WITH_PARENT

_CLIENTS = 4
_TURNS_BEFORE = 10


@pytest.mark.kill
@pytest.mark.parametrize(("store", "was_plain"), [("sqlite", True), ("postgres", False)])
async def test_nothing_is_lost(
    store: str, was_plain: bool, tmp_path: Path, key_file: str, request: pytest.FixtureRequest
) -> None:
    uri = request.getfixturevalue("postgres_uri") if store == "postgres" else f"sqlite:///{tmp_path}/greenroom.db"
    environment = {
        "GREENROOM_KEYS": "" if was_plain else f"file://{key_file}",
        "GREENROOM_URI": uri,
        "GREENROOM_ARTIFACTS": (tmp_path / "artifacts").as_uri(),
    }
    (tmp_path / "webhooks.toml").write_text("")
    async with server_in(tmp_path, module="tests.encryption.server_app", **environment) as server:
        await server.start()
        turns = {f"before-{number}": _TURNS_BEFORE for number in range(_CLIENTS)}
        await asyncio.gather(*(_talk(server, session, turns=_TURNS_BEFORE) for session in turns))
        await server.stop(signal.SIGTERM)

    environment["GREENROOM_KEYS"] = f"file://{key_file}"
    async with server_in(tmp_path, module="tests.encryption.server_app", **environment) as server:
        await server.start()
        is_over = asyncio.Event()
        sessions = [f"during-{number}" for number in range(_CLIENTS)]
        async with asyncio.TaskGroup() as group:
            talking = {session: group.create_task(_talk(server, session, until=is_over)) for session in sessions}
            await _kill_rotation(uri, key_file)
            await rotate(uri, key_file)
            is_over.set()
        turns |= {session: task.result() for session, task in talking.items()}
        await rotate(uri, key_file)  # what the server wrote meanwhile with keys that it knew
        await server.kill()

        assert await _count(uri, "NOT LIKE 'enc1:%'") == 0
        await server.start()
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as client:
            for session, count in turns.items():
                await _check(client, session, count)


async def _talk(
    server: ServerProcess, session: str, *, turns: int | None = None, until: asyncio.Event | None = None
) -> int:
    """Has a conversation, of so many turns or until something has happened. Returns the number of turns."""
    turn = 0
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
        while turn != turns and not (until is not None and until.is_set()):
            body = {
                "newMessage": {"role": "user", "parts": [{"text": f"{session} says {turn}"}]},
                "stateDelta": {"turn": turn, f"user:{session}": turn},
            }
            path = f"/apps/{APP}/users/{session}/sessions/s"
            if turn == 0:
                (await client.post(path)).raise_for_status()
            reply = await client.post("/run", json={"appName": APP, "userId": session, "sessionId": "s", **body})
            assert reply.status_code == 200, reply.text
            assert "errorCode" not in reply.text, reply.text
            turn += 1
    return turn


async def _check(client: httpx.AsyncClient, session: str, turns: int) -> None:
    reply = await client.get(f"/apps/{APP}/users/{session}/sessions/s")
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    said = [event["content"]["parts"][0]["text"] for event in found["events"]]
    asked = [f"{session} says {turn}" for turn in range(turns)]
    assert said == [text for message in asked for text in (message, f"Noted: {message}")]
    assert found["state"] == {"turn": turns - 1, f"user:{session}": turns - 1}


async def _kill_rotation(uri: str, key_file: str) -> None:
    """Starts a rotation in a process, and kills it when it has encrypted some rows."""
    key = "1" if await _count(uri, "NOT LIKE 'enc1:%'") else "2"
    before = await _count(uri, f"LIKE 'enc1:{key}:%'")
    process = await asyncio.create_subprocess_exec(
        *END_WITH_PARENT, sys.executable, "-m", "tests.encryption.rotate_app", uri, key_file
    )
    async with asyncio.timeout(30):
        while await _count(uri, f"LIKE 'enc1:{key}:%'") <= before and process.returncode is None:
            await asyncio.sleep(0.01)
    if process.returncode is None:
        process.kill()
    await process.wait()


async def _count(uri: str, condition: str) -> int:
    statement = f"SELECT count(*) FROM events WHERE data {condition}"
    if uri.startswith("sqlite"):
        with closing(sqlite3.connect(uri.removeprefix("sqlite:///"), timeout=10)) as connection:
            return connection.execute(statement).fetchone()[0]
    connection = await asyncpg.connect(uri)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()
