"""Adds the events of an ended run to memory."""

from __future__ import annotations

from greenroom.apps.app import MemoryPolicy
from greenroom.invocation.context import Services
from greenroom.memory.service import BaseMemoryService
from greenroom.records.event import Event
from greenroom.records.session import SessionKey

_PAGE = 500


async def remember(
    policy: MemoryPolicy, services: Services, key: SessionKey, invocation_id: str, *, after: int
) -> None:
    """Adds the events of the run after sequence number `after` that the policy selects; memory stores an id once.

    Raises the errors of the stores and of the policy.
    """
    if services.memory is None:
        return
    key_fields = key._asdict()
    selected: list[Event] = []
    while True:
        page = await services.sessions.list_events(**key_fields, after=after, limit=_PAGE)
        of_run = (event for event in page.events if event.invocation_id == invocation_id)
        selected += [event for event in of_run if policy.selects(event)]
        after += len(page.events)
        if not page.events or after >= page.last_seq:
            break
    if not selected:
        return
    if type(services.memory).add_events_to_memory is not BaseMemoryService.add_events_to_memory:
        await services.memory.add_events_to_memory(**key_fields, events=selected)
        return

    session = await services.sessions.get_session(**key_fields)  # for a store that takes whole sessions only
    if session is not None:
        await services.memory.add_session_to_memory(session)
