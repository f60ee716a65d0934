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
from greenroom.records.copy_on_write import CopyOnWriteList
from greenroom.records.event import Event


@dataclass(frozen=True, slots=True)
class Standing:
    """has_begun: the user's message, or any event of the run, is stored. last: the run's newest event by an agent since
    then; one that only changes state, as a callback makes it, doesn't count."""

    has_begun: bool
    user_content: Content | None
    last: Event | None

    @property
    def is_over(self) -> bool:
        last = self.last
        if last is None or last.get_function_calls():
            return False
        return last.is_final_response() and last.actions.transfer_to_agent is None


def standing(events: CopyOnWriteList[Event], invocation_id: str, after_seq: int) -> Standing:
    """after_seq: place in the log before the run's first event."""
    user_content: Content | None = None
    last: Event | None = None
    has_begun = False
    for event in events[after_seq:]:
        if event.invocation_id != invocation_id:
            continue
        has_begun = True
        if event.author == "user":
            user_content = event.content or user_content
            last = None
        elif event.content is not None or event.error_code is not None:
            last = event
    return Standing(has_begun, user_content, last)


def agent_after(root: BaseAgent, last: Event) -> BaseAgent | None:
    """The agent that goes on after an event of its run: the one handed over to, else the one that wrote it."""
    author = root.find_agent(last.author)
    return (handed_over_to(author, last) if isinstance(author, LlmAgent) else None) or author
