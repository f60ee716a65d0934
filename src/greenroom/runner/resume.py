"""Where a run stands, read from its log: nothing else is asked after a crash.

A stored model reply with unanswered calls means that the calls were begun; a stored function response means that the
model is to be called; a final response, or the end of a workflow agent, means that all is done.
"""

from __future__ import annotations

from dataclasses import dataclass

from greenroom.records.content import Content
from greenroom.records.event import Event


@dataclass(frozen=True, slots=True)
class Standing:
    """events: all of the run. has_begun: its newest message, or anything behind that, is stored. begins_at, message_at:
    index in the session's log of the run's first event and of its newest message. last: the newest event by an agent
    since; one that only changes state, as a callback makes it, doesn't count."""

    events: list[Event]
    has_begun: bool
    begins_at: int
    message_at: int
    user_content: Content | None
    last: Event | None

    @property
    def is_over(self) -> bool:
        outermost = next((e.author for e in self.events if e.actions.agent_state is not None), None)
        if outermost is not None:
            newest = next(e for e in reversed(self.events) if e.author == outermost)
            return bool(newest.actions.end_of_agent)
        last = self.last
        if last is None or last.get_function_calls():
            return False
        return last.is_final_response() and last.actions.transfer_to_agent is None


def standing(log: list[Event], invocation_id: str, *, after: int, since: int) -> Standing:
    """log: the session's from place `after` on, which is before the run's first event. since: the log's end before the
    run's newest message."""
    events: list[Event] = []
    user_content: Content | None = None
    last: Event | None = None
    has_begun = False
    begins_at = message_at = after
    for index, event in enumerate(log, after):
        if event.invocation_id != invocation_id:
            continue
        if not events:
            begins_at = message_at = index
        events.append(event)
        has_begun = index >= since
        if event.author == "user":
            user_content = event.content or user_content
            message_at = index
            last = None
        elif event.content is not None or event.error_code is not None:
            last = event
    return Standing(events, has_begun, begins_at, message_at, user_content, last)
