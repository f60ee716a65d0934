"""One idempotency key in concurrent requests to several servers starts one run."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import httpx
import pytest

from greenroom.records.session import SessionKey
from tests.replicas.conftest import Pair
from tests.replicas.requests import log_of, message, path_of, run_of, texts
from tests.replicas.servers import Server

pytestmark = pytest.mark.asyncio(loop_scope="module")

TIMES = 20


async def start(server: Server, key: SessionKey, idempotency_key: str) -> httpx.Response:
    body = {"newMessage": message("hello")}
    return await server.http.post(path_of(key) + "/runs", json=body, headers={"idempotency-key": idempotency_key})


async def test_two_servers_start_one_run_in_one_session(pair: Pair) -> None:
    key = await pair.servers.key_of(pair.owner)
    await pair.owner.http.post(path_of(key))
    for _ in range(TIMES // 4):
        idempotency_key = uuid4().hex
        answers = await asyncio.gather(*(start(one, key, idempotency_key) for one in (pair.owner, pair.other) * 2))
        assert [answer.status_code for answer in answers] == [202] * 4
        assert len({answer.json()["id"] for answer in answers}) == 1
    runs = (await pair.other.http.get(f"/runs?session_id={key.session_id}")).json()["runs"]
    assert len(runs) == TIMES // 4


@pytest.mark.parametrize("is_one_server", [True, False])
async def test_requests_in_two_sessions_start_one_run(pair: Pair, is_one_server: bool) -> None:
    """The other one is refused before it has any effect."""
    second = pair.owner if is_one_server else pair.other
    refused: list[SessionKey] = []
    for _ in range(TIMES):
        keys = [await pair.servers.key_of(server) for server in (pair.owner, second)]
        for key in keys:
            await pair.owner.http.post(path_of(key))
        idempotency_key = uuid4().hex
        answers = await asyncio.gather(
            start(pair.owner, keys[0], idempotency_key), start(second, keys[1], idempotency_key)
        )
        assert sorted(answer.status_code for answer in answers) == [202, 422]
        for key, answer in zip(keys, answers, strict=True):
            if answer.status_code == 422:
                assert answer.json()["code"] == "IdempotencyConflict"
                refused.append(key)
    for key in refused:
        assert await log_of(pair.owner.http, key) == []
        assert (await pair.owner.http.get(f"/runs?session_id={key.session_id}")).json()["runs"] == []
        ran = await pair.other.http.post("/run", json=run_of(key, "hello"))
        assert texts(ran.json()) == ["You said hello"]
