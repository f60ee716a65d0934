"""The caller of the request that the current task handles, for entries that lower layers make."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any

from greenroom.records.run import Caller


class Acting:
    """A request's caller. Tasks that a request starts are not the request: they may outlive it, and serve others."""

    def __init__(self, http_request_id: str | None = None) -> None:
        self.subject: str | None = None
        self.key_id: str | None = None
        self.http_request_id = http_request_id
        self._task = asyncio.current_task()

    @property
    def is_current(self) -> bool:
        return asyncio.current_task() is self._task

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of an entry that name the caller."""
        return {"subject": self.subject, "key_id": self.key_id, "http_request_id": self.http_request_id}


CURRENT: ContextVar[Acting | None] = ContextVar("greenroom_acting", default=None)


def caller_fields(caller: Caller | None) -> dict[str, Any]:
    """The fields of an entry that name who acts: the current request's caller, else the given one."""
    acting = CURRENT.get()
    if acting is not None and acting.is_current:
        return acting.fields
    if caller is None:
        return {}
    return {"subject": caller.user_id, "key_id": caller.key_id}
