"""Deletion of sessions that have not been updated for longer than their app keeps sessions."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from greenroom.apps.loader import AppLoader
from greenroom.errors import GreenroomError, OwnershipLost
from greenroom.records.audit import new_entry
from greenroom.records.retention import ExpiredSession, RetentionPreview
from greenroom.records.run import RunFilter, RunStatus
from greenroom.records.session import Session, SessionFilter, SessionKey
from greenroom.runs.deletion import PAGE, Deletion
from greenroom.runs.store import RunStore
from greenroom.sessions.service import BaseSessionService

_log = logging.getLogger("greenroom.runs")

SHOWN = 100
"""Sessions that a preview names."""

_UNFINISHED = (RunStatus.QUEUED, RunStatus.RUNNING)


@dataclass(frozen=True)
class Retention:
    """The time for which an app keeps sessions, and the runs that keep them longer."""

    ttl_seconds: float
    keeps: Sequence[RunStatus]
    """Statuses of runs whose sessions are kept."""


@dataclass(kw_only=True, eq=False)
class Expiry:
    """Deletes the expired sessions that this process owns, page by page.

    default_ttl_seconds: of apps that set none; None: never.
    """

    apps: AppLoader
    run_store: RunStore
    session_service: BaseSessionService
    deletion: Deletion
    default_ttl_seconds: float | None
    is_audited: bool

    async def delete_expired(self) -> AsyncGenerator[SessionKey]:
        """See `RunEngine.delete_expired_sessions`."""
        for app_name in await self.apps.list_apps_async():
            try:
                retention = await self._retention_of(app_name)
            except GreenroomError:
                continue  # requests to the app report it
            if retention is None:
                continue

            deleted = kept = 0
            before = time.time() - retention.ttl_seconds
            async for session in self._expired(app_name, before):
                if self.deletion.is_elsewhere(session.key):
                    continue  # the server that runs it deletes it
                try:
                    is_deleted = await self.deletion.delete_expired(session.key, before=before, keeps=retention.keeps)
                except OwnershipLost:
                    continue
                if not is_deleted:
                    kept += 1
                    continue
                deleted += 1
                if self.is_audited:
                    await self.run_store.audit.append([new_entry("session.expired", **session.key._asdict())])
                yield session.key

            if deleted:
                _log.info("app %r: deleted %d expired sessions, kept %d with unfinished runs", app_name, deleted, kept)

    async def preview(self, app_name: str) -> RetentionPreview:
        """See `RunEngine.preview_expiry`."""
        retention = await self._retention_of(app_name)
        preview = RetentionPreview(app_name=app_name, session_ttl_seconds=None, expired=0, kept=0)
        if retention is None:
            return preview

        preview.session_ttl_seconds = retention.ttl_seconds
        busy = await self._busy_sessions(app_name, retention)
        async for session in self._expired(app_name, time.time() - retention.ttl_seconds):
            is_kept = session.key in busy
            preview.kept += is_kept
            preview.expired += not is_kept
            if len(preview.sessions) < SHOWN:
                preview.sessions.append(
                    ExpiredSession(
                        user_id=session.user_id,
                        session_id=session.id,
                        last_update_time=session.last_update_time,
                        is_kept=is_kept,
                    )
                )
        return preview

    async def _retention_of(self, app_name: str) -> Retention | None:
        """None if the app keeps its sessions for ever. Raises AppNotFound, AppLoadError."""
        app = await self.apps.load_async(app_name)
        ttl_seconds = self.default_ttl_seconds if app.session_ttl_seconds is None else app.session_ttl_seconds
        if ttl_seconds is None or math.isinf(ttl_seconds):
            return None
        return Retention(ttl_seconds, _UNFINISHED if app.expires_waiting_runs else (*_UNFINISHED, RunStatus.WAITING))

    async def _expired(self, app_name: str, before: float) -> AsyncGenerator[Session]:
        page_token: str | None = None
        while True:
            page = await self.session_service.list_sessions(
                app_name=app_name, where=SessionFilter(updated_before=before), limit=PAGE, page_token=page_token
            )
            for session in page.sessions:
                yield session
            page_token = page.next_page_token
            if page_token is None:
                return

    async def _busy_sessions(self, app_name: str, retention: Retention) -> set[SessionKey]:
        """The sessions with runs whose status keeps them."""
        busy: set[SessionKey] = set()
        page_token: str | None = None
        while True:
            where = RunFilter(app_names=[app_name], statuses=list(retention.keeps))
            page = await self.run_store.list_runs(where, limit=PAGE, page_token=page_token)
            busy |= {run.session_key for run in page.runs}
            page_token = page.next_page_token
            if page_token is None:
                return busy
