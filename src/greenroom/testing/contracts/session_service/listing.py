"""Sessions are listed, page by page."""

from __future__ import annotations

import pytest

from greenroom.errors import InvalidRequest
from greenroom.sessions.service import BaseSessionService
from greenroom.testing.contracts.session_service.given import OWNER as _OWNER
from greenroom.testing.contracts.session_service.given import an_event as _event
from greenroom.testing.contracts.session_service.given import opened as _opened


async def test_sessions_are_listed_oldest_update_first(session_service: BaseSessionService) -> None:
    for user, session_id, at in (("bob", "b", 30.0), ("ann", "z", 20.0), ("ann", "a", 20.0), ("cy", "c", 10.0)):
        session = await session_service.create_session(
            app_name="concierge", user_id=user, session_id=session_id, state={"user:name": user, "own": session_id}
        )
        await session_service.append(session, _event(at=at, delta={"app:last": user}))
    every = await session_service.list_sessions(app_name="concierge")
    assert [(one.user_id, one.id) for one in every.sessions] == [("cy", "c"), ("ann", "a"), ("ann", "z"), ("bob", "b")]
    assert every.next_page_token is None
    assert [list(one.events) for one in every.sessions] == [[], [], [], []]
    assert every.sessions[1].state == {"user:name": "ann", "own": "a", "app:last": "cy"}
    ann = await session_service.list_sessions(**_OWNER)
    assert [one.id for one in ann.sessions] == ["a", "z"]
    assert (await session_service.list_sessions(app_name="porter")).sessions == []


@pytest.mark.parametrize("user_id", [None, "ann"])
@pytest.mark.parametrize("limit", [1, 3, 7, 8])
async def test_pages_hold_every_session_once(
    session_service: BaseSessionService, user_id: str | None, limit: int
) -> None:
    for number in range(7):
        session = await _opened(session_service, f"s-{number}")
        await session_service.append(session, _event(at=float(number // 2)))
    seen: list[str] = []
    token: str | None = None
    for _ in range(10):
        page = await session_service.list_sessions(app_name="concierge", user_id=user_id, limit=limit, page_token=token)
        assert len(page.sessions) <= limit
        seen += [session.id for session in page.sessions]
        token = page.next_page_token
        if token is None:
            break
    assert seen == [f"s-{number}" for number in range(7)]


async def test_a_page_token_that_is_not_ours_is_refused(session_service: BaseSessionService) -> None:
    for token in ("nonsense", "\u00e9", "W10"):
        with pytest.raises(InvalidRequest):
            await session_service.list_sessions(**_OWNER, page_token=token)
