"""`python -m benchmarks.sleepers [--sleeping 100000] [--rate 100] [--seconds 10]`: how late sleeping runs continue.

A server on SQLite and one on PostgreSQL, each with so many runs that sleep for years, continue `rate` runs per second,
each of a session of its own. Prints by how much their answers are stored late, and until when their turns have ended;
and what the server takes while all sleep. A minute for each store; nothing else should be running.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from benchmarks.scenarios.databases import postgres_server
from benchmarks.servers import Server, greenroom_on
from greenroom.records.run import Run, RunStatus
from greenroom.records.wake_up import WakeUp
from greenroom.runs.engine import run_store_beside
from greenroom.sessions.from_uri import session_service_from_uri

APP = "sleeper"
AT_ONCE = 20
IDLE_SECONDS = 5.0
YEARS = 100_000_000.0


async def main(sleeping: int, rate: int, seconds: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        await _measure("SQLite", f"sqlite:///{folder}/greenroom.db", Path(folder), sleeping, rate, seconds)
    with tempfile.TemporaryDirectory() as folder, postgres_server() as database:
        uri = database.make_database("sleepers")
        await _measure("PostgreSQL", uri, Path(folder), sleeping, rate, seconds)


async def _measure(name: str, uri: str, folder: Path, sleeping: int, rate: int, seconds: float) -> None:
    await _fill(uri, sleeping)
    async with Server(greenroom_on(uri), folder) as server, AsyncExitStack() as stack:
        limits = httpx.Limits(max_connections=AT_ONCE)
        http = await stack.enter_async_context(
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", timeout=60, limits=limits)
        )
        before = server.cpu_seconds()
        await asyncio.sleep(IDLE_SECONDS)
        idle = (server.cpu_seconds() - before) / IDLE_SECONDS
        print(f"{name}: {sleeping} runs sleep, {100 * idle:.2f} % of a core", flush=True)

        count = int(rate * seconds)
        first = time.time() + 5 + count / 25
        gate = asyncio.Semaphore(AT_ONCE)
        starts = (_start(http, gate, number, first + number / rate) for number in range(count))
        runs = await asyncio.gather(*starts)
        if time.time() > first:
            raise SystemExit("The first runs were due before the last ones slept: choose a lower rate")

        before = server.cpu_seconds()
        await asyncio.sleep(first + seconds + 3 - time.time())
        used = server.cpu_seconds() - before
        late = sorted(await asyncio.gather(*(_lateness(http, gate, *run) for run in runs)))
        answered = sorted(answer for answer, _ in late)
        ended = sorted(end for _, end in late)
        print(f"  {count} due, {rate} per second: {1000 * used / count:.2f} ms of CPU each")
        print(f"  answered {_words(answered)}; turn ended {_words(ended)}; earliest {1000 * answered[0]:+.1f} ms")


def _words(late: Sequence[float]) -> str:
    p50, p99 = (late[int(len(late) * part)] for part in (0.5, 0.99))
    return f"late by p50 {1000 * p50:.0f} ms, p99 {1000 * p99:.0f} ms, at most {1000 * late[-1]:.0f} ms"


async def _fill(uri: str, sleeping: int) -> None:
    """Stores the records and times of runs that sleep for years."""
    sessions = session_service_from_uri(uri)
    store = run_store_beside(sessions)
    at = time.time() + YEARS
    wake_ups = {"c-1": WakeUp(tool="wait", at=at)}
    saving: list[asyncio.Future[Any]] = []
    for number in range(sleeping):
        run = Run(
            id=f"e-asleep-{number}",
            app_name=APP,
            user_id=f"u-{number}",
            session_id="s",
            status=RunStatus.WAITING,
            created_at=1.0,
            wake_ups=wake_ups,
        )
        saving = [store.save(run), store.save_wake_up(run, at + number)]
        if number % 1000 == 0:
            await asyncio.wait(saving)
    if saving:
        await asyncio.wait(saving)
    await store.close()
    await sessions.close()


async def _start(http: httpx.AsyncClient, gate: asyncio.Semaphore, number: int, at: float) -> tuple[str, float]:
    """Starts a run that sleeps until a time. Returns its path and the time."""
    async with gate:
        session = f"/apps/{APP}/users/ann/sessions/s-{number}"
        (await http.post(session)).raise_for_status()
        message = {"parts": [{"text": datetime.fromtimestamp(at, UTC).isoformat()}]}
        started = await http.post(f"{session}/runs", json={"newMessage": message})
        started.raise_for_status()
        return f"/runs/{started.json()['id']}", at


async def _lateness(http: httpx.AsyncClient, gate: asyncio.Semaphore, path: str, at: float) -> tuple[float, float]:
    """Seconds from the time to the stored answer, and to the end of the turn."""
    async with gate:
        run = (await http.get(path)).json()
        events = (await http.get(f"{path}/events")).json()["events"]
    if run["status"] != "succeeded":
        raise SystemExit(f"{path} is {run['status']}")
    return events[-2]["timestamp"] - at, run["endedAt"] - at


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Measure how late sleeping runs continue.")
    parser.add_argument("--sleeping", type=int, default=100_000, help="number of runs that sleep for years")
    parser.add_argument("--rate", type=int, default=100, help="number of runs that are due per second")
    parser.add_argument("--seconds", type=float, default=10.0, help="for which they are due")
    given = parser.parse_args()
    asyncio.run(main(given.sleeping, given.rate, given.seconds))
