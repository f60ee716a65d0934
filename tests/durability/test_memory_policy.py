"""`kill -9` between an answer and its adding to memory: it is added once after the restart."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from greenroom.memory.sqlite import SqliteMemoryService
from greenroom.records.run import RunFilter, RunStatus
from greenroom.runs.sqlite_store import SqliteRunStore
from tests.durability.server_process import server_in


@pytest.mark.kill
async def test_a_run_that_was_killed_before_memory_had_it_is_added_once(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(60),
        server_in(tmp_path, module="tests.durability.memory_server") as server,
        httpx.AsyncClient(base_url=server.url, timeout=30) as http,
    ):
        await server.start()
        sessions = "/apps/a/users/ann/sessions"
        (await http.post(sessions, json={"sessionId": "s"})).raise_for_status()
        where = {"appName": "a", "userId": "ann", "sessionId": "s"}
        message = {"role": "user", "parts": [{"text": "which drink?"}]}
        (await http.post("/run", json={**where, "newMessage": message})).raise_for_status()
        while not (tmp_path / "held").exists():
            await asyncio.sleep(0.01)
        await server.kill()
        store = SqliteRunStore(tmp_path / "greenroom.db")
        [run] = await store.list_to_remember()
        listed = await store.list_runs(RunFilter(statuses=[RunStatus.SUCCEEDED]))
        assert [one.id for one in listed.runs] == [run.id]
        (tmp_path / "continue").touch()
        await server.start()
        while await store.list_to_remember():
            await asyncio.sleep(0.01)
        await server.kill()
        await server.start()
        await store.close()
    memory = SqliteMemoryService(tmp_path / "memory.db")
    found = await memory.search_memory(app_name="a", user_id="ann", query="green tea drink")
    assert sorted(entry.content.text() for entry in found.memories) == ["green tea", "which drink?"]
    await memory.close()
    assert (tmp_path / "calls").read_text().splitlines() == ["which drink?,green tea"] * 2
