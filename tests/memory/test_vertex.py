"""The memory bank and RAG corpora of Vertex AI, against a small server that speaks their REST interface.

What the service itself decides (the wording of facts, how words are matched, how they are ranked) is not tested.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from greenroom.errors import InvalidRequest, NotOffered, StorageError
from greenroom.memory.from_uri import memory_service_from_uri
from greenroom.memory.service import BaseMemoryService
from greenroom.memory.vertex import VertexAiMemoryBankService, VertexAiRagMemoryService
from greenroom.records.base import JsonObject
from greenroom.records.content import Blob, Content, FunctionCall, Part
from greenroom.records.event import Event
from greenroom.records.listings import MemoryEntry
from greenroom.records.session import Session
from greenroom.testing.contracts.memory_service import (
    _HERE,
    _event,
    _found,
    _remember,
    test_all_of_a_user_is_deleted,
    test_users_and_apps_are_apart,
)
from tests.google_cloud.vertex_server import Token, VertexServer, running_vertex

__all__ = ["test_all_of_a_user_is_deleted", "test_users_and_apps_are_apart"]

CORPUS = "projects/p/locations/l/ragCorpora/9"


@pytest.fixture
async def vertex() -> AsyncIterator[VertexServer]:
    async with running_vertex() as server:
        yield server


@pytest.fixture
async def bank(vertex: VertexServer) -> AsyncIterator[VertexAiMemoryBankService]:
    service = VertexAiMemoryBankService("p", "l", "7", credentials=Token(), base_url=vertex.url)
    yield service
    await service.close()


@pytest.fixture
async def rag(vertex: VertexServer) -> AsyncIterator[VertexAiRagMemoryService]:
    service = VertexAiRagMemoryService(CORPUS, 100, credentials=Token(), base_url=vertex.url)
    yield service
    await service.close()


@pytest.fixture(params=["bank", "rag"])
def memory_service(
    request: pytest.FixtureRequest, bank: VertexAiMemoryBankService, rag: VertexAiRagMemoryService
) -> BaseMemoryService:
    return bank if request.param == "bank" else rag


async def test_what_was_said_is_found_and_other_parts_do_no_harm(memory_service: BaseMemoryService) -> None:
    picture = Part(inline_data=Blob(data=b"png", mime_type="image/png"))
    await _remember(
        memory_service,
        Event(author="ann", content=Content(role="user", parts=[picture])),
        Event(author="agent", content=Content(parts=[Part(function_call=FunctionCall(name="bicycle"))])),
        _event("My bicycle\u2028is blue"),
        _event("The weather is fine"),
    )
    assert await _found(memory_service, "which colour has my bicycle?") == ["My bicycle\u2028is blue"]
    for query in ("", " \n"):
        assert await _found(memory_service, query) == []


async def test_events_added_twice_are_found_once(memory_service: BaseMemoryService) -> None:
    events = [_event("first note"), _event("second note")]
    for _ in range(2):
        await memory_service.add_events_to_memory(**_HERE, session_id="s-7", events=events)
    assert sorted(await _found(memory_service, "note")) == ["first note", "second note"]
    assert len(await _found(memory_service, "note", limit=1)) == 1


async def test_nothing_is_sent_for_a_session_without_text(
    memory_service: BaseMemoryService, vertex: VertexServer
) -> None:
    await _remember(memory_service, Event(author="ann"))
    assert [call for call in vertex.calls if call.startswith("POST")] == []


async def test_an_entry_keeps_author_and_metadata_in_the_bank(bank: VertexAiMemoryBankService) -> None:
    metadata: JsonObject = {"source": "survey", "sure": True, "score": 0.5, "tags": ["a"]}
    content = Content(role="user", parts=[Part(text="prefers tea")])
    await bank.add_memories(**_HERE, memories=[MemoryEntry(content=content, author="ann", custom_metadata=metadata)])
    (entry,) = (await bank.search_memory(**_HERE, query="tea")).memories
    assert (entry.content, entry.author) == (content, "ann")
    assert entry.custom_metadata == {**metadata, "tags": '["a"]'}
    assert entry.timestamp is not None
    bob: JsonObject = {**_HERE, "user_id": "bob"}
    for owner, memory_id in ((bob, entry.id), (_HERE, "../x"), (_HERE, "99"), (_HERE, None)):
        await bank.delete_memory(**owner, memory_id=memory_id)
    assert await _found(bank, "tea") == ["prefers tea"]
    await bank.delete_memory(**_HERE, memory_id=entry.id)
    assert await _found(bank, "tea") == []


async def test_adding_a_session_again_replaces_its_file(rag: VertexAiRagMemoryService, vertex: VertexServer) -> None:
    kept = _event("the kept note")
    await _remember(rag, kept, _event("the dropped note"))
    await rag.add_events_to_memory(**_HERE, session_id="s-7", events=[_event("an added note")])
    await _remember(rag, _event("another session's note"), session_id="s-7x")
    await _remember(rag, kept, _event("the new note"))
    assert sorted(await _found(rag, "note")) == ["another session's note", "the kept note", "the new note"]
    assert sorted(name for name, _ in vertex.rag_files.values()) == ["concierge.ann.s-7", "concierge.ann.s-7x"]
    with pytest.raises(NotOffered):
        await rag.delete_memory(**_HERE, memory_id="x")


async def test_names_with_dots_are_no_other_users(rag: VertexAiRagMemoryService) -> None:
    for app, user in (("a.b", "c"), ("a", "b.c"), ("a", "b")):
        await rag.add_session_to_memory(
            Session(app_name=app, user_id=user, id="c.d", events=[_event(f"note of {user}")])  # pyright: ignore[reportArgumentType]
        )
    for app, user in (("a.b", "c"), ("a", "b.c"), ("a", "b")):
        found = await rag.search_memory(app_name=app, user_id=user, query="note")
        assert [one.content.text() for one in found.memories] == [f"note of {user}"]
    await rag.delete_user(app_name="a", user_id="b")
    for app, user, left in (("a.b", "c", 1), ("a", "b.c", 1), ("a", "b", 0)):
        assert len((await rag.search_memory(app_name=app, user_id=user, query="note")).memories) == left


async def test_lines_of_adk_and_pieces_of_lines_are_read(rag: VertexAiRagMemoryService, vertex: VertexServer) -> None:
    line = '{"author": "agent", "timestamp": 1767268800.5, "text": "a note"}'
    vertex.rag_files[f"{CORPUS}/1"] = "concierge.ann.s-1", line
    (entry,) = (await rag.search_memory(**_HERE, query="note")).memories
    assert (entry.content.text(), entry.author, entry.timestamp) == (
        "a note",
        "agent",
        "2026-01-01T12:00:00.500000+00:00",
    )


async def test_a_failing_service_is_a_storage_error(memory_service: BaseMemoryService, vertex: VertexServer) -> None:
    for verb in ("generate", "upload", "retrieve", "retrieveContexts"):
        vertex.failures[verb] = ["UNAVAILABLE"]
    with pytest.raises(StorageError):
        await _remember(memory_service, _event("a note"))
    with pytest.raises(StorageError):
        await memory_service.search_memory(**_HERE, query="note")


async def test_uris_and_constructors_name_the_resource(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "p")
    monkeypatch.setenv("GOOGLE_CLOUD_LOCATION", "l")
    bank = memory_service_from_uri("agentengine://7")
    assert isinstance(bank, VertexAiMemoryBankService)
    assert bank._memories() == "projects/p/locations/l/reasoningEngines/7/memories"
    for uri in ("rag://9", f"rag://{CORPUS}"):
        rag = memory_service_from_uri(uri)
        assert isinstance(rag, VertexAiRagMemoryService)
        assert rag._corpus() == CORPUS
    for wrong in (None, ""):
        with pytest.raises(InvalidRequest):
            VertexAiMemoryBankService("p", "l", wrong)
