"""Contract of memory stores.

Star-import these tests into a test file that has a fixture `memory_service`: a new, empty store for
each test. Needs pytest with pytest-asyncio in auto mode.
"""

from __future__ import annotations

from datetime import datetime

import pytest

from greenroom.errors import InvalidRequest, NotOffered
from greenroom.memory.service import BaseMemoryService
from greenroom.records.base import JsonObject
from greenroom.records.content import Blob, Content, FunctionCall, Part
from greenroom.records.event import Event
from greenroom.records.listings import MemoryEntry
from greenroom.records.session import Session

_HERE: JsonObject = {"app_name": "concierge", "user_id": "ann"}
_NOON = 1_767_268_800.25


async def test_what_was_said_is_found_by_a_word(memory_service: BaseMemoryService) -> None:
    event = _event("My bicycle is blue", author="ann")
    await _remember(memory_service, event, _event("The weather is fine"))
    result = await memory_service.search_memory(
        **_HERE,
        query="which colour has my BICYCLE?",
        limit=1,
    )
    (entry,) = result.memories
    assert (entry.content, entry.author) == (event.content, "ann")
    assert entry.timestamp is not None
    moment = datetime.fromisoformat(entry.timestamp)
    assert moment.timestamp() == pytest.approx(_NOON)  # pyright: ignore[reportUnknownMemberType]


async def test_nothing_is_found_without_a_common_word(memory_service: BaseMemoryService) -> None:
    assert await _found(memory_service, "anything") == []
    await _remember(memory_service, _event("My bicycle is blue"))
    await _remember(memory_service, _event("हिन्दी"), session_id="s-8")
    for query in ("ह", "cycle", "bi", "red", "", "?!", " \n"):
        assert await _found(memory_service, query) == []


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("Größe und STRASSE", "straße"),
        ("Caf\u00e9 au lait", "cafe\u0301"),
        ("Ελληνικός καφές", "ΚΑΦΈΣ"),
        ("Привет, мир", "МИР"),
        ("नमस्ते हिन्दी भाषा", "हिन्दी"),
        ("مرحبا بالعالم", "مرحبا"),
        ("room 4711, please", "4711"),
        ("don't use snake_case", "snake"),
    ],
)
async def test_words_of_any_language_are_found(
    memory_service: BaseMemoryService,
    text: str,
    query: str,
) -> None:
    await _remember(memory_service, _event(text), _event("something else"))
    assert await _found(memory_service, query) == [text]


async def test_an_entry_with_more_of_the_words_comes_first(memory_service: BaseMemoryService) -> None:
    texts = ["blue", "the blue bicycle", "a bicycle, blue"]
    await _remember(
        memory_service,
        *(_event(text, timestamp=_NOON - number) for number, text in enumerate(texts)),
    )
    assert await _found(memory_service, "the blue bicycle bicycle") == [texts[1], texts[2], texts[0]]


async def test_of_equal_matches_the_newer_comes_first(memory_service: BaseMemoryService) -> None:
    times = [3.0, 1.0, 4.0, 1.5]
    await _remember(
        memory_service,
        *(_event(f"note {moment}", timestamp=moment) for moment in times),
    )
    assert await _found(memory_service, "note") == ["note 4.0", "note 3.0", "note 1.5", "note 1.0"]


async def test_limit_keeps_the_best(memory_service: BaseMemoryService) -> None:
    await _remember(
        memory_service,
        *(_event(f"note {number}", timestamp=number) for number in range(30)),
    )
    assert len(await _found(memory_service, "note")) == 10
    assert await _found(memory_service, "note", limit=2) == ["note 29", "note 28"]
    assert len(await _found(memory_service, "note", limit=100)) == 30


async def test_adding_a_session_again_replaces_what_was_remembered_of_it(memory_service: BaseMemoryService) -> None:
    kept_event = _event("the kept note")
    await _remember(memory_service, _event("another session's note"), session_id="s-8")
    await _remember(memory_service, kept_event, _event("the dropped note"))
    await memory_service.add_events_to_memory(
        **_HERE,
        session_id="s-7",
        events=[_event("an added note")],
    )
    await _remember(memory_service, kept_event, _event("the new note", timestamp=_NOON + 1))
    assert sorted(await _found(memory_service, "note")) == ["another session's note", "the kept note", "the new note"]
    assert await _found(memory_service, "dropped added") == []


