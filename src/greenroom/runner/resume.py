"""Where a run stands, read from its log: nothing else is asked after a crash.

A stored model reply with unanswered calls means that the calls were begun; a stored function response means that the
model is to be called; a final response, or the end of a workflow agent, means that all is done.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from greenroom.agents.transfer import wants_it_back
from greenroom.records.calls import ledger_of, requests_in
from greenroom.records.content import Content
from greenroom.records.copy_on_write import CopyOnWriteList
from greenroom.records.event import Event


@dataclass(frozen=True, slots=True)
class Standing:
    """What agents do that run as tools is left to those whose tools they are, and is no part of `turn` and `last`.

    events: all of the run; turn: those from its newest message on that is no answer to calls. has_begun: its newest
    message, or anything behind that, is stored. begins_at, message_at: index in the session's log of the turn's first
    event and of the run's newest message. last: the newest event by an agent since; one that only changes state, as a
    callback makes it, doesn't count."""

    events: list[Event]
    turn: list[Event]
    has_begun: bool
    begins_at: int
    message_at: int
    user_content: Content | None
    last: Event | None

    @property
    def is_over(self) -> bool:
        if self.was_failed:
            return True
        where = self._where_workflow_is()
        if where != "left":
            return where == "ended" and not self._is_control_lent
        last = self.last
        if last is None or last.get_function_calls() or _ends_with_code(last):
            return False
        return last.is_final_response() and last.actions.transfer_to_agent is None and not self._is_control_lent

    @property
    def _is_control_lent(self) -> bool:
        """Whether an agent wanted the control back, and hasn't said anything since."""
        lenders: set[str] = set()
        for event in self.turn:
            if event.content is not None:
                lenders.discard(event.author)
            if wants_it_back(event):
                lenders.add(event.author)
        return bool(lenders)

    def _where_workflow_is(self) -> Literal["running", "ended", "left"]:
        """Whether the outermost workflow agent has ended since the newest message, and then others have spoken, to whom
        it gave the control back; of several in a row, the last. What its own callbacks say doesn't count."""
        turn = self.turn
        while True:
            outermost = next((event.author for event in turn if event.actions.agent_state is not None), None)
            if outermost is None:
                return "left"
            is_left = False
            for place in range(len(turn) - 1, -1, -1):
                event = turn[place]
                if event.author == "user":
                    return "running"
                if event.author != outermost:
                    is_left = is_left or event.content is not None
                elif event.actions.end_of_agent:
                    if not is_left:
                        return "ended"
                    turn = turn[place + 1 :]
                    break
                elif event.actions.agent_state is not None:
                    return "running"
            else:
                return "running"

    @property
    def was_failed(self) -> bool:
        """Whether the newest event is the one that ends a failed run. An agent of a workflow whose model failed to say
        anything has ended, but not the run; the agent that the run entered stands above the workflow, or is it."""
        end = self.events[-1] if self.events else None
        if end is None or end.error_code is None or end.isolation_scope is not None:
            return False
        if end.content is not None:
            return bool(end.interrupted or end.get_function_responses())
        below = False
        for event in self.turn[:-1]:
            if event.author == end.author:
                return not below
            below = below or event.actions.agent_state is not None
        return False


def _ends_with_code(event: Event) -> bool:
    """Whether there may be code to run, which only the agent knows."""
    parts = event.content.parts if event.content is not None else None
    return bool(parts) and parts[-1].executable_code is not None


def standing(log: list[Event], invocation_id: str, *, after: int, since: int) -> Standing:
    """log: the session's from place `after` on, which is before the run's first event. since: the log's end before the
    run's newest message."""
    events: list[Event] = []
    turn: list[Event] = []
    user_content: Content | None = None
    last: Event | None = None
    has_begun = False
    begins_at = message_at = after
    for index, event in enumerate(log, after):
        if event.invocation_id != invocation_id:
            continue
        if not events:
            begins_at = message_at = index
        if event.author == "user" and not event.get_function_responses():
            turn.clear()
            begins_at = index
        events.append(event)
        has_begun = index >= since
        if event.isolation_scope is not None:
            continue
        turn.append(event)
        if event.author == "user":
            user_content = event.content or user_content
            message_at = index
            last = None
        elif (event.content is not None or event.error_code is not None) and not event.is_cut_off:
            last = event
    return Standing(events, turn, has_begun, begins_at, message_at, user_content, last)


def model_calls(log: CopyOnWriteList[Event], invocation_id: str) -> int:
    """How often models were asked in a run, as far as its log tells: a callback's answer in place of a model's counts
    too, a call whose reply was never stored doesn't."""
    count = 0
    is_repeated = False  # an answer through the tool for structured ones is followed by the same as text
    for index in ledger_of(log).run(invocation_id).indexes:
        event = log[index]
        count += _is_reply(event) and not is_repeated
        is_repeated = event.actions.set_model_response is not None
    return count


def _is_reply(event: Event) -> bool:
    if event.author == "user" or requests_in(event):
        return False
    if event.content is None:
        return event.error_code is not None
    parts = event.content.parts or ()
    return event.content.role == "model" and any(part.code_execution_result is None for part in parts)
