"""Calls that several people approve while the server is killed: each person counts once, each call is made once.

GREENROOM_APPROVALS says how many, GREENROOM_SEED repeats a run of this test as far as time allows.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from greenroom.log.calls import INTERRUPTED
from tests.durability.approving_server import APP, LAST, PAID
from tests.durability.patient_client import PatientClient, kill_repeatedly, patient_client
from tests.durability.server_process import server_in
from tests.seed import SEED

APPROVALS = int(os.environ.get("GREENROOM_APPROVALS", "40"))
_KILLS = 4 + APPROVALS // 50
_PEOPLE = ("bob", "carol", "dave")

Json = dict[str, Any]


@pytest.mark.kill
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_each_approval_is_counted_and_redeemed_once(
    store: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    uri = request.getfixturevalue("empty_postgres_uri") if store == "postgres" else ""
    chance = random.Random(SEED)
    async with server_in(tmp_path, module="tests.durability.approving_server", GREENROOM_URI=uri) as server:
        await server.start()
        async with patient_client(server) as client:
            killing = asyncio.create_task(kill_repeatedly(server, chance, times=_KILLS))
            async with asyncio.TaskGroup() as group:
                deciding = [
                    group.create_task(_decide(client, number, random.Random(chance.random())))
                    for number in range(APPROVALS)
                ]
            await killing
            outcomes = [one.result() for one in deciding]
            open_requests = (await client.send("GET", "/requests")).json()["requests"]

    assert open_requests == []
    paid = Counter(int(line) for line in (tmp_path / PAID).read_text().split())
    assert all(times == 1 for times in paid.values()), paid
    assert all(outcomes[number] for number in paid), "a call that was refused was made"
    assert len(paid) >= sum(outcomes) - _KILLS, "calls that were approved were not made, though no kill cut them off"


async def _decide(client: PatientClient, number: int, chance: random.Random) -> bool:
    """Starts a run that asks, has people answer, some of them more than once, and returns what they decided."""
    session = f"/apps/{APP}/users/ann/sessions/s-{number}"
    await client.send("POST", session)
    body = {"newMessage": {"parts": [{"text": str(number)}]}}
    reply = await client.send("POST", f"{session}/runs", json=body, headers={"Idempotency-Key": f"k-{number}"})
    assert reply.status_code == 202, reply.text
    run = f"/runs/{reply.json()['id']}"
    seconds = 60 + APPROVALS / 5
    request_id = await _request_of(client, run, seconds)

    by_deadline = number % 4 == 3
    voters = ["bob"] if by_deadline else list(_PEOPLE)
    votes = {user: by_deadline or chance.random() < 0.8 for user in voters}
    sent = chance.sample(voters, len(voters)) + chance.sample(voters, 1)
    acknowledged: list[str | None] = []
    if request_id is not None:
        acknowledged = await asyncio.gather(*(_vote(client, request_id, user, votes[user]) for user in sent))
    await client.wait_for_status(run, "succeeded", seconds=seconds, pause_seconds=0.1 + APPROVALS / 200)

    decision = await _decision_of(client, session)
    if request_id is not None:
        assert decision is await _check_answers(client, request_id, votes, acknowledged)
    return decision is True


async def _check_answers(
    client: PatientClient, request_id: str, votes: dict[str, bool], acknowledged: list[str | None]
) -> bool:
    """Returns whether the call was approved."""
    closed = (await client.send("GET", f"/requests/{request_id}")).json()
    counted = {answer["userId"]: answer["confirmed"] for answer in closed["answers"]}
    assert len(counted) == len(closed["answers"])
    assert counted.items() <= votes.items()
    assert {user for user in acknowledged if user is not None} <= counted.keys()
    approved = sum(counted.values()) >= 2 or "deadline" in closed
    assert closed["confirmed"] is approved, closed
    assert closed["closedAt"] >= closed.get("deadline", 0.0)
    return approved


async def _decision_of(client: PatientClient, session: str) -> bool | None:
    """Returns the decision in the log; None if a kill cut the call off before its tool asked."""
    events: list[Json] = (await client.send("GET", session)).json()["events"]
    assert events[-1]["content"]["parts"][0].get("text") == LAST
    parts = [part for event in events for part in event.get("content", {}).get("parts", [])]
    responses = [part["functionResponse"] for part in parts if "functionResponse" in part]
    decisions = [one["response"] for one in responses if one["name"] == "adk_request_confirmation"]
    if not decisions:
        assert [one["response"] for one in responses] == [INTERRUPTED]
        return None
    assert len(responses) == 3, "a placeholder, the decision and the tool's response"
    [decision] = decisions
    return decision["confirmed"]


async def _request_of(client: PatientClient, run: str, seconds: float) -> str | None:
    """The id of the request of a run; None if it has ended, after its deadline or without asking."""
    async with asyncio.timeout(seconds):
        while "requests" not in (record := (await client.send("GET", run)).json()):
            if record["status"] == "succeeded":
                return None
            await asyncio.sleep(0.05)
    [request_id] = record["requests"].values()
    return request_id


async def _vote(client: PatientClient, request_id: str, user: str, confirmed: bool) -> str | None:
    """Returns the user if the vote was acknowledged; None if it was counted before, or came too late."""
    body = {"confirmed": confirmed, "userId": user}
    reply = await client.send("POST", f"/requests/{request_id}/answer", json=body)
    while reply.status_code in (404, 503):  # it begins, or a kill came before it had stored what it showed
        await asyncio.sleep(0.1)
        reply = await client.send("POST", f"/requests/{request_id}/answer", json=body)
    assert reply.status_code in (200, 403, 409), reply.text
    return user if reply.status_code == 200 else None
