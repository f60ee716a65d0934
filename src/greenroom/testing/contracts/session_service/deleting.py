"""A session is deleted, with its log."""

from __future__ import annotations

import pytest

from greenroom.errors import SessionNotFound
from greenroom.sessions.service import BaseSessionService
from greenroom.testing.contracts.session_service.given import OWNER as _OWNER
from greenroom.testing.contracts.session_service.given import an_event as _event
from greenroom.testing.contracts.session_service.given import appended as _appended
from greenroom.testing.contracts.session_service.given import loaded as _loaded
from greenroom.testing.contracts.session_service.given import opened as _opened


async def test_deleting_removes_the_session_and_its_log(session_service: BaseSessionService) -> None:
    session = await _opened(session_service, state={"mood": "good", "user:name": "Ann", "app:motto": "be kind"})
    await _opened(session_service, "s-2")
    await session_service.append(session, _event())
    await session_service.delete_session(**_OWNER, session_id="s-1")
    assert await session_service.get_session(**_OWNER, session_id="s-1") is None
    assert [one.id for one in (await session_service.list_sessions(**_OWNER)).sessions] == ["s-2"]
    with pytest.raises(SessionNotFound):
        await session_service.list_events(**_OWNER, session_id="s-1")
    again = await _opened(session_service)
    assert again.state == {"user:name": "Ann", "app:motto": "be kind"}
    assert list((await _loaded(session_service)).events) == []
    assert await _appended(session_service, again, _event()) == [1]


async def test_deleting_what_is_not_there_does_nothing(session_service: BaseSessionService) -> None:
    await _opened(session_service)
    await session_service.delete_session(**_OWNER, session_id="nope")
    await session_service.delete_session(app_name="porter", user_id="ann", session_id="s-1")
    assert (await _loaded(session_service)).id == "s-1"


async def test_appending_to_a_deleted_session_is_refused(session_service: BaseSessionService) -> None:
    session = await _opened(session_service)
    await session_service.append(session, _event())
    await session_service.delete_session(**_OWNER, session_id="s-1")
    event = _event(delta={"mood": "good", "app:motto": "x", "temp:a": 1})
    with pytest.raises(SessionNotFound) as caught:
        await session_service.append(session, event)
    assert caught.value.session_id == "s-1"
    assert (len(session.events), session.state) == (1, {})
    assert event.actions.state_delta == {"mood": "good", "app:motto": "x", "temp:a": 1}
    assert (await _opened(session_service)).state == {}
