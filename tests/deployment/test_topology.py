"""The services of `greenroom deploy compose` survive the kill of each in turn, and an update, under load.

They run as processes (`compose_processes.py`). GREENROOM_TOPOLOGY_SECONDS is how long each one is away, and how often
as a list: `0,10` kills each twice. The measured times of docs/scaling.md come from `make topology`.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias
from uuid import uuid4

import httpx
import pytest
from openai import AsyncOpenAI

from greenroom.cli import deploy
from greenroom.client.async_client import AsyncClient
from greenroom.postgres.database import Database
from greenroom.records.session import SessionKey
from tests.deployment.compose_processes import Topology, running
from tests.replicas.chaos.agents import LEDGER
from tests.replicas.chaos.checks import Checks, Problem
from tests.replicas.chaos.client import UNAVAILABLE, Client, SeenRun, World, content_of, path_of
from tests.replicas.chaos.faults import FAULTS
from tests.replicas.chaos.journal import Journal
from tests.replicas.chaos.live_client import Live
from tests.replicas.chaos.load import Load
from tests.replicas.chaos.native_clients import Approves, Cancels, Chat, Draws, Exports, LongStream, Steers, TeamChat
from tests.replicas.chaos.report import report_of, tracebacks_in
from tests.replicas.chaos.store import stored_sessions, wait_for_runs
from tests.replicas.chaos.waiting_clients import Delays, Signals, Sleeps
from tests.replicas.chaos.webhooks import check_webhooks, wait_for_webhooks
from tests.reverse_proxy import free_port
from tests.seed import SEED
from tests.server.conftest import WEBHOOK_SECRET
from tests.server.webhook_receiver import receiving

APPS = Path(__file__).parents[1] / "replicas" / "chaos" / "apps"
REPOSITORY = Path(__file__).parents[2]

DOWN_SECONDS = [float(text) for text in os.environ.get("GREENROOM_TOPOLOGY_SECONDS", "0").split(",")]
PIECES = ("greenroom-1", "greenroom-2", "balancer", "postgres", "objects", "collector")

LONGEST_SECONDS_WITHOUT_POSTGRES = 5.0
"""Writes are repeated for ten seconds. Runs that store something later fail."""

PROBE = "probe"
"""The user of requests whose time is measured."""

PROBE_SECONDS = 0.2
CONCURRENT_CLIENTS = 6
LONGEST_STREAM_SECONDS = 4.0
SETTLE_SECONDS = 30
REQUEST_SECONDS = 150.0
UNLIMITED = httpx.Limits(max_connections=None)

Send: TypeAlias = Callable[[], Coroutine[Any, Any, httpx.Response]]
"""Sends a request."""


def topology_of(tmp_path: Path) -> Topology:
    """Writes the files of `greenroom deploy compose` for the apps, with an `.env` beside them."""
    folder = tmp_path / "served"
    shutil.copytree(APPS, folder, ignore=shutil.ignore_patterns(".*", "__pycache__"))
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        deploy.compose(folder)

    network = f"127.{random.randrange(1, 255)}.{random.randrange(255)}"
    port = free_port()
    variables = {
        "POSTGRES_PASSWORD": "secret1",
        "S3_PASSWORD": "secret2345",
        "SITE_ADDRESS": f"http://{network}.250:{port}",
        "WEBHOOK_SECRETS": f'"*" = ["{WEBHOOK_SECRET}"]',
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318",
        "GREENROOM_ALLOW_ANONYMOUS": "true",
        "GREENROOM_ALLOW_PRIVATE_WEBHOOKS": "true",
        "PYTHONPATH": str(REPOSITORY),
        LEDGER: str(tmp_path / "ledger"),
    }
    (folder / ".env").write_text("".join(f"{name}={value}\n" for name, value in variables.items()))
    return Topology(folder, tmp_path / "services", network, profiles=("telemetry",))


class UsesClient(Client):
    """A program that uses greenroom's Python client, which repeats requests and resumes streams by itself."""

    async def talk(self) -> None:
        await self.create_session(self.key)
        run = SeenRun(self.key, self.new_message("shop", 20), "Python client")
        self.runs.append(run)
        async with AsyncClient(self.balancer.choose().url) as client:
            app_name, user_id, session_id = self.key
            stream = await client.run(
                app_name=app_name, user_id=user_id, session_id=session_id, message=run.message, streaming=True
            )
            async for event in stream:
                if not event.partial:
                    self.count("events that the Python client has read")
            assert stream.run is not None
            run.id = stream.run.id
            assert stream.run.status == "succeeded", f"{stream.run}"


_KINDS: list[type[Client]] = [
    UsesClient, Chat, TeamChat, LongStream, *[Approves] * 2, Exports, *[Draws] * 3, Steers, Cancels, Sleeps, Signals, Delays, Live,
]  # fmt: skip


