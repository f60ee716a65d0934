"""Whether the stores answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Any

from greenroom.artifacts.service import BaseArtifactService
from greenroom.memory.service import BaseMemoryService
from greenroom.sessions.service import BaseSessionService

_log = logging.getLogger("greenroom.server")

TIMEOUT_SECONDS = 2.0

_APP, _USER, _NONE = "greenroom-readiness", "nobody", "none"


async def stores_not_ready(
    sessions: BaseSessionService, artifacts: BaseArtifactService, memory: BaseMemoryService
) -> list[str]:
    """Ask each store for something that isn't there, which takes it one look; names those that don't answer in time."""
    asked: dict[str, Awaitable[Any]] = {
        "sessions": sessions.get_session(app_name=_APP, user_id=_USER, session_id=_NONE),
        "artifacts": artifacts.list_versions(app_name=_APP, user_id=_USER, session_id=_NONE, filename=_NONE),
        "memory": memory.search_memory(app_name=_APP, user_id=_USER, query=_NONE, limit=1),
    }
    answers = await asyncio.gather(*(_answers(name, question) for name, question in asked.items()))
    return [name for name, is_ready in zip(asked, answers, strict=True) if not is_ready]


async def _answers(name: str, question: Awaitable[Any]) -> bool:
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await question
    except Exception as error:  # stores, also other people's, raise anything when they can't be reached
        _log.warning("the store of %s does not answer: %s: %s", name, type(error).__name__, error)
        return False
    return True
