"""The contract of a store of schedules."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from greenroom.records import wire
from greenroom.records.schedule import ScheduleRun, StoredSchedule
from greenroom.records.shard import Shards

KEPT = 1000
"""Number of entries that the history of a schedule keeps, the newest."""


@dataclass(frozen=True, kw_only=True)
class ScheduleLimits:
    """The numbers of schedules that are stored."""

    per_user: int = 100
    """Of one user in one app, without those of the app's code."""

    per_app: int = 10_000
    """Of all users of an app, without those of the app's code."""


class ScheduleStore(ABC):
    """Keeps schedules with their histories. A change fails if the schedule was changed since it was read."""

    @abstractmethod
    async def add(self, schedule: StoredSchedule, limits: ScheduleLimits) -> None:
        """Raises ScheduleConflict if the app has one with this id, TooManySchedules."""

    @abstractmethod
    async def get(self, app_name: str, schedule_id: str) -> StoredSchedule | None: ...

    @abstractmethod
    async def list(
        self, *, app_name: str, user_id: str | None = None, limit: int = 100, page_token: str | None = None
    ) -> tuple[Sequence[StoredSchedule], str | None]:
        """A page of an app's schedules, newest first, and the token of the next page. Raises InvalidRequest."""

    @abstractmethod
    async def list_of_apps(self) -> Sequence[StoredSchedule]:
        """All schedules that the code of apps declares."""

    @abstractmethod
    async def update(self, schedule: StoredSchedule, entries: Sequence[ScheduleRun] = ()) -> bool:
        """Stores a changed schedule with new entries of its history; both, or neither and False if it was changed or
        deleted since it was read. Raises its `revision` and `history_size`.
        """

    @abstractmethod
    async def delete(self, app_name: str, schedule_id: str) -> bool:
        """Deletes a schedule and its history; returns False when there is none."""

    @abstractmethod
    async def delete_user(self, *, app_name: str, user_id: str) -> None:
        """Deletes a user's schedules in an app, but those of the app's code."""

    @abstractmethod
    async def list_runs(self, app_name: str, schedule_id: str, *, limit: int = 100) -> Sequence[ScheduleRun]:
        """The newest entries of a history, newest first."""

    @abstractmethod
    async def list_due(self, now: float, *, limit: int, shards: Shards | None = None) -> Sequence[StoredSchedule]:
        """The schedules whose `next_at` has come, earliest first. shards: only those whose `key` belongs to them."""

    @abstractmethod
    async def next_time(self, after: float, *, shards: Shards | None = None) -> float | None:
        """The earliest `next_at` after a time; None if there is none. shards: as above."""


def next_page_token(page: Sequence[StoredSchedule]) -> str:
    return wire.write_page_token(page[-1].created_at, page[-1].id)


def position_after(page_token: str | None) -> tuple[float, str] | None:
    """Creation time and id of the last schedule of the previous page. Raises InvalidRequest."""
    if not page_token:
        return None
    time, (schedule_id,) = wire.read_page_token(page_token, keys=1)
    return time, schedule_id


def kept_numbers(schedule: StoredSchedule, entries: Collection[ScheduleRun]) -> tuple[int, int]:
    """The number of the first of new entries, and the highest number of those to delete."""
    return schedule.history_size + 1, schedule.history_size + len(entries) - KEPT
