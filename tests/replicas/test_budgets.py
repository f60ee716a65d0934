"""A budget holds while several servers spend it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx

from greenroom.records.session import SessionKey
from tests.replicas.budget_agents.spender.agent import TOKENS_PER_CALL, TOKENS_PER_USER
from tests.replicas.requests import run_of
from tests.replicas.servers import Server, Servers

AGENTS = Path(__file__).parent / "budget_agents"
AT_ONCE = 10
TURNS = 4
USER = "ann"


async def spend(server: Server) -> list[httpx.Response]:
    """Turns of one session, one after the other."""
    created = await server.http.post(f"/apps/spender/users/{USER}/sessions")
    key = SessionKey("spender", USER, created.json()["id"])
    return [await server.http.post("/run", json=run_of(key, "hello")) for _ in range(TURNS)]


async def test_two_servers_spend_one_budget(servers: Servers) -> None:
    started = [await servers.start(agents=AGENTS) for _ in range(2)]
    await servers.wait_until_shared(*started)
    turns = await asyncio.gather(*(spend(server) for server in started for _ in range(AT_ONCE)))
    answers = [answer.json()[-1] for responses in turns for answer in responses]
    made = [answer for answer in answers if "errorCode" not in answer]
    refused = [answer for answer in answers if "errorCode" in answer]
    assert {answer["errorCode"] for answer in refused} == {"BUDGET_EXCEEDED"}

    spent = len(made) * TOKENS_PER_CALL
    assert 0 < spent <= TOKENS_PER_USER
    for server in started:
        usage = (await server.http.get(f"/apps/spender/usage?user_id={USER}")).json()
        assert usage["usage"][0]["totalTokenCount"] == spent
    (row,) = await servers.database.fetch("SELECT sum(total_tokens)::int, sum(held_tokens)::int FROM model_usage")
    assert tuple(row) == (spent, 0)