async def test_an_event_known_by_id_is_not_taken_twice(memory_service: BaseMemoryService) -> None:
    first = _event("first note", timestamp=2)
    second = _event("second note", timestamp=1)
    await memory_service.add_events_to_memory(**_HERE, session_id="s-7", events=[first])

    for _ in range(2):
        await memory_service.add_events_to_memory(
            **_HERE,
            session_id="s-7",
            events=[first, second, second],
        )

    assert await _found(memory_service, "note") == ["first note", "second note"]


async def test_entries_without_a_session_are_found_and_stay(memory_service: BaseMemoryService) -> None:
    entry = MemoryEntry(
        content=Content(role="user", parts=[Part(text="prefers tea")]),
        author="ann",
        timestamp="2026-01-01T12:00:00+00:00",
        custom_metadata={"source": "survey"},
    )
    bare = MemoryEntry(content=Content(parts=[Part(text="drinks tea")]))
    await memory_service.add_memories(**_HERE, memories=[entry, bare])
    await _remember(memory_service, _event("coffee"))
    memories = (await memory_service.search_memory(**_HERE, query="tea")).memories
    assert [(memory.content, memory.author, memory.custom_metadata) for memory in memories] == [
        (entry.content, "ann", {"source": "survey"}),
        (bare.content, None, None),
    ]
    assert memories[0].timestamp is not None
    assert datetime.fromisoformat(memories[0].timestamp) == datetime.fromisoformat("2026-01-01T12:00:00+00:00")


async def test_a_deleted_entry_is_not_found_any_more(memory_service: BaseMemoryService) -> None:
    """Rows 6.1.14 and 12.6 of ADK's sheet: whatever the entry came from, and no other user's."""
    deleted_event = _event("a blue bicycle")
    bob: JsonObject = {**_HERE, "user_id": "bob"}
    await _remember(memory_service, deleted_event, _event("a green bicycle"))

    for user in (_HERE, bob):
        memory = MemoryEntry(id="m-1", content=Content(parts=[Part(text="a red bicycle")]))
        await memory_service.add_memories(**user, memories=[memory])

    for gone in ("m-1", deleted_event.id, "unknown", None):
        await memory_service.delete_memory(**_HERE, memory_id=gone)

    assert await _found(memory_service, "bicycle") == ["a green bicycle"]
    assert await _found(memory_service, "red blue") == []
    assert len((await memory_service.search_memory(**bob, query="bicycle")).memories) == 1


async def test_parts_and_events_without_text_do_no_harm(memory_service: BaseMemoryService) -> None:
    picture = Part(inline_data=Blob(data=b"png", mime_type="image/png"))
    mixed = Content(
        role="user",
        parts=[picture, Part(text="my"), Part(text="bicycle"), Part(text="")],
    )
    await _remember(
        memory_service,
        Event(author="ann"),
        Event(author="ann", content=Content()),
        Event(author="ann", content=Content(parts=[])),
        Event(author="ann", content=Content(parts=[picture])),
        Event(author="agent", content=Content(parts=[Part(function_call=FunctionCall(name="bicycle"))])),
        Event(author="ann", content=mixed),
    )
    memories = (await memory_service.search_memory(**_HERE, query="bicycle")).memories
    assert [entry.content for entry in memories] == [mixed]


async def test_users_and_apps_are_apart(memory_service: BaseMemoryService) -> None:
    await _remember(memory_service, _event("ann's secret"))
    await memory_service.add_memories(
        **_HERE,
        memories=[MemoryEntry(content=Content(parts=[Part(text="secret")]))],
    )

    for other in ({"user_id": "bob"}, {"app_name": "other"}, {"app_name": "concierge/ann", "user_id": ""}):
        elsewhere: JsonObject = {**_HERE, **other}
        result = await memory_service.search_memory(**elsewhere, query="secret")
        assert result.memories == []

    bobs = Session(id="s-7", app_name="concierge", user_id="bob")
    await memory_service.add_session_to_memory(bobs)
    assert len(await _found(memory_service, "secret")) == 2


def _event(text: str, *, author: str = "ann", timestamp: float = _NOON) -> Event:
    return Event(
        author=author,
        timestamp=timestamp,
        content=Content(role="user", parts=[Part(text=text)]),
    )


