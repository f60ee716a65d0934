"""Schedules that live as long as the process."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Sequence

import msgspec

from greenroom.errors import ScheduleConflict, TooManySchedules
from greenroom.records.schedule import ScheduleRun, StoredSchedule
from greenroom.records.shard import Shards
from greenroom.schedules.store import KEPT, ScheduleLimits, ScheduleStore, next_page_token, position_after


class InMemoryScheduleStore(ScheduleStore):
    def __init__(self) -> None:
        self._schedules: dict[tuple[str, str], StoredSchedule] = {}
        self._histories: dict[tuple[str, str], deque[ScheduleRun]] = {}

    async def add(self, schedule: StoredSchedule, limits: ScheduleLimits) -> None:
        key = schedule.app_name, schedule.id
        if key in self._schedules:
            raise ScheduleConflict(schedule.id, "exists already")
        if not schedule.is_of_app:
            of_app = [other for other in self._of_app(schedule.app_name) if not other.is_of_app]
            if len(of_app) >= limits.per_app:
                raise TooManySchedules(f"App {schedule.app_name!r}", limits.per_app)
            if sum(other.user_id == schedule.user_id for other in of_app) >= limits.per_user:
                raise TooManySchedules(f"User {schedule.user_id!r}", limits.per_user)
        self._schedules[key] = _copy(schedule)
        self._histories[key] = deque(maxlen=KEPT)

    async def get(self, app_name: str, schedule_id: str) -> StoredSchedule | None:
        found = self._schedules.get((app_name, schedule_id))
        return None if found is None else _copy(found)

    async def list(
        self, *, app_name: str, user_id: str | None = None, limit: int = 100, page_token: str | None = None
    ) -> tuple[Sequence[StoredSchedule], str | None]:
        before = position_after(page_token)
        found = [
            schedule
            for schedule in self._of_app(app_name)
            if (user_id is None or schedule.user_id == user_id)
            and (before is None or (schedule.created_at, schedule.id) < before)
        ]
        found.sort(key=lambda schedule: (schedule.created_at, schedule.id), reverse=True)
        page = [_copy(schedule) for schedule in found[:limit]]
        return page, next_page_token(page) if len(page) < len(found) else None

    async def list_of_apps(self) -> Sequence[StoredSchedule]:
        return [_copy(schedule) for schedule in self._schedules.values() if schedule.is_of_app]

    async def update(self, schedule: StoredSchedule, entries: Sequence[ScheduleRun] = ()) -> bool:
        key = schedule.app_name, schedule.id
        stored = self._schedules.get(key)
        if stored is None or stored.revision != schedule.revision:
            return False
        schedule.revision += 1
        schedule.history_size += len(entries)
        self._schedules[key] = _copy(schedule)
        self._histories[key].extend(entries)
        return True

    async def delete(self, app_name: str, schedule_id: str) -> bool:
        self._histories.pop((app_name, schedule_id), None)
        return self._schedules.pop((app_name, schedule_id), None) is not None

    async def delete_user(self, *, app_name: str, user_id: str) -> None:
        for schedule in self._of_app(app_name):
            if schedule.user_id == user_id and not schedule.is_of_app:
                await self.delete(app_name, schedule.id)

    async def list_runs(self, app_name: str, schedule_id: str, *, limit: int = 100) -> Sequence[ScheduleRun]:
        history = self._histories.get((app_name, schedule_id), ())
        return list(reversed(history))[:limit]

    async def list_due(self, now: float, *, limit: int, shards: Shards | None = None) -> Sequence[StoredSchedule]:
        due = (one for one in self._planned(shards) if one[0] <= now)
        return [_copy(self._schedules[key]) for _, key in heapq.nsmallest(limit, due)]

    async def next_time(self, after: float, *, shards: Shards | None = None) -> float | None:
        return min((next_at for next_at, _ in self._planned(shards) if next_at > after), default=None)

    def _planned(self, shards: Shards | None) -> Iterator[tuple[float, tuple[str, str]]]:
        """The times of the next runs, with the keys of their schedules."""
        for key, schedule in self._schedules.items():
            if schedule.next_at is not None and (shards is None or shards.include(schedule.key)):
                yield schedule.next_at, key

    def _of_app(self, app_name: str) -> Sequence[StoredSchedule]:
        return [schedule for schedule in self._schedules.values() if schedule.app_name == app_name]


def _copy(schedule: StoredSchedule) -> StoredSchedule:
    return msgspec.structs.replace(schedule)
