"""Sessions on Vertex AI, against a small server that speaks its REST interface."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.workflows import SequentialAgent
from greenroom.errors import InvalidRequest, NotOffered, SessionExists, StorageError
from greenroom.google_cloud.vertex import VertexClient
from greenroom.records.state import REMOVED
from greenroom.sessions.from_uri import session_service_from_uri
from greenroom.sessions.service import BaseSessionService
from greenroom.sessions.vertex import VertexAiSessionService
from greenroom.testing.contracts.session_service import *  # noqa: F403
from greenroom.testing.contracts.session_service.creating import _ODD_IDS, _OWNER, _event, _ids, _loaded, _opened
from greenroom.testing.scripted_model import ScriptedModel
from tests.agents.talk import Talk, call
from tests.google_cloud.vertex_server import Token, VertexServer, running_vertex


@pytest.fixture
async def vertex() -> AsyncIterator[VertexServer]:
    async with running_vertex() as server:
        yield server


@pytest.fixture
async def session_service(vertex: VertexServer) -> AsyncIterator[VertexAiSessionService]:
    service = service_at(vertex)
    yield service
    await service.close()


def service_at(vertex: VertexServer, **options: Any) -> VertexAiSessionService:
    options = {"agent_engine_id": lambda app: str(zlib.crc32(app.encode())), "credentials": Token(), **options}
    return VertexAiSessionService("p", "l", base_url=vertex.url, **options)


@pytest.mark.parametrize("session_id", _ODD_IDS, ids=range(len(_ODD_IDS)))
async def test_ids_may_hold_any_characters(session_service: BaseSessionService, session_id: str) -> None:
    """In place of the contract's test: names of users may, ids of sessions must be fit for a resource's name."""
    session = await session_service.create_session(app_name="concierge", user_id=session_id, session_id="s-1")
    (listed,) = (await session_service.list_sessions(app_name="concierge", user_id=session_id)).sessions
    assert (session.user_id, listed.user_id) == (session_id, session_id)
    with pytest.raises(InvalidRequest):
        await _opened(session_service, session_id)
    assert await session_service.get_session(**_OWNER, session_id=session_id) is None
    await session_service.delete_session(**_OWNER, session_id=session_id)


async def test_a_null_is_a_value(session_service: BaseSessionService) -> None:
    """In place of the contract's test: the service removes keys whose new value is null."""
    session = await _opened(session_service, state={"a": 1, "b": 1})
    await session_service.append(session, _event(delta={"a": None}))
    assert session.state == {"a": None, "b": 1}
    await asyncio.sleep(0.06)  # for so long a loaded session counts as current
    found = await session_service.list_sessions(**_OWNER)
    assert found.sessions[0].state == {"b": 1}


async def test_users_and_apps_have_their_own_sessions(session_service: BaseSessionService) -> None:
    """In place of the contract's test: an id is unique in an engine, for all its users."""
    await _opened(session_service, state={"mood": "good", "user:a": 1})
    with pytest.raises(SessionExists):
        await session_service.create_session(app_name="concierge", user_id="bob", session_id="s-1")
    for app, user in (("concierge", "bob"), ("porter", "ann")):
        session = await session_service.create_session(app_name=app, user_id=user, session_id="s-2")
        assert session.state == {}
    assert (await _loaded(session_service)).state == {"mood": "good", "user:a": 1}
    assert await session_service.get_session(app_name="porter", user_id="ann", session_id="s-1") is None


async def test_another_users_session_is_neither_shown_nor_deleted(session_service: BaseSessionService) -> None:
    await _opened(session_service)
    assert await session_service.get_session(app_name="concierge", user_id="bob", session_id="s-1") is None
    await session_service.delete_session(app_name="concierge", user_id="bob", session_id="s-1")
    assert (await _loaded(session_service)).id == "s-1"


async def test_an_append_is_one_request_and_a_load_lists_new_events_only(
    session_service: BaseSessionService, vertex: VertexServer
) -> None:
    session = await _opened(session_service)
    for number in range(250):
        vertex.calls.clear()
        await session_service.append(session, _event(str(number), at=1000.0 * number))
    assert [call.rpartition("/")[2] for call in vertex.calls] == ["s-1:appendEvent"]
    await asyncio.sleep(0.06)  # for so long a loaded session counts as current
    vertex.calls.clear()
    assert len((await _loaded(session_service)).events) == 250
    assert [call.rpartition("/")[2] for call in vertex.calls] == ["s-1", "events"]


