"""Live events for readers in this process, and how a reader follows a log without gap or repeat."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from greenroom.event_streams.in_process import InProcessEventStream
from greenroom.event_streams.stream import Follower, LiveItem, RunEnded, StreamItem, Subscription
from greenroom.records import wire
from greenroom.records.content import Content, Part
from greenroom.records.event import Event
from greenroom.records.run import Run, RunStatus
from greenroom.records.session import SessionKey

KEY = SessionKey("app", "ada", "s-1")
OTHER = SessionKey("app", "ada", "s-2")


def item(text: str, seq: int | None = None, *, run_id: str = "e-1", author: str = "agent") -> StreamItem:
    content = Content(role="model", parts=[Part(text=text)])
    event = Event(id=f"id-{text}", author=author, invocation_id=run_id, content=content, partial=seq is None or None)
    return StreamItem(event, run_id=run_id, seq=seq)


def ended(run_id: str = "e-1") -> RunEnded:
    run = Run(id=run_id, app_name="app", user_id="ada", session_id="s-1", status=RunStatus.SUCCEEDED, created_at=0)
    return RunEnded(run)


def lines_of(items: list[LiveItem] | None) -> list[str]:
    assert items is not None
    return [one.event.content.text() if isinstance(one, StreamItem) and one.event.content else "end" for one in items]


async def taken(subscription: Subscription) -> list[str]:
    async with asyncio.timeout(5):
        return lines_of(await subscription.next_batch())


async def test_what_is_published_comes_in_order_to_every_reader_of_the_session() -> None:
    stream = InProcessEventStream()
    first = stream.subscribe(KEY)
    second = stream.subscribe(KEY)
    other = stream.subscribe(OTHER)
    for one in (item("a"), item("ab", 1), ended()):
        stream.publish(KEY, one)
    assert await taken(first) == await taken(second) == ["a", "ab", "end"]
    assert lines_of(await other.next_batch(idle_seconds=0)) == []


async def test_a_reader_of_one_run_gets_that_run_only() -> None:
    stream = InProcessEventStream()
    reader = stream.subscribe(KEY, run_id="e-2", with_user_events=False)
    stream.publish(KEY, item("of e-1", 1))
    stream.publish(KEY, item("asked", 2, run_id="e-2", author="user"))
    stream.publish(KEY, item("of e-2", 3, run_id="e-2"))
    stream.publish(KEY, ended("e-1"))
    stream.publish(KEY, ended("e-2"))
    assert await taken(reader) == ["of e-2", "end"]


async def test_a_reader_that_waits_is_woken() -> None:
    stream = InProcessEventStream()
    reader = stream.subscribe(KEY)
    waiting = asyncio.create_task(taken(reader))
    await asyncio.sleep(0)
    stream.publish(KEY, item("a", 1))
    assert await waiting == ["a"]


async def test_silence_ends_with_an_empty_batch_and_so_does_closing() -> None:
    stream = InProcessEventStream()
    reader = stream.subscribe(KEY)
    assert await reader.next_batch(idle_seconds=0.001) == []
    waiting = asyncio.create_task(taken(reader))
    await asyncio.sleep(0)
    reader.close()
    assert await waiting == []
    stream.publish(KEY, item("unheard", 1))
    assert await reader.next_batch(idle_seconds=0.001) == []


async def test_a_late_reader_gets_the_partial_events_of_the_message_being_written() -> None:
    stream = InProcessEventStream()
    for one in (item("an old message", 1), item("a"), item("b")):
        stream.publish(KEY, one)
    late = stream.subscribe(KEY)
    assert await taken(late) == ["a", "b"]
    stream.publish(KEY, item("ab", 2))
    assert await taken(late) == ["ab"]
    assert lines_of(await stream.subscribe(KEY).next_batch(idle_seconds=0)) == []


async def test_a_late_reader_gets_the_start_of_a_message_whose_agent_writes_beside_another() -> None:
    stream = InProcessEventStream()
    for one in (item("a"), item("x", author="other"), item("b"), item("ab", 1)):
        stream.publish(KEY, one)
    assert await taken(stream.subscribe(KEY)) == ["x"]
    stream.publish(KEY, ended())
    assert lines_of(await stream.subscribe(KEY).next_batch(idle_seconds=0)) == []


async def test_a_reader_that_falls_behind_is_notified_and_keeps_the_end_of_its_run() -> None:
    stream = InProcessEventStream(max_waiting_items=3)
    reader = stream.subscribe(KEY)
    for number in range(1, 6):
        stream.publish(KEY, item(str(number), number))
    stream.publish(KEY, ended())
    assert await reader.next_batch() is None
    assert await taken(reader) == ["end"]


async def test_bytes_count_as_well_but_one_item_may_be_as_large_as_it_is() -> None:
    stream = InProcessEventStream(max_waiting_bytes=1000)
    reader = stream.subscribe(KEY)
    large = "x" * 2000
    stream.publish(KEY, item(large))
    assert await taken(reader) == [large]
    stream.publish(KEY, item(large))
    stream.publish(KEY, item("a"))
    stream.publish(KEY, item("b"))
    assert await reader.next_batch() is None
    stream.publish(KEY, item("c"))
    assert await taken(reader) == ["c"]


async def test_the_end_of_a_run_is_sent_even_when_others_follow_and_their_events_are_too_many() -> None:
    stream = InProcessEventStream(max_waiting_items=3)
    reader = stream.subscribe(KEY)
    stream.publish(KEY, ended())
    for number in range(1, 6):
        stream.publish(KEY, item(str(number), number, run_id="e-2"))
    assert await reader.next_batch() is None
    assert await taken(reader) == ["end"]


async def test_partial_events_are_gathered_and_a_stored_one_comes_at_once() -> None:
    stream = InProcessEventStream()
    reader = stream.subscribe(KEY)
    stream.publish(KEY, item("first"))
    assert await taken(reader) == ["first"]
    waiting = asyncio.create_task(taken(reader))
    await asyncio.sleep(0)
    for text in "abc":
        stream.publish(KEY, item(text))
    await asyncio.sleep(0)
    assert not waiting.done()
    stream.publish(KEY, item("abc", 1))
    await asyncio.sleep(0)
    assert waiting.done()
    assert await waiting == ["a", "b", "c", "abc"]


def test_the_json_of_an_event_is_made_once() -> None:
    one = item("a", 1)
    assert one.json is one.json
    assert one.json == wire.encode(one.event)


@pytest.mark.parametrize("catch_up", [True, False])
async def test_a_follower_that_knows_the_log_is_spared_the_first_look(catch_up: bool) -> None:
    looks: list[int] = []

    async def read_log(after: int) -> list[Event]:
        looks.append(after)
        return []

    stream = InProcessEventStream()
    follower = Follower(stream.subscribe(KEY), after=7, read_log=read_log, run_id="e-1", catch_up=catch_up)
    stream.publish(KEY, item("a", 8))
    assert lines_of(await follower.next_batch()) == ["a"]
    assert looks == ([7] if catch_up else [])


@settings(max_examples=200, deadline=None)
@given(
    steps=st.lists(st.sampled_from(["store", "store", "partial", "publish later", "read", "read"]), max_size=40),
    max_waiting_items=st.integers(1, 5),
    page=st.integers(1, 4),
    start=st.integers(0, 3),
)
async def test_each_stored_event_is_read_once_and_in_order(
    steps: list[str], max_waiting_items: int, page: int, start: int
) -> None:
    stream = InProcessEventStream(max_waiting_items=max_waiting_items)
    log = [item(f"{n}", n).event for n in range(1, 4)]
    unpublished: list[StreamItem] = []

    async def read_log(after: int) -> list[Event]:
        await asyncio.sleep(0)
        return log[after : after + page]

    def publish_all() -> None:
        for one in unpublished:
            stream.publish(KEY, one)
        unpublished.clear()

    follower = Follower(stream.subscribe(KEY), after=start, read_log=read_log)

    items: list[LiveItem] = []
    for step in steps:
        if step == "read":
            items += await follower.next_batch(idle_seconds=0)
        elif step == "partial":
            stream.publish(KEY, item("partial"))
        else:
            stored = item(str(len(log) + 1), len(log) + 1)
            log.append(stored.event)
            unpublished.append(stored)
            if step == "store":
                publish_all()

    publish_all()
    stream.publish(KEY, ended())
    async with asyncio.timeout(5):
        while not any(isinstance(one, RunEnded) for one in items):
            items += await follower.next_batch(idle_seconds=0)

    follower.close()
    seqs = [one.seq for one in items if isinstance(one, StreamItem) and one.seq is not None]
    assert seqs == list(range(start + 1, len(log) + 1))
    assert isinstance(items[-1], RunEnded)
