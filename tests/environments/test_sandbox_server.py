"""A server whose agents run hostile code answers others meanwhile, and its sandboxes end with it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.durability.server_process import ServerProcess, server_in
from tests.environments.escapes import ATTEMPTS, PRELUDE
from tests.environments.local_sandboxes import SANDBOXES, make_sandbox
from tests.processes import children_of, is_running
from tests.requirements import require_bubblewrap
from tests.server.serving import until

MAX_SECONDS = 0.5
pytestmark = pytest.mark.slow


@pytest.fixture(params=SANDBOXES)
def name(request: pytest.FixtureRequest) -> str:
    """Of an app, which is requested before the server that has it."""
    make_sandbox(request.param, request)
    return request.param


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ServerProcess]:
    async with server_in(tmp_path, module="tests.environments.sandbox_server") as server:
        await server.start()
        yield server


async def run(http: httpx.AsyncClient, app: str, session: str, code: str) -> str:
    await http.post(f"/apps/{app}/users/ada/sessions/{session}")
    message = {"role": "user", "parts": [{"text": code}]}
    body = {"appName": app, "userId": "ada", "sessionId": session, "newMessage": message}
    reply = await http.post("/run", json=body)
    assert reply.status_code == 200, reply.text
    return reply.text


async def test_the_server_answers_while_its_sandboxes_use_all_they_can(name: str, server: ServerProcess) -> None:
    codes = [PRELUDE + attempt.code for attempt in ATTEMPTS if attempt.is_heavy and attempt.code]
    latencies: list[float] = []

    async with httpx.AsyncClient(base_url=server.url, timeout=120) as http:

        async def watch() -> None:
            while True:
                asked_at = time.monotonic()
                assert (await http.get("/health")).status_code == 200
                latencies.append(time.monotonic() - asked_at)
                await asyncio.sleep(0.02)

        watching = asyncio.create_task(watch())
        for first, second in zip(codes[::2], codes[1::2], strict=False):
            await asyncio.gather(run(http, name, "s-1", first), run(http, name, "s-2", second))

        assert not watching.done()
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
        assert "42\\n" in await run(http, name, "s-3", "print(6 * 7)")

    latencies.sort()
    late = latencies[int(len(latencies) * 0.99)]
    print(f"/health: p99 {late * 1000:.0f} ms, at most {latencies[-1] * 1000:.0f} ms, {len(latencies)} times")
    assert late <= MAX_SECONDS  # not the maximum: other tests use the machine, too


def descendants(pid: int) -> list[int]:
    found = children_of(pid)
    return [*found, *(one for child in found for one in descendants(child))]


async def test_a_killed_server_leaves_no_process_of_a_sandbox(server: ServerProcess) -> None:
    require_bubblewrap()
    code = "import os, time\nif os.fork() == 0:\n    os.setsid()\ntime.sleep(600)"
    async with httpx.AsyncClient(base_url=server.url, timeout=120) as http:
        running = asyncio.create_task(run(http, "bubblewrap", "s-1", code))
        await until(lambda: len(descendants(server.process_id)) >= 4)  # bwrap, its guest, and two of the code
        found = descendants(server.process_id)

        await server.kill()
        await until(lambda: not any(map(is_running, found)))
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError, httpx.HTTPError):
            await running
