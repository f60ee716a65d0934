"""A run that is over, read from the log of its session."""

from __future__ import annotations

from greenroom.event_streams.stream import LiveItem, ReadLog, RunEnded, stored_items
from greenroom.records.run import Run


class PastRun:
    """Its log, a page at a time, then its end."""

    def __init__(self, run: Run, read_log: ReadLog, *, after: int, with_user_events: bool) -> None:
        self._run = run
        self._with_user_events = with_user_events
        self._read_log = read_log
        self._after = after

    async def next_batch(self, *, idle_seconds: float | None = None) -> list[LiveItem]:
        while events := await self._read_log(self._after):
            batch = stored_items(
                events, after=self._after, run_id=self._run.id, with_user_events=self._with_user_events
            )
            self._after += len(events)
            if batch:
                return batch
        return [RunEnded(self._run)]

    def close(self) -> None:
        pass
