"""Where a run stands, read from its log: nothing else is asked after a crash.

A stored model reply with unanswered calls means that the calls were begun; a stored function response means that the
model is to be called; a final response means that all is done.
"""

from __future__ import annotations

from dataclasses import dataclass

from greenroom.agents.agent import BaseAgent
from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.turn.hand_over import handed_over_to
from greenroom.records.content import Content
from greenroom.records.event import Event


@dataclass(frozen=True, slots=True)
class Standing:
    """events: all of the run. has_begun: its newest message, or anything behind that, is stored. last: the newest event
    by an agent since; one that only changes state, as a callback makes it, doesn't count."""

    events: list[Event]
    has_begun: bool
    user_content: Content | None
    last: Event | None

    @property
    def is_over(self) -> bool:
        last = self.last
        if last is None or last.get_function_calls():
            return False
        return last.is_final_response() and last.actions.transfer_to_agent is None


def standing(log: list[Event], invocation_id: str, *, since: int) -> Standing:
    """log: from before the run's first event on. since: how many of it were there before the run's newest message."""
    events: list[Event] = []
    user_content: Content | None = None
    last: Event | None = None
    has_begun = False
    for place, event in enumerate(log):
        if event.invocation_id != invocation_id:
            continue
        events.append(event)
        has_begun = place >= since
        if event.author == "user":
            user_content = event.content or user_content
            last = None
        elif event.content is not None or event.error_code is not None:
            last = event
    return Standing(events, has_begun, user_content, last)


def agent_after(root: BaseAgent, last: Event) -> BaseAgent | None:
    """The agent that goes on after an event of its run: the one handed over to, else the one that wrote it."""
    author = root.find_agent(last.author)
    return (handed_over_to(author, last) if isinstance(author, LlmAgent) else None) or author
