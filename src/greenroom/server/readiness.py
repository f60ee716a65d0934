"""Whether the stores answer, and can be written to."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Any
from uuid import uuid4

from greenroom.artifacts.service import BaseArtifactService
from greenroom.memory.service import BaseMemoryService
from greenroom.records.content import Part
from greenroom.sessions.service import BaseSessionService

_log = logging.getLogger("greenroom.server")

TIMEOUT_SECONDS = 2.0

_APP, _USER, _NONE = "greenroom-readiness", "nobody", "none"


async def stores_not_ready(
    sessions: BaseSessionService, artifacts: BaseArtifactService, memory: BaseMemoryService
) -> list[str]:
    """Writes to the stores of sessions and artifacts, and searches that of memory.

    Returns the names of those that fail, or don't answer in time.
    """
    asked: dict[str, Awaitable[Any]] = {
        "sessions": _write_session(sessions),
        "artifacts": _write_artifact(artifacts),
        "memory": memory.search_memory(app_name=_APP, user_id=_USER, query=_NONE, limit=1),
    }
    answers = await asyncio.gather(*(_answers(name, question) for name, question in asked.items()))
    return [name for name, is_ready in zip(asked, answers, strict=True) if not is_ready]


async def _write_session(sessions: BaseSessionService) -> None:
    session = await sessions.create_session(app_name=_APP, user_id=_USER)
    await sessions.delete_session(app_name=_APP, user_id=_USER, session_id=session.id)


async def _write_artifact(artifacts: BaseArtifactService) -> None:
    session_id = uuid4().hex
    await artifacts.save_artifact(
        app_name=_APP, user_id=_USER, session_id=session_id, filename=_NONE, artifact=Part(text=_APP)
    )
    await artifacts.delete_artifact(app_name=_APP, user_id=_USER, session_id=session_id, filename=_NONE)


async def _answers(name: str, question: Awaitable[Any]) -> bool:
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await question
    except Exception as error:  # stores, also other people's, raise anything when they can't be reached
        _log.warning("the store of %s does not answer: %s: %s", name, type(error).__name__, error)
        return False
    return True
