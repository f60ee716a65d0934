"""Servers that are killed send each state of a run to its webhooks at least once, always with the same id."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import random
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import httpx
import pytest

from tests.durability.server_process import ServerProcess, server_in
from tests.seed import SEED
from tests.server.webhook_receiver import WebhookReceiver, receiving, status

RUNS = 40
KILLS = 3


@pytest.fixture(params=["sqlite", "postgres"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    (tmp_path / "secrets.toml").write_text(f'echo = ["whsec_{base64.b64encode(b"a" * 24).decode()}"]\n')
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'greenroom.db'}"
    else:
        yield request.getfixturevalue("postgres_uri")


def server_of(
    folder: Path, uri: str, receiver: WebhookReceiver, *, retry_seconds: float, states: str = "running succeeded"
) -> AbstractAsyncContextManager[ServerProcess]:
    settings = {"STORE": uri, "RECEIVER": receiver.url, "RETRY_SECONDS": str(retry_seconds), "STATES": states}
    return server_in(folder, module="tests.durability.webhook_server", **settings)


async def start_run(server: ServerProcess, number: int) -> str:
    """Starts a run once, however often the server is killed."""
    path = f"{server.url}/apps/echo/users/ann/sessions/s-{number}/runs"
    body = {"newMessage": {"role": "user", "parts": [{"text": "hi"}]}}
    while True:
        with contextlib.suppress(httpx.HTTPError):
            async with httpx.AsyncClient(timeout=30) as http:
                reply = await http.post(path, json=body, headers={"idempotency-key": f"k-{number}"})
                if reply.status_code == 202:
                    return reply.json()["id"]
        await asyncio.sleep(0.05)


def ids_by_state(receiver: WebhookReceiver) -> dict[tuple[str, str], set[str]]:
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for message in receiver.messages:
        found[message.content["data"]["id"], message.type].add(message.id)
    return found


async def test_states_are_delivered_at_least_once_with_one_id_through_kills(tmp_path: Path, uri: str) -> None:
    chance = random.Random(SEED)
    async with (
        receiving() as receiver,
        server_of(tmp_path, uri, receiver, retry_seconds=0.1) as server,
    ):
        receiver.answers = [chance.choice([status(200), status(500)]) for _ in range(RUNS)]
        await server.start()
        starting = [asyncio.create_task(start_run(server, number)) for number in range(RUNS)]
        for kill in range(1, KILLS + 1):
            await receiver.until(lambda kill=kill: len(receiver.messages) >= kill * RUNS // KILLS)
            await server.kill()
            await server.start(wait=False)
        async with asyncio.timeout(60):
            run_ids = await asyncio.gather(*starting)

        wanted = {(run_id, f"run.{state}") for run_id in run_ids for state in ("running", "succeeded")}
        await receiver.until(lambda: ids_by_state(receiver).keys() >= wanted)
    found = ids_by_state(receiver)
    assert found.keys() == wanted
    assert {len(ids) for ids in found.values()} == {1}
    assert server.restarts == KILLS


async def test_a_message_that_was_sent_but_not_recorded_is_sent_again(tmp_path: Path, uri: str) -> None:
    async with (
        receiving(None) as receiver,
        server_of(tmp_path, uri, receiver, retry_seconds=60) as server,
    ):
        await server.start()
        run_id = await start_run(server, 1)
        await receiver.until_received("run.running")
        await server.kill()
        await server.start()
        await receiver.until_received("run.running", "run.running", "run.succeeded")
    first, again, _ = receiver.messages
    assert (first.id, first.body) == (again.id, again.body)
    assert first.content["data"]["id"] == run_id


async def test_a_restart_continues_the_pause_before_the_next_try(tmp_path: Path, uri: str) -> None:
    async with (
        receiving(status(500)) as receiver,
        server_of(tmp_path, uri, receiver, retry_seconds=4, states="succeeded") as server,
    ):
        await server.start()
        run_id = await start_run(server, 1)
        async with httpx.AsyncClient(base_url=server.url) as http, asyncio.timeout(30):
            (webhook,) = (await http.get(f"/runs/{run_id}/webhooks")).json()["webhooks"]
            path = f"/runs/{run_id}/webhooks/{webhook['id']}/deliveries"
            while not (found := _tries(await http.get(path))):
                await asyncio.sleep(0.02)
        failed_at, pending = found
        await server.kill()
        await server.start()
        await receiver.until_received("run.succeeded", "run.succeeded")
    assert time.time() >= pending >= failed_at + 2.0


def _tries(reply: httpx.Response) -> tuple[float, float] | None:
    """The times of the failed try of a message, and of its next one."""
    for delivery in reply.json()["deliveries"]:
        if delivery.get("failures"):
            return delivery["attempts"][0]["at"], delivery.get("nextTryAt", 0.0)
    return None
