"""Runs that start later, with several servers: the owner of the session starts them, whoever that is then."""

from __future__ import annotations

import asyncio
import time

from tests.replicas.requests import Frame, log_of, message, path_of, run_of, sse, texts
from tests.replicas.servers import Servers


async def test_the_next_owner_starts_it_and_its_readers_stay(servers: Servers) -> None:
    owner = await servers.start()
    other = await servers.start()
    await servers.wait_until_shared(owner, other)
    key = await servers.key_of(owner)
    assert (await other.http.post(path_of(key))).status_code == 200
    at = time.time() + 2.0
    reply = await other.http.post(f"{path_of(key)}/runs", json={"newMessage": message("hi"), "startAt": at})
    assert reply.status_code == 202, reply.text
    run = f"/runs/{reply.json()['id']}"
    assert (await owner.http.get(run)).json() == reply.json()

    reading = asyncio.create_task(sse(other.http, "GET", f"{run}/events"))
    await asyncio.sleep(0.2)
    await owner.kill()
    async with asyncio.timeout(30):
        *events, end = await reading
    assert [frame.seq for frame in events] == [1, 2]
    assert (end.kind, end.data["status"]) == ("end", "succeeded")
    assert end.data["startedAt"] >= at
    assert texts(await log_of(other.http, key)) == ["hi", "You said hi"]


async def test_it_starts_once_whichever_server_was_asked(servers: Servers) -> None:
    first = await servers.start()
    second = await servers.start()
    await servers.wait_until_shared(first, second)
    keys = [await servers.key_of(server) for server in (first, second) for _ in range(5)]

    async def run(number: int) -> list[Frame]:
        server = (first, second)[number % 2]
        assert (await server.http.post(path_of(keys[number]))).status_code == 200
        return await sse(server.http, "POST", "/run_sse", run_of(keys[number], "hi", delaySeconds=0.5))

    streams = await asyncio.gather(*(run(number) for number in range(len(keys))))
    assert [texts([frame.data for frame in frames]) for frames in streams] == [["You said hi"]] * len(keys)
    for key in keys:
        assert texts(await log_of(second.http, key)) == ["hi", "You said hi"]
