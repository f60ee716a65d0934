"""Compaction at the end of a run."""

from __future__ import annotations

import logging

from greenroom.agents.agent import BaseAgent
from greenroom.agents.turn.compaction import compact_after_run
from greenroom.errors import GreenroomError
from greenroom.invocation.context import Services
from greenroom.records.copy_on_write import CopyOnWriteList
from greenroom.records.event import Event
from greenroom.runner.accept import SINCE_COMPACTION
from greenroom.runner.commit import RunLog

_log = logging.getLogger("greenroom.runner")


async def compact(log: RunLog, root: BaseAgent, services: Services) -> None:
    """Summarizes older events, where the app's config says so. A failure is only logged: the next run tries again."""
    config = services.compaction
    session = log.session
    if config is None:
        return
    try:
        before = session.events.snapshot()
        event = await compact_after_run(config, root, services, before)
        if event is None:
            return
        now = await services.sessions.get_session(**session.key._asdict(), config=SINCE_COMPACTION)
        if now is not None and _has_only_grown(before, now.events):
            await log.commit_summary(event)
    except GreenroomError as error:
        _log.warning("session %s could not be compacted: %s", session.id, error)


def _has_only_grown(before: CopyOnWriteList[Event], now: CopyOnWriteList[Event]) -> bool:
    """False if the session was rewound in the meantime, or replaced by another session with the same id."""
    later = before.end - now.skipped
    if not 0 < later <= len(now) or now[later - 1].id != before[-1].id:
        return False
    return not any(event.actions.rewind_before_invocation_id for event in now[later:])
