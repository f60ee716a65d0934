"""Sessions in this process keep the contract."""

from __future__ import annotations

import pytest

from greenroom.sessions.in_memory import InMemorySessionService
from greenroom.testing.contracts.session_service import *  # noqa: F403


@pytest.fixture
def session_service() -> InMemorySessionService:
    return InMemorySessionService()
