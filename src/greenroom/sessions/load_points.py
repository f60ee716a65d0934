"""Rows of compactions and rewinds, from which a session is loaded without the events that a run doesn't need."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from greenroom.log.compaction import range_of
from greenroom.records.event import Event
from greenroom.records.session import SessionKey

_SAVE = """
    INSERT INTO compactions (session, seq, first_seq, load_seq)
    SELECT number, CAST(?4 AS bigint), CAST(?5 AS bigint), CAST(?6 AS bigint) FROM sessions
    WHERE app_name = ?1 AND user_id = ?2 AND sessions.id = ?3
"""
_NEWEST = """
    SELECT first_seq, load_seq FROM compactions
    WHERE session = ?1 AND seq > ?2 AND seq <= ?3 AND load_seq IS NOT NULL ORDER BY seq DESC LIMIT 1
"""
_EARLIER = """
    SELECT data FROM compactions JOIN events ON events.session = compactions.session AND events.seq = compactions.seq
    WHERE compactions.session = ?1 AND compactions.seq > ?2 AND compactions.seq <= ?3
        AND (first_seq IS NULL OR first_seq < ?4) ORDER BY events.seq
"""

Fetch = Callable[..., Awaitable[list[Any]]]
Part = tuple[int, int, int]
"""Position of stored events: session number, first sequence number - 1, last one."""


async def save_load_point(fetch: Fetch, key: SessionKey, event: Event, seq: int, seq_of_last: int | None) -> None:
    """seq_of_last: of the last event that a compaction says it replaces, in this log. A range that isn't true of it, as
    after an import in part, is no reason to load less."""
    replaced, first_seq = range_of(event), None
    load_seq = 0 if event.actions.compaction is None else None
    if replaced is not None and seq_of_last == replaced.last_seq < seq:
        first_seq, load_seq = replaced.first_seq, max(min(replaced.load_seq, replaced.last_seq + 1), 0)
    await fetch(_SAVE, *key, seq, first_seq, load_seq)


async def load_point(fetch: Fetch, parts: Sequence[Part]) -> tuple[int, list[str]]:
    """The last sequence number of a log that a run doesn't need, and the JSON of the earlier compactions that it does.

    After a rewind all events are needed, until the next compaction."""
    for number, above, last in reversed(parts):
        rows = await fetch(_NEWEST, number, above, last)
        if rows:
            break
    else:
        return 0, []
    first_seq, load_seq = rows[0]
    earlier: list[str] = []
    for number, above, last in parts:
        if above < load_seq - 1:
            found = await fetch(_EARLIER, number, above, min(last, load_seq - 1), first_seq)
            earlier += [data for (data,) in found]
    return max(load_seq - 1, 0), earlier
