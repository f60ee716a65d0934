"""The audit trail of a server that is killed: it verifies, and has each start and each vote that was acknowledged.

GREENROOM_AUDIT_KILLS says how often, GREENROOM_SEED repeats a run of this test as far as time allows.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from greenroom.audit.export import all_rows
from greenroom.audit.signing import HeadVerifier, new_key_pair
from greenroom.audit.verify import verify_rows
from greenroom.records.audit import AuditEntry
from greenroom.runs.engine import run_store_beside
from greenroom.sessions.postgres import PostgresSessionService
from greenroom.sessions.sqlite import SqliteSessionService
from tests.durability.approving_server import APP
from tests.durability.patient_client import PatientClient, patient_client
from tests.durability.server_process import ServerProcess, server_in
from tests.seed import SEED

KILLS = int(os.environ.get("GREENROOM_AUDIT_KILLS", "3"))
_AT_ONCE = 4
_SECONDS = 120
_OVER = ("succeeded", "failed")
"""A run that was cut off five times without an event is given up."""

Votes = set[tuple[str, str]]
"""Ids of requests, and who voted."""


@pytest.mark.kill
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_the_trail_verifies_and_has_what_was_acknowledged(
    store: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    uri = request.getfixturevalue("empty_postgres_uri") if store == "postgres" else ""
    private, public = new_key_pair()
    key = tmp_path / "audit.pem"
    key.write_bytes(private)
    (tmp_path / "audit.pem.pub").write_bytes(public)
    settings = {"GREENROOM_URI": uri, "GREENROOM_AUDIT_KEY": str(key)}

    runs: list[str] = []
    votes: Votes = set()
    async with server_in(tmp_path, module="tests.durability.approving_server", **settings) as server:
        await server.start()
        async with patient_client(server) as client:
            killing = asyncio.create_task(_kill(server, random.Random(SEED)))
            async with asyncio.TaskGroup() as group:
                for number in range(_AT_ONCE):
                    group.create_task(_approve(client, number, runs, votes, killing))
            await killing

    sessions = PostgresSessionService(uri) if uri else SqliteSessionService(tmp_path / "greenroom.db")
    trail = run_store_beside(sessions).audit
    try:
        report = await verify_rows(all_rows(trail), keys=HeadVerifier.load([f"{key}.pub"]))
        entries = [msgspec.json.decode(row.data, type=AuditEntry) async for row in all_rows(trail)]
    finally:
        await sessions.close()

    assert report.faults == []
    started = Counter(entry.run_id for entry in entries if entry.action == "run.started")
    assert {run: started[run] for run in runs} == dict.fromkeys(runs, 1)
    answered = Counter((entry.request_id, entry.answered_by) for entry in entries if entry.action == "request.answered")
    assert {vote: answered[vote] for vote in votes} == dict.fromkeys(votes, 1)


async def _kill(server: ServerProcess, chance: random.Random) -> None:
    for _ in range(KILLS):
        await asyncio.sleep(chance.uniform(0, 0.6))
        await server.kill()
        await server.start()


async def _approve(
    client: PatientClient, worker: int, runs: list[str], votes: Votes, killing: asyncio.Task[None]
) -> None:
    """Starts runs that two people approve, until the server is killed no more."""
    number = worker * 4  # numbers whose call has no deadline
    is_last = False
    while not is_last:
        is_last = killing.done()
        number += 4 * _AT_ONCE
        session = f"/apps/{APP}/users/ann/sessions/s-{number}"
        await client.send("POST", session)
        body = {"newMessage": {"parts": [{"text": str(number)}]}}
        reply = await client.send("POST", f"{session}/runs", json=body, headers={"Idempotency-Key": f"k-{number}"})
        assert reply.status_code == 202, reply.text
        run_id: str = reply.json()["id"]
        runs.append(run_id)

        request_id = await _request_of(client, run_id)
        if request_id is not None:
            for user in ("bob", "carol"):
                await _vote(client, request_id, user, votes)
        await _until_over(client, run_id)


async def _request_of(client: PatientClient, run_id: str) -> str | None:
    """The id of the run's request; None if the run has ended, because a kill cut its call off, or too many have."""
    async with asyncio.timeout(_SECONDS):
        while "requests" not in (record := await _record(client, run_id)):
            if record["status"] in _OVER:
                return None
            await asyncio.sleep(0.05)
    [request_id] = record["requests"].values()
    return request_id


async def _until_over(client: PatientClient, run_id: str) -> None:
    async with asyncio.timeout(_SECONDS):
        while (await _record(client, run_id))["status"] not in _OVER:
            await asyncio.sleep(0.05)


async def _record(client: PatientClient, run_id: str) -> dict[str, Any]:
    record: dict[str, Any] = (await client.send("GET", f"/runs/{run_id}")).json()
    return record


async def _vote(client: PatientClient, request_id: str, user: str, votes: Votes) -> None:
    body = {"confirmed": True, "userId": user}
    reply = await client.send("POST", f"/requests/{request_id}/answer", json=body)
    while reply.status_code in (404, 503):  # a kill came before it had stored what it showed
        await asyncio.sleep(0.1)
        reply = await client.send("POST", f"/requests/{request_id}/answer", json=body)
    assert reply.status_code in (200, 403, 409), reply.text
    if reply.status_code == 200:
        votes.add((request_id, user))
