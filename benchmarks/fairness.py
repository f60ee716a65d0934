"""`python -m benchmarks.fairness`: what a user's noise does to another user's runs, with and without a limit.

The quiet user sends RUNS_PER_SECOND runs, each of a model that takes MODEL_SECONDS; the noisy one sends NOISE times as
many, and heeds no `Retry-After`. Prints the quiet user's latencies. Half a minute; nothing else should be running.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import uvloop

from benchmarks.connection import Connection, connect_many, request_bytes
from benchmarks.servers import Server, greenroom, pin_generator

RUNS_PER_SECOND = 20
NOISE = 50
MODEL_SECONDS = 0.05
SECONDS = 10.0
MOST_SESSIONS = 200
APP = "slow"


async def main(limit: int) -> None:
    pin_generator()
    with tempfile.TemporaryDirectory() as folder:
        alone = await _p99(Path(folder) / "alone", noise=0, limit=None)
        for words, most in (("no limit", None), (f"at most {limit} runs per user", limit)):
            noisy = await _p99(Path(folder) / f"{most}", noise=NOISE, limit=most)
            print(f"{words}: the quiet user's p99 is {noisy / alone:.2f} times what it is alone")


async def _p99(folder: Path, *, noise: int, limit: int | None) -> float:
    """Seconds that all but one of a hundred of the quiet user's runs take."""
    environment = {"BENCH_SLOW_SECONDS": str(MODEL_SECONDS)}
    if limit is not None:
        environment["GREENROOM_LIMITS_RUNS_PER_USER"] = str(limit)
    async with Server(greenroom(), folder, environment=environment) as server:
        users = {"quiet": RUNS_PER_SECOND, "noisy": RUNS_PER_SECOND * noise}
        idle = {user: await connect_many(server.port, min(rate, MOST_SESSIONS)) for user, rate in users.items()}
        for user, connections in idle.items():
            for number, connection in enumerate(connections):
                body = {"sessionId": f"{user}-{number}"}
                await connection.exchange(request_bytes("POST", f"/apps/{APP}/users/{user}/sessions", body))
        (taken, statuses), (_, noisy) = await asyncio.gather(
            *(_send(user, idle[user], rate) for user, rate in users.items())
        )
    taken.sort()
    p50, p99 = (taken[int(len(taken) * part)] for part in (0.5, 0.99))
    print(
        f"noise {noise}, limit {limit}: p50 {p50 * 1000:.1f} ms, p99 {p99 * 1000:.1f} ms of {len(taken)} runs "
        f"{dict(statuses)}; the noisy user's {dict(noisy)}"
    )
    return p99


async def _send(user: str, idle: list[Connection], per_second: int) -> tuple[list[float], Counter[int]]:
    """Requests at a steady pace, whatever comes of those before; counted from when they were due. A pace that the
    server doesn't keep is bounded by the connections: each has a session of its own, one request at a time, and is used
    often enough to be kept open."""
    taken: list[float] = []
    statuses = Counter[int]()
    free = asyncio.Queue[tuple[int, Connection]]()
    for each in enumerate(idle):
        free.put_nowait(each)

    async def one(number: int, connection: Connection, due: float) -> None:
        body = {"appName": APP, "userId": user, "sessionId": f"{user}-{number}", "newMessage": MESSAGE}
        reply = await connection.exchange(request_bytes("POST", "/run_sse", body))
        taken.append(time.perf_counter() - due)
        statuses[reply.status] += 1
        free.put_nowait((number, connection))

    start = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for n in range(int(per_second * SECONDS)):
            due = start + n / per_second
            if due > time.perf_counter():
                await asyncio.sleep(due - time.perf_counter())
            if time.perf_counter() - start > SECONDS:
                break
            number, connection = await free.get()
            group.create_task(one(number, connection, due))
    return taken, statuses


MESSAGE = {"role": "user", "parts": [{"text": "How fair is this?"}]}

if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 4))
