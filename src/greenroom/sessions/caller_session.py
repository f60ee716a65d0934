"""Brings the session objects that callers hold up to date after an append."""

from __future__ import annotations

from collections.abc import Sequence

from greenroom.records.copy_on_write import CopyOnWriteList
from greenroom.records.event import Event
from greenroom.records.session import Session
from greenroom.records.state import apply_delta
from greenroom.sessions.cached_session import PartialLog
from greenroom.sessions.frozen import from_frozen, to_frozen
from greenroom.sessions.prepared_event import PreparedEvent


def sync(session: Session, log: CopyOnWriteList[Event], prepared: Sequence[PreparedEvent]) -> None:
    """Adds to a caller's session the events that it lacks, and their deltas.

    A caller that holds the whole log gets all that is new. One that holds a part (a filtered session, or a list of its
    own making) gets the events it appended. `session.state` stays the same map, since views of it are held.
    """
    end = session.events.end
    at = end - log.skipped

    if type(session.events) is not CopyOnWriteList and is_partial(session):
        append_own(session, prepared)
    elif log.shares_items_with(session.events):
        session.events = log.snapshot()
        if len(log) == at + 1 and log[at] is prepared[0].event and len(prepared) == 1:  # there are no other writers
            if prepared[0].original:
                apply_delta(session.state, prepared[0].original)
            session.last_update_time = prepared[0].event.timestamp
        else:
            _apply_deltas(session, log[at:], prepared)
    elif end == at == 0 or (0 < at <= len(log) and len(session.events) and session.events[-1].id == log[at - 1].id):
        extend_log(session, log[at:], prepared)
    else:
        append_own(session, prepared)


def is_partial(session: Session) -> bool:
    # Once a caller has assigned a list of its own, the type can be any.
    return not isinstance(session.events, CopyOnWriteList) or isinstance(session.events, PartialLog)


def extend_log(session: Session, later: Sequence[Event], prepared: Sequence[PreparedEvent]) -> None:
    """Lengthen a caller's own list, which it may have changed on purpose, by the events that it lacks."""
    session.events.extend(later)
    _apply_deltas(session, later, prepared)


def append_own(session: Session, prepared: Sequence[PreparedEvent]) -> None:
    """Adds the appended events only."""
    known = {event.id for event in session.events[-20:]}
    own = {one.event.id: one.event for one in prepared if one.event.id not in known}
    extend_log(session, list(own.values()), prepared)


def _apply_deltas(session: Session, later: Sequence[Event], prepared: Sequence[PreparedEvent]) -> None:
    own = {prepared_event.event.id: prepared_event for prepared_event in prepared}
    for event in later:
        if event.id in own:
            apply_delta(session.state, own[event.id].original)
        elif event.actions.state_delta:
            apply_delta(session.state, from_frozen(to_frozen(event.actions.state_delta)))
    for prepared_event in prepared:
        apply_delta(session.state, prepared_event.temp)
    if session.events:
        session.last_update_time = session.events[-1].timestamp