async def test_what_others_wrote_is_read_and_continued(vertex: VertexServer) -> None:
    """Two processes, and an event of a writer that sends no `rawEvent`."""
    ours = service_at(vertex)
    theirs = service_at(vertex)
    session = await _opened(ours)
    await ours.append(session, _event("one", at=1.0, delta={"a": 1, "user:b": 1}))
    other = await _loaded(theirs)
    await theirs.append(other, _event("two", at=2.0, delta={"a": REMOVED, "user:b": 2}))
    body = {
        "author": "concierge",
        "invocationId": "e-1",
        "timestamp": "1970-01-01T00:00:03.250000Z",
        "content": {"role": "model", "parts": [{"inlineData": {"mimeType": "image/png", "data": "AAEC"}}]},
        "actions": {"transferAgent": "porter", "stateDelta": {"c": 3}},
        "eventMetadata": {"longRunningToolIds": ["c-1"], "branch": "a.b"},
    }
    client = VertexClient("p", "l", credentials=Token(), base_url=vertex.url)
    await client.call("POST", f"{theirs.engine('concierge')}/sessions/s-1:appendEvent", body)
    await client.close()
    await asyncio.sleep(0.06)
    again = await _loaded(ours)
    assert again.state == {"user:b": 2, "c": 3}
    assert _ids(again)[:2] == _ids(other)
    last = again.events[2]
    assert (last.author, last.timestamp, last.branch, last.long_running_tool_ids) == ("concierge", 3.25, "a.b", ["c-1"])
    assert last.actions.transfer_to_agent == "porter"
    assert last.content is not None
    assert last.content.parts is not None
    assert last.content.parts[0].inline_data is not None
    assert last.content.parts[0].inline_data.data == b"\x00\x01\x02"
    [stored] = await ours.append(again, _event("four"))
    assert stored.seq == 4
    await ours.close()
    await theirs.close()


async def test_an_append_of_unclear_outcome_is_stored_once(
    session_service: BaseSessionService, vertex: VertexServer
) -> None:
    session = await _opened(session_service)
    event = _event("one", delta={"a": 1, "temp:b": 2})
    for failure, stored in (("UNAVAILABLE", 0), ("+UNAVAILABLE", 1)):
        vertex.failures["appendEvent"] = [failure]
        with pytest.raises(StorageError):
            await session_service.append(session, event)
        assert event.actions.state_delta == {"a": 1, "temp:b": 2}
        assert [len(one.events) for one in vertex.sessions.values()] == [stored]
    assert [one.seq for one in await session_service.append(session, event)] == [1]
    assert len((await _loaded(session_service)).events) == 1


async def test_refused_for_now_and_an_expired_token_are_retried(vertex: VertexServer) -> None:
    service = service_at(vertex, credentials=Token("old"))
    vertex.failures["appendEvent"] = ["RESOURCE_EXHAUSTED"]
    vertex.tokens = ["t-2"]
    session = await _opened(service)
    vertex.failures["GET"] = ["UNAVAILABLE"]
    assert [one.seq for one in await service.append(session, _event())] == [1]
    await asyncio.sleep(0.06)
    assert len((await _loaded(service)).events) == 1
    await service.close()


async def test_all_of_a_failing_service_is_a_storage_error(vertex: VertexServer) -> None:
    service = service_at(vertex)
    vertex.failures["GET"] = ["UNAVAILABLE"] * 9
    with pytest.raises(StorageError):
        await service.list_sessions(app_name="concierge")
    await service.close()


async def test_several_events_are_not_offered(session_service: BaseSessionService) -> None:
    session = await _opened(session_service)
    with pytest.raises(NotOffered):
        await session_service.append(session, _event("one"), _event("two"))
    assert (len(session.events), len((await _loaded(session_service)).events)) == (0, 0)
    with pytest.raises(NotOffered):
        await session_service.list_apps()


async def test_a_run_with_a_tool_and_a_checkpoint_is_stored_event_by_event(
    session_service: VertexAiSessionService, vertex: VertexServer
) -> None:
    def look(city: str) -> str:
        return f"rain in {city}"

    model = ScriptedModel([call("look", city="Oslo"), "It rains."])
    agent = LlmAgent(name="concierge", model=model, tools=[look], output_key="said")
    talk = Talk(SequentialAgent(name="steps", sub_agents=[agent]))
    talk.runner.session_service = session_service
    events = [event for event in await talk.say("weather?") if not event.partial]
    (session,) = vertex.sessions.values()
    assert [one["rawEvent"]["id"] for one in session.events[1:]] == [event.id for event in events]
    assert session.state == {"said": "It rains."}


@pytest.mark.parametrize("scheme", ["agentengine", "vertexai"])
async def test_uris_name_an_engine(vertex: VertexServer, monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    for uri in (f"{scheme}://projects/p/locations/l/reasoningEngines/7", f"{scheme}://7"):
        service = session_service_from_uri(uri)
        assert isinstance(service, VertexAiSessionService)
        monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "p")
        monkeypatch.setenv("GOOGLE_CLOUD_LOCATION", "l")
        assert service.engine("any-app") == "projects/p/locations/l/reasoningEngines/7"
        await service.close()
    with pytest.raises(InvalidRequest):
        session_service_from_uri(f"{scheme}://not-a-number").engine("a")  # pyright: ignore[reportAttributeAccessIssue]
