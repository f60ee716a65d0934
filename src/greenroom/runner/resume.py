"""Progress of a run, read from its log: after a crash nothing else is asked. Small logs, and the decision:

    1  user  "How is Oslo?"
    2  desk  call c-1 weather(city="Oslo")          the call may have begun: its tool's `on_interrupt` decides, then
                                                    the model is called
    3  desk  response c-1 {"temp": 18}              the model is called
    4  desk  "18 degrees."                          a final response: the run is over

    1  user  "Write it."
    2  flow  agentState {current: "draft"}          the outermost workflow agent: it continues with `draft`
    3  draft "Once upon a time"                     final for `draft`, not for the run: `flow` continues behind it
    4  flow  endOfAgent                             the run is over

    1  user  "Pay 5"
    2  desk  call c-1 pay(amount=5)
    3  desk  response c-1, errorCode ConnectionError  the newest event ends the run with an error: it has failed

A message that only answers calls, or is for a task, belongs to the turn of the message before it. Each agent finds its
own position: see `agents/turn/resume.py`, and for workflow agents their checkpoints.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from greenroom.agents.transfer import asks_for_return
from greenroom.log.state import log_state_of
from greenroom.records.content import Content
from greenroom.records.copy_on_write import CopyOnWriteList
from greenroom.records.event import Event
from greenroom.records.human_requests import requests_in


@dataclass(frozen=True, slots=True)
class RunProgress:
    """Progress of a run. Steps of agents that run as tools are no part of `turn` and `last`: their callers resume them.

    events: all of the run; turn: those from its newest message on that is no answer to calls. has_begun: its newest
    message, or anything behind that, is stored. begins_at, message_at: index in the session's log of the turn's first
    event and of the run's newest message. last: the newest event by an agent since; one that only changes state, as a
    callback makes it, doesn't count, nor does one of a node that a tool or a workflow runs."""

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
            if asks_for_return(event):
                lenders.add(event.author)
        return bool(lenders)

    def _where_workflow_is(self) -> Literal["running", "ended", "left"]:
        """Whether the outermost workflow agent has ended since the newest message, and then others have spoken, to whom
        it gave the control back; of several in a row, the last. Messages of its own callbacks don't count."""
        turn = self.turn
        while True:
            outermost = next((event.author for event in turn if _is_progress_of_root(event)), None)
            if outermost is None:
                return "left"
            is_left = False
            for index in range(len(turn) - 1, -1, -1):
                event = turn[index]
                if event.author == "user":
                    return "running"
                if event.author != outermost:
                    is_left = is_left or event.content is not None
                elif event.actions.end_of_agent:
                    if not is_left:
                        return "ended"
                    turn = turn[index + 1 :]
                    break
                elif event.actions.agent_state is not None:
                    return "running"
            else:
                return "running"

    @property
    def was_failed(self) -> bool:
        """Whether the newest event is the one that ends a failed run. An agent of a workflow whose model failed to say
        anything has ended, but not the run; the agent that the run entered is above the workflow, or is it."""
        end = self.events[-1] if self.events else None
        if end is None or end.error_code is None or end.isolation_scope is not None:
            return False
        if end.content is not None:
            return bool(end.interrupted or end.get_function_responses())
        if end.node_path:  # of a workflow, in which a checkpoint follows what does not end the run
            return True
        below = False
        for event in self.turn[:-1]:
            if event.author == end.author:
                return not below
            below = below or event.actions.agent_state is not None
        return False


def _is_progress_of_root(event: Event) -> bool:
    """A checkpoint, but not of a node within a workflow, which may be an agent's tool."""
    return event.actions.agent_state is not None and "/" not in event.node_path


def _may_be_last(event: Event) -> bool:
    """Whether it is neither half a message nor of a node that a workflow or a tool runs."""
    return not event.is_cut_off and "/" not in event.node_path


def _ends_with_code(event: Event) -> bool:
    """Whether there may be code to run, which only the agent knows."""
    parts = event.content.parts if event.content is not None else None
    return bool(parts) and parts[-1].executable_code is not None


def run_progress(log: CopyOnWriteList[Event], invocation_id: str, *, after: int, since: int) -> RunProgress:
    """after: a sequence number before the run's first event. since: the log's end before the run's newest message."""
    after, since = after - log.skipped, since - log.skipped
    if after >= len(log):
        return RunProgress([], [], False, after, after, None, None)  # of a new run, without a state
    events: list[Event] = []
    turn: list[Event] = []
    user_content: Content | None = None
    last: Event | None = None
    has_begun = False
    begins_at = message_at = after
    log_state = log_state_of(log)
    for index in log_state.run(invocation_id).indexes if log_state.has_run(invocation_id) else ():
        if index < after:
            continue
        event = log[index]
        if not events:
            begins_at = message_at = index
        if event.author == "user" and event.isolation_scope is None and not event.get_function_responses():
            turn.clear()
            begins_at = index
        events.append(event)
        has_begun = index >= since
        if event.isolation_scope is not None:
            continue
        turn.append(event)
        if event.author == "user" and event.node_info is None:
            user_content = event.content or user_content
            message_at = index
            last = None
        elif (event.content is not None or event.error_code is not None) and _may_be_last(event):
            last = event
    return RunProgress(events, turn, has_begun, begins_at, message_at, user_content, last)


def model_calls(log: CopyOnWriteList[Event], invocation_id: str) -> int:
    """Counts the model calls of a run, as far as its log shows: a callback's answer in place of a model's counts too, a
    call whose reply was never stored doesn't."""
    count = 0
    is_repeated = False  # an answer through the tool for structured ones is followed by the same as text
    for index in log_state_of(log).run(invocation_id).indexes:
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
