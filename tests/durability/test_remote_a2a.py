"""A remote agent's task outlives its server, and ours."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from greenroom.agents.remote_a2a.agent import RemoteA2aAgent
from greenroom.agents.workflows import ParallelAgent
from greenroom.records.event import Event
from greenroom.records.run import RunStatus
from tests.agents.a2a_peer import Peer, card
from tests.durability.engines import asking, end_of, ended, engine_over, start, stores_in, wait_for
from tests.durability.server_process import server_in


def has_task(event: Event) -> bool:
    return not event.partial and "a2a:task_id" in (event.custom_metadata or {})


def answers(events: list[Event]) -> list[str]:
    return [event.content.text() for event in events if event.author == "desk" and event.content is not None]


@pytest.mark.parametrize("in_parallel", [False, True])
async def test_the_next_process_follows_the_task(tmp_path: Path, in_parallel: bool) -> None:
    peer = Peer()

    def agent() -> Any:
        desk = RemoteA2aAgent("desk", peer.card, httpx_client=peer.http)
        return ParallelAgent(name="both", sub_agents=[desk]) if in_parallel else desk

    async with stores_in(tmp_path) as stores, engine_over(stores, agent()) as engine:
        run, attachment = await start(engine, asking("wait"))
        await wait_for(attachment, has_task)
        attachment.close()
    assert peer.agent.cancelled == []
    async with stores_in(tmp_path) as stores, engine_over(stores, agent()) as engine:
        assert await engine.recover() == 1
        peer.agent.go.set()
        assert (await end_of(engine, run.id)).status is RunStatus.SUCCEEDED
        assert answers(await stores.log()) == ["half done"]
    assert len(peer.agent.received) == 1


async def test_a_cancelled_run_cancels_the_task(tmp_path: Path) -> None:
    peer = Peer()
    agent = RemoteA2aAgent("desk", peer.card, httpx_client=peer.http)
    async with stores_in(tmp_path) as stores, engine_over(stores, agent) as engine:
        run, attachment = await start(engine, asking("wait"))
        task = await wait_for(attachment, has_task)
        await engine.cancel(run.id, reason="enough")
        assert (await ended(attachment)).status is RunStatus.CANCELLED
        async with asyncio.timeout(10):
            while not peer.agent.cancelled:
                await asyncio.sleep(0.01)
    assert peer.agent.cancelled == [(task.custom_metadata or {})["a2a:task_id"]]


@pytest.mark.kill
async def test_a_task_of_a_killed_server_ends_with_its_result_once(tmp_path: Path) -> None:
    peer_folder = tmp_path / "peer"
    peer_folder.mkdir()
    async with server_in(peer_folder, module="tests.durability.a2a_peer_server") as server, stores_in(None) as stores:
        await server.start()
        agent = RemoteA2aAgent("desk", card(url=server.url), timeout=30)
        async with engine_over(stores, agent) as engine:
            _, attachment = await start(engine, asking("wait", streaming=True))
            await wait_for(attachment, lambda event: event.content is not None and event.content.text() == "half ")
            await server.kill()
            await server.start()
            assert (await ended(attachment)).status is RunStatus.SUCCEEDED
        assert answers(await stores.log()) == ["half done"]
