"""Readers of runs and sessions: they yield the log's events after a sequence number, and then live items."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from greenroom.event_streams.in_process import InProcessEventStream
from greenroom.event_streams.stream import EndedRunReader, Follower, ReadLog
from greenroom.records.event import Event
from greenroom.records.run import Run
from greenroom.records.session import SessionKey
from greenroom.runs.engine import Attachment
from greenroom.runs.steering import Attach, SteeringReader
from greenroom.runs.task import RunTask
from greenroom.sessions.service import BaseSessionService

LOG_PAGE = 500
"""Number of events that are read from the store at once."""


@dataclass(kw_only=True, eq=False)
class Readers:
    """Makes the readers of one engine.

    attach: `RunEngine.attach`, for the run that a message leads to.
    """

    session_service: BaseSessionService
    stream: InProcessEventStream
    attach: Attach

    def of_session(self, key: SessionKey, *, after: int) -> Attachment:
        return Follower(self.stream.subscribe(key), after=after, read_log=self._log_reader(key))

    def of_run(
        self, key: SessionKey, run_id: str, *, after: int, with_user_events: bool, catch_up: bool = True
    ) -> Attachment:
        """A reader of a run that has not ended. catch_up: whether the log may have events after `after`."""
        return Follower(
            self.stream.subscribe(key, run_id=run_id, with_user_events=with_user_events),
            after=after,
            read_log=self._log_reader(key),
            run_id=run_id,
            with_user_events=with_user_events,
            catch_up=catch_up,
        )

    def of_ended_run(self, run: Run, *, after: int, with_user_events: bool) -> Attachment:
        read_log = self._log_reader(run.session_key)
        return EndedRunReader(run, read_log, after=after, with_user_events=with_user_events)

    def of_steering_run(
        self, run: Run, task: RunTask | None, *, after: int | None, with_user_events: bool
    ) -> Attachment:
        """A reader of a run whose message another run may read. task: while that is undecided."""
        return SteeringReader(
            run,
            task=task,
            after=after,
            with_user_events=with_user_events,
            attach=self.attach,
            read_log=self._log_reader(run.session_key),
        )

    def _log_reader(self, key: SessionKey) -> ReadLog:
        return partial(self._read_log, key)

    async def _read_log(self, key: SessionKey, after: int) -> list[Event]:
        page = await self.session_service.list_events(**key._asdict(), after=after, limit=LOG_PAGE)
        return page.events
