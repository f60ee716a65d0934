"""Readiness of the server: whether it takes requests, and its stores answer."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any
from uuid import uuid4

from greenroom.artifacts.service import BaseArtifactService
from greenroom.memory.service import BaseMemoryService
from greenroom.records.content import Part
from greenroom.sessions.service import BaseSessionService

_log = logging.getLogger("greenroom.server")

_APP = "greenroom-readiness"
_USER = "nobody"
_NONE = "none"


@dataclass(slots=True)
class Readiness:
    """Checks the stores: writes to those of sessions and artifacts, and searches the memory store.

    Those of artifacts and memory count until they have answered once, so that a server with wrong settings does not
    become ready. Later only the session store counts, which every request needs: servers share the other stores, and
    an outage of one would take all servers out of rotation. Anybody may ask, so all requests within `cache_seconds`
    share one check.
    """

    sessions: BaseSessionService
    artifacts: BaseArtifactService
    memory: BaseMemoryService
    _: KW_ONLY
    timeout_seconds: float = 2.0
    cache_seconds: float = 1.0
    is_draining: bool = False
    """True from the stop signal on: load balancers shall send no more requests."""

    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _failing: list[str] = field(default_factory=list[str], init=False)
    _check_at: float = field(default=0.0, init=False)
    _have_answered: set[str] = field(default_factory=set[str], init=False)

    async def failing_stores(self) -> list[str]:
        """Names of the stores that fail or time out, of those that count."""
        async with self._lock:
            if time.monotonic() >= self._check_at:
                checks = {"sessions": self._write_session}
                if "artifacts" not in self._have_answered:
                    checks["artifacts"] = self._write_artifact
                if "memory" not in self._have_answered:
                    checks["memory"] = self._search

                answers = await asyncio.gather(*(self._answers(name, check) for name, check in checks.items()))
                self._failing = [name for name, is_ready in zip(checks, answers, strict=True) if not is_ready]
                self._have_answered.update(checks.keys() - self._failing)
                self._check_at = time.monotonic() + self.cache_seconds
            return self._failing

    async def _answers(self, name: str, check: Callable[[], Awaitable[None]]) -> bool:
        try:
            async with asyncio.timeout(self.timeout_seconds):
                await check()
        except Exception as error:  # stores, also third-party ones, raise any error when they are unavailable
            _log.warning("the store of %s does not answer: %s: %s", name, type(error).__name__, error)
            return False
        return True

    async def _write_session(self) -> None:
        session = await self.sessions.create_session(app_name=_APP, user_id=_USER)
        await self.sessions.delete_session(app_name=_APP, user_id=_USER, session_id=session.id)

    async def _write_artifact(self) -> None:
        key: dict[str, Any] = {"app_name": _APP, "user_id": _USER, "session_id": uuid4().hex, "filename": _NONE}
        await self.artifacts.save_artifact(**key, artifact=Part(text="1"))
        await self.artifacts.delete_artifact(**key)

    async def _search(self) -> None:
        await self.memory.search_memory(app_name=_APP, user_id=_USER, query=_NONE)
