"""Schedules, limited to the caller's permissions."""

from __future__ import annotations

import msgspec

from greenroom.errors import Forbidden, ScheduleNotFound
from greenroom.records.audit import AuditAction
from greenroom.records.run import Run
from greenroom.records.schedule import ListScheduleRunsResponse, ListSchedulesResponse, Schedule, ScheduleTimes
from greenroom.runs.schedules import Schedules
from greenroom.server.access.authorization.authorized import Authorized


class AuthorizedSchedules(Authorized[Schedules]):
    """`Schedules` for one caller: those of users that it may not act for are reported as not found.

    The runs of a schedule have the permissions of the caller who stored it last.
    """

    __slots__ = ()

    async def create(self, schedule: Schedule, *, app_name: str) -> Schedule:
        self._check_run(app_name, schedule)
        caller = self._permissions.identity.caller
        created = await self._watched_result(self._service.create(schedule, app_name=app_name, caller=caller))
        await self._record("schedule.created", created)
        return created

    def next_times(self, schedule: Schedule, *, app_name: str, limit: int) -> ScheduleTimes:
        """Raises Forbidden, InvalidRequest."""
        self._permissions.check("read", app_name, schedule.user_id)
        return self._service.next_times(schedule, limit=limit)

    async def get(self, app_name: str, schedule_id: str) -> Schedule:
        """Raises Forbidden, ScheduleNotFound."""
        self._permissions.identity.check_app(app_name)
        schedule = await self._service.get(app_name, schedule_id)
        try:
            self._permissions.check("read", app_name, schedule.user_id)
        except Forbidden:
            raise ScheduleNotFound(app_name, schedule_id) from None
        return schedule

    async def list(
        self, *, app_name: str, user_id: str | None, limit: int, page_token: str | None
    ) -> ListSchedulesResponse:
        """Schedules that the caller may see. Raises Forbidden, InvalidRequest."""
        identity = self._permissions.identity
        if user_id is None and not identity.acts_for(app_name, None):
            user_id = identity.subject
        self._permissions.check("read", app_name, user_id)
        return await self._service.list(app_name=app_name, user_id=user_id, limit=limit, page_token=page_token)

    async def replace(self, schedule: Schedule, *, app_name: str, schedule_id: str) -> Schedule:
        """Raises Forbidden, ScheduleNotFound, InvalidRequest, ScheduleConflict."""
        await self._get_to_write(app_name, schedule_id)
        self._check_run(app_name, schedule)
        caller = self._permissions.identity.caller
        replaced = await self._watched_result(
            self._service.replace(schedule, app_name=app_name, schedule_id=schedule_id, caller=caller)
        )
        await self._record("schedule.changed", replaced)
        return replaced

    async def set_paused(self, app_name: str, schedule_id: str, *, is_paused: bool) -> Schedule:
        """Raises Forbidden, ScheduleNotFound."""
        await self._get_to_write(app_name, schedule_id)
        schedule = await self._watched_result(self._service.set_paused(app_name, schedule_id, is_paused=is_paused))
        await self._record("schedule.paused" if is_paused else "schedule.resumed", schedule)
        return schedule

    async def delete(self, app_name: str, schedule_id: str) -> None:
        """Raises Forbidden, ScheduleNotFound, ScheduleConflict."""
        schedule = await self._get_to_write(app_name, schedule_id)
        await self._watched_result(self._service.delete(app_name, schedule_id))
        await self._record("schedule.deleted", schedule)

    async def run_now(self, app_name: str, schedule_id: str, *, idempotency_key: str | None) -> Run:
        """Raises Forbidden, ScheduleNotFound, and what `RunEngine.start` does."""
        schedule = await self._get_to_write(app_name, schedule_id)
        run = await self._watched_result(self._service.run_now(app_name, schedule_id, idempotency_key=idempotency_key))
        await self._record("schedule.started", schedule, run_id=run.id)
        return run

    async def list_runs(self, app_name: str, schedule_id: str, *, limit: int) -> ListScheduleRunsResponse:
        """Raises Forbidden, ScheduleNotFound."""
        await self.get(app_name, schedule_id)
        return await self._service.list_runs(app_name, schedule_id, limit=limit)

    async def _get_to_write(self, app_name: str, schedule_id: str) -> Schedule:
        """Raises Forbidden, ScheduleNotFound."""
        schedule = await self.get(app_name, schedule_id)
        self._permissions.check("write", app_name, schedule.user_id)
        return schedule

    async def _record(self, action: AuditAction, schedule: Schedule, *, run_id: str | None = None) -> None:
        await self._permissions.record(
            action, app_name=schedule.app_name, user_id=schedule.user_id, run_id=run_id, target=schedule.id
        )

    def _check_run(self, app_name: str, schedule: Schedule) -> None:
        """Raises Forbidden unless the caller may start the runs of a schedule itself."""
        of_app = msgspec.structs.replace(schedule, app_name=app_name)
        self._check("write", (of_app.run_request(schedule.session_id or ""),), {})
