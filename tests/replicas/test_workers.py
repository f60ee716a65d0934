"""`greenroom serve --workers`: several processes behind one port."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import httpx

from greenroom.records.session import SessionKey
from greenroom.records.shard import shard_of
from tests.processes import children_of, is_running
from tests.replicas.requests import frames, log_of, message, path_of, run_of, text_of, texts
from tests.replicas.servers import AGENTS, APP, USER, Server, Servers
from tests.replicas.workers import started, wait_until_shared

WORDS = 40  # which take two seconds
WHOLE_TEXT = "".join(f"word{number} " for number in range(WORDS))


async def eventually(condition: Callable[[], bool], *, seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


async def text_at_end(server: Server, run_id: str) -> str:
    """The last event of a run, followed to its end over new connections, as clients do whose stream is cut off."""
    text = ""
    headers = {"accept": "text/event-stream", "last-event-id": "0"}
    async with asyncio.timeout(30):
        while True:
            async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
                with contextlib.suppress(httpx.RemoteProtocolError):
                    async with http.stream("GET", f"/runs/{run_id}/events", headers=headers) as response:
                        async for frame in frames(response):
                            if frame.seq is not None:
                                headers["last-event-id"] = str(frame.seq)
                                text = text_of(frame.data)
                            elif frame.kind == "end":
                                return text


async def test_a_killed_worker_is_replaced_and_its_runs_continue(servers: Servers) -> None:
    server, workers = await started(servers)
    owners = await servers.owners()
    keys: dict[str, SessionKey] = {}
    number = 0
    while len(keys) < 2:
        key = SessionKey(APP, USER, f"s-{(number := number + 1)}")
        keys[owners[shard_of(key)]] = key
    runs: list[str] = []
    for key in keys.values():
        await server.http.post(path_of(key))
        run = await server.http.post(path_of(key) + "/runs", json={"newMessage": message(f"slow {WORDS}")})
        runs.append(run.json()["id"])

    os.kill(workers[1], signal.SIGKILL)
    for run in runs:
        assert await text_at_end(server, run) == WHOLE_TEXT
    attempts = [(await server.http.get(f"/runs/{run}")).json()["attempts"] for run in runs]
    assert max(attempts) >= 2
    for key in keys.values():
        assert texts(await log_of(server.http, key)) == [f"slow {WORDS}", WHOLE_TEXT]

    await wait_until_shared(servers, 2)
    now = children_of(server.process.pid)
    assert len(now) == 2
    assert workers[0] in now
    assert workers[1] not in now
    assert "worker 2 was ended by SIGKILL; it is started again\n" in server.log()
    assert re.search(r"INFO    worker [12], greenroom\.\w+: resumed 1 ", server.log())


async def test_connections_that_a_killed_worker_has_not_received_go_to_the_others(servers: Servers) -> None:
    server, workers = await started(servers)
    os.kill(workers[0], signal.SIGSTOP)
    port = int(server.url.rpartition(":")[2])
    clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(6)]
    answers = [asyncio.create_task(reader.readline()) for reader, _ in clients]
    for _, writer in clients:
        writer.write(b"GET /version HTTP/1.1\r\nhost: localhost\r\n\r\n")
    await eventually(lambda: sum(answer.done() for answer in answers) == 3)
    os.kill(workers[0], signal.SIGKILL)
    async with asyncio.timeout(10):
        assert {await answer for answer in answers} == {b"HTTP/1.1 200 OK\r\n"}
    for _, writer in clients:
        writer.close()


async def test_sigterm_ends_all_workers_after_their_runs(servers: Servers) -> None:
    server, workers = await started(servers, grace_seconds=10)
    keys = [SessionKey(APP, USER, f"s-{number}") for number in range(4)]
    for key in keys:
        await server.http.post(path_of(key))
    running = [asyncio.create_task(server.http.post("/run", json=run_of(key, "slow 20"))) for key in keys]
    async with asyncio.timeout(20):
        while len((await server.http.get("/runs?status=running")).json()["runs"]) < len(keys):
            await asyncio.sleep(0.02)
    assert await server.stop() == 0
    assert [(await one).status_code for one in running] == [200] * len(keys)
    assert not any(is_running(worker) for worker in workers)
    assert await servers.owners() == {}


async def test_the_workers_end_when_their_parent_is_killed(servers: Servers) -> None:
    server, workers = await started(servers)
    server.signal(signal.SIGKILL)
    try:
        await eventually(lambda: not any(is_running(worker) for worker in workers))
    finally:
        for worker in workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
    assert await servers.owners() == {}
    address = server.url.removeprefix("http://").split(":")
    with socket.create_server((address[0], int(address[1]))):  # the port is free
        pass


async def test_a_worker_that_can_t_start_again_is_tried_with_delays(servers: Servers, tmp_path: Path) -> None:
    agents = tmp_path / "agents"
    shutil.copytree(AGENTS, agents)
    broken = tmp_path / "broken"
    (agents / "talk" / "agent.py").write_text(
        f"import os\nif os.path.exists({str(broken)!r}):\n    os._exit(3)\nfrom greenroom import LlmAgent\n"
        "root_agent = LlmAgent(name='talk', model='local/x')\n"
    )
    server = await servers.start("--workers", "2", agents=agents)
    await wait_until_shared(servers, 2)
    broken.touch()
    os.kill(children_of(server.process.pid)[0], signal.SIGKILL)
    await eventually(lambda: "worker 1 ended with exit code 3; it is started again in 1 s" in server.log())
    key = SessionKey(APP, USER, "s-1")
    await server.http.post(path_of(key))
    assert texts((await server.http.post("/run", json=run_of(key, "hello"))).json()) == ["You said hello"]
    broken.unlink()
    await wait_until_shared(servers, 2)
    assert await server.stop() == 0
