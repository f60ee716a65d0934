"""Faults: replicas that are killed, paused, added and drained, and a database that restarts or cuts connections."""

from __future__ import annotations

import asyncio
import random
import signal
from pathlib import Path
from typing import Literal, get_args

from greenroom.postgres.connection import LEASE_SECONDS
from tests.postgres.postgres_server import PostgresServer
from tests.replicas.chaos.journal import Journal
from tests.replicas.servers import Server, Servers

Fault = Literal[
    "kill",
    "pause",
    "short pause",
    "drain",
    "add",
    "cut all connections",
    "cut some connections",
    "cut the connections of owners",
    "restart the database",
    "crash the database",
]

REPLICAS = 4
HEALTH_CHECK_SECONDS = 1.0
"""Time after which a load balancer sends no more requests to a replica that doesn't answer."""

_AGENTS = Path(__file__).parent / "apps"
_OPTIONS = ("--gates", "a2a", "--gates", "ag_ui", "--gates", "openai")
END_SECONDS = 30
FAULTS = "faults"
"""The author of faults in the journal."""

_CUT = """
    SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE application_name = 'greenroom' AND pid <> pg_backend_pid()
"""
_OF_OWNERS = " AND pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory')"


def faults_of(count: int, chance: random.Random) -> list[Fault]:
    """A plan with each kind of fault about equally often."""
    plan: list[Fault] = []
    while len(plan) < count:
        deck = list[Fault](get_args(Fault))
        chance.shuffle(deck)
        plan += deck
    return plan[:count]


def name_of(server: Server) -> str:
    return server.folder.name


class Cluster:
    """The replicas, and the faults that happen to them. Keeps two of them in rotation, and no more than one too many."""

    def __init__(
        self, servers: Servers, postgres: PostgresServer, journal: Journal, seed: str, **environment: str
    ) -> None:
        """environment: that of the replicas."""
        self.rotation: list[Server] = []
        """Replicas to which clients send requests."""

        self._servers = servers
        self._postgres = postgres
        self._journal = journal
        self._chance = random.Random(seed)
        self._environment = environment
        self.exit_codes: dict[str, int] = {}
        """Of replicas that were stopped, by name."""

        self._starting = 0
        self._disturbed: set[Server] = set()
        """Replicas to which something happens."""

        self._database_is_changing = asyncio.Lock()

    async def start(self) -> None:
        await asyncio.gather(*(self._add() for _ in range(REPLICAS)))
        await self._servers.wait_until_shared(*self.rotation, seconds=30)

    async def stop(self) -> None:
        """Stops the replicas, one after the other."""
        for server in self.rotation:
            self.exit_codes[name_of(server)] = await server.stop()

    async def happen(self, fault: Fault) -> None:
        """Causes the fault, and returns when it is over."""
        match fault:
            case "kill":
                await self._kill()
            case "pause":
                await self._pause(LEASE_SECONDS + self._chance.uniform(0.5, 2.5))
            case "short pause":
                await self._pause(LEASE_SECONDS - self._chance.uniform(0.5, 2.5))
            case "drain":
                await self._drain()
            case "add":
                await self._add()
            case "cut all connections":
                await self._cut(_CUT, fault)
            case "cut some connections":
                await self._cut(f"{_CUT} AND random() < 0.4", fault)
            case "cut the connections of owners":
                await self._cut(_CUT + _OF_OWNERS, fault)
            case "restart the database":
                await self._restart(crash=False)
            case "crash the database":
                await self._restart(crash=True)

    async def _kill(self) -> None:
        server = self._take_one("kill")
        if server is None:
            return
        await server.kill()
        await asyncio.sleep(self._chance.uniform(0, HEALTH_CHECK_SECONDS))
        await self._replace(server)

    async def _pause(self, seconds: float) -> None:
        server = self._take_one(f"pause for {seconds:.1f} s")
        if server is None:
            return
        server.signal(signal.SIGSTOP)
        await asyncio.sleep(HEALTH_CHECK_SECONDS)
        self.rotation.remove(server)
        await asyncio.sleep(seconds - HEALTH_CHECK_SECONDS)
        server.signal(signal.SIGCONT)
        self._note(f"continue {name_of(server)}")
        self.rotation.append(server)
        self._disturbed.remove(server)

    async def _drain(self) -> None:
        """Stops a replica as an update does. The load balancer notices it when the process has ended."""
        server = self._take_one("stop")
        if server is None:
            return
        server.signal(signal.SIGTERM)
        await asyncio.sleep(self._chance.uniform(0, HEALTH_CHECK_SECONDS))
        async with asyncio.timeout(END_SECONDS):
            self.exit_codes[name_of(server)] = code = await server.process.wait()
        self._note(f"{name_of(server)} has ended with {code}")
        await self._replace(server)

    async def _replace(self, server: Server) -> None:
        """Takes a replica that has ended out of rotation, and starts another one unless there are enough."""
        self.rotation.remove(server)
        self._disturbed.remove(server)
        if len(self.rotation) + self._starting < REPLICAS:
            await self._add()

    async def _add(self) -> None:
        self._starting += 1
        try:
            server = await self._servers.start(*_OPTIONS, agents=_AGENTS, grace_seconds=0.2, **self._environment)
        finally:
            self._starting -= 1
        self._note(f"added {name_of(server)}, process {server.process.pid}, {server.url}")
        self.rotation.append(server)

    async def _cut(self, query: str, fault: Fault) -> None:
        async with self._database_is_changing:
            rows = await self._servers.database.fetch(query)
        self._note(f"{fault}: {rows[0][0]}")

    async def _restart(self, *, crash: bool) -> None:
        async with self._database_is_changing:
            self._note("crash the database" if crash else "restart the database")
            await asyncio.to_thread(self._postgres.stop, crash=crash)
            await asyncio.sleep(self._chance.uniform(0, 2))
            await asyncio.to_thread(self._postgres.start)
            self._note("the database is back")

    def _take_one(self, fault: str) -> Server | None:
        """A replica to which nothing happens yet; None if others must stay."""
        healthy = [server for server in self.rotation if server not in self._disturbed]
        if len(healthy) <= 2:
            self._note(f"no {fault}: only {len(healthy)} replicas are left")
            return None
        server = self._chance.choice(healthy)
        self._disturbed.add(server)
        self._note(f"{fault} {name_of(server)}")
        return server

    def _note(self, what: str) -> None:
        self._journal.note(FAULTS, what)
