"""An erasure of a user whose server is killed in the middle: done again, it is complete."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from pathlib import Path

import httpx
import pytest

from tests.durability.patient_client import patient_client
from tests.durability.server_process import server_in

_SESSIONS = 300


def _left_in(folder: Path, user: str) -> int:
    with contextlib.closing(sqlite3.connect(folder / "greenroom.db")) as database:
        return database.execute("SELECT count(*) FROM sessions WHERE user_id = ?", (user,)).fetchone()[0]


@pytest.mark.kill
async def test_a_killed_erasure_is_completed_by_another_one(tmp_path: Path) -> None:
    async with server_in(tmp_path, module="tests.durability.sleeping_server") as server:
        await server.start()
        async with patient_client(server) as client:
            event = {"author": "user", "content": {"role": "user", "parts": [{"text": "I like tea"}]}}
            for user, count in (("ada", _SESSIONS), ("bob", 3)):
                for number in range(count):
                    body = {"sessionId": f"s-{number}", "state": {"user:likes": "tea"}, "events": [event] * 3}
                    created = await client.send("POST", f"/apps/desk/users/{user}/sessions", json=body)
                    assert created.status_code == 200, created.text
            before = (await client.send("GET", "/apps/desk/users/bob/sessions/s-1")).json()

            async def erase() -> None:
                with contextlib.suppress(httpx.TransportError):
                    async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
                        await http.delete("/apps/desk/users/ada")

            erasing = asyncio.create_task(erase())
            async with asyncio.timeout(30):
                while _left_in(tmp_path, "ada") > _SESSIONS - 10:
                    await asyncio.sleep(0.001)
            await server.kill()
            left = _left_in(tmp_path, "ada")
            assert 0 < left < _SESSIONS

            await server.start()
            await erasing
            report = (await client.send("DELETE", "/apps/desk/users/ada")).json()
            assert report["isComplete"], report
            assert [one["found"] for one in report["data"] if one["kind"] == "sessions"] == [left]
            assert _left_in(tmp_path, "ada") == 0
            assert (await client.send("GET", "/apps/desk/users/bob/sessions/s-1")).json() == before
            assert _left_in(tmp_path, "bob") == 3
