"""Sessions in Firestore keep the contract, hot or cold."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from greenroom.errors import TooLarge
from greenroom.google_cloud.firestore import FirestoreDatabase
from greenroom.records.base import JsonObject
from greenroom.sessions.firestore import FirestoreSessionService
from greenroom.testing.contracts.session_service import *  # noqa: F403
from greenroom.testing.contracts.session_service.creating import _OWNER, _event


@pytest.fixture
async def session_service(cache_bytes: int, firestore_host: str) -> AsyncIterator[FirestoreSessionService]:
    database = FirestoreDatabase.from_uri(f"firestore://test-{uuid4().hex}/chats")
    service = FirestoreSessionService(database=database, cache_bytes=cache_bytes)
    yield service
    await service.close()


@pytest.fixture
async def database(firestore_host: str) -> AsyncIterator[FirestoreDatabase]:
    database = FirestoreDatabase.from_uri(f"firestore://test-{uuid4().hex}/chats")
    yield database
    await database.close()


async def test_what_adk_for_java_wrote_is_read_and_continued(database: FirestoreDatabase) -> None:
    reference = database.client.document("adk-session/ann/sessions/s-1")
    owner = {"appName": "concierge", "userId": "ann"}
    await reference.set({**owner, "id": "s-1", "updateTime": "2026-01-01T12:00:02.5Z", "state": {"mood": "good"}})
    call = {"functionCall": {"name": "weather", "args": {"city": "Oslo"}}}
    for number, (author, part) in enumerate([("concierge", call), ("ann", {"text": "hello"})]):
        event = {"author": author, "timestamp": f"2026-01-01T12:00:0{2 - number}Z", "content": {"parts": [part]}}
        await reference.collection("user-event").document(f"e-{number}").set({**owner, **event})
    service = FirestoreSessionService(database.client)
    session = await service.get_session(app_name="concierge", user_id="ann", session_id="s-1")
    assert session is not None
    assert (session.state, session.last_update_time) == ({"mood": "good"}, 1767268802.5)
    assert [(one.id, one.author, one.content and one.content.role) for one in session.events] == [
        ("e-1", "user", "user"),
        ("e-0", "concierge", "model"),
    ]
    assert session.events[1].get_function_calls()[0].args == {"city": "Oslo"}
    [stored] = await service.append(session, _event("next", delta={"mood": "bad"}))
    assert stored.seq == 3
    late = {"author": "ann", "timestamp": "2030-01-01T12:00:00Z", "content": {"parts": [{"text": "late"}]}}
    await reference.collection("user-event").document("e-9").set({**owner, **late})
    await reference.set({"updateTime": "2030-01-01T12:00:00Z"}, merge=True)
    again = FirestoreSessionService(database.client)
    assert (await again.seq_of_event(**_OWNER, session_id="s-1", event_id="e-9")) == 4
    await service.close()
    await again.close()


async def test_documents_are_where_adk_for_java_looks_for_them(database: FirestoreDatabase) -> None:
    service = FirestoreSessionService(database.client)
    state: JsonObject = {"a": 1, "app:b": 2, "user:c": {"d": [1]}, "__odd__": [[1]]}
    session = await service.create_session(**_OWNER, session_id="s-1", state=state)
    await service.append(session, _event("Hello, hello!", at=0.5))
    (session_document, app, user, event) = [
        (await database.client.document(path).get()).to_dict()
        for path in (
            "adk-session/ann/sessions/s-1",
            "app-state/concierge",
            "user-state/concierge/users/ann",
            "adk-session/ann/sessions/s-1/user-event/0000000001",
        )
    ]
    assert {name: session_document[name] for name in ("id", "appName", "userId", "updateTime")} == {
        "id": "s-1",
        "appName": "concierge",
        "userId": "ann",
        "updateTime": "1970-01-01T00:00:00.500000Z",
    }
    assert (session_document["state"]["a"], app, user) == (1, {"b": 2}, {"c": {"d": [1]}})
    assert (event["content"], event["keywords"]) == ({"parts": [{"text": "Hello, hello!"}]}, ["hello"])
    assert (await service.get_session(**_OWNER, session_id="s-1")).state == state  # pyright: ignore[reportOptionalMemberAccess]
    await service.close()


async def test_a_deletion_that_was_interrupted_is_completed(database: FirestoreDatabase) -> None:
    service = FirestoreSessionService(database.client)
    session = await service.create_session(**_OWNER, session_id="s-1")
    await service.append(session, _event("left"))
    await database.client.document("adk-session/ann/sessions/s-1").set({"deleting": True}, merge=True)
    other = FirestoreSessionService(database.client)
    assert await other.get_session(**_OWNER, session_id="s-1") is None
    assert (await other.list_sessions(**_OWNER)).sessions == []
    made = await other.create_session(**_OWNER, session_id="s-1")
    assert [stored.seq for stored in await other.append(made, _event("new"))] == [1]
    await service.close()
    await other.close()


async def test_an_event_larger_than_a_document_is_refused(database: FirestoreDatabase) -> None:
    service = FirestoreSessionService(database.client)
    session = await service.create_session(**_OWNER)
    with pytest.raises(TooLarge):
        await service.append(session, _event("x" * 1_000_000))
    assert len(session.events) == 0
    await service.close()
