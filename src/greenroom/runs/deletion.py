"""Deletion of sessions and users with all that belongs to them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from greenroom.artifacts.service import USER_NAMESPACE, BaseArtifactService
from greenroom.credentials.service import BaseCredentialService
from greenroom.errors import OwnershipLost
from greenroom.event_streams.in_process import InProcessEventStream
from greenroom.memory.service import BaseMemoryService
from greenroom.records.run import Run, RunFilter, RunStatus
from greenroom.records.session import GetSessionConfig, SessionKey
from greenroom.runs.memory_writer import MemoryWriter
from greenroom.runs.queues import SessionQueues
from greenroom.runs.schedules import Schedules
from greenroom.runs.store import RunStore
from greenroom.sessions.service import BaseSessionService

PAGE = 100
"""Number of sessions, or of records of runs, that are read at once."""


class CancelRun(Protocol):
    """`RunEngine.cancel`."""

    async def __call__(self, run_id: str, *, reason: str) -> Run: ...


@dataclass(kw_only=True, eq=False)
class Deletion:
    """Deletes from all stores of one engine.

    wait_until_ready: returns when this process owns the session. Raises OwnershipLost.
    """

    run_store: RunStore
    session_service: BaseSessionService
    artifact_service: BaseArtifactService | None
    memory_service: BaseMemoryService | None
    credential_service: BaseCredentialService
    schedules: Schedules
    memory_writer: MemoryWriter
    queues: SessionQueues
    stream: InProcessEventStream
    lock: Callable[[SessionKey], asyncio.Lock]
    wait_until_ready: Callable[[SessionKey], Awaitable[None]]
    cancel: CancelRun

    async def delete_session(self, key: SessionKey) -> None:
        """See `RunEngine.delete_session`."""
        await self.wait_until_ready(key)
        for run_id in {task.run.id for task in self.queues.of_session(key)}:
            await self.cancel(run_id, reason="its session was deleted")

        async with self.lock(key):
            await self._delete(key)

    async def delete_expired(self, key: SessionKey, *, before: float, keeps: Sequence[RunStatus]) -> bool:
        """Deletes a session unless it was updated since `before`, or has runs of these statuses; then returns False.

        Raises OwnershipLost.
        """
        await self.wait_until_ready(key)
        async with self.lock(key):
            if self.queues.of_session(key):
                return False

            config = GetSessionConfig(num_recent_events=0)
            session = await self.session_service.get_session(**key._asdict(), config=config)
            if session is None or session.last_update_time >= before:
                return False

            kept = RunFilter(
                app_names=[key.app_name], user_id=key.user_id, session_id=key.session_id, statuses=list(keeps)
            )
            if (await self.run_store.list_runs(kept, limit=1)).runs:
                return False

            await self._delete(key)
        return True

    async def _delete(self, key: SessionKey) -> None:
        """Deletes a session without active runs, whose lock is held."""
        key_fields = key._asdict()
        await self.memory_writer.cancel(key)
        artifacts = self.artifact_service
        if artifacts is not None:
            for name in await artifacts.list_artifact_keys(**key_fields):
                if not name.startswith(USER_NAMESPACE):
                    await artifacts.delete_artifact(**key_fields, filename=name)
        await self.credential_service.delete_requests(**key_fields)
        await self.session_service.delete_session(**key_fields)
        await self.run_store.delete_session(**key_fields)
        self.stream.end(key)

    async def delete_user(self, *, app_name: str, user_id: str) -> AsyncGenerator[SessionKey]:
        """See `RunEngine.delete_user`."""
        await self.schedules.delete_user(app_name=app_name, user_id=user_id)  # no run starts any more
        elsewhere: SessionKey | None = None
        async for keys in self._pages_of_user(app_name, user_id):
            for key in keys:
                if self.is_elsewhere(key):
                    elsewhere = key
                    continue
                try:
                    await self.delete_session(key)
                except OwnershipLost:
                    elsewhere = key
                else:
                    yield key
        if elsewhere is not None:
            raise OwnershipLost(*elsewhere)

        for store in (self.memory_service, self.artifact_service, self.credential_service, self.session_service):
            if store is not None:
                await store.delete_user(app_name=app_name, user_id=user_id)
        await self.session_service.usage.forget_user(app_name=app_name, user_id=user_id)
        await self.run_store.statistics.delete_user(app_name, user_id)
        await self.run_store.feedback.delete_subject(app_name=app_name, subject=user_id)

    async def _pages_of_user(self, app_name: str, user_id: str) -> AsyncGenerator[Collection[SessionKey]]:
        """The keys of a user's sessions, and then of sessions that only have records of runs, in pages."""
        page_token: str | None = None
        while True:
            listed = await self.session_service.list_sessions(
                app_name=app_name, user_id=user_id, limit=PAGE, page_token=page_token
            )
            yield [session.key for session in listed.sessions]
            page_token = listed.next_page_token
            if page_token is None:
                break

        of_user = RunFilter(app_names=[app_name], user_id=user_id)
        while True:
            runs = await self.run_store.list_runs(of_user, limit=PAGE, page_token=page_token)
            yield {run.session_key for run in runs.runs}
            page_token = runs.next_page_token
            if page_token is None:
                return

    def is_elsewhere(self, key: SessionKey) -> bool:
        """True for a session that another server runs."""
        ownership = self.run_store.ownership
        return ownership is not None and not ownership.owns(key)