class Waits:
    """Times that requests of a kind have waited for their answers, and the refusals of those that were repeated."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.refused: Counter[str] = Counter()

    def __str__(self) -> str:
        refused = ", ".join(f"{name} {count}" for name, count in self.refused.items())
        return f"{max(self.seconds):.2f} s ({refused or 'none refused'})"


class Probes:
    """Sends a request of each kind five times a second, and repeats it until it is answered, as clients do."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self._keys = [SessionKey("desk", PROBE, f"probe-{number}") for number in range(8)]
        self._numbers = count(10**6)
        self.turns = 0

    async def create_sessions(self) -> None:
        """They wait for the load balancer, which has to find the servers ready first."""
        for key in self._keys:
            await self._until_answered(partial(self._http.post, path_of(key)), Waits())

    @contextlib.asynccontextmanager
    async def measuring(self) -> AsyncGenerator[dict[str, Waits]]:
        """Yields what the requests that begin within the block have waited; it is complete at its end."""
        waits = {"read": Waits(), "turn": Waits(), "artifact": Waits()}
        stopping = asyncio.Event()

        async def repeat(kind: str, send: Callable[[], Send]) -> None:
            async with asyncio.TaskGroup() as group:
                while not stopping.is_set():
                    group.create_task(self._until_answered(send(), waits[kind]))
                    await asyncio.sleep(PROBE_SECONDS)

        async with asyncio.TaskGroup() as group:
            group.create_task(repeat("read", self._read))
            group.create_task(repeat("turn", self._run))
            group.create_task(repeat("artifact", self._save))
            try:
                await asyncio.sleep(2 * PROBE_SECONDS)
                yield waits
            finally:
                stopping.set()

    async def _until_answered(self, send: Send, waits: Waits) -> None:
        begun_at = time.monotonic()
        while True:
            try:
                response = await send()
            except httpx.TransportError as error:
                waits.refused[type(error).__name__] += 1
            else:
                if response.status_code not in UNAVAILABLE:
                    break
                waits.refused[str(response.status_code)] += 1
            await asyncio.sleep(0.1)
        assert response.status_code == 200, f"{response.request.url}: {response.status_code} {response.text}"
        waits.seconds.append(time.monotonic() - begun_at)

    def _read(self) -> Send:
        return partial(self._http.get, path_of(random.choice(self._keys)))

    def _run(self) -> Send:
        self.turns += 1
        app_name, user_id, session_id = random.choice(self._keys)
        message = content_of(f"talk {next(self._numbers)} 1")
        body = {"appName": app_name, "userId": user_id, "sessionId": session_id, "newMessage": message}
        return partial(self._http.post, "/run", json=body, headers={"idempotency-key": uuid4().hex})

    def _save(self) -> Send:
        return partial(self._http.put, f"{path_of(random.choice(self._keys))}/artifacts/note", content=b"note")


async def keep_busy(load: Load, world: World, stopping: asyncio.Event) -> None:
    """Has so many clients talk at a time until it is told to stop, then lets these end."""
    numbers = count()
    chance = random.Random(world.seed)

    async def one_after_the_other() -> None:
        while not stopping.is_set():
            await load.talk(chance.choice(_KINDS)(next(numbers), world))

    async with asyncio.TaskGroup() as group:
        for _ in range(CONCURRENT_CLIENTS):
            group.create_task(one_after_the_other())


@pytest.mark.kill
@pytest.mark.slow
@pytest.mark.timeout(240 if DOWN_SECONDS == [0] else 0)
async def test_no_run_fails_when_a_piece_is_killed(tmp_path: Path) -> None:
    journal = Journal()
    load = Load()
    stopping = asyncio.Event()
    transport = httpx.AsyncHTTPTransport(limits=UNLIMITED, trust_env=False)
    async with (
        transport,
        receiving() as receiver,
        running(topology_of(tmp_path)) as topology,
        AsyncOpenAI(api_key="none", max_retries=0) as openai,
        httpx.AsyncClient(base_url=topology.url, timeout=REQUEST_SECONDS, limits=UNLIMITED, trust_env=False) as http,
    ):
        world = World(lambda: [topology], transport, openai, journal, receiver, str(SEED), LONGEST_STREAM_SECONDS)
        probes = Probes(http)
        await probes.create_sessions()
        busy = asyncio.create_task(keep_busy(load, world, stopping))
        faults: list[tuple[str, Callable[[], Coroutine[Any, Any, None]]]] = [
            (f"kill {name} for {seconds:.0f} s", partial(topology.services[name].kill, down_seconds=seconds))
            for longest in DOWN_SECONDS
            for name in PIECES
            for seconds in [min(longest, LONGEST_SECONDS_WITHOUT_POSTGRES) if name == "postgres" else longest]
        ]
        faults += [(f"replace {name}", topology.services[name].replace) for name in ("greenroom-1", "greenroom-2")]
        for what, happen in faults:
            journal.note(FAULTS, what)
            async with probes.measuring() as waits:
                begun_at = time.monotonic()
                await happen()
                seconds = time.monotonic() - begun_at
                journal.note(FAULTS, "it is back")
            longest = "; ".join(f"{kind} {waited}" for kind, waited in waits.items())
            print(f"{what}, back after {seconds:.1f} s; longest wait: {longest}")
        spans = len(topology.collector.spans())
        stopping.set()
        await busy

        database = Database.open(topology.database_uri)
        try:
            unfinished = await wait_for_runs(database, seconds=SETTLE_SECONDS)
            everything = await stored_sessions(database, http, tmp_path / "ledger")
        finally:
            await database.close()
        # A check of the readiness may leave its session behind when the database is killed.
        others = (PROBE, "nobody")
        stored = {key: session for key, session in everything.items() if key.user_id not in others}
        await wait_for_webhooks(receiver, stored, load.clients, seconds=SETTLE_SECONDS)
        async with asyncio.timeout(SETTLE_SECONDS):
            while len(topology.collector.spans()) == spans:
                await asyncio.sleep(0.1)

    problems = load.problems
    problems += [Problem(f"run {run_id} is still {status}") for run_id, status in unfinished.items()]
    problems += Checks(stored, load.clients, journal).check_all()
    problems += check_webhooks(receiver, stored, load.clients, journal)
    for service in topology.services.values():
        problems += [Problem(f"{service.name}: {text}") for text in tracebacks_in(service.log())]
    turns = [
        record["status"] for key, one in everything.items() if key.user_id == PROBE for record in one.runs.values()
    ]
    for name, times in sorted(journal.counts.items()):
        print(f"{times:6} {name}")
    assert not problems, report_of(problems, stored, journal, tmp_path)
    assert turns == ["succeeded"] * probes.turns
