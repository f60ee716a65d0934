"""Readers that come late, or come back, at any moment of a run."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.errors import IdempotencyConflict
from greenroom.event_streams.in_process import InProcessEventStream
from greenroom.event_streams.stream import Follower, RunEnded, StreamItem
from greenroom.records.content import Content, Part
from greenroom.records.event import Event
from greenroom.records.run import RunStatus
from greenroom.records.session import SessionKey
from tests.durability.engines import asking, engine_over, finish, items_of, start, stores_in
from tests.durability.scripts import model_of

_KEY = SessionKey("desk", "ann", "s-1")


async def test_chunks_of_a_message_are_not_shown_after_the_whole_of_it() -> None:
    """A reader comes while a message is being written; it is stored before the reader has looked at the log."""
    stream = InProcessEventStream()
    whole = Event(id="m", author="desk", content=Content(role="model", parts=[Part(text="Good day.")]))
    chunk = Event(id="m", author="desk", content=Content(role="model", parts=[Part(text="Good ")]), partial=True)
    later = Event(id="n", author="desk", content=Content(role="model", parts=[Part(text="Good ")]), partial=True)
    log: list[Event] = []

    async def read_log(after: int) -> list[Event]:
        return log[after:]

    stream.publish(_KEY, StreamItem(chunk, run_id="e-1", seq=None))
    reader = Follower(stream.subscribe(_KEY), after=0, read_log=read_log)
    log.append(whole)
    stream.publish(_KEY, StreamItem(whole, run_id="e-1", seq=1))
    stream.publish(_KEY, StreamItem(later, run_id="e-1", seq=None))
    seen: list[Event] = []
    async with asyncio.timeout(5):
        while len(seen) < 2:
            seen += [item.event for item in await reader.next_batch() if isinstance(item, StreamItem)]
    assert seen == [whole, later]


@pytest.mark.parametrize("after", [None, 0, 1, 2])
async def test_a_reader_that_attaches_at_any_moment_sees_every_later_event_once(
    tmp_path: Path, after: int | None
) -> None:
    agent = LlmAgent(name="desk", model=model_of("one two three four five six", delay=0.001))
    async with stores_in(tmp_path) as stores, engine_over(stores, agent) as engine:
        await finish(engine, asking("before"))
        run, first = await start(engine, asking("go", streaming=True))
        readers = [first]
        while (await engine.get(run.id)).status is RunStatus.RUNNING:
            readers.append(await engine.attach(run.id, after=None if after is None else 2 + after))
            await asyncio.sleep(0)
        readers.append(await engine.attach(run.id, after=None if after is None else 2 + after))
        assert len(readers) > 3
        for reader in readers[1:]:
            items = await items_of(reader)
            places = [item.seq for item in items if isinstance(item, StreamItem) and item.seq is not None]
            assert places == [place for place in (3, 4) if place > 2 + (after or 0)]
            assert isinstance(items[-1], RunEnded)
            assert items[-1].run.status is RunStatus.SUCCEEDED


async def test_a_run_has_ended_for_every_request_once_its_readers_saw_its_end(tmp_path: Path) -> None:
    agent = LlmAgent(name="desk", model=model_of("Good day."))
    async with stores_in(tmp_path) as stores, engine_over(stores, agent) as engine:
        for _ in range(20):
            run = await finish(engine, asking("hello"))
            assert (await engine.get(run.id)).status is RunStatus.SUCCEEDED
            last = (await items_of(await engine.attach(run.id)))[-1]
            assert isinstance(last, RunEnded)
            assert last.run.status is RunStatus.SUCCEEDED


async def test_one_key_is_one_run_also_for_requests_at_the_same_time(tmp_path: Path) -> None:
    agent = LlmAgent(name="desk", model=model_of("Good day."))
    async with stores_in(tmp_path) as stores, engine_over(stores, agent) as engine:
        same = [engine.start(asking("hello"), idempotency_key="k") for _ in range(8)]
        other = engine.start(asking("something else"), idempotency_key="k")
        *started, refused = await asyncio.gather(*same, other, return_exceptions=True)
        assert isinstance(refused, IdempotencyConflict)
        assert len({one[0].id for one in started if isinstance(one, tuple)}) == 1
        again, reader = await engine.start(asking("hello"), idempotency_key="k")
        assert reader is not None
        await items_of(reader)
        assert {event.invocation_id for event in await stores.log()} == {again.id}
        assert len(await stores.log()) == 2
