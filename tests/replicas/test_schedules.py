"""Schedules with several servers: the owner of the session starts the runs, whoever that is then."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from tests.replicas.requests import Json, log_of, message, path_of, texts
from tests.replicas.servers import APP, Server, Servers

_AT = f"/apps/{APP}/schedules"
_TIMES = 6


async def _create(server: Server, text: str = "hi", **fields: Any) -> Json:
    body = {"userId": "ann", "missed": "all", "request": {"newMessage": message(text)}, **fields}
    reply = await server.http.post(_AT, json=body)
    assert reply.status_code == 201, reply.text
    return reply.json()


async def _history(server: Server, schedule: Json, count: int) -> list[Json]:
    """The history, oldest first, when it has so many entries."""
    async with asyncio.timeout(40):
        while len(entries := (await server.http.get(f"{_AT}/{schedule['id']}/runs")).json()["runs"]) < count:
            await asyncio.sleep(0.1)
    return entries[::-1]


async def test_each_time_starts_one_run_while_an_owner_is_killed(servers: Servers) -> None:
    first = await servers.start()
    second = await servers.start()
    await servers.wait_until_shared(first, second)
    start = time.time() + 1
    often: Json = {"everySeconds": 1, "startAt": start, "endAt": start + _TIMES - 0.5}
    schedules = [await _create(server, **often) for server in (first, second) for _ in range(5)]

    continued = await servers.key_of(first)
    assert (await second.http.post(path_of(continued))).status_code == 200
    one_session: Json = {"sessionId": continued.session_id, "userId": continued.user_id, "overlap": "enqueue"}
    schedules.append(await _create(second, "go", **often, **one_session))

    await asyncio.sleep(2)
    await first.kill()
    entries: list[Json] = []
    for schedule in schedules:
        entries = await _history(second, schedule, _TIMES)
        assert [entry["outcome"] for entry in entries] == ["started"] * _TIMES
        assert [entry["dueAt"] for entry in entries] == [start + number for number in range(_TIMES)]
        assert all(entry["at"] >= entry["dueAt"] for entry in entries)
    listed = (await second.http.get("/runs", params={"limit": 1000})).json()["runs"]
    assert len(listed) == _TIMES * len(schedules)

    last = entries[-1]["runId"]
    async with asyncio.timeout(20):
        while (await second.http.get(f"/runs/{last}")).json()["status"] != "succeeded":
            await asyncio.sleep(0.1)
    assert texts(await log_of(second.http, continued)) == ["go", "You said go"] * _TIMES


async def test_any_server_changes_a_schedule_of_another_ones_session(servers: Servers) -> None:
    first = await servers.start()
    second = await servers.start()
    await servers.wait_until_shared(first, second)
    created = await _create(first, cron="0 9 * * *")
    path = f"{_AT}/{created['id']}"
    keys = [await servers.key_of(server, prefix="other") for server in (first, second)]
    for key in keys:
        assert (await first.http.post(path_of(key))).status_code == 200

    for number, server in enumerate((second, first, second)):
        body = {"userId": keys[0].user_id, "at": time.time() + 0.5, "request": {"newMessage": message("go")}}
        changed = await server.http.put(path, json={**body, "sessionId": keys[number % 2].session_id})
        assert changed.status_code == 200, changed.text
        entry = (await _history(server, created, number + 1))[-1]
        assert (entry["outcome"], entry["sessionId"]) == ("started", keys[number % 2].session_id)
        assert entry["at"] - entry["dueAt"] < 5
    paused = await second.http.post(f"{path}/pause")
    assert paused.json()["isPaused"]
    assert (await first.http.delete(path)).status_code == 200
    assert (await second.http.get(path)).status_code == 404
