"""Which stores of runs and of credentials go with a session store."""

from __future__ import annotations

from greenroom.credentials.in_memory import InMemoryCredentialService
from greenroom.credentials.service import BaseCredentialService
from greenroom.runs.memory_store import InMemoryRunStore
from greenroom.runs.store import RunStore
from greenroom.sessions.service import BaseSessionService


def run_store_beside(sessions: BaseSessionService) -> RunStore:
    """In the same database where there is one, so that a run and its events are written together."""
    from greenroom.sessions.sqlite import SqliteSessionService

    if isinstance(sessions, SqliteSessionService):
        from greenroom.runs.sqlite_store import SqliteRunStore

        return SqliteRunStore(sessions.path)
    return InMemoryRunStore()


def credential_service_beside(sessions: BaseSessionService) -> BaseCredentialService:
    """In the same database where there is one, so that what was asked for is known after a restart."""
    from greenroom.sessions.sqlite import SqliteSessionService

    if isinstance(sessions, SqliteSessionService):
        from greenroom.credentials.sqlite import SqliteCredentialService

        return SqliteCredentialService(sessions.path)
    return InMemoryCredentialService()
