"""Sessions in this process keep the contract."""

from __future__ import annotations

import pytest

from greenroom.sessions.in_memory import InMemorySessionService
from greenroom.testing.contracts.session_service import *  # noqa: F403


@pytest.fixture
def session_service() -> InMemorySessionService:
    return InMemorySessionService()


async def test_apps_that_have_sessions_are_listed() -> None:
    service = InMemorySessionService()
    for app in ("b", "a", "c"):
        await service.create_session(app_name=app, user_id="u", session_id="s")
    await service.delete_session(app_name="c", user_id="u", session_id="s")
    assert await service.list_apps() == ["a", "b"]
