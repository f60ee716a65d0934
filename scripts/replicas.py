"""Starts replicas of the examples on one PostgreSQL, behind a load balancer: `make replicas`.

PostgreSQL is the database that DATABASE_URL names, else a server of its own, which is deleted at the end. All stop with
Ctrl-C. Each replica is a process: to see its sessions move to the others, kill one.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

from scripts.load_balancer import LoadBalancer
from tests.postgres.postgres_server import started_server
from tests.processes import END_WITH_PARENT

START_SECONDS = 60.0
STOP_SECONDS = 15.0
"""More than the replicas' `grace_seconds` with the time in which they close everything."""


@contextlib.contextmanager
def database() -> Generator[str]:
    """The URI of a PostgreSQL database."""
    given = os.environ.get("DATABASE_URL")
    if given:
        yield given
        return

    server = started_server()
    try:
        yield server.uri()
    finally:
        server.remove()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Replica:
    """A process of `greenroom serve`."""

    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        self.process = process
        self.url = url

    async def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self.process.wait()
        except TimeoutError:
            self.process.kill()
            await self.process.wait()


@contextlib.asynccontextmanager
async def replicas_on(uri: str, agents: Path, artifacts: Path, *, count: int) -> AsyncGenerator[list[Replica]]:
    """Starts replicas, which may not listen yet, and stops them in the end."""
    started: list[Replica] = []
    try:
        for _ in range(count):
            port = free_port()
            process = await asyncio.create_subprocess_exec(
                *END_WITH_PARENT, sys.executable, "-m", "greenroom", "serve", str(agents), "--port", str(port),
                "--session-service", uri, "--artifact-service", f"file://{artifacts}", "--grace-seconds", "5",
                stdout=asyncio.subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C in the terminal is for this program, which stops the replicas
            )  # fmt: skip
            started.append(Replica(process, f"http://127.0.0.1:{port}"))
        yield started
    finally:
        await asyncio.gather(*(replica.stop() for replica in started))


async def run(agents: Path, uri: str, *, count: int, port: int) -> None:
    """Serves until SIGINT or SIGTERM."""
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)

    async with contextlib.AsyncExitStack() as stack:
        artifacts = stack.enter_context(tempfile.TemporaryDirectory(prefix="greenroom-artifacts-"))
        replicas = await stack.enter_async_context(replicas_on(uri, agents, Path(artifacts), count=count))
        balancer = LoadBalancer(*(replica.url for replica in replicas))
        stack.push_async_callback(balancer.close)
        await balancer.start(port)

        ready = asyncio.create_task(balancer.wait_until_ready())
        stop = asyncio.create_task(stopping.wait())
        ends = [asyncio.create_task(replica.process.wait()) for replica in replicas]
        await asyncio.wait([ready, stop, *ends], timeout=START_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if not ready.done() and not stop.done():
            sys.exit("The replicas did not start.")

        if ready.done():
            print(_welcome(balancer.url, replicas), flush=True)
            await stop
        print("Stopping.", flush=True)


def _welcome(url: str, replicas: list[Replica]) -> str:
    lines = [f"\n{len(replicas)} replicas behind a load balancer: {url}/\n"]
    lines += [f"  process {each.process.pid}  {each.url}" for each in replicas]
    lines += [
        "\n  `kill -9` one of them: the others take its sessions, and resume their runs.",
        "  Ctrl-C stops all.\n",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve agents by several replicas behind a load balancer.")
    parser.add_argument("agents", nargs="?", type=Path, default=Path("examples"), help="the agents folder (examples)")
    parser.add_argument("--replicas", type=int, default=3, help="how many (3)")
    parser.add_argument("--port", type=int, default=8000, help="the load balancer's port (8000)")
    options = parser.parse_args()
    with database() as uri:
        asyncio.run(run(options.agents, uri, count=options.replicas, port=options.port))


if __name__ == "__main__":
    main()
