"""What the newest message of a run sets free: calls that a person approved, refused, or granted a credential for."""

from __future__ import annotations

from greenroom.agents.asking.confirmation import Grant, granted_by, newest_message
from greenroom.agents.asking.credential import released_by
from greenroom.invocation.context import InvocationContext
from greenroom.records.copy_on_write import CopyOnWriteList
from greenroom.records.event import Event


def granted(agent: str, ctx: InvocationContext, *, at: int) -> tuple[list[Grant], bool]:
    """What the message at that index of the log grants to this agent, in this branch, and whether it is the newest."""
    grants = [grant for grant in _decided(ctx.session.events, at) if (grant.agent, grant.branch) == (agent, ctx.branch)]
    return grants, at == newest_message(ctx.session.events, ctx.invocation_id)


def granted_and_not_done(events: CopyOnWriteList[Event], invocation_id: str) -> list[Grant]:
    """Calls that the newest message of a run has decided on, and that have no response since."""
    index = newest_message(events, invocation_id)
    return _decided(events, index) if index is not None else []


def _decided(events: CopyOnWriteList[Event], index: int) -> list[Grant]:
    released = [
        grant for grant in released_by(events, index) if not _is_done(events, grant, range(index + 1, len(events)))
    ]
    return granted_by(events, index) + released


def _is_done(events: CopyOnWriteList[Event], grant: Grant, later: range) -> bool:
    for index in later:
        event = events[index]
        if (event.author, event.branch) == (grant.agent, grant.branch) and any(
            response.id == grant.call.id for response in event.get_function_responses()
        ):
            return True
    return False
