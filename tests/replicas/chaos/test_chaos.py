"""Clients of all kinds on four replicas, of which some are always killed, paused, stopped, added or cut off.

GREENROOM_CHAOS_RUNS is the number of runs, GREENROOM_SEED repeats the requests and the faults; their timing differs.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import pytest
from openai import AsyncOpenAI

from tests.postgres.postgres_server import PostgresServer, started_server
from tests.replicas.chaos.agents import LEDGER
from tests.replicas.chaos.balancer import BASE_URL, RandomReplica
from tests.replicas.chaos.checks import Checks, Problem
from tests.replicas.chaos.client import Client, World
from tests.replicas.chaos.faults import Cluster, Fault, faults_of
from tests.replicas.chaos.gate_clients import A2a, AgUi, ChatCompletions, Responses
from tests.replicas.chaos.journal import Journal
from tests.replicas.chaos.live_client import Live
from tests.replicas.chaos.load import Load
from tests.replicas.chaos.native_clients import (
    Approves,
    Cancels,
    Chat,
    Draws,
    Exports,
    FlowChat,
    LongStream,
    Steers,
    TeamChat,
    Waits,
)
from tests.replicas.chaos.report import report_of, tracebacks_in
from tests.replicas.chaos.store import stored_sessions, wait_for_runs
from tests.replicas.chaos.waiting_clients import Delays, Schedules, Signals, Sleeps, Votes
from tests.replicas.chaos.webhooks import check_webhooks, wait_for_webhooks
from tests.replicas.servers import servers_on
from tests.seed import SEED
from tests.server.conftest import write_webhook_secrets
from tests.server.webhook_receiver import receiving

RUNS = int(os.environ.get("GREENROOM_CHAOS_RUNS", "150"))
TEST_SECONDS = 0 if "GREENROOM_CHAOS_RUNS" in os.environ else 290
"""Time limit of the test; 0 for none."""

RUNS_PER_FAULT = 14
CONCURRENT_CLIENTS = 24
CONCURRENT_FAULTS = 2
LONGEST_STREAM_SECONDS = 30.0 if RUNS >= 1000 else 8.0
SETTLE_SECONDS = 60
"""Time after the last client for runs that nobody waits for."""

_KINDS: list[type[Client]] = [
    *[Chat] * 3, *[TeamChat] * 2, *[FlowChat] * 2, *[LongStream] * 2, Cancels, Waits, *[Steers] * 2, *[Approves] * 4, *[Exports] * 2, Draws,
    *[Sleeps] * 2, *[Signals] * 2, *[Delays] * 2, Schedules, *[Votes] * 2,
    *[ChatCompletions] * 2, *[Responses] * 2, *[AgUi] * 2, *[A2a] * 2, *[Live] * 3,
]  # fmt: skip


def plan_of(runs: int, seed: int) -> list[type[Client] | Fault]:
    """Clients in the order in which they start, with the faults between them."""
    chance = random.Random(seed)
    plan: list[type[Client] | Fault] = []
    faults = faults_of(runs // RUNS_PER_FAULT, chance)
    planned = 0
    while planned < runs:
        deck = list(_KINDS)
        chance.shuffle(deck)
        for kind in deck:
            plan.append(kind)
            planned += kind.runs_of_each
            if faults and planned > (runs // RUNS_PER_FAULT - len(faults) + 0.5) * RUNS_PER_FAULT:
                plan.append(faults.pop())
    return plan


class PlannedLoad(Load):
    """Starts clients and faults in the order of a plan, so many at a time."""

    def __init__(self, world: World, cluster: Cluster) -> None:
        super().__init__()
        self._world = world
        self._cluster = cluster
        self._free_clients = asyncio.Semaphore(CONCURRENT_CLIENTS)
        self._free_faults = asyncio.Semaphore(CONCURRENT_FAULTS)

    async def carry_out(self, plan: Sequence[type[Client] | Fault]) -> None:
        async with asyncio.TaskGroup() as group:
            for number, item in enumerate(plan):
                if isinstance(item, str):
                    await self._free_faults.acquire()
                    group.create_task(self._happen(item))
                else:
                    await self._free_clients.acquire()
                    group.create_task(self._start(item(number, self._world)))

    async def _happen(self, fault: Fault) -> None:
        try:
            await self._cluster.happen(fault)
            self._world.journal.count(f"fault: {fault}")
        finally:
            self._free_faults.release()

    async def _start(self, client: Client) -> None:
        try:
            await self.talk(client)
        finally:
            self._free_clients.release()


@pytest.fixture
def database() -> Iterator[PostgresServer]:
    """A server of its own. It keeps what is committed when it crashes, but not when the machine does."""
    server = started_server("fsync=off", "full_page_writes=off", "max_connections=200")
    yield server
    server.remove()


@pytest.mark.kill
@pytest.mark.slow
@pytest.mark.timeout(TEST_SECONDS)
async def test_replicas_lose_nothing_and_do_nothing_twice(database: PostgresServer, tmp_path: Path) -> None:
    journal = Journal()
    ledger = tmp_path / "ledger"
    uri = database.make_database("chaos")
    begun_at = time.monotonic()
    print(f"\n{RUNS} runs, GREENROOM_SEED={SEED}, logs in {tmp_path}")
    transport = httpx.AsyncHTTPTransport(limits=httpx.Limits(max_connections=None), trust_env=False)
    async with (
        transport,
        receiving() as receiver,
        servers_on(uri, tmp_path) as servers,
        AsyncOpenAI(api_key="none", max_retries=0) as openai,
    ):
        environment = {
            LEDGER: str(ledger),
            "GREENROOM_WEBHOOK_SECRETS": str(write_webhook_secrets(tmp_path)),
            "GREENROOM_ALLOW_PRIVATE_WEBHOOKS": "true",
        }
        cluster = Cluster(servers, database, journal, f"{SEED} faults", **environment)
        await cluster.start()
        print(f"the replicas have started after {time.monotonic() - begun_at:.0f} s")
        world = World(lambda: cluster.rotation, transport, openai, journal, receiver, str(SEED), LONGEST_STREAM_SECONDS)
        load = PlannedLoad(world, cluster)
        await load.carry_out(plan_of(RUNS, SEED))
        print(f"all clients have ended after {time.monotonic() - begun_at:.0f} s")
        unfinished = await wait_for_runs(servers.database, seconds=SETTLE_SECONDS)
        async with httpx.AsyncClient(
            transport=RandomReplica(world.rotation, transport, "checks"), base_url=BASE_URL, timeout=30
        ) as http:
            stored = await stored_sessions(servers.database, http, ledger)
        await wait_for_webhooks(receiver, stored, load.clients, seconds=SETTLE_SECONDS)
        await cluster.stop()

    problems = load.problems
    problems += [Problem(f"run {run_id} is still {status}") for run_id, status in unfinished.items()]
    problems += Checks(stored, load.clients, journal).check_all()
    problems += check_webhooks(receiver, stored, load.clients, journal)
    problems += [Problem(f"{name} has ended with {code}") for name, code in cluster.exit_codes.items() if code]
    problems += [
        Problem(f"{server.folder.name}: {text}") for server in servers.started for text in tracebacks_in(server.log())
    ]
    print(f"checked after {time.monotonic() - begun_at:.0f} s")
    for name, count in sorted(journal.counts.items()):
        print(f"{count:6} {name}")
    if problems:
        pytest.fail(
            f"GREENROOM_SEED={SEED} GREENROOM_CHAOS_RUNS={RUNS}\n" + report_of(problems, stored, journal, tmp_path)
        )
