"""Memory in this process keeps the contract, and finds words where scripts have no spaces."""

from __future__ import annotations

import pytest

from greenroom.memory.in_memory import InMemoryMemoryService
from greenroom.records.base import JsonObject
from greenroom.records.content import Content, Part
from greenroom.records.event import Event
from greenroom.records.listings import MemoryEntry
from greenroom.testing.contracts.memory_service import *  # noqa: F403

_WHERE: JsonObject = {"app_name": "concierge", "user_id": "ann"}


@pytest.fixture
def memory_service() -> InMemoryMemoryService:
    return InMemoryMemoryService()


async def _remember(service: InMemoryMemoryService, *texts: str) -> None:
    await service.add_events_to_memory(
        **_WHERE,
        session_id="s-7",
        events=[
            Event(author="ann", timestamp=-number, content=Content(parts=[Part(text=text)]))
            for number, text in enumerate(texts)
        ],
    )


async def _found(service: InMemoryMemoryService, query: str) -> list[str]:
    return [entry.content.text() for entry in (await service.search_memory(**_WHERE, query=query)).memories]


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("私は京都で自転車を買いました", "自転車"),
        ("我的自行车是蓝色的", "蓝色"),
        ("我的自行车是蓝色的", "车"),
        ("ฉันมีจักรยานสีน้ำเงิน", "จักรยาน"),
        ("서울에서 자전거를 샀다", "자전거"),
        ("新しいiPhone15を買う", "iphone15"),
    ],
)
async def test_words_in_scripts_without_spaces_are_found(
    memory_service: InMemoryMemoryService, text: str, query: str
) -> None:
    await _remember(memory_service, "something else", text)
    assert await _found(memory_service, query) == [text]


async def test_rare_words_count_more_than_common_ones(memory_service: InMemoryMemoryService) -> None:
    await _remember(memory_service, *(f"it is the {number}" for number in range(9)), "bicycle")
    assert (await _found(memory_service, "is the bicycle"))[:2] == ["bicycle", "it is the 0"]


async def test_entries_come_with_the_id_of_their_event(memory_service: InMemoryMemoryService) -> None:
    event = Event(author="ann", content=Content(parts=[Part(text="note")]), custom_metadata={"a": 1})
    await memory_service.add_events_to_memory(**_WHERE, session_id="s-7", events=[event])
    (entry,) = (await memory_service.search_memory(**_WHERE, query="note")).memories
    assert (entry.id, entry.custom_metadata) == (event.id, {"a": 1})


async def test_an_entry_with_a_known_id_replaces_the_earlier(memory_service: InMemoryMemoryService) -> None:
    for text in ("likes tea", "likes coffee"):
        entry = MemoryEntry(id="drink", content=Content(parts=[Part(text=text)]))
        await memory_service.add_memories(**_WHERE, memories=[entry])
    assert await _found(memory_service, "likes") == ["likes coffee"]
    assert await _found(memory_service, "tea") == []


async def test_changes_to_a_found_entry_stay_outside(memory_service: InMemoryMemoryService) -> None:
    await _remember(memory_service, "note")
    (entry,) = (await memory_service.search_memory(**_WHERE, query="note")).memories
    entry.author = entry.timestamp = "changed"
    (again,) = (await memory_service.search_memory(**_WHERE, query="note")).memories
    assert (again.author, again.timestamp) == ("ann", "1970-01-01T00:00:00+00:00")


async def test_a_time_that_is_none_does_no_harm(memory_service: InMemoryMemoryService) -> None:
    for moment in (1e300, float("inf"), float("nan")):
        event = Event(author="ann", timestamp=moment, content=Content(parts=[Part(text="note")]))
        await memory_service.add_events_to_memory(**_WHERE, session_id="s-7", events=[event])
    unknown = MemoryEntry(content=Content(parts=[Part(text="note")]), timestamp="yesterday")
    await memory_service.add_memories(**_WHERE, memories=[unknown])
    found = (await memory_service.search_memory(**_WHERE, query="note")).memories
    assert [entry.timestamp for entry in found].count(None) == 3


async def test_forgetting_leaves_nothing_in_the_index(memory_service: InMemoryMemoryService) -> None:
    await _remember(memory_service, "one two", "two three")
    index = memory_service._indexes["concierge", "ann"]
    index.remove("s-7")
    assert (index._by_word, index._by_source) == ({}, {})