async def _remember(
    memory_service: BaseMemoryService,
    *events: Event,
    session_id: str = "s-7",
) -> None:
    session = Session(**_HERE, id=session_id)
    session.events.extend(events)
    await memory_service.add_session_to_memory(session)


async def _found(memory_service: BaseMemoryService, query: str, *, limit: int = 10) -> list[str]:
    found = await memory_service.search_memory(**_HERE, query=query, limit=limit)
    return [entry.content.text() for entry in found.memories]


async def test_all_of_a_user_is_deleted(memory_service: BaseMemoryService) -> None:
    bob: JsonObject = {**_HERE, "user_id": "bob"}
    for user in (_HERE, bob):
        await memory_service.add_events_to_memory(
            **user,
            session_id="s-1",
            events=[_event("My bicycle is blue")],
        )
        memory = MemoryEntry(content=Content(parts=[Part(text="a red bicycle")]))
        await memory_service.add_memories(**user, memories=[memory])

    await memory_service.delete_user(**_HERE)
    assert await _found(memory_service, "bicycle") == []
    assert len((await memory_service.search_memory(**bob, query="bicycle")).memories) == 2


async def test_a_memory_is_changed_and_found_by_its_new_words(memory_service: BaseMemoryService) -> None:
    event = _event("a blue bicycle")
    await memory_service.add_events_to_memory(**_HERE, session_id="s-1", events=[event])
    plain = MemoryEntry(id="note", content=Content(parts=[Part(text="likes tea")]), author="ann")
    new_content = Content(role="user", parts=[Part(text="likes coffee")])
    try:
        await memory_service.add_memories(**_HERE, memories=[plain])
        changed = await memory_service.change_memory(**_HERE, memory_id="note", content=new_content)
    except NotOffered:
        return
    assert changed == MemoryEntry(id="note", content=new_content, author="ann")
    assert await _found(memory_service, "coffee") == ["likes coffee"]
    assert await _found(memory_service, "tea") == []

    metadata = {"checked": True}
    of_event = await memory_service.change_memory(
        **_HERE, memory_id=event.id, content=new_content, custom_metadata=metadata
    )
    assert of_event is not None
    assert (of_event.author, of_event.custom_metadata) == (event.author, metadata)
    assert await _found(memory_service, "bicycle") == []
    listed = (await memory_service.list_memories(**_HERE)).memories
    assert sorted(entry.id or "" for entry in listed) == sorted(["note", event.id])

    assert await memory_service.change_memory(**_HERE, memory_id="absent", content=new_content) is None
    of_another = await memory_service.change_memory(
        app_name=_HERE["app_name"], user_id="bob", memory_id="note", content=new_content
    )
    assert of_another is None
    with pytest.raises(InvalidRequest):
        await memory_service.change_memory(**_HERE, memory_id="note", content=Content(parts=[Part(text=" !")]))
    assert len((await memory_service.list_memories(**_HERE)).memories) == 2


async def test_memories_are_listed_in_pages(memory_service: BaseMemoryService) -> None:
    texts = [f"bicycle {number}" for number in range(5)]
    for text in texts[:2]:
        await memory_service.add_events_to_memory(**_HERE, session_id="s-1", events=[_event(text)])
    memories = [MemoryEntry(content=Content(parts=[Part(text=text)])) for text in texts[2:]]
    try:
        first = await memory_service.list_memories(**_HERE)
    except NotOffered:
        return
    assert [entry.content.text() for entry in first.memories] == texts[:2]

    await memory_service.add_memories(**_HERE, memories=memories)
    await memory_service.add_memories(**{**_HERE, "user_id": "bob"}, memories=memories)
    listed: list[str] = []
    page_token: str | None = None
    while True:
        page = await memory_service.list_memories(**_HERE, limit=2, page_token=page_token)
        assert len(page.memories) <= 2
        listed += [entry.content.text() for entry in page.memories]
        page_token = page.next_page_token
        if page_token is None:
            break
    assert listed == texts
    assert (await memory_service.list_memories(app_name="concierge", user_id="nobody")).memories == []
    with pytest.raises(InvalidRequest):
        await memory_service.list_memories(**_HERE, limit=0)
    with pytest.raises(InvalidRequest):
        await memory_service.list_memories(**_HERE, page_token="nonsense")
